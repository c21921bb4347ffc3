//! Where values are counted: atomics, spread so that threads do not contend for a cache line.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::super::shard;

/// A cache line of cells.
#[repr(align(64))]
#[derive(Default)]
struct Line([AtomicU64; Self::CELLS]);

impl Line {
    const CELLS: usize = 8;
}

/// Some cells, as many times as there are shards. Each shard begins with a cache line of its own.
pub(super) struct Cells {
    lines: Box<[Line]>,
    lines_per_shard: usize,
    /// One less than the number of shards, which is a power of two.
    mask: usize,
}

impl Cells {
    pub(super) fn new(cells: usize, shards: usize) -> Self {
        let lines_per_shard = cells.div_ceil(Line::CELLS);
        let lines = (0..lines_per_shard * shards).map(|_| Line::default()).collect();
        Self { lines, lines_per_shard, mask: shards - 1 }
    }

    /// Adds to this thread's cell. Wraps, so that a gauge can be counted in two's complement.
    #[inline]
    fn add(&self, cell: usize, amount: u64) {
        let shard = if self.mask == 0 { 0 } else { shard::slot() & self.mask };
        self.cell(shard, cell).fetch_add(amount, Ordering::Relaxed);
    }

    /// The sum over all shards.
    pub(super) fn sum(&self, cell: usize) -> u64 {
        (0..=self.mask)
            .fold(0, |sum: u64, shard| sum.wrapping_add(self.cell(shard, cell).load(Ordering::Relaxed)))
    }

    #[inline]
    fn cell(&self, shard: usize, cell: usize) -> &AtomicU64 {
        &self.lines[shard * self.lines_per_shard + cell / Line::CELLS].0[cell % Line::CELLS]
    }
}

/// A handle of a counter. Cheap to clone, not to be cloned per request.
#[derive(Clone)]
pub struct Counter(pub(super) Arc<Cells>);

impl Counter {
    /// Adds one.
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds some.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.add(0, amount);
    }

    /// What was counted, by all handles of the series.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.sum(0)
    }
}

/// A handle of a gauge that is set.
#[derive(Clone)]
pub struct Gauge(pub(super) Arc<Cells>);

impl Gauge {
    /// Sets the value.
    #[inline]
    pub fn set(&self, value: i64) {
        self.0.cell(0, 0).store(value.cast_unsigned(), Ordering::Relaxed);
    }

    /// What was set last.
    #[must_use]
    pub fn value(&self) -> i64 {
        self.0.sum(0).cast_signed()
    }
}

/// A handle of a gauge that goes up and down: what is going on at the moment.
#[derive(Clone)]
pub struct UpDown(pub(super) Arc<Cells>);

impl UpDown {
    /// Adds one.
    #[inline]
    pub fn increment(&self) {
        self.0.add(0, 1);
    }

    /// Takes one away; on whatever thread.
    #[inline]
    pub fn decrement(&self) {
        self.0.add(0, u64::MAX);
    }

    /// Counts as one for as long as what it returns lives.
    pub fn enter(&self) -> InFlight<'_> {
        self.increment();
        InFlight(self)
    }

    /// How many there are.
    #[must_use]
    pub fn value(&self) -> i64 {
        self.0.sum(0).cast_signed()
    }
}

/// Something that is going on: taken away from its [`UpDown`] when it is dropped.
#[must_use]
pub struct InFlight<'g>(&'g UpDown);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.decrement();
    }
}

/// A handle of a histogram of durations.
#[derive(Clone)]
pub struct Histogram {
    /// Of its buckets, in nanoseconds.
    pub(super) bounds: Arc<[u64]>,
    pub(super) cells: Arc<Cells>,
}

impl Histogram {
    /// Counts a duration, with a precision of nanoseconds.
    #[inline]
    pub fn observe(&self, duration: Duration) {
        // 584 years in all before the sum wraps.
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.cells.add(self.bounds.partition_point(|bound| *bound < nanos), 1);
        self.cells.add(self.bounds.len() + 1, nanos);
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        (0..=self.bounds.len()).map(|bucket| self.cells.sum(bucket)).sum()
    }
}
