//! Throttles: how much of something a key may use in a time.
//!
//! A request is charged to several throttles at once: to all of them, or to none where one refuses. Charges are exact
//! whichever threads make them: the buckets of all keys are locked while it is decided, in an order that is the same for all.

use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
    sync::MutexGuard,
};

use cardea_clock::Mono;
use smallvec::SmallVec;

mod limit;
mod table;
#[cfg(test)]
mod tests;

use self::table::{Slot, Slots};
pub use self::{
    limit::{ThrottleLimit, ThrottleLimitError, ThrottleStanding},
    table::ThrottleTable,
};

/// Charges whose locks are held without memory of their own.
const CHARGES_INLINE: usize = 4;

/// What a request would use of one throttle, and what comes of that.
#[derive(Debug)]
pub struct Charge<'a> {
    /// The throttle's keys.
    pub table: &'a ThrottleTable,
    /// The throttle's limit.
    pub limit: ThrottleLimit,
    /// Who uses it.
    pub key: &'a [u8],
    /// How many units; what costs nothing fits always.
    pub cost: u64,
    /// Whether it is counted but refuses nothing.
    pub dry_run: bool,
    /// Where the key stands, once it was decided.
    pub standing: ThrottleStanding,
    hash: u64,
    slot: Slot,
    /// From when on the key owes nothing, if it is charged.
    owes_until: u64,
}

impl<'a> Charge<'a> {
    /// A charge on which nothing is decided yet.
    #[must_use]
    pub fn new(
        table: &'a ThrottleTable,
        limit: ThrottleLimit,
        key: &'a [u8],
        cost: u64,
        dry_run: bool,
    ) -> Self {
        let (standing, slot) = (ThrottleStanding::default(), Slot::default());
        Self { table, limit, key, cost, dry_run, standing, hash: 0, slot, owes_until: 0 }
    }
}

/// Who keeps what keys have used.
///
/// It answers at once: a request never waits for a store. One that a fleet shares leases parts of limits in the background, and
/// decides by what it has; it gets the keys themselves, since other processes hash them with other secrets.
pub trait ThrottleStore: Send + Sync + fmt::Debug {
    /// Makes all charges and returns true; makes none and returns false where one does not fit that is no dry run. A dry run
    /// that does not fit is not charged. Orders the charges, and notes in each where its key stands.
    ///
    /// A throttle is charged once: of further charges to the same table only the standing is noted.
    fn charge(&self, charges: &mut [Charge<'_>], now: Mono) -> bool;

    /// What [`Self::charge`] would return and note now. Charges nothing.
    fn look(&self, charges: &mut [Charge<'_>], now: Mono) -> bool;
}

/// Throttles of one process, all of whose threads share them.
#[derive(Debug, Default)]
pub struct LocalThrottles {
    /// Keyed by chance: nobody can choose keys for the same bucket.
    hasher: RandomState,
}

impl ThrottleStore for LocalThrottles {
    fn charge(&self, charges: &mut [Charge<'_>], now: Mono) -> bool {
        self.decide(charges, now, true)
    }

    fn look(&self, charges: &mut [Charge<'_>], now: Mono) -> bool {
        self.decide(charges, now, false)
    }
}

impl LocalThrottles {
    fn decide(&self, charges: &mut [Charge<'_>], now: Mono, is_charged: bool) -> bool {
        let id = |charge: &Charge<'_>| charge.table.id();
        if !charges.is_sorted_by_key(id) {
            charges.sort_unstable_by_key(id);
        }
        let mut buckets: SmallVec<[Option<MutexGuard<'_, Slots>>; CHARGES_INLINE]> = SmallVec::new();
        let mut fits = true;
        let mut previous = None;
        for charge in charges.iter_mut() {
            charge.hash = self.hasher.hash_one(charge.key);
            if let Some((table, standing)) = previous
                && table == id(charge)
            {
                charge.standing = standing;
                buckets.push(None);
                continue;
            }
            let bucket = charge.table.bucket(charge.hash);
            charge.slot = bucket.as_ref().map(|slots| slots.find(charge.hash)).unwrap_or_default();
            (charge.standing, charge.owes_until) =
                charge.limit.quote(charge.slot.owes_until, charge.cost, now);
            charge.standing.fits |= charge.cost == 0;
            fits &= charge.standing.fits || charge.dry_run;
            previous = Some((id(charge), charge.standing));
            buckets.push(bucket);
        }
        if !(fits && is_charged) {
            return fits;
        }
        for (charge, bucket) in charges.iter().zip(&mut buckets) {
            if let Some(slots) = bucket
                && charge.standing.fits
                && charge.cost > 0
            {
                charge.table.note(slots, charge.hash, charge.slot, charge.owes_until, now);
            }
        }
        true
    }
}
