//! What the tasks of a connection share: the codec, and what each stream has received and waits for.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Waker},
};

use cardea_clock::Mono;
use cardea_http::{
    Fields, TrailerError,
    h2::{Connection, Server},
};

use super::turns::{Heads, Turns};
use crate::{
    exchange::ConnectionFacts,
    gateway::Gateway,
    memory::{Held, QueuedHeld},
};

/// Of a connection, for its driver and its streams. All of them run on one worker, so that nobody waits for the lock.
pub(super) struct Shared {
    pub(super) gateway: Arc<Gateway>,
    pub(super) facts: Arc<ConnectionFacts>,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) codec: Connection<Server>,
    /// The streams that have a task.
    pub(super) streams: HashMap<u32, Entry, foldhash::fast::FixedState>,
    /// The streams whose task is done while their client is still sending, and how long that is accepted.
    pub(super) lingering: Vec<(Mono, u32)>,
    pub(super) turns: Turns,
    pub(super) heads: Heads,
    /// What was sent on the connection, in bytes.
    pub(super) sent_bytes: u64,
    /// Since when there has been no stream, and nothing to send.
    pub(super) idle_since: Mono,
    /// The memory of messages in the codec.
    held: QueuedHeld,
    driver: Option<Waker>,
    /// The driver will look at the codec.
    is_woken: bool,
}

/// What the connection knows of a stream that has a task.
#[derive(Default)]
pub(super) struct Entry {
    waker: Option<Waker>,
    /// Content that its task has not taken.
    pub(super) received: Vec<u8>,
    /// The trailers of the request.
    pub(super) trailers: Option<Result<Fields, TrailerError>>,
    /// All of the request was received.
    pub(super) has_ended: bool,
    pub(super) closed: Option<Closed>,
    /// Whether its turn to send has come.
    pub(super) has_turn: bool,
    /// It waits for its turn.
    pub(super) wants_turn: bool,
    /// The memory of what its task has not taken.
    held: Held,
}

/// A stream was ended before its response was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    /// By the client, or with the connection.
    ByClient,
    /// By the codec, for this reason.
    Failed(&'static str),
}

impl Shared {
    pub(super) fn new(
        gateway: Arc<Gateway>,
        facts: Arc<ConnectionFacts>,
        codec: Connection<Server>,
        now: Mono,
    ) -> Arc<Self> {
        facts.activity.rest(now);
        let state = State {
            codec,
            streams: HashMap::default(),
            lingering: Vec::new(),
            turns: Turns::default(),
            heads: Heads::default(),
            sent_bytes: 0,
            idle_since: now,
            held: QueuedHeld::default(),
            driver: None,
            is_woken: false,
        };
        Arc::new(Self { gateway, facts, state: Mutex::new(state) })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state for a stream; the driver sends what comes of that.
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        state.settle();
        result
    }
}

impl State {
    /// To be called when the driver begins to look at the codec.
    pub(super) fn note_driver(&mut self, cx: &Context<'_>) {
        self.is_woken = false;
        if self.driver.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            self.driver = Some(cx.waker().clone());
        }
    }

    pub(super) fn wake_driver(&mut self) {
        if !self.is_woken {
            self.is_woken = true;
            if let Some(waker) = &self.driver {
                waker.wake_by_ref();
            }
        }
    }

    /// To be called after each change of the codec.
    fn settle(&mut self) {
        self.count_memory();
        if !self.codec.output().is_empty() {
            self.wake_driver();
        }
    }

    /// Counts the memory of what the codec has of messages.
    pub(super) fn count_memory(&mut self) {
        self.held.set(self.codec.buffered_bytes());
    }

    /// Ends all streams with the connection. Nothing is sent on it any more.
    pub(super) fn end(&mut self) {
        self.streams.values_mut().for_each(|entry| entry.close(Closed::ByClient));
        self.heads.clear();
    }

    /// Ends a stream before its response has ended.
    pub(super) fn close(&mut self, stream: u32, closed: Closed) {
        if let Some(entry) = self.streams.get_mut(&stream) {
            entry.close(closed);
            if std::mem::take(&mut entry.has_turn) {
                self.turns.give_back();
            }
            self.grant();
        }
    }
}

impl Entry {
    /// Notes who is to be woken when something changes for the stream.
    pub(super) fn note_waker(&mut self, cx: &Context<'_>) {
        if self.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    pub(super) fn receive(&mut self, bytes: &[u8], has_ended: bool) {
        self.received.extend_from_slice(bytes);
        self.has_ended |= has_ended;
        self.count_memory();
        self.wake();
    }

    pub(super) fn receive_trailers(&mut self, trailers: Result<Fields, TrailerError>) {
        self.trailers = Some(trailers);
        self.has_ended = true;
        self.count_memory();
        self.wake();
    }

    /// Takes what was received in exchange for `spare`, an empty vector.
    pub(super) fn take_received(&mut self, spare: Vec<u8>) -> Vec<u8> {
        let received = std::mem::replace(&mut self.received, spare);
        self.count_memory();
        received
    }

    fn close(&mut self, closed: Closed) {
        self.closed.get_or_insert(closed);
        self.received = Vec::new();
        self.trailers = None;
        self.count_memory();
        self.wake();
    }

    fn count_memory(&mut self) {
        let trailers = match &self.trailers {
            Some(Ok(fields)) => fields.memory_bytes(),
            Some(Err(_)) | None => 0,
        };
        self.held.set(self.received.capacity() + trailers);
    }
}
