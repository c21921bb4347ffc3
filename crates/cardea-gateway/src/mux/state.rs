//! What the tasks of a connection share: the codec, and what each stream has received and waits for.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use cardea_http::h2::{Connection, Role};

use super::{
    fault::Fault,
    turns::{Heads, TURN_BYTES, Turns},
};
use crate::{
    downstream::Aborted,
    memory::{self, Account, Held, QueuedHeld},
};

/// Who is at the other end of a connection.
pub(crate) trait Side {
    /// The codec's role.
    type Role: Role;
    /// What is known of the connection beside what all connections have.
    type Own;
    /// What is known of a stream beside what all streams have.
    type Stream: StreamState;
}

/// What one side knows of a stream.
pub(crate) trait StreamState: Default {
    /// The memory of what was received and not taken, in bytes.
    fn memory_bytes(&self) -> usize;

    /// Whether what was received whole is wanted although its sender has ended the stream since: a response is, a request is not.
    const IS_WANTED_WHOLE: bool;

    /// Nothing of what was received is wanted.
    fn clear(&mut self);
}

/// The state of a connection, behind a lock.
pub(crate) struct Locked<S: Side>(Mutex<State<S>>);

pub(crate) struct State<S: Side> {
    pub(crate) codec: Connection<S::Role>,
    pub(crate) own: S::Own,
    /// The streams that have a task.
    pub(crate) streams: HashMap<u32, Entry<S::Stream>, foldhash::fast::FixedState>,
    pub(crate) turns: Turns,
    pub(crate) heads: Heads,
    /// What was sent on the connection, in bytes.
    pub(crate) sent_bytes: u64,
    /// The memory of messages in the codec.
    held: QueuedHeld,
    driver: Option<Waker>,
    /// The driver will look at the codec.
    is_woken: bool,
}

/// What the connection knows of a stream that has a task.
#[derive(Default)]
pub(crate) struct Entry<T> {
    waker: Option<Waker>,
    /// Content that its task has not taken.
    pub(crate) received: Vec<u8>,
    pub(crate) own: T,
    /// All of the peer's message was received.
    pub(crate) has_ended: bool,
    pub(crate) closed: Option<Closed>,
    /// Whether its turn to send has come.
    pub(super) has_turn: bool,
    /// It waits for its turn.
    pub(crate) wants_turn: bool,
    /// The memory of what its task has not taken.
    held: Held,
    /// The account that is charged for it. None: that of the task which is polled.
    account: Option<Arc<Account>>,
}

/// A stream was ended before its task has ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    /// By the peer, or with the connection.
    ByPeer,
    /// By the peer, which has processed nothing of it (RFC 9113 §6.8, §8.7).
    Unprocessed {
        /// Whether the connection takes no more streams.
        is_going_away: bool,
    },
    /// With the connection, which has failed or was closed in the middle of something.
    WithConnection,
    /// By the codec, for this reason.
    Failed(Fault),
}

impl<S: Side> Locked<S> {
    pub(crate) fn new(codec: Connection<S::Role>, own: S::Own) -> Self {
        Self(Mutex::new(State {
            codec,
            own,
            streams: HashMap::default(),
            turns: Turns::default(),
            heads: Heads::default(),
            sent_bytes: 0,
            held: QueuedHeld::default(),
            driver: None,
            is_woken: false,
        }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state for a stream; the driver sends what comes of that.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut State<S>) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        state.settle();
        result
    }
}

impl<S: Side> State<S> {
    /// To be called when the driver begins to look at the codec.
    pub(crate) fn note_driver(&mut self, cx: &Context<'_>) {
        self.is_woken = false;
        if self.driver.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            self.driver = Some(cx.waker().clone());
        }
    }

    pub(crate) fn wake_driver(&mut self) {
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
    pub(crate) fn count_memory(&mut self) {
        self.held.set(self.codec.buffered_bytes());
    }

    /// Notes that so much was sent, and gives back memory that is not needed any more.
    pub(crate) fn note_sent(&mut self, bytes: usize) {
        if bytes > 0 {
            self.sent_bytes += bytes as u64;
            self.call_next_head();
        }
        if self.codec.output().is_empty() {
            // Memory that was needed for much is not kept, and none at all while nothing is under way.
            if self.streams.is_empty() || self.codec.buffered_bytes() > super::OUTPUT_BYTES_MAX / 4 {
                self.codec.shrink();
            }
        }
        self.count_memory();
    }

    /// The entry of a stream that is open.
    pub(crate) fn open(&mut self, id: u32) -> Result<&mut Entry<S::Stream>, Aborted> {
        self.streams.get_mut(&id).filter(|entry| entry.closed.is_none()).ok_or(Aborted)
    }

    /// Sends some of `chunk`, which is not empty, when it is the stream's turn.
    pub(crate) fn poll_send(
        &mut self,
        cx: &Context<'_>,
        id: u32,
        chunk: &[u8],
    ) -> Poll<Result<usize, Aborted>> {
        let chunk = chunk.get(..TURN_BYTES).unwrap_or(chunk);
        loop {
            let entry = self.open(id)?;
            if std::mem::take(&mut entry.has_turn) {
                self.turns.give_back();
                let sent = self.codec.send_data(id, chunk, false).map_err(|_| Aborted)?;
                if sent > 0 {
                    return Poll::Ready(Ok(sent));
                }
            }
            let entry = self.open(id)?;
            entry.note_waker(cx);
            entry.wants_turn = true;
            self.codec.want_turn(id);
            self.grant();
            if !self.open(id)?.has_turn {
                return Poll::Pending;
            }
        }
    }

    /// Ends all streams with the connection. Nothing is sent on it any more.
    pub(crate) fn end(&mut self, closed: Closed) {
        self.streams.values_mut().for_each(|entry| entry.close(closed));
        self.heads.clear();
    }

    /// Ends a stream before its task has ended it.
    pub(crate) fn close(&mut self, stream: u32, closed: Closed) {
        if let Some(entry) = self.streams.get_mut(&stream) {
            entry.close(closed);
            if std::mem::take(&mut entry.has_turn) {
                self.turns.give_back();
            }
            self.grant();
        }
    }

    /// Takes out the entry of a stream whose task is done. To be dropped without the lock: it may hold the last waker of a task.
    pub(crate) fn remove(&mut self, stream: u32) -> Option<Entry<S::Stream>> {
        self.heads.remove(stream);
        let entry = self.streams.remove(&stream);
        if entry.as_ref().is_some_and(|entry| entry.has_turn) {
            self.turns.give_back();
        }
        self.grant();
        self.call_next_head();
        if self.streams.is_empty() && self.streams.capacity() > 16 {
            self.streams = HashMap::default();
        }
        entry
    }
}

impl<T: StreamState> Entry<T> {
    /// A stream whose memory is charged to `account`, whoever receives for it.
    pub(crate) fn charged_to(account: Option<Arc<Account>>) -> Self {
        Self { account, ..Self::default() }
    }

    /// Notes who is to be woken when something changes for the stream.
    pub(crate) fn note_waker(&mut self, cx: &Context<'_>) {
        if self.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    pub(crate) fn receive(&mut self, bytes: &[u8], has_ended: bool) {
        self.received.extend_from_slice(bytes);
        self.has_ended |= has_ended;
        self.count_memory();
        self.wake();
    }

    /// Takes what was received in exchange for `spare`, an empty vector.
    pub(crate) fn take_received(&mut self, spare: Vec<u8>) -> Vec<u8> {
        let received = std::mem::replace(&mut self.received, spare);
        self.count_memory();
        received
    }

    fn close(&mut self, closed: Closed) {
        self.closed.get_or_insert(closed);
        if !(T::IS_WANTED_WHOLE && self.has_ended) {
            self.release();
        }
        self.wake();
    }

    /// Counts the memory of what its task has not taken.
    pub(crate) fn count_memory(&mut self) {
        let bytes = self.received.capacity() + self.own.memory_bytes();
        let held = &mut self.held;
        memory::charge(&mut self.account, || held.set(bytes));
    }

    /// Lets go of all that was received.
    pub(crate) fn release(&mut self) {
        self.received = Vec::new();
        self.own.clear();
        self.count_memory();
    }
}
