//! Active checks: what is asked of an endpoint, and what its answers make of it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cardea_clock::Mono;

use crate::endpoint::{self, FailureKind};
use crate::retry::StatusSet;

/// An answer that contradicts what is known of an endpoint is verified after this part of the interval.
const VERIFY_AFTER: u32 = 4;

/// How endpoints are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckConfig {
    /// What is done. Default: nothing.
    pub protocol: CheckProtocol,
    /// The method of the request. Default `GET`.
    pub method: CheckMethod,
    /// The target of the request, in origin-form (RFC 9112 §3.2.1). Default `/`.
    pub path: String,
    /// The request's `Host`. Default: the name in the endpoint's certificate where there is TLS, else the address.
    pub host: Option<String>,
    /// Statuses of a healthy endpoint. Default 200 and 204.
    pub statuses: StatusSet,
    /// A text that the first [`CHECK_BODY_BYTES_MAX`] of the response's body must contain.
    pub body_contains: Option<String>,
    /// From the end of a check to the next one, which varies by a fifth. Default 10 s.
    pub interval: Duration,
    /// For all of a check. Default 2 s.
    pub timeout: Duration,
    /// How many checks in a row an endpoint that is down must pass. Default 2.
    pub rise: u32,
    /// How many checks in a row an endpoint that is up must fail. Default 2.
    pub fall: u32,
}

/// How much of a body is searched, in bytes.
pub const CHECK_BODY_BYTES_MAX: usize = 64 << 10;

/// What is done to check an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckProtocol {
    /// Nothing.
    #[default]
    Off,
    /// A connection is made, with its TLS handshake where the service has TLS.
    Tcp,
    /// The same, and a request of HTTP/1.1 is answered.
    Http,
}

/// The method of a check: one without effects (RFC 9110 §9.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckMethod {
    /// `GET`.
    #[default]
    Get,
    /// `HEAD`.
    Head,
    /// `OPTIONS`.
    Options,
}

impl Default for CheckConfig {
    fn default() -> Self {
        Self {
            protocol: CheckProtocol::default(),
            method: CheckMethod::default(),
            path: "/".to_owned(),
            host: None,
            statuses: StatusSet::new([200, 204]),
            body_contains: None,
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(2),
            rise: 2,
            fall: 2,
        }
    }
}

impl CheckConfig {
    /// Whether endpoints are checked at all.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.protocol != CheckProtocol::Off
    }
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// The endpoint is healthy.
    Passed,
    /// It failed like a request can.
    Failed(FailureKind),
    /// The body lacks the expected text.
    Body,
    /// The gateway had nothing to check with. It says nothing of the endpoint.
    Shortage,
}

impl CheckResult {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Passed,
        Self::Failed(FailureKind::Connect),
        Self::Failed(FailureKind::ConnectTimeout),
        Self::Failed(FailureKind::Handshake),
        Self::Failed(FailureKind::Closed),
        Self::Failed(FailureKind::Malformed),
        Self::Failed(FailureKind::ResponseTimeout),
        Self::Failed(FailureKind::Status),
        Self::Body,
        Self::Shortage,
    ];

    /// The name in logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(kind) => kind.as_str(),
            Self::Body => "body",
            Self::Shortage => "shortage",
        }
    }
}

/// What checks have found of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckState {
    /// Whether it is up; none before the first result.
    pub up: Option<bool>,
    /// The last result that says something of it.
    pub last: Option<CheckResult>,
    /// How many results in a row contradict what is known.
    pub contradictions: u32,
}

/// What an endpoint has become by a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is up for the first time.
    First,
    /// It was down.
    Up,
    /// It was up, or not known.
    Down,
}

/// The checks of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    /// In the order of [`CheckResult::ALL`].
    results: [AtomicU64; CheckResult::ALL.len()],
    state: Mutex<CheckState>,
    /// Since when a check that is due waits for its turn, in nanoseconds of [`Mono`]; 0: none does.
    waits_since: AtomicU64,
    /// Connections that are kept from one check to the next.
    kept: AtomicUsize,
}

/// A check that is due waits for its turn as long as this lives.
#[derive(Debug)]
#[must_use = "dropping it ends the wait"]
pub struct CheckWait {
    endpoint: Arc<endpoint::Shared>,
}

impl CheckWait {
    pub(crate) fn begin(endpoint: &Arc<endpoint::Shared>, now: Mono) -> Self {
        endpoint.checks.waits_since.store(now.nanos().max(1), Relaxed);
        Self { endpoint: Arc::clone(endpoint) }
    }
}

impl Drop for CheckWait {
    fn drop(&mut self) {
        self.endpoint.checks.waits_since.store(0, Relaxed);
    }
}

/// Counts a connection that is kept from one check to the next. Keep it beside the connection.
#[derive(Debug)]
#[must_use = "dropping it ends the count"]
pub struct CheckConnection {
    endpoint: Arc<endpoint::Shared>,
}

impl CheckConnection {
    pub(crate) fn begin(endpoint: &Arc<endpoint::Shared>) -> Self {
        endpoint.checks.kept.fetch_add(1, Relaxed);
        Self { endpoint: Arc::clone(endpoint) }
    }
}

impl Drop for CheckConnection {
    fn drop(&mut self) {
        self.endpoint.checks.kept.fetch_sub(1, Relaxed);
    }
}

impl Checks {
    /// Counts a result, and says what it turns the endpoint into. The first one decides alone: nothing contradicts it.
    pub(crate) fn record(&self, result: CheckResult, config: &CheckConfig) -> Option<Turn> {
        let counted = self.results.iter().zip(CheckResult::ALL).find(|(_, other)| *other == result);
        if let Some((counter, _)) = counted {
            counter.fetch_add(1, Relaxed);
        }
        if result == CheckResult::Shortage {
            return None;
        }
        let passed = result == CheckResult::Passed;
        let mut state = self.lock();
        state.last = Some(result);
        if state.up == Some(passed) {
            state.contradictions = 0;
            return None;
        }
        state.contradictions += 1;
        let needed = if passed { config.rise } else { config.fall };
        if state.up.is_some() && state.contradictions < needed {
            return None;
        }
        let turn = match (state.up, passed) {
            (None, true) => Turn::First,
            (Some(_), true) => Turn::Up,
            (_, false) => Turn::Down,
        };
        state.up = Some(passed);
        state.contradictions = 0;
        Some(turn)
    }

    /// What is known.
    pub(crate) fn state(&self) -> CheckState {
        *self.lock()
    }

    /// Nothing is known any more, as nothing is checked.
    pub(crate) fn forget(&self) {
        *self.lock() = CheckState::default();
    }

    /// Since when a check that is due waits for its turn.
    pub(crate) fn waits_since(&self) -> Option<Mono> {
        Some(self.waits_since.load(Relaxed)).filter(|since| *since != 0).map(Mono::from_nanos)
    }

    /// How many connections are kept from one check to the next.
    pub(crate) fn kept(&self) -> usize {
        self.kept.load(Relaxed)
    }

    /// How often each result was there.
    pub(crate) fn results(&self) -> [(CheckResult, u64); CheckResult::ALL.len()] {
        let mut results = CheckResult::ALL.map(|result| (result, 0));
        for ((_, count), counted) in results.iter_mut().zip(&self.results) {
            *count = counted.load(Relaxed);
        }
        results
    }

    /// The state is sound at every moment: nothing under the lock can panic.
    fn lock(&self) -> MutexGuard<'_, CheckState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time to wait before the next check: one that verifies a contradiction comes sooner. All vary by a fifth, so that
/// neither endpoints nor gateways are checked in step.
pub(crate) fn wait(state: CheckState, config: &CheckConfig, random: u64) -> Duration {
    let parts = if state.contradictions > 0 { VERIFY_AFTER } else { 1 };
    let share = (random >> 40) as f64 / (1_u64 << 24) as f64;
    (config.interval / parts).mul_f64(0.8 + 0.4 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: CheckResult = CheckResult::Failed(FailureKind::Connect);

    fn config(rise: u32, fall: u32) -> CheckConfig {
        CheckConfig { rise, fall, ..CheckConfig::default() }
    }

    #[test]
    fn the_first_result_decides_and_then_so_many_in_a_row() {
        use CheckResult::{Body, Passed};
        let (checks, config) = (Checks::default(), config(2, 3));
        let steps = [
            (Passed, Some(Turn::First)),
            (REFUSED, None),
            (REFUSED, None),
            (Passed, None),
            (REFUSED, None),
            (Body, None),
            (REFUSED, Some(Turn::Down)),
            (REFUSED, None),
            (Passed, None),
            (REFUSED, None),
            (Passed, None),
            (Passed, Some(Turn::Up)),
        ];
        for (step, (result, turn)) in steps.into_iter().enumerate() {
            assert_eq!(checks.record(result, &config), turn, "{step}");
        }
        let counts = checks.results().map(|(_, count)| count);
        assert_eq!(counts, [5, 6, 0, 0, 0, 0, 0, 0, 1, 0]);
        let down = Checks::default();
        assert_eq!(down.record(REFUSED, &config), Some(Turn::Down), "an endpoint that was never up");
        assert_eq!(down.state().up, Some(false));
        down.forget();
        assert_eq!(down.state(), CheckState::default());
    }

    #[test]
    fn a_shortage_of_the_gateway_counts_against_nobody() {
        let (checks, config) = (Checks::default(), config(1, 1));
        assert_eq!(checks.record(CheckResult::Shortage, &config), None);
        assert_eq!(checks.record(CheckResult::Passed, &config), Some(Turn::First));
        for _ in 0..10 {
            assert_eq!(checks.record(CheckResult::Shortage, &config), None);
        }
        assert_eq!(
            checks.state(),
            CheckState { up: Some(true), last: Some(CheckResult::Passed), contradictions: 0 }
        );
    }

    #[test]
    fn a_contradiction_is_verified_soon() {
        let config = config(2, 2);
        let sound = CheckState { up: Some(true), last: None, contradictions: 0 };
        let doubtful = CheckState { contradictions: 1, ..sound };
        for random in [0, u64::MAX / 2, u64::MAX] {
            let (long, short) = (wait(sound, &config, random), wait(doubtful, &config, random));
            assert!(long >= Duration::from_secs(8) && long <= Duration::from_secs(12), "{long:?}");
            assert!(short <= Duration::from_secs(3), "{short:?}");
        }
    }
}
