//! The cache lines that operations touch, and the length of dependent chains of loads.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;

use super::{at, limits, own, seconds};
use crate::cache::{Cache, HAND_STEPS_MAX};
use crate::touched::Memory;
use crate::touched::tests::{Line, by, line};
use crate::wheel::HEADS;
use crate::{Entry, Lifetime};

/// A full cache whose keys have scattered slots.
fn scattered(entries: u64, lifetime: Lifetime) -> Cache<u64, u64> {
    let mut cache = Cache::new(limits(entries as usize, lifetime)).unwrap();
    for key in 0..2 * entries {
        let _ = cache.insert_entry(entry(&cache, key, 1), at(1));
        // Used entries stay, so that the newest ones are spread over the slab.
        if key % 3 == 0 {
            let _ = cache.get(&(key / 2), at(1));
        }
    }
    assert_eq!(cache.len() as u64, entries);
    cache
}

/// With their own lifetimes, entries have deadlines in different buckets.
fn entry(cache: &Cache<u64, u64>, key: u64, second: u64) -> Entry<u64, u64> {
    let is_own = matches!(cache.limits.lifetime, Lifetime::Own { .. });
    Entry { key, value: key, deadline: is_own.then(|| at(second + 500 + key % 7 * 60)) }
}

/// The cost of an operation.
#[derive(Debug)]
struct Cost {
    lines: BTreeSet<Line>,
    /// The longest chain of dependent loads: a line's wait is one more than that of the line that contains its address.
    /// Known addresses and lines that the previous operation touched cost none.
    waits: usize,
}

impl Cost {
    fn of(&self, memory: Memory) -> usize {
        self.lines.iter().filter(|(of, _)| *of == memory).count()
    }
}

/// Runs `operation` on `key`, and returns its cost after one that touched the lines `before`.
fn cost<R>(
    cache: &mut Cache<u64, u64>,
    key: u64,
    before: &BTreeSet<Line>,
    operation: impl FnOnce(&mut Cache<u64, u64>) -> R,
) -> Cost {
    let (slots, of_index) = (cache.slab.leads_to(), cache.index.lines());
    let links = cache.wheel.as_ref().map(|wheel| wheel.leads_to()).unwrap_or_default();
    let of_slot = |slot: u32| {
        [
            line(Memory::Slots, slot),
            line(Memory::Places, slot),
            line(Memory::Links, slot.saturating_add(HEADS)),
        ]
    };
    let mut known: BTreeSet<Line> = cache.slab.known().into_iter().flat_map(of_slot).collect();
    known.extend(cache.index.known(cache.hasher.hash_one(key)).map(|number| line(Memory::Index, number)));
    known.extend((0..HEADS).map(|head| line(Memory::Links, head)));
    // The addresses in a line.
    let leads_to = |(memory, number): Line| -> Vec<Line> {
        let in_line =
            |count: usize| (0..count as u32).filter(move |at| line(memory, *at) == (memory, number));
        match memory {
            Memory::Slots => {
                slots.get(number as usize).into_iter().flatten().copied().flat_map(of_slot).collect()
            }
            Memory::Places => {
                in_line(of_index.len()).map(|slot| line(Memory::Index, of_index[slot as usize])).collect()
            }
            Memory::Index => {
                let is_in = |slot: &u32| of_index[*slot as usize] == number;
                (0..of_index.len() as u32).filter(is_in).flat_map(of_slot).collect()
            }
            Memory::Links => in_line(links.len())
                .flat_map(|link| links[link as usize])
                .flat_map(|link| {
                    let slot = link.checked_sub(HEADS).map(of_slot);
                    slot.into_iter().flatten().chain([line(Memory::Links, link)])
                })
                .collect(),
        }
    };
    let lines = by(|| operation(cache));
    let mut waits: BTreeMap<Line, usize> = BTreeMap::new();
    let mut next: BTreeSet<Line> = lines.intersection(before).copied().collect();
    for wait in 0.. {
        waits.extend(next.iter().map(|line| (*line, wait)));
        let mut found: BTreeSet<Line> = next.iter().flat_map(|line| leads_to(*line)).collect();
        if wait == 0 {
            found.extend(&known);
        }
        next = found.into_iter().filter(|line| lines.contains(line) && !waits.contains_key(line)).collect();
        if next.is_empty() {
            break;
        }
    }
    assert!(
        lines.iter().all(|line| waits.contains_key(line)),
        "nothing says where it is: {lines:?} {waits:?}"
    );
    Cost { waits: waits.into_values().max().unwrap_or_default(), lines }
}

#[test]
fn a_lookup_touches_two_or_three_lines_and_waits_twice_at_any_size() {
    for (entries, lifetime) in [(1_000, seconds(1_000)), (20_000, seconds(1_000)), (1_000, own(1_000))] {
        let mut cache = scattered(entries, lifetime);
        // One of some thousand lookups also reads another slot, whose key has the same tag.
        let (mut hits, mut of_index, mut of_slots) = (0, 0, 0);
        for key in (0..2 * entries).step_by(entries as usize / 140) {
            let is_there = cache.find(cache.hasher.hash_one(key), &key).is_some();
            let cost = cost(&mut cache, key, &BTreeSet::new(), |cache| cache.get(&key, at(1)).copied());
            let [index, slots] = [Memory::Index, Memory::Slots].map(|memory| cost.of(memory));
            assert!(cost.waits <= 2 && index + slots == cost.lines.len(), "{cost:?}");
            if is_there {
                (hits, of_index, of_slots) = (hits + 1, of_index + index, of_slots + slots);
                assert!(index <= 2 && slots <= 2, "{cost:?}");
            } else {
                assert!(index == 2 && slots <= 1, "{cost:?}");
            }
        }
        assert!(hits > 50 && of_index * 100 <= hits * 115, "a second line is rare: {of_index} for {hits}");
        assert!(of_slots * 50 <= hits * 51, "a second slot is very rare: {of_slots} for {hits}");
    }
}

#[test]
fn an_insert_waits_four_times_at_the_most_at_any_size() {
    for (entries, lifetime) in [(1_000, seconds(1_000)), (20_000, seconds(1_000)), (1_000, own(1_000))] {
        let mut cache = scattered(entries, lifetime);
        // In the wheel: the entry's slot, head and tail of its bucket, the same for the evicted entry, and the list of
        // expired ones.
        let links = if matches!(lifetime, Lifetime::Own { .. }) { 8 } else { 0 };
        let mut before = BTreeSet::new();
        let mut waits = BTreeSet::new();
        for key in 10 * entries..10 * entries + 200 {
            // The hand passes from none to more than its limit.
            let (leads_to, [.., mut visited, _]) = (cache.slab.leads_to(), cache.slab.known());
            for _ in 0..key as usize % (HAND_STEPS_MAX + 2) {
                cache.slab.visit(visited);
                visited = leads_to[visited as usize][0];
            }
            let new = entry(&cache, key, 1);
            let cost = cost(&mut cache, key, &before, |cache| cache.insert_entry(new, at(1)));
            // Both lines of the key and that of the evicted one; those that the hand passes, two neighbours and the
            // newest.
            assert!(cost.of(Memory::Index) <= 3 && cost.of(Memory::Places) == 1, "{cost:?}");
            assert!(
                cost.of(Memory::Slots) <= HAND_STEPS_MAX + 4 && cost.of(Memory::Links) <= links,
                "{cost:?}"
            );
            assert!(cost.waits <= 4, "{cost:?}");
            waits.insert(cost.waits);
            before = cost.lines;
        }
        assert!(waits.contains(&2) && waits.contains(&4), "the hand passes as many each time: {waits:?}");
        // For a present key: its own slot, with its neighbours.
        for key in cache.slab.iter().map(|(key, _)| *key).step_by(entries as usize / 40).collect::<Vec<_>>() {
            let new = entry(&cache, key, 1);
            let cost = cost(&mut cache, key, &BTreeSet::new(), |cache| cache.insert_entry(new, at(1)));
            assert!(cost.waits <= 3, "{cost:?}");
        }
    }
}

#[test]
fn what_leaves_waits_three_times_however_many_have_expired() {
    for (entries, lifetime) in [(1_000, seconds(1_000)), (20_000, seconds(1_000)), (1_000, own(1_000))] {
        let (links, slots) = if matches!(lifetime, Lifetime::Own { .. }) { (3, 8) } else { (0, 6) };
        let mut cache = scattered(entries, lifetime);
        let keys: Vec<u64> = cache.slab.iter().map(|(key, _)| *key).step_by(entries as usize / 120).collect();
        for (number, key) in keys.into_iter().enumerate() {
            // Removed, taken, or found expired, as all are then.
            let cost = cost(&mut cache, key, &BTreeSet::new(), |cache| match number {
                0..40 => assert!(cache.remove(&key).is_some()),
                40..80 => assert!(cache.take(&key, at(1)).is_some()),
                _ => assert!(cache.get(&key, at(2_000)).is_none()),
            });
            assert!(cost.of(Memory::Index) <= 2 && cost.of(Memory::Places) == 0, "{cost:?}");
            assert!(cost.of(Memory::Slots) <= 4 && cost.of(Memory::Links) <= links, "{cost:?}");
            assert!(cost.waits <= 3, "{cost:?}");
        }
        // Each insert removes two, and touches no more for all the others.
        let mut before = BTreeSet::new();
        for key in 20 * entries..20 * entries + 100 {
            let new = entry(&cache, key, 2_000);
            let cost = cost(&mut cache, key, &before, |cache| cache.insert_entry(new, at(2_000)));
            assert!(cost.of(Memory::Index) <= 4 && cost.of(Memory::Places) <= 3, "{cost:?}");
            assert!(cost.of(Memory::Slots) <= slots && cost.waits <= 4, "{cost:?}");
            before = cost.lines;
        }
        // A timer's: without the line for a new entry.
        for _ in 0..100 {
            let cost = cost(&mut cache, 0, &BTreeSet::new(), |cache| cache.reclaim(1, at(2_000)));
            assert!(
                cost.of(Memory::Index) <= 1 && cost.of(Memory::Slots) <= 3 && cost.waits <= 3,
                "{cost:?}"
            );
        }
    }
}
