//! The retry budget: retries stay a fraction of the requests, so that they can't make an outage worse.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use cardea_clock::Mono;

/// Tokens are counted in hundredths.
const TOKEN: u64 = 100;
const NANOS: u128 = 1_000_000_000;

/// How a budget fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryConfig {
    /// Retries per hundred requests. Default 20.
    pub percent: u32,
    /// Retries per second beside that, for services with few requests. Default 3.
    pub per_second: u32,
    /// How many retries can be saved up, which is also what there is at first. Default 100; 0: no retries.
    pub capacity: u32,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self { percent: 20, per_second: 3, capacity: 100 }
    }
}

/// A token bucket that every request fills a little, time fills too, and a retry takes a token from.
#[derive(Debug)]
pub struct RetryBudget {
    config: RetryConfig,
    /// Hundredths of tokens, at most the capacity.
    balance: AtomicU64,
    /// Up to when time has been credited; `None` before the first retry, when the bucket is full of time.
    credited: Mutex<Option<Mono>>,
}

impl RetryBudget {
    /// A full budget.
    #[must_use]
    pub fn new(config: RetryConfig) -> Self {
        let balance = AtomicU64::new(u64::from(config.capacity) * TOKEN);
        Self { config, balance, credited: Mutex::new(None) }
    }

    /// How it fills.
    #[must_use]
    pub fn config(&self) -> &RetryConfig {
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
    fn five_requests_or_a_third_of_a_second_earn_a_retry() {
        let budget = RetryBudget::new(RetryConfig::default());
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
        let budget = RetryBudget::new(RetryConfig { capacity: 7, ..RetryConfig::default() });
        assert_eq!(spend(&budget, at(0)), 7);
        (0..1_000_000).for_each(|_| budget.request());
        assert_eq!(spend(&budget, at(1_000_000_000)), 7);
        let none = RetryBudget::new(RetryConfig { capacity: 0, ..RetryConfig::default() });
        none.request();
        assert!(!none.try_retry(Mono::MAX));
        let still = RetryBudget::new(RetryConfig { per_second: 0, percent: 0, capacity: 1 });
        assert!(still.try_retry(at(0)));
        assert!(!still.try_retry(Mono::MAX));
    }

    #[test]
    fn asking_often_loses_no_time() {
        let budget = RetryBudget::new(RetryConfig::default());
        spend(&budget, at(0));
        let granted =
            (0..=10_000_000).step_by(7).filter(|micros| budget.try_retry(Mono::from_nanos(micros * 1000)));
        assert!((29..=30).contains(&granted.count()));
    }

    proptest! {
        #[test]
        fn retries_never_exceed_what_was_earned(steps in proptest::collection::vec((0_u64..500, any::<bool>()), 1..500)) {
            let config = RetryConfig { percent: 20, per_second: 3, capacity: 10 };
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
