//! A certificate with its key, loaded from files and validated before it is served.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cardea_clock::Wall;
use rustls::server::ParsedCertificate;
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{InconsistentKeys, SignatureAlgorithm};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

use crate::client_auth::ClientAuthConfig;
use crate::config::CertificateConfig;
use crate::error::{CertificateError, CertificateProblem};
use crate::{files, names, provider};

/// Public chains have two or three; some private ones have five.
const CHAIN_LEN_MAX: usize = 16;

/// The type of a certificate's key, in order of preference: the cheapest signature first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyType {
    /// ECDSA over P-256, P-384 or P-521.
    Ecdsa,
    /// Ed25519.
    Ed25519,
    /// RSA.
    Rsa,
}

impl KeyType {
    /// The lower-case name, for logs and metric labels.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ecdsa => "ecdsa",
            Self::Ed25519 => "ed25519",
            Self::Rsa => "rsa",
        }
    }

    fn of(key: &dyn SigningKey) -> Option<Self> {
        match key.algorithm() {
            SignatureAlgorithm::ECDSA => Some(Self::Ecdsa),
            SignatureAlgorithm::ED25519 => Some(Self::Ed25519),
            SignatureAlgorithm::RSA => Some(Self::Rsa),
            _ => None,
        }
    }
}

/// The data of a served certificate, for metrics and for warnings before expiry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateInfo {
    /// The hosts it is served for, in lower case; wildcards as `*.example.com`.
    pub hosts: Vec<String>,
    /// The start of the leaf's validity.
    pub not_before: Wall,
    /// The end of the leaf's validity.
    pub not_after: Wall,
    /// The key type of the leaf.
    pub key_type: KeyType,
    /// The chain file.
    pub path: PathBuf,
    /// The trust domain of its hosts.
    pub trust_domain: String,
    /// The end of validity of the stapled OCSP response; `None` without one.
    pub staple_until: Option<Wall>,
}

/// The state of a configured certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateState {
    /// The chain file, or the name of a managed certificate.
    pub path: PathBuf,
    /// The hosts; empty if they are unknown.
    pub hosts: Vec<String>,
    /// The certificate in service; `None` if handshakes for its hosts fail.
    pub served: Option<CertificateInfo>,
    /// The problems of the present files, if there are any. Then the previous certificate stays in service.
    pub problems: Vec<String>,
    /// Whether the certificate has yet to be issued: none is served, and there is no problem.
    pub is_awaited: bool,
}

/// A certificate that may be served.
#[derive(Debug, Clone)]
pub(crate) struct Certificate {
    pub(crate) info: CertificateInfo,
    pub(crate) certified: Arc<CertifiedKey>,
    /// How the handshake requests certificates from clients of its hosts.
    pub(crate) client_auth: Option<ClientAuthConfig>,
}

impl Certificate {
    /// Loads and validates the files of `config`. The errors of both chain and key are reported.
    pub(crate) fn load(config: &CertificateConfig, now: Wall) -> Result<Self, Vec<CertificateError>> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |problem| CertificateError { path, problem }
        };
        let (chain, (key, key_type)) = match &config.managed {
            Some(managed) => match managed.material() {
                Some(material) => (material.chain.clone(), material.key.clone()),
                None => return Err(vec![at(&config.chain)(CertificateProblem::Empty)]),
            },
            None => {
                let chain = read_chain(&config.chain).map_err(at(&config.chain));
                let key = read_key(&config.key).map_err(at(&config.key));
                match (chain, key) {
                    (Ok(chain), Ok(key)) => (chain, key),
                    (chain, key) => return Err(chain.err().into_iter().chain(key.err()).collect()),
                }
            }
        };
        let facts = check_chain(&chain, key.as_ref(), config, now)
            .map_err(|problem| vec![at(&config.chain)(problem)])?;
        if config.managed.is_none() && files::world_readable(&config.key) {
            tracing::warn!(path = %config.key.display(), "every user of this machine can read this private key");
        }
        let info = CertificateInfo {
            hosts: facts.hosts,
            not_before: facts.not_before,
            not_after: facts.not_after,
            key_type,
            path: config.chain.clone(),
            trust_domain: config.trust_domain.clone(),
            staple_until: None,
        };
        Ok(Self {
            info,
            certified: Arc::new(CertifiedKey::new(chain, key)),
            client_auth: config.client_auth.clone(),
        })
    }
}

/// The hosts of an unusable certificate, if they are known: the configured ones, or those that the leaf names.
pub(crate) fn hosts_of_unusable(config: &CertificateConfig) -> Option<Vec<String>> {
    if !config.hosts.is_empty() {
        return config.hosts.iter().map(|host| names::normal_host(host)).collect();
    }
    let chain = read_chain(&config.chain).ok()?;
    let (_, leaf) = parse_x509_certificate(chain.first()?).ok()?;
    subject_names(&leaf).ok().filter(|hosts| !hosts.is_empty())
}

/// All certificates of a PEM file, in order.
pub(crate) fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateProblem> {
    let bytes = files::read(path)?;
    parse_chain(&bytes)
}

pub(crate) fn parse_chain(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateProblem> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(bytes).collect::<Result<_, _>>().map_err(damaged)?;
    if chain.is_empty() {
        return Err(CertificateProblem::NoCertificate {
            holds_key: files::contains(bytes, "PRIVATE KEY-----"),
        });
    }
    Ok(chain)
}

/// The problem behind a PEM parser's error, without quoting the file, whose line may be part of a key.
pub(crate) fn damaged(error: pem::Error) -> CertificateProblem {
    CertificateProblem::Damaged(
        match error {
            pem::Error::MissingSectionEnd { .. } => "a section has no \"END\" line",
            pem::Error::IllegalSectionStart { .. } => "a \"BEGIN\" line is broken",
            pem::Error::Base64Decode(_) => "not Base64 between \"BEGIN\" and \"END\"",
            pem::Error::SectionTooLarge => "a section is too large",
            _ => "not PEM",
        }
        .to_owned(),
    )
}

fn read_key(path: &Path) -> Result<UsableKey, CertificateProblem> {
    let bytes = files::read(path)?;
    // RFC 7468 §11, and the older encryption inside the PEM headers (RFC 1421 §4.6.1.1).
    if files::contains(&bytes, "BEGIN ENCRYPTED PRIVATE KEY")
        || files::contains(&bytes, "Proc-Type: 4,ENCRYPTED")
    {
        return Err(CertificateProblem::EncryptedKey);
    }
    let key = PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            CertificateProblem::NoKey { holds_certificate: files::contains(&bytes, "BEGIN CERTIFICATE-----") }
        }
        error => damaged(error),
    })?;
    usable_key(key)
}

/// A key that signs handshakes, with its type.
pub(crate) type UsableKey = (Arc<dyn SigningKey>, KeyType);

pub(crate) fn usable_key(key: PrivateKeyDer<'static>) -> Result<UsableKey, CertificateProblem> {
    let key = provider()
        .key_provider
        .load_private_key(key)
        .map_err(|error| CertificateProblem::UnusableKey(error.to_string()))?;
    let key_type = KeyType::of(key.as_ref())
        .ok_or_else(|| CertificateProblem::UnusableKey(format!("{:?}", key.algorithm())))?;
    Ok((key, key_type))
}

pub(crate) struct LeafFacts {
    hosts: Vec<String>,
    pub(crate) not_before: Wall,
    pub(crate) not_after: Wall,
}

pub(crate) fn check_chain(
    chain: &[CertificateDer<'_>],
    key: &dyn SigningKey,
    config: &CertificateConfig,
    now: Wall,
) -> Result<LeafFacts, CertificateProblem> {
    if chain.len() > CHAIN_LEN_MAX {
        return Err(CertificateProblem::ChainTooLong { limit: CHAIN_LEN_MAX });
    }
    let parsed = chain
        .iter()
        .zip(1..)
        .map(|(der, position)| {
            let malformed = |reason: String| CertificateProblem::Malformed { position, reason };
            match parse_x509_certificate(der) {
                Ok(([], certificate)) => Ok(certificate),
                Ok(_) => Err(malformed("surplus bytes after it".to_owned())),
                Err(error) => Err(malformed(error.to_string())),
            }
        })
        .collect::<Result<Vec<_>, _>>()?;
    let (Some(leaf), Some(der)) = (parsed.first(), chain.first()) else {
        return Err(CertificateProblem::NoCertificate { holds_key: false });
    };
    // A second, stricter parser, which clients of this TLS stack use: they would refuse what it refuses.
    ParsedCertificate::try_from(der)
        .map_err(|error| CertificateProblem::Malformed { position: 1, reason: error.to_string() })?;
    check_key(&parsed, key, &config.key)?;
    check_order(&parsed)?;
    let (not_before, not_after) = (&leaf.validity().not_before, &leaf.validity().not_after);
    let facts =
        LeafFacts { hosts: hosts(leaf, config)?, not_before: wall(not_before), not_after: wall(not_after) };
    if now < facts.not_before {
        return Err(CertificateProblem::NotYetValid(rfc3339(not_before)));
    }
    // The last second belongs to the validity (RFC 5280 §4.1.2.5).
    if now.unix_seconds() > not_after.timestamp() {
        return Err(CertificateProblem::Expired(rfc3339(not_after)));
    }
    for (position, issuer) in parsed.iter().enumerate().skip(1) {
        if now.unix_seconds() > issuer.validity().not_after.timestamp() {
            // Some authorities include an expired cross-signed root on purpose, for old clients.
            tracing::warn!(
                path = %config.chain.display(), position = position + 1,
                "an issuer in this chain has expired; clients may refuse it"
            );
        }
    }
    Ok(facts)
}

fn check_key(
    parsed: &[X509Certificate<'_>],
    key: &dyn SigningKey,
    path: &Path,
) -> Result<(), CertificateProblem> {
    let mismatch = || CertificateProblem::KeyMismatch { key: path.to_owned() };
    let Some(public) = key.public_key() else {
        return Err(CertificateProblem::UnusableKey(format!("{:?}", InconsistentKeys::Unknown)));
    };
    let belongs = |certificate: &X509Certificate<'_>| {
        SubjectPublicKeyInfoDer::from(certificate.public_key().raw) == public
    };
    match parsed.iter().position(belongs) {
        Some(0) => Ok(()),
        Some(index) => Err(CertificateProblem::LeafNotFirst { position: index + 1 }),
        None => Err(mismatch()),
    }
}

/// Checks that each certificate is followed by its issuer (required by RFC 8446 §4.4.2, and by some clients).
fn check_order(parsed: &[X509Certificate<'_>]) -> Result<(), CertificateProblem> {
    let broken = parsed.windows(2).position(|pair| match pair {
        [issued, issuer] => issued.issuer().as_raw() != issuer.subject().as_raw(),
        _ => false,
    });
    broken.map_or(Ok(()), |index| Err(CertificateProblem::BrokenChain { position: index + 1 }))
}

/// The hosts to serve the leaf for: the configured ones, which it must cover, else all that it names.
fn hosts(leaf: &X509Certificate<'_>, config: &CertificateConfig) -> Result<Vec<String>, CertificateProblem> {
    let covered = subject_names(leaf)?;
    if config.hosts.is_empty() {
        return if covered.is_empty() { Err(CertificateProblem::NoNames) } else { Ok(covered) };
    }
    config
        .hosts
        .iter()
        .map(|configured| {
            let host = names::normal_host(configured)
                .ok_or_else(|| CertificateProblem::BadHost(configured.clone()))?;
            let by_wildcard = names::wildcard_of(&host);
            if covered
                .iter()
                .any(|name| *name == host || name.strip_prefix("*.") == by_wildcard && by_wildcard.is_some())
            {
                return Ok(host);
            }
            let covered = if covered.is_empty() { "nothing".to_owned() } else { covered.join(", ") };
            Err(CertificateProblem::HostNotCovered { host, covered })
        })
        .collect()
}

/// DNS names and IP addresses among the subject alternative names. The common name doesn't count (RFC 9525 §2).
fn subject_names(leaf: &X509Certificate<'_>) -> Result<Vec<String>, CertificateProblem> {
    let extension = leaf
        .subject_alternative_name()
        .map_err(|error| CertificateProblem::Malformed { position: 1, reason: error.to_string() })?;
    let Some(extension) = extension else { return Ok(Vec::new()) };
    let mut found: Vec<String> = Vec::new();
    for name in &extension.value.general_names {
        let host = match name {
            GeneralName::DNSName(name) => names::normal_host(name),
            GeneralName::IPAddress(octets) => names::address(octets).map(|address| address.to_string()),
            _ => None,
        };
        found.extend(host.filter(|host| !found.contains(host)));
    }
    Ok(found)
}

pub(crate) fn wall(time: &ASN1Time) -> Wall {
    Wall::from_unix_seconds(time.timestamp())
}

fn rfc3339(time: &ASN1Time) -> String {
    let time = time.to_datetime();
    let (date, clock) =
        ((time.year(), u8::from(time.month()), time.day()), (time.hour(), time.minute(), time.second()));
    format!("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", date.0, date.1, date.2, clock.0, clock.1, clock.2)
}

#[cfg(test)]
mod tests;
