//! Streams: requests, responses and tunnels that outlast a moment, and end when the right that they were granted for does.
//!
//! A request is decided on once, and carried by the Model that it began with. What lasts longer is looked at again: when
//! its token's window ends, when its caller is revoked, when another Model is put in force, when the gateway goes away. One
//! task looks at the clock and at two numbers ten times a second, whatever streams there are; only when one of
//! them has moved does it look at the streams, and calls those that may be concerned. Each decides for itself.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use cardea_clock::{Mono, Timestamp, Wall};
use cardea_identity::{Lapse, VerdictRef};
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    client_certificate, conditions,
    exchange::Exchange,
    gateway::{Gateway, ModelRef, Phase},
    model::{Model, Route},
    pipeline::RequestOf,
    routing, workers,
};

/// How often the task looks. With the coarse clock's own period, this is how much longer a stream can live than its token.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What is younger than this is a request in flight, which no reload may drop. It is looked at once it is a stream.
const STREAM_AGE: Duration = Duration::from_secs(1);

/// Why the gateway ended a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// The token's window is over, and the grace.
    TokenExpired,
    /// The caller was revoked or disabled.
    TokenRevoked,
    /// The token's issuer is not trusted any more, or not as it was.
    IssuerChanged,
    /// No route leads there any more.
    RouteRemoved,
    /// The route asks for more than the caller has shown.
    DemandUnmet,
    /// The drain's deadline has come.
    Draining,
}

impl StreamEnd {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 6] = [
        Self::TokenExpired,
        Self::TokenRevoked,
        Self::IssuerChanged,
        Self::RouteRemoved,
        Self::DemandUnmet,
        Self::Draining,
    ];

    /// The stable code, for the access log and metrics.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::TokenExpired => "token_expired",
            Self::TokenRevoked => "token_revoked",
            Self::IssuerChanged => "issuer_changed",
            Self::RouteRemoved => "route_removed",
            Self::DemandUnmet => "demand_unmet",
            Self::Draining => "drain_deadline",
        }
    }

    /// What the client is told, where its protocol has room for words.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::TokenExpired => "token expired",
            Self::TokenRevoked => "token revoked",
            Self::IssuerChanged => "token no longer accepted",
            Self::RouteRemoved => "no longer available",
            Self::DemandUnmet => "no longer allowed",
            Self::Draining => "going away",
        }
    }

    /// The status of a WebSocket's close frame (RFC 6455 §7.4.1): going away, or against the policy.
    pub(crate) const fn close_code(self) -> u16 {
        if matches!(self, Self::Draining) { 1001 } else { 1008 }
    }

    /// The status of a gRPC call: `UNAUTHENTICATED`, `PERMISSION_DENIED`, `UNAVAILABLE`.
    pub(crate) const fn grpc_status(self) -> &'static str {
        match self {
            Self::TokenExpired | Self::TokenRevoked | Self::IssuerChanged => "16",
            Self::RouteRemoved | Self::DemandUnmet => "7",
            Self::Draining => "14",
        }
    }
}

impl From<Lapse> for StreamEnd {
    fn from(lapse: Lapse) -> Self {
        match lapse {
            Lapse::Expired => Self::TokenExpired,
            Lapse::Revoked => Self::TokenRevoked,
            Lapse::IssuerChanged => Self::IssuerChanged,
        }
    }
}

/// One stream's own view: it is entered when it first has to wait, and goes with this.
pub(crate) struct StreamWatch<'g> {
    gateway: &'g Gateway,
    entered: Option<Entered<'g>>,
}

impl<'g> StreamWatch<'g> {
    pub(crate) const fn new(gateway: &'g Gateway) -> Self {
        Self { gateway, entered: None }
    }

    /// Ready once the stream has to end. To be asked whenever it has to wait.
    pub(crate) fn poll(&mut self, cx: &Context<'_>, exchange: &Exchange) -> Poll<StreamEnd> {
        let entered = match &self.entered {
            Some(entered) if !entered.called.load(Relaxed) => return Poll::Pending,
            Some(entered) => {
                entered.called.store(false, Relaxed);
                entered
            }
            // Entered before it is looked at: what changes between the two is seen here or by the task.
            None => self.entered.insert(self.gateway.streams.enter(cx.waker(), exchange, self.gateway)),
        };
        let age = self.gateway.clock.mono().saturating_since(entered.since);
        let Some(end) = judge(self.gateway, exchange, age >= STREAM_AGE) else { return Poll::Pending };
        self.gateway.metrics.stream_ended(end);
        Poll::Ready(end)
    }
}

/// Why the stream has to end now, if it has to. What only a reload takes away, only `settled` streams lose.
fn judge(gateway: &Gateway, exchange: &Exchange, settled: bool) -> Option<StreamEnd> {
    if gateway.phase() == Phase::Ending {
        return Some(StreamEnd::Draining);
    }
    let model = gateway.model_ref();
    if let Some(verdict) = &exchange.verdict {
        match model.authenticator.lapse(verdict, gateway.clock.now(), grace(exchange)) {
            Some(Lapse::IssuerChanged) if !settled => {}
            Some(lapse) => return Some(lapse.into()),
            None => {}
        }
    }
    let reloaded = exchange.model.as_ref().is_some_and(|own| own.generation() != model.generation());
    if settled && reloaded { look_again(&model, exchange).err() } else { None }
}

/// Whether the model still leads the request of `exchange` to a route whose demands its caller meets.
fn look_again(model: &Model, exchange: &Exchange) -> Result<(), StreamEnd> {
    let (Some(own), Some(index)) = (&exchange.model, exchange.route) else { return Ok(()) };
    let Some(route) = exchange.route() else { return Ok(()) };
    // Headers were changed on the way to the service: where the own model would now choose another route by them, names
    // tell more.
    let faithful = find(own, exchange).is_some_and(|(found, _)| found == index);
    let route = if faithful {
        find(model, exchange).map(|(_, route)| route)
    } else {
        (0..model.router.len()).filter_map(|at| model.router.get(at)).find(|other| other.name == route.name)
    };
    let Some(route) = route else { return Err(StreamEnd::RouteRemoved) };
    let shown = match (&route.demand, &exchange.verdict) {
        (None, _) => true,
        (Some(demand), verdict) => verdict.as_ref().is_some_and(|verdict| demand.check(verdict).is_ok()),
    };
    let admitted = |rule| matches!(client_certificate::admit(rule, exchange), Ok(None));
    // A policy that reads what was changed on the way says nothing now, in its own model either.
    let allowed = conditions::allow_still(model, route, exchange)
        || !exchange.route().is_some_and(|own_route| conditions::allow_still(own, own_route, exchange));
    let met = shown && route.client_certificate.as_ref().is_none_or(admitted) && allowed;
    if met { Ok(()) } else { Err(StreamEnd::DemandUnmet) }
}

fn find<'m>(model: &'m Model, exchange: &Exchange) -> Option<(usize, &'m Arc<Route>)> {
    let host = exchange.authority.as_ref().map_or("", cardea_http::Authority::host);
    let view = RequestOf::new(model, exchange);
    match model.router.find(host, &exchange.path, &view) {
        routing::Outcome::Found(found) if !view.has_failed() => Some((found.index(), found.route())),
        _ => None,
    }
}

fn grace(exchange: &Exchange) -> Duration {
    exchange.route().map_or(Duration::ZERO, |route| route.timeouts.token_expiry_grace)
}

/// All streams of a gateway. As many as there are connections and their HTTP/2 streams, at the most.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    count: AtomicUsize,
    /// A worker uses the one of its number.
    shards: [Mutex<Shard>; 16],
    watched: AtomicBool,
}

#[derive(Debug)]
struct Shard {
    places: Vec<Option<Place>>,
    free: Vec<usize>,
    /// Of the model that was in force when the streams were last looked at.
    generation: u64,
    /// Of that model's authenticator.
    epoch: u64,
    /// The first moments at which time has something to say to a stream.
    due: Mono,
    due_wall: Wall,
}

impl Default for Shard {
    fn default() -> Self {
        let (places, free) = (Vec::new(), Vec::new());
        Self { places, free, generation: 0, epoch: 0, due: Mono::MAX, due_wall: Wall::MAX }
    }
}

/// What the task knows of a stream.
#[derive(Debug)]
struct Place {
    since: Mono,
    /// Of the model that the stream was last judged by.
    generation: u64,
    /// The end of its token's window, with the grace.
    deadline: Mono,
    not_after: Wall,
    verdict: Option<VerdictRef>,
    called: Arc<AtomicBool>,
    waker: Waker,
}

/// A stream that is entered, until this is dropped.
struct Entered<'g> {
    streams: &'g Streams,
    shard: usize,
    place: usize,
    since: Mono,
    called: Arc<AtomicBool>,
}

impl Streams {
    /// How many there are; a gauge.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Relaxed)
    }

    fn enter(&self, waker: &Waker, exchange: &Exchange, gateway: &Gateway) -> Entered<'_> {
        let since = gateway.clock.mono();
        let called = Arc::new(AtomicBool::new(false));
        let grace = grace(exchange);
        let verdict = exchange.verdict.clone();
        let place = Place {
            since,
            generation: exchange.model.as_ref().map_or(0, ModelRef::generation),
            deadline: verdict.as_ref().map_or(Mono::MAX, |verdict| verdict.deadline.saturating_add(grace)),
            not_after: verdict.as_ref().map_or(Wall::MAX, |verdict| verdict.not_after.saturating_add(grace)),
            verdict,
            called: Arc::clone(&called),
            waker: waker.clone(),
        };
        let shard = workers::current() % self.shards.len();
        let place = lock(&self.shards[shard]).insert(place);
        self.count.fetch_add(1, Relaxed);
        Entered { streams: self, shard, place, since, called }
    }

    /// Calls every stream, to be judged.
    pub(crate) fn call_all(&self) {
        for shard in &self.shards {
            lock(shard).places.iter().flatten().for_each(Place::call);
        }
    }

    /// Calls the streams that may have to end.
    fn look(&self, gateway: &Gateway) {
        if self.len() == 0 {
            return;
        }
        let (now, model) = (gateway.clock.now(), gateway.model_ref());
        let epoch = model.authenticator.epoch(now.mono);
        for shard in &self.shards {
            lock(shard).look(&model, epoch, now);
        }
    }
}

/// Looks after the streams of a gateway for as long as there is one; a gateway has one such task, however often this is
/// called.
pub(crate) async fn watch(gateway: Weak<Gateway>) {
    if gateway.upgrade().is_none_or(|gateway| gateway.streams.watched.swap(true, Relaxed)) {
        return;
    }
    let mut every = interval(LOOK_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let Some(gateway) = gateway.upgrade() else { return };
        gateway.streams.look(&gateway);
    }
}

impl Shard {
    fn insert(&mut self, place: Place) -> usize {
        self.due = self.due.min(place.deadline);
        self.due_wall = self.due_wall.min(place.not_after);
        if place.generation != self.generation {
            // Either nothing was looked at yet, or there was a reload since its request began.
            self.due = self.due.min(place.since.saturating_add(STREAM_AGE));
        }
        let at = self.free.pop().unwrap_or(self.places.len());
        match self.places.get_mut(at) {
            Some(free) => *free = Some(place),
            None => self.places.push(Some(place)),
        }
        at
    }

    fn look(&mut self, model: &ModelRef, epoch: u64, now: Timestamp) {
        let same = self.generation == model.generation() && self.epoch == epoch;
        if same && now.mono < self.due && now.wall < self.due_wall {
            return;
        }
        self.generation = model.generation();
        self.epoch = epoch;
        self.due = Mono::MAX;
        self.due_wall = Wall::MAX;
        for place in self.places.iter_mut().flatten() {
            self.due = self.due.min(place.look(model, now));
            self.due_wall = self.due_wall.min(place.not_after);
        }
    }
}

impl Place {
    /// Calls the stream if it may have to end; when it is to be looked at again.
    fn look(&mut self, model: &ModelRef, now: Timestamp) -> Mono {
        let settled = self.since.saturating_add(STREAM_AGE);
        let is_settled = settled <= now.mono;
        let lapse = |verdict: &VerdictRef| model.authenticator.lapse(verdict, now, Duration::MAX);
        let expired = self.deadline <= now.mono || self.not_after <= now.wall;
        let lapsed = self.verdict.as_ref().and_then(lapse);
        let reloaded = self.generation != model.generation();
        if expired || lapsed == Some(Lapse::Revoked) || (is_settled && (reloaded || lapsed.is_some())) {
            self.generation = model.generation();
            self.call();
        } else if reloaded || lapsed.is_some() {
            return self.deadline.min(settled);
        }
        self.deadline
    }

    fn call(&self) {
        self.called.store(true, Relaxed);
        self.waker.wake_by_ref();
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut shard = lock(&self.streams.shards[self.shard]);
        let place = shard.places.get_mut(self.place).and_then(Option::take);
        shard.free.push(self.place);
        drop(shard);
        drop(place);
        self.streams.count.fetch_sub(1, Relaxed);
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
