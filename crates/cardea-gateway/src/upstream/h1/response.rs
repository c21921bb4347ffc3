//! How the heads of responses are read from a connection of HTTP/1.1.

use std::task::{Context, Poll};

use cardea_http::{
    Method, ResponseHead,
    h1::{Framing, HeadLimits, ResponseDecoder, response_framing},
};

use crate::{buffer::Buffer, memory::Room, mux::Fault, transport::Transport, upstream::HeadError};

/// How many informational responses one request may have: beyond that a service could fill our memory with them.
const INFORMATIONAL_MAX: u32 = 32;

/// And how much they may be together, in bytes: what a client does not take of them stays with us, and of HTTP/2 no window
/// holds them back.
const INFORMATIONAL_BYTES_MAX: usize = 64 * 1024;

/// Reads the heads of the responses to one request.
#[derive(Debug)]
pub(super) struct HeadReader {
    decoder: ResponseDecoder,
    method: Method,
    informational: u32,
    informational_bytes: usize,
    room: Room,
}

impl HeadReader {
    /// For the responses to a request of `method`.
    pub(super) fn new(method: Method, limits: HeadLimits) -> Self {
        Self {
            decoder: ResponseDecoder::new(limits),
            method,
            informational: 0,
            informational_bytes: 0,
            room: Room::new(),
        }
    }

    /// Whether it receives nothing until the process has room.
    pub(super) const fn waits_for_room(&self) -> bool {
        self.room.is_awaited()
    }

    pub(super) const fn method(&self) -> Method {
        self.method
    }

    /// Receives a head. Ready with the framing of the body behind it; with none if it is an informational one.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        inbound: &mut Buffer,
        head: &mut ResponseHead,
    ) -> Poll<Result<Option<Framing>, HeadError>> {
        loop {
            if !inbound.is_empty() {
                match self.decoder.decode(inbound.filled(), head) {
                    Ok(Some(consumed)) => {
                        inbound.consume(consumed);
                        return Poll::Ready(self.accept(head, consumed));
                    }
                    Ok(None) => {}
                    Err(error) => return Poll::Ready(Err(HeadError::Malformed(Fault::Response(error)))),
                }
            }
            let received = match inbound.poll_room(cx, &mut self.room) {
                Poll::Ready(()) => {
                    if inbound.is_full() {
                        inbound.grow(inbound.len() * 2);
                    }
                    transport.poll_recv(cx, inbound)
                }
                Poll::Pending => Poll::Pending,
            };
            match received {
                Poll::Ready(Ok(count)) if count > 0 => {}
                Poll::Ready(_) => return Poll::Ready(Err(self.ended(inbound.is_empty()))),
                Poll::Pending => {
                    inbound.park();
                    return Poll::Pending;
                }
            }
        }
    }

    /// What the end of the connection means, where nothing of the next head was received or a part of it.
    const fn ended(&self, is_between: bool) -> HeadError {
        match (is_between, self.informational) {
            (false, _) => HeadError::EndedWithin,
            (true, 0) => HeadError::EndedBefore,
            (true, _) => HeadError::EndedAfterInformational,
        }
    }

    /// `head` is complete, and came as so many bytes.
    fn accept(&mut self, head: &ResponseHead, bytes: usize) -> Result<Option<Framing>, HeadError> {
        self.decoder.reset();
        // Of informational responses too: what follows one that claims a body has two readings.
        let framing = response_framing(head, self.method)
            .map_err(|error| HeadError::Malformed(Fault::Response(error)))?;
        if head.status >= 200 || head.status == 101 {
            return Ok(Some(framing));
        }
        self.informational += 1;
        self.informational_bytes += bytes;
        if self.informational > INFORMATIONAL_MAX || self.informational_bytes > INFORMATIONAL_BYTES_MAX {
            return Err(HeadError::TooManyInformational);
        }
        Ok(None)
    }
}
