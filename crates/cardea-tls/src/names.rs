//! The certificate and the trust domain of a host: exact names first, then wildcards of one label, then the default.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::DnsName;

use crate::certificate::{Certificate, KeyType};
use crate::client_auth::ClientAuthConfig;
use crate::config::{CertificateConfig, UnknownName};
use crate::error::{CertificateError, CertificateProblem};

/// A trust domain of one [`ServerTls`](crate::ServerTls), cheap to copy and to compare. Trust domains of two
/// `ServerTls` are unrelated. Hosts with different client certificate policies are never in the same one, whatever its
/// configured name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TrustDomain(u32);

/// The names of all certificates of a listener. rustls asks it for the certificate of each handshake.
#[derive(Debug)]
pub(crate) struct Names {
    exact: HashMap<Box<str>, Entry>,
    /// By the name without `*.`.
    wildcards: HashMap<Box<str>, Entry>,
    default: Option<Entry>,
    /// The trust domains, by their ids.
    domains: Vec<Domain>,
    /// The client certificate policies. The first one requests no certificate.
    policies: Vec<Option<ClientAuthConfig>>,
}

/// A trust domain: its configured name, and its client certificate policy.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Domain {
    name: Box<str>,
    /// Index of its policy.
    policy: usize,
}

/// The certificates for a name. Empty if the certificate has yet to be issued: then handshakes fail.
#[derive(Debug, Clone)]
struct Entry {
    trust_domain: TrustDomain,
    /// Index of the first certificate with the name, for error messages.
    origin: usize,
    /// In order of preference: by key type, then as configured.
    keys: Vec<(KeyType, Arc<CertifiedKey>)>,
    /// A digest of the keys, to which sessions are bound.
    mark: KeyMark,
}

/// Identifies the keys of a host.
pub(crate) type KeyMark = [u8; KEY_MARK_LEN];
/// Long enough to make collisions infeasible.
pub(crate) const KEY_MARK_LEN: usize = 16;

/// The origin of names: a certificate, or the configuration of one that has yet to be issued.
struct NameSource<'a> {
    path: &'a Path,
    hosts: &'a [String],
    domain: &'a str,
    client_auth: Option<&'a ClientAuthConfig>,
    there: Option<&'a Certificate>,
}

impl Names {
    /// Indexes `certificates`, and the hosts of those that have yet to be issued. An error names every host that is in
    /// two trust domains.
    pub(crate) fn new(
        certificates: &[Certificate],
        awaited: &[&CertificateConfig],
        unknown: UnknownName,
    ) -> Result<Self, Vec<CertificateError>> {
        let mut names = Self {
            exact: HashMap::new(),
            wildcards: HashMap::new(),
            default: None,
            domains: Vec::new(),
            policies: vec![None],
        };
        let mut errors = Vec::new();
        let there = certificates.iter().map(|certificate| {
            let info = &certificate.info;
            NameSource {
                path: &info.path,
                hosts: &info.hosts,
                domain: &info.trust_domain,
                client_auth: certificate.client_auth.as_ref(),
                there: Some(certificate),
            }
        });
        let awaited = awaited.iter().map(|config| NameSource {
            path: &config.chain,
            hosts: &config.hosts,
            domain: &config.trust_domain,
            client_auth: config.client_auth.as_ref(),
            there: None,
        });
        let sources: Vec<NameSource<'_>> = there.chain(awaited).collect();
        for (index, source) in sources.iter().enumerate() {
            let trust_domain = names.intern(source.domain, source.client_auth);
            for host in source.hosts {
                match (names.entry(host, trust_domain, index), source.there) {
                    (Ok(entry), Some(certificate)) => entry.insert(certificate),
                    (Ok(_), None) => {}
                    (Err(first), _) => {
                        errors.extend(sources.get(first).map(|other| conflict(host, source, other)));
                    }
                }
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        for entry in names.exact.values_mut().chain(names.wildcards.values_mut()) {
            entry.mark = entry.key_mark();
        }
        if unknown == UnknownName::DefaultCertificate {
            // The entry of a host contains all of its key types.
            let host = certificates.first().and_then(|first| first.info.hosts.first());
            names.default = host
                .and_then(|host| match host.strip_prefix("*.") {
                    Some(suffix) => names.wildcards.get(suffix),
                    None => names.exact.get(host.as_str()),
                })
                .cloned();
        }
        Ok(names)
    }

    /// The trust domain of `host`; that of the default certificate if no name covers it.
    pub(crate) fn trust_domain_of(&self, host: &str) -> Option<TrustDomain> {
        self.lookup(host).map(|entry| entry.trust_domain)
    }

    /// The mark of the keys that a client with this server name gets; `None` if it gets none.
    pub(crate) fn key_mark(&self, sni: Option<&str>) -> Option<KeyMark> {
        let entry = match sni {
            Some(name) => self.lookup(name),
            None => self.default.as_ref(),
        };
        entry.filter(|entry| !entry.keys.is_empty()).map(|entry| entry.mark)
    }

    /// The trust domain of a connection without a server name.
    pub(crate) fn default_trust_domain(&self) -> Option<TrustDomain> {
        self.default.as_ref().map(|entry| entry.trust_domain)
    }

    pub(crate) fn trust_domain_name(&self, domain: TrustDomain) -> Option<&str> {
        self.domain(domain).map(|domain| domain.name.as_ref())
    }

    /// The client certificate policies. The first one requests no certificate.
    pub(crate) fn policies(&self) -> &[Option<ClientAuthConfig>] {
        &self.policies
    }

    /// The policy for a connection with this server name; the first one if such a client is refused.
    pub(crate) fn policy_of(&self, sni: Option<&str>) -> usize {
        let domain = match sni {
            Some(name) => self.trust_domain_of(name),
            None => self.default_trust_domain(),
        };
        domain.and_then(|domain| self.domain(domain)).map_or(0, |domain| domain.policy)
    }

    /// The client certificate policy of a trust domain.
    pub(crate) fn policy_in(&self, domain: TrustDomain) -> Option<&ClientAuthConfig> {
        self.policies.get(self.domain(domain)?.policy)?.as_ref()
    }

    /// All names, whether each is a wildcard (then without `*.`), and their trust domains.
    pub(crate) fn each(&self) -> impl Iterator<Item = (bool, &str, TrustDomain)> {
        let exact = self.exact.iter().map(|(name, entry)| (false, &**name, entry.trust_domain));
        exact.chain(self.wildcards.iter().map(|(name, entry)| (true, &**name, entry.trust_domain)))
    }

    /// Whether a certificate covers `pattern`: a host, by its name or a wildcard, or a wildcard.
    pub(crate) fn names(&self, pattern: &str) -> bool {
        match pattern.strip_prefix("*.") {
            Some(suffix) => self.wildcards.contains_key(suffix),
            None => {
                let mut buffer = [0; HOST_LEN_MAX];
                lower_case(pattern, &mut buffer).is_some_and(|host| self.named(host).is_some())
            }
        }
    }

    fn domain(&self, domain: TrustDomain) -> Option<&Domain> {
        self.domains.get(usize::try_from(domain.0).ok()?)
    }

    /// Whether every possible host is in the same trust domain in both.
    pub(crate) fn same_trust_domains(&self, other: &Self) -> bool {
        let same = |ours: &HashMap<Box<str>, Entry>, theirs: &HashMap<Box<str>, Entry>| {
            ours.len() == theirs.len()
                && ours.iter().all(|(name, entry)| {
                    theirs.get(name).is_some_and(|their| their.trust_domain == entry.trust_domain)
                })
        };
        self.domains == other.domains
            && self.default_trust_domain() == other.default_trust_domain()
            && same(&self.exact, &other.exact)
            && same(&self.wildcards, &other.wildcards)
    }

    /// Bytes that are equal if and only if all hosts are in the same trust domains.
    pub(crate) fn trust_domains(&self) -> Vec<u8> {
        let mut entries: Vec<(&str, &str, TrustDomain)> = Vec::new();
        entries.extend(self.exact.iter().map(|(name, entry)| ("", name.as_ref(), entry.trust_domain)));
        entries.extend(self.wildcards.iter().map(|(name, entry)| ("*.", name.as_ref(), entry.trust_domain)));
        entries.extend(self.default_trust_domain().map(|domain| ("default", "", domain)));
        entries.sort_unstable_by_key(|(kind, name, _)| (*kind, *name));
        let mut bytes = Vec::new();
        for (kind, name, domain) in entries {
            // Hosts that request certificates have no tickets of this kind, so the kind of a host must be part of it.
            let asks = if self.domain(domain).is_some_and(|domain| domain.policy > 0) { "asks" } else { "" };
            for text in [kind, name, self.trust_domain_name(domain).unwrap_or_default(), asks] {
                bytes.extend_from_slice(&(text.len() as u64).to_be_bytes());
                bytes.extend_from_slice(text.as_bytes());
            }
        }
        bytes
    }

    fn intern(&mut self, name: &str, client_auth: Option<&ClientAuthConfig>) -> TrustDomain {
        let policy = self.policies.iter().position(|policy| policy.as_ref() == client_auth);
        let policy = policy.unwrap_or_else(|| {
            self.policies.push(client_auth.cloned());
            self.policies.len() - 1
        });
        let known = self.domains.iter().position(|domain| *domain.name == *name && domain.policy == policy);
        let id = known.unwrap_or_else(|| {
            self.domains.push(Domain { name: name.into(), policy });
            self.domains.len() - 1
        });
        TrustDomain(u32::try_from(id).unwrap_or(u32::MAX))
    }

    /// The entry of `host`, inserted if there is none.
    fn entry(&mut self, host: &str, trust_domain: TrustDomain, index: usize) -> Result<&mut Entry, usize> {
        let (map, name) = match host.strip_prefix("*.") {
            Some(suffix) => (&mut self.wildcards, suffix),
            None => (&mut self.exact, host),
        };
        let entry = map.entry(name.into()).or_insert_with(|| Entry {
            trust_domain,
            origin: index,
            keys: Vec::new(),
            mark: KeyMark::default(),
        });
        if entry.trust_domain != trust_domain {
            return Err(entry.origin);
        }
        Ok(entry)
    }

    fn lookup(&self, host: &str) -> Option<&Entry> {
        let mut buffer = [0; HOST_LEN_MAX];
        lower_case(host, &mut buffer).and_then(|host| self.named(host)).or(self.default.as_ref())
    }

    fn named(&self, host: &str) -> Option<&Entry> {
        self.exact.get(host).or_else(|| self.wildcards.get(wildcard_of(host)?))
    }
}

impl ResolvesServerCert for Names {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let entry = match hello.server_name() {
            Some(name) => self.lookup(name),
            None => self.default.as_ref(),
        }?;
        let chosen = entry.choose(hello.signature_schemes());
        if chosen.is_none() {
            tracing::debug!(
                host = hello.server_name(),
                "the certificate for this host has not been issued yet"
            );
        }
        chosen
    }
}

impl Entry {
    fn insert(&mut self, certificate: &Certificate) {
        let key_type = certificate.info.key_type;
        // After its equals: with equal key types, the one configured first is served.
        let place = self.keys.partition_point(|(other, _)| *other <= key_type);
        self.keys.insert(place, (key_type, Arc::clone(&certificate.certified)));
    }

    fn key_mark(&self) -> KeyMark {
        let mut hash = digest::Context::new(&digest::SHA256);
        for (_, certified) in &self.keys {
            let public = certified.key.public_key();
            // Without a public key, the certificate identifies its key.
            let leaf = certified.cert.first().map_or(&[][..], |leaf| leaf.as_ref());
            let bytes = public.as_ref().map_or(leaf, |public| public.as_ref());
            hash.update(&(bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        }
        let mut mark = KeyMark::default();
        mark.copy_from_slice(&hash.finish().as_ref()[..KEY_MARK_LEN]);
        mark
    }

    /// The best key that the client can verify; else the best key, with which the handshake fails. `None` if there is
    /// none.
    fn choose(&self, offered: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let usable = self.keys.iter().find(|(_, certified)| certified.key.choose_scheme(offered).is_some());
        usable.or(self.keys.first()).map(|(_, certified)| Arc::clone(certified))
    }
}

/// The longest DNS name as text (RFC 1035 §2.3.4), plus a trailing dot or the brackets of an address.
const HOST_LEN_MAX: usize = 256;

/// `host` in lower case, without a trailing dot or the brackets of an IPv6 address; `None` if it is too long. Most
/// hosts are in this form already, and then nothing is copied.
fn lower_case<'a>(host: &'a str, buffer: &'a mut [u8; HOST_LEN_MAX]) -> Option<&'a str> {
    let host = host.strip_suffix('.').unwrap_or(host);
    let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if !host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Some(host);
    }
    let copy = buffer.get_mut(..host.len())?;
    copy.copy_from_slice(host.as_bytes());
    copy.make_ascii_lowercase();
    std::str::from_utf8(copy).ok()
}

/// The suffix of the only wildcard that covers `host`: all labels but the first. `None` for addresses.
///
/// This is the only meaning of a wildcard, wherever it is written (RFC 9525 §6.3): `*.example.com` covers
/// `a.example.com`, and neither `example.com` nor `a.b.example.com`. `host` is in lower case, without a port and a
/// trailing dot.
#[must_use]
pub fn wildcard_of(host: &str) -> Option<&str> {
    // Apart from a few names, only addresses end in a digit or a bracket, or contain colons.
    let may_be_address =
        host.ends_with(|last: char| last.is_ascii_digit() || last == ']') || host.contains(':');
    if host.starts_with("*.") || (may_be_address && is_address(host)) {
        return None;
    }
    host.split_once('.').filter(|(label, _)| !label.is_empty()).map(|(_, suffix)| suffix)
}

fn is_address(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().is_ok()
}

/// The address of a subject alternative name (RFC 5280 §4.2.1.6).
pub(crate) fn address(octets: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(octets)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from))
        .ok()
}

/// The normal form of a name of a certificate or of the configuration; `None` if it isn't a host, a wildcard of one
/// label, or an address.
pub(crate) fn normal_host(name: &str) -> Option<String> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Some(address.to_string());
    }
    let suffix = name.strip_prefix("*.").unwrap_or(name);
    DnsName::try_from(suffix).ok()?;
    Some(name.to_ascii_lowercase())
}

fn conflict(host: &str, source: &NameSource<'_>, other: &NameSource<'_>) -> CertificateError {
    let problem = if source.domain == other.domain {
        CertificateProblem::ClientAuthConflict { host: host.to_owned(), other: other.path.to_owned() }
    } else {
        CertificateProblem::TrustDomainConflict {
            host: host.to_owned(),
            domain: source.domain.to_owned(),
            other: other.path.to_owned(),
            other_domain: other.domain.to_owned(),
        }
    };
    CertificateError { path: source.path.to_owned(), problem }
}

#[cfg(test)]
mod tests;
