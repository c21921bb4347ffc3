//! Writes a response to a client of HTTP/1.1 or 1.0.

use std::{
    io::IoSlice,
    task::{Context, Poll, ready},
};

use cardea_clock::Mono;
use cardea_http::{
    Known, Version,
    h1::{Framing, write_chunk_size, write_last_chunk, write_response_head},
};

use super::{Connection, DISCARD_BYTES_MAX};
use crate::{
    buffer::Outbound,
    date,
    downstream::Downstream,
    exchange::Exchange,
    fields::clean_response_trailers,
    forward::request_deadline,
    gateway::Gateway,
    response::{Response, ResponseBody, has_body, set_length},
    streams::{StreamWatch, TerminationReason},
    timer::Timer,
};

/// Parts of a body up to this size are copied behind the head, so that one system call sends both.
const COPY_BYTES_MAX: usize = 8 * 1024;

/// What is gathered before it is sent, in bytes.
const GATHER_BYTES: usize = 16 * 1024;

/// A response on its way.
struct Writer {
    body: ResponseBody,
    outbound: Outbound,
    chunked: bool,
    ended: bool,
    trailers: bool,
    body_bytes: u64,
    sent_bytes: u64,
}

/// Why a response was cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Client,
    Service,
    Stalled,
    Ended(TerminationReason),
}

/// Sends the response; `true` if the connection can be used again.
pub(super) async fn respond(
    connection: &mut Connection,
    gateway: &Gateway,
    mut response: Response,
    exchange: &mut Exchange,
    timer: &mut Timer,
) -> bool {
    exchange.response.status = response.head.status;
    let has_body = has_body(exchange.head.method, response.head.status);
    let framing = response.body.framing();
    let length_known = matches!(framing, Framing::None | Framing::Length(_));
    if has_body {
        set_length(&mut response.head, framing);
    }
    let chunked = has_body && !length_known && connection.version >= Version::Http11;
    let delimited_by_close = has_body && !length_known && !chunked;
    // A body that nobody wants is thrown away if it is small; the service may still want it.
    let wanted = matches!(response.body, ResponseBody::Service(_));
    let discardable = connection.body.is_ended()
        || (!connection.expects_continue && (wanted || connection.body.left() <= DISCARD_BYTES_MAX));
    let keep_alive = connection.keep_alive
        && !response.close
        && !delimited_by_close
        && discardable
        && !gateway.is_stopping();

    let mut outbound = std::mem::take(&mut exchange.scratch);
    outbound.clear();
    outbound.append(&mut connection.take_informational());
    encode_head(&mut outbound, connection.version, &response, gateway, chunked, keep_alive);
    // Its memory serves the next response.
    exchange.response_head = std::mem::take(&mut response.head);
    let mut writer = Writer {
        body: if has_body { response.body } else { ResponseBody::Empty },
        outbound: Outbound::new(outbound),
        chunked,
        ended: false,
        trailers: connection.takes_trailers,
        body_bytes: 0,
        sent_bytes: 0,
    };
    connection.within_response = true;
    let watch = StreamWatch::new(gateway);
    let result = write(&mut writer, connection, exchange, watch, timer).await;
    // What was cut short must not look whole: the connection is reset when it is dropped.
    connection.within_response = result.is_err();
    exchange.response.body_bytes = writer.body_bytes;
    exchange.response.complete = result.is_ok();
    exchange.scratch = writer.outbound.into_memory();
    match result {
        Ok(()) => keep_alive,
        Err(cut) => {
            exchange.response.reason = Some(match cut {
                Cut::Client => "client_aborted",
                Cut::Service => "upstream_aborted",
                Cut::Stalled => "response_timeout",
                Cut::Ended(end) => end.code(),
            });
            false
        }
    }
}

fn encode_head(
    out: &mut Vec<u8>,
    version: Version,
    response: &Response,
    gateway: &Gateway,
    chunked: bool,
    keep_alive: bool,
) {
    let fields = &response.head.fields;
    write_response_head(out, response.head.status, fields);
    out.truncate(out.len().saturating_sub(2));
    if fields.get(Known::Date).is_none() {
        out.extend_from_slice(b"date: ");
        date::write(gateway.clock.wall(), out);
        out.extend_from_slice(b"\r\n");
    }
    if chunked {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    match (keep_alive, version) {
        (false, _) => out.extend_from_slice(b"connection: close\r\n"),
        (true, Version::Http10) => out.extend_from_slice(b"connection: keep-alive\r\n"),
        (true, _) => {}
    }
    out.extend_from_slice(b"\r\n");
}

async fn write(
    writer: &mut Writer,
    connection: &mut Connection,
    exchange: &Exchange,
    mut watch: StreamWatch<'_>,
    timer: &mut Timer,
) -> Result<(), Cut> {
    let idle =
        exchange.route().map_or(crate::model::RESPONSE_BODY_IDLE, |route| route.timeouts.response_body_idle);
    let whole = exchange.route().map_or(Mono::MAX, |route| request_deadline(route, exchange));
    let mut progress = (u64::MAX, u64::MAX);
    let mut deadline = Mono::MAX;
    std::future::poll_fn(|cx| {
        if let Poll::Ready(result) = writer.poll(cx, connection, exchange) {
            return Poll::Ready(result);
        }
        if let Poll::Ready(end) = watch.poll(cx, exchange) {
            return Poll::Ready(Err(Cut::Ended(end)));
        }
        let now = (writer.body_bytes, writer.sent_bytes);
        let moved = now != progress;
        if moved {
            progress = now;
            deadline = timer.now().saturating_add(idle).min(whole);
        }
        watch.note(writer.outbound.memory_bytes(), writer.waits_for_client(), moved, timer.now());
        timer.poll_until(cx, deadline).map(|_| Err(Cut::Stalled))
    })
    .await
}

impl Writer {
    /// Whether something is held that the client does not take.
    fn waits_for_client(&self) -> bool {
        !self.outbound.unsent().is_empty() || !self.body.chunk().is_empty()
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
        exchange: &Exchange,
    ) -> Poll<Result<(), Cut>> {
        loop {
            let direct = self.gather(cx, connection, exchange)?;
            let head = self.outbound.unsent();
            let chunk = if direct { self.body.chunk() } else { &[] };
            let sent = match (head.is_empty(), chunk.is_empty()) {
                (true, true) if self.ended => {
                    return connection.transport.poll_flush(cx).map_err(|_| Cut::Client);
                }
                (true, true) => {
                    // Nothing to send until the service says more: meanwhile the client may leave.
                    let lost = matches!(connection.transport.poll_flush(cx), Poll::Ready(Err(_)));
                    if lost || connection.poll_background(cx).is_ready() {
                        return Poll::Ready(Err(Cut::Client));
                    }
                    return Poll::Pending;
                }
                (false, true) => connection.transport.poll_send(cx, &[IoSlice::new(head)]),
                (true, false) => connection.transport.poll_send(cx, &[IoSlice::new(chunk)]),
                (false, false) => {
                    connection.transport.poll_send(cx, &[IoSlice::new(head), IoSlice::new(chunk)])
                }
            };
            if sent.is_pending() && self.body.poll_request(cx, connection).is_err() {
                // A client may send its whole request before it reads: were that held back, both would wait.
                return Poll::Ready(Err(Cut::Client));
            }
            let sent = ready!(sent).map_err(|_| Cut::Client)?;
            self.sent_bytes += sent as u64;
            let of_outbound = sent.min(head.len());
            self.outbound.advance(of_outbound);
            if sent > of_outbound {
                self.body_bytes += (sent - of_outbound) as u64;
                self.body.consume(sent - of_outbound);
            }
        }
    }

    /// Moves what the body has behind the head; `true` if there is a chunk that is better sent from where it lies.
    fn gather(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
        exchange: &Exchange,
    ) -> Result<bool, Cut> {
        while !self.ended && self.outbound.unsent().len() < GATHER_BYTES {
            match self.body.poll_data(cx, connection) {
                Poll::Ready(Ok(true)) => {
                    let chunk = self.body.chunk();
                    if !self.chunked && chunk.len() > COPY_BYTES_MAX {
                        return Ok(true);
                    }
                    let count = chunk.len();
                    let outbound = self.outbound.more();
                    if self.chunked {
                        write_chunk_size(outbound, count);
                    }
                    outbound.extend_from_slice(chunk);
                    if self.chunked {
                        outbound.extend_from_slice(b"\r\n");
                    }
                    self.body_bytes += count as u64;
                    self.body.consume(count);
                }
                Poll::Ready(Ok(false)) => {
                    self.ended = true;
                    if self.chunked {
                        let trailers = self.body.trailers().filter(|_| self.trailers);
                        let trailers = trailers.map(|trailers| clean_response_trailers(exchange, trailers));
                        write_last_chunk(self.outbound.more(), trailers.as_ref());
                    }
                }
                Poll::Ready(Err(_)) if self.body.client_failed() => return Err(Cut::Client),
                Poll::Ready(Err(_)) => return Err(Cut::Service),
                Poll::Pending => break,
            }
        }
        Ok(false)
    }
}
