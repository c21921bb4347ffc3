//! What bounds a cache, what goes in, what comes out, and what is counted.

use std::time::Duration;

use cardea_clock::Mono;
use smallvec::SmallVec;

/// How long entries live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Until something else needs their place.
    Unlimited,
    /// All as long: exact, and the order of insertion is the order of expiry. Zero: nothing is ever stored.
    Same(Duration),
    /// Each as long as is said for it, `max` at the most. Deadlines are rounded down, by a 32nd of the time that is
    /// left or 17 ms, whichever is more; nothing lives longer than 100 days. Costs 8 bytes per entry more.
    Own {
        /// The longest one. Zero: nothing is ever stored.
        max: Duration,
    },
}

/// The bounds of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Entries, below 2^31. 0: nothing is ever stored.
    pub entries: usize,
    /// Sum of what entries weigh, in bytes, by the function given to [`Cache::weighed`](crate::Cache::weighed). What is heavier than that is
    /// never stored.
    pub bytes: usize,
    /// How long they live.
    pub lifetime: Lifetime,
}

/// What has happened so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Lookups that found a live entry; taking one is a lookup.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
    /// Entries that were stored.
    pub stored: u64,
    /// Live entries that went for others.
    pub evicted: u64,
    /// Entries that went because they had expired.
    pub expired: u64,
    /// Entries that were not stored.
    pub refused: u64,
}

impl Stats {
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            stored: self.stored + other.stored,
            evicted: self.evicted + other.evicted,
            expired: self.expired + other.expired,
            refused: self.refused + other.refused,
        }
    }
}

/// Entries that left a cache, for the caller to drop where it costs nobody.
pub type Removed<K, V> = SmallVec<[(K, V); 2]>;

/// What became of an insert.
#[derive(Debug)]
#[must_use = "what was removed is to be dropped outside of a lock"]
pub struct Inserted<K, V> {
    /// Whether the entry is in the cache now. It is not if a limit forbids it, if it has expired already, or if
    /// twenty others have (nearly) the same hash. Its predecessor is gone in any case.
    pub stored: bool,
    /// The predecessor, what expired, what was evicted, and the entry itself if it was not stored.
    pub removed: Removed<K, V>,
}

/// An entry on its way into a cache.
#[derive(Debug, Clone, Copy)]
pub struct Entry<K, V> {
    /// Replaces an entry with an equal key.
    pub key: K,
    /// Must keep its weight while it is in the cache.
    pub value: V,
    /// When it expires, if not by the cache's own lifetime. The earlier one counts with [`Lifetime::Own`]; with another
    /// one an entry that would have to expire earlier than the cache's lifetime says is not stored.
    pub deadline: Option<Mono>,
}
