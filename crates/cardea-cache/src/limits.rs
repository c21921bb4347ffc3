//! The limits, inputs, outputs and statistics of a cache.

use std::time::Duration;

use cardea_clock::Mono;
use smallvec::SmallVec;

/// The lifetime of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Until they are evicted.
    Unlimited,
    /// The same for all: exact, and insertion order is expiry order. With zero, nothing is stored.
    Same(Duration),
    /// An own lifetime for each, at most `max`. Deadlines are rounded down by a 32nd of the remaining time or 17 ms,
    /// whichever is more; no lifetime exceeds 100 days. It costs 8 more bytes per entry.
    Own {
        /// The longest lifetime. With zero, nothing is stored.
        max: Duration,
    },
}

/// The bounds of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most entries, below 2^31. With 0, nothing is stored.
    pub entries: usize,
    /// The total weight of entries in bytes, by the function given to [`Cache::weighed`](crate::Cache::weighed).
    /// Heavier entries are never stored.
    pub bytes: usize,
    /// The lifetime of entries.
    pub lifetime: Lifetime,
}

/// The statistics of a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Lookups that found a live entry, including removals that return the value.
    pub hits: u64,
    /// Lookups that found no live entry.
    pub misses: u64,
    /// Stored entries.
    pub stored: u64,
    /// Live entries that were evicted.
    pub evicted: u64,
    /// Entries that were removed because they had expired.
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

/// Removed entries, for the caller to drop outside of locks.
pub type Removed<K, V> = SmallVec<[(K, V); 2]>;

/// The result of an insert.
#[derive(Debug)]
#[must_use = "what was removed is to be dropped outside of a lock"]
pub struct Inserted<K, V> {
    /// Whether the entry is in the cache now. It is not if a limit forbids it, if it has expired already, or if twenty
    /// others have (nearly) the same hash. Its predecessor is removed in any case.
    pub stored: bool,
    /// The predecessor, expired and evicted entries, and the entry itself if it was not stored.
    pub removed: Removed<K, V>,
}

/// An entry to be inserted.
#[derive(Debug, Clone, Copy)]
pub struct Entry<K, V> {
    /// An entry with an equal key is replaced.
    pub key: K,
    /// Its weight must not change while it is in the cache.
    pub value: V,
    /// An earlier expiry than the cache's lifetime. With [`Lifetime::Own`] the earlier one applies; otherwise an entry
    /// that must expire earlier is not stored.
    pub deadline: Option<Mono>,
}
