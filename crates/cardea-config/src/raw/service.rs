//! Services as written.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use cardea_gateway::model::Protocol;
use cardea_upstream::{Balance, DnsName, PoolConfig, Position, Target};

use super::{
    super::{
        effect::Effect,
        form::{As, Srv},
    },
    admission::RawServiceAdmission,
    failover::RawServiceFailover,
    health_check::RawServiceHealthCheck,
};

/// A service that requests are forwarded to: one application, at one or more endpoints.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawService {
    /// The name by which routes refer to it.
    #[schemars(extend("format" = "cardea-name"))]
    pub(crate) name: String,
    /// The protocols by which its endpoints are reached. Services of gRPC need `http2`, or `auto` with `tls`. WebSockets use
    /// HTTP/1.1, so a service with `http2` has none ([http2.md](http2.md)). Default: `http1`.
    #[serde(default, with = "As::<Option<Protocol>>")]
    #[schemars(extend("x-reload" = Effect::NewConnections))]
    pub(crate) protocol: Option<Protocol>,
    /// The timeout for connecting to one of its endpoints. Default: `timeouts.connect`.
    #[serde(default, with = "As::<Option<Duration>>")]
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1m"))]
    pub(crate) connect_timeout: Option<Duration>,
    /// How an endpoint of a region is chosen. Default: the top-level `balance`.
    #[serde(default, with = "As::<Option<Balance>>")]
    pub(crate) balance: Option<Balance>,
    /// Ejection of its endpoints, and retries.
    #[serde(default)]
    pub(crate) failover: RawServiceFailover,
    /// Active checks of its endpoints.
    #[serde(default)]
    pub(crate) health_check: RawServiceHealthCheck,
    /// What each endpoint gets at a time at most. An endpoint that has reached a limit is passed over; if all have, requests
    /// get 503. `pool.connections_max` limits its connections.
    #[serde(default)]
    pub(crate) circuit_breaker: RawCircuitBreaker,
    /// A template. Requests for which it has the same value go to the same endpoint of a region, while that is available
    /// and has no more than one and a half times its share of the requests in flight; requests for which a part of it is
    /// absent go to any. A value that clients choose, such as a header, lets them choose endpoints.
    #[serde(default)]
    pub(crate) hash_policy: Option<String>,
    /// Limits on its requests in flight.
    #[serde(default)]
    pub(crate) admission: RawServiceAdmission,
    /// Names of throttles for the requests of all routes to it.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(crate) throttles: Vec<String>,
    /// The TLS settings of its endpoints; `tls = {}` for the defaults. Default: no TLS. Certificates are
    /// always verified.
    #[serde(default)]
    #[schemars(extend("x-reload" = Effect::NewConnections))]
    pub(crate) tls: Option<RawServiceTls>,
    /// Its pooled connections.
    #[serde(default)]
    pub(crate) pool: RawPool,
    /// Its endpoints; at least one.
    #[schemars(length(min = 1))]
    #[schemars(extend("x-remedy" = "add a table [[service.endpoint]] with its address"))]
    pub(crate) endpoint: Vec<RawEndpoint>,
}

/// What each endpoint of a service gets at a time at most, from this gateway.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawCircuitBreaker {
    /// The most requests in flight, including WebSockets and requests that wait for a connection. Default: no limit.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) requests_max: Option<NonZeroU32>,
    /// The most connections that are being established, each for a request that waits. Default: no limit.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) pending_max: Option<NonZeroU32>,
}

/// The TLS settings of a service's endpoints.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawServiceTls {
    /// A PEM file with the CA certificates for the endpoints' certificates. Default: the system's.
    #[serde(default)]
    pub(crate) ca_file: Option<String>,
    /// The name that the endpoints' certificates must have. Default: the host of the endpoint's address.
    #[serde(default)]
    pub(crate) server_name: Option<String>,
}

/// Pooled connections to each endpoint of a service.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawPool {
    /// The most idle connections per endpoint, divided among the workers.
    #[schemars(range(min = 0, max = 100_000))]
    pub(crate) idle_max: usize,
    /// The most connections per endpoint, including busy ones. Default: no limit.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) connections_max: Option<usize>,
    /// The most requests over one connection. Default: no limit but that of the endpoint (`Keep-Alive: max=`).
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(crate) requests_max: Option<NonZeroU32>,
    /// A connection that is older carries no further request. Varies by a fifth. Default: no limit.
    #[serde(with = "As::<Option<Duration>>")]
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "30d"))]
    pub(crate) age_max: Option<Duration>,
    /// The most requests at a time on a connection of HTTP/2, where the endpoint allows as many. Further requests use further
    /// connections.
    #[schemars(range(min = 1, max = 10_000))]
    #[schemars(extend("x-reload" = Effect::NewConnections))]
    pub(crate) streams_max: u32,
    /// How long an idle connection is kept, unless the endpoint offers less (`Keep-Alive: timeout=`). Default:
    /// `timeouts.upstream_keep_alive_idle`.
    #[serde(with = "As::<Option<Duration>>")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1h"))]
    pub(crate) idle_timeout: Option<Duration>,
}

impl Default for RawPool {
    fn default() -> Self {
        let PoolConfig { idle_max, connections_max, streams_max, age_max, requests_max, .. } =
            PoolConfig::default();
        Self { idle_max, connections_max, streams_max, requests_max, age_max, idle_timeout: None }
    }
}

/// An endpoint of a service, or those that a name stands for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawEndpoint {
    /// An IP address or a name, and a port (`"10.0.0.1:8080"`, `"orders.internal:8080"`), or a Unix socket
    /// (`"unix:/run/orders.sock"`). Each address of a name is an endpoint ([discovery.md](discovery.md)).
    #[serde(default, with = "As::<Option<Target>>")]
    pub(crate) address: Option<Target>,
    /// Instead of an address: the name of SRV records (`"_http._tcp.example.com"`). They name hosts and ports with
    /// priorities and weights; each address of each host is an endpoint.
    #[serde(default, with = "As::<Option<Srv>>")]
    pub(crate) srv: Option<Arc<DnsName>>,
    /// The region of the endpoint.
    #[serde(default)]
    #[schemars(extend("format" = "cardea-name"))]
    pub(crate) region: Option<String>,
    /// Its share of the requests, relative to the other endpoints of the region. Each address of a name has it.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) weight: u32,
    /// How many requests of this gateway the endpoint serves at a time without making them wait. If each endpoint of a region
    /// has one, the region is used up to `failover.region_band_percent` of their sum while other regions have room.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) capacity: Option<NonZeroU32>,
}

/// The position of a region: the gateway's own, or one of endpoints. The gateway measures the round trip to each; until it has
/// enough measurements it uses the distance. [regions.md](regions.md) says more.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRegionPosition {
    /// The name of the region, as in `region`.
    #[schemars(extend("format" = "cardea-name"))]
    pub(crate) name: String,
    /// Latitude and longitude in decimal degrees (`"53.35, -6.26"`); south and west are negative.
    #[serde(with = "As::<Position>")]
    pub(crate) position: Position,
}

fn one() -> u32 {
    1
}
