//! The two kinds of time: [`Wall`], which can be stepped, and [`Mono`], which can't.

use std::time::Duration;

/// A point in wall-clock time: nanoseconds since the Unix epoch, from the year 1677 to 2262.
///
/// Leap seconds are not counted, as in POSIX time and in the `NumericDate` of RFC 7519 §2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(i64);

impl Wall {
    /// The earliest point in time.
    pub const MIN: Self = Self(i64::MIN);
    /// The latest point in time.
    pub const MAX: Self = Self(i64::MAX);

    /// From nanoseconds since the Unix epoch.
    #[must_use]
    pub const fn from_unix_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// From seconds since the Unix epoch; saturates at [`Wall::MIN`] and [`Wall::MAX`].
    #[must_use]
    pub const fn from_unix_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the Unix epoch.
    #[must_use]
    pub const fn unix_nanos(self) -> i64 {
        self.0
    }

    /// Whole milliseconds since the Unix epoch, rounded down.
    #[must_use]
    pub const fn unix_millis(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// Whole seconds since the Unix epoch, rounded down.
    #[must_use]
    pub const fn unix_seconds(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }

    /// Adds `duration`; saturates at [`Wall::MAX`].
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)))
    }

    /// Subtracts `duration`; saturates at [`Wall::MIN`].
    #[must_use]
    pub fn saturating_sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)))
    }

    /// The time since `earlier`; zero if that is later.
    #[must_use]
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(i128::from(self.0) - i128::from(earlier.0)).unwrap_or(0))
    }
}

/// A point in monotonic time: nanoseconds since an origin that is fixed for the life of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(u64);

impl Mono {
    /// The origin.
    pub const MIN: Self = Self(0);
    /// The latest point in time.
    pub const MAX: Self = Self(u64::MAX);

    /// From nanoseconds since the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Adds `duration`; saturates at [`Mono::MAX`].
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Subtracts `duration`; saturates at [`Mono::MIN`].
    #[must_use]
    pub fn saturating_sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The time since `earlier`; zero if that is later.
    #[must_use]
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Both kinds of time at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamp {
    /// The calendar time, which an operator or NTP can step.
    pub wall: Wall,
    /// The elapsed time, which can't be stepped.
    pub mono: Mono,
}

impl Timestamp {
    /// Adds `duration` to both.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self { wall: self.wall.saturating_add(duration), mono: self.mono.saturating_add(duration) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_before_the_epoch_rounds_down() {
        assert_eq!(Wall::from_unix_nanos(-1).unix_seconds(), -1);
        assert_eq!(Wall::from_unix_nanos(-1).unix_millis(), -1);
        assert_eq!(Wall::from_unix_nanos(999_999_999).unix_seconds(), 0);
    }

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Wall::from_unix_seconds(i64::MAX), Wall::MAX);
        assert_eq!(Wall::from_unix_seconds(i64::MIN), Wall::MIN);
        assert_eq!(Wall::MAX.saturating_add(Duration::MAX), Wall::MAX);
        assert_eq!(Wall::MIN.saturating_sub(Duration::MAX), Wall::MIN);
        assert_eq!(Wall::MIN.saturating_since(Wall::MAX), Duration::ZERO);
        assert_eq!(Wall::MAX.saturating_since(Wall::MIN), Duration::from_nanos(u64::MAX));
        assert_eq!(Mono::MAX.saturating_add(Duration::MAX), Mono::MAX);
        assert_eq!(Mono::MIN.saturating_since(Mono::MAX), Duration::ZERO);
    }
}
