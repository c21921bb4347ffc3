//! The words of certificates that come by ACME.

use cardea_tls::acme::RequestedKey;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the authority is shown that a host is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) enum ChallengeKind {
    /// By a handshake on port 443 (RFC 8737), which a TLS listener answers.
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
    /// By a request on port 80 (RFC 8555 §8.3), which every listener without TLS answers.
    #[serde(rename = "http-01")]
    Http01,
}

impl ChallengeKind {
    /// Its name, as the authority has it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::TlsAlpn01 => "tls-alpn-01",
            Self::Http01 => "http-01",
        }
    }
}

/// The key of a certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) enum CertificateKey {
    /// ECDSA over P-256: small and fast, and every client knows it.
    #[default]
    #[serde(rename = "ecdsa-p256")]
    EcdsaP256,
    /// ECDSA over P-384.
    #[serde(rename = "ecdsa-p384")]
    EcdsaP384,
    /// RSA of 2048 bits, for clients that know nothing else.
    #[serde(rename = "rsa-2048")]
    Rsa2048,
}

impl CertificateKey {
    /// Its name in the configuration.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::EcdsaP256 => "ecdsa-p256",
            Self::EcdsaP384 => "ecdsa-p384",
            Self::Rsa2048 => "rsa-2048",
        }
    }

    /// The same for the library.
    pub(crate) fn requested(self) -> RequestedKey {
        match self {
            Self::EcdsaP256 => RequestedKey::EcdsaP256,
            Self::EcdsaP384 => RequestedKey::EcdsaP384,
            Self::Rsa2048 => RequestedKey::Rsa2048,
        }
    }
}
