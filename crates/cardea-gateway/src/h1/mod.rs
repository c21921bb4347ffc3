//! Drives an HTTP/1.1 connection (RFC 9112): reads heads, hands requests to the pipeline, writes responses.

mod close;
mod downstream;
mod read;
mod respond;

use std::sync::Arc;

use cardea_http::{
    BodyLength, ResponseHead, Version,
    h1::{HeadLimits, RequestDecoder, write_response_head},
};
use cardea_identity::ConnectionTokenCache;

use crate::{
    buffer::Buffer,
    exchange::{ConnectionFacts, Exchange},
    framing::BodyReader,
    gateway::{Gateway, Recording},
    memory::{Held, Room},
    pipeline,
    refusal::Reason,
    response::Outcome,
    streams::StreamWatch,
    tarpit::HeldRefusal,
    termination::TerminationReason,
    timer::Timer,
    transport::Transport,
    tunnel,
    upstream::Tunnel,
};
use read::Next;

/// What is left of a request's body after the response is read and thrown away up to this size, in bytes; beyond it,
/// closing is cheaper than reading.
const DISCARD_BYTES_MAX: u64 = 64 * 1024;

/// A client's connection.
#[derive(Debug)]
pub(super) struct Connection {
    transport: Transport,
    inbound: Buffer,
    /// For what the client sends ahead.
    room: Room,
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
                match Box::pin(connection.exchange(&gateway, exchange, &mut timer)).await {
                    After::Again => {}
                    After::End => break,
                    After::Hold(held) => {
                        connection.hold(&gateway, *held, &mut timer).await;
                        break;
                    }
                }
            }
        }
        begun = true;
    }
    if !connection.within_response {
        connection.close(&mut timer).await;
    }
}

/// What comes after an exchange.
enum After {
    /// The connection can be used again.
    Again,
    /// It can't.
    End,
    /// Nor can it, and its last response is sent later.
    Hold(Box<HeldRefusal>),
}

impl Connection {
    fn new(transport: Transport, inbound: Buffer, limits: HeadLimits) -> Self {
        Self {
            transport,
            inbound,
            room: Room::new(),
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

    /// Carries a request.
    async fn exchange(&mut self, gateway: &Gateway, mut exchange: Box<Exchange>, timer: &mut Timer) -> After {
        exchange.token = std::mem::take(&mut self.token);
        let mut recording = Recording::new(gateway, &mut exchange);
        let outcome = pipeline::handle(gateway, &mut recording, self, timer).await;
        let after = self.finish(gateway, outcome, recording, timer).await;
        self.token = exchange.take_token();
        exchange.recycle();
        if !matches!(after, After::Again) {
            return after;
        }
        if self.discard_body(timer).await { After::Again } else { After::End }
    }

    /// Waits until a refusal is to be sent, and sends it. A connection has nothing else to do meanwhile.
    async fn hold(&mut self, gateway: &Gateway, held: HeldRefusal, timer: &mut Timer) {
        self.token = ConnectionTokenCache::new();
        let Some((mut response, mut exchange)) = Box::pin(held.wait(self)).await else {
            self.within_response = true;
            return;
        };
        Box::pin(respond::respond(self, gateway, &mut response, &mut exchange, timer)).await;
        exchange.recycle();
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

    /// Does what the pipeline decided.
    async fn finish(
        &mut self,
        gateway: &Gateway,
        mut outcome: Outcome,
        mut exchange: Recording<'_>,
        timer: &mut Timer,
    ) -> After {
        let after = match outcome {
            Outcome::Respond(ref mut response) => {
                match respond::respond(self, gateway, response, &mut exchange, timer).await {
                    true => After::Again,
                    false => After::End,
                }
            }
            Outcome::Hold(held) => After::Hold(held),
            Outcome::Close => {
                self.within_response = true;
                After::End
            }
            Outcome::Tunnel(head, upstream) => {
                // Boxed, so that requests do not pay for its size.
                Box::pin(self.tunnel(gateway, head, upstream, &mut exchange, timer)).await;
                After::End
            }
        };
        exchange.request_body_bytes = self.body.found();
        exchange.finish();
        after
    }

    /// Answers `101 Switching Protocols`, and carries bytes both ways until one side ends.
    async fn tunnel(
        &mut self,
        gateway: &Gateway,
        head: ResponseHead,
        upstream: Box<Tunnel>,
        exchange: &mut Exchange,
        timer: &mut Timer,
    ) {
        exchange.response.status = head.status;
        let mut out = self.take_informational();
        write_response_head(&mut out, head.status, &head.fields);
        out.truncate(out.len().saturating_sub(2));
        out.extend_from_slice(b"connection: upgrade\r\nupgrade: websocket\r\n\r\n");
        if let Some(permits) = &mut exchange.admission.permits {
            permits.become_stream();
        }
        let watch = StreamWatch::new(gateway);
        // Whatever ends this task now ends a stream in its middle.
        self.within_response = true;
        self.is_last = false;
        let (client, inbound) = (&mut self.transport, &mut self.inbound);
        let carried = tunnel::run(client, inbound, out, *upstream, exchange, watch, timer).await;
        self.within_response = carried.torn;
        exchange.response.reason = carried.end.map(TerminationReason::code);
        exchange.response.body_bytes = carried.bytes;
        exchange.response.complete = carried.end.is_none();
        exchange.response_head = head;
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
        assert!(bytes <= 1024, "{bytes} bytes");
    }
}
