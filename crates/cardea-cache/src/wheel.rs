//! The order in which entries with lifetimes of their own expire: a timing wheel that is never turned.
//!
//! No structure sorts arbitrary deadlines in constant time, so deadlines are rounded: down, that no entry outlives
//! what it was given. A wheel of several levels (Varghese and Lauck, 1987) rounds by less the nearer the deadline is.
//! All entries of a bucket expire at the same moment, so a bucket is live or expired as a whole, and passing time only
//! marks buckets, by their bits. Nothing cascades: an entry stays in the bucket that it came into.

use crate::LimitsError;
use crate::touched::{Memory, touch};

/// Buckets per level: the bits of a `u128`.
const BUCKETS: u32 = u128::BITS;
const LEVELS: usize = 12;
/// The width of a bucket of level 0 is 2^24 ns, about 17 ms; that of the next level is four times as wide.
const TICK_SHIFT: u32 = 24;
const LEVEL_SHIFT: u32 = 2;
/// The heads of the buckets' lists, followed by that of the expired entries that had to leave their bucket.
pub(crate) const HEADS: u32 = BUCKETS * LEVELS as u32 + 1;
const EXPIRED: u32 = HEADS - 1;

/// A bucket, by its level and by the number of its period since the clock's origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bucket {
    level: usize,
    period: u64,
}

impl Bucket {
    /// The last one that begins by `deadline`, as seen from `now`, both in nanoseconds. `None` if that is over before it
    /// began: less than the width of a bucket is left.
    ///
    /// At most a 32nd of the time that is left is lost by rounding, and 17 ms where less than two seconds are left;
    /// what is further than 100 days away comes nearer.
    pub(crate) fn of(deadline: u64, now: u64) -> Option<Self> {
        let last = LEVELS - 1;
        for level in 0..LEVELS {
            let (period, current) = (deadline >> shift(level), now >> shift(level));
            // Of all future periods, at most one maps to each head.
            let farthest = current + u64::from(BUCKETS - 1);
            if period <= farthest || level == last {
                let period = period.min(farthest);
                return (period > current).then_some(Self { level, period });
            }
        }
        None
    }

    /// The expiry of its entries, in nanoseconds.
    pub(crate) fn deadline(self) -> u64 {
        self.period << shift(self.level)
    }

    fn place(self) -> u32 {
        (self.period % u64::from(BUCKETS)) as u32
    }

    fn head(self) -> u32 {
        self.level as u32 * BUCKETS + self.place()
    }
}

const fn shift(level: usize) -> u32 {
    TICK_SHIFT + LEVEL_SHIFT * level as u32
}

#[derive(Debug, Clone, Copy)]
struct Link {
    next: u32,
    previous: u32,
}

/// The expiry order of a slab's entries. Lists are circular and include their heads, so that an entry is removed
/// without knowing its list.
#[derive(Debug)]
pub(crate) struct Wheel {
    /// The heads, then one per slot.
    links: Vec<Link>,
    /// The buckets with entries, and those of them that have expired.
    occupied: [u128; LEVELS],
    expired: [u128; LEVELS],
    now: u64,
}

impl Wheel {
    pub(crate) fn new(entries: usize) -> Result<Self, LimitsError> {
        let mut links = Vec::new();
        links
            .try_reserve_exact(HEADS as usize + entries)
            .map_err(|_| LimitsError::OutOfMemory { entries })?;
        links.extend((0..HEADS).map(|head| Link { next: head, previous: head }));
        Ok(Self { links, occupied: [0; LEVELS], expired: [0; LEVELS], now: 0 })
    }

    /// Advances the time; `now` never goes back.
    #[inline(never)] // A coarse clock stands still for most operations.
    pub(crate) fn advance(&mut self, now: u64) {
        for level in 0..LEVELS {
            let (before, current) = (self.now >> shift(level), now >> shift(level));
            let passed = current - before;
            if passed == 0 {
                // No wider bucket has passed either.
                break;
            }
            let mask = if passed >= u64::from(BUCKETS) {
                u128::MAX
            } else {
                ((1 << passed) - 1_u128).rotate_left(((before + 1) % u64::from(BUCKETS)) as u32)
            };
            self.expired[level] |= self.occupied[level] & mask;
        }
        self.now = now;
    }

    /// A slot whose entry has expired, if any.
    pub(crate) fn any_expired(&self) -> Option<u32> {
        let first = self.link(EXPIRED).next;
        if first != EXPIRED {
            return Some(first - HEADS);
        }
        let level = self.expired.iter().position(|buckets| *buckets != 0)?;
        let head = level as u32 * BUCKETS + self.expired[level].trailing_zeros();
        Some(self.link(head).next - HEADS)
    }

    /// Inserts a slot.
    pub(crate) fn insert(&mut self, slot: u32, bucket: Bucket) {
        let (head, bit) = (bucket.head(), 1 << bucket.place());
        if self.expired[bucket.level] & bit != 0 {
            self.vacate(head);
            self.expired[bucket.level] &= !bit;
        }
        self.occupied[bucket.level] |= bit;
        let at = slot + HEADS;
        let link = Link { next: head, previous: self.link(head).previous };
        if at as usize == self.links.len() {
            self.links.push(link);
        } else {
            *self.link_mut(at) = link;
        }
        self.link_mut(link.previous).next = at;
        self.link_mut(head).previous = at;
    }

    /// Removes a slot.
    pub(crate) fn remove(&mut self, slot: u32) {
        let Link { next, previous } = self.link(slot + HEADS);
        self.link_mut(previous).next = next;
        self.link_mut(next).previous = previous;
        // Alone with its head, which becomes empty.
        if next == previous && next < EXPIRED {
            let (level, bit) = ((next / BUCKETS) as usize, 1_u128 << (next % BUCKETS));
            self.occupied[level] &= !bit;
            self.expired[level] &= !bit;
        }
    }

    /// Appends a non-empty bucket's list to the expired ones.
    fn vacate(&mut self, head: u32) {
        let Link { next: first, previous: last } = self.link(head);
        let tail = self.link(EXPIRED).previous;
        self.link_mut(tail).next = first;
        self.link_mut(first).previous = tail;
        self.link_mut(last).next = EXPIRED;
        self.link_mut(EXPIRED).previous = last;
        *self.link_mut(head) = Link { next: head, previous: head };
    }

    fn link(&self, at: u32) -> Link {
        touch(Memory::Links, at);
        self.links[at as usize]
    }

    fn link_mut(&mut self, at: u32) -> &mut Link {
        touch(Memory::Links, at);
        &mut self.links[at as usize]
    }
}

#[cfg(test)]
impl Wheel {
    /// The links of each link.
    pub(crate) fn leads_to(&self) -> Vec<[u32; 2]> {
        self.links.iter().map(|link| [link.next, link.previous]).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    proptest! {
        #[test]
        fn rounding_shortens_a_life_by_a_32nd_at_most(now in 0..1_u64 << 55, exponent in 0_u32..53, bits: u64) {
            let left = (1_u64 << exponent) | (bits & ((1 << exponent) - 1));
            let tick = 1 << TICK_SHIFT;
            match Bucket::of(now + left, now) {
                None => prop_assert!(left < tick),
                Some(bucket) => {
                    let rounded = bucket.deadline();
                    prop_assert!(now < rounded && rounded <= now + left);
                    prop_assert!(now + left - rounded <= tick.max(left / 32), "{left}: {rounded}");
                }
            }
        }
    }

    #[test]
    fn the_farthest_deadlines_come_nearer() {
        for deadline in [u64::MAX, 200 * 86_400 * SECOND] {
            let bucket = Bucket::of(deadline, SECOND).unwrap();
            assert!(bucket.deadline() > 100 * 86_400 * SECOND && bucket.deadline() < 105 * 86_400 * SECOND);
        }
    }

    #[test]
    fn a_bucket_that_is_used_again_keeps_what_expired_apart() {
        let mut wheel = Wheel::new(4).unwrap();
        let period = u64::from(BUCKETS) << TICK_SHIFT;
        let first = Bucket::of(5 << TICK_SHIFT, 0).unwrap();
        wheel.insert(0, first);
        wheel.insert(1, first);
        assert_eq!(wheel.any_expired(), None);
        wheel.advance(period);
        let again = Bucket::of(period + (5 << TICK_SHIFT), period).unwrap();
        assert_eq!(again.head(), first.head());
        wheel.insert(2, again);
        assert_eq!(wheel.any_expired(), Some(0));
        wheel.remove(0);
        assert_eq!(wheel.any_expired(), Some(1));
        wheel.remove(1);
        assert_eq!(wheel.any_expired(), None);
        wheel.advance(again.deadline());
        assert_eq!(wheel.any_expired(), Some(2));
        wheel.remove(2);
        assert_eq!(wheel.any_expired(), None);
        assert_eq!((wheel.occupied, wheel.expired), ([0; LEVELS], [0; LEVELS]));
    }
}
