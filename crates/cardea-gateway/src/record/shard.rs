//! Which shard a thread uses, of whatever is split so that threads do not contend for it.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

/// More shards cost memory and scrape time, and gain nothing that a measurement would show.
const COUNT_MAX: usize = 32;

/// How many shards there are: a power of two, at most 32, else at least two for each processor we may use.
/// Threads that are no workers are numbered too, and with one for each two workers would often share.
pub(super) fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let processors = available_parallelism().map_or(1, std::num::NonZero::get);
        (2 * processors).next_power_of_two().min(COUNT_MAX)
    })
}

/// The number of this thread, to be taken modulo [`count`]. Threads are numbered as they first ask.
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
