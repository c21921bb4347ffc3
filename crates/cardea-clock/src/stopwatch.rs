//! Elapsed time, for code without a clock.

use std::time::{Duration, Instant};

/// Elapsed time of the system's monotonic clock. It is for code that adapts to its own delays; no decision about a
/// request uses it.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    #[expect(clippy::disallowed_methods, reason = "this crate is where the system's clocks are read")]
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start or the last call.
    pub fn lap(&mut self) -> Duration {
        let now = Self::start();
        let passed = now.0.saturating_duration_since(self.0);
        *self = now;
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lap_begins_where_the_last_one_ended() {
        let whole = Stopwatch::start();
        let mut stopwatch = whole;
        let laps = stopwatch.lap() + stopwatch.lap() + stopwatch.lap();
        assert_eq!(stopwatch.0.duration_since(whole.0), laps);
    }
}
