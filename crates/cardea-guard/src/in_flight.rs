//! How many requests each key has in flight, in a table of fixed size.
//!
//! A key's hash names a bucket of [`WAYS`] slots; a bucket with its lock fills two adjacent cache lines. A slot belongs to a key
//! for as long as the key has requests in flight.
//!
//! **Full buckets.** A key that finds no free slot is counted in the bucket's *shared* count, together with all others that found
//! none. For as long as that count is not zero, every key without a slot is counted there, even if a slot has become free. So all
//! requests of a key are in one count, and no key ever has more in flight than its limit. The price is that keys that share a
//! count may be refused early. An attacker can't choose whom that befalls, because it does not know the hash.

use std::{
    fmt,
    hash::{BuildHasher as _, Hash, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Slots of a bucket: with its lock, it has 120 bytes.
const WAYS: usize = 9;
/// Keys in flight for each bucket that a table is made for. The number of a bucket varies: with a Poisson distribution, one
/// bucket in thirty has more than [`WAYS`].
const KEYS_EXPECTED: usize = 5;

/// The keys that have requests in flight.
pub struct InFlightTable {
    buckets: Box<[Bucket]>,
    /// With a random key, so that nobody can choose keys for the same bucket.
    hasher: RandomState,
    shared: AtomicU64,
}

/// Alone in its pair of cache lines, so that no lock slows its neighbour.
#[derive(Default)]
#[repr(align(128))]
struct Bucket(Mutex<Slots>);

/// The keys of a bucket, by hash. A slot whose count is zero is free.
#[derive(Debug, Default)]
struct Slots {
    hashes: [u64; WAYS],
    counts: [u32; WAYS],
    /// Requests of keys without a slot.
    shared: u32,
}

/// Where requests of a key are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Slot(u8),
    Shared,
}

impl InFlightTable {
    /// A table for this many keys that have requests in flight at the same time. Allocates 26 to 52 bytes for each.
    #[must_use]
    pub fn new(keys_max: usize) -> Self {
        let count = keys_max.div_ceil(KEYS_EXPECTED).next_power_of_two();
        Self {
            buckets: (0..count).map(|_| Bucket::default()).collect(),
            hasher: RandomState::new(),
            shared: AtomicU64::new(0),
        }
    }

    /// The hash of a key, in this table alone.
    #[must_use]
    pub fn hash(&self, key: impl Hash) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Counts a request of the key with this [hash](Self::hash) until the place is dropped, unless the key has `max` requests in
    /// flight.
    #[must_use]
    pub fn enter(self: &Arc<Self>, hash: u64, max: u32) -> Option<InFlightPlace> {
        let index = self.index(hash)?;
        let mut slots = self.buckets.get(index)?.lock();
        let way = slots.find(hash);
        let count = slots.count_mut(way)?;
        if *count >= max {
            return None;
        }
        *count = count.checked_add(1)?;
        match way {
            Way::Slot(way) => {
                if let Some(known) = slots.hashes.get_mut(usize::from(way)) {
                    *known = hash;
                }
            }
            Way::Shared => {
                self.shared.fetch_add(1, Relaxed);
            }
        }
        drop(slots);
        Some(InFlightPlace { table: Arc::clone(self), index: u32::try_from(index).ok()?, way })
    }

    /// How many requests a key has in flight, or those of all keys with which it shares a count.
    #[must_use]
    pub fn count(&self, hash: u64) -> u32 {
        let bucket = self.index(hash).and_then(|index| self.buckets.get(index));
        bucket.map_or(0, |bucket| {
            let mut slots = bucket.lock();
            let way = slots.find(hash);
            slots.count_mut(way).map_or(0, |count| *count)
        })
    }

    /// The number of keys that have a slot; a gauge. Looks at all slots.
    #[must_use]
    pub fn keys(&self) -> usize {
        let used = |bucket: &Bucket| bucket.lock().counts.iter().filter(|count| **count > 0).count();
        self.buckets.iter().map(used).sum()
    }

    /// How many requests were counted together with those of other keys.
    #[must_use]
    pub fn shared(&self) -> u64 {
        self.shared.load(Relaxed)
    }

    fn index(&self, hash: u64) -> Option<usize> {
        // A power of two, so that the remainder is the low bits.
        usize::try_from(hash & (self.buckets.len() as u64).wrapping_sub(1)).ok()
    }
}

impl fmt::Debug for InFlightTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlightTable").field("slots", &(self.buckets.len() * WAYS)).finish_non_exhaustive()
    }
}

impl Bucket {
    fn lock(&self) -> MutexGuard<'_, Slots> {
        // Nothing under it panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    /// Where the key with this hash is counted, or would be.
    fn find(&self, hash: u64) -> Way {
        let mut free = Way::Shared;
        for (way, (known, count)) in (0..).zip(self.hashes.iter().zip(self.counts)) {
            if count == 0 {
                if free == Way::Shared {
                    free = Way::Slot(way);
                }
            } else if *known == hash {
                return Way::Slot(way);
            }
        }
        // The key may be among those that share a count.
        if self.shared > 0 { Way::Shared } else { free }
    }

    fn count_mut(&mut self, way: Way) -> Option<&mut u32> {
        match way {
            Way::Slot(way) => self.counts.get_mut(usize::from(way)),
            Way::Shared => Some(&mut self.shared),
        }
    }
}

impl InFlightPlace {
    /// How many requests are in flight that count as this one's key.
    pub(crate) fn count(&self) -> u32 {
        let bucket = self.table.buckets.get(self.index as usize);
        bucket.map_or(0, |bucket| bucket.lock().count_mut(self.way).map_or(0, |count| *count))
    }

    /// Whether it is one of this table.
    pub(crate) fn is_of(&self, table: &Arc<InFlightTable>) -> bool {
        Arc::ptr_eq(&self.table, table)
    }
}

/// A request in flight, which is counted until this is dropped.
pub struct InFlightPlace {
    table: Arc<InFlightTable>,
    index: u32,
    way: Way,
}

impl Drop for InFlightPlace {
    fn drop(&mut self) {
        if let Some(bucket) = self.table.buckets.get(self.index as usize)
            && let Some(count) = bucket.lock().count_mut(self.way)
        {
            *count = count.saturating_sub(1);
        }
    }
}

impl fmt::Debug for InFlightPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlightPlace").field("index", &self.index).field("way", &self.way).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU32, Ordering::SeqCst},
        thread,
    };

    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn a_bucket_fills_two_cache_lines() {
        assert_eq!(size_of::<Bucket>(), 128);
    }

    #[test]
    fn each_key_has_as_many_in_flight_as_it_may_and_more_once_some_have_ended() {
        let table = Arc::new(InFlightTable::new(100));
        for key in ["a", "b"] {
            let hash = table.hash(key);
            let mut places: Vec<_> = (0..3).map(|_| table.enter(hash, 3).unwrap()).collect();
            assert!(table.enter(hash, 3).is_none());
            assert_eq!(table.count(hash), 3);
            places.pop();
            let _place = table.enter(hash, 3).unwrap();
            assert!(table.enter(hash, 3).is_none());
            assert_eq!(table.keys(), 1);
        }
        assert_eq!(table.keys(), 0);
        assert_eq!(table.shared(), 0);
    }

    #[test]
    fn keys_without_a_slot_share_a_count_until_none_has_any_in_flight() {
        let table = Arc::new(InFlightTable::new(1));
        let mut own: Vec<_> = (0..WAYS as u64).map(|hash| table.enter(hash, 2).unwrap()).collect();
        let shared = [table.enter(100, 2).unwrap(), table.enter(101, 2).unwrap()];
        assert!(table.enter(100, 2).is_none() && table.enter(102, 2).is_none(), "they share one limit");
        assert_eq!(table.shared(), 2);
        // A free slot is no second count for a key that has requests in the shared one.
        own.pop();
        assert!(table.enter(100, 2).is_none());
        let [one, other] = shared;
        drop(one);
        let again = table.enter(100, 2).unwrap();
        assert_eq!(again.way, Way::Shared);
        drop((again, other));
        assert_eq!(table.enter(100, 2).unwrap().way, Way::Slot(WAYS as u8 - 1));
    }

    proptest! {
        /// Whatever comes and goes: no key exceeds its limit, and only keys that share a count are refused early.
        #[test]
        fn counts_are_those_of_a_list(
            steps in vec((0..30_u64, 0..4_usize), 1..400),
            max in 1..5_u32,
            buckets in 1..4_usize,
        ) {
            let table = Arc::new(InFlightTable::new(buckets * KEYS_EXPECTED));
            let mut held: Vec<(u64, InFlightPlace)> = Vec::new();
            for (key, action) in steps {
                // Hashes that are spread over all buckets.
                let hash = key;
                let in_flight = held.iter().filter(|(known, _)| *known == key).count() as u32;
                if action == 0 {
                    if !held.is_empty() {
                        let at = key as usize % held.len();
                        held.swap_remove(at);
                    }
                    continue;
                }
                let shares = {
                    let slots = table.buckets[table.index(hash).unwrap()].lock();
                    slots.find(hash) == Way::Shared
                };
                match table.enter(hash, max) {
                    Some(place) => {
                        prop_assert!(in_flight < max);
                        held.push((key, place));
                    }
                    None => prop_assert!(shares || in_flight == max),
                }
            }
            let keys: std::collections::HashSet<u64> = held.iter().map(|(key, _)| *key).collect();
            prop_assert!(table.keys() <= keys.len());
            for key in keys {
                let in_flight = held.iter().filter(|(known, _)| *known == key).count() as u32;
                prop_assert!(table.count(key) >= in_flight);
            }
            held.clear();
            prop_assert!((0..30).all(|key| table.count(key) == 0));
        }
    }

    #[test]
    fn of_many_threads_exactly_as_many_are_in_flight_as_may_be() {
        const MAX: u32 = 3;
        let table = Arc::new(InFlightTable::new(1));
        let (in_flight, most, entered) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        let Some(place) = table.enter(7, MAX) else { continue };
                        most.fetch_max(in_flight.fetch_add(1, SeqCst) + 1, SeqCst);
                        entered.fetch_add(1, SeqCst);
                        in_flight.fetch_sub(1, SeqCst);
                        drop(place);
                    }
                });
            }
        });
        assert!(most.load(SeqCst) <= MAX, "{most:?}");
        assert!(entered.load(SeqCst) >= 5_000);
        assert_eq!(table.count(7), 0);
        let places: Vec<_> = (0..MAX).map(|_| table.enter(7, MAX)).collect();
        assert!(places.iter().all(Option::is_some) && table.enter(7, MAX).is_none());
    }
}
