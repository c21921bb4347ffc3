//! How a request is written to a connection of HTTP/1.1.

use std::{
    io::IoSlice,
    task::{Context, Poll, ready},
};

use cardea_http::{
    BodyLength,
    h1::{write_chunk_size, write_last_chunk, write_request_head},
};

use crate::{
    body::{BodyError, BodySource},
    buffer::{Outbound, recycle_outbound, take_outbound},
    transport::Transport,
    upstream::{OutgoingHead, SendError},
};

/// Chunked data is gathered up to this size before it is sent, in bytes.
const GATHER_BYTES: usize = 16 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Body,
    /// The end of the body is written.
    Ended,
    /// The endpoint does not take it any more, or nobody gives it.
    Failed,
}

/// A request on its way out.
#[derive(Debug)]
pub(super) struct RequestWriter {
    outbound: Outbound,
    /// Nothing was given to the transport yet.
    unsent: bool,
    /// Nothing that was sent is kept back in the transport.
    flushed: bool,
    chunked: bool,
    state: State,
}

impl RequestWriter {
    pub(super) fn new(head: OutgoingHead<'_>) -> Self {
        let chunked = head.length == BodyLength::Unknown;
        let mut out = take_outbound();
        write_request_head(&mut out, head.method, head.target, head.fields);
        // What frames the message on this hop comes after all that could be configured.
        if chunked {
            out.truncate(out.len().saturating_sub(2));
            out.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
        }
        let state = if head.length.is_empty() { State::Ended } else { State::Body };
        Self { outbound: Outbound::new(out), unsent: true, flushed: false, chunked, state }
    }

    /// See [`crate::upstream::UpstreamExchange::is_sent`].
    pub(super) fn is_sent(&self) -> bool {
        self.state != State::Body && !self.is_stalled()
    }

    /// See [`crate::upstream::UpstreamExchange::is_unsent`].
    pub(super) const fn is_unsent(&self) -> bool {
        self.unsent
    }

    /// Whether the endpoint has got all of the request.
    pub(super) fn is_whole(&self) -> bool {
        self.state == State::Ended && self.is_sent()
    }

    pub(super) const fn is_stalled(&self) -> bool {
        !self.outbound.is_empty() || !self.flushed
    }

    pub(super) const fn outbound_bytes(&self) -> usize {
        self.outbound.memory_bytes()
    }

    /// See [`crate::upstream::UpstreamExchange::abandon_body`].
    pub(super) fn abandon_body(&mut self) {
        if self.state == State::Body {
            self.state = State::Failed;
        }
    }

    /// Gives the memory back.
    pub(super) fn release(&mut self) {
        recycle_outbound(std::mem::take(&mut self.outbound).into_memory());
    }

    /// See [`crate::upstream::UpstreamExchange::poll_send`].
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        body: &mut impl BodySource,
    ) -> Poll<Result<(), SendError>> {
        loop {
            let has_chunk = self.poll_body(cx, body).map_err(|error| {
                self.state = State::Failed;
                SendError::Body(error)
            })?;
            let unsent = self.outbound.unsent();
            if has_chunk && self.chunked && unsent.len() < GATHER_BYTES {
                self.gather(body);
                continue;
            }
            let chunk = if has_chunk && !self.chunked { body.chunk() } else { &[] };
            let sent = match (unsent.is_empty(), chunk.is_empty()) {
                (true, true) => return self.poll_flush(cx, transport),
                (false, true) => transport.poll_send(cx, &[IoSlice::new(unsent)]),
                (true, false) => transport.poll_send(cx, &[IoSlice::new(chunk)]),
                (false, false) => transport.poll_send(cx, &[IoSlice::new(unsent), IoSlice::new(chunk)]),
            };
            let of_outbound = unsent.len();
            self.flushed = false;
            let Ok(sent) = ready!(sent) else { return Poll::Ready(Err(self.fail())) };
            self.unsent &= sent == 0;
            self.outbound.advance(sent.min(of_outbound));
            if sent > of_outbound {
                body.consume(sent - of_outbound);
            }
        }
    }

    /// Whether `body` has a chunk now; notes its end.
    fn poll_body(&mut self, cx: &mut Context<'_>, body: &mut impl BodySource) -> Result<bool, BodyError> {
        if self.state != State::Body {
            return Ok(false);
        }
        match body.poll_data(cx) {
            Poll::Ready(Ok(false)) => {
                self.state = State::Ended;
                if self.chunked {
                    write_last_chunk(self.outbound.more(), body.trailers());
                }
                Ok(false)
            }
            Poll::Ready(more) => more,
            Poll::Pending => Ok(false),
        }
    }

    /// Frames a chunk behind what is to be sent.
    fn gather(&mut self, body: &mut impl BodySource) {
        let chunk = body.chunk();
        let count = chunk.len();
        let outbound = self.outbound.more();
        write_chunk_size(outbound, count);
        outbound.extend_from_slice(chunk);
        outbound.extend_from_slice(b"\r\n");
        body.consume(count);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>, transport: &mut Transport) -> Poll<Result<(), SendError>> {
        if ready!(transport.poll_flush(cx)).is_err() {
            return Poll::Ready(Err(self.fail()));
        }
        self.flushed = true;
        if self.state == State::Body {
            return Poll::Pending;
        }
        // The next request uses it while this one waits for its response.
        self.release();
        Poll::Ready(Ok(()))
    }

    fn fail(&mut self) -> SendError {
        self.state = State::Failed;
        self.outbound.clear();
        self.flushed = true;
        SendError::Endpoint
    }
}
