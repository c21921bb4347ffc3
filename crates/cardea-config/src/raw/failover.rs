//! When endpoints are ejected and what is tried again, for all services and for one.

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
    /// When an endpoint gets no more requests, and which requests are tried at another (docs/failover.md). Services may
    /// differ.
    RawFailover for General {
        /// So many failed requests in a row eject an endpoint; 0: any number does not. The default is more than one bad request of
        /// a client costs, which is tried at three endpoints, and few enough to be reached within a second.
        #[serde(with = "As::<ZeroForNone>")]
        #[schemars(range(min = 0, max = 1_000))]
        consecutive_failures: Option<NonZeroU32> => failover.health.consecutive_failures;
        /// An endpoint is ejected where so many percent of its requests within `failure_window` fail; 0: no share does.
        #[serde(with = "As::<ZeroForNone>")]
        #[schemars(range(min = 0, max = 100))]
        failure_percent: Option<NonZeroU32> => failover.health.failure_percent;
        /// Of fewer requests within `failure_window` the share says nothing.
        #[schemars(range(min = 1, max = 1_000_000))]
        failure_requests_min: u32 => failover.health.requests_min;
        /// The time over which the share of failures is taken.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "1s", "x-maximum" = "10m"))]
        failure_window: Duration => failover.health.window;
        /// Statuses that count as failures of an endpoint. The default has those by which servers say that they can't serve; 500 is
        /// left out, as one broken request often causes it.
        #[serde(with = "As::<Statuses>")]
        failure_statuses: StatusSet => failover.health.statuses;
        /// How long the first ejection lasts. Each that follows within a minute lasts twice as long; all vary by a fifth.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
        ejection_time: Duration => failover.health.ejection_time;
        /// How long an ejection lasts at most. After that one request is the probe: so long an endpoint that has recovered may wait.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
        ejection_time_max: Duration => failover.health.ejection_time_max;
        /// So many percent of the endpoints of a service may be ejected at a time for failures that a request can cause: one at
        /// least unless it is 0, and never the last. Failures to connect are not among them.
        #[schemars(range(min = 0, max = 100))]
        ejected_percent_max: u32 => failover.health.ejected_percent_max;
        /// If fewer percent of the endpoints are healthy, requests go to all of them, so that the few are not overrun.
        #[schemars(range(min = 0, max = 100))]
        panic_percent: u32 => failover.health.panic_percent;
        /// The time in which an endpoint that comes back, or is added by a reload, gets more and more of its share.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-maximum" = "1h"))]
        slow_start: Duration => failover.health.slow_start;
        /// How many attempts a request has, the first included; 1: nothing is tried again.
        #[schemars(range(min = 1, max = 8))]
        attempts_max: u32 => failover.retry.attempts_max;
        /// Responses with these statuses make an idempotent request be tried at another endpoint. Where that can't be, they are passed
        /// on.
        #[serde(with = "As::<Statuses>")]
        retry_statuses: StatusSet => failover.retry.statuses;
        /// From the sent request to the head of the response at one endpoint; then an idempotent request is tried at another. Left
        /// out, only `timeouts.response_head` holds, after which nothing is tried again.
        #[serde(with = "As::<Option<Duration>>")]
        #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
        try_timeout: Option<Duration> => failover.retry.try_timeout;
        /// The wait before the third attempt, less up to a half at random; doubled before each further one.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-maximum" = "1s"))]
        retry_wait: Duration => failover.retry.back_off;
        /// Retries that a service's budget gets for a hundred requests, so that retries can't make an outage worse.
        #[schemars(range(min = 0, max = 100))]
        retry_percent: u32 => failover.retry.budget.percent;
        /// Retries that the budget gets each second beside that, for services with few requests.
        #[schemars(range(min = 0, max = 10_000))]
        retries_per_second: u32 => failover.retry.budget.per_second;
        /// Retries that the budget holds at most, and at the start; 0: nothing is tried again.
        #[schemars(range(min = 0, max = 100_000))]
        retries_saved_max: u32 => failover.retry.budget.capacity;
    }
}

overrides! {
    /// Failover of a service; what is left out is that of `[failover]`.
    RawServiceFailover of Failover {
        /// In place of `failover.consecutive_failures`.
        #[serde(with = "As::<Option<ZeroForNone>>")]
        #[schemars(range(min = 0, max = 1_000))]
        consecutive_failures: Option<NonZeroU32> => health.consecutive_failures;
        /// In place of `failover.failure_percent`.
        #[serde(with = "As::<Option<ZeroForNone>>")]
        #[schemars(range(min = 0, max = 100))]
        failure_percent: Option<NonZeroU32> => health.failure_percent;
        /// In place of `failover.failure_requests_min`.
        #[schemars(range(min = 1, max = 1_000_000))]
        failure_requests_min: u32 => health.requests_min;
        /// In place of `failover.failure_window`.
        #[serde(with = "As::<Option<Duration>>")]
        #[schemars(extend("x-minimum" = "1s", "x-maximum" = "10m"))]
        failure_window: Duration => health.window;
        /// In place of `failover.failure_statuses`.
        #[serde(with = "As::<Option<Statuses>>")]
        failure_statuses: StatusSet => health.statuses;
        /// In place of `failover.ejection_time`.
        #[serde(with = "As::<Option<Duration>>")]
        #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
        ejection_time: Duration => health.ejection_time;
        /// In place of `failover.ejection_time_max`.
        #[serde(with = "As::<Option<Duration>>")]
        #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
        ejection_time_max: Duration => health.ejection_time_max;
        /// In place of `failover.ejected_percent_max`.
        #[schemars(range(min = 0, max = 100))]
        ejected_percent_max: u32 => health.ejected_percent_max;
        /// In place of `failover.panic_percent`.
        #[schemars(range(min = 0, max = 100))]
        panic_percent: u32 => health.panic_percent;
        /// In place of `failover.slow_start`.
        #[serde(with = "As::<Option<Duration>>")]
        #[schemars(extend("x-maximum" = "1h"))]
        slow_start: Duration => health.slow_start;
        /// In place of `failover.attempts_max`.
        #[schemars(range(min = 1, max = 8))]
        attempts_max: u32 => retry.attempts_max;
        /// In place of `failover.retry_statuses`.
        #[serde(with = "As::<Option<Statuses>>")]
        retry_statuses: StatusSet => retry.statuses;
        /// In place of `failover.try_timeout`.
        #[serde(with = "As::<Option<Duration>>")]
        #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
        try_timeout: Duration => retry.try_timeout;
        /// In place of `failover.retry_wait`.
        #[serde(with = "As::<Option<Duration>>")]
        #[schemars(extend("x-maximum" = "1s"))]
        retry_wait: Duration => retry.back_off;
        /// In place of `failover.retry_percent`.
        #[schemars(range(min = 0, max = 100))]
        retry_percent: u32 => retry.budget.percent;
        /// In place of `failover.retries_per_second`.
        #[schemars(range(min = 0, max = 10_000))]
        retries_per_second: u32 => retry.budget.per_second;
        /// In place of `failover.retries_saved_max`.
        #[schemars(range(min = 0, max = 100_000))]
        retries_saved_max: u32 => retry.budget.capacity;
    }
}
