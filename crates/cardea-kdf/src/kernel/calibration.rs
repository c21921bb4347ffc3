//! How fast the kernels are on this very processor.
//!
//! The table of kernels holds for the processor that it was measured on. Another one has no SHA instructions, or slow
//! ones, clocks down while its widest vectors work, or shares a core with a neighbour; and in ten years none is left on
//! which the table was right. So the ratios are measured where they are used, once for each function, while nobody
//! waits. Not asked for are settings, which nobody would get right, and a file, which would be stale on the next machine.
//!
//! It takes what is no accident for a difference and nothing else: the least of several short slices counts, which an
//! interruption lengthens but for some; slices of a kernel follow each other for longer than a processor takes to change
//! its clock for wide vectors (some 0.5 ms on those that do), from the narrow kernels to the wide ones; all of it is
//! repeated, so that one disturbance can't cover all of a kernel; and the table stays in force but for what is faster by
//! an eighth. Whatever comes out, it can only make hashing slower, never wrong: each kernel computes the same.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Kernel;
use crate::prf::Prf;

/// The time of one iteration of all lanes of a kernel together.
pub(super) type Picoseconds = u64;

/// How often all kernels are measured.
const PASSES: u32 = 3;
/// The measurements of a kernel in each pass.
const SLICES: u32 = 8;
/// The length of a measurement, by the table: 50 µs at 4 GHz, so that most end before a context switch.
const SLICE_CYCLES: u32 = 200_000;

/// The measured times, by function.
static MEASURED: [OnceLock<Vec<Picoseconds>>; Prf::ALL.len()] = [const { OnceLock::new() }; Prf::ALL.len()];
static BEGUN: [AtomicBool; Prf::ALL.len()] = [const { AtomicBool::new(false) }; Prf::ALL.len()];

/// The measured times of this process, one for each kernel of [`Kernel::all`].
pub(super) fn measured(prf: Prf) -> Option<&'static [Picoseconds]> {
    MEASURED[prf as usize].get().map(Vec::as_slice)
}

/// Measures the kernels for `prf`, by which [`Kernel::choose`] goes from then on in this process. Returns whether it
/// did: the first call does, in some milliseconds of a core; others return at once, also while the first one measures.
///
/// `lap` tells the time since it was last called. Where it tells nothing, as a clock of long ticks does, the table that
/// was measured elsewhere stays in force.
pub fn calibrate(prf: Prf, lap: &mut impl FnMut() -> Duration) -> bool {
    if BEGUN[prf as usize].swap(true, Ordering::Relaxed) {
        return false;
    }
    if let Some(figures) = measure(Kernel::all(prf), lap, |kernel, count| kernel.exercise(prf, count)) {
        // Nobody else gets here.
        let _ = MEASURED[prf as usize].set(figures);
    }
    true
}

/// What an iteration of each kernel takes, at the least; as long as there is for those that don't run here. Nothing where
/// one took no time.
fn measure(
    kernels: &[Kernel],
    lap: &mut impl FnMut() -> Duration,
    mut run: impl FnMut(&Kernel, u32),
) -> Option<Vec<Picoseconds>> {
    let mut figures = vec![Picoseconds::MAX; kernels.len()];
    for _ in 0..PASSES {
        for (figure, kernel) in figures.iter_mut().zip(kernels) {
            if !kernel.backend.is_available() {
                continue;
            }
            let iterations = (SLICE_CYCLES / kernel.iteration_cycles).max(1);
            for _ in 0..SLICES {
                lap();
                run(kernel, iterations);
                let nanoseconds = Picoseconds::try_from(lap().as_nanos()).unwrap_or(Picoseconds::MAX);
                let of_iteration = nanoseconds.saturating_mul(1_000) / Picoseconds::from(iterations);
                *figure = of_iteration.min(*figure);
            }
        }
    }
    figures.iter().all(|figure| *figure > 0).then_some(figures)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::kernel::Backend;

    /// Two kernels that run anywhere, of which the second does four jobs at once in the time that the table gives it.
    const KERNELS: [Kernel; 2] = [
        Kernel { backend: Backend::Portable, lanes: 1, iteration_cycles: 1_000 },
        Kernel { backend: Backend::Portable, lanes: 4, iteration_cycles: 2_000 },
    ];

    /// Measures where the `n`-th slice takes what `time` says, from its kernel's lanes and iterations.
    fn measured_where(time: impl Fn(u32, usize, u32) -> Duration) -> Option<Vec<Picoseconds>> {
        let (now, slices) = (Cell::new(Duration::ZERO), Cell::new(0));
        let mut last = Duration::ZERO;
        let mut lap = || now.get() - std::mem::replace(&mut last, now.get());
        measure(&KERNELS, &mut lap, |kernel, iterations| {
            now.set(now.get() + time(slices.replace(slices.get() + 1), kernel.lanes, iterations));
        })
    }

    #[test]
    fn the_least_of_many_slices_counts_whatever_interrupts_the_others() {
        let undisturbed = |_, lanes: usize, iterations| Duration::from_nanos(300 * lanes as u64) * iterations;
        assert_eq!(measured_where(undisturbed), Some(vec![300_000, 1_200_000]));
        // All but every fifth slice is interrupted, and all of the first pass.
        let disturbed = |slice, lanes, iterations| {
            let own = undisturbed(slice, lanes, iterations);
            if slice % 5 > 0 || slice < 16 { own + Duration::from_millis(3) } else { own }
        };
        assert_eq!(measured_where(disturbed), Some(vec![300_000, 1_200_000]));
    }

    #[test]
    fn a_stopped_clock_measures_nothing_and_a_jump_is_harmless() {
        assert_eq!(measured_where(|_, _, _| Duration::ZERO), None);
        assert_eq!(measured_where(|_, lanes, _| Duration::from_secs(u64::from(lanes > 1))), None);
        let leaps = measured_where(|_, _, _| Duration::from_secs(1 << 55)).unwrap();
        assert!(leaps.iter().all(|figure| *figure > 0));
    }

    #[test]
    fn each_slice_is_as_long_as_any_other_by_the_table_and_there_are_few() {
        let (slices, cycles) = (Cell::new(0_u32), Cell::new(0_u64));
        let mut lap = || Duration::from_micros(50);
        measure(&KERNELS, &mut lap, |kernel, iterations| {
            slices.set(slices.get() + 1);
            cycles.set(cycles.get() + u64::from(iterations) * u64::from(kernel.iteration_cycles));
        });
        assert_eq!(slices.get(), 2 * PASSES * SLICES);
        assert!(cycles.get() / 2 <= 5_000_000, "at most 1.25 ms for a kernel at 4 GHz");
    }

    #[test]
    fn only_the_first_call_measures() {
        let mut laps = 0;
        let mut lap = || {
            laps += 1;
            Duration::from_micros(50)
        };
        assert!(calibrate(Prf::HmacSha1, &mut lap));
        let there = Kernel::all(Prf::HmacSha1).iter().filter(|kernel| kernel.backend.is_available()).count();
        assert!(measured(Prf::HmacSha1).is_some());
        assert!(!calibrate(Prf::HmacSha1, &mut lap));
        assert_eq!(laps, 2 * PASSES * SLICES * there as u32);
    }
}
