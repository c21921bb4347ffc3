//! Shards, and concurrent threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use cardea_clock::Mono;

use super::Sharded;
use super::schedule::explore;
use crate::{Lifetime, Limits};

const NOW: Mono = Mono::from_nanos(1);

fn limits(entries: usize) -> Limits {
    Limits { entries, bytes: usize::MAX, lifetime: Lifetime::Same(Duration::from_secs(10)) }
}

#[test]
fn the_bounds_are_those_of_all_shards_together() {
    for (entries, shards, expected) in [
        (0, 8, 1),
        (5, 8, 1),
        (1_000, 8, 1),
        (1_024, 8, 2),
        (5_000, 8, 8),
        (5_000, 3, 4),
        (3_000, 99, 4),
        (9, 0, 1),
    ] {
        let cache = Sharded::new(limits(entries), shards).unwrap();
        assert_eq!(cache.shards.len(), expected, "{entries} {shards}");
        for key in 0..3 * entries as u64 + 3 {
            cache.insert(key, key, NOW);
        }
        assert!(cache.len() <= entries && cache.len() >= entries - entries / 4);
    }
}

#[test]
fn it_does_what_a_cache_does() {
    let cache = Sharded::new(limits(5_000), 8).unwrap();
    for key in 0..100 {
        assert!(cache.insert(key, key.to_string(), NOW));
    }
    assert_eq!(cache.get(&7, NOW).as_deref(), Some("7"));
    assert_eq!(cache.get_with(&42, NOW, String::len), Some(2));
    assert_eq!(cache.take(&7, NOW).as_deref(), Some("7"));
    assert_eq!((cache.take(&7, NOW), cache.get(&7, NOW)), (None, None));
    assert_eq!(cache.remove(&8).as_deref(), Some("8"));
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.stored, cache.len()), (3, 2, 100, 98));
    let later = NOW.saturating_add(Duration::from_secs(10));
    assert_eq!((cache.take(&1, later), cache.get(&2, later)), (None, None));
    assert_eq!(cache.reclaim(usize::MAX, later), 96);
    assert!(cache.is_empty());
}

#[test]
fn a_lookup_writes_only_to_the_cache_line_of_the_lock() {
    let cache = Sharded::<u64, u64>::new(limits(5_000), 8).unwrap();
    for shard in &cache.shards {
        let start = (&raw const *shard).addr();
        let (by_lookup, by_eviction) = shard.lock().written_until();
        assert!(start.is_multiple_of(128) && by_lookup <= start + 64, "{}", by_lookup - start);
        assert!(by_lookup < by_eviction && by_eviction <= start + 64, "{}", by_eviction - start);
    }
}

/// A value that reads its cache when it is dropped, which takes the lock.
struct Nosy(Arc<Sharded<u64, Nosy>>, Arc<AtomicUsize>);

impl Drop for Nosy {
    fn drop(&mut self) {
        self.1.fetch_add(self.0.len().min(1), Relaxed);
    }
}

#[test]
fn values_are_dropped_outside_of_the_locks() {
    // Explored, so that a nested lock fails instead of deadlocking.
    let run = |(): &(), _: usize| {
        let cache = Arc::new(Sharded::new(limits(4), 1).unwrap());
        let seen = Arc::new(AtomicUsize::new(0));
        let nosy = || Nosy(Arc::clone(&cache), Arc::clone(&seen));
        for key in 0..8 {
            cache.insert(key, nosy(), NOW);
        }
        cache.insert(7, nosy(), NOW);
        drop(cache.remove(&7));
        drop(cache.take(&6, NOW));
        let later = NOW.saturating_add(Duration::from_secs(10));
        assert!(cache.take(&5, later).is_none());
        assert!(cache.get_with(&4, later, |_| ()).is_none());
        assert_eq!(seen.load(Relaxed), 8, "all but the last, which left the cache empty");
        cache.insert(9, nosy(), later);
        assert_eq!(cache.reclaim(9, later.saturating_add(Duration::from_secs(10))), 1);
        assert!(cache.is_empty());
    };
    explore(1, || (), run, |(), _| ());
}

#[test]
fn of_many_threads_one_takes_each_entry() {
    const KEYS: u64 = 20_000;
    let cache = Sharded::new(limits(1 << 20), 8).unwrap();
    for key in 0..KEYS {
        cache.insert(key, key, NOW);
    }
    let taken = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for key in 0..KEYS {
                    if let Some(value) = cache.take(&key, NOW) {
                        assert_eq!(value, key);
                        taken.fetch_add(1, Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!((taken.load(Relaxed), cache.len()), (KEYS as usize, 0));
}

/// The operations' effects in every order: each takes one lock, so the order of locks is the order of operations.
#[test]
fn in_every_order_threads_get_what_they_would_get_one_after_the_other() {
    #[derive(Clone, Copy)]
    enum Op {
        Insert(u64),
        Get,
        Take,
        Remove,
    }
    const KEY: u64 = 7;
    // Three operations of each of three threads.
    let scripts = [
        [Op::Insert(1), Op::Take, Op::Insert(2)],
        [Op::Get, Op::Take, Op::Get],
        [Op::Insert(3), Op::Remove, Op::Take],
    ];
    type Shared = (Sharded<u64, u64>, [std::sync::Mutex<Vec<Option<u64>>>; 3]);
    let shared = || -> Shared { (Sharded::new(limits(8), 1).unwrap(), Default::default()) };
    let run = |(cache, results): &Shared, thread: usize| {
        for op in scripts[thread] {
            let result = match op {
                Op::Insert(value) => {
                    assert!(cache.insert(KEY, value, NOW));
                    None
                }
                Op::Get => cache.get(&KEY, NOW),
                Op::Take => cache.take(&KEY, NOW),
                Op::Remove => cache.remove(&KEY),
            };
            results[thread].lock().unwrap().push(result);
        }
    };
    let check = |(cache, results): &Shared, order: &[usize]| {
        let (mut model, mut done) = (None, [0; 3]);
        for thread in order {
            let at = done[*thread];
            done[*thread] += 1;
            let expected = match scripts[*thread][at] {
                Op::Insert(value) => {
                    model = Some(value);
                    None
                }
                Op::Get => model,
                Op::Take | Op::Remove => model.take(),
            };
            assert_eq!(results[*thread].lock().unwrap()[at], expected, "{order:?}");
        }
        assert_eq!((done, cache.take(&KEY, NOW)), ([3; 3], model), "{order:?}");
    };
    // 9! / (3!)^3
    assert_eq!(explore(3, shared, run, check), 1_680);
}

/// A value that counts drops, and reads its cache when it is dropped.
struct Watcher(std::sync::Weak<Watched>);

struct Watched {
    cache: Sharded<u64, Watcher>,
    dropped: AtomicUsize,
    found: AtomicUsize,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(watched) = self.0.upgrade() {
            // Takes the lock, which fails the test if the thread holds it.
            assert!(watched.cache.len() <= 3);
            watched.dropped.fetch_add(1, Relaxed);
        }
    }
}

#[test]
fn values_are_dropped_once_and_outside_of_locks_in_every_order() {
    let later = NOW.saturating_add(Duration::from_secs(10));
    let shared = || {
        let cache = Sharded::new(limits(3), 1).unwrap();
        Arc::new(Watched { cache, dropped: AtomicUsize::new(0), found: AtomicUsize::new(0) })
    };
    let run = |watched: &Arc<Watched>, thread: usize| {
        let value = || Watcher(Arc::downgrade(watched));
        if thread == 0 {
            // Its clock reading is older: entries that the other thread saw expire stay expired.
            assert!(watched.cache.insert(1, value(), NOW));
            watched.cache.insert(2, value(), NOW);
            if let Some(value) = watched.cache.take(&1, NOW) {
                watched.found.fetch_add(1, Relaxed);
                drop(value);
            }
        } else {
            assert!(watched.cache.insert(3, value(), later));
            assert!(watched.cache.get_with(&3, later, |_| ()).is_some());
            watched.cache.reclaim(9, later);
        }
    };
    let check = |watched: &Arc<Watched>, order: &[usize]| {
        let kept = watched.cache.len();
        assert_eq!(watched.dropped.load(Relaxed) + kept, 3, "{order:?}");
        assert!(watched.cache.get_with(&3, later, |_| ()).is_some(), "a live one is gone: {order:?}");
        // An entry that is inserted with the older reading starts at the newer time.
        let is_first = order[0] == 0;
        assert!(is_first || watched.found.load(Relaxed) == 1, "{order:?}");
    };
    let orders = explore(2, shared, run, check);
    assert!(orders > 20, "{orders}");
}

#[test]
#[should_panic(expected = "a scoped thread panicked")]
fn a_lock_within_a_lock_is_noticed() {
    let shared = || Sharded::<u64, u64>::new(limits(2), 1).unwrap();
    let run = |cache: &Sharded<u64, u64>, _| {
        cache.insert(1, 1, NOW);
        cache.get_with(&1, NOW, |_| cache.len());
    };
    explore(1, shared, run, |_, _| ());
}
