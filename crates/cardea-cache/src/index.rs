//! Where the slot of a key is: a hash table of fixed size in which each key has a place in one of two cache lines.
//!
//! A line has ten places: ten 16-bit tags from the hashes of keys, which are compared four at a time, and the numbers of
//! their slots. A key goes into the first of its lines while three places are free there, and into the emptier one
//! otherwise. With five places in use per line on average, not one of millions of lines is full, since the load of the
//! fuller half decays doubly exponentially (Azar, Broder, Karlin, Upfal: Balanced Allocations, 1999). Whatever the hashes
//! are, no operation touches a third line for a key: one whose lines are both full is not stored.

use crate::LimitsError;
use crate::touched::{Memory, touch};

/// Positions in a line.
pub(crate) const PLACES: u32 = 10;
/// Words in a cache line of 64 bytes: two tags each, then a slot each.
const LINE_WORDS: usize = 16;
const TAG_WORDS: usize = PLACES as usize / 2;
/// The average number of used positions per line when the cache is full.
const LOAD: usize = 4;
/// Additional lines, so that small tables have slack.
const LINES_SPARE: usize = 16;

type Line = [u32; LINE_WORDS];

/// Finds slots by the hashes of their keys.
#[derive(Debug)]
pub(crate) struct Index {
    words: Box<[u32]>,
    /// Words before the first cache line boundary: the allocator aligns to 16 bytes.
    skip: usize,
    lines: u32,
    /// The position of each slot, so that removal needs no search.
    places: Box<[Place]>,
}

/// A position in the index.
pub(crate) type Place = u32;

impl Index {
    /// An index for `entries` keys. Memory is reserved, and used as keys are inserted.
    pub(crate) fn new(entries: usize) -> Result<Self, LimitsError> {
        let lines = entries.div_ceil(LOAD) + LINES_SPARE;
        let count = u32::try_from(lines).ok().filter(|count| count.checked_mul(PLACES).is_some());
        let count = count.ok_or(LimitsError::OutOfMemory { entries })?;
        // From the allocator's zeroed memory: untouched pages cost nothing.
        let words = vec![0; lines * LINE_WORDS + LINE_WORDS - 1].into_boxed_slice();
        let skip = words.as_ptr().align_offset(size_of::<Line>()).min(LINE_WORDS - 1);
        Ok(Self { words, skip, lines: count, places: vec![0; entries].into_boxed_slice() })
    }

    /// The slot that is in the index under this hash and whose key is the right one, and its place.
    ///
    /// Nearly always it is the first one whose key is looked at, and in the first line. Where the second one is doesn't
    /// depend on what is in the first, so that the processor may fetch both at once.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, mut is_right: impl FnMut(u32) -> bool) -> Option<(u32, Place)> {
        let tags = u64::from(tag(hash)) * QUARTERS;
        let first = self.first(hash);
        let found = self.search(first, tags, &mut is_right);
        if found.is_some() { found } else { self.search(self.second(hash, first), tags, &mut is_right) }
    }

    #[inline(always)]
    fn search(&self, number: u32, tags: u64, is_right: &mut impl FnMut(u32) -> bool) -> Option<(u32, Place)> {
        let line = self.line(number);
        let mut left = equal(line, tags);
        while left != 0 {
            let place = number_of(left);
            left &= left - 1;
            let slot = slot_at(line, place);
            if is_right(slot) {
                return Some((slot, number * PLACES + place));
            }
        }
        None
    }

    /// A free position for a hash.
    #[inline]
    pub(crate) fn free(&self, hash: u64) -> Option<Place> {
        let first = self.first(hash);
        let free = free(self.line(first));
        // Removes the two lowest bits; more than two positions leave a rest.
        let less = free & free.wrapping_sub(1);
        if less & less.wrapping_sub(1) != 0 {
            return Some(first * PLACES + number_of(free));
        }
        let second = self.second(hash, first);
        let other = self::free(self.line(second));
        let (number, free) =
            if free.count_ones() >= other.count_ones() { (first, free) } else { (second, other) };
        (free != 0).then(|| number * PLACES + number_of(free))
    }

    /// The position of a slot in the index.
    #[inline]
    pub(crate) fn place_of(&self, slot: u32) -> Place {
        touch(Memory::Places, slot);
        self.places[slot as usize]
    }

    /// Inserts a slot at a free position of its hash.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, slot: u32, place: Place) {
        let line = self.line_mut(place / PLACES);
        set_tag(line, place % PLACES, tag(hash));
        line[TAG_WORDS + (place % PLACES) as usize] = slot;
        touch(Memory::Places, slot);
        self.places[slot as usize] = place;
    }

    /// Frees a position.
    #[inline]
    pub(crate) fn remove(&mut self, place: Place) {
        set_tag(self.line_mut(place / PLACES), place % PLACES, 0);
    }

    fn first(&self, hash: u64) -> u32 {
        self.scale((hash >> 32) as u32)
    }

    /// A line different from the first one.
    fn second(&self, hash: u64, first: u32) -> u32 {
        let second = self.scale((hash >> 17) as u32);
        if second != first {
            second
        } else if first + 1 == self.lines {
            0
        } else {
            first + 1
        }
    }

    /// Scales 32 bits, as a fraction of 2^32, to the number of lines without a division.
    fn scale(&self, bits: u32) -> u32 {
        ((u64::from(bits) * u64::from(self.lines)) >> 32) as u32
    }

    fn line(&self, line: u32) -> &Line {
        touch(Memory::Index, line);
        &self.words[self.skip..].as_chunks().0[line as usize]
    }

    fn line_mut(&mut self, line: u32) -> &mut Line {
        touch(Memory::Index, line);
        &mut self.words[self.skip..].as_chunks_mut().0[line as usize]
    }
}

/// A part of a key's hash. It is never 0, which marks free positions. Shards and lines use other bits.
const fn tag(hash: u64) -> u16 {
    (hash >> 16) as u16 | 1
}

/// A one in each quarter of a word.
const QUARTERS: u64 = 0x0001_0001_0001_0001;

/// A bit for each position whose tag equals the pattern's: bit 16 q + w for quarter q of the double word w of tags.
#[inline]
fn equal(line: &Line, pattern: u64) -> u64 {
    const LOW: u64 = 0x7fff * QUARTERS;
    // The top bit of a quarter stays clear only if all of its bits are: no carry leaves the quarter, so this is exact.
    let equals = |word: u64| {
        let difference = word ^ pattern;
        !(((difference & LOW) + LOW) | difference) & !LOW
    };
    let [one, two, three] = tags_of(line).map(equals);
    one >> 15 | two >> 14 | (three & 0xffff_ffff) >> 13
}

/// The same for free positions: a tag has its lowest bit set.
#[inline]
fn free(line: &Line) -> u64 {
    let [one, two, three] = tags_of(line).map(|word| !word & QUARTERS);
    one | two << 1 | (three & 0xffff_ffff) << 2
}

#[inline]
fn tags_of(line: &Line) -> [u64; 3] {
    let both = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    [both(line[0], line[1]), both(line[2], line[3]), u64::from(line[4])]
}

/// The first position with a bit; there must be one.
#[inline]
const fn number_of(bits: u64) -> u32 {
    let bit = bits.trailing_zeros();
    bit % 16 * 4 + bit / 16
}

#[inline]
fn slot_at(line: &Line, number: u32) -> u32 {
    line[(TAG_WORDS + number as usize) % LINE_WORDS]
}

#[inline]
fn set_tag(line: &mut Line, number: u32, tag: u16) {
    let (word, shift) = (&mut line[number as usize / 2], 16 * (number % 2));
    *word = *word & !(0xffff << shift) | u32::from(tag) << shift;
}

#[cfg(test)]
impl Index {
    /// The lines that a hash leads to.
    pub(crate) fn known(&self, hash: u64) -> [u32; 2] {
        [self.first(hash), self.second(hash, self.first(hash))]
    }

    /// The line that each slot is or was in.
    pub(crate) fn lines(&self) -> Vec<u32> {
        self.places.iter().map(|place| place / PLACES).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Index {
        fn enter(&mut self, hash: u64, slot: u32) -> bool {
            let place = self.free(hash);
            place.is_some_and(|place| {
                self.insert(hash, slot, place);
                true
            })
        }

        fn leave(&mut self, slot: u32) {
            self.remove(self.place_of(slot));
        }

        fn slots(&self, hash: u64) -> Vec<u32> {
            let mut slots = Vec::new();
            assert_eq!(
                self.find(hash, |slot| {
                    slots.push(slot);
                    false
                }),
                None
            );
            slots.sort_unstable();
            slots
        }
    }

    /// SplitMix64, which is random enough for tests.
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
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
    fn tags_are_compared_exactly() {
        let mut state = 0;
        // Neighbours that differ in one bit, and values that a borrow would confuse.
        let some = [0, 1, 2, 3, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff];
        for _ in 0..20_000 {
            let tags: [u16; PLACES as usize] =
                std::array::from_fn(|_| some[random(&mut state) as usize % some.len()]);
            let mut line = [u32::MAX; LINE_WORDS];
            for (number, tag) in (0..).zip(tags) {
                set_tag(&mut line, number, tag);
            }
            let with = |is: &dyn Fn(u16) -> bool| -> Vec<u32> {
                (0..).zip(tags).filter(|(_, tag)| is(*tag)).map(|(number, _)| number).collect()
            };
            let of = |mut bits: u64| {
                let mut numbers = Vec::new();
                while bits != 0 {
                    numbers.push(number_of(bits));
                    bits &= bits - 1;
                }
                numbers.sort_unstable();
                numbers
            };
            for tag in some {
                assert_eq!(of(equal(&line, u64::from(tag) * QUARTERS)), with(&|other| other == tag));
            }
            assert_eq!(of(free(&line)), with(&|tag| tag & 1 == 0));
        }
    }

    #[test]
    fn a_slot_is_found_until_it_is_removed_also_among_equal_hashes() {
        let mut index = Index::new(64).unwrap();
        for hash in [0, 1 << 32, 7 << 32, 0xffff_0000, u64::MAX] {
            for slot in [3, 0, 9] {
                assert!(index.enter(hash, slot));
            }
            assert_eq!(index.slots(hash), [0, 3, 9]);
            assert_eq!(index.find(hash, |slot| slot == 9), Some((9, index.place_of(9))));
            index.leave(3);
            assert_eq!(index.slots(hash), [0, 9]);
            index.leave(0);
            index.leave(9);
            assert!(index.slots(hash).is_empty());
        }
    }

    #[test]
    fn equal_hashes_fill_two_lines_and_no_more() {
        for hash in [5, u64::MAX, 1 << 47] {
            let mut index = Index::new(100).unwrap();
            let stored = (0..100).filter(|slot| index.enter(hash, *slot)).count();
            assert_eq!((stored, index.free(hash)), (2 * PLACES as usize, None));
            assert_eq!(index.slots(hash), (0..20).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_full_cache_of_any_size_finds_room_for_random_hashes_mostly_in_first_lines() {
        for entries in [1_u32, 8, 9, 64, 1_000, 20_000, 300_000] {
            let mut index = Index::new(entries as usize).unwrap();
            let mut state = 0_u64;
            let mut hashes: Vec<u64> = (0..entries).map(|_| random(&mut state)).collect();
            for (slot, hash) in (0..).zip(&hashes) {
                assert!(index.enter(*hash, slot), "{entries}: {slot}");
            }
            for round in 0..2 * entries {
                let slot = round % entries;
                index.leave(slot);
                hashes[slot as usize] = random(&mut state);
                assert!(index.enter(hashes[slot as usize], slot), "{entries}: churn {round}");
            }
            let of_first = |(slot, hash): &(u32, &u64)| index.place_of(*slot) / PLACES == index.first(**hash);
            let first = (0..).zip(&hashes).filter(of_first).count();
            assert!(first >= entries as usize * 94 / 100, "{first} of {entries}");
            let lines = index.words[index.skip..].as_chunks::<LINE_WORDS>().0;
            assert!(lines.iter().all(|line| free(line) != 0), "{entries}: a line is full");
        }
    }
}
