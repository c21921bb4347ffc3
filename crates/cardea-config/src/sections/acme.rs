//! The words of certificates that come by ACME.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the authority is shown that a host is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum ChallengeKind {
    /// By a handshake on port 443 (RFC 8737), which a TLS listener answers.
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
    /// By a request on port 80 (RFC 8555 §8.3), which every listener without TLS answers.
    #[serde(rename = "http-01")]
    Http01,
}

impl ChallengeKind {
    /// Its name, as the authority has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TlsAlpn01 => "tls-alpn-01",
            Self::Http01 => "http-01",
        }
    }
}
