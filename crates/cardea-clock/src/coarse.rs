//! The coarse clock: the time in one cache line, refreshed by its own thread.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::{Mono, Timestamp, Wall, manual::ManualSource};

/// The default refresh period of the coarse clock.
///
/// Token lifetimes are minutes to hours, and timeouts are seconds: a tenth of a second is too short to matter for
/// either, and ten wake-ups per second cost nothing measurable.
pub const PERIOD_DEFAULT: Duration = Duration::from_millis(100);

/// The longest refresh period.
pub const PERIOD_MAX: Duration = Duration::from_millis(500);

/// The largest difference between the published and the exact time, if [`Clock::watch`] is called every
/// [`WATCH_EVERY`].
pub const LAG_MAX: Duration = Duration::from_secs(1);

/// The interval of calls to [`Clock::watch`].
pub const WATCH_EVERY: Duration = Duration::from_millis(250);

/// A lag that would exceed [`LAG_MAX`] before the watchdog's next check.
const LAG_WATCHED: Duration = Duration::from_millis(750);

/// The source of the raw time.
#[derive(Debug)]
pub(crate) enum RawClock {
    System { origin: Instant },
    Manual(ManualSource),
}

impl RawClock {
    #[expect(clippy::disallowed_methods, reason = "this crate is where the system's clocks are read")]
    fn system() -> Self {
        Self::System { origin: Instant::now() }
    }

    #[expect(clippy::disallowed_methods, reason = "this crate is where the system's clocks are read")]
    fn read(&self) -> Timestamp {
        match self {
            Self::System { .. } => Timestamp { wall: wall_of(SystemTime::now()), mono: self.read_mono() },
            Self::Manual(source) => source.read(),
        }
    }

    fn read_mono(&self) -> Mono {
        match self {
            Self::System { origin } => {
                Mono::from_nanos(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
            }
            Self::Manual(source) => source.read().mono,
        }
    }
}

fn wall_of(time: SystemTime) -> Wall {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Wall::from_unix_nanos(0).saturating_add(since),
        Err(before) => Wall::from_unix_nanos(0).saturating_sub(before.duration()),
    }
}

/// The published time, alone in its cache line, so that its readers are not slowed by other writes.
#[derive(Debug)]
#[repr(align(64))]
struct Published {
    wall: AtomicI64,
    mono: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    published: Published,
    source: RawClock,
    /// The time of the refresher's last refresh. Other writers of the time don't change it.
    refreshed: AtomicU64,
    late_refreshes: AtomicU64,
}

/// A handle to a clock. Clones are cheap and read the same clock.
#[derive(Clone, Debug)]
pub struct Clock {
    shared: Arc<Shared>,
}

impl Clock {
    pub(crate) fn of(source: RawClock) -> Self {
        let now = source.read();
        let published =
            Published { wall: AtomicI64::new(now.wall.unix_nanos()), mono: AtomicU64::new(now.mono.nanos()) };
        let refreshed = AtomicU64::new(now.mono.nanos());
        Self { shared: Arc::new(Shared { published, source, refreshed, late_refreshes: AtomicU64::new(0) }) }
    }

    /// The coarse time: two relaxed loads from one cache line.
    ///
    /// The two values may come from adjacent refreshes. That is harmless: a window is open only if both the wall time
    /// *and* the monotonic deadline allow it.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp { wall: self.wall(), mono: self.mono() }
    }

    /// The coarse wall time: one relaxed load.
    #[must_use]
    pub fn wall(&self) -> Wall {
        Wall::from_unix_nanos(self.shared.published.wall.load(Relaxed))
    }

    /// The coarse monotonic time: one relaxed load.
    #[must_use]
    pub fn mono(&self) -> Mono {
        Mono::from_nanos(self.shared.published.mono.load(Relaxed))
    }

    /// The exact time from the system; it takes some tens of nanoseconds.
    #[must_use]
    pub fn precise(&self) -> Timestamp {
        self.shared.source.read()
    }

    /// The exact monotonic time, for reported durations. It costs half of [`Clock::precise`].
    #[must_use]
    pub fn precise_mono(&self) -> Mono {
        self.shared.source.read_mono()
    }

    /// Publishes the exact time and returns it. The refresher calls it.
    pub fn refresh(&self) -> Timestamp {
        let now = self.publish();
        self.shared.refreshed.fetch_max(now.mono.nanos(), Relaxed);
        now
    }

    fn publish(&self) -> Timestamp {
        let now = self.shared.source.read();
        self.shared.published.wall.store(now.wall.unix_nanos(), Relaxed);
        // The refresher and the watchdog may race; monotonic time must not go back.
        self.shared.published.mono.fetch_max(now.mono.nanos(), Relaxed);
        now
    }

    /// The watchdog. It publishes the exact time if the published one would lag by more than [`LAG_MAX`] before the
    /// next check, and counts that. Returns whether the clock was on time.
    ///
    /// To be called every [`WATCH_EVERY`] by threads that do not depend on the refresher (each worker's timer). So a
    /// stopped refresher extends a token's life by a bounded second, never more.
    pub fn watch(&self) -> bool {
        let exact = self.shared.source.read_mono();
        if exact.saturating_since(self.mono()) <= LAG_WATCHED {
            return true;
        }
        self.shared.late_refreshes.fetch_add(1, Relaxed);
        self.publish();
        false
    }

    /// Whether the refresher has run within the last [`LAG_MAX`]. Refreshes by the watchdog don't count.
    #[must_use]
    pub fn is_refreshed(&self) -> bool {
        let refreshed = Mono::from_nanos(self.shared.refreshed.load(Relaxed));
        self.shared.source.read_mono().saturating_since(refreshed) <= LAG_MAX
    }

    /// How often [`Clock::watch`] had to refresh the time.
    #[must_use]
    pub fn late_refreshes(&self) -> u64 {
        self.shared.late_refreshes.load(Relaxed)
    }
}

/// The clock of the process, which owns its refresher thread. Dropping it stops and joins the thread; handles then keep
/// the last published time.
#[derive(Debug)]
pub struct CoarseClock {
    clock: Clock,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl CoarseClock {
    /// Starts the refresher with the given period (see [`PERIOD_DEFAULT`]; at most [`PERIOD_MAX`]).
    ///
    /// # Errors
    /// If the operating system can't start a thread.
    pub fn start(period: Duration) -> io::Result<Self> {
        let clock = Clock::of(RawClock::system());
        let stop = Arc::new(AtomicBool::new(false));
        let period = period.clamp(Duration::from_millis(1), PERIOD_MAX);
        let thread = thread::Builder::new().name("cardea-clock".into()).spawn({
            let (clock, stop) = (clock.clone(), Arc::clone(&stop));
            move || {
                while !stop.load(Relaxed) {
                    clock.refresh();
                    thread::park_timeout(period);
                }
            }
        })?;
        Ok(Self { clock, stop, thread: Some(thread) })
    }

    /// A handle to this clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }
}

impl Drop for CoarseClock {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the refresher is irrelevant here: it only stores the time.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;

    #[test]
    fn the_refresher_follows_the_system_and_stops_when_dropped() {
        let coarse = CoarseClock::start(Duration::from_millis(1)).unwrap();
        let clock = coarse.clock();
        let begin = clock.mono();
        while clock.mono() == begin {
            thread::yield_now();
        }
        assert!(clock.watch());
        assert!(clock.precise().wall.saturating_since(clock.wall()) < Duration::from_secs(60));
        drop(coarse);
        let last = clock.now();
        assert_eq!(clock.now(), last);
    }

    #[test]
    fn a_stopped_refresher_is_noticed_by_the_watchdog_and_counted() {
        let manual = ManualClock::new(Wall::from_unix_seconds(1_000));
        let clock = manual.clock();
        manual.advance_unpublished(LAG_WATCHED);
        assert!(clock.watch() && clock.is_refreshed(), "it may be a little late");
        assert_eq!(clock.wall(), Wall::from_unix_seconds(1_000));
        manual.advance_unpublished(Duration::from_nanos(1));
        assert!(!clock.watch());
        assert_eq!(clock.late_refreshes(), 1);
        assert_eq!(clock.now(), clock.precise());
        assert!(clock.watch());
        manual.advance_unpublished(LAG_MAX.checked_sub(LAG_WATCHED).unwrap());
        assert!(!clock.is_refreshed(), "whatever the watchdog does");
        manual.advance(Duration::ZERO);
        assert!(clock.is_refreshed());
    }

    #[test]
    fn however_the_watchdog_and_a_dead_refresher_meet_the_lag_has_its_bound() {
        for offset in 0..WATCH_EVERY.as_millis() {
            let manual = ManualClock::new(Wall::from_unix_seconds(1_000));
            let clock = manual.clock();
            let lag = || clock.precise().mono.saturating_since(clock.mono());
            // The refresher dies at any time between two checks.
            manual.advance_unpublished(Duration::from_millis(u64::try_from(offset).unwrap()));
            for _ in 0..12 {
                assert!(lag() <= LAG_MAX, "{offset}: {:?}", lag());
                clock.watch();
                manual.advance_unpublished(WATCH_EVERY);
            }
            assert!(clock.late_refreshes() >= 2, "{offset}");
        }
    }

    #[test]
    fn steps_of_the_wall_clock_are_followed_and_leave_monotonic_time_alone() {
        let manual = ManualClock::new(Wall::from_unix_seconds(1_000));
        let clock = manual.clock();
        let begin = clock.mono();
        manual.step_wall_back(Duration::from_secs(500));
        assert_eq!(clock.wall(), Wall::from_unix_seconds(500));
        manual.step_wall_forward(Duration::from_secs(1_500));
        assert_eq!(clock.wall(), Wall::from_unix_seconds(2_000));
        assert_eq!(clock.mono(), begin);
    }
}
