//! Ejection of endpoints and retries, for all services or for one.

use std::{num::NonZeroU32, time::Duration};

use cardea_upstream::StatusSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::{
    form::{As, Statuses, ZeroForNone},
    model::{Failover, General},
    section::{overrides, section},
};

section! {
    /// Ejection of endpoints, and retries (docs/failover.md). Services may override these keys.
    RawFailover for General {
        /// Failed requests in a row that eject an endpoint; 0 disables this. The default exceeds the failures of one bad
        /// request, which is tried at three endpoints, and a failing endpoint reaches it within a second.
        #[serde(with = "As::<ZeroForNone>")]
        #[schemars(range(min = 0, max = 1_000))]
        consecutive_failures: Option<NonZeroU32> => failover.health.consecutive_failures;
        /// Percentage of failed requests within `failure_window` that ejects an endpoint; 0 disables this.
        #[serde(with = "As::<ZeroForNone>")]
        #[schemars(range(min = 0, max = 100))]
        failure_percent: Option<NonZeroU32> => failover.health.failure_percent;
        /// Minimum number of requests within `failure_window` for `failure_percent` to apply.
        #[schemars(range(min = 1, max = 1_000_000))]
        failure_requests_min: u32 => failover.health.requests_min;
        /// The period for `failure_percent`.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "1s", "x-maximum" = "10m"))]
        failure_window: Duration => failover.health.window;
        /// Statuses that count as failures of an endpoint. The default lists the statuses of servers that are unavailable;
        /// 500 is excluded, because a single bad request often causes it.
        #[serde(with = "As::<Statuses>")]
        failure_statuses: StatusSet => failover.health.statuses;
        /// Duration of the first ejection. Each further one within a minute lasts twice as long; all vary by a fifth.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
        ejection_time: Duration => failover.health.ejection_time;
        /// Maximum duration of an ejection. Then one request is sent as a probe, so a recovered endpoint waits at most this
        /// long.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
        ejection_time_max: Duration => failover.health.ejection_time_max;
        /// Maximum percentage of a service's endpoints that are ejected at a time for failures that a request can cause: at
        /// least one unless it is 0, and never the last one. Failed connections do not count.
        #[schemars(range(min = 0, max = 100))]
        ejected_percent_max: u32 => failover.health.ejected_percent_max;
        /// If a smaller percentage of the endpoints is healthy, requests go to all of them, so that the healthy ones are not
        /// overloaded.
        #[schemars(range(min = 0, max = 100))]
        panic_percent: u32 => failover.health.panic_percent;
        /// The period over which the share of a restored endpoint, or of one added by a reload, grows to the full one.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-maximum" = "1h"))]
        slow_start: Duration => failover.health.slow_start;
        /// Maximum number of attempts for a request, including the first; 1 disables retries.
        #[schemars(range(min = 1, max = 8))]
        attempts_max: u32 => failover.retry.attempts_max;
        /// An idempotent request with a response of these statuses is retried at another endpoint. If that is not possible,
        /// the response is forwarded.
        #[serde(with = "As::<Statuses>")]
        retry_statuses: StatusSet => failover.retry.statuses;
        /// Maximum time from the end of the request to the head of the response for one attempt; then an idempotent request
        /// is retried at another endpoint. Default: none; `timeouts.response_head` applies, without a retry.
        #[serde(with = "As::<Option<Duration>>")]
        #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
        try_timeout: Option<Duration> => failover.retry.try_timeout;
        /// Delay before the third attempt, minus up to a half at random; doubled before each further one.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-maximum" = "1s"))]
        retry_wait: Duration => failover.retry.back_off;
        /// Retries added to a service's budget per hundred requests. The budget keeps retries from making an outage worse.
        #[schemars(range(min = 0, max = 100))]
        retry_percent: u32 => failover.retry.budget.percent;
        /// Additional retries per second, for services with few requests.
        #[schemars(range(min = 0, max = 10_000))]
        retries_per_second: u32 => failover.retry.budget.per_second;
        /// Maximum and initial number of retries in the budget; 0 disables retries.
        #[schemars(range(min = 0, max = 100_000))]
        retries_saved_max: u32 => failover.retry.budget.capacity;
    }
}

overrides! {
    /// The failover settings of a service. Default: those of `[failover]`.
    RawServiceFailover of Failover {
        /// Overrides `failover.consecutive_failures`.
        #[serde(with = "As::<Option<ZeroForNone>>")]
        #[schemars(range(min = 0, max = 1_000))]
        consecutive_failures: Option<NonZeroU32> => health.consecutive_failures;
        /// Overrides `failover.failure_percent`.
        #[serde(with = "As::<Option<ZeroForNone>>")]
        #[schemars(range(min = 0, max = 100))]
        failure_percent: Option<NonZeroU32> => health.failure_percent;
        /// Overrides `failover.failure_requests_min`.
        #[schemars(range(min = 1, max = 1_000_000))]
        failure_requests_min: u32 => health.requests_min;
        /// Overrides `failover.failure_window`.
        #[serde(with = "As::<Option<Duration>>")]
        #[schemars(extend("x-minimum" = "1s", "x-maximum" = "10m"))]
        failure_window: Duration => health.window;
        /// Overrides `failover.failure_statuses`.
        #[serde(with = "As::<Option<Statuses>>")]
        failure_statuses: StatusSet => health.statuses;
        /// Overrides `failover.ejection_time`.
        #[serde(with = "As::<Option<Duration>>")]
        #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
        ejection_time: Duration => health.ejection_time;
        /// Overrides `failover.ejection_time_max`.
        #[serde(with = "As::<Option<Duration>>")]
        #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
        ejection_time_max: Duration => health.ejection_time_max;
        /// Overrides `failover.ejected_percent_max`.
        #[schemars(range(min = 0, max = 100))]
        ejected_percent_max: u32 => health.ejected_percent_max;
        /// Overrides `failover.panic_percent`.
        #[schemars(range(min = 0, max = 100))]
        panic_percent: u32 => health.panic_percent;
        /// Overrides `failover.slow_start`.
        #[serde(with = "As::<Option<Duration>>")]
        #[schemars(extend("x-maximum" = "1h"))]
        slow_start: Duration => health.slow_start;
        /// Overrides `failover.attempts_max`.
        #[schemars(range(min = 1, max = 8))]
        attempts_max: u32 => retry.attempts_max;
        /// Overrides `failover.retry_statuses`.
        #[serde(with = "As::<Option<Statuses>>")]
        retry_statuses: StatusSet => retry.statuses;
        /// Overrides `failover.try_timeout`.
        #[serde(with = "As::<Option<Duration>>")]
        #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
        try_timeout: Duration => retry.try_timeout;
        /// Overrides `failover.retry_wait`.
        #[serde(with = "As::<Option<Duration>>")]
        #[schemars(extend("x-maximum" = "1s"))]
        retry_wait: Duration => retry.back_off;
        /// Overrides `failover.retry_percent`.
        #[schemars(range(min = 0, max = 100))]
        retry_percent: u32 => retry.budget.percent;
        /// Overrides `failover.retries_per_second`.
        #[schemars(range(min = 0, max = 10_000))]
        retries_per_second: u32 => retry.budget.per_second;
        /// Overrides `failover.retries_saved_max`.
        #[schemars(range(min = 0, max = 100_000))]
        retries_saved_max: u32 => retry.budget.capacity;
    }
}
