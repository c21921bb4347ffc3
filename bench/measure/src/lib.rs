//! Runs micro-benchmarks: timed by criterion, or a given number of times, so that `cargo xtask bench micro` can count
//! instructions and allocations with valgrind.
//!
//! A bench is a target without the standard harness whose `main` is [`run`]. Its cases have subjects: `cardea` and the
//! peers, each under its name.
//!
//! Counting needs no other build and no other allocator: the program runs an operation some number of times, then a
//! larger number, and the difference of the two counts is what the additional operations cost. Whatever is done once
//! cancels out.

#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::env;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};

/// What to count: `list`, or the name of a case, a slash and that of a subject. Unset, criterion measures.
pub const COUNT: &str = "BENCH_COUNT";
/// How many times.
pub const TIMES: &str = "BENCH_TIMES";

/// Runs the benches that `define` adds, as the environment and the arguments say.
pub fn run(define: impl FnOnce(&mut Suite)) {
    let mode = match env::var(COUNT) {
        Err(_) => Mode::Time(Box::new(Criterion::default().configure_from_args())),
        Ok(wanted) if wanted == "list" => Mode::List,
        Ok(wanted) => {
            let times = env::var(TIMES).ok().and_then(|times| times.parse().ok());
            Mode::Count { wanted, times: times.unwrap_or(1) }
        }
    };
    let mut suite = Suite { mode };
    define(&mut suite);
    if let Mode::Time(criterion) = &mut suite.mode {
        criterion.final_summary();
    }
}

/// All cases of a bench.
pub struct Suite {
    mode: Mode,
}

enum Mode {
    Time(Box<Criterion>),
    /// Prints what can be counted.
    List,
    Count {
        wanted: String,
        times: u64,
    },
}

impl Suite {
    /// Adds a case. What it needs is made within `define`, which isn't called where another case is counted.
    pub fn case(&mut self, name: &str, define: impl FnOnce(&mut Case<'_>)) {
        self.case_of(name, 1, define);
    }

    /// Adds a case in which each call of an operation does its work `operations` times: for what costs less than a
    /// call can be measured. Figures are those of one.
    pub fn case_of(&mut self, name: &str, operations: u64, define: impl FnOnce(&mut Case<'_>)) {
        let run = match &mut self.mode {
            Mode::Time(criterion) => {
                let mut group = criterion.benchmark_group(name);
                if operations > 1 {
                    group.throughput(Throughput::Elements(operations));
                }
                Run::Time(group)
            }
            Mode::List => Run::List,
            Mode::Count { wanted, times } => {
                match wanted.strip_prefix(name).and_then(|rest| rest.strip_prefix('/')) {
                    Some(subject) => Run::Count { subject, times: *times },
                    None => return,
                }
            }
        };
        define(&mut Case { name, operations, run });
    }
}

/// One case, whose subjects do the same work.
pub struct Case<'a> {
    name: &'a str,
    operations: u64,
    run: Run<'a>,
}

enum Run<'a> {
    Time(BenchmarkGroup<'a, WallTime>),
    List,
    Count { subject: &'a str, times: u64 },
}

impl Case<'_> {
    /// Adds a subject that is timed.
    pub fn timed<O>(&mut self, subject: &str, operation: impl FnMut() -> O) {
        if let Run::Time(group) = &mut self.run {
            let mut operation = operation;
            group.bench_function(subject, |bencher| bencher.iter(&mut operation));
        }
    }

    /// Adds a subject that is timed, and whose instructions and allocations can be counted.
    pub fn counted<O>(&mut self, subject: &str, mut operation: impl FnMut() -> O) {
        match &self.run {
            Run::Time(_) => self.timed(subject, operation),
            Run::List => println!("{}/{subject} {}", self.name, self.operations),
            Run::Count { subject: wanted, times } if *wanted == subject => {
                for _ in 0..*times {
                    black_box(operation());
                }
            }
            Run::Count { .. } => {}
        }
    }

    /// Adds a subject that is timed on one thread, on two, and on as many as there are processors, each with an
    /// operation that `make` has made. The figure is the time of a thread for one operation: where nothing is shared
    /// it stays, until threads outnumber processors.
    pub fn on_threads<O, F>(&mut self, subject: &str, make: impl Fn() -> F)
    where
        F: FnMut() -> O + Send,
    {
        let Run::Time(group) = &mut self.run else { return };
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let mut counts = vec![1, 2, processors];
        counts.sort_unstable();
        counts.dedup();
        for count in counts {
            let id = BenchmarkId::new(subject, format!("t{count}"));
            group.bench_function(id, |bencher| {
                bencher.iter_custom(|iterations| slowest(count, iterations, &make));
            });
        }
    }
}

/// How long the slowest of `count` threads takes, from the moment when all are ready.
fn slowest<O, F>(count: usize, iterations: u64, make: impl Fn() -> F) -> Duration
where
    F: FnMut() -> O + Send,
{
    let ready = Barrier::new(count);
    thread::scope(|scope| {
        let spawn = |mut operation: F| {
            let ready = &ready;
            scope.spawn(move || {
                ready.wait();
                let start = Instant::now();
                for _ in 0..iterations {
                    black_box(operation());
                }
                start.elapsed()
            })
        };
        let threads: Vec<_> = (0..count).map(|_| spawn(make())).collect();
        // A thread that panicked has told so itself, and leaves a figure that nobody takes for one.
        threads.into_iter().map(|thread| thread.join().unwrap_or(Duration::MAX)).max().unwrap_or_default()
    })
}
