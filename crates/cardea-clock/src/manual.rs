//! A clock that tests move by hand, read through the same path as the real one.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{
    Mono, Timestamp, Wall,
    coarse::{Clock, Source},
};

/// The raw time of a [`ManualClock`].
#[derive(Clone, Debug)]
pub(crate) struct ManualSource(Arc<Mutex<Timestamp>>);

impl ManualSource {
    pub(crate) fn read(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Timestamp)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct ManualClock {
    source: ManualSource,
    clock: Clock,
}

impl ManualClock {
    /// Stands at the wall time `at`; its monotonic time begins an hour after the origin, so that tests can
    /// speak of what came before.
    #[must_use]
    pub fn new(at: Wall) -> Self {
        let mono = Mono::MIN.saturating_add(Duration::from_secs(3_600));
        let source = ManualSource(Arc::new(Mutex::new(Timestamp { wall: at, mono })));
        let clock = Clock::of(Source::Manual(source.clone()));
        Self { source, clock }
    }

    /// A handle that reads this clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// Lets `duration` pass, and publishes that as the refresher would.
    pub fn advance(&self, duration: Duration) {
        self.advance_unpublished(duration);
        self.clock.refresh();
    }

    /// Lets `duration` pass while the refresher stands still.
    pub fn advance_unpublished(&self, duration: Duration) {
        self.source.change(|now| *now = now.saturating_add(duration));
    }

    /// Steps the wall clock forward, as an operator or NTP would, and publishes that.
    pub fn step_wall_forward(&self, by: Duration) {
        self.source.change(|now| now.wall = now.wall.saturating_add(by));
        self.clock.refresh();
    }

    /// Steps the wall clock back, and publishes that.
    pub fn step_wall_back(&self, by: Duration) {
        self.source.change(|now| now.wall = now.wall.saturating_sub(by));
        self.clock.refresh();
    }
}
