//! Shards, and threads that use them at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use cardea_clock::Mono;

use super::Sharded;
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
fn a_lookup_writes_to_no_cache_line_but_that_of_the_lock_which_says_also_what_to_evict() {
    let cache = Sharded::<u64, u64>::new(limits(5_000), 8).unwrap();
    for shard in &cache.shards {
        let start = (&raw const *shard).addr();
        let (by_lookup, by_eviction) = shard.lock().written_until();
        assert!(start.is_multiple_of(128) && by_lookup <= start + 64, "{}", by_lookup - start);
        assert!(by_lookup < by_eviction && by_eviction <= start + 64, "{}", by_eviction - start);
    }
}

/// A value that looks at its cache when it is dropped: under the lock that would never end.
struct Nosy(Arc<Sharded<u64, Nosy>>, Arc<AtomicUsize>);

impl Drop for Nosy {
    fn drop(&mut self) {
        self.1.fetch_add(self.0.len().min(1), Relaxed);
    }
}

#[test]
fn values_are_dropped_outside_of_the_locks() {
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
    assert!(cache.is_empty());
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
