//! A connection that exchanges share, as its tasks see it.

use std::sync::{Arc, MutexGuard, Weak};

use cardea_clock::Clock;
use cardea_http::{
    Fields, ResponseHead,
    h2::{Client, Connection, ErrorCode},
};
use cardea_upstream::{ConnectionPermit, Endpoint, Usage};

use super::{
    super::Pooled,
    registry::{self, Leader, Outcome},
};
use crate::{
    mux::{self, Locked, OUTPUT_BYTES_MAX, Side, StreamState},
    workers,
};

/// How many heads are kept for responses to come.
const SPARE_HEADS_MAX: usize = 16;

/// The largest head that is kept, in bytes.
const SPARE_HEAD_BYTES_MAX: usize = 8 * 1024;

/// A connection, for its driver and its exchanges.
pub(crate) struct Link {
    /// Weak, as the pool of the endpoint holds connections that are idle.
    endpoint: Weak<Endpoint<Pooled>>,
    worker: usize,
    clock: Clock,
    state: Locked<Services>,
}

/// The side of connections that services are at the other end of.
pub(super) struct Services;

pub(super) type State = mux::State<Services>;
pub(super) type Entry = mux::Entry<Response>;

impl Side for Services {
    type Role = Client;
    type Own = Connected;
    type Stream = Response;
}

/// What is known of the connection.
pub(super) struct Connected {
    /// The place among the endpoint's connections.
    permit: Option<ConnectionPermit>,
    pub(super) usage: Usage,
    /// Exchanges that are about to begin.
    reserved: u32,
    /// The pool has no place for it: it closes.
    pub(super) is_let_go: bool,
    /// The endpoint takes no more streams (RFC 9113 §6.8).
    pub(super) is_going_away: bool,
    /// Its driver is done.
    is_closed: bool,
    /// What was received, in bytes.
    pub(super) received_bytes: u64,
    /// Tells the requests that wait for the connection, once it is known how many it takes.
    leader: Option<Leader>,
    /// Memory for heads to come.
    spare: Vec<ResponseHead>,
}

/// What is known of a stream's response.
#[derive(Default)]
pub(super) struct Response {
    /// The head of the final response.
    pub(super) head: Option<ResponseHead>,
    /// Those of informational responses before it, in their order.
    pub(super) informational: Vec<ResponseHead>,
    /// How many there were, and how large they were together, in bytes.
    pub(super) informed: (u32, usize),
    /// Something of it was received.
    pub(super) has_begun: bool,
    pub(super) trailers: Option<Fields>,
    /// What the connection had received when the stream was opened, in bytes.
    pub(super) opened_at: u64,
}

impl StreamState for Response {
    const IS_WANTED_WHOLE: bool = true;

    fn memory_bytes(&self) -> usize {
        let heads = self.head.iter().chain(&self.informational);
        heads.map(|head| head.fields.memory_bytes()).sum::<usize>()
            + self.trailers.as_ref().map_or(0, Fields::memory_bytes)
    }

    fn clear(&mut self) {
        self.head = None;
        self.informational = Vec::new();
        self.trailers = None;
    }
}

impl Link {
    pub(super) fn new(
        endpoint: &Arc<Endpoint<Pooled>>,
        codec: Connection<Client>,
        permit: ConnectionPermit,
        clock: Clock,
    ) -> Arc<Self> {
        let own = Connected {
            permit: Some(permit),
            usage: Usage::new(clock.mono()),
            reserved: 0,
            is_let_go: false,
            is_going_away: false,
            is_closed: false,
            received_bytes: 0,
            leader: None,
            spare: Vec::new(),
        };
        let endpoint = Arc::downgrade(endpoint);
        Arc::new(Self { endpoint, worker: workers::current(), clock, state: Locked::new(codec, own) })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Changes the state for a stream; the driver sends what comes of that.
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        self.state.with(change)
    }

    /// The clock of its deadlines.
    pub(super) const fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(super) const fn endpoint(&self) -> &Weak<Endpoint<Pooled>> {
        &self.endpoint
    }

    /// The streams that are under way, if it can take one more now.
    pub(super) fn load(&self) -> Option<usize> {
        let state = self.lock();
        state.takes_more().then(|| state.streams.len())
    }

    /// Whether it may carry one more request after those that it had. Otherwise it ends with those that are under way.
    pub(super) fn may_go_on(&self, endpoint: &Endpoint<Pooled>) -> bool {
        let usage = self.lock().own.usage;
        let may = endpoint.pool().takes(self.worker, &usage, self.clock.mono());
        if !may {
            self.let_go();
        }
        may
    }

    /// Has the connection end with its streams.
    fn let_go(&self) {
        self.with(|state| {
            state.own.is_let_go = true;
            state.wake_driver();
        });
    }

    /// Whether it can be used again by the worker that asks, which must be its own: its tasks are there.
    pub(super) fn is_usable(&self) -> bool {
        self.worker == workers::current() && self.load().is_some()
    }

    /// Its driver is done.
    pub(super) fn close(&self) {
        let gone = {
            let mut state = self.lock();
            state.own.is_closed = true;
            (state.own.permit.take(), state.own.leader.take())
        };
        drop(gone);
        registry::remove(self);
    }

    /// Has `leader` tell the requests that wait for the connection, as soon as it is known how many it takes.
    pub(super) fn lead(&self, leader: Leader) {
        let mut state = self.lock();
        if !state.own.is_closed {
            state.own.leader = Some(leader);
            return;
        }
        // Not under the lock: those who wait may look at the connection.
        drop(state);
        drop(leader);
    }

    /// Tells the requests that wait for the connection, if that is due.
    pub(super) fn tell(&self) {
        let leader = {
            let mut state = self.lock();
            if state.codec.has_peer_settings() { state.own.leader.take() } else { None }
        };
        if let Some(leader) = leader {
            leader.tell(Outcome::Shared);
        }
    }

    /// To be called when a stream or a reservation has ended. Without any, the connection goes to the pool of its endpoint, or is
    /// closed where that has no place for it.
    fn settle(self: &Arc<Self>) {
        {
            let mut state = self.lock();
            if !state.streams.is_empty() || state.own.reserved > 0 {
                return;
            }
            // One that is going away is closed now.
            state.wake_driver();
        }
        registry::remove(self);
        let endpoint = self.endpoint.upgrade().filter(|_| self.load().is_some());
        let kept = Pooled::http2(Kept { link: Some(Arc::clone(self)) });
        let surplus = match endpoint {
            Some(endpoint) => {
                let usage = self.lock().own.usage;
                endpoint.pool().place(self.worker, usage).put(kept, self.clock.mono())
            }
            None => Some(kept),
        };
        drop(surplus);
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("worker", &self.worker).finish_non_exhaustive()
    }
}

impl State {
    /// Whether one more stream can be opened now. A connection on which nothing moves takes no more, nor does one of which is not
    /// known yet how many it takes.
    fn takes_more(&self) -> bool {
        self.codec.has_peer_settings()
            && !self.own.is_closed
            && !self.own.is_let_go
            && self.codec.can_open()
            && self.codec.output().len() < OUTPUT_BYTES_MAX
    }

    /// Memory for the head of a response.
    pub(super) fn take_spare(&mut self) -> ResponseHead {
        self.own.spare.pop().unwrap_or_default()
    }

    /// Keeps the memory of a head.
    pub(super) fn put_spare(&mut self, head: ResponseHead) {
        let is_usual = (1..=SPARE_HEAD_BYTES_MAX).contains(&head.fields.memory_bytes());
        if is_usual && self.own.spare.len() < SPARE_HEADS_MAX {
            self.own.spare.push(head);
        }
    }
}

/// The right to one exchange on a connection.
#[derive(Debug)]
pub(crate) struct Reservation(Arc<Link>);

impl Reservation {
    pub(super) fn new(link: Arc<Link>) -> Self {
        link.lock().own.reserved += 1;
        Self(link)
    }

    pub(super) const fn link(&self) -> &Arc<Link> {
        &self.0
    }

    /// Has `leader` tell those who wait for the connection, once it is known how many it takes.
    pub(crate) fn lead(&self, leader: Leader) {
        self.0.lead(leader);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        {
            let mut state = self.0.lock();
            state.own.reserved = state.own.reserved.saturating_sub(1);
        }
        self.0.settle();
    }
}

/// A connection without streams, in the pool of its endpoint. It closes when the pool drops this.
#[derive(Debug)]
pub(crate) struct Kept {
    link: Option<Arc<Link>>,
}

impl Kept {
    /// Whether the connection can be used.
    pub(crate) fn is_usable(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.is_usable())
    }

    /// The connection for an exchange.
    pub(super) fn take(mut self) -> Option<Arc<Link>> {
        self.link.take()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(link) = self.link.take() else { return };
        link.let_go();
        // What takes its place need not wait until the endpoint has closed its end.
        let permit = link.lock().own.permit.take();
        drop(permit);
    }
}

/// The right to a stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) link: Arc<Link>,
    pub(super) id: u32,
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Nothing is sent for a stream that both sides have ended.
        let entry = self.link.with(|state| {
            state.codec.discard(self.id, ErrorCode::Cancel);
            let mut entry = state.remove(self.id);
            if let Some(entry) = &mut entry {
                entry.own.head.take().into_iter().for_each(|head| state.put_spare(head));
                entry.release();
            }
            entry
        });
        drop(entry);
        self.link.settle();
    }
}
