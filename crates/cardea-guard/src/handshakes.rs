//! Bounds what handshakes may cost: how many are under way, and how many of one address prefix.
//!
//! An honest client is done within a few round trips. Where there are too many handshakes, the oldest is therefore
//! evicted: clients that open connections and send nothing evict each other, and nobody else. The same where there are no
//! connections left, once a handshake has had the time that an honest client needs.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use cardea_clock::Mono;

use tokio::sync::oneshot;

use crate::{Counted, PrefixCounts, TooMany};

/// Handshakes under way, by age and by where they come from.
#[derive(Debug)]
pub struct Handshakes {
    /// How many of each prefix are under way.
    prefixes: Arc<PrefixCounts>,
    under_way: Mutex<UnderWay>,
}

#[derive(Debug, Default)]
struct UnderWay {
    next: u64,
    /// In the order in which they began.
    by_age: BTreeMap<u64, Begun>,
}

#[derive(Debug)]
struct Begun {
    at: Mono,
    evict: oneshot::Sender<()>,
}

/// One handshake; it is over when this is dropped.
#[derive(Debug)]
pub struct Handshake {
    all: Arc<Handshakes>,
    _of_prefix: Counted,
    number: u64,
    evicted: oneshot::Receiver<()>,
}

impl Handshakes {
    /// None yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self { prefixes: Arc::default(), under_way: Mutex::default() })
    }

    /// Begins a handshake from an address whose prefix may have `per_prefix_max`. If it is one more than `max`, the
    /// oldest of all is evicted.
    ///
    /// # Errors
    /// [`TooMany`] where the prefix has that many.
    pub fn begin(
        self: &Arc<Self>,
        from: Option<IpAddr>,
        max: usize,
        per_prefix_max: u32,
        now: Mono,
    ) -> Result<Handshake, TooMany> {
        let of_prefix = self.prefixes.enter(from, per_prefix_max)?;
        let (evict, evicted) = oneshot::channel();
        let mut under_way = self.lock();
        let number = under_way.next;
        under_way.next += 1;
        under_way.by_age.insert(number, Begun { at: now, evict });
        let oldest = if under_way.by_age.len() > max { under_way.by_age.pop_first() } else { None };
        drop(under_way);
        if let Some((_, oldest)) = oldest {
            // Nobody hears it where the handshake has just come to its end.
            let _ = oldest.evict.send(());
        }
        Ok(Handshake { all: Arc::clone(self), _of_prefix: of_prefix, number, evicted })
    }

    /// Evicts the oldest handshake if it has been under way for `spared`. Whether there was one.
    pub fn evict_oldest(&self, spared: Duration, now: Mono) -> bool {
        let mut under_way = self.lock();
        let oldest =
            under_way.by_age.first_entry().filter(|oldest| now.saturating_since(oldest.get().at) >= spared);
        let Some(oldest) = oldest.map(|oldest| oldest.remove()) else { return false };
        drop(under_way);
        oldest.evict.send(()).is_ok()
    }

    /// How many are under way.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().by_age.len()
    }

    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handshake {
    /// Ready once this handshake must end in favour of others; not polled again after that.
    pub fn poll_evicted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.evicted).poll(cx).map(drop)
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.all.lock().by_age.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Mono = Mono::from_nanos(5_000_000_000);

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn the_oldest_is_evicted() {
        let all = Handshakes::new();
        let mut begun: Vec<_> = (0..4).map(|_| all.begin(None, 2, 100, NOW).unwrap()).collect();
        assert_eq!(all.count(), 2);
        let told: Vec<bool> = begun.iter_mut().map(|one| one.evicted.try_recv().is_ok()).collect();
        assert_eq!(told, [true, true, false, false]);
        drop(begun);
        assert_eq!(all.count(), 0);
    }

    #[test]
    fn without_free_connections_only_a_slow_one_is_evicted() {
        let all = Handshakes::new();
        let second = Duration::from_secs(1);
        let mut old = all.begin(None, 100, 100, NOW).unwrap();
        let later = NOW.saturating_add(second);
        let mut young = all.begin(None, 100, 100, later).unwrap();
        assert!(!all.evict_oldest(second, NOW.saturating_add(second / 2)));
        assert!(all.evict_oldest(second, later));
        assert!(!all.evict_oldest(second, later));
        assert_eq!((old.evicted.try_recv().is_ok(), young.evicted.try_recv().is_ok()), (true, false));
    }

    #[test]
    fn a_prefix_has_so_many_handshakes_under_way_and_no_more() {
        let all = Handshakes::new();
        let one = all.begin(address("192.0.2.1"), 100, 2, NOW).unwrap();
        let _two = all.begin(address("::ffff:192.0.2.1"), 100, 2, NOW).unwrap();
        assert_eq!(all.begin(address("192.0.2.1"), 100, 2, NOW).err(), Some(TooMany));
        let _other = all.begin(address("192.0.2.2"), 100, 2, NOW).unwrap();
        drop(one);
        let _again = all.begin(address("192.0.2.1"), 100, 2, NOW).unwrap();
        // Whoever has one address of IPv6 has them all up to the next prefix.
        let _a = all.begin(address("2001:db8::1"), 100, 2, NOW).unwrap();
        let _b = all.begin(address("2001:db8::ffff:0:1:2"), 100, 2, NOW).unwrap();
        assert!(all.begin(address("2001:db8::3"), 100, 2, NOW).is_err());
        assert!(all.begin(address("2001:db8:0:1::3"), 100, 2, NOW).is_ok());
    }

    #[test]
    fn nothing_is_kept_of_a_prefix_without_handshakes() {
        let all = Handshakes::new();
        let kept = || all.prefixes.prefixes();
        let begun =
            ["192.0.2.1", "192.0.2.1", "192.0.2.2"].map(|from| all.begin(address(from), 10, 2, NOW).unwrap());
        assert_eq!(kept(), 2);
        drop(begun);
        assert_eq!(kept(), 0);
    }
}
