//! What the tasks of a client's connection share beside what those of all connections do.

use std::sync::{Arc, MutexGuard};

use cardea_clock::Mono;
use cardea_http::{
    Fields, TrailerError,
    h2::{Connection, Server},
};

use crate::{
    exchange::ConnectionFacts,
    gateway::Gateway,
    mux::{self, Locked, Side, StreamState},
};

/// Of a connection, for its driver and its streams.
pub(super) struct Shared {
    pub(super) gateway: Arc<Gateway>,
    pub(super) facts: Arc<ConnectionFacts>,
    state: Locked<Clients>,
}

/// The side of connections that clients are at the other end of.
pub(super) struct Clients;

pub(super) type State = mux::State<Clients>;
pub(super) type Entry = mux::Entry<Request>;

impl Side for Clients {
    type Role = Server;
    type Own = Connected;
    type Stream = Request;
}

/// What is known of the connection.
pub(super) struct Connected {
    /// The streams whose task is done while their client is still sending, and how long that is accepted.
    pub(super) lingering: Vec<(Mono, u32)>,
    /// Since when there has been no stream, and nothing to send.
    pub(super) idle_since: Mono,
}

/// What is known of a stream's request.
#[derive(Default)]
pub(super) struct Request {
    pub(super) trailers: Option<Result<Fields, TrailerError>>,
}

impl StreamState for Request {
    const IS_WANTED_WHOLE: bool = false;

    fn memory_bytes(&self) -> usize {
        match &self.trailers {
            Some(Ok(fields)) => fields.memory_bytes(),
            Some(Err(_)) | None => 0,
        }
    }

    fn clear(&mut self) {
        self.trailers = None;
    }
}

impl Shared {
    pub(super) fn new(
        gateway: Arc<Gateway>,
        facts: Arc<ConnectionFacts>,
        codec: Connection<Server>,
        now: Mono,
    ) -> Arc<Self> {
        facts.activity.rest(now);
        let own = Connected { lingering: Vec::new(), idle_since: now };
        Arc::new(Self { gateway, facts, state: Locked::new(codec, own) })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Changes the state for a stream; the driver sends what comes of that.
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        self.state.with(change)
    }
}

/// The trailers of a request have come, which end it.
pub(super) fn receive_trailers(entry: &mut Entry, trailers: Result<Fields, TrailerError>) {
    entry.own.trailers = Some(trailers);
    entry.has_ended = true;
    entry.count_memory();
    entry.wake();
}
