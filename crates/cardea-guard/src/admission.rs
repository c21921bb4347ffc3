//! Admission: how many requests may be in flight, in one queue for all workers.
//!
//! A limit counts permits. A [`Gate`] is the limits that the requests of a route have to pass together: the route's, its
//! service's and the process's. A request takes one permit of each or none. It waits where one has none left, and a permit
//! that comes back goes to the first waiter, by priority and then by arrival, that has all it needs.
//!
//! While a limit is far away, each worker leases some of its permits, and takes and returns them on a cache line of its
//! own. When the limit comes near, the leases are called in and the limit is counted in one place, under the lock of the
//! queue. A lease and its state are one word, so no permit is taken from a lease after it was called in: nobody overtakes
//! a waiter, and the count is exact.

mod adaptive;
mod gradient;
mod leases;
mod limit;
mod queue;
mod shares;
mod shedder;

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasher as _, Hash, RandomState},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    task::{Poll, Waker},
    time::Duration,
};

use cardea_clock::Mono;
use smallvec::SmallVec;

pub use self::{
    adaptive::{AdaptiveLimit, AdmissionSettings, MaxInFlight},
    gradient::{AdaptiveBounds, Gradient, Responses, Usage},
    shares::{CLIENT_SHARE_PERCENT, Holding},
    shedder::{Cohort, Threshold},
};
use self::{
    leases::Leases,
    queue::{After, Queue, Request},
    shares::ClientShares,
};

/// How many limits a gate has at most: of a route, of its service and of the process.
pub const GATE_LIMITS_MAX: usize = 3;

/// The bounds of one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionBounds {
    /// Requests in flight.
    pub max_in_flight: u32,
    /// Requests that wait. Without room, the newest waiter of the lowest priority makes room for a higher one.
    pub max_queue: u32,
    /// How long a request waits at most.
    pub max_age: Duration,
}

/// How important a request is. Who waits is admitted in this order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Before all others.
    Critical,
    /// Before what is usual.
    High,
    /// What is usual.
    #[default]
    Normal,
    /// After all others.
    Low,
}

impl Priority {
    /// All of them, the highest first.
    pub const ALL: [Self; 4] = [Self::Critical, Self::High, Self::Normal, Self::Low];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }

    /// The priority with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|priority| priority.as_str() == name)
    }
}

/// Why a request was not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionRefusal {
    /// The queue was full.
    QueueFull,
    /// It waited, and made room for a request of a higher priority.
    Displaced,
    /// It waited for as long as it may.
    Expired,
    /// Its caller is among those that are refused during an overload.
    Shed,
    /// Its client has its share of a limit, and others need the rest.
    OverShare,
}

/// What is asked of a request that can't be admitted by its worker alone.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// How important it is.
    pub priority: Priority,
    /// Who has sent it.
    pub cohort: Cohort,
    /// Who it is counted for, where a limit tells clients apart.
    pub client: Option<u64>,
    /// When it came.
    pub now: Mono,
}

impl Arrival {
    /// The arrival of a request whose caller does not matter.
    #[must_use]
    pub fn new(priority: Priority, now: Mono) -> Self {
        Self { priority, cohort: Cohort::default(), client: None, now }
    }
}

/// What becomes of a request that arrives.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Entry {
    /// It has its permits, which [`Gate::leave`] returns.
    Admitted,
    /// It waits: [`Gate::poll`] says for how long, and [`Gate::abandon`] ends it early.
    Waits(Ticket),
    /// It is refused.
    Refused(AdmissionRefusal),
}

/// A place in the queue. It is held until [`Gate::poll`] was ready or [`Gate::abandon`] was called.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Ticket(usize);

/// The figures of a limit at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AdmissionFigures {
    /// The limit in force.
    pub max_in_flight: u32,
    /// Requests in flight. While the limit is far away, what changes meanwhile may be missing.
    pub in_flight: u32,
    /// Requests that wait.
    pub waiting: u32,
    /// When the one that has waited for the longest has arrived.
    pub oldest: Option<Mono>,
    /// Who is refused for now.
    pub threshold: Threshold,
    /// The permits that clients do not get which have more than their share.
    pub reserved: u32,
}

/// The queue of a process, shared by its limits and gates.
#[derive(Clone)]
pub struct Admission(Arc<Shared>);

struct Shared {
    workers: usize,
    queue: Mutex<Queue>,
    /// With a random key, so that nobody can choose a name that is refused later than others.
    hasher: RandomState,
    /// What a client has of an adaptive limit in any case.
    client_share: AtomicU32,
    /// The limits that have a name.
    named: Mutex<HashMap<String, Weak<AdmissionLimit>>>,
}

impl Shared {
    /// Does something to the queue; then, without the lock, wakes those to whom something has happened.
    fn with<T>(&self, act: impl FnOnce(&mut Queue, &mut After) -> T) -> T {
        let mut after = After::default();
        let result = act(&mut self.queue.lock().unwrap_or_else(PoisonError::into_inner), &mut after);
        after.wake();
        result
    }
}

impl Admission {
    /// An empty queue for this number of workers.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self(Arc::new(Shared {
            workers: workers.max(1),
            queue: Mutex::default(),
            hasher: RandomState::new(),
            client_share: AtomicU32::new(CLIENT_SHARE_PERCENT),
            named: Mutex::default(),
        }))
    }

    /// A limit of which nothing is used.
    #[must_use]
    pub fn limit(&self, bounds: AdmissionBounds) -> Arc<AdmissionLimit> {
        let leases = Arc::new(Leases::new(self.0.workers));
        let shares = Arc::new(ClientShares::default());
        let id = self.0.with(|queue, _| queue.add_limit(Arc::clone(&leases), Arc::clone(&shares), bounds));
        Arc::new(AdmissionLimit { id, leases, shares, shared: Arc::clone(&self.0) })
    }

    /// The limit with this name, whoever still has it: a configuration, or a request that came by an earlier one. Otherwise a new one.
    #[must_use]
    pub fn named_limit(&self, name: &str, bounds: AdmissionBounds) -> Arc<AdmissionLimit> {
        let mut named = self.0.named.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = named.get(name).and_then(Weak::upgrade) {
            return known;
        }
        named.retain(|_, limit| limit.strong_count() > 0);
        let limit = self.limit(bounds);
        named.insert(name.to_owned(), Arc::downgrade(&limit));
        limit
    }

    /// What a client has of an adaptive limit in any case, in percent, while others lack permits. 100: it may have all.
    pub fn set_client_share(&self, percent: u32) {
        self.0.client_share.store(percent, Relaxed);
    }

    /// Whether the least important callers are refused during an overload, before the queue is full. They are not at first.
    pub fn set_shedding(&self, sheds: bool) {
        self.0.with(|queue, _| queue.set_shedding(sheds));
    }

    /// What a caller is known by.
    #[must_use]
    pub fn client(&self, caller: impl Hash) -> u64 {
        self.0.hasher.hash_one(caller)
    }

    /// The way past these limits, the narrowest first: those that have most in common come last. At most
    /// [`GATE_LIMITS_MAX`]; all of them belong to this queue.
    #[must_use]
    pub fn gate(&self, limits: impl IntoIterator<Item = Arc<AdmissionLimit>>) -> Arc<Gate> {
        let limits: SmallVec<[Arc<AdmissionLimit>; GATE_LIMITS_MAX]> = limits.into_iter().collect();
        debug_assert!(limits.len() <= GATE_LIMITS_MAX, "{} limits", limits.len());
        debug_assert!(limits.iter().all(|limit| Arc::ptr_eq(&limit.shared, &self.0)), "another queue's");
        let ids = limits.iter().map(|limit| limit.id).collect();
        let id = self.0.with(|queue, _| queue.add_gate(ids));
        Arc::new(Gate { id, limits, shared: Arc::clone(&self.0) })
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").field("workers", &self.0.workers).finish_non_exhaustive()
    }
}

/// A limit on the requests in flight. It lives for as long as a gate or a configuration has it.
pub struct AdmissionLimit {
    id: usize,
    leases: Arc<Leases>,
    shares: Arc<ClientShares>,
    shared: Arc<Shared>,
}

impl AdmissionLimit {
    /// Puts other bounds in force, in place of an adaptive limit, too. Beyond a lower limit, nothing is admitted until enough has
    /// ended; a higher one admits waiters at once. Who waits already keeps its time.
    pub fn set_bounds(&self, bounds: AdmissionBounds, now: Mono) {
        self.shared.with(|queue, after| queue.set_bounds(self.id, bounds, None, now, after));
    }

    /// What it counts now.
    #[must_use]
    pub fn figures(&self) -> AdmissionFigures {
        self.shared.with(|queue, _| queue.figures(self.id))
    }
}

impl Drop for AdmissionLimit {
    fn drop(&mut self) {
        self.shared.with(|queue, _| queue.remove_limit(self.id));
    }
}

impl fmt::Debug for AdmissionLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmissionLimit").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The limits that the requests of a route have to pass together.
///
/// A worker is given by its number; a wrong one costs time, but miscounts nothing. Times are read only where a request has
/// to wait or somebody else does.
pub struct Gate {
    id: usize,
    limits: SmallVec<[Arc<AdmissionLimit>; GATE_LIMITS_MAX]>,
    shared: Arc<Shared>,
}

impl Gate {
    /// Counts a request for its client, at the limits that tell clients apart. To be called before the request
    /// [enters](Self::enter).
    ///
    /// # Errors
    /// If the client has its share of one, and others need the rest.
    #[inline]
    pub fn hold(
        &self,
        client: impl FnOnce() -> u64,
        now: impl Fn() -> Mono,
    ) -> Result<Holding, AdmissionRefusal> {
        if self.limits.iter().any(|limit| limit.shares.is_on()) {
            self.hold_shares(client, now)
        } else {
            Ok(Holding::default())
        }
    }

    fn hold_shares(
        &self,
        client: impl FnOnce() -> u64,
        now: impl Fn() -> Mono,
    ) -> Result<Holding, AdmissionRefusal> {
        let percent = self.shared.client_share.load(Relaxed);
        let client = client();
        let mut holding = Holding::default();
        for limit in self.limits.iter().filter(|limit| limit.shares.is_on()) {
            let Some(place) = limit.shares.enter(client, percent, &now) else {
                self.shared.with(|queue, _| queue.note_full(limit.id));
                return Err(AdmissionRefusal::OverShare);
            };
            holding.push(place);
        }
        Ok(holding)
    }

    /// A request arrives. More is asked for only if it can't be admitted by its worker alone.
    #[inline]
    pub fn enter(&self, worker: usize, arrival: impl FnOnce() -> Arrival) -> Entry {
        let leased = self.limits.iter().take_while(|limit| limit.leases.take(worker)).count();
        if leased == self.limits.len() {
            return Entry::Admitted;
        }
        self.enter_queue(Request { gate: self.id, worker, leased, arrival: arrival() })
    }

    #[cold]
    fn enter_queue(&self, request: Request) -> Entry {
        let client_share = self.shared.client_share.load(Relaxed);
        self.shared.with(|queue, after| queue.enter(request, client_share, after))
    }

    /// Whether a request that waits is admitted. While it isn't, `waker` is woken when that is decided, in place of the former
    /// one; the request is to be polled at the latest at its [deadline](Self::deadline).
    ///
    /// # Errors
    /// Why it isn't admitted.
    pub fn poll(&self, ticket: &Ticket, now: Mono, waker: &Waker) -> Poll<Result<(), AdmissionRefusal>> {
        self.shared.with(|queue, after| queue.poll(ticket.0, now, waker, after))
    }

    /// Until when a request may wait.
    #[must_use]
    pub fn deadline(&self, ticket: &Ticket) -> Mono {
        self.shared.with(|queue, _| queue.deadline(ticket.0))
    }

    /// A request that waits is given up. Permits that it was given meanwhile go to the next.
    pub fn abandon(&self, ticket: Ticket, worker: usize, now: Mono) {
        self.shared.with(|queue, after| queue.abandon(ticket.0, worker, now, after));
    }

    /// A request that was admitted has ended.
    #[inline]
    pub fn leave(&self, worker: usize, now: impl FnOnce() -> Mono) {
        let mut left = SmallVec::<[usize; GATE_LIMITS_MAX]>::new();
        left.extend(self.limits.iter().filter(|limit| !limit.leases.put(worker)).map(|limit| limit.id));
        if !left.is_empty() {
            self.leave_queue(&left, worker, now());
        }
    }

    #[cold]
    fn leave_queue(&self, limits: &[usize], worker: usize, now: Mono) {
        self.shared.with(|queue, after| queue.give_back(limits, worker, now, after));
    }

    /// Its limits, the narrowest first.
    #[must_use]
    pub fn limits(&self) -> &[Arc<AdmissionLimit>] {
        &self.limits
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.shared.with(|queue, after| queue.remove_gate(self.id, after));
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("id", &self.id).field("limits", &self.limits).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
