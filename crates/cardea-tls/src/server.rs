//! The TLS of a listener: one published configuration, replaced as a whole when certificate files change.

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

/// The TLS of a listener, shared by its connections for as long as they last.
///
/// Sessions are resumed only here, or, with a shared ticket secret, at the same listener of another node. Each
/// `ServerTls` has its own session store and derives its own keys from the secret, so a session never carries over what
/// another listener required. A session is bound to its server name (RFC 6066 §3), and all are removed when a reload
/// moves a host between trust domains. Hosts that request client certificates have separate stores, one per policy.
pub struct ServerTls {
    settings: ServerTlsConfig,
    clock: Clock,
    ticket_secrets: Option<Arc<TicketSecrets>>,
    active: ArcSwap<Active>,
    watched: Mutex<Watched>,
    /// The states of all configured certificates, which change independently of handshakes.
    states: ArcSwap<Vec<CertificateState>>,
}

/// Counts the replacements of certificates of all listeners.
static PUBLISHED: AtomicU64 = AtomicU64::new(0);

/// Changes whenever the certificates of any listener do, for data that is derived from several listeners.
pub(crate) fn published() -> u64 {
    PUBLISHED.load(Ordering::Acquire)
}

/// State that reloads compare and change.
struct Watched {
    slots: Vec<Slot>,
    /// The errors of the last reload: an unchanged error is reported once, not every few seconds.
    reported: Vec<CertificateError>,
}

#[derive(Clone)]
struct Slot {
    /// `None` if it is managed and has yet to be issued, or if it can't be used.
    certificate: Option<Certificate>,
    /// The hosts of an unusable certificate, if they are known.
    hosts: Option<Vec<String>>,
    is_unusable: bool,
    stamps: [Stamp; 2],
    staple: Option<Staple>,
    /// The stamp of the staple file, if there is one.
    staple_stamp: Option<Stamp>,
    asked: Asked,
}

impl ServerTls {
    /// Loads all certificates. `clock` determines the expiry of sessions.
    ///
    /// # Errors
    /// [`TlsError::Certificates`] with all current problems; [`TlsError::NoCertificate`] if there is no certificate;
    /// [`TlsError::Sessions`] for more sessions than can be stored. Blocks on the file system.
    pub fn load(config: &ServerTlsConfig, clock: &Clock) -> Result<Self, TlsError> {
        Self::load_tolerating(config, clock, &|_| false)
    }

    /// Loads all certificates, of which those that `tolerates` selects may be unusable. Handshakes for their hosts fail
    /// until [`Self::reload_if_changed`] finds them corrected. No other certificate is served instead, and their client
    /// certificate policies stay in effect. If the hosts of an unusable certificate are unknown, handshakes for names
    /// that no certificate covers fail too. See [`Self::certificate_states`].
    ///
    /// # Errors
    /// As [`Self::load`] for all others, and [`CertificateProblem::HostsUnknown`] if unknown hosts must request client
    /// certificates, because another listener could serve such a host without one.
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

    /// The configuration for the next handshake, if [`Self::asks_by_name`] is false; else that for a client without a
    /// server name. Get it at each accept, because a reload replaces it.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config_for(None)
    }

    /// Whether the configuration depends on the server name, because hosts have different client certificate policies.
    /// Then the server name must be read before [`Self::config_for`] is called.
    #[must_use]
    pub fn asks_by_name(&self) -> bool {
        self.active.load().asks_by_name()
    }

    /// The configuration for a handshake with this server name.
    #[must_use]
    pub fn config_for(&self, sni: Option<&str>) -> Arc<ServerConfig> {
        Arc::clone(&self.active.load().policy(sni).config)
    }

    /// The client certificate policy of a host; `None` if it has none.
    #[must_use]
    pub fn client_auth_of(&self, host: &str) -> Option<ClientAuthConfig> {
        let active = self.active.load();
        active.names.policies().get(active.names.policy_of(Some(host))).cloned().flatten()
    }

    /// The client certificate policies of all hosts.
    #[must_use]
    pub fn client_auths(&self) -> Vec<ClientAuthConfig> {
        self.active.load().names.policies().iter().flatten().cloned().collect()
    }

    /// The facts of a finished handshake, or of one whose client sends early data. The client certificate of a resumed
    /// session is verified again, because it may have expired or been revoked since.
    ///
    /// # Errors
    /// [`HandshakeRefused`]: the connection must be closed before its pending data is sent, which contains tickets with
    /// which the client would return.
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
            // A reload moved the host to a policy that requests no certificate.
            (None, Some(_)) => return Err(HandshakeRefused::CertificateUnasked),
            (Some(verifier), Some(chain)) => {
                let certificate = verifier.accept(chain, facts.resumed, self.clock.wall())?;
                facts.client_certificate = Some(Arc::new(certificate));
            }
        }
        Ok(facts)
    }

    /// Reloads certificate files that have changed, and serves the valid ones from the next handshake on. Established
    /// connections and sessions continue. Returns whether anything was replaced.
    ///
    /// If a certificate can't be used at `now`, its predecessor stays in service. Every call tries it again, and the
    /// other certificates are not delayed. Expired sessions are wiped too. To be called every few seconds, not on the
    /// runtime's threads: it blocks on the file system (two `stat` calls per unchanged certificate).
    ///
    /// # Errors
    /// [`TlsError::Certificates`] with the problems, whether or not other certificates were replaced; the same problem
    /// is returned once.
    pub fn reload_if_changed(&self, now: Wall) -> Result<bool, TlsError> {
        self.active.load().reclaim();
        // A panic elsewhere can't leave the slots in an inconsistent state, because they are replaced as a whole.
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut fresh, mut errors) = (Vec::new(), Vec::new());
        if let Some(secrets) = &self.ticket_secrets {
            errors.extend(secrets.tick(now).err());
        }
        for (index, (config, slot)) in self.settings.certificates.iter().zip(&watched.slots).enumerate() {
            // Unchanged files of an unusable certificate may have become valid with time.
            if stamps(config) != slot.stamps || slot.is_unusable {
                match Slot::load(config, now) {
                    // A managed certificate is never removed.
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
            // The authorities have changed: sessions are removed, and clients get the names of the new roots.
            changed = self.republish(&watched.slots)?;
        }
        if !changed && fresh.len() > 1 {
            // One of them moves a host between trust domains; the others can be published.
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

    /// The requests for responders of certificates whose fetched response is missing or past half of its validity. Each
    /// is returned once in five minutes. Not to be called on the runtime's threads.
    ///
    /// # Errors
    /// Beside them, the problems that prevent requests.
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

    /// Staples a responder's answer from the next handshake on, if it is valid.
    ///
    /// # Errors
    /// [`StapleError`] is the reason for a refusal. The previous staple is served until it expires.
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
            // An older answer, replayed by a party in between.
            return Err(StapleError::OutOfTime);
        }
        let mut next = watched.slots.clone();
        if let Some(slot) = next.get_mut(request.index) {
            slot.staple = Some(staple);
        }
        // The certificates are unchanged, so this can't fail because of them.
        if self.republish(&next).is_ok() {
            watched.slots = next;
            self.states.store(Arc::new(states(&self.settings, &watched.slots, &watched.reported)));
        }
        Ok(())
    }

    /// The trust domain of a host in a request's authority: that of the certificate for this host. `None` if such a
    /// client is refused. Case, a trailing dot and the brackets of an IPv6 address are ignored; the host has no port.
    #[must_use]
    pub fn trust_domain_of(&self, host: &str) -> Option<TrustDomain> {
        self.active.load().names.trust_domain_of(host)
    }

    /// The trust domain of a connection with this server name, if the client sent one.
    #[must_use]
    pub fn trust_domain_of_connection(&self, sni: Option<&str>) -> Option<TrustDomain> {
        let active = self.active.load();
        match sni {
            Some(name) => active.names.trust_domain_of(name),
            None => active.names.default_trust_domain(),
        }
    }

    /// Whether a request for `host` on a connection with this server name must be answered 421 (RFC 9110 §15.5.20),
    /// because its trust domain is another one, or it has none.
    #[must_use]
    pub fn is_misdirected(&self, sni: Option<&str>, host: &str) -> bool {
        if sni == Some(host) {
            // True for nearly every request, and saves both lookups.
            return false;
        }
        let domain = self.trust_domain_of_connection(sni);
        domain.is_none() || domain != self.trust_domain_of(host)
    }

    /// Whether one of the certificates names `pattern`, a host or a wildcard. A wildcard certificate names its hosts
    /// too.
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

    /// The certificates in service, in configured order.
    #[must_use]
    pub fn certificates(&self) -> Vec<CertificateInfo> {
        self.active.load().certificates.clone()
    }

    /// The states of all configured certificates, in configured order.
    #[must_use]
    pub fn certificate_states(&self) -> Arc<Vec<CertificateState>> {
        self.states.load_full()
    }

    /// Statistics of resumption, for metrics.
    #[must_use]
    pub fn session_stats(&self) -> SessionStats {
        self.active.load().session_stats()
    }

    /// Publishes `slots` with the fresh ones in their positions. If that would put a host into two trust domains, it
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
    /// Loads a certificate, and its staple if that is a file. The certificate can be served without a staple. A managed
    /// one that can't be used counts as missing, because its manager will replace it.
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
                tracing::warn!(%error, "a certificate is served without an OCSP response");
                slot
            }
        })
    }

    /// The settings of a missing certificate, with its hosts.
    fn awaited<'a>(&self, config: &'a CertificateConfig) -> Cow<'a, CertificateConfig> {
        match &self.hosts {
            Some(hosts) => Cow::Owned(CertificateConfig { hosts: hosts.clone(), ..config.clone() }),
            None => Cow::Borrowed(config),
        }
    }

    /// The slot of a certificate that can't be used.
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

    /// The slot with a new staple, or without one if it has expired.
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
                    // An expired staple must be removed; the error is reported by the next call.
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

    /// The certificate with its staple.
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

/// The states of the certificates, with the given errors.
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
