//! Whether an endpoint gets requests: passive ejection with a back-off, and trials one at a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cardea_clock::Mono;

/// How long an endpoint is skipped after its first failure; doubled by each failed trial.
pub const BACK_OFF_FIRST: Duration = Duration::from_secs(1);
/// How long an endpoint is skipped at most.
pub const BACK_OFF_MAX: Duration = Duration::from_secs(30);

/// An endpoint's health as its traffic shows it.
///
/// Healthy → (a failure) → skipped for a back-off → one request is let through as a trial → healthy again,
/// or skipped for twice as long. The trial holds a lease as long as the back-off instead of a guard: one
/// whose request was given up for other reasons is followed by another.
#[derive(Debug)]
pub(crate) struct Health {
    /// Nanoseconds of [`Mono`] until which the endpoint is skipped; 0: healthy. Written under the lock.
    skipped_until: AtomicU64,
    /// Nanoseconds of [`Mono`]; 0: never. Written under the lock.
    last_failed: AtomicU64,
    state: Mutex<State>,
}

/// Of an endpoint that is ejected; without meaning for a healthy one.
#[derive(Debug, Default)]
struct State {
    back_off: Duration,
    /// A trial was let through since the last failure that counted.
    trial: bool,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self {
            skipped_until: AtomicU64::new(0),
            last_failed: AtomicU64::new(0),
            state: Mutex::new(State::default()),
        }
    }

    /// Whether a request may go there: the endpoint is healthy or due for a trial. One load.
    pub(crate) fn is_available(&self, now: Mono) -> bool {
        self.skipped_until.load(Ordering::Relaxed) <= now.nanos()
    }

    /// Whether the last that was heard of the endpoint is a failure.
    pub(crate) fn is_ejected(&self) -> bool {
        self.skipped_until.load(Ordering::Relaxed) != 0
    }

    /// When the endpoint failed last; [`Mono::MIN`]: never.
    pub(crate) fn last_failed(&self) -> Mono {
        Mono::from_nanos(self.last_failed.load(Ordering::Relaxed))
    }

    /// Asks to send a request there. True for a healthy endpoint, and for one request at a time of one that
    /// is due for a trial.
    pub(crate) fn claim(&self, now: Mono) -> bool {
        if !self.is_ejected() {
            return true;
        }
        let mut state = self.lock();
        if !self.is_available(now) {
            return false;
        }
        if self.is_ejected() {
            state.trial = true;
            self.skip_for(state.back_off, now);
        }
        true
    }

    /// Something worked: the endpoint is healthy. Says whether that is news. One load when it isn't.
    pub(crate) fn succeeded(&self) -> bool {
        if !self.is_ejected() {
            return false;
        }
        let _state = self.lock();
        let news = self.is_ejected();
        self.skipped_until.store(0, Ordering::Relaxed);
        news
    }

    /// A connection could not be made: for how long the endpoint is skipped, if this failure decided that.
    ///
    /// Of many failures at once only the first counts, or a single moment would reach the longest back-off.
    pub(crate) fn failed(&self, now: Mono) -> Option<Duration> {
        let mut state = self.lock();
        self.last_failed.fetch_max(now.nanos().max(1), Ordering::Relaxed);
        if self.is_ejected() && !state.trial && !self.is_available(now) {
            return None;
        }
        state.back_off =
            if self.is_ejected() { (state.back_off * 2).min(BACK_OFF_MAX) } else { BACK_OFF_FIRST };
        state.trial = false;
        self.skip_for(state.back_off, now);
        Some(state.back_off)
    }

    fn skip_for(&self, back_off: Duration, now: Mono) {
        self.skipped_until.store(now.saturating_add(back_off).nanos().max(1), Ordering::Relaxed);
    }

    /// The state is sound at every moment: nothing under the lock can panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Mono {
        Mono::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_failure_skips_the_endpoint_until_one_trial() {
        let health = Health::new();
        assert!(health.claim(at(0)) && health.claim(at(0)));
        assert_eq!(health.failed(at(10)), Some(BACK_OFF_FIRST));
        assert!(!health.is_available(at(1009)) && !health.claim(at(1009)));
        assert!(health.is_available(at(1010)) && health.claim(at(1010)));
        assert!(!health.claim(at(1010)), "one trial at a time");
        assert!(health.succeeded(), "news");
        assert!(!health.succeeded(), "no news");
        assert!(health.claim(at(1011)) && health.claim(at(1011)));
        assert_eq!(health.last_failed(), at(10));
    }

    #[test]
    fn the_back_off_doubles_with_failed_trials_and_starts_again_after_a_success() {
        let health = Health::new();
        let mut now = at(0);
        assert_eq!(health.failed(now), Some(BACK_OFF_FIRST));
        let mut back_off = BACK_OFF_FIRST;
        for wanted in [2, 4, 8, 16, 30, 30] {
            now = now.saturating_add(back_off);
            assert!(health.claim(now));
            back_off = Duration::from_secs(wanted);
            assert_eq!(health.failed(now), Some(back_off));
        }
        health.succeeded();
        assert_eq!(health.failed(now), Some(BACK_OFF_FIRST));
    }

    #[test]
    fn failures_at_the_same_time_count_once() {
        let health = Health::new();
        assert_eq!(health.failed(at(0)), Some(BACK_OFF_FIRST));
        for millis in 0..100 {
            assert_eq!(health.failed(at(millis)), None);
        }
        assert!(health.is_available(at(1000)));
        assert_eq!(health.last_failed(), at(99));
    }

    #[test]
    fn of_many_threads_one_gets_the_trial() {
        for round in 0..50 {
            let health = Health::new();
            health.failed(at(round));
            let start = std::sync::Barrier::new(4);
            let claims = std::thread::scope(|scope| {
                let claim = || {
                    start.wait();
                    health.claim(at(round + 1000))
                };
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(claim)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).filter(|got| *got).count()
            });
            assert_eq!(claims, 1);
        }
    }

    #[test]
    fn a_trial_that_never_ends_is_followed_by_another() {
        let health = Health::new();
        health.failed(at(0));
        assert!(health.claim(at(1000)));
        assert!(!health.claim(at(1999)));
        assert!(health.claim(at(2000)));
    }
}
