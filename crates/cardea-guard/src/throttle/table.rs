//! The keys of a throttle: a table of fixed size.
//!
//! A key's hash names a bucket of [`WAYS`] slots. A bucket with its lock fills two adjacent cache lines, and a lookup touches
//! nothing else.
//!
//! **Full buckets.** A slot that owes nothing is free. If no slot is free, a new key takes over the slot that owes least, together
//! with its debt (Space-Saving: Metwally, Agrawal and El Abbadi, ICDT 2005). The least debt of a bucket never falls, so a key that
//! lost its slot never owes more than what it takes over when it returns: no key exceeds its limit, whatever is evicted. The price
//! is that a key may be refused early. To take `d` units from a new key, all slots of its bucket must owe `d` units at the same
//! time. An attacker does not know the hash, and has to keep about all slots of the table at that debt.

use std::{
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use cardea_clock::Mono;

use super::ThrottleLimit;

/// Slots of a bucket: with its lock, it has 120 bytes.
const WAYS: usize = 7;
/// Keys in use for each bucket that a table is made for. The number of a bucket varies: with a Poisson distribution, one bucket
/// in twenty has more than [`WAYS`].
const KEYS_EXPECTED: usize = 4;

/// The keys of a throttle and what they owe.
pub struct ThrottleTable {
    /// Locks are taken in the order of these.
    id: u64,
    buckets: Box<[Bucket]>,
    evictions: AtomicU64,
}

/// Alone in its pair of cache lines, so that no lock slows its neighbour.
#[repr(align(128))]
struct Bucket(Mutex<Slots>);

/// The keys of a bucket, by hash, and from when on each owes nothing, in nanoseconds of the monotonic clock. The hash is that of
/// a key which only the process knows, so nobody can look for two keys that have the same.
#[derive(Debug, Default, Clone)]
pub(super) struct Slots {
    hashes: [u64; WAYS],
    owes_until: [u64; WAYS],
}

/// Where the debt of a key is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Slot {
    index: usize,
    /// From when on the key owes nothing.
    pub(super) owes_until: u64,
    /// The slot is another key's.
    is_taken_over: bool,
}

impl ThrottleTable {
    /// A table for this many keys in debt at the same time. Allocates 32 to 64 bytes for each.
    #[must_use]
    pub fn new(keys_max: usize) -> Self {
        let count = keys_max.div_ceil(KEYS_EXPECTED).next_power_of_two();
        Self::of((0..count).map(|_| Slots::default()))
    }

    fn of(slots: impl Iterator<Item = Slots>) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT_ID.fetch_add(1, Relaxed),
            buckets: slots.map(|slots| Bucket(Mutex::new(slots))).collect(),
            evictions: AtomicU64::new(0),
        }
    }

    /// The same keys with the same units under another limit.
    #[must_use]
    pub fn converted(&self, from: ThrottleLimit, to: ThrottleLimit, now: Mono) -> Self {
        let convert = |owes_until: u64| match owes_until.saturating_sub(now.nanos()) {
            0 => owes_until,
            debt => now.nanos().saturating_add(from.convert(debt, to)),
        };
        let table = Self::of(self.buckets.iter().map(|bucket| {
            let slots = bucket.lock().clone();
            Slots { owes_until: slots.owes_until.map(convert), ..slots }
        }));
        table.evictions.store(self.evictions(), Relaxed);
        table
    }

    /// The number of keys in debt; a gauge. Looks at all slots.
    #[must_use]
    pub fn keys(&self, now: Mono) -> usize {
        let owing = |bucket: &Bucket| {
            bucket.lock().owes_until.iter().filter(|owes_until| **owes_until > now.nanos()).count()
        };
        self.buckets.iter().map(owing).sum()
    }

    /// How many keys lost their slot while in debt.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Relaxed)
    }

    pub(super) const fn id(&self) -> u64 {
        self.id
    }

    /// The bucket of a key.
    pub(super) fn bucket(&self, hash: u64) -> Option<MutexGuard<'_, Slots>> {
        // A power of two, so that the remainder is the low bits.
        let index = hash & (self.buckets.len() as u64).wrapping_sub(1);
        self.buckets.get(usize::try_from(index).ok()?).map(Bucket::lock)
    }

    /// Notes that a key owes something until a time.
    pub(super) fn note(&self, slots: &mut Slots, hash: u64, slot: Slot, owes_until: u64, now: Mono) {
        if slot.is_taken_over && slot.owes_until > now.nanos() {
            self.evictions.fetch_add(1, Relaxed);
        }
        if let (Some(known), Some(until)) =
            (slots.hashes.get_mut(slot.index), slots.owes_until.get_mut(slot.index))
        {
            (*known, *until) = (hash, owes_until);
        }
    }
}

impl Slots {
    /// The slot of a key, or the one that it would take over.
    pub(super) fn find(&self, hash: u64) -> Slot {
        let mut least = Slot { index: 0, owes_until: u64::MAX, is_taken_over: true };
        for (index, (known, owes_until)) in self.hashes.iter().zip(self.owes_until).enumerate() {
            if *known == hash {
                return Slot { index, owes_until, is_taken_over: false };
            }
            if owes_until < least.owes_until {
                least = Slot { index, owes_until, is_taken_over: true };
            }
        }
        least
    }
}

impl Bucket {
    fn lock(&self) -> MutexGuard<'_, Slots> {
        // Nothing under it panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Without keys, whose hashes are nobody's business.
impl fmt::Debug for ThrottleTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ThrottleTable");
        debug.field("slots", &(self.buckets.len() * WAYS)).finish_non_exhaustive()
    }
}
