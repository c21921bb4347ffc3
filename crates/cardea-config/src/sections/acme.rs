//! The values of ACME settings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A challenge that proves control of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum ChallengeKind {
    /// A handshake on port 443 (RFC 8737), which a TLS listener answers.
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
    /// A request on port 80 (RFC 8555 §8.3), which every listener without TLS answers.
    #[serde(rename = "http-01")]
    Http01,
}

impl ChallengeKind {
    /// The name in the protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TlsAlpn01 => "tls-alpn-01",
            Self::Http01 => "http-01",
        }
    }
}
