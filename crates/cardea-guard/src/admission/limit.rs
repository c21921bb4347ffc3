//! The central count of a limit, under the lock of the queue.

use std::sync::Arc;

use cardea_clock::Mono;

use super::{
    AdmissionBounds, Arrival, Usage,
    leases::Leases,
    shares::ClientShares,
    shedder::{Shedder, Standing, Threshold},
};

/// A worker leases so many permits at once at most. With more, workers that have none would call them in more often.
const LEASE_MAX: i64 = 32;

/// A limit as the queue counts it: `max_in_flight` is what is in use, what is free here, and what is free in the leases.
#[derive(Debug)]
pub(super) struct Limit {
    pub(super) bounds: AdmissionBounds,
    leases: Arc<Leases>,
    pub(super) shares: Arc<ClientShares>,
    /// Permits that are neither in use nor leased. Below zero while more are in use than a lower limit allows.
    free: i64,
    /// Whether workers may lease.
    is_open: bool,
    /// How many requests wait that need it.
    pub(super) waiting: u32,
    /// A request has found no permit.
    pub(super) was_full: bool,
    /// Since a request found no permit for the first time.
    pub(super) shedder: Option<Box<Shedder>>,
    /// Who adapts the bounds.
    pub(super) owner: Option<u64>,
}

impl Limit {
    pub(super) fn new(leases: Arc<Leases>, shares: Arc<ClientShares>, bounds: AdmissionBounds) -> Self {
        shares.set_limit(bounds.max_in_flight);
        let mut limit = Self {
            bounds,
            leases,
            shares,
            free: i64::from(bounds.max_in_flight),
            is_open: false,
            waiting: 0,
            was_full: false,
            shedder: None,
            owner: None,
        };
        limit.open_if_far();
        limit
    }

    /// With less than this outside of the leases, the limit may be near.
    fn near(&self) -> i64 {
        2 * self.leases.workers() as i64
    }

    /// Whether a permit is free.
    pub(super) fn has_room(&mut self) -> bool {
        if self.is_open && self.free < self.near() {
            self.close();
        }
        self.free >= 1
    }

    /// Takes a permit that is free.
    pub(super) fn take(&mut self) {
        self.free -= 1;
        if let Some(shedder) = &mut self.shedder {
            shedder.admit();
        }
    }

    /// A request arrives that may be refused.
    pub(super) fn note_arrival(&mut self, Arrival { priority, cohort, now, .. }: Arrival) {
        let AdmissionBounds { max_queue, max_age, .. } = self.bounds;
        let standing = Standing { waiting: self.waiting, max_queue, max_age };
        if let Some(shedder) = &mut self.shedder {
            shedder.arrive(priority, cohort, standing, now);
        }
    }

    /// A request has found no permit.
    pub(super) fn note_full(&mut self, sheds: bool, now: Mono) {
        self.was_full = true;
        if sheds {
            self.shedder.get_or_insert_with(|| Box::new(Shedder::new(now))).note_full();
        }
    }

    /// Who is refused for now.
    pub(super) fn threshold(&self) -> Threshold {
        self.shedder.as_ref().map_or(Threshold::NONE, |shedder| shedder.threshold())
    }

    /// Takes back a permit that was in use, and what its worker has beyond its needs.
    pub(super) fn put(&mut self, worker: usize) {
        self.free += 1;
        if self.is_open {
            self.free += i64::from(self.leases.trim(worker));
        }
    }

    /// Takes back what a worker took from its lease a moment ago.
    pub(super) fn undo(&mut self, worker: usize) {
        if self.is_open {
            self.leases.lease(worker, 1);
        } else {
            self.free += 1;
        }
    }

    /// Lets a worker lease, if the limit is far away. To be called when no waiter lacks this limit's permits.
    pub(super) fn lease(&mut self, worker: usize) {
        self.open_if_far();
        let share = if self.is_open { (self.free / self.near()).min(LEASE_MAX) } else { 0 };
        if let Ok(count @ 1..) = u32::try_from(share) {
            self.free -= share;
            self.leases.lease(worker, count);
        }
    }

    /// Opened at twice the distance at which it is closed, so that it does not swing.
    pub(super) fn open_if_far(&mut self) {
        if !self.is_open && self.free >= 2 * self.near() {
            self.leases.open();
            self.is_open = true;
        }
    }

    fn close(&mut self) {
        self.free += i64::from(self.leases.close());
        self.is_open = false;
    }

    pub(super) fn set_bounds(&mut self, bounds: AdmissionBounds) {
        if self.is_open {
            self.close();
        }
        self.free += i64::from(bounds.max_in_flight) - i64::from(self.bounds.max_in_flight);
        self.bounds = bounds;
        self.shares.set_limit(bounds.max_in_flight);
    }

    /// Whether a request has found no permit since this was last called, and how many are in use.
    pub(super) fn take_usage(&mut self) -> Usage {
        let is_full = self.was_full || (self.waiting > 0 && self.free < 1);
        self.was_full = false;
        Usage { is_full, in_flight: self.in_flight() }
    }

    /// How many permits are in use.
    pub(super) fn in_flight(&self) -> u32 {
        let used = i64::from(self.bounds.max_in_flight) - self.free - i64::from(self.leases.free());
        u32::try_from(used.max(0)).unwrap_or(u32::MAX)
    }
}
