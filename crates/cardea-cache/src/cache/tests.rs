//! The cache compared with simple reference models, the worked examples of its design, and its limits.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::rc::Rc;
use std::time::Duration;

use cardea_clock::Mono;
use proptest::prelude::*;

use super::{Cache, HAND_STEPS_MAX};
use crate::{Entry, Lifetime, Limits};

mod lines;

impl<K, V, S> Cache<K, V, S> {
    /// The end of the fields that every lookup writes, and of those that an eviction starts from.
    pub(crate) fn written_until(&self) -> (usize, usize) {
        let start = (&raw const self.now).addr();
        assert!(start < (&raw const self.hits).addr());
        ((&raw const self.misses).addr() + size_of::<u64>(), self.slab.written_until())
    }
}

const SECOND: u64 = 1_000_000_000;

fn at(second: u64) -> Mono {
    Mono::from_nanos(second * SECOND)
}

fn limits(entries: usize, lifetime: Lifetime) -> Limits {
    Limits { entries, bytes: usize::MAX, lifetime }
}

fn seconds(seconds: u64) -> Lifetime {
    Lifetime::Same(Duration::from_secs(seconds))
}

fn own(max_seconds: u64) -> Lifetime {
    Lifetime::Own { max: Duration::from_secs(max_seconds) }
}

/// Keys from the oldest entry to the newest.
fn contents(cache: &Cache<u64, u64>) -> Vec<u64> {
    cache.slab.iter().map(|(key, _)| *key).collect()
}

/// Inserts each of `keys` at the second of its own number.
fn put_each(cache: &mut Cache<u64, u64>, keys: &[u64]) {
    for key in keys {
        assert!(cache.insert(*key, *key, at(*key)).stored);
    }
}

// The three worked examples of the JDK's change of its session cache (JDK-8259886), with the same capacity and times.

#[test]
fn example_1_an_overflow_without_expiry_drops_the_oldest() {
    let mut cache = Cache::new(limits(4, seconds(10))).unwrap();
    put_each(&mut cache, &[1, 2, 3, 4, 5]);
    assert_eq!(contents(&cache), [2, 3, 4, 5]);
}

#[test]
fn example_2_an_expired_entry_goes_before_live_ones_though_it_was_read_last() {
    // The old version scanned all entries; the new one dropped 3, which was live, and kept 1.
    for lifetime in [seconds(7), own(7)] {
        let mut cache = Cache::new(limits(4, lifetime)).unwrap();
        put_each(&mut cache, &[1, 3, 5, 7]);
        assert_eq!(cache.get(&1, at(7)).copied(), Some(1));
        put_each(&mut cache, &[9]);
        assert_eq!(contents(&cache), [3, 5, 7, 9], "{lifetime:?}");
    }
}

#[test]
fn example_3_what_expired_goes_where_inserts_come_slowly() {
    // The old version kept all four.
    for lifetime in [seconds(1), own(1)] {
        let mut cache = Cache::new(limits(4, lifetime)).unwrap();
        put_each(&mut cache, &[1, 3, 5, 7]);
        assert_eq!(contents(&cache), [7], "{lifetime:?}");
    }
}

#[test]
fn an_entry_lives_until_its_deadline_and_not_at_it() {
    let mut cache = Cache::new(limits(4, seconds(10))).unwrap();
    put_each(&mut cache, &[1]);
    assert_eq!(cache.get(&1, Mono::from_nanos(11 * SECOND - 1)).copied(), Some(1));
    assert_eq!(cache.get(&1, at(11)).copied(), None);
    assert!(cache.is_empty(), "a lookup removes what it finds expired");
}

#[test]
fn time_never_goes_back() {
    let mut cache = Cache::new(limits(4, seconds(10))).unwrap();
    put_each(&mut cache, &[1, 9]);
    assert_eq!(cache.get(&1, at(11)).copied(), None);
    // As of second 11, whatever the caller's clock says.
    let _ = cache.insert(2, 2, at(3));
    assert_eq!(cache.get(&2, at(20)).copied(), Some(2));
    assert_eq!(cache.get(&2, at(21)).copied(), None);
    assert_eq!(cache.get(&9, Mono::MAX).copied(), None);
}

#[test]
fn nothing_is_stored_without_places_lifetime_or_bytes() {
    let cases = [
        limits(0, Lifetime::Unlimited),
        limits(0, own(5)),
        limits(4, seconds(0)),
        limits(4, own(0)),
        Limits { bytes: 9, ..limits(4, Lifetime::Unlimited) },
    ];
    for limits in cases {
        let mut cache = Cache::weighed(limits, |_: &u64, _: &u64| 10, RandomState::new()).unwrap();
        for key in 0..3 {
            let inserted = cache.insert(key, 7, at(1));
            assert!(!inserted.stored);
            assert_eq!(inserted.removed.as_slice(), [(key, 7)], "what is refused comes back");
            assert_eq!(
                (cache.get(&key, at(1)).copied(), cache.take(&key, at(1)), cache.remove(&key)),
                (None, None, None)
            );
        }
        assert_eq!((cache.len(), cache.stats().refused), (0, 3), "{limits:?}");
    }
}

#[test]
fn a_deadline_counts_where_entries_have_their_own_and_is_never_ignored() {
    let entry = |key, second| Entry { key, value: key, deadline: Some(at(second)) };
    let mut cache = Cache::new(limits(9, own(100))).unwrap();
    let _ = cache.insert_entry(entry(1, 33), at(1));
    let _ = cache.insert_entry(entry(2, 9_999), at(1));
    assert!(!cache.insert_entry(entry(3, 1), at(1)).stored, "expired before it came");
    assert_eq!((cache.get(&1, at(31)).copied(), cache.get(&1, at(33)).copied()), (Some(1), None));
    assert_eq!((cache.get(&2, at(97)).copied(), cache.get(&2, at(101)).copied()), (Some(2), None));

    let mut cache = Cache::new(limits(9, seconds(10))).unwrap();
    assert!(cache.insert_entry(entry(1, 11), at(1)).stored);
    assert!(!cache.insert_entry(entry(1, 10), at(1)).stored);
    assert_eq!(cache.get(&1, at(1)).copied(), None, "the predecessor is gone");
    let mut cache = Cache::new(limits(9, Lifetime::Unlimited)).unwrap();
    assert!(!cache.insert_entry(entry(1, 10), at(1)).stored);
}

#[test]
fn an_equal_key_replaces_the_value_and_begins_a_new_life() {
    for lifetime in [seconds(10), own(10)] {
        let mut cache = Cache::new(limits(2, lifetime)).unwrap();
        put_each(&mut cache, &[1, 2]);
        let inserted = cache.insert(1, 77, at(5));
        assert_eq!((inserted.stored, inserted.removed.as_slice()), (true, [(1, 1)].as_slice()));
        assert_eq!((cache.get(&1, at(13)).copied(), cache.get(&2, at(13)).copied()), (Some(77), None));
        assert_eq!(cache.get(&1, at(15)).copied(), None);
    }
}

#[test]
fn what_is_looked_up_stays_and_the_hand_passes_a_bounded_number() {
    let many = HAND_STEPS_MAX as u64 + 2;
    let mut cache = Cache::new(limits(many as usize, Lifetime::Unlimited)).unwrap();
    put_each(&mut cache, &(1..=many).collect::<Vec<_>>());
    assert!(cache.get(&1, at(1)).is_some() && cache.get(&2, at(1)).is_some());
    put_each(&mut cache, &[100]);
    assert_eq!(cache.get(&3, at(1)).copied(), None, "the oldest that was not looked up");
    // All were used. The hand is at 4, and the last of its four steps is where it ends.
    for key in [1, 2, 4, 5, 6, 100] {
        assert!(cache.get(&key, at(1)).is_some());
    }
    put_each(&mut cache, &[101]);
    assert_eq!(contents(&cache), [1, 2, 4, 5, 6, 101]);
}

#[test]
fn the_bound_in_bytes_holds_and_each_insert_evicts_a_bounded_number() {
    let bounded = Limits { entries: 100, bytes: 100, lifetime: seconds(10) };
    let weigh = |_: &u64, value: &u64| usize::try_from(*value).unwrap();
    let mut cache = Cache::weighed(bounded, weigh, RandomState::new()).unwrap();
    for key in 0..40 {
        assert!(cache.insert(key, 2, at(1)).stored);
    }
    assert_eq!(cache.bytes(), 80);
    let inserted = cache.insert(50, 40, at(1));
    assert_eq!((inserted.stored, inserted.removed.len(), cache.bytes()), (true, 10, 100));
    // Evicting sixteen small ones is not enough.
    let inserted = cache.insert(51, 60, at(1));
    assert!(!inserted.stored && inserted.removed.len() == 17 && cache.bytes() <= 100);
    assert!(!cache.insert(52, 101, at(1)).stored);
    assert_eq!(cache.remove(&50), Some(40));
    let _ = cache.reclaim(1_000, at(11));
    assert_eq!((cache.bytes(), cache.len()), (0, 0));
}

#[test]
fn for_bytes_too_expired_entries_go_before_live_ones() {
    for lifetime in [seconds(10), own(10)] {
        let bounded = Limits { entries: 100, bytes: 10, lifetime };
        let mut cache =
            Cache::weighed(bounded, |_, value: &u64| *value as usize, RandomState::new()).unwrap();
        for key in 1..=10 {
            assert!(cache.insert(key, 1, at(key)).stored);
        }
        for key in 1..=9 {
            assert!(cache.get(&key, at(10)).is_some());
        }
        // Six have expired, all of them used; the tenth is the one that recency would evict first.
        let inserted = cache.insert(50, 6, at(16));
        assert_eq!((inserted.stored, inserted.removed.len(), cache.bytes()), (true, 6, 10));
        assert_eq!(contents(&cache), [7, 8, 9, 10, 50], "{lifetime:?}");
    }
}

#[test]
fn expired_entries_are_reclaimed_by_a_timer() {
    for lifetime in [seconds(10), own(10)] {
        let mut cache = Cache::new(limits(50, lifetime)).unwrap();
        put_each(&mut cache, &(1..=9).collect::<Vec<_>>());
        assert_eq!(cache.reclaim(2, at(15)).len(), 2);
        assert_eq!(cache.reclaim(50, at(15)).len(), 3);
        assert_eq!(cache.reclaim(50, at(15)).len(), 0);
        assert_eq!(contents(&cache), [6, 7, 8, 9]);
    }
}

#[test]
fn debug_output_shows_neither_keys_nor_values() {
    let mut cache = Cache::new(limits(4, seconds(10))).unwrap();
    let _ = cache.insert("the key", "the secret", at(1));
    let shown = format!("{cache:?}");
    assert!(shown.contains("len: 1") && !shown.contains("the key") && !shown.contains("the secret"));
}

/// A hash that is equal for all keys, as an attacker who knows the hash function achieves.
#[derive(Clone, Default)]
struct Alike;

impl BuildHasher for Alike {
    type Hasher = Self;
    fn build_hasher(&self) -> Self {
        Self
    }
}

impl Hasher for Alike {
    fn finish(&self) -> u64 {
        0
    }
    fn write(&mut self, _: &[u8]) {}
}

#[test]
fn colliding_keys_take_twenty_positions_and_evict_no_others() {
    let mut cache = Cache::weighed(limits(100, Lifetime::Unlimited), |_, _| 0, Alike).unwrap();
    let stored: Vec<u64> = (0..50).filter(|key| cache.insert(*key, *key, at(1)).stored).collect();
    assert_eq!(stored, (0..20).collect::<Vec<_>>());
    assert!((0..50).all(|key| cache.get(&key, at(1)).is_some() == (key < 20)));
    assert_eq!((cache.stats().evicted, cache.stats().refused), (0, 30));
    assert_eq!(cache.take(&3, at(1)), Some(3));
    assert!(cache.insert(99, 99, at(1)).stored);
}

/// A value that counts its instances.
struct Counted(Rc<Cell<usize>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn each_value_is_dropped_once() {
    let dropped = Rc::new(Cell::new(0));
    let mut cache = Cache::new(limits(8, own(10))).unwrap();
    for second in 0..100 {
        let _ = cache.insert(second % 23, Counted(Rc::clone(&dropped)), at(second));
        drop(cache.take(&(second % 5), at(second)));
    }
    assert_eq!(dropped.get() + cache.len(), 100);
    drop(cache);
    assert_eq!(dropped.get(), 100);
}

#[derive(Debug, Clone)]
enum Op {
    Put(u8, u64),
    Get(u8),
    Take(u8),
    Remove(u8),
    Pass(u64),
    Reclaim(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = 0..40_u8;
    // From less than a tick of the wheel to hours.
    let nanos = (18_u32..44, any::<u64>()).prop_map(|(exponent, bits)| bits & ((1 << exponent) - 1));
    let op = prop_oneof![
        6 => (key.clone(), nanos.clone()).prop_map(|(key, left)| Op::Put(key, left)),
        5 => key.clone().prop_map(Op::Get),
        1 => key.clone().prop_map(Op::Take),
        1 => key.prop_map(Op::Remove),
        2 => nanos.prop_map(Op::Pass),
        1 => (0..4_usize).prop_map(Op::Reclaim),
    ];
    prop::collection::vec(op, 1..200)
}

/// The reference model: a map that is scanned.
#[derive(Default)]
struct Model {
    entries: HashMap<u8, (u64, u64)>,
}

impl Model {
    fn pass(&mut self, now: u64) {
        self.entries.retain(|_, (_, deadline)| now < *deadline);
    }
}

fn longest(lifetime: Lifetime) -> u64 {
    match lifetime {
        Lifetime::Unlimited => u64::MAX,
        Lifetime::Same(lifetime) | Lifetime::Own { max: lifetime } => {
            u64::try_from(lifetime.as_nanos()).unwrap()
        }
    }
}

fn check(
    cache: &mut Cache<u8, u64>,
    ops: &[Op],
    capacity: usize,
    lifetime: Lifetime,
) -> Result<(), TestCaseError> {
    let (mut model, mut now, mut serial) = (Model::default(), 0, 0);
    for op in ops {
        let time = Mono::from_nanos(now);
        match *op {
            Op::Pass(nanos) => now += nanos,
            Op::Get(key) => {
                let expected = model.entries.get(&key).map(|(value, _)| *value);
                prop_assert_eq!(cache.get(&key, time).copied(), expected);
            }
            Op::Take(key) => {
                prop_assert_eq!(cache.take(&key, time), model.entries.remove(&key).map(|(value, _)| value));
            }
            Op::Remove(key) => {
                let expected = model.entries.remove(&key).map(|(value, _)| value);
                let removed = cache.remove(&key);
                // Expired entries may still be present.
                prop_assert!(removed == expected || expected.is_none());
            }
            Op::Reclaim(max) => {
                for (key, _) in cache.reclaim(max, time) {
                    prop_assert!(!model.entries.contains_key(&key), "{key} was live");
                }
            }
            Op::Put(key, left) => {
                serial += 1;
                let deadline = (lifetime != Lifetime::Unlimited).then(|| Mono::from_nanos(now + left));
                let deadline = if matches!(lifetime, Lifetime::Same(_)) { None } else { deadline };
                let inserted = cache.insert_entry(Entry { key, value: serial, deadline }, time);
                model.entries.remove(&key);
                let lost: Vec<u8> = inserted
                    .removed
                    .iter()
                    .filter(|(other, _)| *other != key && model.entries.contains_key(other))
                    .map(|(other, _)| *other)
                    .collect();
                // An expired entry never displaces a live one: one is evicted only if all entries are live.
                let full = model.entries.len() == capacity;
                prop_assert_eq!(lost.len(), usize::from(full && inserted.stored));
                model.entries.retain(|key, _| !lost.contains(key));
                if inserted.stored {
                    let (slot, _) = cache.find(cache.hasher.hash_one(key), &key).unwrap();
                    let rounded = cache.slab.deadline(slot);
                    let exact = match lifetime {
                        Lifetime::Own { .. } => now + left.min(longest(lifetime)),
                        Lifetime::Unlimited | Lifetime::Same(_) => now.saturating_add(longest(lifetime)),
                    };
                    let slack = match lifetime {
                        Lifetime::Own { .. } => (1_u64 << 24).max((exact - now) / 32),
                        Lifetime::Unlimited | Lifetime::Same(_) => 0,
                    };
                    prop_assert!(now < rounded && rounded <= exact && exact - rounded <= slack);
                    model.entries.insert(key, (serial, rounded));
                } else {
                    let may_round_to_nothing =
                        matches!(lifetime, Lifetime::Own { .. }) && left.min(longest(lifetime)) < 1 << 24;
                    prop_assert!(may_round_to_nothing);
                }
            }
        }
        model.pass(now);
        prop_assert!(cache.len() <= capacity && model.entries.len() <= cache.len());
    }
    let time = Mono::from_nanos(now);
    for key in 0..40 {
        let expected = model.entries.get(&key).map(|(value, _)| *value);
        prop_assert_eq!(cache.take(&key, time), expected);
    }
    let _ = cache.reclaim(usize::MAX, time);
    prop_assert!(cache.is_empty(), "what is left has expired");
    Ok(())
}

/// SIEVE with a bounded number of steps, over a vector that is searched.
struct Sieve {
    /// Key and visited, the oldest first.
    entries: Vec<(u8, bool)>,
    hand: usize,
}

impl Sieve {
    fn remove(&mut self, index: usize) {
        self.entries.remove(index);
        if index < self.hand {
            self.hand -= 1;
        }
        if self.hand == self.entries.len() {
            self.hand = 0;
        }
    }

    fn position(&self, key: u8) -> Option<usize> {
        self.entries.iter().position(|(other, _)| *other == key)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn it_agrees_with_a_map_and_scans(ops in ops(), capacity in 1..24_usize, kind in 0..3, left in 20_u32..44) {
        let lifetime = Duration::from_nanos(1 << left);
        let lifetime = match kind {
            0 => Lifetime::Unlimited,
            1 => Lifetime::Same(lifetime),
            _ => Lifetime::Own { max: lifetime },
        };
        let mut cache = Cache::new(limits(capacity, lifetime)).unwrap();
        check(&mut cache, &ops, capacity, lifetime)?;
    }

    #[test]
    fn without_lifetimes_it_evicts_as_sieve_does(ops in ops(), capacity in 1..24_usize) {
        let mut cache = Cache::new(limits(capacity, Lifetime::Unlimited)).unwrap();
        let mut model = Sieve { entries: Vec::new(), hand: 0 };
        for op in ops {
            match op {
                Op::Put(key, _) => {
                    let known = model.position(key);
                    if let Some(index) = known {
                        model.remove(index);
                    } else if model.entries.len() == capacity {
                        for _ in 1..HAND_STEPS_MAX {
                            let hand = model.hand;
                            if !std::mem::take(&mut model.entries[hand].1) {
                                break;
                            }
                            model.hand = (hand + 1) % model.entries.len();
                        }
                        model.remove(model.hand);
                    }
                    // A hand beyond the end waits for the next entry.
                    model.entries.push((key, known.is_some()));
                    let _ = cache.insert(key, 0_u64, at(0));
                }
                Op::Get(key) => {
                    let known = model.position(key);
                    if let Some(index) = known {
                        model.entries[index].1 = true;
                    }
                    prop_assert_eq!(cache.get(&key, at(0)).is_some(), known.is_some());
                }
                Op::Take(key) | Op::Remove(key) => {
                    if let Some(index) = model.position(key) {
                        model.remove(index);
                    }
                    let _ = cache.take(&key, at(0));
                }
                Op::Pass(_) | Op::Reclaim(_) => {}
            }
            let keys: Vec<u8> = cache.slab.iter().map(|(key, _)| *key).collect();
            prop_assert_eq!(keys, model.entries.iter().map(|(key, _)| *key).collect::<Vec<_>>());
        }
    }
}
