//! A bounded map with time-to-live and recency whose every operation takes constant time in the worst case.
//!
//! [`Cache`] is for one thread, [`Sharded`] puts caches behind locks for many. Both never return an expired
//! entry, and an expired entry never costs a live one its place: while one is left, it goes first (in
//! `Sharded`: within a shard). What goes otherwise is decided by recency, with a visited bit and a hand (SIEVE).
//!
//! # What an operation costs
//! An entry is one slot in a slab, a cache line where key and value take at most 48 bytes. A key has its place in one
//! of two lines of the index, nineteen of twenty in the first one, and no line says where another one is. So a `get`
//! touches two or three lines and waits for memory twice at any size: for the index, then for the slot. An `insert` into
//! a full cache waits four times at the most: for each slot that the hand comes to but the first, which the last eviction
//! has touched ([`HAND_STEPS_MAX`]), then for the line of the index that the evicted key leaves; its neighbours and the
//! lines of the new key are fetched meanwhile. (For the bound in bytes up to sixteen go, and each is waited for.) What is
//! removed is waited for three times: its neighbours come last. Nothing is ever scanned, rehashed or moved. The tests of
//! this crate count the lines and the waits; `cargo bench -p cardea-cache --bench session_cache` measures the time, beside
//! other caches.
//!
//! An entry takes 84 bytes beside what its key and value hold elsewhere: 64 of the slot, 16 of the index, 4 that lead
//! from the one to the other; 8 more where lifetimes are its own.
//!
//! Address space for all entries is reserved when a cache is made, and memory is used as entries come: growth stalls
//! nobody, and an empty cache costs nearly nothing.
//!
//! # Time
//! `now` is an argument. An entry is live while `now` is before its deadline; a `now` that is older than one seen
//! before counts as that one, so that threads with stale readings do no harm. See [`Lifetime`].

mod cache;
mod index;
mod limits;
mod sharded;
mod slab;
mod touched;
mod wheel;

pub use cache::{Cache, HAND_STEPS_MAX};
pub use limits::{Entry, Inserted, Lifetime, Limits, Removed, Stats};
pub use sharded::{SHARDS_PER_THREAD, Sharded};

/// Why a cache can't be created: an error of its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitsError {
    /// More entries than a cache supports.
    #[error("a cache holds at most {max} entries, not {entries}")]
    TooMany {
        /// The requested number.
        entries: usize,
        /// The limit of one cache, or of each shard.
        max: usize,
    },
    /// The system has no address space for so many entries.
    #[error("no memory for a cache of {entries} entries")]
    OutOfMemory {
        /// The requested number.
        entries: usize,
    },
}
