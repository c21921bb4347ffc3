//! Parses and verifies an OCSP response (RFC 6960 §4.2).

use std::time::Duration;

use aws_lc_rs::digest::{self, SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use cardea_clock::Wall;
use rustls_pki_types::CertificateDer;
use x509_parser::asn1_rs::{Class, Error, GeneralizedTime, ParseResult, Tag, oid};
use x509_parser::certificate::X509Certificate;
use x509_parser::nom::combinator::consumed;
use x509_parser::parse_x509_certificate;

use super::StapleError;
use crate::der::{element, value, whole};
use crate::signed::{PublicKey, Signed};

const SHA1_OID: &[u8] = &oid!(raw 1.3.14.3.2.26);
const SHA256_OID: &[u8] = &oid!(raw 2.16.840.1.101.3.4.2.1);
/// The only type of response (RFC 6960 §4.2.1).
const BASIC_OID: &[u8] = &oid!(raw 1.3.6.1.5.5.7.48.1.1);

/// How far a responder's clock may be ahead of ours.
const SKEW: Duration = Duration::from_secs(300);
/// The most certificates in a response.
const CERTIFICATES_MAX: usize = 8;

/// The certificate that a response must be about, and its issuer.
pub(super) struct Subject<'a> {
    pub(super) serial: &'a [u8],
    pub(super) issuer_name: &'a [u8],
    issuer_key: PublicKey<'a>,
}

impl<'a> Subject<'a> {
    /// The first certificate of a chain, issued by the second.
    pub(super) fn of(chain: &'a [CertificateDer<'_>]) -> Result<Self, StapleError> {
        let (leaf, issuer) = match chain {
            [leaf, issuer, ..] => (certificate(leaf), certificate(issuer)),
            _ => return Err(StapleError::NoIssuer),
        };
        let (Some(leaf), Some(issuer)) = (leaf, issuer) else { return Err(StapleError::NoIssuer) };
        let issuer_key = PublicKey::of(&issuer).ok_or(StapleError::NoIssuer)?;
        Ok(Self { serial: leaf.raw_serial(), issuer_name: issuer.subject.as_raw(), issuer_key })
    }

    /// The octets of the issuer's key.
    pub(super) fn issuer_key(&self) -> &[u8] {
        self.issuer_key.key
    }
}

/// The validity of the response.
pub(super) fn check(response: &[u8], subject: &Subject<'_>, now: Wall) -> Result<(Wall, Wall), StapleError> {
    let basic = Basic::read(successful(response)?).ok_or(StapleError::Malformed)?;
    if !basic.is_by_issuer(subject, now) {
        return Err(StapleError::NotSigned);
    }
    basic.says(subject, now)
}

/// The content of a successful response.
pub(super) fn successful(response: &[u8]) -> Result<&[u8], StapleError> {
    let inner = whole(value(response, Tag::Sequence)).ok_or(StapleError::Malformed)?;
    let (rest, status) = value(inner, Tag::Enumerated).map_err(|_| StapleError::Malformed)?;
    match status {
        [0] => whole(bytes(rest)).ok_or(StapleError::Malformed),
        [status] => Err(StapleError::Unsuccessful(*status)),
        _ => Err(StapleError::Malformed),
    }
}

/// The `ResponseBytes` in `[0]`, if they contain a basic response.
fn bytes(input: &[u8]) -> ParseResult<'_, &[u8]> {
    let (rest, explicit) = optional(input, 0)?;
    let (_, inner) = value(explicit.ok_or(Error::InvalidLength)?, Tag::Sequence)?;
    let (inner, kind) = value(inner, Tag::Oid)?;
    if kind != BASIC_OID {
        return Err(Error::BerTypeError.into());
    }
    let (_, response) = value(inner, Tag::OctetString)?;
    Ok((rest, response))
}

/// A `BasicOCSPResponse`.
pub(super) struct Basic<'a> {
    signed: Signed<'a>,
    /// `SingleResponse`s, one after another.
    singles: &'a [u8],
    /// Certificates, one after another.
    certificates: &'a [u8],
}

impl<'a> Basic<'a> {
    pub(super) fn read(der: &'a [u8]) -> Option<Self> {
        let inner = whole(value(der, Tag::Sequence))?;
        let (rest, signed) = Signed::read(inner).ok()?;
        let (_, explicit) = optional(rest, 0).ok()?;
        let certificates = match explicit {
            Some(list) => value(list, Tag::Sequence).ok()?.1,
            None => &[],
        };
        let (_, singles) = Self::singles(signed.data).ok()?;
        Some(Self { signed, singles, certificates })
    }

    fn singles(data: &[u8]) -> ParseResult<'_, &[u8]> {
        let (rest, _version) = optional(data, 0)?;
        // By name or by key; the signature proves who it was.
        let (rest, by_name) = optional(rest, 1)?;
        let (rest, by_key) = optional(rest, 2)?;
        if by_name.is_some() == by_key.is_some() {
            return Err(Error::BerTypeError.into());
        }
        let (rest, _produced_at) = time(rest)?;
        value(rest, Tag::Sequence)
    }

    /// Whether it is signed by the issuer, or by a responder with a delegation certificate of the issuer (RFC 6960
    /// §4.2.2.2).
    fn is_by_issuer(&self, subject: &Subject<'_>, now: Wall) -> bool {
        self.signed.is_by(subject.issuer_key)
            || self.responders().any(|responder| {
                let issued =
                    Signed::of(responder.as_raw()).is_some_and(|signed| signed.is_by(subject.issuer_key));
                issued
                    && responder.issuer.as_raw() == subject.issuer_name
                    && may_respond(&responder, now)
                    && PublicKey::of(&responder).is_some_and(|key| self.signed.is_by(key))
            })
    }

    fn responders(&self) -> impl Iterator<Item = X509Certificate<'a>> {
        let mut rest = self.certificates;
        let raw = std::iter::from_fn(move || {
            let (after, (raw, _)) = consumed(|input| value(input, Tag::Sequence))(rest).ok()?;
            rest = after;
            Some(raw)
        });
        raw.take(CERTIFICATES_MAX).filter_map(certificate)
    }

    /// The status of the certificate, whoever signed it.
    pub(super) fn says(&self, subject: &Subject<'_>, now: Wall) -> Result<(Wall, Wall), StapleError> {
        let mut rest = self.singles;
        while !rest.is_empty() {
            let (after, single) = Single::read(rest).map_err(|_| StapleError::Malformed)?;
            rest = after;
            if !single.is_about(subject) {
                continue;
            }
            single.status?;
            return match single.next_update {
                Some(next) if single.this_update <= now.saturating_add(SKEW) && now < next => {
                    Ok((single.this_update, next))
                }
                _ => Err(StapleError::OutOfTime),
            };
        }
        Err(StapleError::OtherCertificate)
    }
}

/// The status of one certificate.
struct Single<'a> {
    /// The algorithm of the two hashes.
    algorithm: &'a [u8],
    name_hash: &'a [u8],
    key_hash: &'a [u8],
    serial: &'a [u8],
    status: Result<(), StapleError>,
    this_update: Wall,
    next_update: Option<Wall>,
}

impl<'a> Single<'a> {
    fn read(input: &'a [u8]) -> ParseResult<'a, Self> {
        let (rest, single) = value(input, Tag::Sequence)?;
        let (single, id) = value(single, Tag::Sequence)?;
        let (id, algorithm) = value(id, Tag::Sequence)?;
        let (_, algorithm) = value(algorithm, Tag::Oid)?;
        let (id, name_hash) = value(id, Tag::OctetString)?;
        let (id, key_hash) = value(id, Tag::OctetString)?;
        let (_, serial) = value(id, Tag::Integer)?;
        let (single, status) = element(single)?;
        let status = match (status.class(), status.header.constructed(), status.tag()) {
            (Class::ContextSpecific, false, Tag(0)) => Ok(()),
            (Class::ContextSpecific, true, Tag(1)) => Err(StapleError::Revoked),
            _ => Err(StapleError::Unknown),
        };
        let (single, this_update) = time(single)?;
        let next_update = match optional(single, 0)?.1 {
            Some(explicit) => Some(time(explicit)?.1),
            None => None,
        };
        Ok((rest, Self { algorithm, name_hash, key_hash, serial, status, this_update, next_update }))
    }

    fn is_about(&self, subject: &Subject<'_>) -> bool {
        let hash = match self.algorithm {
            SHA1_OID => &SHA1_FOR_LEGACY_USE_ONLY,
            SHA256_OID => &SHA256,
            _ => return false,
        };
        self.serial == subject.serial
            && self.name_hash == digest::digest(hash, subject.issuer_name).as_ref()
            && self.key_hash == digest::digest(hash, subject.issuer_key()).as_ref()
    }
}

fn certificate(der: &[u8]) -> Option<X509Certificate<'_>> {
    match parse_x509_certificate(der) {
        Ok(([], certificate)) => Some(certificate),
        _ => None,
    }
}

/// Whether a certificate is for signing responses, and valid.
fn may_respond(certificate: &X509Certificate<'_>, now: Wall) -> bool {
    let usage = certificate.extended_key_usage().ok().flatten();
    let now = now.unix_seconds();
    usage.is_some_and(|usage| usage.value.ocsp_signing)
        && certificate.validity().not_before.timestamp() <= now
        && now <= certificate.validity().not_after.timestamp()
}

/// The content of the next value if it has the context's own tag `number`, constructed; else it is left there.
fn optional(input: &[u8], number: u32) -> ParseResult<'_, Option<&[u8]>> {
    match element(input) {
        Ok((rest, any))
            if any.class() == Class::ContextSpecific
                && any.header.constructed()
                && any.tag() == Tag(number) =>
        {
            Ok((rest, Some(any.data)))
        }
        _ => Ok((input, None)),
    }
}

/// A time as RFC 6960 has it: in UTC, to the second.
fn time(input: &[u8]) -> ParseResult<'_, Wall> {
    let (rest, text) = value(input, Tag::GeneralizedTime)?;
    // The library also accepts times without seconds and with fractions.
    if text.len() != "YYYYMMDDHHMMSSZ".len() {
        return Err(Error::InvalidDateTime.into());
    }
    let time = GeneralizedTime::from_bytes(text)?.utc_datetime()?;
    Ok((rest, Wall::from_unix_seconds(time.unix_timestamp())))
}

#[cfg(test)]
mod tests;
