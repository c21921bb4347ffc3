//! Signing keys: generating, loading and signing, and their public halves as JWKs.

use std::fmt;

use aws_lc_rs::{
    encoding::{AsDer, Pkcs8V1Der},
    rand::SystemRandom,
    rsa::{KeyPair as RsaKeyPair, KeySize},
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    },
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Serialize;
use zeroize::Zeroizing;

use cardea_store::SigningAlgorithm;

use crate::{IssuerError, secret::sha256};

/// A private key that is ready to sign.
pub(crate) struct SigningKey {
    algorithm: SigningAlgorithm,
    pair: Pair,
    jwk: Jwk,
    /// The encoded protected header of every token signed with it.
    header: String,
}

enum Pair {
    Es256(EcdsaKeyPair),
    Rs256(RsaKeyPair),
    EdDsa(Ed25519KeyPair),
}

/// A public key in the form of RFC 7517.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Jwk {
    kid: String,
    alg: &'static str,
    r#use: &'static str,
    #[serde(flatten)]
    public: Public,
}

/// The members that describe the key (RFC 7518 §6, RFC 8037 §2), in the order of RFC 7638 §3.3.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
enum Public {
    Elliptic { crv: &'static str, kty: &'static str, x: String, y: String },
    Rsa { e: String, kty: &'static str, n: String },
    Edwards { crv: &'static str, kty: &'static str, x: String },
}

#[derive(Serialize)]
struct Header<'a> {
    alg: &'static str,
    kid: &'a str,
    typ: &'static str,
}

impl SigningKey {
    /// Generates a key and returns its PKCS #8 for the store. An RSA key takes a tenth of a second or more: not for the
    /// runtime's threads.
    ///
    /// # Errors
    /// [`IssuerError::Crypto`].
    pub(crate) fn generate(algorithm: SigningAlgorithm) -> Result<(Self, Zeroizing<Vec<u8>>), IssuerError> {
        let failed = || IssuerError::Crypto("no key could be generated");
        let random = SystemRandom::new();
        let pkcs8 = match algorithm {
            SigningAlgorithm::Es256 => {
                EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)
                    .map_err(|_| failed())?
                    .as_ref()
                    .to_vec()
            }
            SigningAlgorithm::EdDsa => {
                Ed25519KeyPair::generate_pkcs8(&random).map_err(|_| failed())?.as_ref().to_vec()
            }
            SigningAlgorithm::Rs256 => {
                let pair = RsaKeyPair::generate(KeySize::Rsa2048).map_err(|_| failed())?;
                AsDer::<Pkcs8V1Der<'_>>::as_der(&pair).map_err(|_| failed())?.as_ref().to_vec()
            }
        };
        let pkcs8 = Zeroizing::new(pkcs8);
        let key = Self::from_pkcs8(algorithm, &pkcs8).ok_or_else(failed)?;
        Ok((key, pkcs8))
    }

    /// Loads a key; `None` if the bytes are not a key of that algorithm.
    pub(crate) fn from_pkcs8(algorithm: SigningAlgorithm, pkcs8: &[u8]) -> Option<Self> {
        let (pair, public) = match algorithm {
            SigningAlgorithm::Es256 => {
                let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8).ok()?;
                // SEC 1 §2.3.3: 0x04, then both coordinates at full width.
                let [4, point @ ..] = pair.public_key().as_ref() else { return None };
                let (x, y) = point.split_at_checked(32).filter(|(_, y)| y.len() == 32)?;
                let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
                (Pair::Es256(pair), Public::Elliptic { crv: "P-256", kty: "EC", x, y })
            }
            SigningAlgorithm::Rs256 => {
                let pair = RsaKeyPair::from_pkcs8(pkcs8).ok()?;
                let (n, e) = rsa_public(pair.public_key().as_ref())?;
                let (e, n) = (URL_SAFE_NO_PAD.encode(e), URL_SAFE_NO_PAD.encode(n));
                (Pair::Rs256(pair), Public::Rsa { e, kty: "RSA", n })
            }
            SigningAlgorithm::EdDsa => {
                let pair = Ed25519KeyPair::from_pkcs8(pkcs8).ok()?;
                let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
                (Pair::EdDsa(pair), Public::Edwards { crv: "Ed25519", kty: "OKP", x })
            }
        };
        // RFC 7638 §3: the hash of the required members, sorted by name, without white space.
        let kid = URL_SAFE_NO_PAD.encode(sha256(serde_json::to_string(&public).ok()?.as_bytes()));
        let header = Header { alg: algorithm.as_str(), kid: &kid, typ: "at+jwt" };
        let header = URL_SAFE_NO_PAD.encode(serde_json::to_string(&header).ok()?);
        let jwk = Jwk { kid, alg: algorithm.as_str(), r#use: "sig", public };
        Some(Self { algorithm, pair, jwk, header })
    }

    /// The key's id: its RFC 7638 thumbprint.
    pub(crate) fn kid(&self) -> &str {
        &self.jwk.kid
    }

    pub(crate) fn algorithm(&self) -> SigningAlgorithm {
        self.algorithm
    }

    pub(crate) fn jwk(&self) -> &Jwk {
        &self.jwk
    }

    /// The base64url-encoded protected header of tokens signed with this key.
    pub(crate) fn header(&self) -> &str {
        &self.header
    }

    /// Signs as RFC 7518 §3.3 and §3.4 and RFC 8037 §3.1 specify. RSA takes most of a millisecond: not for the
    /// runtime's threads.
    ///
    /// # Errors
    /// [`IssuerError::Crypto`].
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, IssuerError> {
        let failed = |_| IssuerError::Crypto("signing failed");
        let random = SystemRandom::new();
        Ok(match &self.pair {
            Pair::Es256(pair) => pair.sign(&random, message).map_err(failed)?.as_ref().to_vec(),
            Pair::EdDsa(pair) => pair.try_sign(message).map_err(failed)?.as_ref().to_vec(),
            Pair::Rs256(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).map_err(failed)?;
                signature
            }
        })
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({} {}, redacted)", self.algorithm, self.kid())
    }
}

/// Modulus and exponent of an `RSAPublicKey` (RFC 8017 §A.1.1) as the crypto library encodes it, without sign octets.
fn rsa_public(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (sequence, rest) = der_value(0x30, der)?;
    let (modulus, exponent) = der_value(0x02, sequence)?;
    let (exponent, end) = der_value(0x02, exponent)?;
    let unsigned = |integer: &'_ [u8]| integer.iter().position(|byte| *byte != 0);
    if !rest.is_empty() || !end.is_empty() {
        return None;
    }
    Some((&modulus[unsigned(modulus)?..], &exponent[unsigned(exponent)?..]))
}

/// The contents of the leading DER value, which must have that tag, and the bytes that follow it.
fn der_value(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[found, length], rest) = der.split_first_chunk::<2>()?;
    if found != tag {
        return None;
    }
    let (length, rest) = match length {
        0..=0x7F => (usize::from(length), rest),
        0x81 => rest.split_first().map(|(length, rest)| (usize::from(*length), rest))?,
        0x82 => rest
            .split_first_chunk::<2>()
            .map(|(length, rest)| (usize::from(u16::from_be_bytes(*length)), rest))?,
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
        UnparsedPublicKey,
    };
    use serde_json::{Value, json};

    use super::*;

    const ALGORITHMS: [SigningAlgorithm; 3] =
        [SigningAlgorithm::Es256, SigningAlgorithm::Rs256, SigningAlgorithm::EdDsa];

    fn bytes(jwk: &Value, member: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(jwk[member].as_str().unwrap()).unwrap()
    }

    #[test]
    fn what_a_key_signs_verifies_with_nothing_but_its_jwk() {
        for algorithm in ALGORITHMS {
            let (key, _) = SigningKey::generate(algorithm).unwrap();
            let signature = key.sign(b"message").unwrap();
            let jwk = serde_json::to_value(key.jwk()).unwrap();
            assert_eq!(jwk["alg"], algorithm.as_str());
            assert_eq!(jwk["use"], "sig");
            let verify = |message: &[u8]| match algorithm {
                SigningAlgorithm::Es256 => {
                    assert_eq!((&jwk["kty"], &jwk["crv"]), (&json!("EC"), &json!("P-256")));
                    let point = [vec![4], bytes(&jwk, "x"), bytes(&jwk, "y")].concat();
                    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, &signature)
                }
                SigningAlgorithm::Rs256 => {
                    let public = RsaPublicKeyComponents { n: bytes(&jwk, "n"), e: bytes(&jwk, "e") };
                    assert_eq!((public.n.len(), public.e.as_slice()), (256, &[1, 0, 1][..]));
                    public.verify(&RSA_PKCS1_2048_8192_SHA256, message, &signature)
                }
                SigningAlgorithm::EdDsa => {
                    UnparsedPublicKey::new(&ED25519, bytes(&jwk, "x")).verify(message, &signature)
                }
            };
            assert!(verify(b"message").is_ok(), "{algorithm}");
            assert!(verify(b"massage").is_err(), "{algorithm}");
        }
    }

    #[test]
    fn a_key_comes_back_from_its_pkcs8_and_not_as_another_algorithm() {
        for algorithm in ALGORITHMS {
            let (key, pkcs8) = SigningKey::generate(algorithm).unwrap();
            for loaded in ALGORITHMS {
                let again = SigningKey::from_pkcs8(loaded, &pkcs8);
                assert_eq!(
                    again.map(|again| again.kid() == key.kid()),
                    (loaded == algorithm).then_some(true)
                );
            }
            assert!(SigningKey::from_pkcs8(algorithm, &pkcs8[..pkcs8.len() - 1]).is_none());
        }
    }

    #[test]
    fn the_key_id_is_the_thumbprint() {
        // The example of RFC 7638 §3.1.
        let n = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
        let public = Public::Rsa { e: "AQAB".into(), kty: "RSA", n: n.into() };
        let thumbprint = URL_SAFE_NO_PAD.encode(sha256(serde_json::to_string(&public).unwrap().as_bytes()));
        assert_eq!(thumbprint, "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
    }

    #[test]
    fn debug_shows_no_private_key() {
        let (key, _) = SigningKey::generate(SigningAlgorithm::EdDsa).unwrap();
        assert_eq!(format!("{key:?}"), format!("SigningKey(EdDSA {}, redacted)", key.kid()));
    }

    #[test]
    fn der_that_ends_early_is_noticed() {
        assert_eq!(rsa_public(&[0x30, 6, 2, 1, 5, 2, 1, 3]), Some((&[5][..], &[3][..])));
        assert_eq!(rsa_public(&[0x30, 7, 2, 2, 0, 5, 2, 1, 3]), Some((&[5][..], &[3][..])));
        for wrong in
            [&[0x30, 7, 2, 1, 5, 2, 1, 3][..], &[0x31, 6, 2, 1, 5, 2, 1, 3], &[0x30, 0x84], &[0x30], &[]]
        {
            assert_eq!(rsa_public(wrong), None);
        }
    }
}
