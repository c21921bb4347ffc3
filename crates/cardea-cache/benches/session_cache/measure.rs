//! The measured operations.

use std::hint::{black_box, spin_loop};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cardea_clock::Mono;

use crate::nanoseconds;
use crate::subjects::{Key, Subject};

/// The lifetime of entries that have one.
pub(crate) const LIFETIME: Duration = Duration::from_secs(1_000);
/// The keys of a hot set.
const HOT: u64 = 512;
/// The shares of entries that have expired when the operations begin.
pub(crate) const EXPIRED: [(&str, u64, u64); 4] =
    [("1-10", 1, 10), ("1-4", 1, 4), ("1-3", 1, 3), ("1-2", 1, 2)];
/// The insertion time of entries that are to expire.
const EARLY: Mono = Mono::from_nanos(1);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    Remove,
    Put,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Remove => "remove",
            Self::Put => "put",
        }
    }
}

/// The number of entries and of operations.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) entries: u64,
    /// Operations of one thread in a sample.
    pub(crate) operations: u64,
    pub(crate) samples: usize,
    /// Fills for the rows with expired entries.
    pub(crate) fills: usize,
}

/// The thread counts above one.
pub(crate) fn thread_counts() -> Vec<usize> {
    let mut counts = vec![2, thread::available_parallelism().map_or(1, usize::from)];
    counts.retain(|count| *count > 1);
    counts.dedup();
    counts
}

/// A full cache that is reused for consecutive measurements.
pub(crate) struct Chain<S> {
    size: Size,
    has_lifetime: bool,
    /// Filled for the first selected row.
    cache: Option<S>,
    /// The keys that are certainly present: the last ones inserted.
    numbers: Range<u64>,
}

impl<S: Subject> Chain<S> {
    pub(crate) fn new(size: Size, has_lifetime: bool) -> Self {
        Self { size, has_lifetime, cache: None, numbers: 0..size.entries }
    }

    fn cache(&mut self) -> &S {
        self.cache.get_or_insert_with(|| {
            let cache = S::new(self.size.entries as usize, self.has_lifetime.then_some(LIFETIME));
            (0..self.size.entries).for_each(|number| cache.put(key(number), number, EARLY));
            cache
        })
    }

    /// Samples of operations on keys of all entries, or on new ones.
    pub(crate) fn spread(&mut self, kind: Kind, threads: usize) -> Vec<f64> {
        (0..=self.size.samples).map(|sample| self.sample(kind, threads, sample as u64)).skip(1).collect()
    }

    /// Samples of lookups of few keys.
    pub(crate) fn hot(&mut self, threads: usize) -> Vec<f64> {
        let (operations, first) = (self.size.operations, self.numbers.start);
        let keys: Vec<Vec<Key>> = (0..threads as u64)
            .map(|thread| {
                let pick = |number| key(first + random_number(thread << 40 | number) % HOT);
                (0..operations).map(pick).collect()
            })
            .collect();
        let samples = self.size.samples;
        let cache = self.cache();
        (0..=samples).map(|_| run(cache, Kind::Get, &keys, EARLY)).skip(1).collect()
    }

    fn sample(&mut self, kind: Kind, threads: usize, sample: u64) -> f64 {
        let Size { entries, operations, .. } = self.size;
        // A part of the entries, so that all operations of a sample find a similarly full cache.
        let removes = operations.min(entries / 8).min(S::REMOVES_MAX);
        let operations = if kind == Kind::Remove { removes } else { operations };
        let numbers = self.numbers.clone();
        let number = |thread: u64, operation: u64| match kind {
            Kind::Get => numbers.start + random_number(sample << 50 | thread << 40 | operation) % entries,
            Kind::Remove => numbers.start + nth(thread * operations + operation, entries),
            Kind::Put => numbers.end + thread * operations + operation,
        };
        let keys: Vec<Vec<Key>> = (0..threads as u64)
            .map(|thread| (0..operations).map(|operation| key(number(thread, operation))).collect())
            .collect();
        let cache = self.cache();
        let time = run(cache, kind, &keys, EARLY);
        match kind {
            Kind::Get => {}
            Kind::Remove => keys.iter().flatten().for_each(|key| cache.put(*key, 0, EARLY)),
            Kind::Put => {
                let put = threads as u64 * operations;
                self.numbers = numbers.start + put..numbers.end + put;
            }
        }
        time
    }
}

/// Samples of each operation, by kind, on full caches with that many expired entries, the oldest ones.
pub(crate) fn expired<S: Subject>(size: Size, expired: u64) -> [Vec<f64>; 3] {
    let late = EARLY.saturating_add(LIFETIME / 2);
    let now = EARLY.saturating_add(LIFETIME);
    let mut samples = [const { Vec::new() }; 3];
    for _ in 0..size.fills {
        let cache = S::new(size.entries as usize, Some(LIFETIME));
        (0..size.entries)
            .for_each(|number| cache.put(key(number), number, if number < expired { EARLY } else { late }));
        let part = size.operations.min(size.entries / 16);
        let mut from = 0;
        let mut next = || {
            let keys: Vec<Key> = (from..from + part).map(|number| key(nth(number, size.entries))).collect();
            from += part;
            vec![keys]
        };
        let several = if size.fills > 1 { 1 } else { size.samples };
        for kind in [Kind::Get, Kind::Remove] {
            samples[kind as usize].extend((0..several).map(|_| run(&cache, kind, &next(), now)));
        }
        // As many as have expired, in batches whose keys are generated beforehand.
        let (mut put, mut nanos) = (0, 0.0);
        while put < expired {
            let batch = (expired - put).min(1 << 20);
            let keys: Vec<Key> = (put..put + batch).map(|number| key(size.entries + number)).collect();
            nanos += run(&cache, Kind::Put, &[keys], now) * batch as f64;
            put += batch;
        }
        samples[Kind::Put as usize].push(nanos / expired as f64);
    }
    samples
}

/// Nanoseconds of one thread per operation. Each thread has its own list of keys.
fn run<S: Subject>(cache: &S, kind: Kind, keys: &[Vec<Key>], now: Mono) -> f64 {
    let operations = keys[0].len() as u64;
    if let [keys] = keys {
        let start = Instant::now();
        operate(cache, kind, keys, now);
        return nanoseconds(start.elapsed(), operations);
    }
    let line = StartingLine::new(keys.len());
    let spans: Vec<(Instant, Instant)> = thread::scope(|scope| {
        let operator = |(thread, keys)| {
            let line = &line;
            scope.spawn(move || {
                line.wait(thread);
                let start = Instant::now();
                operate(cache, kind, keys, now);
                (start, Instant::now())
            })
        };
        let threads: Vec<_> = (0..).zip(keys.iter().map(Vec::as_slice)).map(operator).collect();
        threads.into_iter().map(|thread| thread.join().expect("an operation panics in no subject")).collect()
    });
    let start = spans.iter().map(|(start, _)| *start).min().expect("threads");
    let end = spans.iter().map(|(_, end)| *end).max().expect("threads");
    nanoseconds(end - start, operations)
}

/// A barrier at which threads spin until all of them run, each on a processor. A sleeping barrier would wake them one
/// after the other, and the sample would end before the last one starts.
struct StartingLine {
    threads: usize,
    /// The next turn, counting all turns before.
    turn: AtomicUsize,
}

impl StartingLine {
    /// Enough turns that they can't be taken within a time slice unless the threads run in parallel.
    const ROUNDS: usize = 100;

    const fn new(threads: usize) -> Self {
        Self { threads, turn: AtomicUsize::new(0) }
    }

    fn wait(&self, thread: usize) {
        for round in 0..Self::ROUNDS {
            self.until(|turn| turn == round * self.threads + thread);
            self.turn.fetch_add(1, Ordering::Release);
        }
        self.until(|turn| turn == Self::ROUNDS * self.threads);
    }

    fn until(&self, is_met: impl Fn(usize) -> bool) {
        while !is_met(self.turn.load(Ordering::Acquire)) {
            spin_loop();
        }
    }
}

fn operate<S: Subject>(cache: &S, kind: Kind, keys: &[Key], now: Mono) {
    match kind {
        Kind::Get => keys.iter().for_each(|key| {
            black_box(cache.get(key, now));
        }),
        Kind::Remove => keys.iter().for_each(|key| cache.remove(key)),
        Kind::Put => (0..).zip(keys).for_each(|(number, key)| cache.put(*key, number, now)),
    }
}

/// Visits the numbers from 0 once each, consecutive ones far apart: steps by a prime that doesn't divide any number of
/// entries.
fn nth(number: u64, entries: u64) -> u64 {
    (u128::from(number) * 2_654_435_761 % u128::from(entries)) as u64
}

/// A key as random as a session id, generated from a number.
pub(crate) fn key(number: u64) -> Key {
    let mut key = [0; 32];
    for (part, bytes) in (0..).zip(key.as_chunks_mut::<8>().0) {
        *bytes = random_number(number.wrapping_mul(4).wrapping_add(part)).to_le_bytes();
    }
    Key(key)
}

/// `SplitMix64`.
pub(crate) fn random_number(number: u64) -> u64 {
    let seed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
