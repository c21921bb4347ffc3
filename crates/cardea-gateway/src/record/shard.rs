//! Which shard a thread uses, of whatever is split so that threads do not contend for it.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

/// More shards cost memory and scrape time, and gain nothing that a measurement would show.
const COUNT_MAX: usize = 32;

/// How many shards there are: a power of two, at least one for each processor we may use, at most 32.
pub(super) fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let processors = available_parallelism().map_or(1, std::num::NonZero::get);
        processors.min(COUNT_MAX).next_power_of_two()
    })
}

/// The number of this thread, to be taken modulo [`count`]. Threads are numbered as they first ask, so that
/// as many workers as there are shards have one each.
#[inline]
pub(super) fn slot() -> usize {
    const UNNUMBERED: usize = usize::MAX;
    thread_local! {
        static SLOT: Cell<usize> = const { Cell::new(UNNUMBERED) };
    }
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    SLOT.with(|slot| {
        if slot.get() == UNNUMBERED {
            slot.set(NEXT.fetch_add(1, Ordering::Relaxed) % UNNUMBERED);
        }
        slot.get()
    })
}
