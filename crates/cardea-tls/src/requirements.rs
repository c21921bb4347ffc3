//! The requirements of hosts over all listeners: the policy of a certificate applies to the authority of a request,
//! whatever listener, protocol or spelling the request arrives with.
//!
//! A handshake enforces only the policy of its own server name. A client may send another name or none, or use a
//! listener that does not know the host or has no TLS. So [`HostRequirements::check`] compares each request with the
//! certificate of its connection.

use std::collections::hash_map::Entry as Slot;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use arc_swap::{ArcSwap, Guard};
use cardea_clock::Wall;
use foldhash::{HashMap, HashSet};
use thiserror::Error;

use crate::certificate::hosts_of_unusable;
use crate::client_auth::{ClientAuthConfig, ClientAuthMode, ClientAuthority, ClientCertificate};
use crate::config::{CertificateConfig, ServerTlsConfig, UnknownName};
use crate::names::wildcard_of;
use crate::server::{ServerTls, published};

/// The requirements of all hosts that the certificates of any listener name.
///
/// The most specific name over all listeners applies: an exact name before a wildcard. A host without a certificate
/// belongs to the default certificate of the listener that received the request. Without TLS, the requirements of all
/// default certificates apply to it.
pub struct HostRequirements {
    /// The names of the listeners.
    listeners: Vec<Box<str>>,
    /// What they serve, in the same order; empty where that is only [declared](Self::declared).
    served: Vec<Arc<ServerTls>>,
    /// Replaced when certificates are: the names in a certificate are known when it is read.
    table: ArcSwap<Table>,
    rebuilding: Mutex<()>,
}

/// The connection of a request.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// The name of its listener.
    pub listener: &'a str,
    /// Whether the connection uses TLS.
    pub secure: bool,
    /// The client's certificate.
    pub certificate: Option<&'a ClientCertificate>,
}

/// Why a request must not be served on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RequirementUnmet {
    /// The host belongs to a trust domain of other listeners.
    #[error("the host belongs to another trust domain")]
    OtherTrustDomain,
    /// The host requires a client certificate, and the handshake requested none, or not for this host.
    #[error("the host requires a client certificate that this connection was not asked for")]
    CertificateUnasked,
    /// The same for a host without a certificate, on a connection without TLS.
    #[error("every listener with TLS requires a client certificate for this host")]
    CertificateUnaskedByDefault,
    /// The client's certificate has expired or was revoked.
    #[error("the client's certificate does not hold any longer")]
    CertificateInvalid,
}

/// A host with two policies of equal precedence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// The host or the wildcard.
    pub host: String,
    /// The listener with one policy.
    pub first: String,
    /// The listener with the other policy.
    pub second: String,
}

#[derive(Default)]
struct Table {
    /// The version of the certificates that it was built from.
    version: u64,
    exact: HashMap<Box<str>, Host>,
    /// By the name without `*.`.
    wildcards: HashMap<Box<str>, Host>,
    /// The requirement of the default certificate of each listener, in order.
    defaults: Vec<Option<ListenerRequirement>>,
}

/// A name in certificates.
#[derive(Default)]
struct Host {
    /// One per listener with such a certificate, in order. Never empty.
    places: Vec<ListenerRequirement>,
    /// Whether any of them requires client certificates.
    required: bool,
}

/// The requirement of a listener for a name.
#[derive(Clone)]
struct ListenerRequirement {
    listener: usize,
    trust_domain: Box<str>,
    policy: Option<Arc<ClientAuthConfig>>,
}

impl HostRequirements {
    /// The requirements of these listeners, by name. `None` if no check is needed: no certificate has a client
    /// certificate policy, and there is at most one trust domain, or one listener.
    #[must_use]
    pub fn new<'n>(listeners: impl IntoIterator<Item = (&'n str, Arc<ServerTls>)>) -> Option<Self> {
        let (listeners, served): (Vec<Box<str>>, Vec<Arc<ServerTls>>) =
            listeners.into_iter().map(|(name, tls)| (name.into(), tls)).unzip();
        let certificates: Vec<_> = served.iter().map(|tls| tls.settings().certificates.as_slice()).collect();
        if !are_compared(&certificates) {
            return None;
        }
        let table = ArcSwap::from_pointee(Table::of(&served));
        Some(Self { listeners, served, table, rebuilding: Mutex::default() })
    }

    /// The same by what is configured, for who serves nothing: neither keys nor authorities are needed.
    ///
    /// # Errors
    /// The files of certificates whose hosts are neither configured nor can be read there.
    pub fn declared<'n>(
        listeners: impl IntoIterator<Item = (&'n str, Vec<CertificateConfig>)>,
    ) -> Result<Option<Self>, Vec<PathBuf>> {
        let (listeners, certificates): (Vec<Box<str>>, Vec<Vec<CertificateConfig>>) =
            listeners.into_iter().map(|(name, certificates)| (name.into(), certificates)).unzip();
        if !are_compared(&certificates) {
            return Ok(None);
        }
        let mut table = Table::default();
        let mut unknown = Vec::new();
        for (listener, certificates) in certificates.iter().enumerate() {
            let place = |certificate: &CertificateConfig| ListenerRequirement::of(listener, certificate);
            for certificate in certificates {
                match hosts_of_unusable(certificate) {
                    None => unknown.push(certificate.chain.clone()),
                    Some(hosts) => {
                        for host in hosts {
                            match host.strip_prefix("*.") {
                                Some(suffix) => table.add(true, suffix, place(certificate)),
                                None => table.add(false, &host, place(certificate)),
                            }
                        }
                    }
                }
            }
            table.defaults.push(certificates.first().map(place));
        }
        table.close_names_of_files(certificates.iter().flatten());
        if !unknown.is_empty() {
            return Err(unknown);
        }
        let table = ArcSwap::from_pointee(table);
        Ok(Some(Self { listeners, served: Vec::new(), table, rebuilding: Mutex::default() }))
    }

    /// Whether a handshake for `host` at this listener asks for a client certificate.
    #[must_use]
    pub fn asks(&self, host: &str, listener: &str) -> bool {
        let table = self.current();
        let Some(here) = self.position(listener) else { return false };
        let own = match table.find(host) {
            Some(found) => found.places.iter().find(|place| place.listener == here),
            None => table.default_of(here),
        };
        own.is_some_and(|place| place.policy.is_some())
    }

    /// Whether a request for `host`, normalised and without a port, may be served on its connection. It costs a load
    /// and at most two hash lookups.
    ///
    /// # Errors
    /// [`RequirementUnmet`] is the reason for a refusal.
    pub fn check(&self, host: &str, arrival: &Arrival<'_>, now: Wall) -> Result<(), RequirementUnmet> {
        let table = self.current();
        let here = self.position(arrival.listener).filter(|_| arrival.secure);
        let Some(found) = table.find(host) else { return self.check_unnamed(&table, here, arrival, now) };
        let own = found.places.iter().find(|place| Some(place.listener) == here);
        if own.is_none()
            && let Some(Some(default)) = here.map(|here| table.default_of(here))
            && !found.places.iter().any(|place| place.trust_domain == default.trust_domain)
        {
            return Err(RequirementUnmet::OtherTrustDomain);
        }
        if found.required {
            // There is more than one only after certificates were replaced: then all of them apply.
            let required = found.places.iter().filter(|place| place.is_required());
            return required.into_iter().try_for_each(|place| place.check(arrival.certificate, now));
        }
        let place = own.or(found.places.first());
        place.map_or(Ok(()), |place| place.check(arrival.certificate, now))
    }

    fn check_unnamed(
        &self,
        table: &Table,
        here: Option<usize>,
        arrival: &Arrival<'_>,
        now: Wall,
    ) -> Result<(), RequirementUnmet> {
        match here {
            Some(here) => match table.default_of(here) {
                Some(place) => place.check(arrival.certificate, now),
                None => Ok(()),
            },
            None if table.defaults.iter().flatten().all(ListenerRequirement::is_required) => {
                Err(RequirementUnmet::CertificateUnaskedByDefault)
            }
            None => Ok(()),
        }
    }

    /// Hosts for which one listener requires client certificates while another one does not, or accepts other
    /// authorities.
    #[must_use]
    pub fn contradictions(&self) -> Vec<Contradiction> {
        let table = self.table.load();
        let mut found = Vec::new();
        for (prefix, map) in [("", &table.exact), ("*.", &table.wildcards)] {
            for (name, host) in map.iter().filter(|(_, host)| host.required) {
                let Some((first, rest)) = host.places.split_first() else { continue };
                for other in rest.iter().filter(|other| other.policy != first.policy) {
                    found.push(Contradiction {
                        host: format!("{prefix}{name}"),
                        first: self.name(first),
                        second: self.name(other),
                    });
                }
            }
        }
        found.sort_by(|one, other| (&one.host, &one.second).cmp(&(&other.host, &other.second)));
        found
    }

    /// The listeners at which clients can present the certificate that the host (or the wildcard) requires; `None` if
    /// it requires none.
    #[must_use]
    pub fn listeners_that_ask(&self, host: &str) -> Option<Vec<&str>> {
        let table = self.table.load();
        let found = match host.strip_prefix("*.") {
            Some(suffix) => table.wildcards.get(suffix),
            None => table.find(bare(host)),
        }?;
        let asking = found.places.iter().filter(|place| place.is_required());
        let names = asking.filter_map(|place| self.listeners.get(place.listener)).map(|name| &**name);
        found.required.then(|| names.collect())
    }

    fn name(&self, place: &ListenerRequirement) -> String {
        self.listeners.get(place.listener).map(|name| name.to_string()).unwrap_or_default()
    }

    fn position(&self, listener: &str) -> Option<usize> {
        self.listeners.iter().position(|name| **name == *listener)
    }

    /// The table of the certificates that are served now.
    fn current(&self) -> Guard<Arc<Table>> {
        let table = self.table.load();
        if self.served.is_empty() || table.version == published() {
            return table;
        }
        self.rebuild();
        self.table.load()
    }

    #[cold]
    fn rebuild(&self) {
        // A concurrent caller need not wait: the present table was current a moment ago.
        if let Ok(_rebuilding) = self.rebuilding.try_lock() {
            let before = self.contradictions();
            self.table.store(Arc::new(Table::of(&self.served)));
            for new in self.contradictions().iter().filter(|found| !before.contains(found)) {
                tracing::warn!(
                    host = new.host,
                    first = new.first,
                    second = new.second,
                    "certificates were replaced, and listeners now require different client certificates for a host: all are required"
                );
            }
        }
    }
}

impl Table {
    fn of(served: &[Arc<ServerTls>]) -> Self {
        // Before the names are read: what is replaced in between makes another one necessary.
        let mut table = Self { version: published(), ..Self::default() };
        for (listener, tls) in served.iter().enumerate() {
            let names = tls.names();
            let place = |domain| ListenerRequirement {
                listener,
                trust_domain: names.trust_domain_name(domain).unwrap_or_default().into(),
                policy: names.policy_in(domain).cloned().map(Arc::new),
            };
            for (wildcard, name, domain) in names.each() {
                table.add(wildcard, name, place(domain));
            }
            let default = names.default_trust_domain().map(place);
            table.defaults.push(default.or_else(|| configured_default(listener, tls.settings())));
        }
        table.close_names_of_files(served.iter().flat_map(|tls| &tls.settings().certificates));
        table
    }

    /// What a wildcard requires holds for the names below it that nobody configured, too: a name that a certificate's file has must
    /// not open a host, since files are replaced.
    fn close_names_of_files<'c>(&mut self, certificates: impl Iterator<Item = &'c CertificateConfig>) {
        if !self.wildcards.values().any(|host| host.required) {
            return;
        }
        let configured: HashSet<&str> =
            certificates.flat_map(|certificate| &certificate.hosts).map(String::as_str).collect();
        for (name, host) in &mut self.exact {
            if host.required || configured.contains(&**name) {
                continue;
            }
            let wildcard = wildcard_of(name).and_then(|suffix| self.wildcards.get(suffix));
            if let Some(wildcard) = wildcard.filter(|wildcard| wildcard.required) {
                host.places.extend(wildcard.places.iter().filter(|place| place.is_required()).cloned());
                host.required = true;
            }
        }
    }

    /// Adds what a listener requires for a name, of a wildcard what follows the `*.`.
    fn add(&mut self, wildcard: bool, name: &str, place: ListenerRequirement) {
        let map = if wildcard { &mut self.wildcards } else { &mut self.exact };
        let host = match map.entry(name.into()) {
            Slot::Occupied(host) => host.into_mut(),
            Slot::Vacant(vacant) => vacant.insert(Host::default()),
        };
        host.required |= place.is_required();
        host.places.push(place);
    }

    fn find(&self, host: &str) -> Option<&Host> {
        let host = bare(host);
        self.exact.get(host).or_else(|| {
            let suffix = if self.wildcards.is_empty() { None } else { wildcard_of(host) };
            self.wildcards.get(suffix?)
        })
    }

    fn default_of(&self, listener: usize) -> Option<&ListenerRequirement> {
        self.defaults.get(listener)?.as_ref()
    }
}

/// The requirement of a default certificate that can't be used, or has yet to be issued: as it is configured, so that
/// the requirements of hosts don't depend on the state of a file.
fn configured_default(listener: usize, settings: &ServerTlsConfig) -> Option<ListenerRequirement> {
    match settings.unknown_name {
        UnknownName::DefaultCertificate => settings.certificates.first(),
        UnknownName::Refuse => None,
    }
    .map(|certificate| ListenerRequirement::of(listener, certificate))
}

impl ListenerRequirement {
    /// The configured requirement.
    fn of(listener: usize, certificate: &CertificateConfig) -> Self {
        Self {
            listener,
            trust_domain: certificate.trust_domain.as_str().into(),
            policy: certificate.client_auth.clone().map(Arc::new),
        }
    }

    fn is_required(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.mode == ClientAuthMode::Require)
    }

    fn check(&self, shown: Option<&ClientCertificate>, now: Wall) -> Result<(), RequirementUnmet> {
        let Some(certificate) = shown else {
            return if self.is_required() { Err(RequirementUnmet::CertificateUnasked) } else { Ok(()) };
        };
        let authorities: &[Arc<ClientAuthority>] =
            self.policy.as_ref().map_or(&[], |policy| &policy.authorities);
        // If it is only requested, the route decides what happens after its expiry.
        if !self.is_required() && certificate.was_asked_for_by(authorities) {
            return Ok(());
        }
        if authorities.iter().any(|authority| certificate.is_vouched_for_by(authority, now)) {
            return Ok(());
        }
        // A certificate that was presented for another host must not be accepted for this one.
        if self.is_required() && !certificate.holds(now) {
            return Err(RequirementUnmet::CertificateInvalid);
        }
        Err(RequirementUnmet::CertificateUnasked)
    }
}

/// Whether requests have to be compared with what hosts require: a certificate asks for those of clients, or there are
/// several trust domains on several listeners.
fn are_compared(listeners: &[impl AsRef<[CertificateConfig]>]) -> bool {
    let certificates = || listeners.iter().flat_map(|certificates| certificates.as_ref());
    let asks = certificates().any(|certificate| certificate.client_auth.is_some());
    let first = certificates().next().map(|certificate| &certificate.trust_domain);
    let differ = certificates().any(|certificate| Some(&certificate.trust_domain) != first);
    asks || differ && listeners.len() > 1
}

/// Certificates name addresses without brackets.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

impl fmt::Debug for HostRequirements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostRequirements").field("listeners", &self.listeners).finish_non_exhaustive()
    }
}
