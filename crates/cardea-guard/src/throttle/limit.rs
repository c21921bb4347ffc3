//! The limit of a throttle, and the arithmetic of GCRA.

use std::time::Duration;

use cardea_clock::Mono;

/// The least time between two units. Rates are kept in whole nanoseconds, so that a rate is met to 0.1 % or better.
const INTERVAL_NANOS_MIN: u64 = 1_000;
/// The longest time in which a burst may be earned back.
const WINDOW_MAX: Duration = Duration::from_secs(366 * 86_400);

/// How much a key may use: units at a rate, after a burst (GCRA, ITU-T I.371).
///
/// Using `cost` units adds `cost` intervals to the time at which the key owes nothing. It fits if that time is then at most a
/// window from now, where the window is the time in which the burst is earned back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThrottleLimit {
    /// In nanoseconds, for one unit.
    interval: u64,
    burst: u64,
}

/// A limit that can't be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ThrottleLimitError {
    /// Nothing would ever be admitted.
    #[error("the rate and the burst are at least 1")]
    Zero,
    /// More than time can be measured.
    #[error("the rate is above 1000000 a second")]
    TooFast,
    /// More than time can be added to.
    #[error("the burst is earned back in more than 366 days")]
    TooLong,
}

impl ThrottleLimit {
    /// `count` units in each `per`, after a burst of `burst`.
    ///
    /// # Errors
    /// If the limit can't be kept.
    pub fn new(count: u64, per: Duration, burst: u64) -> Result<Self, ThrottleLimitError> {
        let per = u64::try_from(per.as_nanos()).map_err(|_| ThrottleLimitError::TooLong)?;
        if count == 0 || burst == 0 {
            return Err(ThrottleLimitError::Zero);
        }
        if per / count < INTERVAL_NANOS_MIN {
            return Err(ThrottleLimitError::TooFast);
        }
        // Rounded up: what is admitted never exceeds the rate.
        let interval = per.div_ceil(count);
        match interval.checked_mul(burst) {
            Some(window) if Duration::from_nanos(window) <= WINDOW_MAX => Ok(Self { interval, burst }),
            _ => Err(ThrottleLimitError::TooLong),
        }
    }

    /// What may be used at once.
    #[must_use]
    pub const fn burst(self) -> u64 {
        self.burst
    }

    /// The time in which the burst is earned back.
    #[must_use]
    pub const fn window(self) -> Duration {
        Duration::from_nanos(self.window_nanos())
    }

    const fn window_nanos(self) -> u64 {
        // Checked when it was made.
        self.interval.saturating_mul(self.burst)
    }

    /// The standing of a key in debt until `owes_until` that uses `cost` now, and until when it is in debt after that.
    pub(super) fn quote(self, owes_until: u64, cost: u64, now: Mono) -> (ThrottleStanding, u64) {
        let (now, window) = (now.nanos(), self.window_nanos());
        let debt = owes_until.saturating_sub(now);
        let price = self.interval.saturating_mul(cost);
        let debt_after = debt.saturating_add(price);
        let fits = debt_after <= window;
        let debt_then = if fits { debt_after } else { debt };
        let retry_in = match (fits, price <= window) {
            (false, true) => Some(Duration::from_nanos(debt_after - window)),
            _ => None,
        };
        let standing = ThrottleStanding {
            fits,
            remaining: window.saturating_sub(debt_then) / self.interval,
            full_in: Duration::from_nanos(debt_then),
            retry_in,
        };
        (standing, now.saturating_add(debt_after))
    }

    /// What a debt under this limit is under another one: the same number of units, but no more than a burst.
    pub(super) fn convert(self, debt: u64, to: Self) -> u64 {
        let converted = u128::from(debt) * u128::from(to.interval) / u128::from(self.interval);
        u64::try_from(converted).unwrap_or(u64::MAX).min(to.window_nanos())
    }
}

/// One unit a second.
impl Default for ThrottleLimit {
    fn default() -> Self {
        Self { interval: 1_000_000_000, burst: 1 }
    }
}

/// Where a key stands with a throttle: after the charge if it fits, else as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThrottleStanding {
    /// Whether the charge fits.
    pub fits: bool,
    /// The units that could be used at once.
    pub remaining: u64,
    /// In what time the whole burst can be used again.
    pub full_in: Duration,
    /// In what time the charge would fit; `None` where it fits now, or never.
    pub retry_in: Option<Duration>,
}
