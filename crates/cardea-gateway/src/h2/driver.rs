//! The task that owns a connection's socket: passes received bytes to the codec, and sends what the codec has.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use cardea_clock::Mono;
use cardea_http::{
    Scheme,
    h2::{Config, Connection, ConnectionError, ErrorCode, Event, StreamError},
};

use super::{
    request::{self, Opening},
    shared::{Shared, State, receive_trailers},
};
use crate::{
    buffer::Buffer,
    exchange::{ConnectionFacts, Exchange},
    gateway::Gateway,
    memory,
    model::Model,
    mux::{self, Closed, Fault, OUTPUT_BYTES_MAX, Received, elapsed},
    refusal::Reason,
    timer::Timer,
    transport::Transport,
};

/// How much of one request body is received ahead of the service, in bytes (RFC 9113 §6.9).
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;

/// The same for all streams of a connection together.
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// How long the end of a connection may take once nothing is under way on it.
const GOODBYE: Duration = Duration::from_secs(2);

/// What is read and thrown away at the end of a connection, in bytes: a client that is still sending would lose the reason
/// to a reset.
const GOODBYE_BYTES_MAX: usize = 256 * 1024;

/// Owns the socket of a connection.
pub(super) struct Driver {
    shared: Arc<Shared>,
    transport: Transport,
    inbound: Buffer,
    timer: Timer,
    /// How long the connection may be idle.
    idle: Duration,
    /// Something was received.
    has_begun: bool,
    stage: Stage,
}

/// How far the connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Requests are received.
    Open,
    /// Nothing more is received: what the codec has is sent, and then our end of the socket is shut down.
    Closing { until: Mono },
    /// The client is waited for to close its end, after so many bytes at most.
    Closed { until: Mono, left: usize },
}

impl Driver {
    pub(super) fn new(
        gateway: Arc<Gateway>,
        transport: Transport,
        inbound: Buffer,
        facts: Arc<ConnectionFacts>,
    ) -> Self {
        let timer = Timer::new(gateway.clock.clone());
        let (model, now) = (gateway.model(), timer.now());
        let idle = model.timeouts.keep_alive_idle;
        let codec = Connection::new(Arc::new(config(&model, facts.scheme())), elapsed(now));
        drop(model);
        let shared = Shared::new(gateway, facts, codec, now);
        Self { shared, transport, inbound, timer, idle, has_begun: false, stage: Stage::Open }
    }

    /// Ready at the end of the connection.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            self.shared.lock().note_driver(cx);
            if let Stage::Closed { until, left } = self.stage {
                return self.poll_closed(cx, until, left);
            }
            if self.stage == Stage::Open {
                self.look_around();
                self.receive(cx);
            }
            self.send(cx);
            ready!(self.poll_deadlines(cx));
        }
    }

    /// Begins to close the connection if the gateway stops, or needs its place.
    fn look_around(&mut self) {
        let gateway = &self.shared.gateway;
        let is_evicted = self.shared.facts.activity.is_evicted();
        if is_evicted || gateway.is_stopping() {
            let mut state = self.shared.lock();
            if is_evicted {
                // What comes meanwhile is not carried, which the client learns (RFC 9113 §6.8).
                state.codec.stop_accepting();
            } else {
                state.codec.shut_down(elapsed(self.timer.now()));
            }
        }
    }

    /// Receives what there is, as far as it is good for others.
    fn receive(&mut self, cx: &mut Context<'_>) {
        if !self.has_begun && !self.inbound.is_empty() {
            // By this it was told that the client speaks HTTP/2.
            self.has_begun = true;
            if let Err(error) = handle_received(&self.shared, &mut self.inbound, self.timer.now()) {
                return self.fail(error);
            }
        }
        let Self { shared, transport, inbound, timer, has_begun, .. } = self;
        let received = mux::receive(cx, transport, inbound, |inbound| {
            *has_begun = true;
            handle_received(shared, inbound, timer.now())
        });
        match received {
            Received::Waiting => {}
            // Nobody is there to be sent anything.
            Received::Ended => {
                self.shared.lock().end(Closed::WithConnection);
                self.stage = Stage::Closed { until: self.timer.now(), left: 0 };
            }
            Received::Failed(error) => self.fail(error),
        }
    }

    /// The client broke the protocol, or was too slow.
    fn fail(&mut self, error: ConnectionError) {
        let reason = match error {
            ConnectionError::HeadTimeout => Reason::RequestHeadTimeout,
            _ => Reason::Malformed { code: error.code(), status: 400 },
        };
        // One that never said anything made no request.
        if self.has_begun {
            request::record_refused(&self.shared, &reason);
        }
        self.shared.lock().end(Closed::WithConnection);
        self.stage = Stage::Closing { until: self.timer.now().saturating_add(GOODBYE) };
    }

    /// Sends what the codec has, as far as the client takes it.
    fn send(&mut self, cx: &mut Context<'_>) {
        let mut state = self.shared.lock();
        let (sent_bytes, result) = mux::poll_send(cx, &mut self.transport, &mut state);
        state.note_sent(sent_bytes);
        if sent_bytes > 0 {
            state.own.idle_since = state.own.idle_since.max(self.timer.now());
        }
        if let Poll::Ready(Err(_)) = result {
            state.end(Closed::WithConnection);
            return self.stage = Stage::Closed { until: self.timer.now(), left: 0 };
        }
        if self.stage == Stage::Open && state.codec.is_finished() {
            self.stage = Stage::Closing { until: self.timer.now().saturating_add(GOODBYE) };
        }
        drop(state);
        if result.is_ready()
            && let Stage::Closing { until } = self.stage
        {
            self.inbound = Buffer::new();
            self.stage = Stage::Closed { until, left: GOODBYE_BYTES_MAX };
        }
    }

    /// Does what is due. Ready if something was; else the task is woken for what is due next.
    fn poll_deadlines(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let until = match self.stage {
            Stage::Open => None,
            Stage::Closing { until } => Some(until),
            Stage::Closed { .. } => return Poll::Ready(()),
        };
        let mut state = self.shared.lock();
        let deadline = until.unwrap_or_else(|| state.next_deadline(self.idle));
        ready!(self.timer.poll_until(cx, deadline));
        if until.is_some() {
            drop(state);
            self.stage = Stage::Closed { until: self.timer.now(), left: 0 };
            return Poll::Ready(());
        }
        let now = self.timer.now();
        state.end_lingering(now);
        if state.is_idle() && now >= state.own.idle_since.saturating_add(self.idle) {
            // The connection has served.
            state.codec.stop_accepting();
        }
        let expired = state.codec.expire(elapsed(now));
        drop(state);
        if let Err(error) = expired {
            self.fail(error);
        }
        Poll::Ready(())
    }

    /// Shuts our end down, and waits for the client's.
    fn poll_closed(&mut self, cx: &mut Context<'_>, until: Mono, mut left: usize) -> Poll<()> {
        while left > 0 && self.transport.poll_shutdown(cx).is_ready() {
            self.inbound.consume(usize::MAX);
            match self.transport.poll_recv(cx, &mut self.inbound) {
                Poll::Ready(Ok(count)) if count > 0 => {
                    left = left.saturating_sub(count);
                    self.stage = Stage::Closed { until, left };
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => {
                    self.inbound.release();
                    break;
                }
            }
        }
        if left == 0 {
            return Poll::Ready(());
        }
        self.timer.poll_until(cx, until).map(drop)
    }
}

/// Streams end with their connection.
impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.lock().end(Closed::WithConnection);
    }
}

/// What a connection is set up with.
fn config(model: &Model, scheme: Scheme) -> Config {
    Config {
        streams_max: model.limits.http2_streams_max,
        stream_window: STREAM_WINDOW_BYTES,
        connection_window: CONNECTION_WINDOW_BYTES,
        head: model.limits.head,
        scheme,
        head_timeout: model.timeouts.request_head,
        settings_timeout: model.timeouts.request_head,
        output_bytes_max: OUTPUT_BYTES_MAX,
        connect_protocol: true,
        ..Config::default()
    }
}

/// Passes received bytes to the codec, and what it makes of them to the streams.
fn handle_received(shared: &Arc<Shared>, inbound: &mut Buffer, now: Mono) -> Result<(), ConnectionError> {
    let mut state = shared.lock();
    // The next request is read into an exchange of its own.
    let mut spare = Exchange::take();
    let result = loop {
        let received = match state.codec.receive(elapsed(now), inbound.filled(), &mut spare.head) {
            Ok(received) => received,
            Err(error) => break Err(error),
        };
        let taken = received.taken;
        let Some(event) = received.event else {
            inbound.consume(taken);
            break Ok(());
        };
        let handled = handle(shared, &mut state, event, &mut spare, now);
        inbound.consume(taken);
        if let Err(error) = handled {
            break Err(error);
        }
    };
    spare.recycle();
    state.grant();
    state.count_memory();
    result
}

/// Passes an event on to its stream. `spare` has the head that it speaks of.
fn handle(
    shared: &Arc<Shared>,
    state: &mut State,
    event: Event<'_>,
    spare: &mut Box<Exchange>,
    now: Mono,
) -> Result<(), ConnectionError> {
    let (stream, opening) = match event {
        Event::Head { stream, end_stream, protocol } => {
            (stream, Opening::Accepted { has_ended: end_stream, protocol })
        }
        Event::Refused { stream, error } => (stream, Opening::Refused(error)),
        Event::Data { stream, bytes, end_stream } => {
            if let Some(entry) = state.streams.get_mut(&stream) {
                entry.receive(bytes, end_stream);
            }
            return Ok(());
        }
        Event::Trailers { stream } => {
            if let Some(entry) = state.streams.get_mut(&stream) {
                receive_trailers(entry, Ok(std::mem::take(&mut spare.head.fields)));
            }
            return Ok(());
        }
        Event::TrailersRefused { stream, error } => {
            if let Some(entry) = state.streams.get_mut(&stream) {
                receive_trailers(entry, Err(error));
            }
            return Ok(());
        }
        Event::Reset { stream, .. } => {
            state.close(stream, Closed::ByPeer);
            return Ok(());
        }
        Event::Failed { stream, error } => {
            fail(shared, state, stream, error);
            return Ok(());
        }
        // A client that goes away still gets its responses.
        Event::GoAway { .. } | Event::Informational { .. } | Event::Pong(_) => return Ok(()),
    };
    let may_answer = !memory::is_full() || state.may_answer_more();
    if !may_answer || !shared.facts.activity.account().takes_streams() {
        // Nothing is done of it, which the client learns (RFC 9113 §8.7).
        let error = state.codec.refuse(elapsed(now), stream)?;
        fail(shared, state, stream, error);
        return Ok(());
    }
    if state.streams.is_empty() {
        shared.facts.activity.resume();
    }
    let entry = state.streams.entry(stream).or_default();
    entry.has_ended = matches!(opening, Opening::Accepted { has_ended: true, .. });
    let exchange = std::mem::replace(spare, Exchange::take());
    request::spawn(shared, stream, exchange, opening);
    Ok(())
}

/// The codec has reset a stream for what the client sent or holds.
fn fail(shared: &Arc<Shared>, state: &mut State, stream: u32, error: StreamError) {
    if state.streams.contains_key(&stream) {
        return state.close(stream, Closed::Failed(Fault::Stream(error)));
    }
    let status = if error == StreamError::Refused { 503 } else { 400 };
    request::record_refused(shared, &Reason::Malformed { code: error.code(), status });
}

impl State {
    /// Whether nothing is under way.
    fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }

    fn next_deadline(&self, idle: Duration) -> Mono {
        let codec = mux::deadline(self.codec.next_deadline());
        let idle = if self.is_idle() { self.own.idle_since.saturating_add(idle) } else { Mono::MAX };
        // Each has the same time, so the first is the next.
        let lingering = self.own.lingering.first().map_or(Mono::MAX, |&(deadline, _)| deadline);
        codec.min(idle).min(lingering)
    }

    /// Resets the streams that have lingered for long enough.
    fn end_lingering(&mut self, now: Mono) {
        let lingering = &mut self.own.lingering;
        let ended = lingering.partition_point(|&(deadline, _)| deadline <= now);
        for (_, stream) in lingering.drain(..ended) {
            self.codec.discard(stream, ErrorCode::NoError);
        }
        if lingering.is_empty() {
            *lingering = Vec::new();
        }
    }
}
