//! The operations, and the time that they take.

use std::hint::{black_box, spin_loop};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cardea_clock::Mono;

use crate::nanoseconds;
use crate::subjects::{Key, Subject};

/// Of entries, where there is one.
pub(crate) const LIFETIME: Duration = Duration::from_secs(1_000);
/// Keys of a hot set.
const HOT: u64 = 512;
/// Shares of the entries that have expired when the operations begin.
pub(crate) const EXPIRED: [(&str, u64, u64); 4] =
    [("1-10", 1, 10), ("1-4", 1, 4), ("1-3", 1, 3), ("1-2", 1, 2)];
/// When what shall have expired was entered.
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

/// How many entries there are, and how much is done with them.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) entries: u64,
    /// Of one thread in a sample, if there are so many entries.
    pub(crate) operations: u64,
    pub(crate) samples: usize,
    /// For the rows in which entries have expired.
    pub(crate) fills: usize,
}

/// How many threads operate, where it is more than one.
pub(crate) fn thread_counts() -> Vec<usize> {
    let mut counts = vec![2, thread::available_parallelism().map_or(1, usize::from)];
    counts.retain(|count| *count > 1);
    counts.dedup();
    counts
}

/// A full cache that goes from one measurement to the next.
pub(crate) struct Chain<S> {
    size: Size,
    has_lifetime: bool,
    /// Filled when the first row is wanted.
    cache: Option<S>,
    /// Of the entries that are there in any case: those that were put last.
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

    /// Samples of operations on keys of all entries, or on fresh ones.
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
        // A part of the entries, so that all operations of a sample find what is as full.
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

/// Samples of each operation, by its kind, on caches that are full and hold so many expired entries, the oldest.
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
        // As many as have expired, in batches whose keys are made beforehand.
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

/// Nanoseconds of one thread per operation. Each list of keys is that of a thread.
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

/// Where threads wait until all of them run, each on a processor. A barrier that they sleep at would wake them up one
/// after the other, and a sample is over before the last one is there: that measures one thread, twice.
struct StartingLine {
    threads: usize,
    /// Whose turn it is, with all turns before.
    turn: AtomicUsize,
}

impl StartingLine {
    /// So many that they aren't taken within a time slice but by threads that run at the same time.
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

/// Of numbers from 0, each once, the next one far from the last: steps by a prime that divides no number of entries.
fn nth(number: u64, entries: u64) -> u64 {
    (u128::from(number) * 2_654_435_761 % u128::from(entries)) as u64
}

/// As random as a session's, from a number.
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
