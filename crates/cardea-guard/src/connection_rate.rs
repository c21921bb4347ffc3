//! How fast one address prefix may open connections.

use std::{
    hash::BuildHasher as _,
    net::IpAddr,
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use cardea_cache::{Cache, Lifetime, LimitsError};
use cardea_clock::Mono;
use foldhash::quality::RandomState;

use crate::AddressPrefix;

/// Locks that prefixes are spread over.
const SHARDS: usize = 16;
/// Prefixes that are kept behind each. Where more connect within a second, those that connect seldom are forgotten first.
const PREFIXES_MAX: usize = 4_096;
/// Connections of so much time may come at once. What is known of a prefix says nothing after it.
const BURST: Duration = Duration::from_secs(1);

/// The connections of the last second, by where they come from.
#[derive(Debug)]
pub struct ConnectionRates {
    hasher: RandomState,
    /// When the next connection would come if all came at the rate that is allowed (GCRA, ITU-T I.371).
    shards: Box<[Mutex<Cache<AddressPrefix, Mono>>]>,
}

/// The prefix connects too fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooFast;

impl ConnectionRates {
    /// No connections yet.
    ///
    /// # Errors
    /// If there is no memory for the prefixes.
    pub fn new() -> Result<Self, LimitsError> {
        let limits = cardea_cache::Limits {
            entries: PREFIXES_MAX,
            bytes: usize::MAX,
            lifetime: Lifetime::Same(BURST),
        };
        let shards = (0..SHARDS).map(|_| Cache::new(limits).map(Mutex::new)).collect::<Result<_, _>>()?;
        Ok(Self { hasher: RandomState::default(), shards })
    }

    /// Counts a connection from an address whose prefix may open `per_second_max`, after a burst of as many. Nothing is
    /// counted where there is no address or no bound.
    ///
    /// # Errors
    /// [`TooFast`], and nothing is counted.
    pub fn admit(
        &self,
        from: Option<IpAddr>,
        per_second_max: Option<NonZeroU32>,
        now: Mono,
    ) -> Result<(), TooFast> {
        let (Some(from), Some(rate)) = (from, per_second_max) else { return Ok(()) };
        let interval = BURST / rate.get();
        let prefix = AddressPrefix::of(from);
        let index = usize::try_from(self.hasher.hash_one(prefix) % SHARDS as u64).unwrap_or(0);
        // The remainder is an index of the array.
        let Some(shard) = self.shards.get(index) else { return Ok(()) };
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let expected = shard.get(&prefix, now).copied().unwrap_or_default();
        if expected.saturating_since(now) > BURST.saturating_sub(interval) {
            return Err(TooFast);
        }
        // Forgotten when it has come true: it is a second from now at the latest.
        drop(shard.insert(prefix, expected.max(now).saturating_add(interval), now));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Mono = Mono::from_nanos(5_000_000_000);

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    fn later(time: Duration) -> Mono {
        NOW.saturating_add(time)
    }

    #[test]
    fn a_prefix_connects_at_its_rate_with_a_burst_of_a_second() {
        let rates = ConnectionRates::new().unwrap();
        let rate = NonZeroU32::new(10);
        let admitted =
            |from: &str, now: Mono| (0..50).filter(|_| rates.admit(address(from), rate, now).is_ok()).count();
        assert_eq!(admitted("192.0.2.1", NOW), 10);
        assert!(rates.admit(address("192.0.2.2"), rate, NOW).is_ok());
        assert!(rates.admit(None, rate, NOW).is_ok());
        assert_eq!(admitted("192.0.2.1", later(Duration::from_millis(300))), 3);
        assert_eq!(admitted("192.0.2.1", later(Duration::from_secs(60))), 10);
        // Whoever has one address of IPv6 has them all up to the next prefix.
        assert_eq!(admitted("2001:db8::1", NOW), 10);
        assert_eq!(admitted("2001:db8::ffff:0:1:2", NOW), 0);
    }

    #[test]
    fn one_connection_a_second_is_one_a_second() {
        let rates = ConnectionRates::new().unwrap();
        let admitted = |milliseconds| {
            rates.admit(address("192.0.2.1"), NonZeroU32::new(1), later(Duration::from_millis(milliseconds)))
        };
        let said = [0, 1, 999, 1_000, 1_999, 2_001].map(|milliseconds| admitted(milliseconds).is_ok());
        assert_eq!(said, [true, false, false, true, false, true]);
    }

    #[test]
    fn no_limit_is_no_limit() {
        let rates = ConnectionRates::new().unwrap();
        assert!((0..1_000).all(|_| rates.admit(address("192.0.2.1"), None, NOW).is_ok()));
    }

    #[test]
    fn many_prefixes_do_not_hide_a_busy_one() {
        let rates = ConnectionRates::new().unwrap();
        let rate = NonZeroU32::new(10);
        let mut admitted = 0;
        for number in 0..200_000_u32 {
            assert!(rates.admit(Some(IpAddr::from(number.to_be_bytes())), rate, NOW).is_ok());
            if number % 100 == 0 {
                admitted += usize::from(rates.admit(address("2001:db8::1"), rate, NOW).is_ok());
            }
        }
        assert_eq!(admitted, 10);
        let kept = rates.shards.iter().map(|shard| shard.lock().unwrap().len()).sum::<usize>();
        assert!(kept <= SHARDS * PREFIXES_MAX, "{kept}");
    }
}
