//! Exchanges over HTTP/1.1 (RFC 9112): one at a time on a connection.

pub(crate) mod check;
mod connection;
mod request;
mod response;

use std::task::{Context, Poll, ready};

use cardea_clock::Clock;
use cardea_http::{
    BodyLength, Fields, Method, ResponseHead,
    h1::{Framing, HeadLimits, KeepAlive, wants_keep_alive},
};
use cardea_upstream::{Hold, InFlight};

pub(crate) use connection::{Connection, Kept};
use request::RequestWriter;
use response::HeadReader;

use super::{HeadError, OutgoingHead, SendError, Tunnel};
use crate::{
    body::{BodyError, BodySource},
    buffer::Buffer,
    framing::BodyReader,
};

/// One exchange. Its methods are those of [`super::UpstreamExchange`], which describes them.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// There until the response has ended.
    connection: Option<Connection>,
    inbound: Buffer,
    request: RequestWriter,
    head: HeadReader,
    body: BodyReader,
    framing: Framing,
    keep_alive: bool,
    /// How long the endpoint keeps the connection then.
    offer: KeepAlive,
    /// The response has no body whatever its head says, so bytes that follow it belong to nothing.
    hold: Option<Hold>,
}

impl Exchange {
    pub(super) fn begin(connection: Connection, head: OutgoingHead<'_>, limits: HeadLimits) -> Self {
        Self {
            connection: Some(connection),
            inbound: Buffer::new(),
            request: RequestWriter::new(head),
            head: HeadReader::new(head.method, limits),
            body: BodyReader::ended(),
            framing: Framing::None,
            keep_alive: false,
            offer: KeepAlive::default(),
            hold: None,
        }
    }

    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut impl BodySource,
    ) -> Poll<Result<(), SendError>> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(Ok(())) };
        self.request.poll_send(cx, &mut connection.transport, body)
    }

    pub(super) fn abandon_body(&mut self) {
        self.request.abandon_body();
    }

    pub(super) const fn is_unsent(&self) -> bool {
        self.request.is_unsent()
    }

    /// Once the response has ended, what is left of the request never is sent.
    pub(super) fn is_sent(&self) -> bool {
        self.connection.is_none() || self.request.is_sent()
    }

    pub(super) const fn is_stalled(&self) -> bool {
        self.request.is_stalled()
    }

    pub(super) const fn waits_for_room(&self) -> bool {
        self.head.waits_for_room()
    }

    pub(super) const fn outbound_bytes(&self) -> usize {
        self.request.outbound_bytes()
    }

    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        head: &mut ResponseHead,
        clock: &Clock,
    ) -> Poll<Result<(), HeadError>> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(Err(HeadError::EndedBefore)) };
        let framing = ready!(self.head.poll(cx, &mut connection.transport, &mut self.inbound, head))?;
        if let Some(framing) = framing {
            self.begin_response(head, framing, clock);
        }
        Poll::Ready(Ok(()))
    }

    /// The head of the final response is complete.
    fn begin_response(&mut self, head: &ResponseHead, framing: Framing, clock: &Clock) {
        self.framing = framing;
        self.keep_alive = wants_keep_alive(head.version, &head.fields) && head.status != 101;
        self.offer = KeepAlive::of(&head.fields);
        self.hold = match framing {
            _ if self.head.method() == Method::Head => Some(Hold::Always),
            // 204, 304, and a length of 0, behind which a handler may write a body all the same.
            Framing::None | Framing::Length(0) => Some(Hold::Sample),
            Framing::Length(_) | Framing::Chunked | Framing::UntilClose => None,
        };
        self.body = BodyReader::new(framing);
        // After a 101 the connection is a tunnel's.
        if self.body.is_ended() && head.status != 101 {
            self.finish(clock);
        }
    }

    pub(super) fn response_length(&self) -> BodyLength {
        self.framing.into()
    }

    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>, clock: &Clock) -> Poll<Result<bool, BodyError>> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(Ok(false)) };
        let more = ready!(self.body.poll_data(cx, &mut connection.transport, &mut self.inbound))?;
        if !more {
            self.finish(clock);
        }
        Poll::Ready(Ok(more))
    }

    pub(super) fn park(&mut self) {
        self.inbound.park();
    }

    pub(super) fn chunk(&self) -> &[u8] {
        self.inbound.filled().get(..self.body.available()).unwrap_or_default()
    }

    pub(super) fn consume(&mut self, count: usize) {
        self.body.consume(&mut self.inbound, count);
    }

    pub(super) fn trailers(&self) -> Option<&Fields> {
        self.body.trailers()
    }

    pub(super) fn note_surplus(&self) {
        if let Some(connection) = &self.connection {
            connection.note_surplus();
        }
    }

    /// Gives the connection back where nothing speaks against using it again: it is kept alive, the request was sent
    /// whole, and nothing came that was not asked for.
    fn finish(&mut self, clock: &Clock) {
        let Some(connection) = self.connection.take() else { return };
        if !self.inbound.is_empty() {
            connection.note_surplus();
        } else if self.keep_alive && self.request.is_whole() && self.framing != Framing::UntilClose {
            connection.give_back(clock.mono(), self.hold, self.offer);
        }
        self.inbound.release();
        self.request.release();
    }

    pub(super) fn into_tunnel(mut self, in_flight: InFlight) -> Option<Tunnel> {
        let (transport, permit) = self.connection.take()?.into_parts();
        Some(Tunnel { transport, received: self.inbound, counted: (in_flight, permit) })
    }
}
