//! The slots of the entries in a list from the oldest to the newest, and the hand that walks along it.

use crate::LimitsError;
use crate::touched::{Memory, touch};

/// No slot.
pub(crate) const NONE: u32 = u32::MAX >> 1;
/// The most slots: a number takes 31 bits, and [`NONE`] is the last one.
pub(crate) const SLOTS_MAX: usize = NONE as usize;
/// In [`Slot::older`]: used since the hand passed.
const VISITED: u32 = 1 << 31;

/// An entry and its links: one cache line if key and value take at most 48 bytes.
#[derive(Debug)]
#[repr(align(64))]
struct Slot<K, V> {
    entry: Option<(K, V)>,
    /// In nanoseconds of monotonic time.
    deadline: u64,
    /// Towards the newest; for a free slot, the next free one.
    newer: u32,
    /// Towards the oldest, with [`VISITED`].
    older: u32,
}

/// Slots that never move: memory is reserved at once, and used as entries are inserted.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Slab<K, V> {
    // The start of evictions and inserts; see `Cache`.
    /// The deadline of the oldest entry. While it has not expired, no entry has to be read.
    oldest_deadline: u64,
    oldest: u32,
    newest: u32,
    /// The next slot that recency examines; [`NONE`]: the oldest.
    hand: u32,
    free: u32,
    len: u32,
    slots: Vec<Slot<K, V>>,
}

impl<K, V> Slab<K, V> {
    pub(crate) fn new(entries: usize) -> Result<Self, LimitsError> {
        if entries > SLOTS_MAX {
            return Err(LimitsError::TooMany { entries, max: SLOTS_MAX });
        }
        let mut slots = Vec::new();
        slots.try_reserve_exact(entries).map_err(|_| LimitsError::OutOfMemory { entries })?;
        Ok(Self {
            slots,
            free: NONE,
            len: 0,
            oldest: NONE,
            oldest_deadline: u64::MAX,
            newest: NONE,
            hand: NONE,
        })
    }

    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) const fn oldest(&self) -> Option<u32> {
        if self.oldest == NONE { None } else { Some(self.oldest) }
    }

    pub(crate) const fn oldest_deadline(&self) -> u64 {
        self.oldest_deadline
    }

    /// The slot that the next [`Slab::push`] uses. To be called only while fewer slots are used than reserved.
    fn vacant(&self) -> u32 {
        if self.free == NONE { self.slots.len() as u32 } else { self.free }
    }

    /// Inserts an entry into the vacant slot as the newest. The caller has made room.
    pub(crate) fn push(&mut self, key: K, value: V, deadline: u64, visited: bool) -> u32 {
        let at = self.vacant();
        let older = self.newest | if visited { VISITED } else { 0 };
        let slot = Slot { entry: Some((key, value)), deadline, newer: NONE, older };
        if self.free == NONE {
            debug_assert!(self.slots.len() < self.slots.capacity(), "slots never move");
            self.slots.push(slot);
        } else {
            self.free = std::mem::replace(self.slot_mut(at), slot).newer;
        }
        if self.newest == NONE {
            self.oldest = at;
            self.oldest_deadline = deadline;
        } else {
            self.slot_mut(self.newest).newer = at;
        }
        self.newest = at;
        self.len += 1;
        at
    }

    pub(crate) fn entry(&self, at: u32) -> Option<&(K, V)> {
        self.slot(at).entry.as_ref()
    }

    pub(crate) fn deadline(&self, at: u32) -> u64 {
        self.slot(at).deadline
    }

    /// Records a lookup. It writes only if the bit changes, so that the line of a hot entry stays shared.
    pub(crate) fn visit(&mut self, at: u32) {
        let slot = self.slot_mut(at);
        if slot.older & VISITED == 0 {
            slot.older |= VISITED;
        }
    }

    /// The slot that recency evicts: the first one from the hand that was not used since the hand passed, or the last
    /// of `steps`; `None` if it is empty.
    pub(crate) fn sweep(&mut self, steps: usize) -> Option<u32> {
        let mut at = if self.hand == NONE { self.oldest()? } else { self.hand };
        for _ in 1..steps {
            let slot = self.slot_mut(at);
            if slot.older & VISITED == 0 {
                break;
            }
            slot.older &= !VISITED;
            at = if slot.newer == NONE { self.oldest } else { slot.newer };
        }
        self.hand = at;
        Some(at)
    }

    /// Removes an entry and frees its slot.
    pub(crate) fn remove(&mut self, at: u32) -> Option<(K, V)> {
        let free = self.free;
        let slot = self.slot_mut(at);
        let entry = slot.entry.take()?;
        let (older, newer) = (slot.older & !VISITED, slot.newer);
        slot.newer = free;
        self.free = at;
        if self.hand == at {
            self.hand = newer;
        }
        let mut newer_deadline = u64::MAX;
        if newer == NONE {
            self.newest = older;
        } else {
            let newer = self.slot_mut(newer);
            newer.older = older | (newer.older & VISITED);
            newer_deadline = newer.deadline;
        }
        if older == NONE {
            self.oldest = newer;
            self.oldest_deadline = newer_deadline;
        } else {
            self.slot_mut(older).newer = newer;
        }
        self.len -= 1;
        Some(entry)
    }

    fn slot(&self, at: u32) -> &Slot<K, V> {
        touch(Memory::Slots, at);
        &self.slots[at as usize]
    }

    fn slot_mut(&mut self, at: u32) -> &mut Slot<K, V> {
        touch(Memory::Slots, at);
        &mut self.slots[at as usize]
    }
}

#[cfg(test)]
impl<K, V> Slab<K, V> {
    /// The end of the fields that evictions and inserts start from.
    pub(crate) fn written_until(&self) -> usize {
        (&raw const self.len).addr() + size_of::<u32>()
    }

    /// The slots whose numbers are known without another load.
    pub(crate) fn known(&self) -> [u32; 4] {
        [self.oldest, self.newest, self.hand, self.vacant()]
    }

    /// The slots that each one links to.
    pub(crate) fn leads_to(&self) -> Vec<[u32; 2]> {
        self.slots.iter().map(|slot| [slot.newer, slot.older & !VISITED]).collect()
    }

    /// From the oldest entry to the newest.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        let next = |at: &u32| Some(self.slots[*at as usize].newer).filter(|newer| *newer != NONE);
        std::iter::successors(self.oldest(), next).filter_map(|at| self.entry(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_with_a_session_is_one_cache_line() {
        assert_eq!(size_of::<Slot<[u8; 32], Box<[u8]>>>(), 64);
        assert_eq!(align_of::<Slot<u64, ()>>(), 64);
    }

    #[test]
    fn more_slots_than_numbers_are_refused() {
        let error = Slab::<u64, u64>::new(SLOTS_MAX + 1).unwrap_err();
        assert_eq!(error, LimitsError::TooMany { entries: SLOTS_MAX + 1, max: SLOTS_MAX });
    }
}
