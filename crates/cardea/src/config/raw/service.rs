//! Services as written.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::text::{Address, OptionalDurationText};

/// What requests are forwarded to: one application, at one or more endpoints.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct RawService {
    /// Its name, by which routes refer to it.
    #[schemars(extend("format" = "cardea-name"))]
    pub(in crate::config) name: String,
    /// Connecting to one of its endpoints. Left out, `timeouts.connect`.
    #[serde(default, with = "OptionalDurationText")]
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1m"))]
    pub(in crate::config) connect_timeout: Option<Duration>,
    /// A template: requests for which it gives the same go to the same endpoint of a region while that is available, and
    /// those for which a part of it is absent to any. What clients choose, such as a header, lets them choose endpoints.
    #[serde(default)]
    pub(in crate::config) hash_policy: Option<String>,
    /// TLS to its endpoints; `tls = {}` for the defaults. Left out, requests travel in the clear. Certificates are
    /// always verified.
    #[serde(default)]
    pub(in crate::config) tls: Option<RawServiceTls>,
    /// Its pooled connections.
    #[serde(default)]
    pub(in crate::config) pool: RawPool,
    /// Where it answers; at least one.
    #[schemars(length(min = 1))]
    #[schemars(extend("x-remedy" = "add a table [[service.endpoint]] with its address"))]
    pub(in crate::config) endpoint: Vec<RawEndpoint>,
}

/// TLS to the endpoints of a service.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct RawServiceTls {
    /// A PEM file with the authorities that the endpoints' certificates must come from. Left out, the system's.
    #[serde(default)]
    pub(in crate::config) ca_file: Option<String>,
    /// The name that their certificates must be for. Left out, the host in the endpoint's address.
    #[serde(default)]
    pub(in crate::config) server_name: Option<String>,
}

/// Pooled connections to each endpoint of a service.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct RawPool {
    /// Idle connections that are kept for each endpoint, shared out among the workers.
    #[schemars(range(min = 0, max = 100_000))]
    pub(in crate::config) idle_max: u32,
    /// Connections to each endpoint at a time, busy ones included. Left out, as many as there are requests.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(in crate::config) connections_max: Option<u32>,
    /// How long an idle connection is kept. Left out, `timeouts.upstream_keep_alive_idle`.
    #[serde(with = "OptionalDurationText")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1h"))]
    pub(in crate::config) idle_timeout: Option<Duration>,
}

impl Default for RawPool {
    fn default() -> Self {
        Self { idle_max: 1_024, connections_max: None, idle_timeout: None }
    }
}

/// One place where a service answers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct RawEndpoint {
    /// An IP address or a name, and a port (`"10.0.0.1:8080"`, `"orders.internal:8080"`), or a Unix socket
    /// (`"unix:/run/orders.sock"`).
    pub(in crate::config) address: Address,
    /// The region that it stands in.
    #[serde(default)]
    #[schemars(extend("format" = "cardea-name"))]
    pub(in crate::config) region: Option<String>,
    /// Its share of the requests beside that of its neighbours in the region.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub(in crate::config) weight: u32,
}

fn one() -> u32 {
    1
}
