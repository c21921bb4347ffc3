//! Drives an HTTP/1.1 connection (RFC 9112): reads heads, hands requests to the pipeline, writes responses.

mod respond;

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use cardea_clock::Mono;
use cardea_http::{
    BodyLength, Fields, Known, ResponseHead, Scheme, Version,
    h1::{HeadLimits, RequestDecoder, request_framing, wants_keep_alive, write_response_head},
};
use cardea_identity::ConnectionTokenCache;

use crate::{
    body::{BodyError, BodySource},
    buffer::Buffer,
    connections::Activity,
    downstream::{Aborted, Downstream},
    exchange::{ConnectionFacts, Exchange},
    framing::BodyReader,
    gateway::{Gateway, Recording},
    memory::{Ending, Held},
    pipeline,
    record::RequestId,
    refusal::Reason,
    response::Outcome,
    streams::StreamWatch,
    termination::TerminationReason,
    timer::Timer,
    transport::Transport,
    tunnel,
};

/// What is left of a request's body after the response is read and thrown away up to this size, in bytes; beyond it,
/// closing is cheaper than reading.
const DISCARD_BYTES_MAX: u64 = 64 * 1024;

/// What is read and thrown away of a connection that is closed, in bytes. More than the above: a client that is still
/// sending would lose the reason to a reset.
const LINGER_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// How long a closing connection is read from, so that the peer gets our last response before a reset
/// (RFC 9112 §9.6).
const LINGER: Duration = Duration::from_secs(2);

/// A client's connection.
#[derive(Debug)]
pub(super) struct Connection {
    transport: Transport,
    inbound: Buffer,
    decoder: RequestDecoder,
    /// The body of the current request.
    body: BodyReader,
    body_length: BodyLength,
    /// The client waits for `100 Continue` before it sends the body.
    expects_continue: bool,
    /// The client lets this connection be used again.
    keep_alive: bool,
    /// The client has said that it sends nothing after this request (RFC 9112 §9.6).
    is_last: bool,
    /// The client takes trailers (RFC 9110 §10.1.4).
    takes_trailers: bool,
    version: Version,
    /// What is remembered of the last token, while no request has it.
    token: ConnectionTokenCache,
    /// Informational responses on their way.
    informational: Vec<u8>,
    /// Their memory.
    informational_held: Held,
    /// Part of a response was sent and the rest was not, or the client is gone: closing must be abortive.
    within_response: bool,
}

/// What comes next on a connection.
enum Next {
    Request(Box<Exchange>),
    Refused(Box<Exchange>, Reason),
    /// Nothing more.
    End,
}

/// Serves the connection to its end.
pub(crate) async fn serve(
    gateway: Arc<Gateway>,
    transport: Transport,
    inbound: Buffer,
    facts: Arc<ConnectionFacts>,
) {
    let limits = gateway.model().limits.head;
    let mut connection = Connection::new(transport, inbound, limits);
    let mut timer = Timer::new(gateway.clock.clone());
    let mut begun = false;
    loop {
        match connection.next(&gateway, &facts, &mut timer, begun).await {
            Next::End => break,
            Next::Refused(exchange, reason) => {
                Box::pin(connection.refuse(&gateway, exchange, &reason, &mut timer)).await;
                break;
            }
            // The future of a request exists only during a request: an idle connection does not pay for its size.
            Next::Request(exchange) => {
                if !Box::pin(connection.exchange(&gateway, exchange, &mut timer)).await {
                    break;
                }
            }
        }
        begun = true;
    }
    if !connection.within_response {
        connection.close(&mut timer).await;
    }
}

impl Connection {
    fn new(transport: Transport, inbound: Buffer, limits: HeadLimits) -> Self {
        Self {
            transport,
            inbound,
            decoder: RequestDecoder::new(limits),
            body: BodyReader::ended(),
            body_length: BodyLength::None,
            expects_continue: false,
            keep_alive: false,
            is_last: false,
            takes_trailers: false,
            version: Version::Http11,
            token: ConnectionTokenCache::new(),
            informational: Vec::new(),
            informational_held: Held::default(),
            within_response: false,
        }
    }

    /// Carries a request; `true` if the connection can be used again.
    async fn exchange(&mut self, gateway: &Gateway, mut exchange: Box<Exchange>, timer: &mut Timer) -> bool {
        exchange.token = std::mem::take(&mut self.token);
        let mut recording = Recording::new(gateway, &mut exchange);
        let outcome = pipeline::handle(gateway, &mut recording, self, timer).await;
        let again = self.finish(gateway, outcome, recording, timer).await;
        self.token = exchange.take_token();
        exchange.recycle();
        again && self.discard_body(timer).await
    }

    /// Answers a request whose head goes no further than this file.
    async fn refuse(
        &mut self,
        gateway: &Gateway,
        mut exchange: Box<Exchange>,
        reason: &Reason,
        timer: &mut Timer,
    ) {
        let mut recording = Recording::new(gateway, &mut exchange);
        let outcome = pipeline::refuse(gateway, reason, &mut recording);
        self.finish(gateway, outcome, recording, timer).await;
        exchange.recycle();
    }

    /// Waits for the next request and reads its head.
    async fn next(
        &mut self,
        gateway: &Gateway,
        facts: &Arc<ConnectionFacts>,
        timer: &mut Timer,
        begun: bool,
    ) -> Next {
        self.decoder.reset();
        self.body = BodyReader::ended();
        self.is_last = false;
        if self.inbound.is_empty() && !self.wait_for_bytes(gateway, &facts.activity, timer, begun).await {
            return Next::End;
        }
        let deadline = timer.now().saturating_add(gateway.connection_timeouts().request_head);
        // While more of a head is awaited, it has nothing but what came of it.
        let mut exchange = None;
        let read = std::future::poll_fn(|cx| {
            let polled = self.poll_head(cx, exchange.get_or_insert_with(Exchange::take), timer, deadline);
            if polled.is_pending() {
                exchange.take().into_iter().for_each(Exchange::recycle);
                // Nothing was decided on it yet, so all that can end it is a lack of memory.
                if facts.activity.account().ending() == Ending::Connection {
                    return Poll::Ready(Err(Reason::StreamEnded(TerminationReason::BuffersExhausted)));
                }
            }
            polled
        })
        .await;
        let mut exchange = exchange.unwrap_or_else(Exchange::take);
        exchange.id = RequestId::generate(gateway.clock.wall());
        exchange.connection = Some(Arc::clone(facts));
        exchange.scheme = if facts.tls.is_some() { Scheme::Https } else { Scheme::Http };
        exchange.started = gateway.clock.precise();
        exchange.early_data = self.transport.is_early();
        match read {
            Ok(true) => self.begin(exchange),
            Ok(false) => {
                exchange.recycle();
                Next::End
            }
            Err(reason) => {
                // Nothing of it is read any more, and its answer may be long in going out.
                self.inbound.park();
                Next::Refused(exchange, reason)
            }
        }
    }

    /// Waits until something was received; `false` if nothing will be.
    async fn wait_for_bytes(
        &mut self,
        gateway: &Gateway,
        activity: &Activity,
        timer: &mut Timer,
        begun: bool,
    ) -> bool {
        let timeouts = gateway.connection_timeouts();
        let limit = if begun { timeouts.keep_alive_idle } else { timeouts.request_head };
        let deadline = timer.now().saturating_add(limit);
        let mut rests = false;
        let come = std::future::poll_fn(|cx| {
            match self.transport.poll_recv(cx, &mut self.inbound) {
                Poll::Ready(Ok(count)) => return Poll::Ready(count > 0),
                Poll::Ready(Err(_)) => return Poll::Ready(false),
                Poll::Pending => self.inbound.release(),
            }
            // Woken when the gateway stops; a connection that never was used is left to its first request.
            if begun && gateway.is_stopping() {
                return Poll::Ready(false);
            }
            if !rests {
                rests = true;
                activity.rest(timer.now());
            } else if activity.is_evicted() {
                // Nobody is in the middle of anything: it need not be waited for that the client ends its side.
                self.is_last = true;
                return Poll::Ready(false);
            }
            timer.poll_until(cx, deadline).map(|_| false)
        })
        .await;
        if rests {
            activity.resume();
        }
        come
    }

    /// Ready with `true` when the head is complete, with `false` when the client has left.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
        timer: &mut Timer,
        deadline: Mono,
    ) -> Poll<Result<bool, Reason>> {
        loop {
            match self.decoder.decode(self.inbound.filled(), &mut exchange.head) {
                Ok(Some(consumed)) => {
                    self.inbound.consume(consumed);
                    return Poll::Ready(Ok(true));
                }
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(Reason::from(error))),
            }
            if self.inbound.is_full() {
                // The decoder's limits end this.
                self.inbound.grow(self.inbound.len() * 2);
            }
            match self.transport.poll_recv(cx, &mut self.inbound) {
                Poll::Ready(Ok(count)) if count > 0 => {}
                Poll::Ready(_) => return Poll::Ready(Ok(false)),
                Poll::Pending => {
                    self.inbound.park();
                    return timer.poll_until(cx, deadline).map(|_| Err(Reason::RequestHeadTimeout));
                }
            }
        }
    }

    /// Reads from the head what concerns the connection.
    fn begin(&mut self, exchange: Box<Exchange>) -> Next {
        let head = &exchange.head;
        self.version = head.version;
        let framing = match request_framing(head) {
            Ok(framing) => framing,
            Err(error) => return Next::Refused(exchange, Reason::from(error)),
        };
        self.body_length = framing.into();
        self.body = BodyReader::new(framing);
        self.keep_alive = wants_keep_alive(head.version, &head.fields);
        self.is_last = !self.keep_alive;
        self.expects_continue = head.version >= Version::Http11
            && !self.body.is_ended()
            && head
                .fields
                .get(Known::Expect)
                .is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"));
        self.takes_trailers = head.fields.get(Known::Te).is_some_and(|value| {
            value
                .split(|byte| *byte == b',')
                .any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
        });
        Next::Request(exchange)
    }

    /// Does what the pipeline decided; `true` if the connection can be used again.
    async fn finish(
        &mut self,
        gateway: &Gateway,
        mut outcome: Outcome,
        mut exchange: Recording<'_>,
        timer: &mut Timer,
    ) -> bool {
        let again = match outcome {
            Outcome::Respond(ref mut response) => {
                respond::respond(self, gateway, response, &mut exchange, timer).await
            }
            Outcome::Close => {
                self.within_response = true;
                false
            }
            Outcome::Tunnel(head, upstream) => {
                exchange.response.status = head.status;
                let mut out = self.take_informational();
                write_response_head(&mut out, head.status, &head.fields);
                out.truncate(out.len().saturating_sub(2));
                out.extend_from_slice(b"connection: upgrade\r\nupgrade: websocket\r\n\r\n");
                let watch = StreamWatch::new(gateway);
                // Whatever ends this task now ends a stream in its middle.
                self.within_response = true;
                self.is_last = false;
                let (client, inbound) = (&mut self.transport, &mut self.inbound);
                // Boxed, so that requests do not pay for its size.
                let carried =
                    Box::pin(tunnel::run(client, inbound, out, *upstream, &exchange, watch, timer)).await;
                self.within_response = carried.torn;
                exchange.response.reason = carried.end.map(TerminationReason::code);
                exchange.response.body_bytes = carried.bytes;
                exchange.response.complete = carried.end.is_none();
                exchange.response_head = head;
                false
            }
        };
        exchange.request_body_bytes = self.body.found();
        exchange.finish();
        again
    }

    /// Reads what is left of the request's body, if that is little.
    async fn discard_body(&mut self, timer: &mut Timer) -> bool {
        if self.body.is_ended() {
            return true;
        }
        self.body.set_limit(DISCARD_BYTES_MAX);
        let deadline = timer.now().saturating_add(LINGER);
        let discard = std::future::poll_fn(|cx| {
            loop {
                match std::task::ready!(self.poll_data(cx)) {
                    Ok(true) => self.consume(usize::MAX),
                    Ok(false) => return Poll::Ready(true),
                    Err(_) => return Poll::Ready(false),
                }
            }
        });
        timer.until(deadline, discard).await.unwrap_or(false)
    }

    /// Closes in order: our last response must not be lost to a reset because something is unread. A client is waited for
    /// unless it has said that nothing more comes, and nothing has.
    async fn close(mut self, timer: &mut Timer) {
        let deadline = timer.now().saturating_add(LINGER);
        let mut left = LINGER_BYTES_MAX;
        let mut may_send = !self.is_last || !self.body.is_ended() || !self.inbound.is_empty();
        let mut has_ended = false;
        self.inbound.consume(usize::MAX);
        self.inbound.release();
        let end = std::future::poll_fn(|cx| {
            if !has_ended {
                if std::task::ready!(self.transport.poll_shutdown(cx)).is_err() {
                    return Poll::Ready(());
                }
                has_ended = true;
            }
            loop {
                self.inbound.consume(usize::MAX);
                match self.transport.poll_recv(cx, &mut self.inbound) {
                    Poll::Ready(Ok(count)) if count > 0 && left > 0 => {
                        left = left.saturating_sub(count as u64);
                        may_send = true;
                    }
                    Poll::Pending if may_send => {
                        self.inbound.release();
                        return Poll::Pending;
                    }
                    Poll::Ready(_) | Poll::Pending => return Poll::Ready(()),
                }
            }
        });
        let _ = timer.until(deadline, end).await;
    }
}

impl Drop for Connection {
    /// A response that was cut short, by whatever ended this task, must not look whole.
    fn drop(&mut self) {
        if self.within_response {
            self.transport.set_abortive();
        }
    }
}

impl BodySource for Connection {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, BodyError>> {
        // The body is wanted now, so it is asked for now, unless it is coming already (RFC 9110 §10.1.1).
        if std::mem::take(&mut self.expects_continue) && self.inbound.is_empty() {
            self.informational.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        if self.poll_informational(cx).is_err() {
            return Poll::Ready(Err(BodyError::Aborted));
        }
        self.body.poll_data(cx, &mut self.transport, &mut self.inbound)
    }

    fn chunk(&self) -> &[u8] {
        self.inbound.filled().get(..self.body.available()).unwrap_or_default()
    }

    fn consume(&mut self, count: usize) {
        self.body.consume(&mut self.inbound, count);
    }

    fn trailers(&self) -> Option<&Fields> {
        self.body.trailers()
    }
}

impl Downstream for Connection {
    fn body_length(&self) -> BodyLength {
        self.body_length
    }

    fn set_body_limit(&mut self, bytes: u64) {
        self.body.set_limit(bytes);
    }

    fn body_bytes(&self) -> u64 {
        self.body.found()
    }

    fn inform(&mut self, head: &ResponseHead) {
        // A client of HTTP/1.0 knows no such responses (RFC 9110 §15.2).
        if self.version >= Version::Http11 {
            write_response_head(&mut self.informational, head.status, &head.fields);
            self.informational_held.set(self.informational.capacity());
        }
    }

    fn poll_established(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Aborted>> {
        self.transport.poll_established(cx).map_err(|_| Aborted)
    }

    fn poll_background(&mut self, cx: &mut Context<'_>) -> Poll<Aborted> {
        if self.poll_informational(cx).is_err() {
            return Poll::Ready(Aborted);
        }
        // While a body is awaited, reading is up to who wants it; and a client that sends ahead is not read further.
        while self.body.is_ended() && !self.inbound.is_full() {
            match self.transport.poll_recv(cx, &mut self.inbound) {
                Poll::Ready(Ok(count)) if count > 0 => {}
                Poll::Ready(_) => return Poll::Ready(Aborted),
                Poll::Pending => {
                    self.inbound.park();
                    break;
                }
            }
        }
        Poll::Pending
    }
}

impl Connection {
    /// What is queued, for whoever sends it with more.
    fn take_informational(&mut self) -> Vec<u8> {
        self.informational_held.set(0);
        std::mem::take(&mut self.informational)
    }

    /// Sends what is queued, as far as the client takes it.
    fn poll_informational(&mut self, cx: &mut Context<'_>) -> Result<(), Aborted> {
        while !self.informational.is_empty() {
            match self.transport.poll_send(cx, &[std::io::IoSlice::new(&self.informational)]) {
                Poll::Ready(Ok(sent)) => {
                    self.informational.drain(..sent.min(self.informational.len()));
                }
                Poll::Ready(Err(_)) => return Err(Aborted),
                Poll::Pending => return Ok(()),
            }
        }
        drop(self.take_informational());
        match self.transport.poll_flush(cx) {
            Poll::Ready(Err(_)) => Err(Aborted),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each request that waits for its service has beside its exchange. Where a thousand wait, it is read from
    /// beyond the caches.
    #[test]
    fn a_requests_future_is_small() {
        fn size<'a, F: Future + 'a>(
            _: impl FnOnce(&'a mut Connection, &'a Gateway, Box<Exchange>, &'a mut Timer) -> F,
        ) -> usize {
            size_of::<F>()
        }
        let bytes = size(Connection::exchange);
        println!("{bytes} bytes");
        assert!(bytes <= 1200, "{bytes} bytes");
    }
}
