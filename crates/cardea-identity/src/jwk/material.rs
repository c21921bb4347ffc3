//! The public members of a JWK (RFC 7518 §6, RFC 8037 §2), checked before the crypto library gets them.

use aws_lc_rs::signature::{ParsedPublicKey, RsaPublicKeyComponents};
use serde_json::{Map, Value};

use super::{Refused, text};
use crate::algorithm::{Algorithm, KeyType};
use crate::jws::decode;

/// The public members of a key.
pub(super) enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    Curve { key_type: KeyType, point: Vec<u8> },
}

impl Material {
    /// Reads the members for `kty`.
    ///
    /// # Errors
    /// Why the key can't be used. Broken or weak keys raise a warning; unknown types don't.
    pub(super) fn parse(kty: &str, jwk: &Map<String, Value>) -> Result<Self, Refused> {
        match kty {
            "RSA" => Self::rsa(bytes(jwk, "n")?, bytes(jwk, "e")?),
            "EC" => {
                let (key_type, size) = match text(jwk, "crv")? {
                    Some("P-256") => (KeyType::P256, 32),
                    Some("P-384") => (KeyType::P384, 48),
                    Some("P-521") => (KeyType::P521, 66),
                    _ => return Err(("curve is not supported", false)),
                };
                let (x, y) = (bytes(jwk, "x")?, bytes(jwk, "y")?);
                // RFC 7518 §6.2.1.2: the full size of a coordinate, including leading zeros.
                if x.len() != size || y.len() != size {
                    return Err(("a coordinate has the wrong length", true));
                }
                // SEC 1 §2.3.3, uncompressed. The library checks whether the point is on the curve.
                let point = [&[4][..], &x, &y].concat();
                Ok(Self::Curve { key_type, point })
            }
            "OKP" => {
                if text(jwk, "crv")? != Some("Ed25519") {
                    return Err(("curve is not supported", false));
                }
                let point = bytes(jwk, "x")?;
                if point.len() != 32 {
                    return Err(("x has the wrong length", true));
                }
                let key_type = KeyType::Ed25519;
                Ok(Self::Curve { key_type, point })
            }
            _ => Err(("kty is not supported", false)),
        }
    }

    fn rsa(n: Vec<u8>, e: Vec<u8>) -> Result<Self, Refused> {
        // RFC 7518 §6.3.1.1 forbids the extra zero octet but reports that it occurs; the number is the same.
        let n = match n.iter().position(|&byte| byte != 0) {
            Some(zeros) => n.get(zeros..).unwrap_or_default().to_vec(),
            None => return Err(("the RSA modulus is zero", true)),
        };
        let leading = n.first().map_or(8, |byte| byte.leading_zeros() as usize);
        let bits = n.len().saturating_mul(8).saturating_sub(leading);
        if bits < 2048 {
            return Err(("an RSA key below 2048 bits", true));
        }
        if bits > 8192 {
            return Err(("an RSA key above 8192 bits", true));
        }
        if n.last().is_none_or(|byte| byte & 1 == 0) {
            return Err(("the RSA modulus is even", true));
        }
        // Odd, at least 3, at most 32 bits: with 1 anything verifies, and a huge exponent wastes CPU time.
        let exponent = (e.len() <= 4).then(|| e.iter().fold(0_u32, |sum, &b| sum << 8 | u32::from(b)));
        if exponent.is_none_or(|e| e < 3 || e & 1 == 0) || e.first() == Some(&0) {
            return Err(("the RSA exponent is not valid", true));
        }
        if has_roca_structure(&n) {
            return Err(("an RSA key with the ROCA weakness (CVE-2017-15361)", true));
        }
        Ok(Self::Rsa { n, e })
    }

    pub(super) const fn key_type(&self) -> KeyType {
        match self {
            Self::Rsa { .. } => KeyType::Rsa,
            Self::Curve { key_type, .. } => *key_type,
        }
    }

    /// The key in the library's form for `algorithm`; `None` if the library refuses it.
    pub(super) fn verifier(&self, algorithm: Algorithm) -> Option<ParsedPublicKey> {
        match self {
            Self::Rsa { n, e } => RsaPublicKeyComponents { n, e }.to_parsed_public_key(algorithm.rsa()?).ok(),
            Self::Curve { point, .. } => ParsedPublicKey::new(algorithm.curve()?, point).ok(),
        }
    }

    /// A value that differs between two keys: the members with their lengths.
    pub(super) fn fingerprint(&self) -> Vec<u8> {
        match self {
            Self::Rsa { n, e } => {
                let len = u32::try_from(n.len()).unwrap_or(u32::MAX).to_be_bytes();
                [&b"RSA"[..], &len, n, e].concat()
            }
            Self::Curve { key_type, point } => [format!("{key_type:?}:").as_bytes(), point].concat(),
        }
    }
}

fn bytes(jwk: &Map<String, Value>, name: &'static str) -> Result<Vec<u8>, Refused> {
    let value = text(jwk, name)?.ok_or(("a public member is missing", true))?;
    let bytes = decode(value.as_bytes()).map_err(|_| ("a member is not base64url", true))?;
    if bytes.is_empty() || bytes.len() > 2048 {
        return Err(("a member has an impossible length", true));
    }
    Ok(bytes)
}

/// Whether the modulus has the structure of a flawed smart-card library (Nemec et al., "The Return of Coppersmith's
/// Attack", 2017, §2): modulo each of many small primes it is in the group that 65537 generates. For a sound key the
/// probability is below 2⁻²⁷.
fn has_roca_structure(n: &[u8]) -> bool {
    const PRIMES: [u32; 17] = [11, 13, 17, 19, 37, 53, 61, 71, 73, 79, 97, 103, 107, 109, 127, 151, 157];
    PRIMES.iter().all(|&prime| {
        let remainder = n.iter().fold(0, |rest, &byte| (rest << 8 | u32::from(byte)) % prime);
        let mut power = 1;
        (0..prime).any(|_| {
            power = power * 65_537 % prime;
            power == remainder
        })
    })
}
