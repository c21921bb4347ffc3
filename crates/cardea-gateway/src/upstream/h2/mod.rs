//! Exchanges over HTTP/2 (RFC 9113): several at a time on a connection, each a stream.
//!
//! A task owns the socket of a connection (`driver`). Its exchanges share the codec with it (`link`). A connection with streams is
//! found by its worker (`registry`), one without is in the pool of its endpoint.

mod driver;
mod link;
mod registry;

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, ready},
};

use cardea_clock::Clock;
use cardea_http::{
    BodyLength, Fields, Method, ResponseHead, Scheme,
    h1::{KeepAlive, response_framing},
    h2::{self, OpenError, OutgoingRequest},
};
use cardea_upstream::{ConnectionPermit, Endpoint};

use self::{
    driver::Driver,
    link::{Entry, Link, Stream},
};
use super::{HeadError, Limits, OutgoingHead, Pooled, SendError};
use crate::{
    body::{BodyError, BodySource, MalformedBody},
    memory::{self, Held, Room},
    mux::{self, Closed, Content},
    transport::Transport,
    workers,
};

pub(crate) use link::{Kept, Reservation as Connection};
pub(crate) use registry::{Follower, Outcome, Part, join};

impl Connection {
    /// One of this worker's that carries exchanges and has room for one more.
    pub(super) fn shared(endpoint: &Arc<Endpoint<Pooled>>) -> Option<Self> {
        registry::busiest(endpoint).map(Self::new)
    }

    /// One that was idle.
    pub(super) fn resume(kept: Kept) -> Option<Self> {
        let link = kept.take()?;
        registry::add(&link);
        Some(Self::new(link))
    }

    /// One that was just made.
    pub(super) fn begin(
        endpoint: &Arc<Endpoint<Pooled>>,
        transport: Transport,
        permit: ConnectionPermit,
        limits: Limits,
        clock: &Clock,
    ) -> Self {
        let scheme = if transport.is_secure() { Scheme::Https } else { Scheme::Http };
        let config = Arc::new(driver::config(limits, scheme));
        let codec = h2::Connection::new(config, mux::elapsed(clock.mono()));
        let link = Link::new(endpoint, codec, permit, clock.clone());
        registry::add(&link);
        let mut driver = Driver::new(Arc::clone(&link), transport);
        workers::spawn(async move { poll_fn(|cx| driver.poll(cx)).await });
        Self::new(link)
    }
}

/// One exchange. Its methods are those of [`super::UpstreamExchange`], which describes them.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// There until the response has ended.
    stream: Option<Stream>,
    /// Why there was never one.
    unopened: Option<HeadError>,
    method: Method,
    sending: Sending,
    /// Nothing of the request was processed.
    is_unprocessed: bool,
    /// Content is there that the endpoint does not take.
    is_stalled: bool,
    has_informed: bool,
    length: BodyLength,
    content: Content,
    trailers: Option<Fields>,
    held: Held,
    room: Room,
}

/// How far the request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sending {
    Body,
    /// The end is sent.
    Ended,
    /// The endpoint does not take it any more, or nobody gives it.
    Failed,
}

impl Exchange {
    pub(super) fn begin(connection: Connection, head: OutgoingHead<'_>) -> Self {
        let has_ended = head.length.is_empty();
        let request = OutgoingRequest {
            method: head.method,
            target: head.target,
            fields: head.fields,
            accepts_trailers: head.accepts_trailers,
        };
        let link = connection.link();
        let opened = link.with(|state| {
            let id = state.codec.open(request, None, has_ended)?;
            let mut entry = Entry::charged_to(memory::account());
            entry.own.opened_at = state.own.received_bytes;
            state.own.usage.count(KeepAlive::default());
            state.streams.insert(id, entry);
            Ok(id)
        });
        let unopened = opened.err().map(|error| match error {
            OpenError::TooLarge => HeadError::RequestTooLarge,
            OpenError::TooMany | OpenError::GoingAway => HeadError::Unprocessed { is_going_away: true },
        });
        Self {
            stream: opened.ok().map(|id| Stream { link: Arc::clone(link), id }),
            unopened,
            method: head.method,
            sending: if has_ended { Sending::Ended } else { Sending::Body },
            is_unprocessed: false,
            is_stalled: false,
            has_informed: false,
            length: BodyLength::None,
            content: Content::new(),
            trailers: None,
            held: Held::new(),
            room: Room::new(),
        }
    }

    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut impl BodySource,
    ) -> Poll<Result<(), SendError>> {
        self.is_stalled = false;
        while self.sending == Sending::Body {
            let Some(stream) = &self.stream else { return Poll::Ready(Err(self.fail(SendError::Endpoint))) };
            match ready!(body.poll_data(cx)) {
                Ok(true) => {
                    let chunk = body.chunk();
                    match stream.link.with(|state| state.poll_send(cx, stream.id, chunk)) {
                        Poll::Ready(Ok(sent)) => body.consume(sent),
                        Poll::Ready(Err(_)) => return Poll::Ready(Err(self.fail(SendError::Endpoint))),
                        Poll::Pending => {
                            self.is_stalled = true;
                            return Poll::Pending;
                        }
                    }
                }
                Ok(false) => {
                    let sent = stream.link.with(|state| match body.trailers() {
                        Some(trailers) => state.codec.send_trailers(stream.id, trailers),
                        None => state.codec.send_data(stream.id, b"", true).map(drop),
                    });
                    if sent.is_err() {
                        return Poll::Ready(Err(self.fail(SendError::Endpoint)));
                    }
                    self.sending = Sending::Ended;
                }
                Err(error) => return Poll::Ready(Err(self.fail(SendError::Body(error)))),
            }
        }
        Poll::Ready(Ok(()))
    }

    const fn fail(&mut self, error: SendError) -> SendError {
        self.sending = Sending::Failed;
        error
    }

    pub(super) fn abandon_body(&mut self) {
        if self.sending == Sending::Body {
            self.sending = Sending::Failed;
        }
    }

    pub(super) const fn is_unsent(&self) -> bool {
        self.is_unprocessed || self.unopened.is_some()
    }

    /// Once the response has ended, what is left of the request never is sent.
    pub(super) fn is_sent(&self) -> bool {
        self.stream.is_none() || self.sending != Sending::Body
    }

    pub(super) const fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    pub(super) const fn waits_for_room(&self) -> bool {
        self.room.is_awaited()
    }

    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        head: &mut ResponseHead,
    ) -> Poll<Result<(), HeadError>> {
        let Some(stream) = &self.stream else {
            return Poll::Ready(Err(self.unopened.unwrap_or(HeadError::EndedBefore)));
        };
        let mut guard = stream.link.lock();
        let state = &mut *guard;
        let Some(entry) = state.streams.get_mut(&stream.id) else {
            return Poll::Ready(Err(HeadError::EndedBefore));
        };
        entry.note_waker(cx);
        let next = if entry.own.informational.is_empty() {
            entry.own.head.take()
        } else {
            self.has_informed = true;
            Some(entry.own.informational.remove(0))
        };
        let Some(next) = next else {
            let Some(closed) = entry.closed else { return Poll::Pending };
            let has_heard = entry.own.opened_at != state.own.received_bytes;
            drop(guard);
            self.is_unprocessed = matches!(closed, Closed::Unprocessed { .. });
            return Poll::Ready(Err(head_error(closed, self.has_informed, has_heard)));
        };
        let is_final = next.status >= 200;
        let is_whole = entry.has_ended && entry.received.is_empty() && entry.own.trailers.is_none();
        entry.count_memory();
        let memory = std::mem::replace(head, next);
        state.put_spare(memory);
        drop(guard);
        if is_final {
            self.begin_response(head, is_whole);
        }
        Poll::Ready(Ok(()))
    }

    /// The head of the final response is complete; and all of the response, if it `is_whole`.
    fn begin_response(&mut self, head: &ResponseHead, is_whole: bool) {
        // Checked by the codec.
        let stated = response_framing(head, self.method).map_or(BodyLength::None, BodyLength::from);
        let has_none = self.method == Method::Head || matches!(head.status, 204 | 304);
        self.length = match stated {
            BodyLength::Exact(_) => stated,
            _ if is_whole || has_none => BodyLength::None,
            _ => BodyLength::Unknown,
        };
        if is_whole {
            self.stream = None;
        }
    }

    pub(super) const fn response_length(&self) -> BodyLength {
        self.length
    }

    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, BodyError>> {
        if !self.content.is_empty() {
            return Poll::Ready(Ok(true));
        }
        let Some(stream) = &self.stream else { return Poll::Ready(Ok(false)) };
        let received = {
            let mut state = stream.link.lock();
            let Some(entry) = state.streams.get_mut(&stream.id) else {
                return Poll::Ready(Err(BodyError::Aborted));
            };
            entry.note_waker(cx);
            if entry.received.is_empty() && !entry.has_ended {
                match entry.closed {
                    None => {
                        drop(state);
                        return self.poll_more(cx);
                    }
                    Some(Closed::Failed(fault)) => {
                        return Poll::Ready(Err(BodyError::Malformed(MalformedBody::Stream(fault.code()))));
                    }
                    Some(_) => return Poll::Ready(Err(BodyError::Aborted)),
                }
            }
            let received = entry.take_received(self.content.take_memory());
            self.trailers = if entry.has_ended { entry.own.trailers.take() } else { None };
            entry.count_memory();
            (received, entry.has_ended)
        };
        let (content, has_ended) = received;
        self.content.put(content);
        let trailers = self.trailers.as_ref().map_or(0, Fields::memory_bytes);
        self.held.set(self.content.memory_bytes() + trailers);
        if has_ended {
            // The stream is over. What it has received is bounded by its window.
            self.stream = None;
        }
        Poll::Ready(Ok(!self.content.is_empty()))
    }

    pub(super) fn chunk(&self) -> &[u8] {
        self.content.chunk()
    }

    pub(super) fn consume(&mut self, count: usize) {
        self.content.consume(count);
        if self.content.is_empty() {
            let trailers = self.trailers.as_ref().map_or(0, Fields::memory_bytes);
            self.held.set(self.content.memory_bytes() + trailers);
        }
        if self.content.is_release_due() && !self.room.has_to_wait() {
            self.release();
        }
    }

    /// Nothing is there. Lets the endpoint send as much again as was passed on, once the process has room for it.
    fn poll_more<T>(&mut self, cx: &Context<'_>) -> Poll<T> {
        drop(self.content.take_memory());
        self.held.set(0);
        if self.content.has_passed_on() {
            ready!(self.room.poll(cx));
            self.release();
        }
        Poll::Pending
    }

    fn release(&mut self) {
        let bytes = self.content.take_passed_on();
        if let Some(stream) = &self.stream {
            stream.link.with(|state| state.codec.release(stream.id, bytes));
        }
    }

    pub(super) const fn trailers(&self) -> Option<&Fields> {
        self.trailers.as_ref()
    }
}

/// What it means for a request without a head of a final response that its stream was ended. `has_heard`: the connection was alive
/// since it was opened.
const fn head_error(closed: Closed, has_informed: bool, has_heard: bool) -> HeadError {
    match closed {
        Closed::Failed(fault) => HeadError::Malformed(fault),
        Closed::Unprocessed { is_going_away } => HeadError::Unprocessed { is_going_away },
        Closed::ByPeer => HeadError::Reset,
        Closed::WithConnection if has_informed => HeadError::EndedAfterInformational,
        Closed::WithConnection if has_heard => HeadError::Reset,
        Closed::WithConnection => HeadError::EndedBefore,
    }
}
