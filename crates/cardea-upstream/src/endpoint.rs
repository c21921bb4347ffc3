//! One endpoint of a service: its health, its counters and its connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use cardea_clock::Mono;

use crate::address::Address;
use crate::config::PoolConfig;
use crate::framing::FramingRecord;
use crate::health::Health;
use crate::permit::{ConnectionPermit, Permits};
use crate::pool::{Counts, Pool};

/// What failed at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The connection was refused, or the host or its name could not be reached. Ejects the endpoint.
    Connect,
    /// The connection was not made in time. Ejects the endpoint.
    ConnectTimeout,
    /// The TLS handshake failed. Ejects the endpoint.
    Handshake,
    /// The connection was closed or reset before the response. Like the two below it is counted only: clients
    /// can provoke it, and must not be able to eject endpoints.
    Closed,
    /// The response breaks a rule of HTTP.
    Malformed,
    /// The head of the response did not arrive in time.
    ResponseTimeout,
}

impl FailureKind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Connect,
        Self::ConnectTimeout,
        Self::Handshake,
        Self::Closed,
        Self::Malformed,
        Self::ResponseTimeout,
    ];

    /// Whether it ejects the endpoint.
    #[must_use]
    pub fn ejects(self) -> bool {
        matches!(self, Self::Connect | Self::ConnectTimeout | Self::Handshake)
    }

    /// The name in logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::ConnectTimeout => "connect_timeout",
            Self::Handshake => "handshake",
            Self::Closed => "closed",
            Self::Malformed => "malformed",
            Self::ResponseTimeout => "response_timeout",
        }
    }
}

/// An endpoint that lives as long as its address stays in the configuration.
#[derive(Debug)]
pub struct Endpoint<C> {
    address: Address,
    label: Arc<str>,
    pub(crate) shared: Arc<Shared>,
    pool: Pool<C>,
    permits: Arc<Permits>,
}

/// What outlives even a change of how connections are made.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) health: Health,
    /// Of each worker. What a request holds of it is counted there too, and nowhere that workers share.
    loads: Box<[Arc<Load>]>,
    pub(crate) connects: AtomicU64,
    /// In the order of [`FailureKind::ALL`].
    failures: [AtomicU64; FailureKind::ALL.len()],
    /// What the pool counts: it goes on where the pool is replaced.
    pool: Counts,
    pub(crate) ejections: AtomicU64,
    pub(crate) framing: Arc<FramingRecord>,
}

/// What a worker counts with each request, on cache lines of its own: two, as processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Load {
    in_flight: AtomicUsize,
    requests: AtomicU64,
}

impl Shared {
    fn load(&self, worker: usize) -> &Arc<Load> {
        // There is at least one.
        &self.loads[worker % self.loads.len()]
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.loads.iter().fold(0, |sum, load| sum.wrapping_add(load.in_flight.load(Ordering::Relaxed)))
    }

    /// How often each kind of failure happened.
    pub(crate) fn failures(&self) -> [(FailureKind, u64); FailureKind::ALL.len()] {
        let mut failures = FailureKind::ALL.map(|kind| (kind, 0));
        for ((_, count), counted) in failures.iter_mut().zip(&self.failures) {
            *count = counted.load(Ordering::Relaxed);
        }
        failures
    }

    fn count(&self, kind: FailureKind) {
        let counted = self.failures.iter().zip(FailureKind::ALL).find(|(_, other)| *other == kind);
        if let Some((counter, _)) = counted {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.loads.iter().map(|load| load.requests.load(Ordering::Relaxed)).sum()
    }
}

impl<C> Endpoint<C> {
    pub(crate) fn new(address: Address, pool: &PoolConfig) -> Self {
        let label: Arc<str> = address.to_string().into();
        let framing = Arc::new(FramingRecord::new(Arc::clone(&label)));
        let shared = Shared {
            health: Health::new(),
            loads: (0..pool.workers.max(1)).map(|_| Arc::default()).collect(),
            connects: AtomicU64::new(0),
            failures: Default::default(),
            pool: Counts::new(pool.workers),
            ejections: AtomicU64::new(0),
            framing: Arc::clone(&framing),
        };
        let permits = Arc::new(Permits::new(pool.connections_max));
        let counted = Pool::counted_in(pool, framing, &shared.pool);
        Self { address, label, shared: Arc::new(shared), pool: counted, permits }
    }

    /// The same endpoint with a pool of its own, for connections that are made differently.
    ///
    /// Permits are common to both: the limit is the endpoint's.
    pub(crate) fn with_new_pool(&self, pool: &PoolConfig) -> Self {
        Self {
            address: self.address.clone(),
            label: Arc::clone(&self.label),
            shared: Arc::clone(&self.shared),
            pool: Pool::counted_in(pool, Arc::clone(&self.shared.framing), &self.shared.pool),
            permits: Arc::clone(&self.permits),
        }
    }

    /// The address as text, for logs.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Its idle connections.
    #[must_use]
    pub fn pool(&self) -> &Pool<C> {
        &self.pool
    }

    /// Counts a request of `worker` for as long as the guard lives: until its exchange has ended.
    pub fn begin(&self, worker: usize) -> InFlight {
        let load = Arc::clone(self.shared.load(worker));
        load.requests.fetch_add(1, Ordering::Relaxed);
        load.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight { load }
    }

    /// Requests that are there now.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.shared.in_flight()
    }

    /// Requests of `worker` that are there now.
    pub(crate) fn in_flight_of(&self, worker: usize) -> usize {
        self.shared.load(worker).in_flight.load(Ordering::Relaxed)
    }

    /// The right to make one more connection; `None` at `connections_max`.
    pub fn permit(&self) -> Option<ConnectionPermit> {
        self.permits.try_acquire()
    }

    /// Connections that hold a permit.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.permits.in_use()
    }

    /// A connection was made, its TLS handshake included: the endpoint is healthy.
    pub fn connected(&self) {
        self.shared.connects.fetch_add(1, Ordering::Relaxed);
        self.succeeded();
    }

    /// A response came, on whichever connection: the endpoint is healthy. One load where it was so before.
    pub fn succeeded(&self) {
        if self.shared.health.succeeded() {
            tracing::info!(endpoint = %self.address, "endpoint is healthy again");
        }
    }

    /// Something failed there. Failures to connect eject the endpoint: it is skipped for a back-off that
    /// grows from [`BACK_OFF_FIRST`](crate::BACK_OFF_FIRST) to [`BACK_OFF_MAX`](crate::BACK_OFF_MAX).
    ///
    /// A reset of a reused connection is no failure: the endpoint may close an idle one at any time.
    pub fn failed(&self, now: Mono, kind: FailureKind) {
        self.shared.count(kind);
        if !kind.ejects() {
            return;
        }
        if let Some(back_off) = self.shared.health.failed(now) {
            self.shared.ejections.fetch_add(1, Ordering::Relaxed);
            let seconds = back_off.as_secs();
            tracing::warn!(endpoint = %self.address, failure = kind.as_str(), seconds, "endpoint is ejected");
        }
    }

    /// Whether the last that was heard of the endpoint is a failure to connect.
    #[must_use]
    pub fn is_ejected(&self) -> bool {
        self.shared.health.is_ejected()
    }

    pub(crate) fn configure(&self, pool: &PoolConfig) {
        self.pool.configure(pool);
        self.permits.set_limit(pool.connections_max);
    }
}

/// A request that is at an endpoint; dropped when its exchange ends.
#[derive(Debug)]
#[must_use = "the request counts as long as this lives"]
pub struct InFlight {
    /// Whose count it is in, wherever it is dropped.
    load: Arc<Load>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.load.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint() -> Endpoint<()> {
        Endpoint::new(Address::Name { host: "h".into(), port: 80 }, &PoolConfig::default())
    }

    #[test]
    fn requests_count_while_they_last() {
        let endpoint = endpoint();
        let (one, two) = (endpoint.begin(0), endpoint.begin(7));
        assert_eq!(endpoint.in_flight(), 2);
        drop(one);
        assert_eq!(endpoint.in_flight(), 1);
        drop(two);
        assert_eq!((endpoint.in_flight(), endpoint.shared.requests()), (0, 2));
    }

    #[test]
    fn only_failures_to_connect_eject() {
        for kind in [FailureKind::Connect, FailureKind::ConnectTimeout, FailureKind::Handshake] {
            let endpoint = endpoint();
            endpoint.failed(Mono::MIN, kind);
            assert!(endpoint.is_ejected(), "{}", kind.as_str());
            endpoint.connected();
            assert!(!endpoint.is_ejected());
        }
        let endpoint = endpoint();
        for kind in [FailureKind::Closed, FailureKind::Malformed, FailureKind::ResponseTimeout] {
            (0..100).for_each(|_| endpoint.failed(Mono::MIN, kind));
            assert!(!endpoint.is_ejected(), "{}", kind.as_str());
        }
    }

    #[test]
    fn failures_are_counted_by_their_kind_and_outlive_a_pool() {
        let endpoint = endpoint();
        for (times, kind) in (1..).zip(FailureKind::ALL) {
            (0..times).for_each(|_| endpoint.failed(Mono::MIN, kind));
        }
        assert!(endpoint.pool().place(0).put((), Mono::MIN).is_none());
        assert!(endpoint.pool().take(0, Mono::MIN, |()| true).is_some());
        let replaced = endpoint.with_new_pool(&PoolConfig::default());
        let counted = replaced.shared.failures().map(|(_, count)| count);
        assert_eq!(counted, [1, 2, 3, 4, 5, 6]);
        assert_eq!((replaced.pool().stats().reused, replaced.pool().stats().idle), (1, 0));
        // What the old pool still counts is not lost.
        assert!(endpoint.pool().place(0).put((), Mono::MIN).is_none());
        assert!(endpoint.pool().take(0, Mono::MIN, |()| false).is_none());
        assert_eq!(replaced.pool().stats().dead, 1);
    }
}
