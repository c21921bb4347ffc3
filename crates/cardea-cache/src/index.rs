//! Where the slot of a key is: a hash table of fixed size in which each key has two places, a cache line each.
//!
//! A line has eight places: eight 32-bit tags from the hashes of keys, which are compared at once, and the numbers of
//! their slots. A key goes into the emptier of its two lines. With four places in use per line on average, the fullest
//! of millions of lines hold seven, since the load of the fuller half decays doubly exponentially (Azar, Broder, Karlin,
//! Upfal: Balanced Allocations, 1999). Whatever the hashes are, no operation touches a third line: a key whose lines
//! are both full is not stored.

use crate::LimitsError;

/// Places in a line.
const PLACES: usize = 8;
/// Words in a cache line of 64 bytes: the tags, then the slots.
const LINE_WORDS: usize = 2 * PLACES;
/// Places in use per line when the cache is full, on average.
const LOAD: usize = 4;
/// Lines beyond that, so that small tables have slack where the average says little.
const LINES_SPARE: usize = 16;

type Line = [u32; LINE_WORDS];

/// Finds slots by the tags of their keys.
#[derive(Debug)]
pub(crate) struct Index {
    words: Box<[u32]>,
    /// Words before the first one at the start of a cache line: the allocator aligns to 16 bytes.
    skip: usize,
    lines: u32,
    /// Of each slot, so that who leaves need not be searched for.
    places: Box<[Place]>,
}

/// A part of a key's hash, never 0, which marks free places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag(u32);

impl Tag {
    /// From the high half of a hash; shards are chosen by the low one.
    pub(crate) const fn of(hash: u64) -> Self {
        let tag = (hash >> 32) as u32;
        Self(if tag == 0 { 1 } else { tag })
    }
}

/// A place in the index, by its number.
type Place = u32;

const PLACES_U32: u32 = PLACES as u32;

/// What the two lines of a tag hold: a bit for each of their sixteen places.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe {
    lines: [u32; 2],
    matching: u32,
    free: u32,
}

impl Probe {
    /// A free place, in the emptier of the lines.
    #[inline]
    pub(crate) fn free(&self) -> Option<Place> {
        const FIRST: u32 = (1 << PLACES) - 1;
        let (first, second) = (self.free & FIRST, self.free >> PLACES);
        let free = if first.count_ones() >= second.count_ones() { first } else { second << PLACES };
        (free != 0).then(|| self.place(free.trailing_zeros()))
    }

    fn place(&self, bit: u32) -> Place {
        self.lines[usize::from(bit >= PLACES_U32)] * PLACES_U32 + bit % PLACES_U32
    }
}

impl Index {
    /// For `entries` keys. Memory is reserved, and used as keys come.
    pub(crate) fn new(entries: usize) -> Result<Self, LimitsError> {
        let lines = entries.div_ceil(LOAD) + LINES_SPARE;
        let count = u32::try_from(lines).map_err(|_| LimitsError::OutOfMemory { entries })?;
        // From the allocator's zeroed memory: pages that nobody has touched cost nothing.
        let words = vec![0; lines * LINE_WORDS + LINE_WORDS - 1].into_boxed_slice();
        let skip = words.as_ptr().align_offset(size_of::<Line>()).min(LINE_WORDS - 1);
        Ok(Self { words, skip, lines: count, places: vec![0; entries].into_boxed_slice() })
    }

    /// Looks at both lines of a tag at once, so that the processor fetches them at once.
    #[inline]
    pub(crate) fn probe(&self, tag: Tag) -> Probe {
        // Multiplied by the number of lines, a tag as a fraction of 2^32 becomes a line without a division. The second
        // line comes from the same bits, mixed by odd constants.
        let scale = |tag: u32| ((u64::from(tag) * u64::from(self.lines)) >> 32) as u32;
        let first = scale(tag.0);
        let mut second = scale(tag.0.wrapping_mul(0x9e37_79b1).rotate_left(15).wrapping_mul(0x85eb_ca6b));
        if second == first {
            second = if first + 1 == self.lines { 0 } else { first + 1 };
        }
        let (line, other) = (self.line(first), self.line(second));
        let both = |tag| equal(line, tag) | (equal(other, tag) << PLACES);
        Probe { lines: [first, second], matching: both(tag.0), free: both(0) }
    }

    /// The slots whose keys have the tag: nearly always the right one or none.
    #[inline]
    pub(crate) fn candidates(&self, probe: Probe) -> impl Iterator<Item = u32> + use<'_> {
        let mut left = probe.matching;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let place = probe.place(left.trailing_zeros());
            left &= left - 1;
            Some(self.line(place / PLACES_U32)[PLACES + number(place)])
        })
    }

    /// The place of a slot that is in the index.
    #[inline]
    pub(crate) fn place_of(&self, slot: u32) -> Place {
        self.places[slot as usize]
    }

    /// Enters a slot into a free place of its tag.
    #[inline]
    pub(crate) fn insert(&mut self, tag: Tag, slot: u32, place: Place) {
        let line = self.line_mut(place / PLACES_U32);
        line[number(place)] = tag.0;
        line[PLACES + number(place)] = slot;
        self.places[slot as usize] = place;
    }

    /// Takes a slot out that is in the index, and frees its place.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) {
        let place = self.place_of(slot);
        self.line_mut(place / PLACES_U32)[number(place)] = 0;
    }

    fn line(&self, line: u32) -> &Line {
        &self.words[self.skip..].as_chunks().0[line as usize]
    }

    fn line_mut(&mut self, line: u32) -> &mut Line {
        &mut self.words[self.skip..].as_chunks_mut().0[line as usize]
    }
}

/// Of a place within its line.
const fn number(place: Place) -> usize {
    (place % PLACES_U32) as usize
}

/// A bit for each place with this tag.
fn equal(line: &Line, tag: u32) -> u32 {
    let tags = line.iter().take(PLACES).enumerate();
    tags.fold(0, |bits, (number, other)| bits | (u32::from(*other == tag) << number))
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Index {
        fn enter(&mut self, tag: Tag, slot: u32) -> bool {
            let place = self.probe(tag).free();
            place.is_some_and(|place| {
                self.insert(tag, slot, place);
                true
            })
        }

        fn slots(&self, tag: Tag) -> Vec<u32> {
            let mut slots: Vec<_> = self.candidates(self.probe(tag)).collect();
            slots.sort_unstable();
            slots
        }
    }

    #[test]
    fn lines_are_cache_lines() {
        for entries in [0, 1, 100, 100_000] {
            let index = Index::new(entries).unwrap();
            assert_eq!(index.line(0).as_ptr().align_offset(64), 0);
            assert_eq!(index.words[index.skip..].as_chunks::<LINE_WORDS>().0.len(), index.lines as usize);
        }
    }

    #[test]
    fn a_slot_is_found_until_it_is_removed_also_among_equal_tags() {
        let mut index = Index::new(64).unwrap();
        for hash in [0, 1 << 32, 7 << 32, u64::MAX] {
            let tag = Tag::of(hash);
            for slot in [3, 0, 9] {
                assert!(index.enter(tag, slot));
            }
            assert_eq!(index.slots(tag), [0, 3, 9]);
            index.remove(3);
            assert_eq!(index.slots(tag), [0, 9]);
            index.remove(0);
            index.remove(9);
            assert!(index.slots(tag).is_empty());
        }
    }

    #[test]
    fn equal_tags_fill_two_lines_and_no_more() {
        let mut index = Index::new(100).unwrap();
        let tag = Tag(5);
        let stored = (0..100).filter(|slot| index.enter(tag, *slot)).count();
        assert_eq!((stored, index.probe(tag).free()), (2 * PLACES, None));
        assert_eq!(index.slots(tag), (0..16).collect::<Vec<_>>());
    }

    #[test]
    fn a_full_cache_of_any_size_finds_room_for_random_hashes() {
        for entries in [1_u32, 8, 9, 64, 1_000, 20_000, 300_000] {
            let mut index = Index::new(entries as usize).unwrap();
            // SplitMix64, of which tests need no more than that it looks random.
            let mut state = 0_u64;
            let mut random = || {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                Tag::of((mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb))
            };
            let mut tags: Vec<Tag> = (0..entries).map(|_| random()).collect();
            for (slot, tag) in (0..).zip(&tags) {
                assert!(index.enter(*tag, slot), "{entries}: {slot}");
            }
            for round in 0..2 * entries {
                let slot = round % entries;
                index.remove(slot);
                tags[slot as usize] = random();
                assert!(index.enter(tags[slot as usize], slot), "{entries}: churn {round}");
            }
        }
    }
}
