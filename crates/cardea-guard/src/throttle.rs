//! Throttles: how many units a key may use, at a rate.
//!
//! A request is charged to several throttles at once: to all of them, or to none if one refuses. Charges are exact across
//! threads: the buckets of all keys are locked during the decision, in an order that is the same for all threads.

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

/// The number of charges for which nothing is allocated.
const CHARGES_INLINE: usize = 4;

/// What a request uses of one throttle, and the decision on it.
#[derive(Debug)]
pub struct Charge<'a> {
    /// The throttle's keys.
    pub table: &'a ThrottleTable,
    /// The throttle's limit.
    pub limit: ThrottleLimit,
    /// The key that is charged.
    pub key: &'a [u8],
    /// How many units. A cost of 0 always fits.
    pub cost: u64,
    /// Refuses nothing.
    pub dry_run: bool,
    /// Where the key stands, after the decision.
    pub standing: ThrottleStanding,
    hash: u64,
    slot: Slot,
    /// From when on the key owes nothing, if it is charged.
    owes_until: u64,
}

impl<'a> Charge<'a> {
    /// A charge without a decision.
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

/// Decides on charges.
///
/// The methods return at once, because a request never waits for a store. A store that a fleet shares leases parts of limits in the
/// background and decides by what it has leased. It gets the keys themselves, since each process hashes them with another secret.
pub trait ThrottleStore: Send + Sync + fmt::Debug {
    /// Makes all charges and returns true, or makes none and returns false if one that is no dry run does not fit. A dry run that
    /// does not fit is not charged. Sets the standing of each.
    ///
    /// A throttle is charged once: further charges to the same table only get their standing.
    fn charge(&self, charges: &mut [Charge<'_>], now: Mono) -> bool;

    /// Returns and sets the same as [`Self::charge`] would now, and charges nothing.
    fn look(&self, charges: &mut [Charge<'_>], now: Mono) -> bool;
}

/// Throttles of one process, shared by its threads.
#[derive(Debug, Default)]
pub struct LocalThrottles {
    /// With a random key, so that nobody can choose keys for the same bucket.
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
        let mut order: SmallVec<[usize; CHARGES_INLINE]> = (0..charges.len()).collect();
        if !charges.is_sorted_by_key(|charge| charge.table.id()) {
            order.sort_unstable_by_key(|index| charges.get(*index).map(|charge| charge.table.id()));
        }
        let mut buckets: SmallVec<[Option<MutexGuard<'_, Slots>>; CHARGES_INLINE]> = SmallVec::new();
        let mut fits = true;
        let mut previous = None;
        for index in &order {
            let Some(charge) = charges.get_mut(*index) else { continue };
            if let Some((table, standing)) = previous
                && table == charge.table.id()
            {
                charge.standing = standing;
                buckets.push(None);
                continue;
            }
            let bucket = self.look_up(charge, now);
            fits &= charge.standing.fits || charge.dry_run;
            previous = Some((charge.table.id(), charge.standing));
            buckets.push(bucket);
        }
        if fits && is_charged {
            for (index, bucket) in order.iter().zip(&mut buckets) {
                if let (Some(slots), Some(charge)) = (bucket, charges.get(*index))
                    && charge.standing.fits
                    && charge.cost > 0
                {
                    charge.table.note(slots, charge.hash, charge.slot, charge.owes_until, now);
                }
            }
        }
        fits
    }

    /// Notes where the key of a charge stands, and locks its bucket.
    fn look_up<'a>(&self, charge: &mut Charge<'a>, now: Mono) -> Option<MutexGuard<'a, Slots>> {
        charge.hash = self.hasher.hash_one(charge.key);
        let bucket = charge.table.bucket(charge.hash)?;
        charge.slot = bucket.find(charge.hash);
        (charge.standing, charge.owes_until) = charge.limit.quote(charge.slot.owes_until, charge.cost, now);
        charge.standing.fits |= charge.cost == 0;
        Some(bucket)
    }
}
