//! Which kernels are the fastest here: found out by a hash thread when nobody waits for it.

use std::thread;

use cardea_clock::Stopwatch;
use cardea_kdf::{Kernel, Prf};

/// Measures the kernels for `prf`, once in the life of the process: some milliseconds, in which others have the processor
/// after each slice of some 50 µs. It isn't done before the first hash, which somebody waits for.
pub(super) fn calibrate(prf: Prf) {
    let mut stopwatch = Stopwatch::start();
    let measured = cardea_kdf::calibrate(prf, &mut || {
        let passed = stopwatch.lap();
        thread::yield_now();
        // What others took is not counted.
        stopwatch.lap();
        passed
    });
    if measured {
        let name = |waiting| Kernel::choose(prf, waiting, None).map(Kernel::to_string);
        let (lone, full) = (name(1), name(usize::from(u16::MAX)));
        tracing::debug!(%prf, ?lone, ?full, "kernels measured");
    }
}
