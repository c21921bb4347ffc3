//! Active checks of endpoints, for all services or for one.

use std::time::Duration;

use cardea_upstream::{CheckConfig, CheckMethod, CheckProtocol};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::{
    form::{Statuses, Written},
    section::overridable,
};

overridable! {
    /// Active checks of all endpoints (docs/failover.md). Services may override these keys.
    RawHealthCheck,
    /// The active checks of a service's endpoints. Default: those of `[health_check]`.
    RawServiceHealthCheck in place of "health_check";
    for CheckConfig {
        /// What is done to check an endpoint. An endpoint that fails gets no requests.
        protocol: CheckProtocol => protocol;
        /// The method of the request.
        method: CheckMethod => method;
        /// The path of the request, with its query if any. A redirect is not followed.
        path: String => path;
        /// The `Host` of the request. Default: `server_name` of the service's TLS settings, else the address.
        host: Option<String> => host;
        /// The statuses of a healthy endpoint.
        statuses: Statuses<200> [length(min = 1)] => statuses;
        /// A text that the first 64 KiB of the response's body must contain. Default: the body is not read.
        body_contains: Option<String> [length(min = 1, max = 1_000)] => body_contains;
        /// The time between two checks of an endpoint; it varies by a fifth. A result that contradicts the endpoint's state
        /// is verified after a quarter of it.
        interval: Duration [extend("x-minimum" = "100ms", "x-maximum" = "1h")] => interval;
        /// The time limit of a check, including the connection.
        timeout: Duration [extend("x-minimum" = "10ms", "x-maximum" = "1m")] => timeout;
        /// How many checks in a row an endpoint that is down must pass.
        rise: u32 [range(min = 1, max = 100)] => rise;
        /// How many checks in a row an endpoint that is up must fail. The first check of an endpoint decides alone.
        fall: u32 [range(min = 1, max = 100)] => fall;
    }
}
