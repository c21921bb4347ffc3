//! The values of client certificate settings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a handshake requests a certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ClientCertificateMode {
    /// Requests no certificate.
    #[default]
    #[schemars(extend("x-opens" = true))]
    Off,
    /// Requests a certificate and accepts clients without one.
    #[schemars(extend("x-opens" = true))]
    Request,
    /// Requests a certificate and refuses clients without one.
    Require,
}

/// Whether a route requires a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ClientCertificateNeed {
    /// A certificate is required.
    Required,
    /// A certificate is optional.
    #[schemars(extend("x-opens" = true))]
    Optional,
}
