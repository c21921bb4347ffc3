//! The single-threaded cache: insertion, lookup and eviction.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

use cardea_clock::Mono;

use crate::LimitsError;
use crate::index::{Index, Place};
use crate::limits::{Entry, Inserted, Lifetime, Limits, Removed, Stats};
use crate::slab::Slab;
use crate::wheel::{Bucket, Wheel};

/// The most slots that the hand visits for one eviction. Each is a cache line that leads to the next one.
///
/// Without this bound, a hand can pass all entries if all were used. Four steps lose less than a percentage point of
/// hits if there are a hundred times as many clients as entries, and hardly any otherwise: `cargo bench -p cardea-cache
/// --bench hit_ratio -- --steps`.
pub const HAND_STEPS_MAX: usize = 4;

/// Expired entries that an insert removes although there is room: more than it adds, so that they disappear while
/// inserts continue, and few, so that no insert pays for all.
const RECLAIMED_PER_INSERT: usize = 2;
/// The most entries that one insert evicts for the bound in bytes.
const EVICTED_PER_INSERT: usize = 16;

/// A bounded map whose operations take constant time in the worst case; see the crate's documentation.
///
/// The default hash is keyed by a secret of the process (SipHash-1-3), for keys that clients choose.
#[repr(C)]
pub struct Cache<K, V, S = RandomState> {
    // Fields that every operation writes come first: behind a lock, they share the lock's cache line. A lookup writes
    // no other line, and an eviction finds its start there. Statistics come last, because the lines in between are only
    // read and stay shared between processors.
    /// The latest time seen, in nanoseconds.
    now: u64,
    hits: u64,
    misses: u64,
    slab: Slab<K, V>,
    index: Index,
    /// With [`Lifetime::Own`]; otherwise the slab's oldest entry expires first.
    wheel: Option<Box<Wheel>>,
    limits: Limits,
    weigh: fn(&K, &V) -> usize,
    hasher: S,
    bytes: usize,
    stored: u64,
    evicted: u64,
    expired: u64,
    refused: u64,
}

/// The expiry of an entry.
#[derive(Clone, Copy)]
struct Term {
    /// In nanoseconds.
    deadline: u64,
    bucket: Option<Bucket>,
}

/// The result of a lookup.
pub(crate) enum Found<K, V> {
    /// Live, in this slot, with this position in the index.
    Live(u32, Place),
    /// Expired; removed by the lookup.
    Expired((K, V)),
    Nothing,
}

impl<K: Hash + Eq, V> Cache<K, V> {
    /// An empty cache whose entries have no weight.
    ///
    /// # Errors
    /// If the limits can't be met.
    pub fn new(limits: Limits) -> Result<Self, LimitsError> {
        Self::weighed(limits, |_, _| 0, RandomState::new())
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> Cache<K, V, S> {
    /// An empty cache. `weigh` returns the size of an entry in bytes, always the same for the same entry.
    ///
    /// # Errors
    /// If the limits can't be met.
    pub fn weighed(limits: Limits, weigh: fn(&K, &V) -> usize, hasher: S) -> Result<Self, LimitsError> {
        let wheel = match limits.lifetime {
            Lifetime::Own { .. } => Some(Box::new(Wheel::new(limits.entries)?)),
            Lifetime::Unlimited | Lifetime::Same(_) => None,
        };
        let slab = Slab::new(limits.entries)?;
        let index = Index::new(limits.entries)?;
        Ok(Self {
            now: 0,
            hits: 0,
            misses: 0,
            slab,
            index,
            wheel,
            limits,
            weigh,
            hasher,
            bytes: 0,
            stored: 0,
            evicted: 0,
            expired: 0,
            refused: 0,
        })
    }

    /// Inserts an entry with the cache's lifetime.
    pub fn insert(&mut self, key: K, value: V, now: Mono) -> Inserted<K, V> {
        self.insert_entry(Entry { key, value, deadline: None }, now)
    }

    /// Inserts an entry. A full cache evicts an expired one, or else the one that recency selects.
    pub fn insert_entry(&mut self, entry: Entry<K, V>, now: Mono) -> Inserted<K, V> {
        let hash = self.hasher.hash_one(&entry.key);
        self.insert_hashed(hash, entry, now)
    }

    /// The value of a live entry, which is marked as used.
    pub fn get<Q>(&mut self, key: &Q, now: Mono) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        match self.look_up(self.hasher.hash_one(key), key, now) {
            Found::Live(at, _) => self.visit(at),
            Found::Expired(_) | Found::Nothing => None,
        }
    }

    /// Removes a live entry and returns its value: of concurrent callers, one gets it.
    pub fn take<Q>(&mut self, key: &Q, now: Mono) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        match self.look_up(self.hasher.hash_one(key), key, now) {
            Found::Live(at, place) => self.remove_at(at, place).map(|(_, value)| value),
            Found::Expired(_) | Found::Nothing => None,
        }
    }

    /// Removes an entry, live or expired.
    pub fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.remove_hashed(self.hasher.hash_one(key), key).map(|(_, value)| value)
    }

    /// Removes at most `max` expired entries: for a timer, so that unused entries free their memory.
    pub fn reclaim(&mut self, max: usize, now: Mono) -> Removed<K, V> {
        self.advance(now);
        let mut removed = Removed::new();
        self.reclaim_into(&mut removed, max);
        removed
    }

    pub(crate) fn insert_hashed(&mut self, hash: u64, entry: Entry<K, V>, now: Mono) -> Inserted<K, V> {
        let Entry { key, value, deadline } = entry;
        self.advance(now);
        let weight = (self.weigh)(&key, &value);
        let mut removed = Removed::new();
        // Nothing that is removed below takes a free position.
        let (place, used) = match self.find(hash, &key) {
            Some((at, place)) => {
                // A repeated insert counts as a use, as a lookup does.
                let used = self.now < self.slab.deadline(at);
                self.remove_into(&mut removed, at, place);
                (Some(place), used)
            }
            None => (self.index.free(hash), false),
        };
        self.reclaim_into(&mut removed, RECLAIMED_PER_INSERT);
        let stored = place.zip(self.term(deadline)).filter(|_| self.make_room(weight, &mut removed));
        let Some((place, term)) = stored else {
            self.refused += 1;
            removed.push((key, value));
            return Inserted { stored: false, removed };
        };
        let at = self.slab.push(key, value, term.deadline, used);
        self.index.insert(hash, at, place);
        if let (Some(wheel), Some(bucket)) = (&mut self.wheel, term.bucket) {
            wheel.insert(at, bucket);
        }
        self.bytes += weight;
        self.stored += 1;
        Inserted { stored: true, removed }
    }

    pub(crate) fn look_up<Q>(&mut self, hash: u64, key: &Q, now: Mono) -> Found<K, V>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.advance(now);
        match self.find(hash, key) {
            Some((at, place)) if self.now < self.slab.deadline(at) => {
                self.hits += 1;
                Found::Live(at, place)
            }
            Some((at, place)) => {
                self.misses += 1;
                self.expired += 1;
                self.remove_at(at, place).map_or(Found::Nothing, Found::Expired)
            }
            None => {
                self.misses += 1;
                Found::Nothing
            }
        }
    }

    /// The value in a slot that a lookup found, which is marked as used.
    pub(crate) fn visit(&mut self, at: u32) -> Option<&V> {
        self.slab.visit(at);
        self.slab.entry(at).map(|(_, value)| value)
    }

    pub(crate) fn remove_hashed<Q>(&mut self, hash: u64, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let (at, place) = self.find(hash, key)?;
        self.remove_at(at, place)
    }

    #[inline]
    fn find<Q>(&self, hash: u64, key: &Q) -> Option<(u32, Place)>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.index.find(hash, |at| self.slab.entry(at).is_some_and(|(other, _)| other.borrow() == key))
    }

    #[inline]
    fn advance(&mut self, now: Mono) {
        // Half of the range is 292 years; the other half is for deadlines.
        let now = now.nanos().min(u64::MAX / 2);
        if self.now < now {
            self.now = now;
            if let Some(wheel) = &mut self.wheel {
                wheel.advance(now);
            }
        }
    }

    /// The expiry of an entry that is inserted now; `None` if it must not be stored.
    fn term(&self, deadline: Option<Mono>) -> Option<Term> {
        if self.limits.entries == 0 {
            return None;
        }
        let after = |lifetime| Mono::from_nanos(self.now).saturating_add(lifetime).nanos();
        let own = deadline.map_or(u64::MAX, Mono::nanos);
        match self.limits.lifetime {
            Lifetime::Unlimited => (own == u64::MAX).then_some(Term { deadline: u64::MAX, bucket: None }),
            Lifetime::Same(lifetime) => {
                let deadline = after(lifetime);
                (self.now < deadline && deadline <= own).then_some(Term { deadline, bucket: None })
            }
            Lifetime::Own { max } => Bucket::of(own.min(after(max)), self.now)
                .map(|bucket| Term { deadline: bucket.deadline(), bucket: Some(bucket) }),
        }
    }

    /// Evicts until one more entry of this weight fits; `false` if that isn't enough.
    fn make_room(&mut self, weight: usize, removed: &mut Removed<K, V>) -> bool {
        if weight > self.limits.bytes {
            return false;
        }
        for _ in 0..EVICTED_PER_INSERT {
            if self.has_room(weight) {
                return true;
            }
            let expired = self.any_expired();
            let Some(at) = expired.or_else(|| self.slab.sweep(HAND_STEPS_MAX)) else { return false };
            let counter = if expired.is_some() { &mut self.expired } else { &mut self.evicted };
            *counter += 1;
            self.remove_into(removed, at, self.index.place_of(at));
        }
        self.has_room(weight)
    }

    fn has_room(&self, weight: usize) -> bool {
        self.slab.len() < self.limits.entries && weight <= self.limits.bytes - self.bytes
    }

    fn reclaim_into(&mut self, removed: &mut Removed<K, V>, max: usize) {
        for _ in 0..max {
            let Some(at) = self.any_expired() else { return };
            self.expired += 1;
            self.remove_into(removed, at, self.index.place_of(at));
        }
    }

    fn any_expired(&self) -> Option<u32> {
        match &self.wheel {
            Some(wheel) => wheel.any_expired(),
            None => self.slab.oldest().filter(|_| self.slab.oldest_deadline() <= self.now),
        }
    }

    fn remove_into(&mut self, removed: &mut Removed<K, V>, at: u32, place: Place) {
        if let Some(entry) = self.remove_at(at, place) {
            removed.push(entry);
        }
    }

    /// Removes an entry from all structures.
    pub(crate) fn remove_at(&mut self, at: u32, place: Place) -> Option<(K, V)> {
        let (key, value) = self.slab.entry(at)?;
        // Foreign code runs first: if it panics, nothing has changed.
        self.bytes = self.bytes.saturating_sub((self.weigh)(key, value));
        self.index.remove(place);
        if let Some(wheel) = &mut self.wheel {
            wheel.remove(at);
        }
        self.slab.remove(at)
    }
}

impl<K, V, S> Cache<K, V, S> {
    /// The number of entries, live and expired.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether there is no entry, not even an expired one.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The weight of all entries, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The statistics.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        let Self { hits, misses, stored, evicted, expired, refused, .. } = *self;
        Stats { hits, misses, stored, evicted, expired, refused }
    }
}

impl<K, V, S> fmt::Debug for Cache<K, V, S> {
    /// Omits keys and values, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("limits", &self.limits)
            .field("len", &self.len())
            .field("bytes", &self.bytes)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
