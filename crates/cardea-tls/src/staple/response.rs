//! Reads and verifies a response about a certificate (RFC 6960 §4.2).

use std::time::Duration;

use aws_lc_rs::digest::{self, SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use cardea_clock::Wall;
use rustls_pki_types::CertificateDer;
use x509_parser::parse_x509_certificate;

use super::StapleError;
use super::der::{
    BIT_STRING, ENUMERATED, Element, GENERALIZED_TIME, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, Reader,
    SEQUENCE, bits, context, time,
};
use crate::provider;

/// 1.3.14.3.2.26.
pub(super) const SHA1: [u8; 5] = [0x2b, 0x0e, 0x03, 0x02, 0x1a];
/// 2.16.840.1.101.3.4.2.1.
const SHA256_OID: [u8; 9] = [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01];
/// 1.3.6.1.5.5.7.48.1.1, the one type of response that there is.
const BASIC: [u8; 9] = [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01, 0x01];

/// What a responder's clock may be ahead of ours.
const SKEW: Duration = Duration::from_secs(300);
/// Certificates that a responder may send along.
const CERTIFICATES_MAX: usize = 8;

/// What a response must be about, and who may sign it.
pub(super) struct Subject<'a> {
    pub(super) serial: &'a [u8],
    pub(super) issuer_name: &'a [u8],
    /// The octets of the issuer's key.
    pub(super) issuer_key: &'a [u8],
    issuer: PublicKey<'a>,
}

#[derive(Clone, Copy)]
struct PublicKey<'a> {
    algorithm: &'a [u8],
    key: &'a [u8],
}

impl<'a> Subject<'a> {
    /// The first certificate of a chain, by the second.
    pub(super) fn of(chain: &'a [CertificateDer<'_>]) -> Result<Self, StapleError> {
        let (leaf, issuer) = match chain {
            [leaf, issuer, ..] => (Certificate::read(leaf), Certificate::read(issuer)),
            _ => return Err(StapleError::NoIssuer),
        };
        let (Some(leaf), Some(issuer)) = (leaf, issuer) else { return Err(StapleError::NoIssuer) };
        Ok(Self {
            serial: leaf.serial,
            issuer_name: issuer.subject,
            issuer_key: issuer.key.key,
            issuer: issuer.key,
        })
    }
}

/// From when to when the response holds.
pub(super) fn check(response: &[u8], subject: &Subject<'_>, now: Wall) -> Result<(Wall, Wall), StapleError> {
    let basic = successful(response)?;
    let (data, signature) = Basic::read(basic).ok_or(StapleError::Malformed)?;
    if !signature.is_by_issuer(data.raw, subject, now) {
        return Err(StapleError::NotSigned);
    }
    for single in Single::all(data.content).ok_or(StapleError::Malformed)? {
        let single = single.ok_or(StapleError::Malformed)?;
        if !single.is_about(subject) {
            continue;
        }
        match single.status {
            0x80 => {}
            0xa1 => return Err(StapleError::Revoked),
            _ => return Err(StapleError::Unknown),
        }
        return match single.next_update {
            Some(next) if single.this_update <= now.saturating_add(SKEW) && now < next => {
                Ok((single.this_update, next))
            }
            _ => Err(StapleError::OutOfTime),
        };
    }
    Err(StapleError::OtherCertificate)
}

/// The inside of a response whose status is good.
fn successful(response: &[u8]) -> Result<&[u8], StapleError> {
    let malformed = StapleError::Malformed;
    let mut outer = Reader(response);
    let mut inner = outer.enter(SEQUENCE).filter(|_| outer.0.is_empty()).ok_or(malformed)?;
    match inner.expect(ENUMERATED).map(|status| status.content) {
        Some([0]) => {}
        Some([status]) => return Err(StapleError::Unsuccessful(*status)),
        _ => return Err(StapleError::Malformed),
    }
    let mut read = || {
        let mut bytes = inner.enter(context(0))?.enter(SEQUENCE)?;
        let is_basic = bytes.expect(OBJECT_IDENTIFIER)?.content == BASIC;
        bytes.expect(OCTET_STRING).filter(|_| is_basic).map(|element| element.content)
    };
    read().ok_or(StapleError::Malformed)
}

struct Basic<'a> {
    algorithm: &'a [u8],
    signature: &'a [u8],
    certificates: &'a [u8],
}

impl<'a> Basic<'a> {
    /// What was signed, and by what.
    fn read(basic: &'a [u8]) -> Option<(Element<'a>, Self)> {
        let mut basic = Reader(basic).enter(SEQUENCE)?;
        let data = basic.expect(SEQUENCE)?;
        let algorithm = basic.expect(SEQUENCE)?.content;
        let signature = bits(&basic.expect(BIT_STRING)?)?;
        let certificates = match basic.optional(context(0)) {
            Some(element) => Reader(element.content).expect(SEQUENCE)?.content,
            None => &[],
        };
        Some((data, Self { algorithm, signature, certificates }))
    }

    /// By the issuer itself, or by a responder that it has given a certificate for just that (RFC 6960 §4.2.2.2).
    fn is_by_issuer(&self, signed: &[u8], subject: &Subject<'_>, now: Wall) -> bool {
        if verify(subject.issuer, self.algorithm, signed, self.signature) {
            return true;
        }
        let mut certificates = Reader(self.certificates);
        std::iter::from_fn(|| certificates.expect(SEQUENCE))
            .take(CERTIFICATES_MAX)
            .filter_map(|element| Certificate::read(element.raw))
            .any(|responder| {
                responder.issuer == subject.issuer_name
                    && responder.may_respond(now)
                    && verify(subject.issuer, responder.algorithm, responder.signed, responder.signature)
                    && verify(responder.key, self.algorithm, signed, self.signature)
            })
    }
}

/// What is said about one certificate.
struct Single<'a> {
    algorithm: &'a [u8],
    name_hash: &'a [u8],
    key_hash: &'a [u8],
    serial: &'a [u8],
    status: u8,
    this_update: Wall,
    next_update: Option<Wall>,
}

impl<'a> Single<'a> {
    /// All that a response holds; a part that can't be read is `None`.
    fn all(data: &'a [u8]) -> Option<impl Iterator<Item = Option<Self>>> {
        let mut data = Reader(data);
        data.optional(context(0));
        // By name or by key: the signature says who it was.
        data.next().filter(|responder| matches!(responder.tag, 0xa1 | 0xa2))?;
        data.expect(GENERALIZED_TIME)?;
        let mut singles = data.enter(SEQUENCE)?;
        Some(std::iter::from_fn(move || {
            if singles.0.is_empty() {
                return None;
            }
            let single = singles.enter(SEQUENCE);
            if single.is_none() {
                singles.0 = &[];
            }
            Some(single.and_then(Self::read))
        }))
    }

    fn read(mut single: Reader<'a>) -> Option<Self> {
        let mut id = single.enter(SEQUENCE)?;
        let algorithm = id.enter(SEQUENCE)?.expect(OBJECT_IDENTIFIER)?.content;
        let name_hash = id.expect(OCTET_STRING)?.content;
        let key_hash = id.expect(OCTET_STRING)?.content;
        let serial = id.expect(INTEGER)?.content;
        let status = single.next()?.tag;
        let this_update = time(&single.expect(GENERALIZED_TIME)?)?;
        let next_update = match single.optional(context(0)) {
            Some(element) => Some(time(&Reader(element.content).expect(GENERALIZED_TIME)?)?),
            None => None,
        };
        Some(Self { algorithm, name_hash, key_hash, serial, status, this_update, next_update })
    }

    fn is_about(&self, subject: &Subject<'_>) -> bool {
        let hash = match self.algorithm {
            algorithm if algorithm == SHA1 => &SHA1_FOR_LEGACY_USE_ONLY,
            algorithm if algorithm == SHA256_OID => &SHA256,
            _ => return false,
        };
        self.serial == subject.serial
            && self.name_hash == digest::digest(hash, subject.issuer_name).as_ref()
            && self.key_hash == digest::digest(hash, subject.issuer_key).as_ref()
    }
}

struct Certificate<'a> {
    der: &'a [u8],
    signed: &'a [u8],
    algorithm: &'a [u8],
    signature: &'a [u8],
    serial: &'a [u8],
    issuer: &'a [u8],
    subject: &'a [u8],
    key: PublicKey<'a>,
}

impl<'a> Certificate<'a> {
    /// RFC 5280 §4.1.
    fn read(der: &'a [u8]) -> Option<Self> {
        let mut outer = Reader(der).enter(SEQUENCE)?;
        let signed = outer.expect(SEQUENCE)?;
        let algorithm = outer.expect(SEQUENCE)?.content;
        let signature = bits(&outer.expect(BIT_STRING)?)?;
        let mut inner = Reader(signed.content);
        inner.optional(context(0));
        let serial = inner.expect(INTEGER)?.content;
        inner.expect(SEQUENCE)?;
        let issuer = inner.expect(SEQUENCE)?.raw;
        inner.expect(SEQUENCE)?;
        let subject = inner.expect(SEQUENCE)?.raw;
        let mut key = inner.enter(SEQUENCE)?;
        let key =
            PublicKey { algorithm: key.expect(SEQUENCE)?.content, key: bits(&key.expect(BIT_STRING)?)? };
        Some(Self { der, signed: signed.raw, algorithm, signature, serial, issuer, subject, key })
    }

    /// Whether it is for signing responses, and valid.
    fn may_respond(&self, now: Wall) -> bool {
        let Ok(([], parsed)) = parse_x509_certificate(self.der) else { return false };
        let usage = parsed.extended_key_usage().ok().flatten();
        let now = now.unix_seconds();
        usage.is_some_and(|usage| usage.value.ocsp_signing)
            && parsed.validity().not_before.timestamp() <= now
            && now <= parsed.validity().not_after.timestamp()
    }
}

fn verify(key: PublicKey<'_>, algorithm: &[u8], message: &[u8], signature: &[u8]) -> bool {
    provider().signature_verification_algorithms.all.iter().any(|known| {
        known.signature_alg_id().as_ref() == algorithm
            && known.public_key_alg_id().as_ref() == key.algorithm
            && known.verify_signature(key.key, message, signature).is_ok()
    })
}
