//! A timer wheel (Varghese and Lauck, SOSP 1987, scheme 6): to add, to remove and to expire an entry costs the same however
//! many there are.

use std::time::Duration;

use cardea_clock::Mono;
use slab::Slab;

/// The time between two slots.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// How many slots there are: once around takes longer than any entry waits, so that a slot has what is due together. One that
/// waits longer costs a look once around.
const SLOTS: usize = 512;

const NONE: u32 = u32::MAX;

/// Entries with the times at which they are due.
#[derive(Debug)]
pub(super) struct Wheel<T> {
    entries: Slab<Entry<T>>,
    /// The first entry of each slot.
    slots: Box<[u32]>,
    /// The first tick whose slot was not looked at yet.
    next: u64,
    /// How many entries are in slots.
    waiting: usize,
}

#[derive(Debug)]
struct Entry<T> {
    value: T,
    due: Mono,
    /// Its neighbours in its slot; `in_slot` is false once it is out of the wheel.
    before: u32,
    after: u32,
    slot: u32,
    in_slot: bool,
}

/// The tick at which what is due `at` is looked at: not before it is.
fn tick_of(at: Mono) -> u64 {
    at.nanos().div_ceil(u64::try_from(TICK.as_nanos()).unwrap_or(u64::MAX))
}

/// The last tick that has come at `now`.
fn ticks_until(now: Mono) -> u64 {
    now.nanos() / u64::try_from(TICK.as_nanos()).unwrap_or(u64::MAX)
}

fn slot_of(tick: u64) -> usize {
    usize::try_from(tick % SLOTS as u64).unwrap_or(0)
}

impl<T> Wheel<T> {
    pub(super) fn new() -> Self {
        Self { entries: Slab::new(), slots: vec![NONE; SLOTS].into(), next: 0, waiting: 0 }
    }

    /// How many entries there are, due or not.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn insert(&mut self, value: T, due: Mono, now: Mono) -> usize {
        let entry = Entry { value, due, before: NONE, after: NONE, slot: 0, in_slot: false };
        let at = self.entries.insert(entry);
        self.arm(at, due, now);
        at
    }

    /// Has an entry that is out of the wheel become due then.
    pub(super) fn arm(&mut self, at: usize, due: Mono, now: Mono) {
        if self.waiting == 0 {
            // Nothing is passed over.
            self.next = self.next.max(ticks_until(now));
        }
        // A slot that was looked at is looked at again only once around.
        let slot = slot_of(tick_of(due).max(self.next));
        let Some(first) = self.slots.get_mut(slot) else { return };
        let after = std::mem::replace(first, u32::try_from(at).unwrap_or(NONE));
        if let Some(entry) = self.entries.get_mut(at) {
            (entry.due, entry.before, entry.after, entry.in_slot) = (due, NONE, after, true);
            entry.slot = u32::try_from(slot).unwrap_or(0);
            self.waiting += 1;
        }
        if let Some(neighbour) = self.entry_mut(after) {
            neighbour.before = u32::try_from(at).unwrap_or(NONE);
        }
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.entries.get_mut(at).map(|entry| &mut entry.value)
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<T> {
        self.unlink(at);
        self.entries.try_remove(at).map(|entry| entry.value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&T, Mono)> {
        self.entries.iter().map(|(_, entry)| (&entry.value, entry.due))
    }

    /// Takes what is due out of its slot and gives it to `ended`. The entries stay until they are removed.
    pub(super) fn advance(&mut self, now: Mono, mut ended: impl FnMut(&mut T)) {
        let last = ticks_until(now);
        if last < self.next {
            return;
        }
        let passed = match self.waiting {
            0 => 0,
            _ => usize::try_from(last - self.next).unwrap_or(usize::MAX).saturating_add(1).min(SLOTS),
        };
        for step in 0..passed {
            let slot = slot_of(self.next.saturating_add(step as u64));
            let mut at = self.slots.get(slot).copied().unwrap_or(NONE);
            while let Some(entry) = self.entry_mut(at) {
                let this = std::mem::replace(&mut at, entry.after) as usize;
                if entry.due <= now {
                    ended(&mut entry.value);
                    self.unlink(this);
                }
            }
        }
        self.next = last + 1;
    }

    /// Takes up to `count` entries that `is_meant` selects out of their slots, the next to be due first.
    pub(super) fn remove_where(
        &mut self,
        count: usize,
        is_meant: impl Fn(&T) -> bool,
        mut ended: impl FnMut(&mut T),
    ) {
        let mut left = count;
        for step in 0..SLOTS {
            let slot = slot_of(self.next.saturating_add(step as u64));
            let mut at = self.slots.get(slot).copied().unwrap_or(NONE);
            while left > 0
                && let Some(entry) = self.entry_mut(at)
            {
                let this = std::mem::replace(&mut at, entry.after) as usize;
                if is_meant(&entry.value) {
                    ended(&mut entry.value);
                    self.unlink(this);
                    left -= 1;
                }
            }
        }
    }

    fn entry_mut(&mut self, at: u32) -> Option<&mut Entry<T>> {
        self.entries.get_mut(at as usize)
    }

    fn unlink(&mut self, at: usize) {
        let Some(entry) = self.entries.get_mut(at).filter(|entry| entry.in_slot) else { return };
        entry.in_slot = false;
        let (before, after, slot) = (entry.before, entry.after, entry.slot as usize);
        self.waiting -= 1;
        match self.entry_mut(before) {
            Some(neighbour) => neighbour.after = after,
            None => {
                if let Some(first) = self.slots.get_mut(slot) {
                    *first = after;
                }
            }
        }
        if let Some(neighbour) = self.entry_mut(after) {
            neighbour.before = before;
        }
    }
}
