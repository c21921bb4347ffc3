//! How a response is written to a stream, within the peer's flow control.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use cardea_http::{Fields, Known, Version};
use h2::{Reason as ResetReason, SendStream};

use super::{body::RequestBody, head, queued::Room};
use crate::{
    date,
    downstream::{Aborted, Downstream},
    exchange::Exchange,
    gateway::Gateway,
    memory::Part,
    respond::{self, Cut, ResponseSink},
    response::{Outcome, Response, ResponseBody},
    termination::TerminationReason,
    timer::Timer,
};

/// How much of a body is copied into one DATA frame's worth, in bytes.
const CHUNK_BYTES: usize = 16 * 1024;

/// Sends what the pipeline decided.
pub(super) async fn respond(
    gateway: &Gateway,
    mut outcome: Outcome,
    exchange: &mut Exchange,
    body: &mut RequestBody,
    timer: &mut Timer,
) {
    let response = match &mut outcome {
        Outcome::Respond(response) => response,
        // An upgrade is never asked for over HTTP/2 (RFC 9113 §8.6), so there is no tunnel to carry.
        Outcome::Close | Outcome::Tunnel(..) => return body.respond.send_reset(ResetReason::CANCEL),
    };
    debug_assert!(exchange.head.version == Version::Http2);
    let mut writer = Writer { gateway, body, stream: None };
    respond::respond(gateway, response, exchange, &mut writer, timer).await;
}

/// Whether a call of gRPC is answered, whose status comes in trailers.
fn is_grpc(exchange: &Exchange) -> bool {
    let content_type = exchange.head.fields.get(Known::ContentType);
    content_type.is_some_and(|value| value.starts_with(b"application/grpc"))
}

/// The trailers that end a call of gRPC. Nobody takes a call with such a status for whole.
fn grpc_status(end: TerminationReason) -> Option<Fields> {
    let mut trailers = Fields::default();
    trailers.append(b"grpc-status", end.grpc_status().as_bytes()).ok()?;
    trailers.append(b"grpc-message", end.text().as_bytes()).ok()?;
    Some(trailers)
}

/// A response on its way.
struct Writer<'a> {
    gateway: &'a Gateway,
    body: &'a mut RequestBody,
    /// There once the head is written.
    stream: Option<SendStream<Bytes>>,
}

impl Writer<'_> {
    fn stream(&mut self) -> Result<&mut SendStream<Bytes>, Aborted> {
        self.stream.as_mut().ok_or(Aborted)
    }

    fn send_trailers(&mut self, trailers: &Fields, room: Option<Room>) -> Result<(), Aborted> {
        let trailers = head::write_fields(trailers, room).ok_or(Aborted)?;
        self.stream()?.send_trailers(trailers).map_err(|_| Aborted)
    }

    /// Ends a call of gRPC with a status, if the codec has room for it now; whether it did.
    fn end_with_status(&mut self, end: TerminationReason) -> bool {
        let Some(trailers) = grpc_status(end) else { return false };
        let Some(room) = self.body.try_room(&trailers) else { return false };
        self.send_trailers(&trailers, Some(room)).is_ok()
    }
}

impl ResponseSink for Writer<'_> {
    fn downstream(&mut self) -> &mut dyn Downstream {
        self.body
    }

    fn poll_room(&mut self, cx: &mut Context<'_>, fields: &Fields) -> Poll<Result<(), Aborted>> {
        self.body.poll_room(cx, fields)
    }

    fn begin(&mut self, response: &mut Response, has_body: bool) -> Result<(), Aborted> {
        if response.head.fields.get(Known::Date).is_none() {
            let mut text = Vec::with_capacity(32);
            date::write(self.gateway.clock.wall(), &mut text);
            let _ = response.head.fields.append_known(Known::Date, &text);
        }
        let Some(head) = head::write(&response.head, self.body.take_room()) else {
            self.body.respond.send_reset(ResetReason::INTERNAL_ERROR);
            return Err(Aborted);
        };
        let is_last = !has_body || matches!(response.body, ResponseBody::Empty);
        self.stream = Some(self.body.respond.send_response(head, is_last).map_err(|_| Aborted)?);
        Ok(())
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Aborted>> {
        let is_reset = self.stream()?.poll_reset(cx).is_ready();
        Poll::Ready(if is_reset { Err(Aborted) } else { Ok(()) })
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, chunk: &[u8]) -> Poll<Result<usize, Aborted>> {
        let stream = self.stream()?;
        let wanted = chunk.len().min(CHUNK_BYTES);
        stream.reserve_capacity(wanted);
        while stream.capacity() == 0 {
            match ready!(stream.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                _ => return Poll::Ready(Err(Aborted)),
            }
        }
        let count = wanted.min(stream.capacity());
        let part = Part::copy_of(chunk.get(..count).unwrap_or_default());
        stream.send_data(part, false).map_err(|_| Aborted)?;
        Poll::Ready(Ok(count))
    }

    fn takes_trailers(&self) -> bool {
        true
    }

    fn end(&mut self, trailers: Option<&Fields>) -> Result<(), Aborted> {
        match trailers {
            Some(trailers) => {
                let room = self.body.take_room();
                self.send_trailers(trailers, room)
            }
            None => self.stream()?.send_data(Bytes::new(), true).map_err(|_| Aborted),
        }
    }

    /// The connection's task sends what was queued.
    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Aborted>> {
        Poll::Ready(Ok(()))
    }

    fn poll_idle(&mut self, _: &mut Context<'_>) -> Poll<Aborted> {
        Poll::Pending
    }

    /// A stream that is reset can't be taken for whole.
    fn cut(&mut self, cut: Cut, exchange: &Exchange) {
        let reason = match cut {
            // What is queued for the stream stays as long as trailers wait behind it.
            Cut::Ended(end)
                if end != TerminationReason::BuffersExhausted
                    && is_grpc(exchange)
                    && self.end_with_status(end) =>
            {
                return;
            }
            Cut::Ended(_) => ResetReason::CANCEL,
            Cut::Client | Cut::Service | Cut::Stalled => ResetReason::INTERNAL_ERROR,
        };
        match &mut self.stream {
            Some(stream) => stream.send_reset(reason),
            None => self.body.respond.send_reset(reason),
        }
    }

    /// Who waits for a turn moves on as the queue does.
    fn sent(&self) -> u64 {
        self.body.passed()
    }

    fn is_stalled(&self) -> bool {
        self.body.waits_for_room()
    }

    fn held_bytes(&self) -> usize {
        0
    }
}
