//! What hosts require of their clients, over all listeners: the table of a certificate binds the authority of a request,
//! whatever listener, protocol or spelling the request arrives by.
//!
//! A handshake enforces what its own server name requires, and nothing else: a client may send another name or none, and
//! may come by a listener that does not know the host, or that has no TLS. So each request is compared again, by
//! [`HostRequirements::check`], with what its connection has shown.

use std::collections::hash_map::Entry as Slot;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use arc_swap::{ArcSwap, Guard};
use cardea_clock::Wall;
use foldhash::HashMap;
use thiserror::Error;

use crate::certificate::hosts_of_unusable;
use crate::client_auth::{ClientAuthConfig, ClientAuthMode, ClientAuthority, ClientCertificate};
use crate::config::CertificateConfig;
use crate::names::wildcard_of;
use crate::server::{ServerTls, published};

/// The requirements of all hosts that the certificates of any listener name.
///
/// The most specific name counts, over all listeners: an exact name before a wildcard. A host that no certificate names
/// belongs to the default certificate of the listener that it is asked for at; without TLS it is required what all default
/// certificates require.
pub struct HostRequirements {
    /// The names of the listeners.
    listeners: Vec<Box<str>>,
    /// What they serve, in the same order; empty where that is only [declared](Self::declared).
    served: Vec<Arc<ServerTls>>,
    /// Replaced when certificates are: the names in a certificate are known when it is read.
    table: ArcSwap<Table>,
    rebuilding: Mutex<()>,
}

/// What is known of the connection of a request.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// The name of its listener.
    pub listener: &'a str,
    /// Whether it is a connection of TLS.
    pub secure: bool,
    /// The certificate that the client has shown.
    pub certificate: Option<&'a ClientCertificate>,
}

/// Why a request must not be served on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RequirementUnmet {
    /// The host belongs to a trust domain of other listeners.
    #[error("the host belongs to another trust domain")]
    OtherTrustDomain,
    /// The host's clients must show a certificate, which this connection was not asked for, or not on behalf of this host.
    #[error("the host requires a client certificate that this connection was not asked for")]
    CertificateUnasked,
    /// The same, of a host that no certificate names, on a connection without TLS.
    #[error("every listener with TLS requires a client certificate for this host")]
    CertificateUnaskedByDefault,
    /// The certificate that was shown has expired, or was revoked.
    #[error("the client's certificate does not hold any longer")]
    CertificateInvalid,
}

/// A host that is asked for in two ways between which nothing decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// The host, or the wildcard.
    pub host: String,
    /// The listener of the one way.
    pub first: String,
    /// The listener of the other.
    pub second: String,
}

#[derive(Default)]
struct Table {
    /// Of the certificates that it was made from.
    version: u64,
    exact: HashMap<Box<str>, Host>,
    /// By what follows the `*.`.
    wildcards: HashMap<Box<str>, Host>,
    /// What the default certificate of each listener requires, in their order.
    defaults: Vec<Option<Place>>,
}

/// A name of certificates.
#[derive(Default)]
struct Host {
    /// One for each listener that has such a certificate, in their order. Never empty.
    places: Vec<Place>,
    /// Whether one of them requires client certificates.
    required: bool,
}

/// What a listener requires for a name.
#[derive(Clone)]
struct Place {
    listener: usize,
    trust_domain: Box<str>,
    policy: Option<Arc<ClientAuthConfig>>,
}

impl HostRequirements {
    /// The requirements of these listeners, by their names; `None` where there is nothing to compare: no certificate asks
    /// for those of clients, and there is one trust domain at the most, or one listener.
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
            let place = |certificate: &CertificateConfig| Place {
                listener,
                trust_domain: certificate.trust_domain.as_str().into(),
                policy: certificate.client_auth.clone().map(Arc::new),
            };
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

    /// Whether a request for `host`, a normalised one without a port, may be served on its connection. Costs a load and at
    /// most two look-ups by hash.
    ///
    /// # Errors
    /// [`RequirementUnmet`] says what is in the way.
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
            // More than one only where certificates were replaced: then all of them bind.
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
            None if table.defaults.iter().flatten().all(Place::is_required) => {
                Err(RequirementUnmet::CertificateUnaskedByDefault)
            }
            None => Ok(()),
        }
    }

    /// Hosts that one listener requires client certificates for, while another one does not, or believes others.
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

    /// The listeners at which clients can show the certificate that the host (or the wildcard) requires; `None` where it
    /// requires none.
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

    fn name(&self, place: &Place) -> String {
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
        // Whoever comes second has nothing to wait for: what is there was true until a moment ago.
        if let Ok(_rebuilding) = self.rebuilding.try_lock() {
            self.table.store(Arc::new(Table::of(&self.served)));
        }
    }
}

impl Table {
    fn of(served: &[Arc<ServerTls>]) -> Self {
        // Before the names are read: what is replaced in between makes another one necessary.
        let mut table = Self { version: published(), ..Self::default() };
        for (listener, tls) in served.iter().enumerate() {
            let names = tls.names();
            let place = |domain| Place {
                listener,
                trust_domain: names.trust_domain_name(domain).unwrap_or_default().into(),
                policy: names.policy_in(domain).cloned().map(Arc::new),
            };
            for (wildcard, name, domain) in names.each() {
                table.add(wildcard, name, place(domain));
            }
            table.defaults.push(names.default_trust_domain().map(place));
        }
        table
    }

    /// Adds what a listener requires for a name, of a wildcard what follows the `*.`.
    fn add(&mut self, wildcard: bool, name: &str, place: Place) {
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

    fn default_of(&self, listener: usize) -> Option<&Place> {
        self.defaults.get(listener)?.as_ref()
    }
}

impl Place {
    fn is_required(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.mode == ClientAuthMode::Require)
    }

    fn check(&self, shown: Option<&ClientCertificate>, now: Wall) -> Result<(), RequirementUnmet> {
        let Some(certificate) = shown else {
            return if self.is_required() { Err(RequirementUnmet::CertificateUnasked) } else { Ok(()) };
        };
        let authorities: &[Arc<ClientAuthority>] =
            self.policy.as_ref().map_or(&[], |policy| &policy.authorities);
        // Where it need not be shown, it is for the route to say what follows once it has expired.
        if !self.is_required() && certificate.was_asked_for_by(authorities) {
            return Ok(());
        }
        if authorities.iter().any(|authority| certificate.is_vouched_for_by(authority, now)) {
            return Ok(());
        }
        // A certificate that was shown for another host must not be taken for one of this host's.
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
