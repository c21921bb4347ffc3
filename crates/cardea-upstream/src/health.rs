//! Whether an endpoint gets requests, as its traffic shows it: ejection for increasing times, a probe, a slow start.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cardea_clock::Mono;

use crate::config::HealthConfig;
use crate::endpoint::FailureKind;
use crate::window::SlidingCount;

/// How long an endpoint must stay healthy until its next ejection is as short as the first.
const STEADY_AFTER: Duration = Duration::from_secs(60);

/// The share of its requests that an endpoint gets at least in its slow start, and while it asks for fewer.
const SHARE_MIN: f32 = 0.1;

/// How long an endpoint may ask for fewer requests at most.
pub(crate) const EASE_MAX: Duration = Duration::from_secs(10);

/// Why an endpoint was ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EjectionCause {
    /// It could not be connected to.
    Connect,
    /// Too many attempts failed, one after the other.
    ConsecutiveFailures,
    /// Too many of the attempts within the window failed.
    FailureRatio,
    /// The probe after an ejection failed.
    Probe,
}

impl EjectionCause {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Connect, Self::ConsecutiveFailures, Self::FailureRatio, Self::Probe];

    /// The name in logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::ConsecutiveFailures => "consecutive_failures",
            Self::FailureRatio => "failure_ratio",
            Self::Probe => "probe",
        }
    }
}

/// An endpoint is ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ejection {
    pub(crate) cause: EjectionCause,
    pub(crate) lasts: Duration,
}

/// An ejection that lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentEjection {
    /// Why.
    pub cause: EjectionCause,
    /// From then on a request may probe the endpoint.
    pub until: Mono,
}

/// An attempt at an endpoint that failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// When the endpoint was chosen for the attempt.
    pub(crate) chosen: Mono,
    pub(crate) now: Mono,
    /// Spreads the times of ejection.
    pub(crate) random: u64,
}

/// An endpoint's health.
///
/// Healthy → (failures) → ejected for a while → one request is let through as a probe → healthy again with a slow
/// start, or ejected for longer. The probe holds a lease as long as the ejection instead of a guard: one whose request
/// was given up for other reasons is followed by another.
///
/// An outcome counts only if its attempt began after the ejection or the probe that it could change: what was under
/// way before is no news.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// Nanoseconds of [`Mono`] until which the endpoint is skipped; 0: healthy. Written under the lock.
    skipped_until: AtomicU64,
    /// Active checks have found it down.
    is_down: AtomicBool,
    /// When it came back, in nanoseconds of [`Mono`]; 0: it gets its whole share. Written under the lock but for the 0.
    returned: AtomicU64,
    /// Until when it has asked for fewer requests, in nanoseconds of [`Mono`].
    eased_until: AtomicU64,
    /// Failures since the last success.
    consecutive: AtomicU32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How often it was ejected without having been steady in between.
    level: u32,
    cause: Option<EjectionCause>,
    lasts: Duration,
    /// It could not be connected to, so that any request may probe it: none is lost.
    unreachable: bool,
    /// When it was ejected, or last let a probe through.
    since: Mono,
    is_probing: bool,
    /// When it became healthy again.
    returned: Option<Mono>,
    failures: SlidingCount,
}

impl Health {
    /// Whether it is ejected, due for a probe or not. One load.
    pub(crate) fn is_ejected(&self) -> bool {
        self.skipped_until.load(Relaxed) != 0
    }

    /// Whether neither its traffic nor its checks speak against it. Two loads.
    pub(crate) fn is_available(&self) -> bool {
        !self.is_ejected() && !self.is_down.load(Relaxed)
    }

    /// From when on an unavailable endpoint is due for a probe, in nanoseconds of [`Mono`]: never where its checks fail.
    pub(crate) fn probe_due(&self) -> Option<u64> {
        if self.is_down.load(Relaxed) {
            return Some(u64::MAX);
        }
        Some(self.skipped_until.load(Relaxed)).filter(|until| *until != 0)
    }

    /// Why it is ejected, and until when.
    pub(crate) fn ejection(&self) -> Option<CurrentEjection> {
        let state = self.lock();
        let until = Some(self.skipped_until.load(Relaxed)).filter(|until| *until != 0)?;
        Some(CurrentEjection { cause: state.cause?, until: Mono::from_nanos(until) })
    }

    /// Active checks have found it down.
    pub(crate) fn set_down(&self) {
        self.is_down.store(true, Relaxed);
    }

    /// Active checks have found it up. It begins with a slow start, unless it was not known to be down; an ejection
    /// by its traffic ends with the next request, which probes it.
    pub(crate) fn set_up(&self, now: Mono) {
        let _state = self.lock();
        if self.is_down.swap(false, Relaxed) {
            self.returned.store(now.nanos().max(1), Relaxed);
            if self.is_ejected() {
                self.skipped_until.fetch_min(now.nanos().max(1), Relaxed);
            }
        }
    }

    /// The share of its requests that a healthy endpoint may get now, up to 1.
    pub(crate) fn share(&self, now: Mono, slow_start: Duration) -> f32 {
        let (returned, eased) = (self.returned.load(Relaxed), self.eased_until.load(Relaxed));
        if returned == 0 && eased == 0 {
            return 1.0;
        }
        let mut share = 1.0_f32;
        if returned != 0 {
            let since = now.saturating_since(Mono::from_nanos(returned));
            if since >= slow_start {
                self.returned.store(0, Relaxed);
            } else {
                share = since.as_secs_f32() / slow_start.as_secs_f32();
            }
        }
        if eased != 0 {
            if eased > now.nanos() {
                share = SHARE_MIN;
            } else {
                self.eased_until.store(0, Relaxed);
            }
        }
        share.max(SHARE_MIN)
    }

    /// It asks for fewer requests for a while: of which no more than [`EASE_MAX`] is believed.
    pub(crate) fn ease(&self, now: Mono, lasts: Duration) {
        self.eased_until.fetch_max(now.saturating_add(lasts.min(EASE_MAX)).nanos(), Relaxed);
    }

    /// It begins with a slow start: it is new beside others.
    pub(crate) fn start_slowly(&self, now: Mono) {
        self.returned.store(now.nanos().max(1), Relaxed);
    }

    /// Asks to send a probe. True for one request at a time of an endpoint that is due. A request that would be lost
    /// if it failed is used only where the endpoint is long overdue, as nothing better comes. A `dry` question changes nothing.
    pub(crate) fn claim_probe(&self, now: Mono, may_be_lost: bool, dry: bool) -> bool {
        let mut state = self.lock();
        let until = self.skipped_until.load(Relaxed);
        let patience = if may_be_lost && !state.unreachable { state.lasts } else { Duration::ZERO };
        let is_due = until != 0 && now >= Mono::from_nanos(until).saturating_add(patience);
        if !is_due || self.is_down.load(Relaxed) {
            return false;
        }
        if dry {
            return true;
        }
        state.is_probing = true;
        state.since = now;
        self.skip_for(state.lasts, now);
        true
    }

    /// A connection was made for an attempt. An endpoint that was ejected since it could not be connected to is
    /// healthy again; says whether that is news.
    pub(crate) fn connected(&self, chosen: Mono, now: Mono) -> bool {
        if !self.is_ejected() {
            return false;
        }
        let mut state = self.lock();
        state.unreachable && self.readmit(&mut state, chosen, now)
    }

    /// An attempt succeeded. Says whether it has made the endpoint healthy. Two loads where it was so before.
    pub(crate) fn succeeded(&self, chosen: Mono, now: Mono) -> bool {
        if self.consecutive.load(Relaxed) != 0 {
            self.consecutive.store(0, Relaxed);
        }
        if !self.is_ejected() {
            return false;
        }
        let mut state = self.lock();
        self.readmit(&mut state, chosen, now)
    }

    fn readmit(&self, state: &mut State, chosen: Mono, now: Mono) -> bool {
        if !self.is_ejected() || chosen < state.since {
            return false;
        }
        state.is_probing = false;
        state.returned = Some(now);
        state.failures.clear();
        self.consecutive.store(0, Relaxed);
        self.returned.store(now.nanos().max(1), Relaxed);
        self.skipped_until.store(0, Relaxed);
        true
    }

    /// An attempt failed: the ejection that follows, if any. `ended` says how many attempts came to their end within
    /// the window, this one included, and `may_eject` whether one more endpoint may be ejected for failures that a
    /// request can cause.
    pub(crate) fn failed(
        &self,
        failure: Failure,
        config: &HealthConfig,
        ended: impl FnOnce() -> f64,
        may_eject: impl FnOnce() -> bool,
    ) -> Option<Ejection> {
        let Failure { kind, chosen, now, .. } = failure;
        let mut state = self.lock();
        if self.is_ejected() {
            if !state.is_probing || chosen < state.since {
                return None;
            }
            return Some(self.eject(&mut state, failure, config, EjectionCause::Probe));
        }
        if state.returned.is_some_and(|returned| chosen < returned) {
            return None;
        }
        state.failures.add(now, config.window);
        let consecutive = self.consecutive.fetch_add(1, Relaxed).saturating_add(1);
        if kind.is_unreachable() {
            return Some(self.eject(&mut state, failure, config, EjectionCause::Connect));
        }
        let cause = if config.consecutive_failures.is_some_and(|limit| consecutive >= limit.get()) {
            EjectionCause::ConsecutiveFailures
        } else {
            let percent = f64::from(config.failure_percent?.get());
            let ended = ended();
            let failures = state.failures.sum(now, config.window);
            if ended < f64::from(config.requests_min) || failures * 100.0 < percent * ended {
                return None;
            }
            EjectionCause::FailureRatio
        };
        may_eject().then(|| self.eject(&mut state, failure, config, cause))
    }

    fn eject(
        &self,
        state: &mut State,
        failure: Failure,
        config: &HealthConfig,
        cause: EjectionCause,
    ) -> Ejection {
        let now = failure.now;
        let steady = state.returned.is_some_and(|returned| now.saturating_since(returned) >= STEADY_AFTER);
        state.level = if steady { 1 } else { state.level.saturating_add(1) };
        let lasts = config.ejection_time.saturating_mul(1 << (state.level - 1).min(16));
        state.cause = Some(cause);
        state.lasts = jittered(lasts.min(config.ejection_time_max), failure.random);
        state.unreachable = failure.kind.is_unreachable();
        state.since = now;
        state.is_probing = false;
        self.skip_for(state.lasts, now);
        Ejection { cause, lasts: state.lasts }
    }

    fn skip_for(&self, lasts: Duration, now: Mono) {
        self.skipped_until.store(now.saturating_add(lasts).nanos().max(1), Relaxed);
    }

    /// The state is sound at every moment: nothing under the lock can panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Up to a fifth shorter or longer, so that neither endpoints nor gateways come back in step.
fn jittered(lasts: Duration, random: u64) -> Duration {
    let share = (random >> 40) as f64 / (1_u64 << 24) as f64;
    lasts.mul_f64(0.8 + 0.4 * share)
}

#[cfg(test)]
mod tests;
