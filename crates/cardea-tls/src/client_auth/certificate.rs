//! A client's certificate, and its repeated verification.

use std::fmt;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest::{self, SHA256};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use cardea_clock::Wall;
use rustls_pki_types::CertificateDer;
use x509_parser::parse_x509_certificate;

use super::authority::unix_time;
use super::{ClientAuthority, ClientName, distinguished_name};
use crate::certificate::wall;

/// How long a verification is cached: issuers and lists expire without any change here.
const BELIEVED: Duration = Duration::from_secs(60);
/// The most authorities whose results a connection caches; further ones verify each time.
const VERDICTS_MAX: usize = 16;

/// A client's certificate, whose key the handshake has verified.
///
/// Whether it is trusted depends on the time: [`Self::holds`] and [`Self::is_vouched_for_by`] cost little more than a
/// lock if they were called recently.
pub struct ClientCertificate {
    /// The leaf first. Never empty.
    chain: Vec<CertificateDer<'static>>,
    subject: String,
    issuer: String,
    serial: String,
    not_before: Wall,
    not_after: Wall,
    names: Vec<ClientName>,
    joined: JoinedNames,
    fingerprint: [u8; 32],
    fingerprint_hex: String,
    /// The authorities that the host of the connection accepts.
    authorities: Vec<Arc<ClientAuthority>>,
    verdicts: Mutex<Vec<Verdict>>,
    leaf_base64: OnceLock<String>,
    chain_base64: OnceLock<String>,
}

/// The names of a certificate, separated by spaces.
#[derive(Debug, Default)]
struct JoinedNames {
    all: String,
    dns: String,
    uri: String,
    email: String,
}

#[derive(Clone, Copy)]
struct Verdict {
    generation: u64,
    at: Wall,
    vouched: bool,
}

impl ClientCertificate {
    /// Parses the certificate of a handshake; `None` if it can't be parsed. `verified` names the generation of the
    /// authority that accepted it, and the time.
    pub(crate) fn new(
        chain: &[CertificateDer<'_>],
        authorities: &[Arc<ClientAuthority>],
        verified: Option<(u64, Wall)>,
    ) -> Option<Self> {
        let leaf = chain.first()?;
        let ([], parsed) = parse_x509_certificate(leaf).ok()? else { return None };
        let names: Vec<ClientName> = match parsed.subject_alternative_name().ok()? {
            Some(extension) => extension.value.general_names.iter().filter_map(ClientName::of).collect(),
            None => Vec::new(),
        };
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest::digest(&SHA256, leaf).as_ref());
        let mut serial = hex(parsed.raw_serial());
        if serial.len() > 2 && serial.starts_with("00") {
            // The sign octet is not part of the number.
            serial.drain(..2);
        }
        Some(Self {
            subject: distinguished_name::text(parsed.subject()),
            issuer: distinguished_name::text(parsed.issuer()),
            serial,
            not_before: wall(&parsed.validity().not_before),
            not_after: wall(&parsed.validity().not_after),
            joined: JoinedNames::new(&names),
            names,
            fingerprint_hex: hex(&fingerprint),
            fingerprint,
            authorities: authorities.to_vec(),
            verdicts: Mutex::new(
                verified
                    .map(|(generation, at)| Verdict { generation, at, vouched: true })
                    .into_iter()
                    .collect(),
            ),
            leaf_base64: OnceLock::new(),
            chain_base64: OnceLock::new(),
            chain: chain.iter().map(|certificate| certificate.clone().into_owned()).collect(),
        })
    }

    /// Whether an authority that the connection's host accepts verifies it at `now`: its chain leads to a root, each
    /// certificate is valid, and none is revoked.
    #[must_use]
    pub fn holds(&self, now: Wall) -> bool {
        self.authorities.iter().any(|authority| self.is_vouched_for_by(authority, now))
    }

    /// Whether this authority verifies it at `now`.
    #[must_use]
    pub fn is_vouched_for_by(&self, authority: &ClientAuthority, now: Wall) -> bool {
        if now < self.not_before || now >= self.end() {
            return false;
        }
        let generation = authority.generation();
        let known = self.verdicts().iter().find(|verdict| verdict.generation == generation).copied();
        if let Some(known) = known
            && known.at <= now
            && now < known.at.saturating_add(BELIEVED)
        {
            return known.vouched;
        }
        let vouched = authority.verify(&self.chain, unix_time(now)).is_ok();
        let mut verdicts = self.verdicts();
        verdicts.retain(|verdict| verdict.generation != generation);
        if verdicts.len() == VERDICTS_MAX {
            verdicts.remove(0);
        }
        verdicts.push(Verdict { generation, at: now, vouched });
        vouched
    }

    /// Whether the handshake requested it for exactly these authorities.
    pub(crate) fn was_asked_for_by(&self, authorities: &[Arc<ClientAuthority>]) -> bool {
        self.authorities == authorities
    }

    /// The subject's distinguished name (RFC 4514). Authorities rarely verify all of it, so decisions should use
    /// [`Self::names`].
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The issuer's distinguished name (RFC 4514).
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The serial number in hexadecimal.
    #[must_use]
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// The start of validity.
    #[must_use]
    pub const fn not_before(&self) -> Wall {
        self.not_before
    }

    /// The end of validity.
    #[must_use]
    pub const fn not_after(&self) -> Wall {
        self.not_after
    }

    /// The first moment after the validity. The last second belongs to it (RFC 5280 §4.1.2.5).
    #[must_use]
    pub fn end(&self) -> Wall {
        Wall::from_unix_seconds(self.not_after.unix_seconds().saturating_add(1))
    }

    /// The subject alternative names.
    #[must_use]
    pub fn names(&self) -> &[ClientName] {
        &self.names
    }

    /// All names with their types, separated by spaces: `dns:a.example uri:spiffe://example/a`.
    #[must_use]
    pub fn names_text(&self) -> &str {
        &self.joined.all
    }

    /// The DNS names, separated by spaces.
    #[must_use]
    pub fn dns_names(&self) -> &str {
        &self.joined.dns
    }

    /// The URIs, separated by spaces.
    #[must_use]
    pub fn uris(&self) -> &str {
        &self.joined.uri
    }

    /// The email addresses, separated by spaces.
    #[must_use]
    pub fn emails(&self) -> &str {
        &self.joined.email
    }

    /// SHA-256 of the whole certificate in DER.
    #[must_use]
    pub const fn fingerprint(&self) -> &[u8; 32] {
        &self.fingerprint
    }

    /// The same in hexadecimal.
    #[must_use]
    pub fn fingerprint_hex(&self) -> &str {
        &self.fingerprint_hex
    }

    /// The certificate as the value of `Client-Cert` (RFC 9440 §2.2).
    #[must_use]
    pub fn header(&self) -> &str {
        self.leaf_base64.get_or_init(|| self.chain.first().map(|leaf| binary_item(leaf)).unwrap_or_default())
    }

    /// The rest of the client's chain as the value of `Client-Cert-Chain` (RFC 9440 §2.3); empty if the client sent no
    /// more.
    #[must_use]
    pub fn chain_header(&self) -> &str {
        self.chain_base64.get_or_init(|| {
            let rest: Vec<String> = self.chain.iter().skip(1).map(|der| binary_item(der)).collect();
            rest.join(", ")
        })
    }

    fn verdicts(&self) -> std::sync::MutexGuard<'_, Vec<Verdict>> {
        // A panic elsewhere can't leave it in an inconsistent state.
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JoinedNames {
    fn new(names: &[ClientName]) -> Self {
        let join = |texts: Vec<String>| texts.join(" ");
        let of = |choose: fn(&ClientName) -> bool| {
            join(names.iter().filter(|name| choose(name)).map(ClientName::text).collect())
        };
        Self {
            all: join(names.iter().map(ToString::to_string).collect()),
            dns: of(|name| matches!(name, ClientName::Dns(_))),
            uri: of(|name| matches!(name, ClientName::Uri(_))),
            email: of(|name| matches!(name, ClientName::Email(_))),
        }
    }
}

impl PartialEq for ClientCertificate {
    fn eq(&self, other: &Self) -> bool {
        self.chain == other.chain
    }
}

impl Eq for ClientCertificate {}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate")
            .field("subject", &self.subject)
            .field("names", &self.names)
            .field("fingerprint", &self.fingerprint_hex)
            .finish_non_exhaustive()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A byte sequence of structured fields (RFC 8941 §3.3.5): base64 between colons.
fn binary_item(bytes: &[u8]) -> String {
    let mut out = String::from(":");
    STANDARD.encode_string(bytes, &mut out);
    out.push(':');
    out
}
