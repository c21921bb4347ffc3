//! The conditions of readiness.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which conditions make the gateway unready (`/ready` answers 503, so that load balancers send it nothing), and which
/// are only reported there and in the metrics. The gateway is always unready while it drains, while its clock is stale,
/// and while its authorization server cannot read its database.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Readiness {
    /// The names of the issuers whose keys must be usable. By default, an issuer makes the gateway unready only until
    /// its keys were first fetched; with `[]`, none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuers: Option<Vec<String>>,
    /// Whether changes of clients and keys can be stored. While the disk is full or the database is locked, no client
    /// can be disabled, but everything else works: requests are authorized and tokens are issued.
    pub administration: Need,
    /// Whether every configured certificate can be used: it exists, belongs to its key, and has not expired. Only
    /// handshakes for the hosts of an unusable certificate fail.
    pub certificates: Need,
}

/// Whether a condition is required for readiness.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Need {
    /// It is only reported.
    #[default]
    Reported,
    /// The gateway is unready without it.
    Required,
}
