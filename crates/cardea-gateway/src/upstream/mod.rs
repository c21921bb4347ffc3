//! Upstream exchanges: one request to an endpoint with its response, whatever protocol the endpoint speaks.
//!
//! Forwarding takes a [`Connection`], begins an [`UpstreamExchange`] on it, and then reads and writes that alone. Each protocol
//! has a folder of its own; what it does with its connections afterwards is its own business.

mod connect;
mod h1;

use std::task::{Context, Poll};

use cardea_clock::{Clock, Mono};
use cardea_http::{BodyLength, Fields, Method, ResponseError, ResponseHead, h1::HeadLimits};
use cardea_upstream::{ConnectionPermit, Endpoint, InFlight};

pub use connect::measure_round_trip;
pub(crate) use connect::{ConnectError, Connected, connect};
pub use h1::Pooled;
pub(crate) use h1::check;

use crate::{
    body::{BodyError, BodySource},
    buffer::Buffer,
    transport::Transport,
};

/// The head of a request, as the endpoint is to get it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutgoingHead<'a> {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: &'a [u8],
    /// All fields but those that only frame the message on its connection.
    pub(crate) fields: &'a Fields,
    /// Of the body behind it.
    pub(crate) length: BodyLength,
}

/// The right to one exchange on a connection to an endpoint.
#[derive(Debug)]
pub(crate) enum Connection {
    Http1(h1::Connection),
}

impl Connection {
    /// One that was kept after an earlier exchange and still looks alive, as one of this worker's.
    pub(crate) fn kept(endpoint: &Endpoint<Pooled>, now: Mono) -> Option<Self> {
        h1::Connection::kept(endpoint, now).map(Self::Http1)
    }

    /// One that was just made.
    pub(crate) fn new(
        endpoint: &Endpoint<Pooled>,
        transport: Transport,
        permit: ConnectionPermit,
        now: Mono,
    ) -> Self {
        Self::Http1(h1::Connection::new(endpoint, transport, permit, now))
    }

    /// Begins to send a request. The heads of its responses have to keep within `limits`.
    pub(crate) fn begin(self, head: OutgoingHead<'_>, limits: HeadLimits) -> UpstreamExchange {
        match self {
            Self::Http1(connection) => UpstreamExchange::Http1(h1::Exchange::begin(connection, head, limits)),
        }
    }
}

/// One exchange with an endpoint. Its connection is kept for others at the end of the response if it can be used again; where
/// the exchange is dropped before, nothing of it can be taken for more than it is.
#[derive(Debug)]
pub(crate) enum UpstreamExchange {
    Http1(h1::Exchange),
}

/// The service's end of a tunnel.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) transport: Transport,
    /// What was received behind the head of the response.
    pub(crate) received: Buffer,
    /// It counts at the endpoint as long as it lasts.
    pub(crate) counted: (InFlight, ConnectionPermit),
}

/// Why the rest of a request is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendError {
    /// The endpoint takes no more of it. It may have answered all the same.
    Endpoint,
    /// Its body failed.
    Body(BodyError),
}

/// Why there is no head of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadError {
    /// The endpoint has ended the exchange; nothing of a response was received.
    EndedBefore,
    /// The endpoint has ended the exchange after informational responses, with nothing of a final one.
    EndedAfterInformational,
    /// The endpoint has ended the exchange within the head.
    EndedWithin,
    /// It breaks a rule of HTTP.
    Malformed(ResponseError),
    /// There are more informational responses than one request may have.
    TooManyInformational,
}

impl UpstreamExchange {
    /// Sends the request: its head, then what `body` gives. Ready when all is sent.
    ///
    /// # Errors
    /// Once; after that, nothing more is sent and the exchange is only good for receiving.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut impl BodySource,
    ) -> Poll<Result<(), SendError>> {
        match self {
            Self::Http1(exchange) => exchange.poll_send(cx, body),
        }
    }

    /// Sends nothing more of the body: the endpoint has decided without it.
    pub(crate) fn abandon_body(&mut self) {
        match self {
            Self::Http1(exchange) => exchange.abandon_body(),
        }
    }

    /// Whether the endpoint can have nothing of the request.
    pub(crate) const fn is_unsent(&self) -> bool {
        match self {
            Self::Http1(exchange) => exchange.is_unsent(),
        }
    }

    /// Whether all of the request is sent, or what is left never will be.
    pub(crate) fn is_sent(&self) -> bool {
        match self {
            Self::Http1(exchange) => exchange.is_sent(),
        }
    }

    /// Whether something is there to be sent that the endpoint does not take.
    pub(crate) fn is_stalled(&self) -> bool {
        match self {
            Self::Http1(exchange) => exchange.is_stalled(),
        }
    }

    /// Whether the head of the response is not received until the process has room for it.
    pub(crate) const fn waits_for_room(&self) -> bool {
        match self {
            Self::Http1(exchange) => exchange.waits_for_room(),
        }
    }

    /// How much memory is held for what is to be sent, in bytes.
    pub(crate) const fn outbound_bytes(&self) -> usize {
        match self {
            Self::Http1(exchange) => exchange.outbound_bytes(),
        }
    }

    /// Receives the head of a response into `head`: a final one or an informational one.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        head: &mut ResponseHead,
        clock: &Clock,
    ) -> Poll<Result<(), HeadError>> {
        match self {
            Self::Http1(exchange) => exchange.poll_head(cx, head, clock),
        }
    }

    /// How long the body of the final response is, as far as its head says.
    pub(crate) fn response_length(&self) -> BodyLength {
        match self {
            Self::Http1(exchange) => exchange.response_length(),
        }
    }

    /// See [`BodySource::poll_data`]. At the end of the body, the connection is kept for others if it can be used again.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>, clock: &Clock) -> Poll<Result<bool, BodyError>> {
        match self {
            Self::Http1(exchange) => exchange.poll_data(cx, clock),
        }
    }

    /// Holds no more memory than what was received needs, for as long as nothing is read of it.
    pub(crate) fn park(&mut self) {
        match self {
            Self::Http1(exchange) => exchange.park(),
        }
    }

    /// See [`BodySource::chunk`].
    pub(crate) fn chunk(&self) -> &[u8] {
        match self {
            Self::Http1(exchange) => exchange.chunk(),
        }
    }

    /// See [`BodySource::consume`].
    pub(crate) fn consume(&mut self, count: usize) {
        match self {
            Self::Http1(exchange) => exchange.consume(count),
        }
    }

    /// See [`BodySource::trailers`].
    pub(crate) fn trailers(&self) -> Option<&Fields> {
        match self {
            Self::Http1(exchange) => exchange.trailers(),
        }
    }

    /// Notes that what came is no response. On a connection that was used before, it may be what was left of another one.
    pub(crate) fn note_surplus(&self) {
        match self {
            Self::Http1(exchange) => exchange.note_surplus(),
        }
    }

    /// The tunnel after a `101 Switching Protocols`, if the connection is still there.
    pub(crate) fn into_tunnel(self, in_flight: InFlight) -> Option<Tunnel> {
        match self {
            Self::Http1(exchange) => exchange.into_tunnel(in_flight),
        }
    }
}
