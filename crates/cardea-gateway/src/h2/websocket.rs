//! WebSockets over HTTP/2 (RFC 8441). A client opens one by an extended CONNECT on a stream. It is carried as the GET with an
//! upgrade that it stands for, so that routes, rules and services see the same request in both versions.

use std::{
    future::poll_fn,
    io,
    task::{Context, Poll, ready},
};

use cardea_http::{
    FramingError, Known, Method, RequestError, ResponseHead,
    h1::{Framing, request_framing},
    h2::{ErrorCode, Protocol},
};

use super::{body::RequestBody, respond::set_date};
use crate::{
    body::BodySource,
    buffer::Buffer,
    downstream::Aborted,
    exchange::Exchange,
    gateway::Gateway,
    model::RESPONSE_BODY_IDLE,
    refusal::Reason,
    response::Outcome,
    streams::StreamWatch,
    termination::TerminationReason,
    timer::Timer,
    tunnel::{self, End},
    upstream::Tunnel,
    websocket::handshake,
};

/// The status that accepts an extended CONNECT (RFC 8441 §5).
const ACCEPTED: u16 = 200;

/// Makes the request that an extended CONNECT stands for. A client sends no key (RFC 8441 §5), so the service gets ours.
///
/// # Errors
/// For another protocol (RFC 9220 §3), and for a request that declares a body.
pub(super) fn begin(exchange: &mut Exchange, protocol: Protocol) -> Result<(), Reason> {
    exchange.extended_connect = true;
    // A status of 200 would open the stream.
    exchange.is_grpc = false;
    if protocol != Protocol::WebSocket {
        return Err(Reason::Malformed { code: "connect_protocol_unsupported", status: 501 });
    }
    let head = &mut exchange.head;
    if !matches!(request_framing(head)?, Framing::None | Framing::Length(0)) {
        return Err(RequestError::Framing(FramingError::BodyNotAllowed).into());
    }
    head.method = Method::Get;
    head.fields.remove(Known::ContentLength);
    head.fields.remove(Known::SecWebSocketKey);
    if let Some(key) = handshake::new_key() {
        // Without one, it goes to no service.
        let _ = head.fields.set_known(Known::SecWebSocketKey, key.as_bytes());
    }
    Ok(())
}

/// Whether an outcome would have the client believe that its WebSocket is open.
pub(super) fn is_mistakable(outcome: &Outcome, exchange: &Exchange) -> bool {
    let is_success = |status: u16| (200..300).contains(&status);
    matches!(outcome, Outcome::Respond(response) if exchange.extended_connect && is_success(response.head.status))
}

/// Accepts the CONNECT, and carries bytes both ways until one side ends.
pub(super) async fn carry(
    gateway: &Gateway,
    mut head: ResponseHead,
    upstream: Tunnel,
    exchange: &mut Exchange,
    body: &mut RequestBody,
    timer: &mut Timer,
) {
    head.status = ACCEPTED;
    head.fields.remove(Known::SecWebSocketAccept);
    set_date(gateway, &mut head);
    exchange.response.status = head.status;
    let deadline = timer.now().saturating_add(RESPONSE_BODY_IDLE);
    let room = timer.until(deadline, poll_fn(|cx| body.stream.poll_room(cx, &head.fields))).await;
    let is_begun = matches!(room, Ok(Ok(()))) && body.stream.send_head(&head, false).is_ok();
    exchange.response_head = head;
    if !is_begun {
        exchange.response.reason = Some(Reason::ClientAborted.code());
        return body.stream.reset(ErrorCode::Cancel);
    }
    if let Some(permits) = &mut exchange.admission.permits {
        permits.become_stream();
    }
    body.begin_tunnel();
    let watch = StreamWatch::new(gateway);
    let mut inbound = Buffer::new();
    let carried = tunnel::run(body, &mut inbound, Vec::new(), upstream, exchange, watch, timer).await;
    exchange.response.reason = carried.end.map(TerminationReason::code);
    exchange.response.body_bytes = carried.bytes;
    exchange.response.complete = carried.end.is_none();
    if carried.torn {
        return body.stream.reset(ErrorCode::Cancel);
    }
    // It may have been ended already.
    let _ = body.stream.send_end();
    body.finish();
}

/// The client's end of a tunnel.
impl End for RequestBody {
    fn poll_recv(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        let has_more = ready!(self.poll_data(cx)).map_err(|_| io::ErrorKind::ConnectionReset)?;
        if !has_more {
            return Poll::Ready(Ok(0));
        }
        let (chunk, space) = (self.chunk(), buffer.space());
        let count = chunk.len().min(space.len());
        space.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
        buffer.received(count);
        self.consume(count);
        Poll::Ready(Ok(count))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.stream.poll_send(cx, bytes).map_err(|Aborted| io::ErrorKind::ConnectionReset.into())
    }

    /// The connection's task sends what was queued.
    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.send_end().map_err(|Aborted| io::ErrorKind::ConnectionReset.into()))
    }
}
