//! How many checks run at a time, and how many connections they keep. Each service has a share of its own, so that
//! endpoints that answer nothing delay no check of another service.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use cardea_clock::{Clock, Mono};
use cardea_upstream::Endpoint;
use nix::sys::resource::{Resource, getrlimit};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::upstream::Pooled;

/// Running checks may hold this part of the process's descriptors.
const RUNNING_PART: u64 = 8;

/// And connections that are kept for the next checks this one, as long as requests do not need it.
const KEPT_PART: u64 = 2;

/// For how long no connection is kept after a shortage.
const GIVEN_UP_FOR: Duration = Duration::from_secs(60);

/// How many checks of one service run at a time at most.
const RUNNING_MAX: usize = 256;

/// And at least, however many services there are.
const RUNNING_MIN: usize = 8;

/// How often the operator is told of a service whose checks are late.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The bounds of all checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// How many checks of one service run at a time.
    pub(super) running: usize,
    /// How many connections are kept from one check to the next.
    pub(super) kept: usize,
}

impl Bounds {
    /// For so many services that are checked.
    pub(super) fn now(services: usize) -> Self {
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
        Self::of(descriptors, services)
    }

    fn of(descriptors: u64, services: usize) -> Self {
        let part = |part: u64| usize::try_from(descriptors / part).unwrap_or(usize::MAX);
        let running = (part(RUNNING_PART) / services.max(1)).clamp(RUNNING_MIN, RUNNING_MAX);
        Self { running, kept: part(KEPT_PART) }
    }
}

/// The share of one service.
#[derive(Debug)]
pub(super) struct Share {
    service: String,
    permits: Semaphore,
    limit: Mutex<usize>,
    /// When the operator was told that checks are late, in nanoseconds of [`Mono`]; 0: never.
    warned: AtomicU64,
}

impl Share {
    pub(super) fn new(service: &str, limit: usize) -> Self {
        let (permits, limit) = (Semaphore::new(limit), Mutex::new(limit));
        Self { service: service.to_owned(), permits, limit, warned: AtomicU64::new(0) }
    }

    /// Takes on a new limit. What is running goes on, so a lower one may take effect in steps.
    pub(super) fn set_limit(&self, limit: usize) {
        let mut current = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(more) = limit.checked_sub(*current) {
            self.permits.add_permits(more);
            *current = limit;
        } else {
            *current -= self.permits.forget_permits(*current - limit);
        }
    }

    /// The right to run a check of this endpoint, which is due now. None at the end of the process.
    pub(super) async fn enter(
        &self,
        endpoint: &Endpoint<Pooled>,
        interval: Duration,
        clock: &Clock,
    ) -> Option<SemaphorePermit<'_>> {
        if let Ok(permit) = self.permits.try_acquire() {
            return Some(permit);
        }
        let since = clock.mono();
        let _waits = endpoint.check_waits(since);
        let permit = self.permits.acquire().await.ok()?;
        let now = clock.mono();
        let late = now.saturating_since(since);
        if late >= interval && self.is_due_to_warn(now) {
            let milliseconds = u64::try_from(late.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(
                service = self.service,
                endpoint = endpoint.label(),
                milliseconds,
                "health checks are late: too many endpoints of the service answer none; lower health_check.timeout"
            );
        }
        Some(permit)
    }

    /// Of several at once, one tells.
    fn is_due_to_warn(&self, now: Mono) -> bool {
        let last = self.warned.load(Relaxed);
        let is_due = last == 0 || now.saturating_since(Mono::from_nanos(last)) >= WARN_EVERY;
        is_due && self.warned.compare_exchange(last, now.nanos().max(1), Relaxed, Relaxed).is_ok()
    }
}

/// Counts the connections that are kept against their limit.
#[derive(Debug, Default)]
pub(crate) struct Places {
    taken: AtomicUsize,
    limit: AtomicUsize,
    /// Until when there are none, in nanoseconds of [`Mono`].
    given_up_until: AtomicU64,
    given_up: Notify,
}

impl Places {
    pub(super) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Relaxed);
    }

    /// A place for one more connection, if there is one.
    pub(super) fn take(self: &Arc<Self>, now: Mono) -> Option<Place> {
        if now.nanos() < self.given_up_until.load(Relaxed) {
            return None;
        }
        let limit = self.limit.load(Relaxed);
        let more = |taken: usize| (taken < limit).then_some(taken + 1);
        self.taken.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Place { places: Arc::clone(self) })
    }

    /// Has all connections closed that are kept: descriptors or memory are short.
    pub(crate) fn give_up(&self, now: Mono) {
        self.given_up_until.store(now.saturating_add(GIVEN_UP_FOR).nanos(), Relaxed);
        self.given_up.notify_waiters();
    }
}

/// The place of a connection that is kept. Keep it beside the connection.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
}

impl Place {
    /// Ready once the connection is to be closed. Registered by the first poll.
    pub(super) async fn given_up(&self) {
        self.places.given_up.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future as _,
        task::{Context, Waker},
    };

    use super::*;

    #[test]
    fn checks_leave_most_descriptors_to_requests() {
        for (descriptors, services, running, kept) in [
            (1_024, 1, 128, 512),
            (1_024, 2, 64, 512),
            (1_024, 1_000, 8, 512),
            (524_288, 1, 256, 262_144),
            (524_288, 1_000, 65, 262_144),
            (524_288, 0, 256, 262_144),
        ] {
            assert_eq!(
                Bounds::of(descriptors, services),
                Bounds { running, kept },
                "{descriptors} {services}"
            );
        }
    }

    #[test]
    fn a_lower_limit_waits_for_what_is_running() {
        let share = Share::new("s", 3);
        let running = (share.permits.try_acquire().unwrap(), share.permits.try_acquire().unwrap());
        share.set_limit(1);
        assert_eq!(share.permits.available_permits(), 0);
        drop(running);
        share.set_limit(1);
        assert_eq!(share.permits.available_permits(), 1);
        share.set_limit(5);
        assert_eq!(share.permits.available_permits(), 5);
    }

    #[test]
    fn places_end_at_the_limit_and_come_back() {
        let (places, now) = (Arc::new(Places::default()), Mono::from_nanos(1));
        assert!(places.take(now).is_none());
        places.set_limit(1);
        let one = places.take(now);
        assert!(one.is_some() && places.take(now).is_none());
        drop(one);
        assert!(places.take(now).is_some());
        places.give_up(now);
        assert!(places.take(now).is_none());
        assert!(places.take(now.saturating_add(GIVEN_UP_FOR)).is_some());
    }

    #[tokio::test]
    async fn a_shortage_ends_what_is_kept() {
        let (places, now) = (Arc::new(Places::default()), Mono::from_nanos(1));
        places.set_limit(2);
        let kept = [places.take(now).unwrap(), places.take(now).unwrap()];
        let mut given_up = Box::pin(async { tokio::join!(kept[0].given_up(), kept[1].given_up()) });
        let mut cx = Context::from_waker(Waker::noop());
        assert!(given_up.as_mut().poll(&mut cx).is_pending());
        places.give_up(now);
        given_up.await;
    }
}
