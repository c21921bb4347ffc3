//! Services as written.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use cardea_upstream::{Address, Balance, PoolConfig};

use super::{super::form::As, failover::RawServiceFailover};

/// What requests are forwarded to: one application, at one or more endpoints.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawService {
    /// Its name, by which routes refer to it.
    #[schemars(extend("format" = "cardea-name"))]
    pub(crate) name: String,
    /// Connecting to one of its endpoints. Left out, `timeouts.connect`.
    #[serde(default, with = "As::<Option<Duration>>")]
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1m"))]
    pub(crate) connect_timeout: Option<Duration>,
    /// How an endpoint of a region is chosen. Left out, as `balance` says at the top.
    #[serde(default, with = "As::<Option<Balance>>")]
    pub(crate) balance: Option<Balance>,
    /// When its endpoints get no more requests, and which requests are tried at another.
    #[serde(default)]
    pub(crate) failover: RawServiceFailover,
    /// A template: requests for which it gives the same go to the same endpoint of a region while that is available and
    /// has no more than one and a half times its share of the requests in flight, and those for which a part of it is absent
    /// to any. What clients choose, such as a header, lets them choose endpoints.
    #[serde(default)]
    pub(crate) hash_policy: Option<String>,
    /// Names of throttles that count the requests of all routes that lead to it.
    #[serde(default)]
    pub(crate) throttles: Vec<String>,
    /// TLS to its endpoints; `tls = {}` for the defaults. Left out, requests travel in the clear. Certificates are
    /// always verified.
    #[serde(default)]
    pub(crate) tls: Option<RawServiceTls>,
    /// Its pooled connections.
    #[serde(default)]
    pub(crate) pool: RawPool,
    /// Where it answers; at least one.
    #[schemars(length(min = 1))]
    #[schemars(extend("x-remedy" = "add a table [[service.endpoint]] with its address"))]
    pub(crate) endpoint: Vec<RawEndpoint>,
}

/// TLS to the endpoints of a service.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawServiceTls {
    /// A PEM file with the authorities that the endpoints' certificates must come from. Left out, the system's.
    #[serde(default)]
    pub(crate) ca_file: Option<String>,
    /// The name that their certificates must be for. Left out, the host in the endpoint's address.
    #[serde(default)]
    pub(crate) server_name: Option<String>,
}

/// Pooled connections to each endpoint of a service.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawPool {
    /// Idle connections that are kept for each endpoint, shared out among the workers.
    #[schemars(range(min = 0, max = 100_000))]
    pub(crate) idle_max: usize,
    /// Connections to each endpoint at a time, busy ones included. Left out, as many as there are requests.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) connections_max: Option<usize>,
    /// How long an idle connection is kept. Left out, `timeouts.upstream_keep_alive_idle`.
    #[serde(with = "As::<Option<Duration>>")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1h"))]
    pub(crate) idle_timeout: Option<Duration>,
}

impl Default for RawPool {
    fn default() -> Self {
        let PoolConfig { idle_max, connections_max, .. } = PoolConfig::default();
        Self { idle_max, connections_max, idle_timeout: None }
    }
}

/// One place where a service answers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawEndpoint {
    /// An IP address or a name, and a port (`"10.0.0.1:8080"`, `"orders.internal:8080"`), or a Unix socket
    /// (`"unix:/run/orders.sock"`).
    #[serde(with = "As::<Address>")]
    pub(crate) address: Address,
    /// The region that it stands in.
    #[serde(default)]
    #[schemars(extend("format" = "cardea-name"))]
    pub(crate) region: Option<String>,
    /// Its share of the requests beside that of its neighbours in the region.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) weight: u32,
}

fn one() -> u32 {
    1
}
