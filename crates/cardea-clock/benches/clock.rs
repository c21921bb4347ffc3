//! The cost of reading the clock, compared with the system's clocks: `cargo bench -p cardea-clock`.
#![expect(clippy::disallowed_methods, reason = "compares with the clocks of the system")]
#![expect(clippy::expect_used, reason = "a bench that can't start has nothing to measure")]

use std::hint::black_box;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bench_measure::Suite;
use cardea_clock::{Clock, CoarseClock, PERIOD_DEFAULT};
use nix::time::{ClockId, clock_gettime};

/// Reads per call, without a branch between them: a loop and a call for each would cost more than the read.
const READS: u64 = 64;

fn main() {
    bench_measure::run(benches);
}

fn benches(suite: &mut Suite) {
    let coarse = CoarseClock::start(PERIOD_DEFAULT).expect("a thread can be started");
    let clock = coarse.clock();
    suite.case_of("clock-wall", READS, |case| {
        case.counted("cardea", || unrolled(|| wall(&clock)));
        case.timed("clock-gettime-realtime-coarse", || unrolled(kernel_coarse));
        case.timed("system-time", || unrolled(system_time));
    });
    suite.case_of("clock-wall-and-monotonic", READS, |case| {
        case.counted("cardea", || unrolled(|| both(&clock)));
        case.timed("system-time-and-instant", || unrolled(|| system_time() ^ instant()));
    });
    suite.case_of("clock-monotonic", READS, |case| {
        case.counted("cardea", || unrolled(|| clock.mono().nanos()));
        case.timed("instant", || unrolled(instant));
    });
    suite.case_of("clock-precise", READS, |case| {
        case.timed("cardea", || unrolled(|| clock.precise().mono.nanos()));
        case.timed("system-time-and-instant", || unrolled(|| system_time() ^ instant()));
    });
    // The readers share one cache line, which the refresher writes ten times a second.
    suite.case_of("clock-wall-shared", READS, |case| {
        case.on_threads("cardea", || || unrolled(|| wall(&clock)));
        case.on_threads("system-time", || || unrolled(system_time));
    });
}

/// Calls `read` [`READS`] times. The results are added, so that each is needed, and none waits for another.
#[inline(always)]
fn unrolled(read: impl Fn() -> u64) -> u64 {
    let eight = || {
        read()
            .wrapping_add(read())
            .wrapping_add(read())
            .wrapping_add(read())
            .wrapping_add(read().wrapping_add(read()).wrapping_add(read()).wrapping_add(read()))
    };
    eight()
        .wrapping_add(eight())
        .wrapping_add(eight())
        .wrapping_add(eight())
        .wrapping_add(eight().wrapping_add(eight()).wrapping_add(eight()).wrapping_add(eight()))
}

#[inline(always)]
fn wall(clock: &Clock) -> u64 {
    clock.wall().unix_nanos().cast_unsigned()
}

#[inline(always)]
fn both(clock: &Clock) -> u64 {
    let now = clock.now();
    now.wall.unix_nanos().cast_unsigned() ^ now.mono.nanos()
}

/// Both are converted to numbers, as a comparison with a stored one requires.
fn system_time() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs().wrapping_mul(1_000_000_000).wrapping_add(u64::from(since.subsec_nanos()))
}

fn instant() -> u64 {
    // An instant is opaque, so the result is only used.
    black_box(Instant::now());
    1
}

fn kernel_coarse() -> u64 {
    clock_gettime(ClockId::CLOCK_REALTIME_COARSE).map_or(0, |time| {
        time.tv_sec().cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec().cast_unsigned())
    })
}
