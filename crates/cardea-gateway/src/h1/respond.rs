//! How a response is written to a client of HTTP/1.1 or 1.0.

use std::{
    io::IoSlice,
    task::{Context, Poll, ready},
};

use cardea_http::{
    BodyLength, Fields, Known, Version,
    h1::{write_chunk_size, write_last_chunk, write_response_head},
};

use super::{Connection, DISCARD_BYTES_MAX};
use crate::{
    buffer::Outbound,
    date,
    downstream::{Aborted, Downstream},
    exchange::Exchange,
    gateway::Gateway,
    respond::{self, Cut, ResponseSink},
    response::{Response, ResponseBody},
    timer::Timer,
};

/// Parts of a body up to this size are copied behind the head, so that one system call sends both.
const COPY_BYTES_MAX: usize = 8 * 1024;

/// What is gathered before it is sent, in bytes.
const GATHER_BYTES: usize = 16 * 1024;

/// A response on its way.
struct Writer<'a> {
    connection: &'a mut Connection,
    gateway: &'a Gateway,
    outbound: Outbound,
    chunked: bool,
    keep_alive: bool,
    sent_bytes: u64,
}

/// Sends the response; `true` if the connection can be used again.
pub(super) async fn respond(
    connection: &mut Connection,
    gateway: &Gateway,
    response: &mut Response,
    exchange: &mut Exchange,
    timer: &mut Timer,
) -> bool {
    let mut memory = std::mem::take(&mut exchange.scratch);
    memory.clear();
    connection.within_response = true;
    let outbound = Outbound::new(memory);
    let mut writer =
        Writer { connection, gateway, outbound, chunked: false, keep_alive: false, sent_bytes: 0 };
    let whole = respond::respond(gateway, response, exchange, &mut writer, timer).await;
    let Writer { connection, outbound, keep_alive, .. } = writer;
    // What was cut short must not look whole: the connection is reset when it is dropped.
    connection.within_response = !whole;
    exchange.scratch = outbound.into_memory();
    whole && keep_alive
}

impl Writer<'_> {
    /// Whether the connection can be used again after `response`.
    fn keeps_alive(&self, response: &Response, delimited_by_close: bool) -> bool {
        let connection = &*self.connection;
        // A body that nobody wants is thrown away if it is small; the service may still want it.
        let wanted = matches!(response.body, ResponseBody::Service(_));
        let discardable = connection.body.is_ended()
            || (!connection.expects_continue && (wanted || connection.body.left() <= DISCARD_BYTES_MAX));
        connection.keep_alive
            && !response.close
            && !delimited_by_close
            && discardable
            && !self.gateway.is_stopping()
    }

    fn encode_head(&mut self, response: &Response) {
        let version = self.connection.version;
        let out = self.outbound.more();
        out.append(&mut self.connection.take_informational());
        let fields = &response.head.fields;
        write_response_head(out, response.head.status, fields);
        out.truncate(out.len().saturating_sub(2));
        if fields.get(Known::Date).is_none() {
            out.extend_from_slice(b"date: ");
            date::write(self.gateway.clock.wall(), out);
            out.extend_from_slice(b"\r\n");
        }
        if self.chunked {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
        }
        match (self.keep_alive, version) {
            (false, _) => out.extend_from_slice(b"connection: close\r\n"),
            (true, Version::Http10) => out.extend_from_slice(b"connection: keep-alive\r\n"),
            (true, _) => {}
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Sends what was gathered, and `chunk` behind it; ready with how much of `chunk` was sent.
    fn poll_send(&mut self, cx: &mut Context<'_>, chunk: &[u8]) -> Poll<Result<usize, Aborted>> {
        let gathered = self.outbound.unsent();
        let transport = &mut self.connection.transport;
        let sent = match (gathered.is_empty(), chunk.is_empty()) {
            (true, _) => transport.poll_send(cx, &[IoSlice::new(chunk)]),
            (false, true) => transport.poll_send(cx, &[IoSlice::new(gathered)]),
            (false, false) => transport.poll_send(cx, &[IoSlice::new(gathered), IoSlice::new(chunk)]),
        };
        let sent = ready!(sent).map_err(|_| Aborted)?;
        self.sent_bytes += sent as u64;
        let of_gathered = sent.min(gathered.len());
        self.outbound.advance(of_gathered);
        Poll::Ready(Ok(sent - of_gathered))
    }
}

impl ResponseSink for Writer<'_> {
    fn downstream(&mut self) -> &mut dyn Downstream {
        self.connection
    }

    fn begin(&mut self, response: &mut Response, has_body: bool) -> Result<(), Aborted> {
        let length_known = response.body.length() != BodyLength::Unknown;
        let is_framed = self.connection.version >= Version::Http11;
        self.chunked = has_body && !length_known && is_framed;
        self.keep_alive = self.keeps_alive(response, has_body && !length_known && !is_framed);
        self.encode_head(response);
        Ok(())
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Aborted>> {
        while self.outbound.unsent().len() >= GATHER_BYTES {
            ready!(self.poll_send(cx, &[]))?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, chunk: &[u8]) -> Poll<Result<usize, Aborted>> {
        if !self.chunked && chunk.len() > COPY_BYTES_MAX {
            // It is better sent from where it lies.
            return self.poll_send(cx, chunk);
        }
        let outbound = self.outbound.more();
        if self.chunked {
            write_chunk_size(outbound, chunk.len());
        }
        outbound.extend_from_slice(chunk);
        if self.chunked {
            outbound.extend_from_slice(b"\r\n");
        }
        Poll::Ready(Ok(chunk.len()))
    }

    fn takes_trailers(&self) -> bool {
        self.chunked && self.connection.takes_trailers
    }

    fn end(&mut self, trailers: Option<&Fields>) -> Result<(), Aborted> {
        if self.chunked {
            write_last_chunk(self.outbound.more(), trailers);
        }
        Ok(())
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Aborted>> {
        while !self.outbound.is_empty() {
            ready!(self.poll_send(cx, &[]))?;
        }
        self.connection.transport.poll_flush(cx).map_err(|_| Aborted)
    }

    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<Aborted> {
        match self.poll_flush(cx) {
            Poll::Ready(Err(aborted)) => return Poll::Ready(aborted),
            // Nothing else is read or written before the client takes what was gathered.
            Poll::Pending if !self.outbound.is_empty() => return Poll::Pending,
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        self.connection.poll_background(cx)
    }

    /// The connection is reset when it is dropped.
    fn cut(&mut self, _: Cut, _: &mut Exchange) {}

    fn sent(&self) -> u64 {
        self.sent_bytes
    }

    fn is_stalled(&self) -> bool {
        !self.outbound.is_empty()
    }

    fn held_bytes(&self) -> usize {
        self.outbound.memory_bytes()
    }
}
