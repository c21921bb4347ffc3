//! The task that owns a connection's socket: passes received bytes to the codec, and sends what the codec has.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use cardea_clock::Mono;
use cardea_http::{
    ResponseHead, Scheme,
    h2::{AbuseLimits, Config, ConnectionError, ErrorCode, Event, Rate},
};

use super::link::{Entry, Link, State};
use crate::{
    buffer::Buffer,
    mux::{self, Closed, Fault, OUTPUT_BYTES_MAX, Received, elapsed},
    timer::Timer,
    transport::Transport,
    upstream::Limits,
};

/// How much of one response is received ahead of its client, in bytes (RFC 9113 §6.9).
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;

/// How much of all streams of a connection is under way to it. Many clients share it, so what is received counts no more.
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// How long the end of a connection may take.
const GOODBYE: Duration = Duration::from_secs(2);

/// An endpoint that sends nothing for so long is asked whether it is alive, if it has something to respond to.
const PING_AFTER: Duration = Duration::from_secs(15);

/// How long it may take to answer, or to send anything else.
const PING_WAIT: Duration = Duration::from_secs(5);

/// One that sends nothing but answers is not asked again for so long: servers of gRPC close connections that ask more often than
/// every five minutes without a message in between.
const PING_AGAIN: Duration = Duration::from_secs(310);

/// What is sent to ask.
const PING: [u8; 8] = *b"liveness";

/// How many informational responses one request may have: beyond that a service could fill our memory with them.
const INFORMATIONAL_MAX: u32 = 32;

/// And how much they may be together, in bytes.
const INFORMATIONAL_BYTES_MAX: usize = 64 * 1024;

/// Owns the socket of a connection.
pub(super) struct Driver {
    link: Arc<Link>,
    transport: Transport,
    inbound: Buffer,
    timer: Timer,
    liveness: Liveness,
    stage: Stage,
}

/// How far the connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// Nothing more is received: what the codec has is sent, and the socket is closed.
    Closing {
        until: Mono,
    },
}

/// Whether the endpoint is there.
#[derive(Debug, Clone, Copy)]
struct Liveness {
    /// When it is asked, if it has to respond to something then.
    ask_at: Mono,
    /// When something must have come since it was asked.
    answer_by: Mono,
}

impl Driver {
    pub(super) fn new(link: Arc<Link>, transport: Transport) -> Self {
        let timer = Timer::new(link.clock().clone());
        let ask_at = timer.now().saturating_add(PING_AFTER);
        let liveness = Liveness { ask_at, answer_by: Mono::MAX };
        Self { link, transport, inbound: Buffer::new(), timer, liveness, stage: Stage::Open }
    }

    /// Ready at the end of the connection.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            {
                let mut state = self.link.lock();
                state.note_driver(cx);
                if state.own.is_let_go {
                    state.codec.stop_accepting();
                }
            }
            if self.stage == Stage::Open {
                self.receive(cx);
            }
            self.send(cx);
            if let Stage::Closing { until } = self.stage {
                return self.poll_close(cx, until);
            }
            ready!(self.poll_deadlines(cx));
        }
    }

    fn receive(&mut self, cx: &mut Context<'_>) {
        let Self { link, transport, inbound, timer, liveness, .. } = self;
        let received = mux::receive(cx, transport, inbound, |inbound| {
            handle_received(link, inbound, timer.now(), liveness)
        });
        self.link.tell();
        match received {
            Received::Waiting => {}
            Received::Ended => self.end(Closed::WithConnection),
            Received::Failed(error) => self.fail(error),
        }
    }

    /// The endpoint broke the protocol, or was too slow.
    fn fail(&mut self, error: ConnectionError) {
        let endpoint = self.link.endpoint().upgrade();
        let endpoint = endpoint.as_ref().map_or("", |endpoint| endpoint.label());
        tracing::warn!(endpoint, %error, "HTTP/2 connection to a service failed");
        self.end(Closed::Failed(Fault::Connection(error)));
    }

    /// Nothing more comes, and only the codec's last word is sent.
    fn end(&mut self, closed: Closed) {
        self.link.close();
        self.link.lock().end(closed);
        self.stage = Stage::Closing { until: self.timer.now().saturating_add(GOODBYE) };
    }

    /// Sends what the codec has, as far as the endpoint takes it.
    fn send(&mut self, cx: &mut Context<'_>) {
        let mut state = self.link.lock();
        let (sent_bytes, result) = mux::poll_send(cx, &mut self.transport, &mut state);
        state.note_sent(sent_bytes);
        let is_finished = state.codec.is_finished();
        drop(state);
        if self.stage != Stage::Open {
            return;
        }
        if let Poll::Ready(Err(_)) = result {
            // What was received before may be a response.
            self.receive(cx);
            if self.stage == Stage::Open {
                self.end(Closed::WithConnection);
            }
        } else if is_finished {
            self.end(Closed::WithConnection);
        }
    }

    /// Sends what is left, as far as the endpoint takes it in time, and shuts our end down.
    fn poll_close(&mut self, cx: &mut Context<'_>, until: Mono) -> Poll<()> {
        self.inbound = Buffer::new();
        let (_, sent) = mux::poll_send(cx, &mut self.transport, &mut self.link.lock());
        let closed = match sent {
            Poll::Ready(Ok(())) => self.transport.poll_shutdown(cx).map(drop),
            Poll::Ready(Err(_)) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        };
        if closed.is_ready() { closed } else { self.timer.poll_until(cx, until).map(drop) }
    }

    /// Does what is due. Ready if something was; else the task is woken for what is due next.
    fn poll_deadlines(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.link.lock();
        let codec = mux::deadline(state.codec.next_deadline());
        let Liveness { ask_at, answer_by } = self.liveness;
        let has_streams = !state.streams.is_empty();
        let ask_at = if has_streams && answer_by == Mono::MAX { ask_at } else { Mono::MAX };
        ready!(self.timer.poll_until(cx, codec.min(ask_at).min(answer_by)));
        let now = self.timer.now();
        if let Err(error) = state.codec.expire(elapsed(now)) {
            drop(state);
            self.fail(error);
        } else if answer_by <= now {
            drop(state);
            tracing::warn!("an endpoint does not answer on an HTTP/2 connection, which is closed");
            self.end(Closed::WithConnection);
        } else if ask_at <= now {
            state.codec.ping(PING);
            self.liveness.answer_by = now.saturating_add(PING_WAIT);
            self.liveness.ask_at = now.saturating_add(PING_AGAIN);
        }
        Poll::Ready(())
    }
}

/// Streams end with their connection.
impl Drop for Driver {
    fn drop(&mut self) {
        self.link.close();
        let mut state = self.link.lock();
        state.end(Closed::WithConnection);
        if self.stage == Stage::Open {
            // The process ends. The endpoint learns it if it takes a word at once.
            state.codec.stop_accepting();
            let mut cx = Context::from_waker(Waker::noop());
            let _ = mux::poll_send(&mut cx, &mut self.transport, &mut state);
        }
    }
}

/// What a connection is set up with.
pub(super) fn config(limits: Limits, scheme: Scheme) -> Config {
    let rate = |burst, per_second| Rate { burst, per_second };
    Config {
        streams_max: limits.streams_max,
        stream_window: STREAM_WINDOW_BYTES,
        connection_window: CONNECTION_WINDOW_BYTES,
        is_shared: true,
        head: limits.head,
        scheme,
        output_bytes_max: OUTPUT_BYTES_MAX,
        // A connection carries the requests of many clients, and what one of them causes must not end those of the others. All of
        // this costs little, and is bounded by what the gateway sends, or by what a service can send.
        abuse: AbuseLimits {
            resets: rate(1_000, 1_000),
            empty_frames: rate(1_000, 1_000),
            window_updates: rate(20_000, 20_000),
            useless_frames: rate(20_000, 5_000),
            oversized_heads: rate(100, 20),
            ..AbuseLimits::default()
        },
        ..Config::default()
    }
}

/// Passes received bytes to the codec, and what it makes of them to the streams.
fn handle_received(
    link: &Link,
    inbound: &mut Buffer,
    now: Mono,
    liveness: &mut Liveness,
) -> Result<(), ConnectionError> {
    liveness.answer_by = Mono::MAX;
    let mut state = link.lock();
    state.own.received_bytes += inbound.len() as u64;
    let mut spare = state.take_spare();
    let result = loop {
        let received = match state.codec.receive(elapsed(now), inbound.filled(), &mut spare) {
            Ok(received) => received,
            Err(error) => break Err(error),
        };
        let taken = received.taken;
        let Some(event) = received.event else {
            inbound.consume(taken);
            break Ok(());
        };
        let is_message = handle(&mut state, event, &mut spare);
        inbound.consume(taken);
        if is_message {
            liveness.ask_at = now.saturating_add(PING_AFTER);
        }
    };
    state.put_spare(spare);
    state.grant();
    state.count_memory();
    result
}

/// Passes an event on to its stream, and says whether it is a part of a message. `spare` has the head that it speaks of.
fn handle(state: &mut State, event: Event<'_>, spare: &mut ResponseHead) -> bool {
    match event {
        Event::Head { stream, end_stream, .. } => {
            let next = state.take_spare();
            if let Some(entry) = state.streams.get_mut(&stream) {
                entry.own.head = Some(std::mem::replace(spare, next));
                entry.own.has_begun = true;
                received(entry, end_stream);
            }
        }
        Event::Informational { stream } => {
            let head = std::mem::take(spare);
            if let Some(entry) = state.streams.get_mut(&stream)
                && !inform(entry, head)
            {
                state.codec.reset(stream, ErrorCode::EnhanceYourCalm);
                state.close(stream, Closed::Failed(Fault::InformationalTooMany));
            }
        }
        Event::Data { stream, bytes, end_stream } => {
            if let Some(entry) = state.streams.get_mut(&stream) {
                entry.receive(bytes, end_stream);
            }
        }
        Event::Trailers { stream } => {
            if let Some(entry) = state.streams.get_mut(&stream) {
                entry.own.trailers = Some(std::mem::take(&mut spare.fields));
                received(entry, true);
            }
        }
        Event::Reset { stream, code } => {
            let is_going_away = state.own.is_going_away;
            // Who has begun a response has processed the request, whatever it says then.
            let has_begun = state.streams.get(&stream).is_some_and(|entry| entry.own.has_begun);
            let closed = match code {
                ErrorCode::RefusedStream if !has_begun => Closed::Unprocessed { is_going_away },
                _ => Closed::ByPeer,
            };
            state.close(stream, closed);
        }
        Event::Failed { stream, error } => state.close(stream, Closed::Failed(Fault::Stream(error))),
        Event::GoAway { .. } => {
            state.own.is_going_away = true;
            return false;
        }
        // Requests are not received.
        Event::Pong(_) | Event::TrailersRefused { .. } | Event::Refused { .. } => return false,
    }
    true
}

/// Something beside content was received of a response.
fn received(entry: &mut Entry, has_ended: bool) {
    entry.has_ended |= has_ended;
    entry.count_memory();
    entry.wake();
}

/// An informational response was received. False if there are too many, or they are too large.
fn inform(entry: &mut Entry, head: ResponseHead) -> bool {
    entry.own.has_begun = true;
    let (count, bytes) = &mut entry.own.informed;
    *count += 1;
    *bytes += head.fields.byte_len();
    if *count > INFORMATIONAL_MAX || *bytes > INFORMATIONAL_BYTES_MAX {
        return false;
    }
    entry.own.informational.push(head);
    received(entry, false);
    true
}

#[cfg(test)]
mod tests;
