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
        let decision = Decision { throttles: self, now, is_charged };
        if charges.is_sorted_by_key(|charge| charge.table.id()) {
            return decision.next(&mut charges.iter_mut(), None, true);
        }
        let mut ordered: SmallVec<[&mut Charge<'_>; CHARGES_INLINE]> = charges.iter_mut().collect();
        ordered.sort_by_key(|charge| charge.table.id());
        decision.next(&mut ordered.into_iter(), None, true)
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

/// What all charges of a request are decided by.
#[derive(Clone, Copy)]
struct Decision<'t> {
    throttles: &'t LocalThrottles,
    now: Mono,
    is_charged: bool,
}

impl Decision<'_> {
    /// Decides on charges in the order of their tables, and returns whether all of them fit. The lock of each is held in the frame
    /// of this call until the last one is decided, so nothing has to collect the locks.
    fn next<'c, 'a: 'c>(
        self,
        charges: &mut impl Iterator<Item = &'c mut Charge<'a>>,
        previous: Option<(u64, ThrottleStanding)>,
        fits: bool,
    ) -> bool {
        let Some(charge) = charges.next() else { return fits };
        let table = charge.table.id();
        if let Some((_, standing)) = previous.filter(|(charged, _)| *charged == table) {
            charge.standing = standing;
            return self.next(charges, previous, fits);
        }
        let bucket = self.throttles.look_up(charge, self.now);
        let fits = fits && (charge.standing.fits || charge.dry_run);
        let fits = self.next(charges, Some((table, charge.standing)), fits);
        if let Some(mut slots) = bucket
            && fits
            && self.is_charged
            && charge.standing.fits
            && charge.cost > 0
        {
            charge.table.note(&mut slots, charge.hash, charge.slot, charge.owes_until, self.now);
        }
        fits
    }
}
