//! Streams: requests, responses and tunnels that outlast a moment, and end when the right that they were granted for does.
//!
//! A request is decided on once, and carried by the Model that it began with. What lasts longer is looked at again: when
//! its token's window ends, when its caller is revoked, when another Model is put in force, when the gateway goes away. One
//! task looks at the clock and at two numbers ten times a second, whatever streams there are; only when one of
//! them has moved does it look at the streams, and calls those that may be concerned. Each decides for itself.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
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
    memory::{self, Held},
    model::{Model, Route},
    pipeline::{self, RequestOf},
    routing,
    shortage::Warned,
    workers,
};

/// How often the task looks. With the coarse clock's own period, this is how much longer a stream can live than its token.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What is younger than this is a request in flight, which no reload may drop. It is looked at once it is a stream.
const STREAM_AGE: Duration = Duration::from_secs(1);

/// Where memory is short, this part of what is held is freed beyond what is too much.
const RELIEF_PART: usize = 16;

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
    /// The process holds as much for messages under way as it may, and this one stood still for the longest.
    BuffersExhausted,
}

impl StreamEnd {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 7] = [
        Self::TokenExpired,
        Self::TokenRevoked,
        Self::IssuerChanged,
        Self::RouteRemoved,
        Self::DemandUnmet,
        Self::Draining,
        Self::BuffersExhausted,
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
            Self::BuffersExhausted => "buffers_exhausted",
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
            Self::BuffersExhausted => "out of buffers",
        }
    }

    /// The status of a WebSocket's close frame (RFC 6455 §7.4.1): going away, try again later (as IANA has it), or against the
    /// policy.
    pub(crate) const fn close_code(self) -> u16 {
        match self {
            Self::Draining => 1001,
            Self::BuffersExhausted => 1013,
            _ => 1008,
        }
    }

    /// The status of a gRPC call: `UNAUTHENTICATED`, `PERMISSION_DENIED`, `RESOURCE_EXHAUSTED`, `UNAVAILABLE`.
    pub(crate) const fn grpc_status(self) -> &'static str {
        match self {
            Self::TokenExpired | Self::TokenRevoked | Self::IssuerChanged => "16",
            Self::RouteRemoved | Self::DemandUnmet => "7",
            Self::BuffersExhausted => "8",
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
            Some(entered) if !entered.signal.called.load(Relaxed) => return Poll::Pending,
            Some(entered) => {
                entered.signal.called.store(false, Relaxed);
                entered
            }
            // Entered before it is looked at: what changes between the two is seen here or by the task.
            None => self.entered.insert(self.gateway.streams.enter(cx.waker(), Some(exchange), self.gateway)),
        };
        if entered.gives_way() {
            self.gateway.metrics.stream_ended(StreamEnd::BuffersExhausted);
            return Poll::Ready(StreamEnd::BuffersExhausted);
        }
        let age = self.gateway.clock.mono().saturating_since(entered.since);
        let Some(end) = judge(self.gateway, exchange, age >= STREAM_AGE) else { return Poll::Pending };
        self.gateway.metrics.stream_ended(end);
        Poll::Ready(end)
    }

    /// The same of a request whose head is not complete. Nothing was decided on it yet, so all that can end it is a lack of
    /// memory.
    pub(crate) fn poll_head(&mut self, cx: &Context<'_>) -> Poll<StreamEnd> {
        let gateway = self.gateway;
        let entered = self.entered.get_or_insert_with(|| gateway.streams.enter(cx.waker(), None, gateway));
        if !entered.gives_way() {
            return Poll::Pending;
        }
        gateway.metrics.stream_ended(StreamEnd::BuffersExhausted);
        Poll::Ready(StreamEnd::BuffersExhausted)
    }

    /// Notes what a stream holds that has to wait, in bytes, and how much of that its buffers do not count themselves. A stream
    /// that `holds` nothing waits for more to come, and costs nothing. Whether it has `moved` on since this was last asked
    /// decides for how long it has stood still.
    pub(crate) fn note(&mut self, holds: usize, uncounted: usize, moved: bool, now: Mono) {
        let Some(entered) = &mut self.entered else { return };
        entered.held.set(uncounted);
        let signal = &entered.signal;
        if moved || holds == 0 || signal.still_since.load(Relaxed) == 0 {
            let since = if holds == 0 { 0 } else { now.nanos().max(1) };
            signal.still_since.store(since, Relaxed);
        }
        signal.holds.store(holds + uncounted, Relaxed);
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
    let Ok(servable) = client_certificate::meets_host(model, exchange) else {
        return Err(StreamEnd::DemandUnmet);
    };
    if servable.by(route).is_err() || pipeline::check_path(model, route, exchange).is_err() {
        return Err(StreamEnd::DemandUnmet);
    }
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
    warned: Warned,
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
    signal: Arc<Signal>,
    waker: Waker,
}

/// What a stream and those who look at it tell each other.
#[derive(Debug, Default)]
struct Signal {
    /// To look at itself.
    called: AtomicBool,
    /// To end, for want of memory.
    gives_way: AtomicBool,
    /// Nanoseconds of [`Mono`] since when the other side has not taken what is held for it; 0: nothing is held.
    still_since: AtomicU64,
    /// How much is held, in bytes.
    holds: AtomicUsize,
}

/// A stream that is entered, until this is dropped.
struct Entered<'g> {
    streams: &'g Streams,
    shard: usize,
    place: usize,
    since: Mono,
    signal: Arc<Signal>,
    /// What its buffers do not count.
    held: Held,
}

impl Entered<'_> {
    fn gives_way(&self) -> bool {
        self.signal.gives_way.load(Relaxed)
    }
}

impl Streams {
    /// How many there are; a gauge.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Relaxed)
    }

    fn enter(&self, waker: &Waker, exchange: Option<&Exchange>, gateway: &Gateway) -> Entered<'_> {
        let since = gateway.clock.mono();
        let signal = Arc::<Signal>::default();
        let grace = exchange.map_or(Duration::ZERO, grace);
        let verdict = exchange.and_then(|exchange| exchange.verdict.clone());
        let place = Place {
            since,
            generation: exchange.and_then(|exchange| exchange.model.as_ref()).map_or(0, ModelRef::generation),
            deadline: verdict.as_ref().map_or(Mono::MAX, |verdict| verdict.deadline.saturating_add(grace)),
            not_after: verdict.as_ref().map_or(Wall::MAX, |verdict| verdict.not_after.saturating_add(grace)),
            verdict,
            signal: Arc::clone(&signal),
            waker: waker.clone(),
        };
        let shard = workers::current() % self.shards.len();
        let place = lock(&self.shards[shard]).insert(place);
        self.count.fetch_add(1, Relaxed);
        Entered { streams: self, shard, place, since, signal, held: Held::default() }
    }

    /// Ends streams that stand still, those first that have for the longest, until `bytes` will be free. Says how much those
    /// hold that end, the ones included that were told before.
    fn give_way(&self, bytes: usize) -> usize {
        let mut still = Vec::new();
        let mut freed = 0_usize;
        for (number, shard) in self.shards.iter().enumerate() {
            for (at, place) in lock(shard).places.iter().enumerate() {
                let Some(signal) = place.as_ref().map(|place| &place.signal) else { continue };
                let (since, holds) = (signal.still_since.load(Relaxed), signal.holds.load(Relaxed));
                if signal.gives_way.load(Relaxed) {
                    freed = freed.saturating_add(holds);
                } else if since > 0 {
                    still.push((since, holds, number, at));
                }
            }
        }
        still.sort_unstable();
        for (since, holds, number, at) in still {
            if freed >= bytes {
                break;
            }
            let shard = lock(&self.shards[number]);
            if let Some(Some(place)) = shard.places.get(at)
                && place.signal.still_since.load(Relaxed) == since
            {
                place.signal.gives_way.store(true, Relaxed);
                place.call();
                freed = freed.saturating_add(holds);
            }
        }
        freed
    }

    /// Ends streams that stand still where more is held than may be. Where that is not enough for longer than a moment, new
    /// requests are refused.
    fn relieve(&self, gateway: &Gateway, was_passed_before: bool) {
        let excess = memory::excess();
        if excess == 0 {
            return memory::set_exhausted(false);
        }
        // With some room, so that not every further buffer is too many.
        let freed = self.give_way(excess.saturating_add(memory::used() / RELIEF_PART));
        if freed >= excess {
            memory::set_exhausted(false);
        } else if was_passed_before {
            memory::set_exhausted(true);
        }
        self.warned.tell_of_buffers(memory::used(), freed, gateway.clock.mono());
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
    let mut was_passed = false;
    loop {
        // The bound of memory is looked at each time, and at once when it is passed.
        let is_due = tokio::select! {
            _ = every.tick() => true,
            () = memory::passed() => false,
        };
        let Some(gateway) = gateway.upgrade() else { return };
        gateway.streams.relieve(&gateway, is_due && was_passed);
        if is_due {
            gateway.streams.look(&gateway);
            was_passed = memory::excess() > 0;
        }
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
        self.signal.called.store(true, Relaxed);
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
