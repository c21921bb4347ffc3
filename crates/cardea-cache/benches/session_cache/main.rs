//! What the cache costs beside others: `cargo bench -p cardea-cache --bench session_cache`.
//!
//! Sessions have keys of 32 random bytes and values of a word, so that it is caches that are measured, not allocators.
//! `put` enters fresh keys into a full cache, `get` finds (what has not expired), `remove` takes out. `hot` is the same
//! with 512 keys. Figures are wall time per operation of one thread.
//!
//! `CARDEA_BENCH_ENTRIES=5120000,20000000` measures these sizes instead of 20,480 and 204,800. With 20 million entries
//! each subject needs some gigabytes, one after the other.
//!
//! The group `session-cache-wait-…` tells what one dependent load from the slab costs at each size: divide by it to see
//! how often an operation waits for memory.
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock and the environment")]
#![expect(clippy::expect_used, reason = "the limits are constant and can be had")]

mod subjects;

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use cardea_clock::Mono;
use criterion::{Criterion, criterion_group, criterion_main};

use subjects::{Cardea, Key, LeastRecent, Moka, QuickCache, Rustls, Subject};

const LIFETIME: Duration = Duration::from_secs(1_000);
const START: Mono = Mono::from_nanos(1);
const HOT: u64 = 512;
/// Shares of the entries that have expired when the operations begin.
const EXPIRED: [(&str, u64, u64); 4] = [("1-10", 1, 10), ("1-4", 1, 4), ("1-3", 1, 3), ("1-2", 1, 2)];

#[derive(Clone, Copy)]
enum Operation {
    Get,
    Put,
    Remove,
}

impl Operation {
    const ALL: [Self; 3] = [Self::Get, Self::Put, Self::Remove];

    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Remove => "remove",
        }
    }
}

#[derive(Clone, Copy)]
struct Case {
    operation: Operation,
    entries: u64,
    lifetime: Option<Duration>,
    /// Of the entries.
    expired: u64,
    /// Keys that operations choose from.
    range: u64,
    threads: usize,
}

fn main_group(criterion: &mut Criterion) {
    for entries in sizes() {
        wait(criterion, entries);
        for operation in Operation::ALL {
            for lifetime in [Some(LIFETIME), None] {
                let kind = if lifetime.is_some() { "ttl" } else { "unlimited" };
                let case = Case { operation, entries, lifetime, expired: 0, range: entries, threads: 1 };
                let name = format!("session-cache-{}-{entries}-{kind}", operation.name());
                all(criterion, &name, case);
                if lifetime.is_none() {
                    continue;
                }
                for (share, part, whole) in EXPIRED {
                    let case = Case { expired: entries * part / whole, ..case };
                    one::<Cardea>(criterion, &format!("{name}-expired-{share}"), case);
                }
                for threads in thread_counts() {
                    all(criterion, &format!("{name}-t{threads}"), Case { threads, ..case });
                }
                if matches!(operation, Operation::Get) {
                    for threads in std::iter::once(1).chain(thread_counts()) {
                        let case = Case { range: HOT, threads, ..case };
                        all(criterion, &format!("{name}-hot-t{threads}"), case);
                    }
                }
            }
        }
    }
}

fn sizes() -> Vec<u64> {
    let text = std::env::var("CARDEA_BENCH_ENTRIES").unwrap_or_else(|_| "20480,204800".to_owned());
    text.split(',').map(|size| size.trim().parse().expect("numbers, with commas between them")).collect()
}

fn thread_counts() -> Vec<usize> {
    let mut counts = vec![2, thread::available_parallelism().map_or(1, usize::from)];
    counts.retain(|count| *count > 1);
    counts.dedup();
    counts
}

fn all(criterion: &mut Criterion, group: &str, case: Case) {
    one::<Cardea>(criterion, group, case);
    one::<Rustls>(criterion, group, case);
    one::<LeastRecent>(criterion, group, case);
    one::<Moka>(criterion, group, case);
    one::<QuickCache>(criterion, group, case);
}

fn one<S: Subject>(criterion: &mut Criterion, group: &str, case: Case) {
    if case.lifetime.is_some() && !S::HAS_LIFETIME {
        return;
    }
    let mut prepared: Option<Prepared<S>> = None;
    criterion.benchmark_group(group).bench_function(S::NAME, |bencher| {
        bencher.iter_custom(|iterations| measure(&mut prepared, case, iterations));
    });
}

/// A cache that was filled, and how many operations it has had.
struct Prepared<S> {
    cache: S,
    /// In the order of the operations.
    keys: Vec<Key>,
    done: u64,
}

impl<S: Subject> Prepared<S> {
    fn new(case: Case) -> Self {
        let keys = match case.operation {
            // Twice as many as there is room for: where one comes again, the cache has forgotten it.
            Operation::Put => (case.entries..3 * case.entries).map(key).collect(),
            // Steps by a prime that divides no range lead to all keys, and far.
            Operation::Get | Operation::Remove => {
                let place = |number| u128::from(number) * 2_654_435_761 % u128::from(case.range);
                (0..case.range).map(|number| key(place(number) as u64)).collect()
            }
        };
        Self { cache: fill(case), keys, done: 0 }
    }
}

/// Runs in passes, between which the cache is filled anew where operations use it up; filling isn't counted.
fn measure<S: Subject>(prepared: &mut Option<Prepared<S>>, case: Case, iterations: u64) -> Duration {
    let uses_up = case.expired > 0 || matches!(case.operation, Operation::Remove);
    let (mut total, mut left) = (Duration::ZERO, iterations);
    while left > 0 {
        if prepared.as_ref().is_none_or(|prepared| uses_up && prepared.done >= case.range) {
            *prepared = None;
            *prepared = Some(Prepared::new(case));
        }
        let Some(Prepared { cache, keys, done }) = prepared else { break };
        let pass = if uses_up { left.min(case.range - *done) } else { left };
        total += run(cache, case, keys, *done, pass);
        *done += pass;
        left -= pass;
    }
    total
}

fn fill<S: Subject>(case: Case) -> S {
    let cache = S::new(case.entries as usize, case.lifetime);
    let late = START.saturating_add(LIFETIME / 2);
    for number in 0..case.entries {
        cache.put(key(number), number, if number < case.expired { START } else { late });
    }
    cache
}

fn run<S: Subject>(cache: &S, case: Case, keys: &[Key], done: u64, operations: u64) -> Duration {
    if case.threads == 1 {
        let start = Instant::now();
        operate(cache, case, keys, done, operations);
        return start.elapsed();
    }
    let part = operations.div_ceil(case.threads as u64);
    let ready = Barrier::new(case.threads + 1);
    let elapsed = thread::scope(|scope| {
        let threads: Vec<_> = (0..case.threads as u64)
            .map(|number| {
                let ready = &ready;
                scope.spawn(move || {
                    ready.wait();
                    operate(cache, case, keys, done + number * part, part);
                })
            })
            .collect();
        let start = Instant::now();
        ready.wait();
        for thread in threads {
            thread.join().expect("an operation panics in no subject");
        }
        start.elapsed()
    });
    // Of one thread's operations, of which `operations` were asked for.
    elapsed * case.threads as u32
}

fn operate<S: Subject>(cache: &S, case: Case, keys: &[Key], from: u64, operations: u64) {
    // What came at the start has expired, what came late has not.
    let now = START.saturating_add(if case.expired > 0 { LIFETIME } else { LIFETIME / 2 });
    let mut at = from as usize % keys.len();
    for number in 0..operations {
        let key = &keys[at];
        at = if at + 1 == keys.len() { 0 } else { at + 1 };
        match case.operation {
            Operation::Put => cache.put(*key, number, now),
            Operation::Get => {
                black_box(cache.get(key, now));
            }
            Operation::Remove => cache.remove(key),
        }
    }
}

/// As random as a session's, from a number (SplitMix64).
fn key(number: u64) -> Key {
    let mut key = [0; 32];
    for (part, bytes) in (0..).zip(key.as_chunks_mut::<8>().0) {
        let seed = number.wrapping_mul(4).wrapping_add(part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        *bytes = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb).to_le_bytes();
    }
    key
}

/// A walk through as many cache lines as there are slots, each of which says which one is next.
fn wait(criterion: &mut Criterion, entries: u64) {
    #[derive(Clone, Copy)]
    #[repr(align(64))]
    struct Line(u64);
    let mut lines = vec![Line(0); entries as usize];
    // One cycle through all of them in an order that no prefetcher guesses (Sattolo).
    (0..).zip(&mut lines).for_each(|(number, line)| *line = Line(number));
    for last in (1..entries).rev() {
        let other = u64::from_le_bytes(key(last).as_chunks().0[0]) % last;
        lines.swap(last as usize, other as usize);
    }
    let mut at = 0_u64;
    criterion.benchmark_group(format!("session-cache-wait-{entries}")).bench_function(
        "dependent-load",
        |bencher| {
            bencher.iter(|| {
                at = lines[at as usize].0;
                at
            });
        },
    );
}

fn short() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        .without_plots()
}

criterion_group! { name = benches; config = short(); targets = main_group }
criterion_main!(benches);
