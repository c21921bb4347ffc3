//! Bounds what handshakes may cost: how many are under way, how many of one address prefix, and how fast one may connect.
//!
//! A client that means it is done within a few round trips. So where there are too many handshakes it is the oldest that
//! gives way: those who open connections and say nothing push out each other, and nobody else.

use std::{
    collections::{BTreeMap, HashMap},
    hash::BuildHasher as _,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use cardea_clock::Mono;
use foldhash::quality::RandomState;
use tokio::sync::oneshot;

use crate::model::Limits;

/// Locks that prefixes are spread over.
const SHARDS: usize = 16;
/// Prefixes that are kept behind each; beyond it new ones are let in unseen, and only the bound on all handshakes holds.
const PREFIXES_MAX: usize = 4_096;

/// Handshakes under way, by age and by where they come from.
#[derive(Debug)]
pub(crate) struct Handshakes {
    hasher: RandomState,
    shards: [Mutex<HashMap<Prefix, Entry>>; SHARDS],
    under_way: Mutex<UnderWay>,
}

/// An IPv4 address, or the half of an IPv6 address that its owner can't choose (RFC 4291 §2.5.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Prefix(u64, bool);

#[derive(Debug, Default)]
struct Entry {
    under_way: u32,
    /// When the next connection would come if all came at the rate that is allowed (GCRA).
    expected: Mono,
}

#[derive(Debug, Default)]
struct UnderWay {
    next: u64,
    /// In the order in which they began.
    by_age: BTreeMap<u64, oneshot::Sender<()>>,
}

/// Why a connection is closed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Excess {
    /// Its prefix connects too fast.
    Rate,
    /// Its prefix has too many handshakes under way.
    Handshakes,
}

/// One handshake; it is over when this is dropped.
#[derive(Debug)]
pub(crate) struct Handshake {
    all: Arc<Handshakes>,
    prefix: Option<Prefix>,
    number: u64,
    /// Ready when this handshake must give way.
    pub(crate) given_way: oneshot::Receiver<()>,
}

impl Handshakes {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            hasher: RandomState::default(),
            shards: Default::default(),
            under_way: Mutex::default(),
        })
    }

    /// Whether somebody may connect now.
    pub(crate) fn admit(&self, from: Option<IpAddr>, limits: &Limits, now: Mono) -> Result<(), Excess> {
        let (Some(from), Some(rate)) = (from, limits.new_connections_per_second_max) else { return Ok(()) };
        let interval = Duration::from_secs(1) / rate.get();
        let prefix = Prefix::of(from);
        let mut shard = self.shard(prefix);
        let Some(entry) = entry(&mut shard, prefix, now) else { return Ok(()) };
        // A second's worth may come at once.
        if entry.expected.saturating_since(now) > Duration::from_secs(1).saturating_sub(interval) {
            return Err(Excess::Rate);
        }
        entry.expected = entry.expected.max(now).saturating_add(interval);
        Ok(())
    }

    /// Begins a handshake. Where there are too many, the oldest of all is told to give way.
    pub(crate) fn begin(
        self: &Arc<Self>,
        from: Option<IpAddr>,
        limits: &Limits,
        now: Mono,
    ) -> Result<Handshake, Excess> {
        let mut prefix = from.map(Prefix::of);
        if let Some(known) = prefix {
            let mut shard = self.shard(known);
            match entry(&mut shard, known, now) {
                Some(entry) if entry.under_way >= limits.handshakes_per_prefix_max => {
                    return Err(Excess::Handshakes);
                }
                Some(entry) => entry.under_way += 1,
                None => prefix = None,
            }
        }
        let (give_way, given_way) = oneshot::channel();
        let mut under_way = self.lock();
        let number = under_way.next;
        under_way.next += 1;
        under_way.by_age.insert(number, give_way);
        let oldest =
            if under_way.by_age.len() > limits.handshakes_max { under_way.by_age.pop_first() } else { None };
        drop(under_way);
        if let Some((_, oldest)) = oldest {
            // Nobody hears it where the handshake has just come to its end.
            let _ = oldest.send(());
        }
        Ok(Handshake { all: Arc::clone(self), prefix, number, given_way })
    }

    /// How many are under way.
    pub(crate) fn count(&self) -> usize {
        self.lock().by_age.len()
    }

    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shard(&self, prefix: Prefix) -> MutexGuard<'_, HashMap<Prefix, Entry>> {
        let index = usize::try_from(self.hasher.hash_one(prefix) % SHARDS as u64).unwrap_or(0);
        // The remainder is an index of the array.
        let shard = self.shards.get(index).unwrap_or(&self.shards[0]);
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entry of a prefix; none where there is no room for one.
fn entry(shard: &mut HashMap<Prefix, Entry>, prefix: Prefix, now: Mono) -> Option<&mut Entry> {
    if shard.len() >= PREFIXES_MAX && !shard.contains_key(&prefix) {
        // Those of which nothing is left. A full look at a few thousand entries, once they are that many.
        shard.retain(|_, entry| entry.under_way > 0 || entry.expected > now);
        if shard.len() >= PREFIXES_MAX {
            return None;
        }
    }
    Some(shard.entry(prefix).or_default())
}

impl Prefix {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(u64::from(address.to_bits()), true),
            IpAddr::V6(address) => Self(u64::try_from(address.to_bits() >> 64).unwrap_or(0), false),
        }
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.all.lock().by_age.remove(&self.number);
        if let Some(prefix) = self.prefix {
            let mut shard = self.all.shard(prefix);
            if let Some(entry) = shard.get_mut(&prefix) {
                entry.under_way = entry.under_way.saturating_sub(1);
                if entry.under_way == 0 && entry.expected == Mono::default() {
                    // Nothing else is kept of it.
                    shard.remove(&prefix);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    const NOW: Mono = Mono::from_nanos(5_000_000_000);

    fn limits(handshakes_max: usize, handshakes_per_prefix_max: u32, rate: u32) -> Limits {
        Limits {
            handshakes_max,
            handshakes_per_prefix_max,
            new_connections_per_second_max: NonZeroU32::new(rate),
            ..Limits::default()
        }
    }

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn the_oldest_gives_way() {
        let all = Handshakes::new();
        let limits = limits(2, 100, 0);
        let mut begun: Vec<_> = (0..4).map(|_| all.begin(None, &limits, NOW).unwrap()).collect();
        assert_eq!(all.count(), 2);
        let told: Vec<bool> = begun.iter_mut().map(|one| one.given_way.try_recv().is_ok()).collect();
        assert_eq!(told, [true, true, false, false]);
        drop(begun);
        assert_eq!(all.count(), 0);
    }

    #[test]
    fn a_prefix_has_so_many_handshakes_under_way_and_no_more() {
        let all = Handshakes::new();
        let limits = limits(100, 2, 0);
        let one = all.begin(address("192.0.2.1"), &limits, NOW).unwrap();
        let _two = all.begin(address("::ffff:192.0.2.1"), &limits, NOW).unwrap();
        assert_eq!(all.begin(address("192.0.2.1"), &limits, NOW).err(), Some(Excess::Handshakes));
        let _other = all.begin(address("192.0.2.2"), &limits, NOW).unwrap();
        drop(one);
        let _again = all.begin(address("192.0.2.1"), &limits, NOW).unwrap();
        // Whoever has one address of IPv6 has them all up to the next prefix.
        let _a = all.begin(address("2001:db8::1"), &limits, NOW).unwrap();
        let _b = all.begin(address("2001:db8::ffff:0:1:2"), &limits, NOW).unwrap();
        assert!(all.begin(address("2001:db8::3"), &limits, NOW).is_err());
        assert!(all.begin(address("2001:db8:0:1::3"), &limits, NOW).is_ok());
    }

    #[test]
    fn a_prefix_connects_at_its_rate_with_a_burst_of_a_second() {
        let all = Handshakes::new();
        let limits = limits(100, 2, 10);
        let admitted = |now: Mono, count: usize| {
            (0..count).filter(|_| all.admit(address("192.0.2.1"), &limits, now).is_ok()).count()
        };
        assert_eq!(admitted(NOW, 50), 10);
        assert!(
            all.admit(address("192.0.2.2"), &limits, NOW).is_ok() && all.admit(None, &limits, NOW).is_ok()
        );
        assert_eq!(admitted(NOW.saturating_add(Duration::from_millis(300)), 50), 3);
        assert_eq!(admitted(NOW.saturating_add(Duration::from_secs(60)), 50), 10);
    }

    #[test]
    fn what_is_kept_of_prefixes_is_bounded_and_given_back() {
        let all = Handshakes::new();
        let limits = limits(10, 2, 1);
        let kept = || all.shards.iter().map(|shard| shard.lock().unwrap().len()).sum::<usize>();
        for number in 0..200_000_u32 {
            assert!(all.admit(Some(IpAddr::from(number.to_be_bytes())), &limits, NOW).is_ok());
        }
        assert!(kept() <= SHARDS * PREFIXES_MAX);
        // Those that are over make room.
        let later = NOW.saturating_add(Duration::from_secs(10));
        for number in 0..20_000_u32 {
            assert!(all.admit(Some(IpAddr::from((1 << 31 | number).to_be_bytes())), &limits, later).is_ok());
        }
        assert!(kept() <= 20_000 + PREFIXES_MAX, "{}", kept());
        let all = Handshakes::new();
        drop(all.begin(address("192.0.2.1"), &limits, NOW).unwrap());
        assert_eq!(all.shards.iter().map(|shard| shard.lock().unwrap().len()).sum::<usize>(), 0);
    }
}
