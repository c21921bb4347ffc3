//! The multi-threaded cache: caches behind locks, one of which is held for each operation.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
#[cfg(not(test))]
use std::sync::Mutex;
use std::sync::{MutexGuard, PoisonError};

use cardea_clock::Mono;

use crate::LimitsError;
use crate::cache::{Cache, Found};
use crate::limits::{Entry, Limits, Removed, Stats};
#[cfg(test)]
use schedule::Mutex;

/// Shards for each thread that uses a cache concurrently, so that lock contention is rare. Measured with two threads: a
/// quarter as many cost a fifth to a third more time, and four times as many save a sixth at most.
pub const SHARDS_PER_THREAD: usize = 16;

/// Below this size, halving a shard wastes more entries (some shards fill before others) than a lock is worth.
const SHARD_ENTRIES_MIN: usize = 512;

/// A [`Cache`] in shards by hash, each behind its lock. Keys are hashed before a lock is taken, and removed entries are
/// dropped after it was released.
///
/// The properties of a cache hold for each shard: a full one evicts although another one has room or expired entries.
/// By chance that leaves about √(shard's entries) positions of a shard unused.
pub struct Sharded<K, V, S = RandomState> {
    shards: Box<[Shard<K, V, S>]>,
    hasher: S,
}

/// Alone in its cache lines, so that no lock slows its neighbour.
#[repr(align(128))]
struct Shard<K, V, S>(Mutex<Cache<K, V, S>>);

impl<K: Hash + Eq, V> Sharded<K, V> {
    /// An empty cache whose entries have no weight; see [`Sharded::weighed`].
    ///
    /// # Errors
    /// If the limits can't be met.
    pub fn new(limits: Limits, shards: usize) -> Result<Self, LimitsError> {
        Self::weighed(limits, shards, |_, _| 0, RandomState::new())
    }
}

impl<K: Hash + Eq, V, S: BuildHasher + Clone> Sharded<K, V, S> {
    /// An empty cache of about `shards` shards: the next power of two ([`SHARDS_PER_THREAD`] are good), fewer if they
    /// had less than 512 entries each. The limits are those of all shards together; nothing heavier than a
    /// shard's part of the bytes is stored.
    ///
    /// # Errors
    /// If the limits ask for more than can be had.
    pub fn weighed(
        limits: Limits,
        shards: usize,
        weigh: fn(&K, &V) -> usize,
        hasher: S,
    ) -> Result<Self, LimitsError> {
        let most = (limits.entries / SHARD_ENTRIES_MIN).max(1);
        let count = shards.clamp(1, most.min(1 << 16)).next_power_of_two();
        let count = if count > most { count / 2 } else { count };
        let shard = |number: usize| {
            let part = |whole: usize| whole / count + usize::from(number < whole % count);
            let limits = Limits { entries: part(limits.entries), bytes: part(limits.bytes), ..limits };
            Cache::weighed(limits, weigh, hasher.clone()).map(|cache| Shard(Mutex::new(cache)))
        };
        Ok(Self { shards: (0..count).map(shard).collect::<Result<_, _>>()?, hasher })
    }

    /// Inserts an entry with the cache's lifetime; returns whether it was stored.
    pub fn insert(&self, key: K, value: V, now: Mono) -> bool {
        self.insert_entry(Entry { key, value, deadline: None }, now)
    }

    /// Inserts an entry; returns whether it was stored. See [`Cache::insert_entry`].
    pub fn insert_entry(&self, entry: Entry<K, V>, now: Mono) -> bool {
        let hash = self.hasher.hash_one(&entry.key);
        let inserted = self.shard(hash).insert_hashed(hash, entry, now);
        inserted.stored
    }

    /// A clone of a live entry's value, made under the lock: for values with cheap clones.
    pub fn get<Q>(&self, key: &Q, now: Mono) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
        V: Clone,
    {
        self.get_with(key, now, V::clone)
    }

    /// The result of `read` on a live entry's value, under the lock.
    pub fn get_with<Q, R>(&self, key: &Q, now: Mono, read: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard(hash);
        match shard.look_up(hash, key, now) {
            Found::Live(at, _) => shard.visit(at).map(read),
            Found::Expired(entry) => {
                drop(shard);
                drop(entry);
                None
            }
            Found::Nothing => None,
        }
    }

    /// Removes a live entry and returns its value: of concurrent callers, one gets it.
    pub fn take<Q>(&self, key: &Q, now: Mono) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard(hash);
        let (entry, is_live) = match shard.look_up(hash, key, now) {
            Found::Live(at, place) => (shard.remove_at(at, place), true),
            Found::Expired(entry) => (Some(entry), false),
            Found::Nothing => (None, false),
        };
        drop(shard);
        entry.filter(|_| is_live).map(|(_, value)| value)
    }

    /// Removes an entry, live or expired.
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        let entry = self.shard(hash).remove_hashed(hash, key);
        entry.map(|(_, value)| value)
    }

    /// Removes at most `max` expired entries of each shard, and returns their number: for a timer.
    pub fn reclaim(&self, max: usize, now: Mono) -> usize {
        let reclaim = |shard: &Shard<K, V, S>| {
            let removed: Removed<K, V> = shard.lock().reclaim(max, now);
            removed.len()
        };
        self.shards.iter().map(reclaim).sum()
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Cache<K, V, S>> {
        // The low half of the hash; the index of the shard uses the other one.
        let mask = self.shards.len() - 1;
        self.shards[hash as usize & mask].lock()
    }
}

impl<K, V, S> Sharded<K, V, S> {
    /// The number of entries, live and expired. Takes each lock in turn.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Whether there is no entry, not even an expired one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The weight of all entries, in bytes. Takes each lock in turn.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().bytes()).sum()
    }

    /// The statistics. Takes each lock in turn.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shards.iter().map(|shard| shard.lock().stats()).fold(Stats::default(), Stats::plus)
    }
}

impl<K, V, S> Shard<K, V, S> {
    fn lock(&self) -> MutexGuard<'_, Cache<K, V, S>> {
        // Only the code of keys and values can panic while it is held, and a cache calls that only in a consistent
        // state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V, S> fmt::Debug for Sharded<K, V, S> {
    /// Omits keys and values, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharded").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod schedule;
#[cfg(test)]
mod tests;
