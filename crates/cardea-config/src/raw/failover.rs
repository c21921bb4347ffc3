//! Ejection of endpoints and retries, for all services or for one.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::{
    form::{Statuses, Written, ZeroForNone},
    model::Failover,
    section::overridable,
};

overridable! {
    /// Ejection of endpoints, and retries (docs/failover.md). Services may override these keys.
    RawFailover,
    /// The failover settings of a service. Default: those of `[failover]`.
    RawServiceFailover in place of "failover";
    for Failover {
        /// Failed requests in a row that eject an endpoint; 0 disables this. The default exceeds the failures of one bad
        /// request, which is tried at three endpoints, and a failing endpoint reaches it within a second.
        consecutive_failures: ZeroForNone [range(min = 0, max = 1_000)] => health.consecutive_failures;
        /// Percentage of failed requests within `failure_window` that ejects an endpoint; 0 disables this.
        failure_percent: ZeroForNone [range(min = 0, max = 100)] => health.failure_percent;
        /// Minimum number of requests within `failure_window` for `failure_percent` to apply.
        failure_requests_min: u32 [range(min = 1, max = 1_000_000)] => health.requests_min;
        /// The period for `failure_percent`.
        failure_window: Duration [extend("x-minimum" = "1s", "x-maximum" = "10m")] => health.window;
        /// Statuses that count as failures of an endpoint. The default lists the statuses of servers that are unavailable;
        /// 500 is excluded, because a single bad request often causes it.
        failure_statuses: Statuses => health.statuses;
        /// Duration of the first ejection. Each further one within a minute lasts twice as long; all vary by a fifth.
        ejection_time: Duration [extend("x-minimum" = "10ms", "x-maximum" = "1h")] => health.ejection_time;
        /// Maximum duration of an ejection. Then one request is sent as a probe, so a recovered endpoint waits at most this
        /// long.
        ejection_time_max: Duration [extend("x-minimum" = "10ms", "x-maximum" = "1h")] => health.ejection_time_max;
        /// Maximum percentage of a service's endpoints that are ejected at a time for failures that a request can cause: at
        /// least one unless it is 0, and never the last one. Failed connections do not count.
        ejected_percent_max: u32 [range(min = 0, max = 100)] => health.ejected_percent_max;
        /// If a smaller percentage of the endpoints is healthy, requests go to all of them, so that the healthy ones are not
        /// overloaded.
        panic_percent: u32 [range(min = 0, max = 100)] => health.panic_percent;
        /// The period over which the share of a restored endpoint, or of one added by a reload, grows to the full one.
        slow_start: Duration [extend("x-maximum" = "1h")] => health.slow_start;
        /// Requests that the nearest region can't take are spread over the regions whose round trip exceeds that of the nearest
        /// of them by at most this.
        region_sensitivity: Duration [extend("x-maximum" = "10s")] => spill.sensitivity;
        /// Percentage of its capacity up to which a region is used while others have room. It applies to regions in which each
        /// endpoint has a `capacity`.
        region_band_percent: u32 [range(min = 1, max = 100)] => spill.band_percent;
        /// Maximum number of attempts for a request, including the first; 1 disables retries.
        attempts_max: u32 [range(min = 1, max = 8)] => retry.attempts_max;
        /// An idempotent request with a response of these statuses is retried at another endpoint. If that is not possible,
        /// the response is forwarded.
        retry_statuses: Statuses => retry.statuses;
        /// Maximum time from the end of the request to the head of the response for one attempt; then an idempotent request
        /// is retried at another endpoint. Default: none; `timeouts.response_head` applies, without a retry.
        try_timeout: Option<Duration> [extend("x-minimum" = "10ms", "x-maximum" = "1h")] => retry.try_timeout;
        /// Delay before the third attempt, minus up to a half at random; doubled before each further one.
        retry_wait: Duration [extend("x-maximum" = "1s")] => retry.back_off;
        /// Retries added to a service's budget per hundred requests. The budget keeps retries from making an outage worse.
        retry_percent: u32 [range(min = 0, max = 100)] => retry.budget.percent;
        /// Additional retries per second, for services with few requests.
        retries_per_second: u32 [range(min = 0, max = 10_000)] => retry.budget.per_second;
        /// Maximum and initial number of retries in the budget; 0 disables retries.
        retries_saved_max: u32 [range(min = 0, max = 100_000)] => retry.budget.capacity;
    }
}
