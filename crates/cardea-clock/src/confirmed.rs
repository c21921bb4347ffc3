//! The wall clock, as far as the monotonic clock confirms it.

use std::time::Duration;

use crate::{Mono, Timestamp, Wall};

/// Decides how far a wall clock may be believed where the effects can't be undone: a wrong answer of a time server sets
/// it ahead for a moment. A time is confirmed when the wall clock has agreed with it for long enough, by the monotonic
/// clock. After that, the wall clock may advance as the monotonic clock does. A later step forward, such as that of a
/// machine that was suspended, must be confirmed again.
#[derive(Clone, Copy, Debug)]
pub struct ConfirmedWall {
    confirmed: Option<Timestamp>,
    /// Since when the wall clock has gone evenly, at a time that is not confirmed.
    candidate: Option<Timestamp>,
    tolerance: Duration,
    confirmed_after: Duration,
}

impl ConfirmedWall {
    /// Nothing is confirmed at first. `tolerance` is how far the two clocks may diverge.
    #[must_use]
    pub const fn new(now: Timestamp, tolerance: Duration, confirmed_after: Duration) -> Self {
        Self { confirmed: None, candidate: Some(now), tolerance, confirmed_after }
    }

    /// Takes note of the time. Call it every few seconds.
    pub fn observe(&mut self, now: Timestamp) {
        if self.latest(now.mono).is_some_and(|latest| now.wall <= latest) {
            self.candidate = None;
            // A clock that was set back was wrong before.
            self.confirmed = self.confirmed.map(|confirmed| match expected(confirmed, now.mono) {
                expected if now.wall < expected => now,
                _ => confirmed,
            });
            return;
        }
        match self.candidate {
            Some(since) if self.is_even(since, now) => {
                if now.mono.saturating_since(since.mono) >= self.confirmed_after {
                    (self.confirmed, self.candidate) = (Some(now), None);
                }
            }
            _ => self.candidate = Some(now),
        }
    }

    /// The latest time that the wall clock can have reached; `None` if none is confirmed.
    #[must_use]
    pub fn latest(&self, now: Mono) -> Option<Wall> {
        self.confirmed.map(|confirmed| expected(confirmed, now).saturating_add(self.tolerance))
    }

    fn is_even(&self, since: Timestamp, now: Timestamp) -> bool {
        let expected = expected(since, now.mono);
        now.wall.saturating_since(expected).max(expected.saturating_since(now.wall)) <= self.tolerance
    }
}

/// The time of a wall clock that has gone evenly.
fn expected(since: Timestamp, now: Mono) -> Wall {
    since.wall.saturating_add(now.saturating_since(since.mono))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn at(wall_hours: i64, mono_hours: u64) -> Timestamp {
        Timestamp {
            wall: Wall::from_unix_seconds(wall_hours * 3_600),
            mono: Mono::from_nanos(mono_hours * 3_600_000_000_000),
        }
    }

    #[test]
    fn a_time_is_confirmed_when_the_clock_has_agreed_with_it_for_long_enough() {
        let mut clock = ConfirmedWall::new(at(100, 0), HOUR, 2 * HOUR);
        for (wall, mono, latest) in [
            (101, 1, None),
            (102, 2, Some(103)),
            (110, 10, Some(111)),
            // A step forward, and back.
            (900, 11, Some(112)),
            (901, 12, Some(113)),
            (113, 13, Some(114)),
            // Steps to different times do not confirm each other.
            (900, 14, Some(115)),
            (950, 15, Some(116)),
            (990, 16, Some(117)),
            (991, 17, Some(118)),
            (992, 18, Some(993)),
            // A step back.
            (119, 19, Some(120)),
            (992, 20, Some(121)),
        ] {
            clock.observe(at(wall, mono));
            assert_eq!(
                clock.latest(at(0, mono).mono),
                latest.map(|hours| at(hours, 0).wall),
                "{wall} {mono}"
            );
        }
    }
}
