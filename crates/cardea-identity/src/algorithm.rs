//! Signature algorithms (RFC 7518 §3.1, RFC 8037 §3.1) and the keys that each requires.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::signature::{self, EcdsaVerificationAlgorithm, RsaParameters, VerificationAlgorithm};

/// An asymmetric signature algorithm that an issuer may be allowed to use.
///
/// `none` and the HMAC family are not supported: a key that verifies must not be able to sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256 and a salt of 32 bytes.
    Ps256,
    /// RSASSA-PSS with SHA-384 and a salt of 48 bytes.
    Ps384,
    /// RSASSA-PSS with SHA-512 and a salt of 64 bytes.
    Ps512,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// ECDSA on P-521 with SHA-512.
    Es512,
    /// Ed25519; named `EdDSA` (RFC 8037) or `Ed25519` (RFC 9864) in tokens and keys.
    EdDsa,
}

/// The type of key that an algorithm requires: `kty`, and the curve if there is one (RFC 7518 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyType {
    Rsa,
    P256,
    P384,
    P521,
    Ed25519,
}

impl Algorithm {
    /// All supported algorithms.
    pub const ALL: [Self; 10] = [
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::Es512,
        Self::EdDsa,
    ];

    /// The algorithms that are allowed by default: those that identity providers sign with by default. The others are
    /// as secure, but must be configured, so that the list shows what is in use.
    pub const DEFAULT: [Self; 4] = [Self::Rs256, Self::Ps256, Self::Es256, Self::EdDsa];

    /// The name in a JWS header (`alg`).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
            Self::EdDsa => "EdDSA",
        }
    }

    /// The algorithm with exactly this name; names are case-sensitive (RFC 7515 §4.1.1).
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        if name == "Ed25519" {
            return Some(Self::EdDsa);
        }
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    pub(crate) const fn key_type(self) -> KeyType {
        match self {
            Self::Rs256 | Self::Rs384 | Self::Rs512 | Self::Ps256 | Self::Ps384 | Self::Ps512 => KeyType::Rsa,
            Self::Es256 => KeyType::P256,
            Self::Es384 => KeyType::P384,
            Self::Es512 => KeyType::P521,
            Self::EdDsa => KeyType::Ed25519,
        }
    }

    /// The length of a signature in bytes, if the algorithm fixes it (RFC 7518 §3.4, RFC 8032 §5.1.6).
    pub(crate) const fn signature_len(self) -> Option<usize> {
        match self.key_type() {
            KeyType::Rsa => None,
            KeyType::P256 | KeyType::Ed25519 => Some(64),
            KeyType::P384 => Some(96),
            KeyType::P521 => Some(132),
        }
    }

    /// The parameters for an RSA key of 2048 to 8192 bits.
    pub(crate) fn rsa(self) -> Option<&'static RsaParameters> {
        Some(match self {
            Self::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            Self::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            Self::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            Self::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
            Self::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
            Self::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
            Self::Es256 | Self::Es384 | Self::Es512 | Self::EdDsa => return None,
        })
    }

    /// The parameters for an elliptic-curve key. Signatures are r‖s (RFC 7518 §3.4), never DER.
    pub(crate) fn curve(self) -> Option<&'static dyn VerificationAlgorithm> {
        const ES256: EcdsaVerificationAlgorithm = signature::ECDSA_P256_SHA256_FIXED;
        const ES384: EcdsaVerificationAlgorithm = signature::ECDSA_P384_SHA384_FIXED;
        const ES512: EcdsaVerificationAlgorithm = signature::ECDSA_P521_SHA512_FIXED;
        match self {
            Self::Es256 => Some(&ES256),
            Self::Es384 => Some(&ES384),
            Self::Es512 => Some(&ES512),
            Self::EdDsa => Some(&signature::ED25519),
            _ => None,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = String;

    /// Parses the exact name of RFC 7518 or RFC 8037. The error lists the supported names.
    fn from_str(name: &str) -> Result<Self, String> {
        Self::from_name(name).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|algorithm| algorithm.name()).collect();
            format!("unknown algorithm; known: {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_nothing_symmetric_or_misspelt_is_known() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.name().parse(), Ok(algorithm));
        }
        for name in [
            "none", "None", "NONE", "nOnE", "", "HS256", "HS384", "HS512", "rs256", "ES256K", "RS1", "Ed448",
            "ES256 ", "RSA-OAEP", "dir",
        ] {
            assert_eq!(Algorithm::from_name(name), None, "{name:?}");
        }
        assert_eq!(Algorithm::from_name("Ed25519"), Some(Algorithm::EdDsa));
    }
}
