//! A listener's TLS: one published configuration, replaced as a whole when certificate files change.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use cardea_clock::{Clock, Wall};
use rustls::{ServerConfig, ServerConnection};
use rustls_pki_types::CertificateDer;

use crate::certificate::{Certificate, CertificateInfo, CertificateState, hosts_of_unusable};
use crate::client_auth::{ClientAuthConfig, ClientAuthMode};
use crate::config::{CertificateConfig, ServerTlsConfig, StatelessTickets};
use crate::error::{CertificateError, CertificateProblem, HandshakeRefused, TlsError, lines};
use crate::facts::HandshakeFacts;
use crate::files::Stamp;
use crate::names::{Names, TrustDomain};
use crate::sessions::SessionStats;
use crate::staple::{Asked, OcspConfig, Staple, StapleError, StapleRequest};
use crate::tickets::TicketSecrets;

mod active;

use active::Active;

/// TLS as one listener terminates it; shared by its connections, and kept for as long as they last.
///
/// Sessions are resumed only here, or where a ticket secret says so at the same listener of another node: each
/// `ServerTls` has a session store of its own, and keys of its own from the secret, so what one listener demanded of a
/// client is never taken for what another one demands. Within it a session is bound to its server name (RFC 6066 §3),
/// and all are given up when a reload moves a host between trust domains. Hosts that ask clients for certificates have
/// stores of their own, for each way of asking.
pub struct ServerTls {
    settings: ServerTlsConfig,
    clock: Clock,
    ticket_secrets: Option<Arc<TicketSecrets>>,
    active: ArcSwap<Active>,
    watched: Mutex<Watched>,
    /// How all configured certificates do, beside what takes time to be replaced.
    states: ArcSwap<Vec<CertificateState>>,
}

/// How often certificates of any listener were replaced.
static PUBLISHED: AtomicU64 = AtomicU64::new(0);

/// Changes whenever the certificates of a listener do; for what is made from those of several.
pub(crate) fn published() -> u64 {
    PUBLISHED.load(Ordering::Acquire)
}

/// What reloads compare and change.
struct Watched {
    slots: Vec<Slot>,
    /// What the last reload complained of: an unchanged complaint is made once, not every few seconds.
    reported: Vec<CertificateError>,
}

#[derive(Clone)]
struct Slot {
    /// None where it is managed and has yet to come, or where it can't be used.
    certificate: Option<Certificate>,
    /// The hosts of one that can't be used, where they can be told.
    hosts: Option<Vec<String>>,
    is_unusable: bool,
    stamps: [Stamp; 2],
    staple: Option<Staple>,
    /// Of the file of the staple, where it comes from one.
    staple_stamp: Option<Stamp>,
    asked: Asked,
}

impl ServerTls {
    /// Loads all certificates. Sessions live by `clock`.
    ///
    /// # Errors
    /// [`TlsError::Certificates`] with everything that is wrong with any of them now; [`TlsError::NoCertificate`] if
    /// there is none; [`TlsError::Sessions`] for more sessions than can be kept. Blocks on the file system.
    pub fn load(config: &ServerTlsConfig, clock: &Clock) -> Result<Self, TlsError> {
        Self::load_tolerating(config, clock, &|_| false)
    }

    /// Loads all certificates, where some of them may be unusable: those that `tolerates` says. Handshakes for their hosts
    /// fail until what is wrong with them is corrected, which [`Self::reload_if_changed`] finds; nothing else is served in
    /// their place, and what is asked of clients of these hosts goes on to hold. Where it can't be told which hosts an
    /// unusable certificate is for, handshakes for names that no certificate covers fail, too. See
    /// [`Self::certificate_states`].
    ///
    /// # Errors
    /// As [`Self::load`], for all others, and [`CertificateProblem::HostsUnknown`] where clients of hosts that can't be told
    /// must be asked for certificates: another listener could serve such a host without asking.
    pub fn load_tolerating(
        config: &ServerTlsConfig,
        clock: &Clock,
        tolerates: &dyn Fn(&CertificateConfig) -> bool,
    ) -> Result<Self, TlsError> {
        let now = clock.wall();
        if config.certificates.is_empty() {
            return Err(TlsError::NoCertificate);
        }
        let (mut slots, mut errors, mut tolerated) = (Vec::new(), Vec::new(), Vec::new());
        for certificate in &config.certificates {
            match Slot::load(certificate, now) {
                Ok(slot) => slots.push(slot),
                Err(problems) if tolerates(certificate) => {
                    let slot = Slot::unusable(certificate);
                    if slot.hosts.is_none() && certificate.client_auth.is_some() {
                        errors.extend(problems);
                        let problem = CertificateProblem::HostsUnknown;
                        errors.push(CertificateError { path: certificate.chain.clone(), problem });
                        continue;
                    }
                    slots.push(slot);
                    tolerated.extend(problems);
                }
                Err(problems) => errors.extend(problems),
            }
        }
        if !errors.is_empty() {
            return Err(TlsError::Certificates(errors));
        }
        let load =
            |tickets: &StatelessTickets| TicketSecrets::load(&tickets.keys, config.session_lifetime, clock);
        let ticket_secrets = config.stateless_tickets.as_ref().map(load).transpose()?;
        let active = Active::new(config, &slots, None, clock, ticket_secrets.as_ref())?;
        Ok(Self {
            settings: config.clone(),
            clock: clock.clone(),
            ticket_secrets,
            active: ArcSwap::from_pointee(active),
            states: ArcSwap::from_pointee(states(config, &slots, &tolerated)),
            watched: Mutex::new(Watched { slots, reported: tolerated }),
        })
    }

    /// The configuration for the next handshake, where [`Self::asks_by_name`] is false; else that of a client that names
    /// no host. To be asked for at each accept: a reload replaces it.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config_for(None)
    }

    /// Whether the configuration depends on the server name, since not all hosts treat client certificates alike. The
    /// server name must then be read before [`Self::config_for`] is asked.
    #[must_use]
    pub fn asks_by_name(&self) -> bool {
        self.active.load().asks_by_name()
    }

    /// The configuration for a handshake with this server name.
    #[must_use]
    pub fn config_for(&self, sni: Option<&str>) -> Arc<ServerConfig> {
        Arc::clone(&self.active.load().policy(sni).config)
    }

    /// How the handshake for a host asks for the client's certificate; `None` where it doesn't.
    #[must_use]
    pub fn client_auth_of(&self, host: &str) -> Option<ClientAuthConfig> {
        let active = self.active.load();
        active.names.policies().get(active.names.policy_of(Some(host))).cloned().flatten()
    }

    /// All the ways in which some host asks.
    #[must_use]
    pub fn client_auths(&self) -> Vec<ClientAuthConfig> {
        self.active.load().names.policies().iter().flatten().cloned().collect()
    }

    /// The facts of a handshake that is done, or whose client sends early data. A client certificate that came with a resumed session is verified again:
    /// it may have expired since, or been revoked.
    ///
    /// # Errors
    /// [`HandshakeRefused`]: the connection must be closed, before what it has to send is sent: among that are tickets with
    /// which the client would come again and again.
    pub fn handshake_facts(
        &self,
        connection: &mut ServerConnection,
    ) -> Result<HandshakeFacts, HandshakeRefused> {
        let mut facts = HandshakeFacts::of(connection).ok_or(HandshakeRefused::Unfinished)?;
        let active = self.active.load();
        match (&active.policy(facts.sni.as_deref()).verifier, connection.peer_certificates()) {
            (None, None) => {}
            (Some(verifier), None) if verifier.mode() == ClientAuthMode::Request => {}
            (Some(_), None) => return Err(HandshakeRefused::CertificateMissing),
            // A reload moved the host to where clients aren't asked.
            (None, Some(_)) => return Err(HandshakeRefused::CertificateUnasked),
            (Some(verifier), Some(chain)) => {
                let certificate = verifier.accept(chain, facts.resumed, self.clock.wall())?;
                facts.client_certificate = Some(Arc::new(certificate));
            }
        }
        Ok(facts)
    }

    /// Looks whether certificate files have changed and serves what is good among the new ones from the next
    /// handshake on; established connections and sessions go on. Returns whether anything was replaced.
    ///
    /// A certificate that can't be used at `now` keeps its predecessor in service, is tried again by every
    /// call, and doesn't hold up the others. Sessions that have expired are wiped, too. To be called every few seconds, off the runtime's threads:
    /// blocks on the file system (two `stat` calls per certificate when nothing has changed).
    ///
    /// # Errors
    /// [`TlsError::Certificates`] with what is wrong, whether or not others were replaced; the same complaint is
    /// returned once, until it changes.
    pub fn reload_if_changed(&self, now: Wall) -> Result<bool, TlsError> {
        self.active.load().reclaim();
        // A panic elsewhere can't leave the slots half-written: they are replaced as a whole.
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut fresh, mut errors) = (Vec::new(), Vec::new());
        if let Some(secrets) = &self.ticket_secrets {
            errors.extend(secrets.tick(now).err());
        }
        for (index, (config, slot)) in self.settings.certificates.iter().zip(&watched.slots).enumerate() {
            // What could not be used may be by now, though its files are the same: its time may have come.
            if stamps(config) != slot.stamps || slot.is_unusable {
                match Slot::load(config, now) {
                    // What is managed is never taken away.
                    Ok(loaded) if loaded.certificate.is_none() && slot.certificate.is_some() => {}
                    Ok(slot) => fresh.push((index, slot)),
                    Err(problems) => errors.extend(problems),
                }
            } else {
                match slot.with_staple_of(config, now) {
                    Ok(slot) => fresh.extend(slot.map(|slot| (index, slot))),
                    Err(error) => errors.push(error),
                }
            }
        }
        let mut changed = self.publish(&mut watched.slots, &fresh, &mut errors)?;
        if !changed && self.active.load().is_outdated() {
            // Who vouches for clients has changed: sessions are given up, and clients are told other names of roots.
            changed = self.republish(&watched.slots)?;
        }
        if !changed && fresh.len() > 1 {
            // One of them moves a host between trust domains; the others need not wait for it.
            errors.retain(|error| !matches!(error.problem, CertificateProblem::TrustDomainConflict { .. }));
            for one in fresh.chunks(1) {
                changed |= self.publish(&mut watched.slots, one, &mut errors)?;
            }
        }
        let is_news = errors != watched.reported;
        if is_news {
            watched.reported.clone_from(&errors);
        }
        if is_news || changed {
            self.states.store(Arc::new(states(&self.settings, &watched.slots, &errors)));
        }
        if is_news && !errors.is_empty() {
            return Err(TlsError::Certificates(errors));
        }
        Ok(changed)
    }

    /// The questions to ask responders about certificates whose responses are fetched and have used up half of their time, or
    /// are missing. Each is handed out once in five minutes. To be called off the runtime's threads.
    ///
    /// # Errors
    /// Beside them what keeps a certificate from being asked about.
    #[must_use]
    pub fn staples_due(&self, now: Wall) -> (Vec<StapleRequest>, Vec<CertificateError>) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut due, mut errors) = (Vec::new(), Vec::new());
        for (index, (config, slot)) in self.settings.certificates.iter().zip(&mut watched.slots).enumerate() {
            if config.ocsp != Some(OcspConfig::Fetch) || !slot.asked.is_due(slot.staple.as_ref(), now) {
                continue;
            }
            let Some(chain) = slot.chain() else { continue };
            match StapleRequest::new(index, config.chain.clone(), chain) {
                Ok(request) => due.push(request),
                Err(error) => errors.push(staple_error(&config.chain, error)),
            }
        }
        (due, errors)
    }

    /// Serves a responder's answer from the next handshake on, if it holds.
    ///
    /// # Errors
    /// [`StapleError`] says why not; what was served before goes on until it runs out.
    pub fn set_staple(
        &self,
        request: &StapleRequest,
        response: Vec<u8>,
        now: Wall,
    ) -> Result<(), StapleError> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = watched.slots.get(request.index).ok_or(StapleError::OtherCertificate)?;
        let chain = slot.chain().ok_or(StapleError::OtherCertificate)?;
        let staple = Staple::check(response, chain, now)?;
        if slot.staple.as_ref().is_some_and(|old| staple.next_update < old.next_update) {
            // An older answer, sent again by whoever stands between.
            return Err(StapleError::OutOfTime);
        }
        let mut next = watched.slots.clone();
        if let Some(slot) = next.get_mut(request.index) {
            slot.staple = Some(staple);
        }
        // The certificates are the same, so there is nothing that could be wrong with them.
        if self.republish(&next).is_ok() {
            watched.slots = next;
            self.states.store(Arc::new(states(&self.settings, &watched.slots, &watched.reported)));
        }
        Ok(())
    }

    /// The trust domain of a host in a request's authority: that of the certificate which a client that names
    /// this host gets. `None` where such a client is refused. Case, a trailing dot and the brackets of an IPv6
    /// address make no difference; the host carries no port.
    #[must_use]
    pub fn trust_domain_of(&self, host: &str) -> Option<TrustDomain> {
        self.active.load().names.trust_domain_of(host)
    }

    /// The trust domain of a connection by the server name that its client sent, if any.
    #[must_use]
    pub fn trust_domain_of_connection(&self, sni: Option<&str>) -> Option<TrustDomain> {
        let active = self.active.load();
        match sni {
            Some(name) => active.names.trust_domain_of(name),
            None => active.names.default_trust_domain(),
        }
    }

    /// Whether a request for `host` must be answered with 421 on a connection with this server name
    /// (RFC 9110 §15.5.20): its trust domain is another one, or there is none.
    #[must_use]
    pub fn is_misdirected(&self, sni: Option<&str>, host: &str) -> bool {
        if sni == Some(host) {
            // Nearly every request; saves both lookups.
            return false;
        }
        let domain = self.trust_domain_of_connection(sni);
        domain.is_none() || domain != self.trust_domain_of(host)
    }

    /// Whether one of the certificates names `pattern`, a host or a wildcard; a host also by a wildcard of a certificate.
    #[must_use]
    pub fn has_certificate_for(&self, pattern: &str) -> bool {
        self.active.load().names.names(pattern)
    }

    pub(crate) fn names(&self) -> Arc<Names> {
        Arc::clone(&self.active.load().names)
    }

    pub(crate) const fn settings(&self) -> &ServerTlsConfig {
        &self.settings
    }

    /// The configured name of a trust domain of this `ServerTls`.
    #[must_use]
    pub fn trust_domain_name(&self, domain: TrustDomain) -> Option<String> {
        self.active.load().names.trust_domain_name(domain).map(str::to_owned)
    }

    /// The certificates in service, in the order of the configuration.
    #[must_use]
    pub fn certificates(&self) -> Vec<CertificateInfo> {
        self.active.load().certificates.clone()
    }

    /// How each configured certificate does, in their order.
    #[must_use]
    pub fn certificate_states(&self) -> Arc<Vec<CertificateState>> {
        self.states.load_full()
    }

    /// How resumption fares, for metrics.
    #[must_use]
    pub fn session_stats(&self) -> SessionStats {
        self.active.load().session_stats()
    }

    /// Publishes `slots` with the fresh ones in their places. Where that puts a host into two trust domains it
    /// changes nothing, adds to `errors` and returns false.
    fn publish(
        &self,
        slots: &mut Vec<Slot>,
        fresh: &[(usize, Slot)],
        errors: &mut Vec<CertificateError>,
    ) -> Result<bool, TlsError> {
        if fresh.is_empty() {
            return Ok(false);
        }
        let mut next = slots.clone();
        for (index, slot) in fresh {
            if let Some(place) = next.get_mut(*index) {
                place.clone_from(slot);
            }
        }
        match self.republish(&next) {
            Ok(_) => {}
            Err(TlsError::Certificates(conflicts)) => {
                errors.extend(conflicts);
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        *slots = next;
        Ok(true)
    }

    fn republish(&self, slots: &[Slot]) -> Result<bool, TlsError> {
        let before = self.active.load();
        let secrets = self.ticket_secrets.as_ref();
        self.active.store(Arc::new(Active::new(&self.settings, slots, Some(&before), &self.clock, secrets)?));
        PUBLISHED.fetch_add(1, Ordering::Release);
        Ok(true)
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls")
            .field("certificates", &self.active.load().certificates)
            .finish_non_exhaustive()
    }
}

impl Slot {
    /// Loads a certificate, and its staple where that comes from a file. Without one it can be served, too. A managed one that
    /// can't be used is as good as none: what manages it gets another one.
    fn load(config: &CertificateConfig, now: Wall) -> Result<Self, Vec<CertificateError>> {
        // Before the files are read.
        let stamps = stamps(config);
        let certificate = match (Certificate::load(config, now), &config.managed) {
            (Ok(certificate), _) => Some(certificate),
            (Err(problems), None) => return Err(problems),
            (Err(problems), Some(managed)) => {
                if managed.version() > 0 {
                    tracing::warn!(problem = %lines(&problems), "a stored certificate can't be used");
                }
                None
            }
        };
        let slot = Self {
            certificate,
            hosts: None,
            is_unusable: false,
            stamps,
            staple: None,
            staple_stamp: None,
            asked: Asked::default(),
        };
        Ok(match slot.with_staple_of(config, now) {
            Ok(fresh) => fresh.unwrap_or(slot),
            Err(error) => {
                tracing::warn!(%error, "a certificate is served without a response of its authority");
                slot
            }
        })
    }

    /// The settings of a certificate that isn't there, with its hosts.
    fn awaited<'a>(&self, config: &'a CertificateConfig) -> Cow<'a, CertificateConfig> {
        match &self.hosts {
            Some(hosts) => Cow::Owned(CertificateConfig { hosts: hosts.clone(), ..config.clone() }),
            None => Cow::Borrowed(config),
        }
    }

    /// For a certificate that can't be used, until it can.
    fn unusable(config: &CertificateConfig) -> Self {
        Self {
            certificate: None,
            hosts: hosts_of_unusable(config),
            is_unusable: true,
            stamps: stamps(config),
            staple: None,
            staple_stamp: None,
            asked: Asked::default(),
        }
    }

    /// The slot with another staple, where there is one, or with none where its time is over.
    fn with_staple_of(
        &self,
        config: &CertificateConfig,
        now: Wall,
    ) -> Result<Option<Self>, CertificateError> {
        let mut slot = self.clone();
        slot.staple = slot.staple.filter(|staple| !staple.is_over(now));
        let mut changed = slot.staple.is_some() != self.staple.is_some();
        if let (Some(OcspConfig::File(path)), Some(chain)) = (&config.ocsp, self.chain()) {
            let stamp = Stamp::of(path);
            if Some(stamp) != self.staple_stamp {
                let read = Staple::read(path, chain, now);
                match read {
                    Ok(staple) => {
                        (slot.staple, slot.staple_stamp) = (Some(staple), Some(stamp));
                        changed = true;
                    }
                    // What has run out must go; the complaint comes with the next look.
                    Err(_) if changed => {}
                    Err(error) => return Err(staple_error(path, error)),
                }
            }
        }
        Ok(changed.then_some(slot))
    }

    fn chain(&self) -> Option<&[CertificateDer<'static>]> {
        self.certificate.as_ref().map(|certificate| certificate.certified.cert.as_slice())
    }

    /// The certificate with what is sent along.
    fn certificate(&self) -> Option<Certificate> {
        let mut certificate = self.certificate.clone()?;
        if let Some(staple) = &self.staple {
            let mut certified = rustls::sign::CertifiedKey::clone(&certificate.certified);
            certified.ocsp = Some(staple.der.clone());
            certificate.certified = Arc::new(certified);
            certificate.info.staple_until = Some(staple.next_update);
        }
        Some(certificate)
    }
}

/// How each certificate does, given what is complained of.
fn states(
    settings: &ServerTlsConfig,
    slots: &[Slot],
    complaints: &[CertificateError],
) -> Vec<CertificateState> {
    let state = |(config, slot): (&CertificateConfig, &Slot)| {
        let served = slot.certificate().map(|certificate| certificate.info);
        let unserved = || slot.hosts.clone().unwrap_or_else(|| config.hosts.clone());
        let is_its = |error: &&CertificateError| error.path == config.chain || error.path == config.key;
        CertificateState {
            path: config.chain.clone(),
            hosts: served.as_ref().map_or_else(unserved, |served| served.hosts.clone()),
            served,
            problems: complaints.iter().filter(is_its).map(ToString::to_string).collect(),
            is_awaited: slot.certificate.is_none() && !slot.is_unusable,
        }
    };
    settings.certificates.iter().zip(slots).map(state).collect()
}

fn staple_error(path: &Path, error: StapleError) -> CertificateError {
    CertificateError { path: path.to_owned(), problem: CertificateProblem::Staple(error) }
}

fn stamps(config: &CertificateConfig) -> [Stamp; 2] {
    match &config.managed {
        Some(managed) => [Stamp::version(managed.version()); 2],
        None => [Stamp::of(&config.chain), Stamp::of(&config.key)],
    }
}

#[cfg(test)]
mod tests;
