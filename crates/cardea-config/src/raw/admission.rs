//! Limits on requests in flight, as written.

use std::time::Duration;

use cardea_guard::Priority;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::{
    form::{As, InFlight},
    model::Admission,
};

/// Limits on the requests in flight (docs/admission.md). Default: no limit.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawAdmission {
    /// The most requests in flight, of all routes to services and to the token endpoint. Others wait. `"adaptive"`:
    /// as many as the times of responses allow. Default: no limit.
    #[serde(with = "As::<Option<InFlight>>")]
    pub(crate) max_in_flight: Option<InFlight>,
    /// The least that an adaptive limit admits. Default: 8.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(crate) floor: Option<u32>,
    /// The most that an adaptive limit admits. Default: 10000.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(crate) ceiling: Option<u32>,
    /// The most requests that wait; others are answered 503. 0: none waits. Default: `max_in_flight`.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(crate) max_queue: Option<u32>,
    /// How long a request waits at most; then it is answered 503. Also the default of services and routes.
    #[serde(with = "As::<Duration>")]
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1m"))]
    pub(crate) max_age: Duration,
    /// The most streams. An exchange is one once it is upgraded, or has taken `stream_after`; then it no longer counts as a
    /// request in flight. Without room, it still does. Default: exchanges count as requests to their end.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(crate) max_streams: Option<u32>,
    /// From this age on, an exchange whose response is under way is a stream.
    #[serde(with = "As::<Duration>")]
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "1h"))]
    pub(crate) stream_after: Duration,
    /// Whether the least important callers are refused during an overload, before they wait, so that others lose nothing.
    pub(crate) shed_callers: bool,
    /// The share of an adaptive limit that a client keeps in any case while other clients lack permits, in percent; with more than that,
    /// it gets only what others leave. A client is a caller or, without one, an address. 100: clients are not told apart.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) client_share: u32,
    /// An expression for the priority of requests whose route sets none: `"token.claims.tier == 'gold' ? 'high' : 'low'"`.
    /// If it can't be evaluated or names no priority, it is `normal`.
    pub(crate) priority: Option<String>,
}

impl Default for RawAdmission {
    fn default() -> Self {
        let Admission { max_age, max_streams, stream_after, shed_callers, client_share, .. } =
            Admission::default();
        Self {
            max_in_flight: None,
            floor: None,
            ceiling: None,
            max_queue: None,
            max_age,
            max_streams,
            stream_after,
            shed_callers,
            client_share,
            priority: None,
        }
    }
}

/// Limits on the requests of a service in flight.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawServiceAdmission {
    /// The most requests in flight, of all routes to the service. `"adaptive"`: as many as the times of responses
    /// allow. Default: no limit of its own.
    #[serde(with = "As::<Option<InFlight>>")]
    pub(crate) max_in_flight: Option<InFlight>,
    /// The least that an adaptive limit admits. Default: 8.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(crate) floor: Option<u32>,
    /// The most that an adaptive limit admits. Default: 10000.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(crate) ceiling: Option<u32>,
    /// The most requests that wait for the service. Default: `max_in_flight`.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(crate) max_queue: Option<u32>,
    /// How long a request waits at most. The shortest one of its limits applies. Default: `admission.max_age`.
    #[serde(with = "As::<Option<Duration>>")]
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1m"))]
    pub(crate) max_age: Option<Duration>,
}

/// Limits on the requests of a route in flight, and their priority.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawRouteAdmission {
    /// The most requests in flight. Default: no limit of its own.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(crate) max_in_flight: Option<u32>,
    /// The most requests of the route that wait. Default: `max_in_flight`.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(crate) max_queue: Option<u32>,
    /// How long a request waits at most. The shortest one of its limits applies. Default: `admission.max_age`.
    #[serde(with = "As::<Option<Duration>>")]
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1m"))]
    pub(crate) max_age: Option<Duration>,
    /// The priority of its requests. Default: `critical` for built-in services, `admission.priority` for others.
    #[serde(with = "As::<Option<Priority>>")]
    pub(crate) priority: Option<Priority>,
}
