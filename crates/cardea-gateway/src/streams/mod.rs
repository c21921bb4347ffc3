//! Streams: requests, responses and tunnels that outlast a moment, and end when the right that they were granted for does.
//!
//! A request is decided on once, and carried by the Model that it began with. What lasts longer is looked at again: when
//! its token's window ends, when its caller is revoked, when another Model is put in force, when the gateway goes away. One
//! task looks at the clock and at two numbers ten times a second, whatever streams there are; only when one of
//! them has moved does it look at the streams, and calls those that may be concerned. Each decides for itself.

mod judge;

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
use cardea_tls::ClientAuthority;
use slab::Slab;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::{
    client_certificate,
    exchange::Exchange,
    gateway::{Gateway, ModelRef},
    memory::{self, Account, Ending, Held, relief},
    pressure,
    termination::TerminationReason,
    workers,
};
use judge::{Judgement, Renewed, depends_on_time, judge};

/// How often the task looks. With the coarse clock's own period, this is how much longer a stream can live than its token.
const LOOK_EVERY: Duration = relief::TICK;

/// The bound of memory is enforced at most so often: to see what connections hold, all are looked at.
const RELIEVE_EVERY: Duration = Duration::from_millis(5);

/// How long [`Streams::settle`] waits for streams to be judged, and how often it looks whether they are.
const SETTLE_MAX: Duration = Duration::from_secs(1);
const SETTLE_EVERY: Duration = Duration::from_millis(2);

/// A stream is stalled once the other side has taken nothing of it for so long.
const STALLED_AFTER: Duration = Duration::from_millis(250);

/// What is younger than this is a request in flight, which no reload may drop. It is looked at once it is a stream.
pub(crate) const STREAM_AGE: Duration = Duration::from_secs(1);

/// How often a stream is looked at whose right depends on more than a moment that is known: on the time of day, by a rule, or
/// on a client's certificate, which is vouched for by others that expire.
const RECHECK_EVERY: Duration = Duration::from_secs(10);

/// One stream's own view: it is entered when it first has to wait, and goes with this.
pub(crate) struct StreamWatch<'g> {
    gateway: &'g Gateway,
    /// Boxed, as the next: each request has a watch, and few are entered.
    entered: Option<Box<Entered<'g>>>,
    /// The verdict on its token, after the issuer has changed.
    renewed: Option<Box<Renewed>>,
    /// What the stream holds that its buffers do not count.
    held: Held,
    /// Since when the other side has taken nothing of what is held for it.
    stalled_since: Option<Mono>,
}

impl<'g> StreamWatch<'g> {
    pub(crate) fn new(gateway: &'g Gateway) -> Self {
        Self { gateway, entered: None, renewed: None, held: Held::default(), stalled_since: None }
    }

    /// Ready once the stream has to end. To be asked whenever it has to wait.
    pub(crate) fn poll(&mut self, cx: &Context<'_>, exchange: &Exchange) -> Poll<TerminationReason> {
        let is_new = self.entered.is_none();
        match &self.entered {
            Some(entered) if !entered.called.load(Relaxed) => return Poll::Pending,
            Some(entered) => entered.called.store(false, Relaxed),
            // Entered before it is looked at: what changes between the two is seen here or by the task.
            None => {
                let entered = self.gateway.streams.enter(cx.waker(), exchange, self.gateway);
                self.entered = Some(Box::new(entered));
            }
        }
        if self.has_to_make_room(exchange) {
            return Poll::Ready(TerminationReason::BuffersExhausted);
        }
        match self.judge(exchange, is_new) {
            Judgement::GoesOn | Judgement::Released(_) => Poll::Pending,
            Judgement::Ends(end) => Poll::Ready(self.ended(end)),
        }
    }

    /// Why the stream has to end now, if it has to. To be asked before anything is done for it that can't be undone, if it has
    /// waited since it was decided on.
    pub(crate) fn check(&mut self, exchange: &Exchange) -> Option<TerminationReason> {
        match self.judge(exchange, false) {
            Judgement::GoesOn => None,
            Judgement::Released(end) | Judgement::Ends(end) => Some(self.ended(end)),
        }
    }

    fn judge(&mut self, exchange: &Exchange, is_new: bool) -> Judgement {
        let age = self.gateway.clock.mono().saturating_since(exchange.started.mono);
        let judgement = judge(self.gateway, exchange, &mut self.renewed, age >= STREAM_AGE, is_new);
        let streams = &self.gateway.streams;
        match (&self.entered, judgement) {
            (Some(entered), Judgement::Released(_)) => streams.release(entered),
            (Some(entered), Judgement::GoesOn) => {
                if let Some(renewed) = &self.renewed {
                    streams.renew(entered, renewed, grace(exchange));
                }
            }
            (_, Judgement::Ends(_)) | (None, _) => {}
        }
        judgement
    }

    fn ended(&self, end: TerminationReason) -> TerminationReason {
        self.gateway.metrics.stream_ended(end);
        end
    }

    /// Whether the stream ends because its connection holds too much: all of them, or those that are stalled.
    fn has_to_make_room(&self, exchange: &Exchange) -> bool {
        match exchange.connection.as_ref().map_or(Ending::No, |facts| facts.activity.account().ending()) {
            ending @ (Ending::No | Ending::Streams) => {
                let now = self.gateway.clock.mono();
                let stalled = self.stalled_since.is_some_and(|since| {
                    let stalled = now.saturating_since(since);
                    let is_told = ending == Ending::Streams && stalled >= STALLED_AFTER;
                    is_told || self.gateway.pressure.ends_stalled(stalled)
                });
                if stalled {
                    self.gateway.metrics.stream_ended(TerminationReason::BuffersExhausted);
                }
                stalled
            }
            // Counted where it was decided.
            Ending::Connection => true,
        }
    }

    /// Notes what a stream that has to wait holds beside its buffers, in bytes, whether its other side does not take what is
    /// held for it, and whether that has `moved` on since this was last noted.
    pub(crate) fn note(&mut self, uncounted: usize, waits_for_peer: bool, moved: bool, now: Mono) {
        self.held.set(uncounted);
        if !waits_for_peer {
            self.stalled_since = None;
        } else if moved || self.stalled_since.is_none() {
            self.stalled_since = Some(now);
        }
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
    places: Slab<Place>,
    /// Of the model that was in force when the streams were last looked at.
    generation: u64,
    /// Whether a rule of that model reads the time.
    reads_time: bool,
    /// Of that model's authenticator.
    epoch: u64,
    /// Changes of client authorities that were seen.
    authorities: u64,
    /// The first moments at which time has something to say to a stream.
    due: Mono,
    due_wall: Wall,
}

impl Default for Shard {
    fn default() -> Self {
        Self {
            places: Slab::new(),
            generation: 0,
            reads_time: false,
            epoch: 0,
            authorities: 0,
            due: Mono::MAX,
            due_wall: Wall::MAX,
        }
    }
}

/// What the task knows of a stream.
#[derive(Debug)]
struct Place {
    /// When its request began.
    since: Mono,
    /// Of the model that the stream was last judged by.
    generation: u64,
    /// The end of its token's window, with the grace.
    deadline: Mono,
    not_after: Wall,
    verdict: Option<VerdictRef>,
    /// Its client has shown a certificate.
    has_certificate: bool,
    /// The end of that, with the grace, until it was looked at.
    certificate_deadline: Mono,
    certificate_end: Wall,
    /// When it is looked at in any case.
    recheck: Mono,
    /// To look at itself.
    called: Arc<AtomicBool>,
    /// Of its connection.
    account: Option<Arc<Account>>,
    waker: Waker,
}

/// A stream that is entered, until this is dropped.
struct Entered<'g> {
    streams: &'g Streams,
    shard: usize,
    place: usize,
    called: Arc<AtomicBool>,
}

impl Streams {
    /// How many there are; a gauge.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Relaxed)
    }

    fn enter(&self, waker: &Waker, exchange: &Exchange, gateway: &Gateway) -> Entered<'_> {
        let now = gateway.clock.mono();
        let called = Arc::<AtomicBool>::default();
        let grace = grace(exchange);
        let verdict = exchange.verdict.clone();
        let certificate = client_certificate::shown(exchange);
        let certificate_end =
            certificate.map_or(Wall::MAX, |certificate| certificate.end().saturating_add(grace));
        let depends = certificate.is_some() || depends_on_time(exchange);
        let begun = exchange.started;
        let place = Place {
            since: begun.mono,
            generation: exchange.model.as_ref().map_or(0, ModelRef::generation),
            deadline: verdict.as_ref().map_or(Mono::MAX, |verdict| verdict.deadline.saturating_add(grace)),
            not_after: verdict.as_ref().map_or(Wall::MAX, |verdict| verdict.not_after.saturating_add(grace)),
            verdict,
            has_certificate: certificate.is_some(),
            certificate_deadline: begun.mono.saturating_add(certificate_end.saturating_since(begun.wall)),
            certificate_end,
            recheck: if depends { now.saturating_add(RECHECK_EVERY) } else { Mono::MAX },
            called: Arc::clone(&called),
            account: exchange.connection.as_ref().map(|facts| Arc::clone(facts.activity.account())),
            waker: waker.clone(),
        };
        let shard = workers::current() % self.shards.len();
        let place = lock(&self.shards[shard]).insert(place);
        self.count.fetch_add(1, Relaxed);
        Entered { streams: self, shard, place, called }
    }

    /// Looks at a stream by its new verdict from now on.
    fn renew(&self, entered: &Entered<'_>, renewed: &Renewed, grace: Duration) {
        lock(&self.shards[entered.shard]).renew(entered.place, renewed, grace);
    }

    /// Looks at a stream no longer for the sake of its verdict, until the next reload.
    fn release(&self, entered: &Entered<'_>) {
        lock(&self.shards[entered.shard]).release(entered.place);
    }

    /// Calls the streams of a connection, to end if they are stalled.
    pub(crate) fn call_those_of(&self, account: &Arc<Account>) {
        let is_of = |place: &&Place| place.account.as_ref().is_some_and(|other| Arc::ptr_eq(other, account));
        for shard in &self.shards {
            lock(shard).places.iter().map(|(_, place)| place).filter(is_of).for_each(Place::call);
        }
    }

    /// Calls the streams of all connections that hold something, to end if they are stalled.
    pub(crate) fn call_holders(&self) {
        let holds = |place: &&Place| place.account.as_ref().is_some_and(|account| account.held() > 0);
        for shard in &self.shards {
            lock(shard).places.iter().map(|(_, place)| place).filter(holds).for_each(Place::call);
        }
    }

    /// Calls every stream, to be judged.
    pub(crate) fn call_all(&self) {
        for shard in &self.shards {
            lock(shard).places.iter().for_each(|(_, place)| place.call());
        }
    }

    /// Has the streams judged that may have to end. Returns when they are, or after [`SETTLE_MAX`] where workers lack processor
    /// time. A stream that has to end passes nothing on from then on.
    pub(crate) async fn settle(&self, gateway: &Gateway) {
        self.look(gateway);
        let judged = async {
            while self
                .shards
                .iter()
                .any(|shard| lock(shard).places.iter().any(|(_, place)| place.is_called()))
            {
                sleep(SETTLE_EVERY).await;
            }
        };
        let _ = timeout(SETTLE_MAX, judged).await;
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
        // The bound of memory is looked at each time, and soon when it is passed.
        let is_due = tokio::select! {
            _ = every.tick() => true,
            () = memory::passed() => false,
        };
        let Some(gateway) = gateway.upgrade() else { return };
        if is_due {
            relief::tick();
        }
        relief::relieve(&gateway, is_due && was_passed);
        memory::call_waiting();
        if is_due {
            pressure::relieve(&gateway);
            gateway.streams.look(&gateway);
            gateway.tarpit.advance();
            was_passed = memory::excess() > 0;
        } else {
            drop(gateway);
            sleep(RELIEVE_EVERY).await;
        }
    }
}

impl Shard {
    fn insert(&mut self, place: Place) -> usize {
        self.due = self.due.min(place.due());
        self.due_wall = self.due_wall.min(place.due_wall());
        if place.generation != self.generation {
            // Either nothing was looked at yet, or there was a reload since its request began.
            self.due = self.due.min(place.since.saturating_add(STREAM_AGE));
        }
        self.places.insert(place)
    }

    fn renew(&mut self, place: usize, renewed: &Renewed, grace: Duration) {
        let Some(place) = self.places.get_mut(place) else { return };
        place.deadline = renewed.deadline.saturating_add(grace);
        place.not_after = renewed.verdict.not_after.saturating_add(grace);
        place.verdict = Some(renewed.verdict.clone());
        self.due = self.due.min(place.due());
        self.due_wall = self.due_wall.min(place.due_wall());
    }

    fn release(&mut self, place: usize) {
        let Some(place) = self.places.get_mut(place) else { return };
        place.deadline = Mono::MAX;
        place.not_after = Wall::MAX;
        place.verdict = None;
    }

    fn look(&mut self, model: &ModelRef, epoch: u64, now: Timestamp) {
        let authorities = ClientAuthority::changes();
        let replaced = self.authorities != authorities;
        let same = self.generation == model.generation() && self.epoch == epoch && !replaced;
        if same && now.mono < self.due && now.wall < self.due_wall {
            return;
        }
        if self.generation != model.generation() {
            self.generation = model.generation();
            self.reads_time = model.reads_time();
        }
        self.epoch = epoch;
        self.authorities = authorities;
        self.due = Mono::MAX;
        self.due_wall = Wall::MAX;
        for (_, place) in &mut self.places {
            self.due = self.due.min(place.look(model, now, replaced, self.reads_time));
            self.due_wall = self.due_wall.min(place.due_wall());
        }
    }
}

impl Place {
    /// Calls the stream if it may have to end; when it is to be looked at again. `replaced` says that client authorities
    /// believe something else than before, and `reads_time` that rules of the model read the time.
    fn look(&mut self, model: &ModelRef, now: Timestamp, replaced: bool, reads_time: bool) -> Mono {
        let settled = self.since.saturating_add(STREAM_AGE);
        let is_settled = settled <= now.mono;
        let lapse = |verdict: &VerdictRef| model.authenticator.lapse(verdict, now, Duration::MAX);
        let expired = self.deadline <= now.mono || self.not_after <= now.wall;
        let lapsed = self.verdict.as_ref().and_then(lapse);
        let reloaded = self.generation != model.generation();
        let concerned = self.take_due(now) || (replaced && self.has_certificate);
        if expired
            || concerned
            || lapsed == Some(Lapse::Revoked)
            || (is_settled && (reloaded || lapsed.is_some()))
        {
            self.call();
        }
        if is_settled {
            self.generation = model.generation();
            if reloaded && reads_time {
                self.recheck = self.recheck.min(now.mono.saturating_add(RECHECK_EVERY));
            }
        } else if reloaded || lapsed.is_some() {
            return self.due().min(settled);
        }
        self.due()
    }

    /// Whether the time has come to look at what may end by time without having to; it comes once.
    fn take_due(&mut self, now: Timestamp) -> bool {
        let has_ended = self.certificate_deadline <= now.mono || self.certificate_end <= now.wall;
        if has_ended {
            self.certificate_deadline = Mono::MAX;
            self.certificate_end = Wall::MAX;
        }
        let is_due = self.recheck <= now.mono;
        if is_due {
            self.recheck = now.mono.saturating_add(RECHECK_EVERY);
        }
        has_ended || is_due
    }

    fn due(&self) -> Mono {
        self.deadline.min(self.certificate_deadline).min(self.recheck)
    }

    fn due_wall(&self) -> Wall {
        self.not_after.min(self.certificate_end)
    }

    /// Whether the stream was called and has not been judged since.
    fn is_called(&self) -> bool {
        self.called.load(Relaxed)
    }

    fn call(&self) {
        self.called.store(true, Relaxed);
        self.waker.wake_by_ref();
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut shard = lock(&self.streams.shards[self.shard]);
        let place = shard.places.try_remove(self.place);
        drop(shard);
        drop(place);
        self.streams.count.fetch_sub(1, Relaxed);
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
