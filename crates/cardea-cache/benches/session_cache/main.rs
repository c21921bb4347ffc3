//! What the cache costs beside others: `cargo bench -p cardea-cache --bench session_cache`.
//!
//! Sessions have keys of 32 random bytes and values of a word, so that it is caches that are measured, not allocators.
//! `get` finds (what has not expired), `put` enters fresh keys into a full cache, `remove` takes out; keys come in random
//! order, in `hot` 512 of them. Of the entries of `expired-1-4` a quarter have expired before the first operation; each
//! expired one makes room for one that is put. A figure is the wall time of one thread for an operation, the median of
//! seven samples (three where entries have expired).
//!
//! `-- --large` measures 5,120,000 and 20,000,000 entries instead of 20,480 and 204,800, and prints each sample. With 20
//! million entries each subject needs some gigabytes, one after the other. `-- --list` says what there is; names of cases
//! and subjects as arguments measure these alone.
//!
//! The case `session-cache-wait-…` tells what one dependent load from the slab costs at each size: divide by it to see
//! how often an operation waits for memory. `locks-alone` tells what threads pay for meeting each other at locks.
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock and the environment")]
#![expect(clippy::expect_used, reason = "the limits are constant and can be had")]
#![expect(clippy::print_stdout, reason = "a measurement is for reading")]

mod measure;
mod subjects;

use std::hint::black_box;
use std::time::{Duration, Instant};

use measure::{Chain, EXPIRED, Kind, Size, random_number};
use subjects::{Cardea, LeastRecent, Locks, Moka, QuickCache, Rustls, Subject};

const SMALL: [u64; 2] = [20_480, 204_800];
const LARGE: [u64; 2] = [5_120_000, 20_000_000];

/// The options of the command line.
struct Options {
    list: bool,
    large: bool,
    /// Samples of each row that are printed, for large sizes only, which have no median.
    rounds: usize,
    /// All if empty.
    names: Vec<String>,
}

impl Options {
    fn of(arguments: impl Iterator<Item = String>) -> Self {
        let mut options = Self { list: false, large: false, rounds: 3, names: Vec::new() };
        let mut arguments = arguments.peekable();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--list" => options.list = true,
                "--large" => options.large = true,
                "--rounds" => {
                    let rounds = arguments.next().and_then(|rounds| rounds.parse().ok());
                    options.rounds = rounds.expect("a number of rounds");
                }
                // Cargo passes it to each bench.
                option if option.starts_with("--") => {}
                name => options.names.push(name.to_owned()),
            }
        }
        options
    }

    fn takes(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| wanted == name)
    }
}

/// The output of figures.
struct Report {
    options: Options,
}

impl Report {
    /// Measures a row if it is selected. `measure` returns nanoseconds per operation of each sample.
    fn row(&self, name: &str, measure: impl FnOnce() -> Vec<f64>) {
        if !self.options.takes(name) {
            return;
        }
        if self.options.list {
            println!("{name}: figure");
            return;
        }
        let mut samples = measure();
        if !self.options.large {
            samples.sort_by(f64::total_cmp);
            samples = vec![samples[samples.len() / 2]];
        }
        for sample in samples {
            println!("{name} {sample:.2} ns");
        }
    }
}

fn main() {
    let report = Report { options: Options::of(std::env::args().skip(1)) };
    for entries in if report.options.large { LARGE } else { SMALL } {
        let size = if report.options.large {
            Size { entries, operations: 200_000, samples: report.options.rounds, fills: 1 }
        } else {
            Size { entries, operations: 50_000, samples: 7, fills: 3 }
        };
        let prefix = if report.options.large { "session-cache-large" } else { "session-cache" };
        report.row(&format!("{prefix}-wait-{entries}/dependent-load"), || wait(size));
        hot::<Locks>(&report, prefix, size, &mut Chain::new(size, true));
        all::<Cardea>(&report, prefix, size);
        all::<LeastRecent>(&report, prefix, size);
        all::<Moka>(&report, prefix, size);
        all::<QuickCache>(&report, prefix, size);
        all::<Rustls>(&report, prefix, size);
    }
}

/// All rows of a subject; each kind of cache is filled once.
fn all<S: Subject>(report: &Report, prefix: &str, size: Size) {
    let name = |kind: Kind, what: &str, lifetime: &str| {
        format!("{prefix}-{}-{}-{lifetime}{what}/{}", kind.name(), size.entries, S::NAME)
    };
    if S::HAS_LIFETIME {
        let mut chain = Chain::<S>::new(size, true);
        for kind in [Kind::Get, Kind::Remove, Kind::Put] {
            report.row(&name(kind, "", "ttl"), || chain.spread(kind, 1));
            for threads in measure::thread_counts() {
                report.row(&name(kind, &format!("-t{threads}"), "ttl"), || chain.spread(kind, threads));
            }
            if kind == Kind::Get {
                hot(report, prefix, size, &mut chain);
            }
        }
    }
    let mut chain = Chain::<S>::new(size, false);
    for kind in [Kind::Get, Kind::Remove, Kind::Put] {
        report.row(&name(kind, "", "unlimited"), || chain.spread(kind, 1));
    }
    drop(chain);
    if S::HAS_TIME {
        for (share, part, whole) in EXPIRED {
            let mut measured = None;
            for kind in [Kind::Get, Kind::Remove, Kind::Put] {
                report.row(&name(kind, &format!("-expired-{share}"), "ttl"), || {
                    let all = measured
                        .get_or_insert_with(|| measure::expired::<S>(size, size.entries * part / whole));
                    std::mem::take(&mut all[kind as usize])
                });
            }
        }
    }
}

/// Lookups of few keys.
fn hot<S: Subject>(report: &Report, prefix: &str, size: Size, chain: &mut Chain<S>) {
    for threads in [1].into_iter().chain(measure::thread_counts()) {
        let name = format!("{prefix}-get-{}-ttl-hot-t{threads}/{}", size.entries, S::NAME);
        report.row(&name, || chain.hot(threads));
    }
}

/// Follows a chain through as many cache lines as there are slots.
fn wait(size: Size) -> Vec<f64> {
    #[derive(Clone, Copy)]
    #[repr(align(64))]
    struct Line(u64);
    let mut lines: Vec<Line> = (0..size.entries).map(Line).collect();
    // One cycle through all of them in an order that no prefetcher predicts (Sattolo).
    for last in (1..size.entries).rev() {
        lines.swap(last as usize, (random_number(last) % last) as usize);
    }
    let mut at = 0_u64;
    let mut sample = || {
        let start = Instant::now();
        for _ in 0..size.operations {
            at = lines[at as usize].0;
        }
        black_box(at);
        nanoseconds(start.elapsed(), size.operations)
    };
    sample();
    (0..size.samples).map(|_| sample()).collect()
}

fn nanoseconds(time: Duration, operations: u64) -> f64 {
    time.as_nanos() as f64 / operations as f64
}
