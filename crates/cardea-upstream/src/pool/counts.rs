//! What a pool counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::usage::End;

/// A pool's gauge and counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Idle connections now.
    pub idle: usize,
    /// Connections taken for another request.
    pub reused: u64,
    /// Connections dropped because they were idle for too long, by the configuration or by what their endpoint said.
    pub expired: u64,
    /// Connections dropped because they were too old.
    pub aged: u64,
    /// Connections dropped because they had as many requests as the configuration or their endpoint allows.
    pub used_up: u64,
    /// Connections dropped because they were found dead when they were to be used.
    pub dead: u64,
    /// Connections not kept because the pool was full or closed, or given up to make room.
    pub surplus: u64,
}

/// What the parts of a pool count. It may go on in another pool.
#[derive(Debug)]
pub(crate) struct Counts(pub(super) Box<[Arc<Count>]>);

/// What one part counts, on cache lines of its own as the part is.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Count {
    pub(super) reused: AtomicU64,
    pub(super) expired: AtomicU64,
    pub(super) dead: AtomicU64,
    pub(super) surplus: AtomicU64,
    pub(super) aged: AtomicU64,
    pub(super) used_up: AtomicU64,
}

impl Count {
    /// Counts a connection that is not used again.
    pub(super) fn note(&self, end: End) {
        let counter = match end {
            End::Expired => &self.expired,
            End::Aged => &self.aged,
            End::UsedUp => &self.used_up,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Counts {
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..workers.max(1)).map(|_| Arc::default()).collect())
    }
}

/// Adds to a counter.
pub(super) fn count(counter: &AtomicU64, by: usize) {
    if by > 0 {
        counter.fetch_add(by as u64, Ordering::Relaxed);
    }
}
