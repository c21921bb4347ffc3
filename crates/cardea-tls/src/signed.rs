//! What somebody signed, and whether a key has.

use x509_parser::asn1_rs::{ParseResult, Tag};
use x509_parser::certificate::X509Certificate;
use x509_parser::nom::combinator::consumed;

use crate::der::{bits, value, whole};
use crate::provider;

/// What somebody signed: certificates (RFC 5280 §4.1), revocation lists (§5.1) and responses about certificates (RFC 6960
/// §4.2.1) are built alike.
pub(crate) struct Signed<'a> {
    /// The message, with its tag and length.
    raw: &'a [u8],
    /// The inside of the message.
    pub(crate) data: &'a [u8],
    algorithm: &'a [u8],
    signature: &'a [u8],
}

impl<'a> Signed<'a> {
    /// The next value: a message, its algorithm and its signature, where what follows them is not looked at.
    pub(crate) fn read(input: &'a [u8]) -> ParseResult<'a, Self> {
        let (rest, (raw, data)) = consumed(|input| value(input, Tag::Sequence))(input)?;
        let (rest, algorithm) = value(rest, Tag::Sequence)?;
        let (rest, signature) = bits(rest)?;
        Ok((rest, Self { raw, data, algorithm, signature }))
    }

    /// A certificate or a revocation list.
    pub(crate) fn of(der: &'a [u8]) -> Option<Self> {
        whole(Self::read(whole(value(der, Tag::Sequence))?))
    }

    /// Whether the key has signed it.
    pub(crate) fn is_by(&self, key: PublicKey<'_>) -> bool {
        provider().signature_verification_algorithms.all.iter().any(|known| {
            known.signature_alg_id().as_ref() == self.algorithm
                && known.public_key_alg_id().as_ref() == key.algorithm
                && known.verify_signature(key.key, self.raw, self.signature).is_ok()
        })
    }
}

/// Somebody's public key.
#[derive(Clone, Copy)]
pub(crate) struct PublicKey<'a> {
    algorithm: &'a [u8],
    pub(crate) key: &'a [u8],
}

impl<'a> PublicKey<'a> {
    /// That of a certificate (RFC 5280 §4.1).
    pub(crate) fn of(certificate: &X509Certificate<'a>) -> Option<Self> {
        let info = whole(value(certificate.subject_pki.raw, Tag::Sequence))?;
        let (rest, algorithm) = value(info, Tag::Sequence).ok()?;
        let key = whole(bits(rest))?;
        Some(Self { algorithm, key })
    }
}
