//! What the gateway must be able to do to be called ready.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What makes the gateway unready (`/ready` answers 503, so that load balancers send it nothing), and what is only
/// reported there and in the metrics. It is always unready while it drains, while its clock is stale, and while its
/// authorization server cannot read its database.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Readiness {
    /// The issuers, by name, whose keys must be usable. Left out, an issuer makes the gateway unready only while its keys
    /// have never been known; `[]`: none ever does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuers: Option<Vec<String>>,
    /// Changes of clients and keys can be stored. While the disk is full or the database is locked, nobody can be disabled,
    /// but all else works: requests are authorized and tokens are issued.
    pub administration: Need,
    /// Every configured certificate can be used: it is there, belongs to its key, and has not expired. Handshakes for the
    /// hosts of one that can't be used fail; all others go on.
    pub certificates: Need,
}

/// Whether something must work for the gateway to be ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Need {
    /// It is reported, and the gateway is ready without.
    #[default]
    Reported,
    /// The gateway is not ready without.
    Required,
}
