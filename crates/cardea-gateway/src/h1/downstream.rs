//! The client's side of an exchange over HTTP/1.1: the request's body, and informational responses.

use std::{
    io::IoSlice,
    task::{Context, Poll},
};

use cardea_http::{BodyLength, Fields, ResponseHead, Version, h1::write_response_head};

use super::Connection;
use crate::{
    body::{BodyError, BodySource},
    downstream::{Aborted, Downstream},
};

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

    /// What is queued is bounded by how much of them a request may have.
    fn poll_inform(&mut self, _: &mut Context<'_>, head: &ResponseHead) -> Poll<Result<(), Aborted>> {
        // A client of HTTP/1.0 knows no such responses (RFC 9110 §15.2).
        if self.version >= Version::Http11 {
            write_response_head(&mut self.informational, head.status, &head.fields);
            self.informational_held.set(self.informational.capacity());
        }
        Poll::Ready(Ok(()))
    }

    fn poll_established(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Aborted>> {
        self.transport.poll_established(cx).map_err(|_| Aborted)
    }

    fn poll_background(&mut self, cx: &mut Context<'_>) -> Poll<Aborted> {
        if self.poll_informational(cx).is_err() {
            return Poll::Ready(Aborted);
        }
        // While a body is awaited, reading is up to who wants it.
        if self.body.is_ended() { self.poll_ahead(cx) } else { Poll::Pending }
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Aborted> {
        if self.poll_informational(cx).is_err() {
            return Poll::Ready(Aborted);
        }
        self.poll_ahead(cx)
    }

    fn poll_left(&mut self, cx: &mut Context<'_>, room: &mut usize) -> Poll<Aborted> {
        if self.poll_informational(cx).is_err() {
            return Poll::Ready(Aborted);
        }
        self.inbound.consume(usize::MAX);
        while *room > 0 {
            match self.transport.poll_recv(cx, &mut self.inbound) {
                Poll::Ready(Ok(count)) if count > 0 => *room = room.saturating_sub(count),
                Poll::Ready(_) => return Poll::Ready(Aborted),
                Poll::Pending => break,
            }
            self.inbound.consume(usize::MAX);
        }
        self.inbound.release();
        Poll::Pending
    }
}

impl Connection {
    /// Receives what the client sends ahead; one that goes on is not read further. Ready once the client has given up.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<Aborted> {
        while !self.inbound.is_full() {
            let received = match self.inbound.poll_room(cx, &mut self.room) {
                Poll::Ready(()) => self.transport.poll_recv(cx, &mut self.inbound),
                Poll::Pending => Poll::Pending,
            };
            match received {
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

    /// What is queued, for whoever sends it with more.
    pub(super) fn take_informational(&mut self) -> Vec<u8> {
        self.informational_held.set(0);
        std::mem::take(&mut self.informational)
    }

    /// Sends what is queued, as far as the client takes it.
    fn poll_informational(&mut self, cx: &mut Context<'_>) -> Result<(), Aborted> {
        while !self.informational.is_empty() {
            match self.transport.poll_send(cx, &[IoSlice::new(&self.informational)]) {
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
