//! What is tried again, and the retry budget: retries stay a fraction of the requests, so that they can't make an outage
//! worse.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cardea_clock::Mono;

/// Tokens are counted in hundredths.
const TOKEN: u64 = 100;
const NANOS: u128 = 1_000_000_000;

/// What a request may be tried again for, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryConfig {
    /// Attempts per request, the first included. Default 3, at most [`ATTEMPTS_MAX`](crate::ATTEMPTS_MAX).
    pub attempts_max: u32,
    /// Statuses for which an idempotent request is tried elsewhere. Default 502, 503 and 504.
    pub statuses: StatusSet,
    /// How long one endpoint may take from the end of the request to the head of its response before another is tried.
    /// Default: none; the limit of the whole exchange holds.
    pub try_timeout: Option<Duration>,
    /// What is waited before the third attempt, less up to a half at random; doubled by each further one. The second is
    /// made at once. Default 25 ms.
    pub back_off: Duration,
    /// How many retries there may be for how many requests.
    pub budget: BudgetConfig,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            attempts_max: 3,
            statuses: StatusSet::new([502, 503, 504]),
            try_timeout: None,
            back_off: Duration::from_millis(25),
            budget: BudgetConfig::default(),
        }
    }
}

impl RetryConfig {
    /// What to wait after so many attempts, before the next.
    #[must_use]
    pub fn wait(&self, attempts: u32, random: u64) -> Duration {
        let Some(doublings) = attempts.checked_sub(2) else { return Duration::ZERO };
        let longest = self.back_off.saturating_mul(1 << doublings.min(16)).min(BACK_OFF_MAX);
        let share = (random >> 40) as f64 / (1_u64 << 24) as f64;
        longest.mul_f64(0.5 + 0.5 * share)
    }
}

/// The longest wait between two attempts.
const BACK_OFF_MAX: Duration = Duration::from_secs(1);

/// What failed, so that a request is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryCause {
    /// There was no connection.
    Connect,
    /// A connection that was kept was closed before a response: it may have been idle for too long.
    Stale,
    /// The endpoint has refused to process the request (RFC 9113 §8.7).
    Refused,
    /// The connection was closed before a response, or its stream was reset.
    Closed,
    /// The endpoint took too long.
    Timeout,
    /// The response's status.
    Status,
}

impl RetryCause {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Connect, Self::Stale, Self::Refused, Self::Closed, Self::Timeout, Self::Status];

    /// The name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Stale => "stale",
            Self::Refused => "refused",
            Self::Closed => "closed",
            Self::Timeout => "timeout",
            Self::Status => "status",
        }
    }
}

/// A set of HTTP statuses, from 100 to 611.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusSet([u64; 8]);

impl StatusSet {
    /// The set of these; others than from 100 to 611 are left out.
    #[must_use]
    pub fn new(statuses: impl IntoIterator<Item = u16>) -> Self {
        let mut set = Self::default();
        for status in statuses {
            if let Some((word, bit)) = Self::place(status)
                && let Some(word) = set.0.get_mut(word)
            {
                *word |= bit;
            }
        }
        set
    }

    /// Whether it is in the set.
    #[must_use]
    pub fn contains(&self, status: u16) -> bool {
        Self::place(status).is_some_and(|(word, bit)| self.0.get(word).is_some_and(|word| word & bit != 0))
    }

    fn place(status: u16) -> Option<(usize, u64)> {
        let index = status.checked_sub(100)?;
        Some((usize::from(index / 64), 1 << (index % 64)))
    }
}

/// How a budget fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetConfig {
    /// Retries per hundred requests. Default 20.
    pub percent: u32,
    /// Retries per second beside that, for services with few requests. Default 3.
    pub per_second: u32,
    /// How many retries can be saved up, which is also what there is at first. Default 100; 0: no retries.
    pub capacity: u32,
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self { percent: 20, per_second: 3, capacity: 100 }
    }
}

/// A token bucket that every request fills a little, time fills too, and a retry takes a token from.
#[derive(Debug)]
pub struct RetryBudget {
    config: BudgetConfig,
    /// Hundredths of tokens, at most the capacity.
    balance: AtomicU64,
    /// Up to when time has been credited; `None` before the first retry, when the bucket is full of time.
    credited: Mutex<Option<Mono>>,
}

impl RetryBudget {
    /// A full budget.
    #[must_use]
    pub fn new(config: BudgetConfig) -> Self {
        let balance = AtomicU64::new(u64::from(config.capacity) * TOKEN);
        Self { config, balance, credited: Mutex::new(None) }
    }

    /// How it fills.
    #[must_use]
    pub fn config(&self) -> &BudgetConfig {
        &self.config
    }

    /// Counts a request. One load while the budget is full.
    pub fn request(&self) {
        if self.balance.load(Ordering::Relaxed) < self.capacity() {
            self.add(u64::from(self.config.percent));
        }
    }

    /// Whether a retry may be made now; takes a token if so.
    pub fn try_retry(&self, now: Mono) -> bool {
        // Time is credited here alone: what it would have added before is the same, cut off at the same
        // capacity. The lock orders retries among themselves; requests go past it.
        let mut credited = self.credited.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *credited.get_or_insert(now);
        let rate = u128::from(self.config.per_second) * u128::from(TOKEN);
        let earned = now.saturating_since(since).as_nanos() * rate / NANOS;
        if earned > 0 {
            // Only whole hundredths are credited: the rest of the time stays for the next retry.
            let used = u64::try_from((earned * NANOS).div_ceil(rate)).unwrap_or(u64::MAX);
            *credited = Some(Mono::from_nanos(since.nanos().saturating_add(used)));
            self.add(u64::try_from(earned).unwrap_or(u64::MAX));
        }
        let taken = |balance: u64| balance.checked_sub(TOKEN);
        self.balance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }

    /// Whole retries that are left, without what time has added since the last one.
    #[must_use]
    pub fn balance(&self) -> u64 {
        self.balance.load(Ordering::Relaxed) / TOKEN
    }

    fn add(&self, hundredths: u64) {
        let added = |balance: u64| Some(balance.saturating_add(hundredths).min(self.capacity()));
        // Never fails: the function always gives a value.
        let _ = self.balance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
    }

    fn capacity(&self) -> u64 {
        u64::from(self.config.capacity) * TOKEN
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Mono {
        Mono::from_nanos(millis * 1_000_000)
    }

    fn spend(budget: &RetryBudget, now: Mono) -> usize {
        (0..10_000).take_while(|_| budget.try_retry(now)).count()
    }

    #[test]
    fn a_set_has_the_statuses_that_were_put_in() {
        let set = StatusSet::new([100, 163, 164, 503, 611, 99, 612, 0, u16::MAX]);
        let found: Vec<u16> = (0..=u16::MAX).filter(|status| set.contains(*status)).collect();
        assert_eq!(found, [100, 163, 164, 503, 611]);
    }

    #[test]
    fn waits_double_from_the_third_attempt_on_and_are_spread() {
        let config = RetryConfig::default();
        assert_eq!((config.wait(0, u64::MAX), config.wait(1, u64::MAX)), (Duration::ZERO, Duration::ZERO));
        for (attempts, millis) in [(2, 25), (3, 50), (4, 100), (100, 1_000)] {
            let (shortest, longest) = (config.wait(attempts, 0), config.wait(attempts, u64::MAX));
            assert_eq!(shortest, Duration::from_millis(millis) / 2);
            assert!(longest.abs_diff(Duration::from_millis(millis)) < Duration::from_micros(1));
        }
    }

    #[test]
    fn five_requests_or_a_third_of_a_second_earn_a_retry() {
        let budget = RetryBudget::new(BudgetConfig::default());
        assert_eq!(spend(&budget, at(0)), 100);
        (0..4).for_each(|_| budget.request());
        assert!(!budget.try_retry(at(0)));
        budget.request();
        assert!(budget.try_retry(at(0)));
        assert!(!budget.try_retry(at(333)));
        assert!(budget.try_retry(at(334)));
        assert_eq!(spend(&budget, at(10_334)), 30);
    }

    #[test]
    fn no_more_than_the_capacity_is_saved_up() {
        let budget = RetryBudget::new(BudgetConfig { capacity: 7, ..BudgetConfig::default() });
        assert_eq!(spend(&budget, at(0)), 7);
        (0..1_000_000).for_each(|_| budget.request());
        assert_eq!(spend(&budget, at(1_000_000_000)), 7);
        let none = RetryBudget::new(BudgetConfig { capacity: 0, ..BudgetConfig::default() });
        none.request();
        assert!(!none.try_retry(Mono::MAX));
        let still = RetryBudget::new(BudgetConfig { per_second: 0, percent: 0, capacity: 1 });
        assert!(still.try_retry(at(0)));
        assert!(!still.try_retry(Mono::MAX));
    }

    #[test]
    fn asking_often_loses_no_time() {
        let budget = RetryBudget::new(BudgetConfig::default());
        spend(&budget, at(0));
        let granted =
            (0..=10_000_000).step_by(7).filter(|micros| budget.try_retry(Mono::from_nanos(micros * 1000)));
        assert!((29..=30).contains(&granted.count()));
    }

    proptest! {
        #[test]
        fn retries_never_exceed_what_was_earned(steps in proptest::collection::vec((0_u64..500, any::<bool>()), 1..500)) {
            let config = BudgetConfig { percent: 20, per_second: 3, capacity: 10 };
            let budget = RetryBudget::new(config);
            let (mut now, mut requests, mut retries) = (0, 0, 0);
            for (millis, retry) in steps {
                now += millis;
                if retry {
                    retries += u64::from(budget.try_retry(at(now)));
                } else {
                    budget.request();
                    requests += 1;
                }
                prop_assert!(retries * 1000 <= 10_000 + requests * 200 + now * 3);
                prop_assert!(budget.balance() <= 10);
            }
        }
    }
}
