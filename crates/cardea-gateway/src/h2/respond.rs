//! Writes a response to a stream, within the peer's flow control.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use cardea_clock::Mono;
use cardea_http::{Known, Version};
use h2::{Reason as ResetReason, SendStream};
use http::{HeaderMap, HeaderValue};

use super::{body::RequestBody, head};
use crate::{
    date,
    downstream::Downstream,
    exchange::Exchange,
    fields::clean_response_trailers,
    forward::request_deadline,
    gateway::Gateway,
    memory::{Ending, Part},
    model::RESPONSE_BODY_IDLE,
    pipeline::Outcome,
    response::{Response, ResponseBody, has_body, set_length},
    streams::{StreamWatch, TerminationReason},
    timer::Timer,
};

/// How much of a body is copied into one DATA frame's worth, in bytes.
const CHUNK_BYTES: usize = 16 * 1024;

/// Sends what the pipeline decided.
pub(super) async fn respond(
    gateway: &Gateway,
    outcome: Outcome,
    exchange: &mut Exchange,
    body: &mut RequestBody,
    timer: &mut Timer,
) {
    let mut response = match outcome {
        Outcome::Respond(response) => response,
        // An upgrade is never asked for over HTTP/2 (RFC 9113 §8.6), so there is no tunnel to carry.
        Outcome::Close | Outcome::Tunnel(..) => return body.respond.send_reset(ResetReason::CANCEL),
    };
    exchange.response.status = response.head.status;
    debug_assert!(exchange.head.version == Version::Http2);
    let has_body = has_body(exchange.head.method, response.head.status);
    if has_body {
        set_length(&mut response.head, response.body.framing());
    }
    if response.head.fields.get(Known::Date).is_none() {
        let mut text = Vec::with_capacity(32);
        date::write(gateway.clock.wall(), &mut text);
        let _ = response.head.fields.append_known(Known::Date, &text);
    }
    let Some(written) = head::write(&response.head) else {
        return body.respond.send_reset(ResetReason::INTERNAL_ERROR);
    };
    // For what is recorded; and its memory serves the next response.
    exchange.response_head = std::mem::take(&mut response.head);
    let Response { body: source, .. } = response;
    let source = if has_body { source } else { ResponseBody::Empty };
    let empty = matches!(source, ResponseBody::Empty);
    let Ok(stream) = body.respond.send_response(written, empty) else { return };
    if empty {
        exchange.response.complete = true;
        return;
    }
    let mut writer = Writer { stream, source, sent: 0 };
    let result = write(&mut writer, body, exchange, StreamWatch::new(gateway), timer).await;
    exchange.response.body_bytes = writer.sent;
    exchange.response.complete = result.is_ok();
    match result {
        Ok(()) => {}
        // A stream that is reset can't be taken for whole.
        Err(Cut::Failed(reason)) => {
            let made_room = exchange.connection.as_ref().map(|facts| facts.activity.account().ending())
                == Some(Ending::Connection);
            exchange.response.reason =
                Some(if made_room { TerminationReason::BuffersExhausted.code() } else { reason });
            writer.stream.send_reset(ResetReason::INTERNAL_ERROR);
        }
        Err(Cut::Ended(end)) => {
            exchange.response.reason = Some(end.code());
            // What is queued for the stream stays as long as trailers wait behind it.
            let told = end != TerminationReason::BuffersExhausted && is_grpc(exchange);
            if !told || writer.stream.send_trailers(grpc_status(end)).is_err() {
                writer.stream.send_reset(ResetReason::CANCEL);
            }
        }
    }
}

/// Why a response was cut short.
enum Cut {
    Failed(&'static str),
    Ended(TerminationReason),
}

/// Whether a call of gRPC is answered, whose status comes in trailers.
fn is_grpc(exchange: &Exchange) -> bool {
    let content_type = exchange.head.fields.get(Known::ContentType);
    content_type.is_some_and(|value| value.starts_with(b"application/grpc"))
}

/// The trailers that end a call of gRPC. Nobody takes a call with such a status for whole.
fn grpc_status(end: TerminationReason) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(2);
    trailers.insert("grpc-status", HeaderValue::from_static(end.grpc_status()));
    trailers.insert("grpc-message", HeaderValue::from_static(end.text()));
    trailers
}

struct Writer {
    stream: SendStream<Bytes>,
    source: ResponseBody,
    sent: u64,
}

async fn write(
    writer: &mut Writer,
    body: &mut RequestBody,
    exchange: &Exchange,
    mut watch: StreamWatch<'_>,
    timer: &mut Timer,
) -> Result<(), Cut> {
    let route = exchange.route();
    let idle = route.map_or(RESPONSE_BODY_IDLE, |route| route.timeouts.response_body_idle);
    let whole = route.map_or(Mono::MAX, |route| request_deadline(route, exchange));
    let mut progress = u64::MAX;
    let mut deadline = Mono::MAX;
    std::future::poll_fn(|cx| {
        if let Poll::Ready(result) = writer.poll(cx, body, exchange) {
            return Poll::Ready(result.map_err(Cut::Failed));
        }
        if let Poll::Ready(end) = watch.poll(cx, exchange) {
            return Poll::Ready(Err(Cut::Ended(end)));
        }
        let moved = writer.sent != progress;
        if moved {
            progress = writer.sent;
            deadline = timer.now().saturating_add(idle).min(whole);
        }
        watch.note(0, !writer.source.chunk().is_empty(), moved, timer.now());
        timer.poll_until(cx, deadline).map(|_| Err(Cut::Failed("response_timeout")))
    })
    .await
}

impl Writer {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut RequestBody,
        exchange: &Exchange,
    ) -> Poll<Result<(), &'static str>> {
        loop {
            if self.stream.poll_reset(cx).is_ready() {
                return Poll::Ready(Err("client_aborted"));
            }
            let Ok(more) = ready!(self.source.poll_data(cx, body as &mut dyn Downstream)) else {
                let client = self.source.client_failed();
                return Poll::Ready(Err(if client { "client_aborted" } else { "upstream_aborted" }));
            };
            if !more {
                let trailers = self.source.trailers();
                let sent = match trailers.map(|trailers| clean_response_trailers(exchange, trailers)) {
                    Some(trailers) => self.stream.send_trailers(head::trailers(&trailers)),
                    None => self.stream.send_data(Bytes::new(), true),
                };
                return Poll::Ready(sent.map_err(|_| "client_aborted"));
            }
            let wanted = self.source.chunk().len().min(CHUNK_BYTES);
            self.stream.reserve_capacity(wanted);
            while self.stream.capacity() == 0 {
                match ready!(self.stream.poll_capacity(cx)) {
                    Some(Ok(_)) => {}
                    _ => return Poll::Ready(Err("client_aborted")),
                }
            }
            let count = wanted.min(self.stream.capacity());
            let chunk = Part::copy_of(self.source.chunk().get(..count).unwrap_or_default());
            self.stream.send_data(chunk, false).map_err(|_| "client_aborted")?;
            self.source.consume(count);
            self.sent += count as u64;
        }
    }
}
