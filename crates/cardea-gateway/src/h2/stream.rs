//! A stream, for its task.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use cardea_clock::Mono;
use cardea_http::{
    Fields, ResponseHead,
    h2::{ErrorCode, SendError},
};

use super::shared::{Entry, Shared, State};
use crate::{downstream::Aborted, mux::Closed};

/// How long the rest of a body is received that nobody wants.
const LINGER: Duration = Duration::from_secs(1);

/// The reason of a response whose head or trailers are larger than the client accepts.
const RESPONSE_TOO_LARGE: &str = "http2_response_too_large";

/// The right to a stream. Without it, the stream has no task.
pub(super) struct Stream {
    shared: Arc<Shared>,
    id: u32,
    /// Has a place among the streams that wait for room for a head.
    waits_for_room: bool,
    /// What it is reset with where the client has not ended it.
    code: ErrorCode,
    /// What the client still sends is received for a while.
    lingers: bool,
    /// Why its response can't be sent.
    failure: Option<&'static str>,
}

impl Stream {
    /// A stream that has an entry.
    pub(super) const fn new(shared: Arc<Shared>, id: u32) -> Self {
        Self { shared, id, waits_for_room: false, code: ErrorCode::Cancel, lingers: false, failure: None }
    }

    pub(super) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Looks at the entry, for nothing that the driver has to know.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut State, u32) -> T) -> T {
        look(&mut self.shared.lock(), self.id)
    }

    /// Looks at the entry if the stream is open, and is woken when something changes.
    pub(super) fn poll_entry<T>(
        &self,
        cx: &Context<'_>,
        look: impl FnOnce(&mut Entry) -> T,
    ) -> Result<T, Aborted> {
        let mut state = self.shared.lock();
        let entry = state.open(self.id)?;
        entry.note_waker(cx);
        Ok(look(entry))
    }

    /// Whether the client has ended the stream before its response, or the codec has.
    pub(super) fn is_closed(&self) -> bool {
        self.look(|state, id| state.open(id).is_err())
    }

    /// Why the codec has ended the stream, or the response can't be sent.
    pub(super) fn failure(&self) -> Option<&'static str> {
        let closed = self.look(|state, id| state.streams.get(&id).and_then(|entry| entry.closed));
        match closed {
            Some(Closed::Failed(fault)) => Some(fault.code()),
            Some(Closed::ByPeer | Closed::Unprocessed { .. } | Closed::WithConnection) | None => self.failure,
        }
    }

    /// Tells that received content is no longer held.
    pub(super) fn release(&self, bytes: usize) {
        self.shared.with(|state| state.codec.release(self.id, bytes));
    }

    /// Ready once a head of `fields` may be sent. It has to be sent at once.
    pub(super) fn poll_room(&mut self, cx: &Context<'_>, fields: &Fields) -> Poll<Result<(), Aborted>> {
        let mut state = self.shared.lock();
        state.open(self.id)?.note_waker(cx);
        let may = state.may_send_head(self.id, fields, self.waits_for_room);
        if may && self.waits_for_room {
            state.call_next_head();
        }
        drop(state);
        self.set_waiting(!may);
        if may { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Whether there is room for a head of `fields`, and nobody else waits for it.
    pub(super) fn has_room(&mut self, fields: &Fields) -> bool {
        let mut state = self.shared.lock();
        let may = state.may_send_head(self.id, fields, self.waits_for_room);
        state.heads.remove(self.id);
        drop(state);
        self.set_waiting(false);
        may
    }

    pub(super) const fn waits_for_room(&self) -> bool {
        self.waits_for_room
    }

    fn set_waiting(&mut self, waits: bool) {
        let account = self.shared.facts.activity.account();
        match (self.waits_for_room, waits) {
            (false, true) => account.begin_wait(),
            (true, false) => account.end_wait(),
            _ => {}
        }
        self.waits_for_room = waits;
    }

    /// Sends a head, and the end of the stream if it `is_last`.
    pub(super) fn send_head(&mut self, head: &ResponseHead, is_last: bool) -> Result<(), Aborted> {
        let sent = self.shared.with(|state| state.codec.send_response(self.id, head, is_last));
        self.note_sent(sent)
    }

    /// Sends trailers, and the end of the stream.
    pub(super) fn send_trailers(&mut self, trailers: &Fields) -> Result<(), Aborted> {
        let sent = self.shared.with(|state| state.codec.send_trailers(self.id, trailers));
        self.note_sent(sent)
    }

    fn note_sent(&mut self, sent: Result<(), SendError>) -> Result<(), Aborted> {
        sent.map_err(|error| {
            if error == SendError::TooLarge {
                self.failure = Some(RESPONSE_TOO_LARGE);
                self.reset(ErrorCode::InternalError);
            }
            Aborted
        })
    }

    /// Ends the stream.
    pub(super) fn send_end(&self) -> Result<(), Aborted> {
        let sent = self.shared.with(|state| state.codec.send_data(self.id, b"", true));
        sent.map(drop).map_err(|_| Aborted)
    }

    /// Sends some of `chunk`, which is not empty, when it is the stream's turn.
    pub(super) fn poll_send(&self, cx: &Context<'_>, chunk: &[u8]) -> Poll<Result<usize, Aborted>> {
        self.shared.with(|state| state.poll_send(cx, self.id, chunk))
    }

    /// What moves on while the client takes something that the stream waits behind. Where it waits for a window, nothing does.
    pub(super) fn passed_bytes(&self) -> u64 {
        self.look(|state, id| {
            let waits_for_turn = state.streams.get(&id).is_some_and(|entry| entry.wants_turn)
                && state.codec.window(id).is_some_and(|window| window > 0);
            if self.waits_for_room || waits_for_turn { state.sent_bytes } else { 0 }
        })
    }

    /// Resets the stream, if it is open.
    pub(super) fn reset(&self, code: ErrorCode) {
        self.shared.with(|state| state.codec.reset(self.id, code));
    }

    /// The response is sent. What the client still sends is received for a second, as far as the stream's window reaches, where
    /// it `lingers`; then the stream is reset (`NO_ERROR`, RFC 9113 §8.1). There are clients that throw a response away when the
    /// reset comes with it (curl 7.88).
    pub(super) const fn finish(&mut self, lingers: bool) {
        self.code = ErrorCode::NoError;
        self.lingers = lingers;
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.set_waiting(false);
        let shared = &self.shared;
        let now = shared.gateway.clock.mono();
        let entry = shared.with(|state| {
            if self.lingers && state.codec.is_open(self.id) {
                state.codec.ignore(self.id);
                state.linger(now.saturating_add(LINGER), self.id);
            } else {
                state.codec.discard(self.id, self.code);
            }
            let entry = state.remove(self.id);
            if state.streams.is_empty() {
                state.rest(now);
                shared.facts.activity.rest(now);
            }
            entry
        });
        drop(entry);
    }
}

impl State {
    /// Accepts what is still sent on a stream until `deadline`.
    fn linger(&mut self, deadline: Mono, stream: u32) {
        // Those that their clients have ended meanwhile are not waited for.
        let lingering = &mut self.own.lingering;
        if lingering.len() == lingering.capacity() {
            let codec = &self.codec;
            lingering.retain(|&(_, stream)| codec.is_open(stream));
        }
        lingering.push((deadline, stream));
        self.wake_driver();
    }

    /// Nothing is under way.
    fn rest(&mut self, now: Mono) {
        self.own.idle_since = now;
        // The driver closes a connection that is being shut down, and watches over one that is idle.
        self.wake_driver();
    }
}
