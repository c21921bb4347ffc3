//! What all connections share: the current model, the clock, what is counted, and whether the gateway is going away.

use std::ops::{Deref, DerefMut};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU8, AtomicU64, Ordering::SeqCst},
};
use std::task::Waker;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use cardea_cache::LimitsError;
use cardea_clock::Clock;
use cardea_guard::{
    ConnectionPermits, ConnectionRates, Handshakes, LocalThrottles, PrefixCounts, ThrottleStore,
};
use tokio::sync::Notify;

use crate::{
    challenge::Challenges,
    checks, conditions,
    connections::{Activity, Connections, Entry, Place},
    exchange::Exchange,
    forward::BodyBudget,
    memory::{self, Ending},
    metrics::{GatewayMetrics, TarpitMetrics},
    model::{Budgets, ConnectionTimeouts, LogFormat, Model, next_generation},
    pressure::Pressure,
    record::{AccessLog, Registry},
    shortage::{Shortage, ShortageWarnings},
    streams::Streams,
    tarpit::GatewayTarpit,
    termination::TerminationReason,
    workers,
};

pub use crate::model::ModelRef;

/// What a TLS handshake may take where there is no connection left: a few round trips.
const HANDSHAKE_SPARED: Duration = Duration::from_secs(1);

/// How many idle connections are closed at once where something is short.
const CLOSED_AT_ONCE: usize = 16;

/// How far the gateway is on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Not at all.
    Running,
    /// Not ready any more, but still accepting: load balancers need time to notice.
    Draining,
    /// Accepts nothing, closes connections as they fall idle.
    Stopping,
    /// The drain's deadline has come: ends what is under way.
    Ending,
}

/// The shared state of the data path.
pub struct Gateway {
    /// Changes after `model` has: a load tells a thread that its handle is up to date.
    generation: AtomicU64,
    model: ArcSwap<Model>,
    /// The time.
    pub clock: Clock,
    /// What is counted.
    pub metrics: GatewayMetrics,
    /// The budget for request bodies that are kept for a second attempt.
    pub replay_budget: Arc<BodyBudget>,
    /// The budget for copies of requests.
    pub mirror_budget: Arc<BodyBudget>,
    /// Answers to challenges of certificate authorities.
    pub challenges: Challenges,
    access_log: ArcSwapOption<AccessLog>,
    /// Logs that were replaced. To close one takes its time, which no worker has that wrote to it last.
    retired_logs: Mutex<Vec<Arc<AccessLog>>>,
    phase: AtomicU8,
    /// Told when the phase changes and when the last connection of a stopping gateway is gone.
    changed: Notify,
    connections: Connections,
    pub(crate) connection_permits: Arc<ConnectionPermits>,
    pub(crate) connection_rates: ConnectionRates,
    /// The open connections of each address prefix.
    pub(crate) connection_shares: Arc<PrefixCounts>,
    /// What requests have used of their limits.
    pub(crate) throttles: Box<dyn ThrottleStore>,
    /// Those who offend again and again.
    pub tarpit: Arc<GatewayTarpit>,
    /// The connections that active checks keep.
    pub(crate) check_places: Arc<checks::Places>,
    shortage_warnings: ShortageWarnings,
    pub(crate) handshakes: Arc<Handshakes>,
    /// What is under way for longer.
    pub(crate) streams: Streams,
    /// How near descriptors and memory are to their end.
    pub pressure: Pressure,
}

impl Gateway {
    /// A gateway that carries requests by `model` and enters what it counts into `registry`.
    ///
    /// # Errors
    /// If there is no memory for what it remembers of those who connect.
    pub fn new(model: Arc<Model>, clock: Clock, registry: Arc<Registry>) -> Result<Arc<Self>, LimitsError> {
        memory::set_max(model.limits.buffered_bytes_max, workers::default_count());
        let connection_permits = ConnectionPermits::new(model.limits.connections_max);
        model.admission.enforce(clock.precise_mono());
        let replay_budget = Arc::new(BodyBudget::new(model.limits.replay_total_bytes_max));
        let mirror_budget = Arc::new(BodyBudget::new(model.limits.mirror_total_bytes_max));
        let tarpit = GatewayTarpit::new(TarpitMetrics::new(&registry), clock.clone());
        Ok(Arc::new(Self {
            generation: AtomicU64::new(next_generation()),
            model: ArcSwap::new(model),
            clock,
            metrics: GatewayMetrics::new(registry),
            replay_budget,
            mirror_budget,
            challenges: Challenges::default(),
            access_log: ArcSwapOption::empty(),
            retired_logs: Mutex::default(),
            phase: AtomicU8::new(Phase::Running as u8),
            changed: Notify::new(),
            connections: Connections::default(),
            connection_permits,
            connection_rates: ConnectionRates::new()?,
            connection_shares: Arc::default(),
            throttles: Box::new(LocalThrottles::default()),
            tarpit,
            check_places: Arc::default(),
            shortage_warnings: ShortageWarnings::default(),
            handshakes: Handshakes::new(),
            streams: Streams::default(),
            pressure: Pressure::default(),
        }))
    }

    /// How many TLS handshakes are under way.
    #[must_use]
    pub fn handshakes_under_way(&self) -> usize {
        self.handshakes.count()
    }

    /// The configuration in force.
    #[must_use]
    pub fn model(&self) -> Arc<Model> {
        self.model.load_full()
    }

    /// This thread's handle to the configuration in force.
    pub(crate) fn model_ref(&self) -> ModelRef {
        self.with_local(ModelRef::clone)
    }

    /// The time limits of connections in force.
    pub(crate) fn connection_timeouts(&self) -> ConnectionTimeouts {
        self.with_local(|local| local.timeouts)
    }

    fn with_local<T>(&self, read: impl FnOnce(&ModelRef) -> T) -> T {
        // Before what it tells of: a handle is at most newer than its generation says.
        let generation = self.generation.load(SeqCst);
        let make = || {
            let (replay, mirror) = (Arc::clone(&self.replay_budget), Arc::clone(&self.mirror_budget));
            ModelRef::new(generation, self.model(), self.clock.clone(), Budgets { replay, mirror })
        };
        ModelRef::with_current(generation, make, read)
    }

    /// Puts another configuration in force; requests in flight keep theirs.
    pub fn set_model(&self, model: Arc<Model>) {
        memory::set_max(model.limits.buffered_bytes_max, workers::default_count());
        self.connection_permits.set_max(model.limits.connections_max);
        self.replay_budget.set_max(model.limits.replay_total_bytes_max);
        self.mirror_budget.set_max(model.limits.mirror_total_bytes_max);
        model.admission.enforce(self.clock.precise_mono());
        let has_tarpit = model.tarpit.is_some();
        self.model.store(model);
        self.generation.store(next_generation(), SeqCst);
        if !has_tarpit {
            self.tarpit.release_all();
        }
    }

    /// Where the access log is written; `None` for nowhere. What was there before is closed by
    /// [`Gateway::close_retired_logs`].
    pub fn set_access_log(&self, log: Option<Arc<AccessLog>>) {
        let before = self.access_log.swap(log);
        self.retired_logs().extend(before);
    }

    /// Closes access logs that were replaced and that nobody writes to any more. Waits for the disk; to be called every
    /// few seconds.
    pub fn close_retired_logs(&self) {
        let unused = |log: &mut Arc<AccessLog>| Arc::strong_count(log) == 1;
        let closing: Vec<_> = self.retired_logs().extract_if(.., unused).collect();
        drop(closing);
    }

    fn retired_logs(&self) -> MutexGuard<'_, Vec<Arc<AccessLog>>> {
        self.retired_logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The access log.
    #[must_use]
    pub fn access_log(&self) -> Option<Arc<AccessLog>> {
        self.access_log.load_full()
    }

    /// How far the gateway is on its way out.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.phase.load(SeqCst) {
            0 => Phase::Running,
            1 => Phase::Draining,
            2 => Phase::Stopping,
            _ => Phase::Ending,
        }
    }

    /// Whether connections are to be closed as they fall idle.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.phase() >= Phase::Stopping
    }

    /// Goes on to `phase`; there is no way back.
    pub fn advance(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, SeqCst);
        self.changed.notify_waiters();
        match phase {
            Phase::Running | Phase::Draining => {}
            Phase::Stopping => {
                self.connections.wake_all();
                self.tarpit.release_all();
            }
            Phase::Ending => self.streams.call_all(),
        }
    }

    /// Returns once the gateway accepts nothing more.
    pub async fn stopping(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_stopping() {
                return;
            }
            changed.await;
        }
    }

    /// Returns once no connection is left.
    pub async fn idle(&self) {
        loop {
            let changed = self.changed.notified();
            if self.connections.count() == 0 {
                return;
            }
            changed.await;
        }
    }

    /// Current connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.count()
    }

    /// Connections that carry nothing; a gauge. Looks at all connections.
    #[must_use]
    pub fn idle_connections(&self) -> usize {
        self.connections.idle()
    }

    /// Requests, responses and tunnels that are under way for longer; a gauge.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Ends the streams whose caller's right has just ended. When this returns they pass nothing on, unless workers lack the
    /// processor time to look within a second.
    pub async fn settle_streams(&self) {
        self.streams.settle(self).await;
    }

    /// What the process holds for messages under way, in bytes; a gauge.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        memory::used()
    }

    /// Counts a connection, and remembers how to wake its task when the gateway stops or needs its place.
    pub(crate) fn enter(self: &Arc<Self>, waker: Waker, activity: Arc<Activity>) -> ConnectionGuard {
        let place = self.connections.insert(waker, activity);
        ConnectionGuard { gateway: Arc::clone(self), place }
    }

    /// Makes room for one more connection of a client: the one that has been idle for the longest is closed, where none is
    /// idle one of the tarpit, and where that is empty the one that has been shaking hands for the longest.
    pub(crate) fn make_room(&self) {
        let now = self.clock.mono();
        let closed = self.connections.evict(1, now);
        self.metrics.idle_closed[0].add(closed as u64);
        if closed == 0 && !self.tarpit.evict_one() {
            self.handshakes.evict_oldest(HANDSHAKE_SPARED, now);
        }
    }

    /// Something could not be done for want of `shortage`: counts it, tells the operator, and closes those in the tarpit, those
    /// that checks keep, and idle connections, those to services first. Whether to try again is worth it.
    ///
    /// Where local ports are short, nothing is closed: a connection that is closed from here keeps its port for a minute
    /// (TIME-WAIT, RFC 9293 §3.6.1), and connections to elsewhere have nothing to do with it.
    pub(crate) fn fall_short(&self, shortage: Shortage, operation: &'static str) -> bool {
        self.metrics.count_shortage(shortage);
        let now = self.clock.mono();
        if shortage == Shortage::Ports {
            self.shortage_warnings.tell(shortage, operation, 0, now);
            return false;
        }
        self.tarpit.suspend(now);
        self.check_places.give_up(now);
        let of_services = self.close_idle_of_services(CLOSED_AT_ONCE);
        let of_clients = self.connections.evict(CLOSED_AT_ONCE - of_services, now);
        self.metrics.idle_closed[1].add(of_clients as u64);
        self.shortage_warnings.tell(shortage, operation, of_services + of_clients, now);
        of_services > 0
    }

    /// Closes up to `count` idle connections ahead of a shortage, those to services first. How many.
    pub(crate) fn close_idle(&self, count: usize) -> usize {
        let of_services = self.close_idle_of_services(count);
        let of_clients = self.connections.evict(count - of_services, self.clock.mono());
        self.metrics.idle_closed[2].add(of_clients as u64);
        of_services + of_clients
    }

    /// Counts a shortage for which nothing makes room.
    pub(crate) fn note_shortage(&self, shortage: Shortage, operation: &'static str) {
        self.metrics.count_shortage(shortage);
        self.shortage_warnings.tell(shortage, operation, 0, self.clock.mono());
    }

    /// The connections of clients that make the process hold something.
    pub(crate) fn connections_that_hold(&self) -> Vec<Arc<Entry>> {
        self.connections.holders()
    }

    /// Tells the operator that more is held for messages under way than may be.
    pub(crate) fn warn_of_buffers(&self, held: usize, ended: usize) {
        self.shortage_warnings.tell_of_buffers(held, ended, self.clock.mono());
    }

    /// Closes up to `most` idle connections to services, the oldest of each endpoint in turn.
    fn close_idle_of_services(&self, most: usize) -> usize {
        let model = self.model();
        let states: Vec<_> = model.services.iter().map(|service| service.live.state()).collect();
        let mut closed = 0;
        loop {
            let before = closed;
            for (_, endpoint) in states.iter().flat_map(|state| state.endpoints()) {
                if closed == most {
                    return closed;
                }
                closed += usize::from(endpoint.pool().give_up_oldest().is_some());
            }
            if closed == before {
                return closed;
            }
        }
    }

    /// Notes the end of an exchange: metrics, and a line in the access log.
    pub(crate) fn record(&self, exchange: &mut Exchange) {
        let took = self.clock.precise_mono().saturating_since(exchange.started.mono);
        exchange.ended = exchange.started.saturating_add(took);
        self.metrics.record(exchange);
        // A head that was refused has no model; it is logged by the one in force.
        if exchange.model.is_none() {
            exchange.model = Some(self.model_ref());
        }
        self.log(exchange);
        let faults = *exchange.faults.get_mut();
        if faults > 0 {
            self.metrics.expression_faults.add(u64::from(faults));
        }
    }

    fn log(&self, exchange: &Exchange) {
        let Some(model) = exchange.model.as_ref().and_then(|model| model.access_log.as_ref()) else {
            return;
        };
        let log = self.access_log.load();
        let Some(log) = log.as_ref() else { return };
        if !conditions::is_logged(model, exchange) {
            return;
        }
        log.append_with(|line| match &model.format {
            LogFormat::Json(record) => record.write(exchange, line),
            LogFormat::Common(record) => record.write(exchange, line),
            LogFormat::Template(template) => {
                template.render(exchange, cardea_env::Escape::LogField, line);
                line.push(b'\n');
            }
        });
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("phase", &self.phase()).finish_non_exhaustive()
    }
}

/// An exchange that is noted once, also where its task is dropped under it: at the drain's deadline, or by a panic.
pub(crate) struct Recording<'g> {
    gateway: &'g Gateway,
    exchange: &'g mut Exchange,
    noted: bool,
}

impl<'g> Recording<'g> {
    pub(crate) fn new(gateway: &'g Gateway, exchange: &'g mut Exchange) -> Self {
        gateway.metrics.active.increment();
        exchange.count_memory();
        Self { gateway, exchange, noted: false }
    }

    /// Notes its end.
    pub(crate) fn finish(mut self) {
        self.noted = true;
        self.gateway.record(self.exchange);
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        self.gateway.metrics.active.decrement();
        if !self.noted {
            self.exchange.response.complete = false;
            let ending = self.exchange.connection.as_ref().map(|facts| facts.activity.account().ending());
            let reason = match ending {
                _ if std::thread::panicking() => "internal_error",
                Some(Ending::Connection) => TerminationReason::BuffersExhausted.code(),
                _ => TerminationReason::Draining.code(),
            };
            self.exchange.response.reason = Some(reason);
            self.gateway.record(self.exchange);
        }
    }
}

impl Deref for Recording<'_> {
    type Target = Exchange;

    fn deref(&self) -> &Exchange {
        self.exchange
    }
}

impl DerefMut for Recording<'_> {
    fn deref_mut(&mut self) -> &mut Exchange {
        self.exchange
    }
}

/// A connection that counts as open while this lives.
#[derive(Debug)]
pub(crate) struct ConnectionGuard {
    gateway: Arc<Gateway>,
    place: Place,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        if self.gateway.connections.remove(self.place) && self.gateway.is_stopping() {
            self.gateway.changed.notify_waiters();
        }
    }
}
