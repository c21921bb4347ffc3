//! One endpoint of a service: its health, its counters and its connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use cardea_clock::Mono;

use crate::address::Address;
use crate::check::{self, CheckConfig, CheckConnection, CheckResult, CheckWait, Checks, Turn};
use crate::config::{EndpointConfig, HealthConfig, PoolConfig};
use crate::framing::FramingRecord;
use crate::health::{Ejection, EjectionCause, Failure, Health};
use crate::load::{Connecting, InFlight, Load};
use crate::names::DnsName;
use crate::permit::{ConnectionPermit, Permits};
use crate::pool::{Counts, Pool};

/// What failed at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The connection was refused, or the host or its name could not be reached.
    Connect,
    /// The connection was not made in time.
    ConnectTimeout,
    /// The TLS handshake failed.
    Handshake,
    /// The connection was closed or reset before the response.
    Closed,
    /// The response breaks a rule of HTTP.
    Malformed,
    /// The head of the response did not arrive in time.
    ResponseTimeout,
    /// The response has one of the [`statuses`](HealthConfig::statuses) that count as failures.
    Status,
}

impl FailureKind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Connect,
        Self::ConnectTimeout,
        Self::Handshake,
        Self::Closed,
        Self::Malformed,
        Self::ResponseTimeout,
        Self::Status,
    ];

    /// Whether there was no connection, so that no request was lost and none can be the cause: one such failure ejects.
    #[must_use]
    pub fn is_unreachable(self) -> bool {
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
            Self::Status => "status",
        }
    }
}

/// What the operator says of an endpoint, whatever its health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Override {
    /// It gets no new requests. Those under way end, and its checks go on.
    Drained,
    /// The same, and it is not checked; its idle connections are closed.
    Disabled,
}

impl Override {
    /// The name in logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drained => "drained",
            Self::Disabled => "disabled",
        }
    }
}

/// Whether requests can share a connection.
#[derive(Clone, Copy)]
enum Sharing {
    Unknown,
    Shared,
    Exclusive,
}

/// An endpoint that lives as long as its address stays in the configuration, or among those of its name.
#[derive(Debug)]
pub struct Endpoint<C> {
    address: Address,
    name: Option<Arc<DnsName>>,
    label: Arc<str>,
    pub(crate) shared: Arc<Shared>,
    pool: Pool<C>,
    permits: Arc<Permits>,
    /// Whether requests can share a connection, by the last one that was made: a [`Sharing`] by its number.
    sharing: AtomicU8,
}

/// What outlives even a change of how connections are made.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) health: Health,
    pub(crate) checks: Checks,
    /// The [`Override`] by its number; 0: none.
    overridden: AtomicU8,
    pub(crate) load: Load,
    pub(crate) connects: AtomicU64,
    /// In the order of [`FailureKind::ALL`].
    failures: [AtomicU64; FailureKind::ALL.len()],
    /// What the pool counts: it goes on where the pool is replaced.
    pool: Counts,
    /// In the order of [`EjectionCause::ALL`].
    ejections: [AtomicU64; EjectionCause::ALL.len()],
    pub(crate) framing: Arc<FramingRecord>,
}

impl Shared {
    /// What the operator says of it.
    pub(crate) fn overridden(&self) -> Option<Override> {
        match self.overridden.load(Ordering::Relaxed) {
            1 => Some(Override::Drained),
            2 => Some(Override::Disabled),
            _ => None,
        }
    }

    /// Whether the operator has taken it out. One load.
    pub(crate) fn is_taken_out(&self) -> bool {
        self.overridden.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn set_override(&self, overridden: Option<Override>) {
        let number = match overridden {
            None => 0,
            Some(Override::Drained) => 1,
            Some(Override::Disabled) => 2,
        };
        self.overridden.store(number, Ordering::Relaxed);
    }

    /// How often each kind of failure happened.
    pub(crate) fn failures(&self) -> [(FailureKind, u64); FailureKind::ALL.len()] {
        let mut failures = FailureKind::ALL.map(|kind| (kind, 0));
        for ((_, count), counted) in failures.iter_mut().zip(&self.failures) {
            *count = counted.load(Ordering::Relaxed);
        }
        failures
    }

    /// How often the endpoint was ejected for each cause.
    pub(crate) fn ejections(&self) -> [(EjectionCause, u64); EjectionCause::ALL.len()] {
        let mut ejections = EjectionCause::ALL.map(|cause| (cause, 0));
        for ((_, count), counted) in ejections.iter_mut().zip(&self.ejections) {
            *count = counted.load(Ordering::Relaxed);
        }
        ejections
    }

    fn count(&self, kind: FailureKind) {
        let counted = self.failures.iter().zip(FailureKind::ALL).find(|(_, other)| *other == kind);
        if let Some((counter, _)) = counted {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<C> Endpoint<C> {
    pub(crate) fn new(config: &EndpointConfig, pool: &PoolConfig) -> Self {
        let EndpointConfig { address, name, .. } = config.clone();
        let label = name.as_ref().map_or_else(|| address.to_string(), |name| name.label(&address));
        let label: Arc<str> = label.into();
        let framing = Arc::new(FramingRecord::new(Arc::clone(&label)));
        let shared = Shared {
            health: Health::default(),
            checks: Checks::default(),
            overridden: AtomicU8::new(0),
            load: Load::new(pool.workers),
            connects: AtomicU64::new(0),
            failures: Default::default(),
            pool: Counts::new(pool.workers),
            ejections: Default::default(),
            framing: Arc::clone(&framing),
        };
        let permits = Arc::new(Permits::new(pool.connections_max));
        let counted = Pool::counted_in(pool, framing, &shared.pool);
        let (shared, sharing) = (Arc::new(shared), AtomicU8::new(Sharing::Unknown as u8));
        Self { address, name, label, shared, pool: counted, permits, sharing }
    }

    /// The same endpoint with a pool of its own, for connections that are made differently.
    ///
    /// Permits are common to both: the limit is the endpoint's.
    pub(crate) fn with_new_pool(&self, pool: &PoolConfig) -> Self {
        Self {
            address: self.address.clone(),
            name: self.name.clone(),
            label: Arc::clone(&self.label),
            shared: Arc::clone(&self.shared),
            pool: Pool::counted_in(pool, Arc::clone(&self.shared.framing), &self.shared.pool),
            permits: Arc::clone(&self.permits),
            sharing: AtomicU8::new(Sharing::Unknown as u8),
        }
    }

    /// Its name and address as text, for logs and metrics.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    pub(crate) fn shared_label(&self) -> Arc<str> {
        Arc::clone(&self.label)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The name that was resolved to its address.
    #[must_use]
    pub fn name(&self) -> Option<&Arc<DnsName>> {
        self.name.as_ref()
    }

    /// Whether a text is its label, its address, or its name as configured.
    #[must_use]
    pub fn is_called(&self, text: &str) -> bool {
        text == &*self.label || text == self.address.to_string() || self.has_name(text)
    }

    /// Whether a text is its name as configured.
    pub(crate) fn has_name(&self, text: &str) -> bool {
        self.name.as_ref().is_some_and(|name| name.to_string() == text)
    }

    /// Its idle connections.
    #[must_use]
    pub fn pool(&self) -> &Pool<C> {
        &self.pool
    }

    /// Counts a request of `worker` for as long as the guard lives: from the choice of the endpoint until its exchange
    /// has ended.
    pub fn begin(&self, worker: usize) -> InFlight {
        self.shared.load.begin(worker)
    }

    /// Counts a connection that `worker` makes for as long as the guard lives.
    pub fn connecting(&self, worker: usize) -> Connecting {
        self.shared.load.connecting(worker)
    }

    /// Requests that are there now.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.shared.load.in_flight()
    }

    /// The right to make one more connection; `None` at `connections_max`.
    pub fn permit(&self) -> Option<ConnectionPermit> {
        self.permits.try_acquire()
    }

    /// Whether a request can have a connection now: a new one, or one that is idle or gives way to a new one. Where connections are
    /// shared, those in use may have room.
    pub(crate) fn has_connection(&self) -> bool {
        let is_shared = || self.sharing.load(Ordering::Relaxed) == Sharing::Shared as u8;
        self.permits.has_room() || is_shared() || !self.pool.is_empty()
    }

    /// Whether requests may share a connection, as far as is known from the last one that was made: then those that come together
    /// wait for one.
    #[must_use]
    pub fn may_share(&self) -> bool {
        self.sharing.load(Ordering::Relaxed) != Sharing::Exclusive as u8
    }

    /// Notes whether requests can share a connection that was made.
    pub fn set_shared(&self, shared: bool) {
        let sharing = if shared { Sharing::Shared } else { Sharing::Exclusive } as u8;
        if self.sharing.load(Ordering::Relaxed) != sharing {
            self.sharing.store(sharing, Ordering::Relaxed);
        }
    }

    /// Connections that hold a permit.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.permits.in_use()
    }

    /// A connection was made for an attempt for which the endpoint was `chosen` then.
    pub(crate) fn connected(&self, chosen: Mono, now: Mono) {
        self.shared.connects.fetch_add(1, Ordering::Relaxed);
        if self.shared.health.connected(chosen, now) {
            self.readmitted();
        }
    }

    /// An attempt succeeded.
    pub(crate) fn succeeded(&self, chosen: Mono, now: Mono) {
        if self.shared.health.succeeded(chosen, now) {
            self.readmitted();
        }
    }

    fn readmitted(&self) {
        self.shared.load.forget();
        tracing::info!(endpoint = %self.address, "endpoint is healthy again");
    }

    /// An attempt failed.
    pub(crate) fn failed(&self, failure: Failure, config: &HealthConfig, may_eject: impl FnOnce() -> bool) {
        let Shared { health, load, .. } = &*self.shared;
        self.shared.count(failure.kind);
        let ended = || load.ended_within(failure.now, config.window);
        let Some(Ejection { cause, lasts }) = health.failed(failure, config, ended, may_eject) else {
            return;
        };
        let counted = self.shared.ejections.iter().zip(EjectionCause::ALL).find(|(_, other)| *other == cause);
        if let Some((counter, _)) = counted {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        tracing::warn!(
            endpoint = %self.address,
            failure = failure.kind.as_str(),
            cause = cause.as_str(),
            milliseconds = u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX),
            "endpoint is ejected"
        );
    }

    /// A check is due and waits for its turn, for as long as the guard lives.
    pub fn check_waits(&self, now: Mono) -> CheckWait {
        CheckWait::begin(&self.shared, now)
    }

    /// Counts a connection that is kept for the next check, for as long as the guard lives.
    pub fn check_connection(&self) -> CheckConnection {
        CheckConnection::begin(&self.shared)
    }

    /// Notes the result of an active check, and says how long to wait before the next.
    pub fn checked(&self, result: CheckResult, config: &CheckConfig, now: Mono, random: u64) -> Duration {
        let Shared { health, checks, load, .. } = &*self.shared;
        match checks.record(result, config) {
            None => {}
            Some(Turn::Down) => {
                health.set_down();
                tracing::warn!(endpoint = %self.address, result = result.as_str(), "endpoint is down by its checks");
            }
            Some(Turn::First) => health.set_up(now),
            Some(Turn::Up) => {
                health.set_up(now);
                load.forget();
                tracing::info!(endpoint = %self.address, "endpoint is up by its checks");
            }
        }
        check::wait(checks.state(), config, random)
    }

    /// Whether the endpoint is skipped because of its traffic, but for probes.
    #[must_use]
    pub fn is_ejected(&self) -> bool {
        self.shared.health.is_ejected()
    }

    /// Whether neither its traffic, nor its checks, nor the operator speak against it.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.shared.health.is_available() && !self.shared.is_taken_out()
    }

    /// What the operator says of it.
    #[must_use]
    pub fn overridden(&self) -> Option<Override> {
        self.shared.overridden()
    }

    pub(crate) fn configure(&self, pool: &PoolConfig, check: &CheckConfig, now: Mono) {
        if !check.is_on() {
            self.shared.checks.forget();
            self.shared.health.set_up(now);
        }
        self.pool.configure(pool);
        self.permits.set_limit(pool.connections_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Usage;

    fn endpoint() -> Endpoint<()> {
        Endpoint::new(&EndpointConfig::new("10.0.0.1:80".parse().unwrap()), &PoolConfig::default())
    }

    #[test]
    fn requests_count_while_they_last() {
        let endpoint = endpoint();
        let (one, two) = (endpoint.begin(0), endpoint.begin(7));
        assert_eq!(endpoint.in_flight(), 2);
        drop(one);
        assert_eq!(endpoint.in_flight(), 1);
        drop(two);
        assert_eq!((endpoint.in_flight(), endpoint.shared.load.requests()), (0, 2));
    }

    #[test]
    fn failures_are_counted_by_their_kind_and_outlive_a_pool() {
        let endpoint = endpoint();
        for (times, kind) in (1..).zip(FailureKind::ALL) {
            let failure = Failure { kind, chosen: Mono::MIN, now: Mono::MIN, random: 0 };
            (0..times).for_each(|_| endpoint.failed(failure, &HealthConfig::default(), || false));
        }
        assert!(endpoint.pool().place(0, Usage::new(Mono::MIN)).put((), Mono::MIN).is_none());
        assert!(endpoint.pool().take(0, Mono::MIN, |()| true).is_some());
        let replaced = endpoint.with_new_pool(&PoolConfig::default());
        let counted = replaced.shared.failures().map(|(_, count)| count);
        assert_eq!(counted, [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!((replaced.pool().stats().reused, replaced.pool().stats().idle), (1, 0));
        // What the old pool still counts is not lost.
        assert!(endpoint.pool().place(0, Usage::new(Mono::MIN)).put((), Mono::MIN).is_none());
        assert!(endpoint.pool().take(0, Mono::MIN, |()| false).is_none());
        assert_eq!(replaced.pool().stats().dead, 1);
    }
}
