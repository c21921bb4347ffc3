//! The measured caches, each as a server with many threads would use it.

use std::hash::{Hash, Hasher};
use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use cardea_cache::{Lifetime, Limits, SHARDS_PER_THREAD, Sharded};
use cardea_clock::Mono;
use rustls::server::{ServerSessionMemoryCache, StoresServerSessions};

/// A session id. A part of random bytes suffices as hash, as in the session store of `cardea-tls`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(pub(crate) [u8; 32]);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (words, _) = self.0.as_chunks();
        state.write_u64(u64::from_le_bytes(words[0]));
        state.write_u64(u64::from_le_bytes(words[1]));
    }
}

/// A cache of words.
pub(crate) trait Subject: Sync {
    const NAME: &str;
    /// Whether entries can expire. Other caches are measured without expiry.
    const HAS_LIFETIME: bool;
    /// Whether it is given the time, and reclaims expired entries.
    const HAS_TIME: bool = false;
    /// The most removals in a sample.
    const REMOVES_MAX: u64 = u64::MAX;

    fn new(entries: usize, lifetime: Option<Duration>) -> Self;
    fn put(&self, key: Key, value: u64, now: Mono);
    fn get(&self, key: &Key, now: Mono) -> Option<u64>;
    fn remove(&self, key: &Key);
}

/// Hashes as the session store of `cardea-tls` does.
pub(crate) struct Cardea(Sharded<Key, u64, foldhash::quality::RandomState>);

impl Subject for Cardea {
    const NAME: &str = "cardea";
    const HAS_LIFETIME: bool = true;
    const HAS_TIME: bool = true;

    fn new(entries: usize, lifetime: Option<Duration>) -> Self {
        let lifetime = lifetime.map_or(Lifetime::Unlimited, Lifetime::Same);
        let limits = Limits { entries, bytes: usize::MAX, lifetime };
        let shards = SHARDS_PER_THREAD * thread::available_parallelism().map_or(1, usize::from);
        let hasher = foldhash::quality::RandomState::default();
        Self(Sharded::weighed(limits, shards, |_, _| 0, hasher).expect("so many can be had"))
    }

    fn put(&self, key: Key, value: u64, now: Mono) {
        self.0.insert(key, value, now);
    }

    fn get(&self, key: &Key, now: Mono) -> Option<u64> {
        self.0.get(key, now)
    }

    fn remove(&self, key: &Key) {
        self.0.remove(key);
    }
}

/// The session store of rustls. Its interface uses vectors, whose allocation is counted because it can't be avoided.
pub(crate) struct Rustls(Arc<ServerSessionMemoryCache>);

impl Subject for Rustls {
    const NAME: &str = "rustls";
    const HAS_LIFETIME: bool = false;
    /// It searches for the key among all entries.
    const REMOVES_MAX: u64 = 8;

    fn new(entries: usize, _: Option<Duration>) -> Self {
        Self(ServerSessionMemoryCache::new(entries))
    }

    fn put(&self, key: Key, value: u64, _: Mono) {
        self.0.put(key.0.to_vec(), value.to_le_bytes().to_vec());
    }

    fn get(&self, key: &Key, _: Mono) -> Option<u64> {
        self.0.get(&key.0).map(|value| u64::from_le_bytes(value.as_chunks().0[0]))
    }

    fn remove(&self, key: &Key) {
        self.0.take(&key.0);
    }
}

/// The crate `lru` behind a lock, with our hash.
pub(crate) struct LeastRecent(Mutex<lru::LruCache<Key, (u64, u64), foldhash::quality::RandomState>>, u64);

impl Subject for LeastRecent {
    const NAME: &str = "lru-mutex";
    /// Checked at each lookup, as is usual with this crate.
    const HAS_LIFETIME: bool = true;

    fn new(entries: usize, lifetime: Option<Duration>) -> Self {
        let entries = NonZero::new(entries).expect("more than none");
        let cache = lru::LruCache::with_hasher(entries, foldhash::quality::RandomState::default());
        let lifetime = lifetime.map_or(u64::MAX, |lifetime| lifetime.as_nanos() as u64);
        Self(Mutex::new(cache), lifetime)
    }

    fn put(&self, key: Key, value: u64, now: Mono) {
        let deadline = now.nanos().saturating_add(self.1);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(key, (value, deadline));
    }

    fn get(&self, key: &Key, now: Mono) -> Option<u64> {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(key).filter(|(_, deadline)| now.nanos() < *deadline).map(|(value, _)| *value)
    }

    fn remove(&self, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop(key);
    }
}

/// It defers much of its work to batches, a part of which is measured.
pub(crate) struct Moka(moka::sync::Cache<Key, u64, foldhash::quality::RandomState>);

impl Subject for Moka {
    const NAME: &str = "moka";
    const HAS_LIFETIME: bool = true;

    fn new(entries: usize, lifetime: Option<Duration>) -> Self {
        let builder = moka::sync::Cache::builder().max_capacity(entries as u64);
        let builder = match lifetime {
            Some(lifetime) => builder.time_to_live(lifetime),
            None => builder,
        };
        Self(builder.build_with_hasher(foldhash::quality::RandomState::default()))
    }

    fn put(&self, key: Key, value: u64, _: Mono) {
        self.0.insert(key, value);
    }

    fn get(&self, key: &Key, _: Mono) -> Option<u64> {
        self.0.get(key)
    }

    fn remove(&self, key: &Key) {
        self.0.invalidate(key);
    }
}

pub(crate) struct QuickCache(
    quick_cache::sync::Cache<Key, u64, quick_cache::UnitWeighter, foldhash::quality::RandomState>,
);

impl Subject for QuickCache {
    const NAME: &str = "quick_cache";
    const HAS_LIFETIME: bool = false;

    fn new(entries: usize, _: Option<Duration>) -> Self {
        Self(quick_cache::sync::Cache::with(
            entries,
            entries as u64,
            quick_cache::UnitWeighter,
            foldhash::quality::RandomState::default(),
            quick_cache::sync::DefaultLifecycle::default(),
        ))
    }

    fn put(&self, key: Key, value: u64, _: Mono) {
        self.0.insert(key, value);
    }

    fn get(&self, key: &Key, _: Mono) -> Option<u64> {
        self.0.get(key)
    }

    fn remove(&self, key: &Key) {
        self.0.remove(key);
    }
}

/// As many locks as `Cardea` has, each with a counter: the cost of lock contention without a cache.
pub(crate) struct Locks(Box<[Locked]>);

/// Alone in its cache lines.
#[repr(align(128))]
struct Locked(Mutex<u64>);

impl Locks {
    fn count(&self, key: &Key) {
        let (words, _) = key.0.as_chunks();
        let at = u64::from_le_bytes(words[0]) as usize % self.0.len();
        *self.0[at].0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }
}

impl Subject for Locks {
    const NAME: &str = "locks-alone";
    const HAS_LIFETIME: bool = true;

    fn new(_: usize, _: Option<Duration>) -> Self {
        let shards = SHARDS_PER_THREAD * thread::available_parallelism().map_or(1, usize::from);
        Self((0..shards.next_power_of_two()).map(|_| Locked(Mutex::new(0))).collect())
    }

    fn put(&self, key: Key, _: u64, _: Mono) {
        self.count(&key);
    }

    fn get(&self, key: &Key, _: Mono) -> Option<u64> {
        self.count(key);
        None
    }

    fn remove(&self, key: &Key) {
        self.count(key);
    }
}
