//! The words for what is made of client certificates.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a handshake asks for a certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ClientCertificateMode {
    /// It does not.
    #[default]
    #[schemars(extend("x-opens" = true))]
    Off,
    /// It does, and lets in clients without one.
    #[schemars(extend("x-opens" = true))]
    Request,
    /// It does, and lets in nobody without one.
    Require,
}

/// Whether a route needs a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ClientCertificateNeed {
    /// There must be one.
    Required,
    /// There may be one.
    #[schemars(extend("x-opens" = true))]
    Optional,
}
