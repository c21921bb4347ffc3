//! The permits that workers have leased from a limit.

use std::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Marks a lease that was called in.
const CLOSED: u32 = 1 << 31;

/// A worker that has more permits than this returns half of them.
const KEPT_MAX: u32 = 64;

/// The free permits of one worker, on cache lines of its own: two, as processors fetch them in pairs. Closed, or their
/// number: a permit is never put into a lease that was called in, nor taken from it.
#[derive(Debug)]
#[repr(align(128))]
struct Lease(AtomicU32);

/// The leases of all workers.
#[derive(Debug)]
pub(super) struct Leases(Box<[Lease]>);

impl Leases {
    /// All of them closed.
    pub(super) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Lease(AtomicU32::new(CLOSED))).collect())
    }

    pub(super) fn workers(&self) -> usize {
        self.0.len()
    }

    fn of(&self, worker: usize) -> Option<&AtomicU32> {
        let lease = self.0.get(worker).or_else(|| self.0.get(worker % self.0.len().max(1)));
        lease.map(|lease| &lease.0)
    }

    /// Takes a permit, if the worker has one.
    #[inline]
    pub(super) fn take(&self, worker: usize) -> bool {
        let take = |free| (1..CLOSED).contains(&free).then(|| free - 1);
        self.of(worker).is_some_and(|lease| lease.fetch_update(AcqRel, Acquire, take).is_ok())
    }

    /// Puts a permit back, unless the lease was called in or the worker has many.
    #[inline]
    pub(super) fn put(&self, worker: usize) -> bool {
        let put = |free| (free < KEPT_MAX).then_some(free + 1);
        self.of(worker).is_some_and(|lease| lease.fetch_update(AcqRel, Acquire, put).is_ok())
    }

    /// Leases permits to a worker whose lease is open. To be called under the lock of the queue, as everything below.
    pub(super) fn lease(&self, worker: usize, count: u32) {
        if let Some(lease) = self.of(worker) {
            lease.fetch_add(count, AcqRel);
        }
    }

    /// Takes half of the permits of a worker whose lease is open; how many.
    pub(super) fn trim(&self, worker: usize) -> u32 {
        let trim = |free: u32| Some(free - free / 2);
        self.of(worker)
            .and_then(|lease| lease.fetch_update(AcqRel, Acquire, trim).ok())
            .map_or(0, |free| free / 2)
    }

    /// Calls all leases in; how many permits were in them.
    pub(super) fn close(&self) -> u32 {
        self.0.iter().map(|lease| lease.0.swap(CLOSED, AcqRel) & !CLOSED).sum()
    }

    /// Opens all leases, without a permit.
    pub(super) fn open(&self) {
        self.0.iter().for_each(|lease| lease.0.store(0, Release));
    }

    /// How many permits are in them. What is taken and put back meanwhile may be missing.
    pub(super) fn free(&self) -> u32 {
        self.0.iter().map(|lease| lease.0.load(Relaxed) & !CLOSED).sum()
    }
}
