//! OCSP stapling: responses about our certificates (RFC 6960), sent in the handshake (RFC 6066 §8).
//!
//! A response is stapled only if it is signed by the certificate's issuer or its delegated responder, is about this
//! certificate, has the status good, and has not expired.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod response;

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use cardea_clock::Wall;
use rustls_pki_types::CertificateDer;
use thiserror::Error;
use x509_parser::asn1_rs::{Integer, Null, OctetString, Oid, Sequence, SerializeResult, ToDer as _, oid};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::OID_PKIX_ACCESS_DESCRIPTOR_OCSP;
use x509_parser::parse_x509_certificate;

use response::Subject;

/// The largest accepted response, in bytes. Typical ones have about 500, and some 2,000 with the responder's
/// certificate.
pub const STAPLE_BYTES_MAX: usize = 32 * 1024;

/// The time between two attempts, in case the responder is down.
const RETRY: Duration = Duration::from_secs(300);

/// The source of the response about a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OcspConfig {
    /// A DER file that another program updates.
    File(PathBuf),
    /// The responder that the certificate names. The owner of the [`ServerTls`](crate::ServerTls) sends the requests.
    Fetch,
}

/// Why a response is not stapled. The message is for the operator.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StapleError {
    /// The file can't be read.
    #[error("can't be read: {0}")]
    Unreadable(String),
    /// Larger than [`STAPLE_BYTES_MAX`].
    #[error("is longer than {STAPLE_BYTES_MAX} bytes")]
    TooLarge,
    /// Not an OCSP response, or not in DER.
    #[error("is no OCSP response in DER")]
    Malformed,
    /// The responder returned an error status (RFC 6960 §4.2.1).
    #[error("is no answer: the responder's status is {0}")]
    Unsuccessful(u8),
    /// Signed neither by the issuer nor by its delegated responder.
    #[error("is not signed by the issuer of the certificate, or by whom it has named for that")]
    NotSigned,
    /// About other certificates.
    #[error("is not about this certificate")]
    OtherCertificate,
    /// The certificate is revoked.
    #[error("says that the certificate is revoked; replace the certificate")]
    Revoked,
    /// The authority does not know the certificate.
    #[error("says that the authority does not know the certificate")]
    Unknown,
    /// Expired, from the future, or without an end of validity.
    #[error("is not for now; get a new one, and check the clock")]
    OutOfTime,
    /// The chain contains no issuer to verify the response.
    #[error("can't be checked: the chain holds no issuer; append it")]
    NoIssuer,
    /// The certificate names no responder.
    #[error("can't be fetched: the certificate names no responder over http")]
    NoResponder,
}

/// A response that may be stapled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Staple {
    pub(crate) der: Vec<u8>,
    this_update: Wall,
    pub(crate) next_update: Wall,
}

impl Staple {
    /// Validates a response about the first certificate of `chain`.
    pub(crate) fn check(der: Vec<u8>, chain: &[CertificateDer<'_>], now: Wall) -> Result<Self, StapleError> {
        if der.len() > STAPLE_BYTES_MAX {
            return Err(StapleError::TooLarge);
        }
        let (this_update, next_update) = response::check(&der, &Subject::of(chain)?, now)?;
        Ok(Self { der, this_update, next_update })
    }

    /// The response in a file.
    pub(crate) fn read(path: &Path, chain: &[CertificateDer<'_>], now: Wall) -> Result<Self, StapleError> {
        let unreadable = |error: io::Error| StapleError::Unreadable(error.to_string());
        if !fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(StapleError::Unreadable("not a regular file".to_owned()));
        }
        let mut der = Vec::new();
        let file = fs::File::open(path).map_err(unreadable)?;
        file.take(STAPLE_BYTES_MAX as u64 + 1).read_to_end(&mut der).map_err(unreadable)?;
        Self::check(der, chain, now)
    }

    pub(crate) fn is_over(&self, now: Wall) -> bool {
        now >= self.next_update
    }

    /// Whether to fetch the next one: half of its validity is over.
    fn is_aged(&self, now: Wall) -> bool {
        let half = self.next_update.saturating_since(self.this_update) / 2;
        now >= self.this_update.saturating_add(half)
    }
}

/// A request for a responder, to be posted as `application/ocsp-request` (RFC 6960 §A.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StapleRequest {
    /// The responder.
    pub url: String,
    /// The request in DER.
    pub body: Vec<u8>,
    /// The file of the certificate.
    pub path: PathBuf,
    /// The index of the certificate in its listener.
    pub(crate) index: usize,
}

impl StapleRequest {
    pub(crate) fn new(
        index: usize,
        path: PathBuf,
        chain: &[CertificateDer<'_>],
    ) -> Result<Self, StapleError> {
        let url = chain.first().and_then(|leaf| responder(leaf)).ok_or(StapleError::NoResponder)?;
        let body = request(&Subject::of(chain)?).map_err(|_| StapleError::NoIssuer)?;
        Ok(Self { url, body, path, index })
    }
}

/// When a certificate's responder was last asked.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Asked(Option<Wall>);

impl Asked {
    /// Whether to ask now; if so, the time is recorded.
    pub(crate) fn is_due(&mut self, staple: Option<&Staple>, now: Wall) -> bool {
        let lately = self.0.is_some_and(|at| at <= now && now < at.saturating_add(RETRY));
        let due = !lately && staple.is_none_or(|staple| staple.is_aged(now));
        if due {
            self.0 = Some(now);
        }
        due
    }
}

/// The responder's URL in the certificate's authority information (RFC 5280 §4.2.2.1).
fn responder(leaf: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = parse_x509_certificate(leaf).ok()?;
    parsed.extensions().iter().find_map(|extension| {
        let ParsedExtension::AuthorityInfoAccess(access) = extension.parsed_extension() else { return None };
        access.iter().find_map(|one| match &one.access_location {
            GeneralName::URI(url)
                if one.access_method == OID_PKIX_ACCESS_DESCRIPTOR_OCSP && url.starts_with("http://") =>
            {
                Some((*url).to_owned())
            }
            _ => None,
        })
    })
}

/// The request (RFC 6960 §4.1.1) with SHA-1, which every responder supports (RFC 5019 §2.1.1). It has no nonce, because
/// the response is for all clients.
fn request(subject: &Subject<'_>) -> SerializeResult<Vec<u8>> {
    const SHA1: Oid<'_> = oid!(1.3.14.3.2.26);
    let sequence = |parts: &[Vec<u8>]| Sequence::new(parts.concat().into()).to_der_vec();
    let hash = |bytes| OctetString::new(digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref()).to_der_vec();
    let id = sequence(&[
        sequence(&[SHA1.to_der_vec()?, Null::new().to_der_vec()?])?,
        hash(subject.issuer_name)?,
        hash(subject.issuer_key())?,
        Integer::new(subject.serial).to_der_vec()?,
    ])?;
    let list = sequence(&[sequence(&[id])?])?;
    sequence(&[sequence(&[list])?])
}

#[cfg(test)]
mod tests;
