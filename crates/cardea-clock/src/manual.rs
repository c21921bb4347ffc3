//! A clock that tests set, read through the same path as the real one.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{
    Mono, Timestamp, Wall,
    coarse::{Clock, RawClock},
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

/// A clock that stands still until a test advances it.
#[derive(Debug)]
pub struct ManualClock {
    source: ManualSource,
    clock: Clock,
}

impl ManualClock {
    /// A clock at the wall time `at`. Its monotonic time begins an hour after the origin, so that tests can use earlier
    /// times.
    #[must_use]
    pub fn new(at: Wall) -> Self {
        let mono = Mono::MIN.saturating_add(Duration::from_secs(3_600));
        let source = ManualSource(Arc::new(Mutex::new(Timestamp { wall: at, mono })));
        let clock = Clock::of(RawClock::Manual(source.clone()));
        Self { source, clock }
    }

    /// A handle to this clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// Advances the time, and publishes it as the refresher would.
    pub fn advance(&self, duration: Duration) {
        self.advance_unpublished(duration);
        self.clock.refresh();
    }

    /// Advances the time without publishing it, as if the refresher had stopped.
    pub fn advance_unpublished(&self, duration: Duration) {
        self.source.change(|now| *now = now.saturating_add(duration));
    }

    /// Steps the wall clock forward, as an operator or NTP would, and publishes it.
    pub fn step_wall_forward(&self, by: Duration) {
        self.source.change(|now| now.wall = now.wall.saturating_add(by));
        self.clock.refresh();
    }

    /// Steps the wall clock back, and publishes it.
    pub fn step_wall_back(&self, by: Duration) {
        self.source.change(|now| now.wall = now.wall.saturating_sub(by));
        self.clock.refresh();
    }
}
