//! Upstream exchanges: one request to an endpoint with its response, whatever protocol the endpoint speaks.
//!
//! Forwarding takes a [`Connection`], begins an [`UpstreamExchange`] on it, and then reads and writes that alone. Each protocol
//! has a folder of its own; what it does with its connections afterwards is its own business.

mod connect;
mod h1;
mod h2;
mod pooled;
mod protocol;

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use cardea_clock::{Clock, Mono};
use cardea_http::{BodyLength, Fields, Method, ResponseHead, h1::HeadLimits};
use cardea_upstream::{ConnectionPermit, Endpoint, FailureKind, InFlight};

pub use connect::measure_round_trip;
pub(crate) use connect::{ConnectError, Connected, connect};
pub(crate) use h1::check;
pub(crate) use h2::{Follower, Outcome, Part, join};
pub use pooled::Pooled;
pub use protocol::Protocol;
pub(crate) use protocol::{Offer, Spoken};

use crate::{
    body::{BodyError, BodySource},
    buffer::Buffer,
    mux::Fault,
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
    /// Whether who asks takes trailers.
    pub(crate) accepts_trailers: bool,
}

/// What connections and their exchanges are bound to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Of the heads of responses.
    pub(crate) head: HeadLimits,
    /// The most exchanges at a time on a connection that can be shared.
    pub(crate) streams_max: u32,
}

/// The right to one exchange on a connection to an endpoint.
#[derive(Debug)]
pub(crate) enum Connection {
    Http1(h1::Connection),
    Http2(h2::Connection),
}

impl Connection {
    /// One of this worker's that has room for an exchange: one that is shared, or one that was kept after an earlier exchange and
    /// still looks alive.
    pub(crate) fn kept(endpoint: &Arc<Endpoint<Pooled>>, offer: Offer, now: Mono) -> Option<Self> {
        if offer == Offer::Tunnel {
            return None;
        }
        if offer.has_http2()
            && let Some(shared) = h2::Connection::shared(endpoint)
        {
            return Some(Self::Http2(shared));
        }
        pooled::take(endpoint, now)
    }

    /// One that was just made.
    pub(crate) fn new(
        endpoint: &Arc<Endpoint<Pooled>>,
        connected: Connected,
        permit: ConnectionPermit,
        limits: Limits,
        clock: &Clock,
    ) -> Self {
        let Connected { transport, spoken, .. } = connected;
        match spoken {
            Spoken::Http1 => Self::Http1(h1::Connection::new(endpoint, transport, permit, clock.mono())),
            Spoken::Http2 => Self::Http2(h2::Connection::begin(endpoint, transport, permit, limits, clock)),
        }
    }

    /// Begins to send a request. The heads of its responses have to keep within `limits`, or within those that a shared connection
    /// began with.
    pub(crate) fn begin(self, head: OutgoingHead<'_>, limits: Limits) -> UpstreamExchange {
        match self {
            Self::Http1(connection) => {
                UpstreamExchange::Http1(h1::Exchange::begin(connection, head, limits.head))
            }
            Self::Http2(connection) => UpstreamExchange::Http2(h2::Exchange::begin(connection, head)),
        }
    }
}

/// One exchange with an endpoint. Its connection is kept for others at the end of the response if it can be used again; where
/// the exchange is dropped before, nothing of it can be taken for more than it is.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is a part of an allocation already; one more would be made for each request"
)]
pub(crate) enum UpstreamExchange {
    Http1(h1::Exchange),
    Http2(h2::Exchange),
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
    /// The endpoint has ended this exchange, or all of a connection that was alive meanwhile; nothing of a final response was
    /// received.
    Reset,
    /// The endpoint has processed nothing of the request (RFC 9113 §8.7).
    Unprocessed {
        /// Whether only because it takes no more exchanges on this connection.
        is_going_away: bool,
    },
    /// The head of the request is larger than the endpoint accepts (RFC 9113 §6.5.2).
    RequestTooLarge,
    /// It breaks a rule of HTTP.
    Malformed(Fault),
    /// There are more informational responses than one request may have.
    TooManyInformational,
}

impl HeadError {
    /// What failed at the endpoint, where it is to blame.
    pub(crate) const fn failure_kind(self) -> Option<FailureKind> {
        match self {
            Self::EndedBefore
            | Self::EndedAfterInformational
            | Self::EndedWithin
            | Self::Reset
            | Self::Unprocessed { is_going_away: false } => Some(FailureKind::Closed),
            Self::Malformed(_) | Self::TooManyInformational => Some(FailureKind::Malformed),
            Self::Unprocessed { is_going_away: true } | Self::RequestTooLarge => None,
        }
    }
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
            Self::Http2(exchange) => exchange.poll_send(cx, body),
        }
    }

    /// Sends nothing more of the body: the endpoint has decided without it.
    pub(crate) fn abandon_body(&mut self) {
        match self {
            Self::Http1(exchange) => exchange.abandon_body(),
            Self::Http2(exchange) => exchange.abandon_body(),
        }
    }

    /// Whether its connection goes on where the exchange is given up.
    pub(crate) const fn is_multiplexed(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    /// Whether the endpoint can have nothing of the request, or has said that it did nothing with it.
    pub(crate) const fn is_unsent(&self) -> bool {
        match self {
            Self::Http1(exchange) => exchange.is_unsent(),
            Self::Http2(exchange) => exchange.is_unsent(),
        }
    }

    /// Whether all of the request is sent, or what is left never will be.
    pub(crate) fn is_sent(&self) -> bool {
        match self {
            Self::Http1(exchange) => exchange.is_sent(),
            Self::Http2(exchange) => exchange.is_sent(),
        }
    }

    /// Whether something is there to be sent that the endpoint does not take.
    pub(crate) fn is_stalled(&self) -> bool {
        match self {
            Self::Http1(exchange) => exchange.is_stalled(),
            Self::Http2(exchange) => exchange.is_stalled(),
        }
    }

    /// Whether the head of the response is not received until the process has room for it.
    pub(crate) const fn waits_for_room(&self) -> bool {
        match self {
            Self::Http1(exchange) => exchange.waits_for_room(),
            Self::Http2(exchange) => exchange.waits_for_room(),
        }
    }

    /// How much memory is held for what is to be sent, in bytes, that belongs to this exchange alone.
    pub(crate) const fn outbound_bytes(&self) -> usize {
        match self {
            Self::Http1(exchange) => exchange.outbound_bytes(),
            Self::Http2(_) => 0,
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
            Self::Http2(exchange) => exchange.poll_head(cx, head),
        }
    }

    /// How long the body of the final response is, as far as its head says.
    pub(crate) fn response_length(&self) -> BodyLength {
        match self {
            Self::Http1(exchange) => exchange.response_length(),
            Self::Http2(exchange) => exchange.response_length(),
        }
    }

    /// See [`BodySource::poll_data`]. At the end of the body, the connection is kept for others if it can be used again.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>, clock: &Clock) -> Poll<Result<bool, BodyError>> {
        match self {
            Self::Http1(exchange) => exchange.poll_data(cx, clock),
            Self::Http2(exchange) => exchange.poll_data(cx),
        }
    }

    /// Holds no more memory than what was received needs, for as long as nothing is read of it.
    pub(crate) fn park(&mut self) {
        match self {
            Self::Http1(exchange) => exchange.park(),
            Self::Http2(_) => {}
        }
    }

    /// See [`BodySource::chunk`].
    pub(crate) fn chunk(&self) -> &[u8] {
        match self {
            Self::Http1(exchange) => exchange.chunk(),
            Self::Http2(exchange) => exchange.chunk(),
        }
    }

    /// See [`BodySource::consume`].
    pub(crate) fn consume(&mut self, count: usize) {
        match self {
            Self::Http1(exchange) => exchange.consume(count),
            Self::Http2(exchange) => exchange.consume(count),
        }
    }

    /// See [`BodySource::trailers`].
    pub(crate) fn trailers(&self) -> Option<&Fields> {
        match self {
            Self::Http1(exchange) => exchange.trailers(),
            Self::Http2(exchange) => exchange.trailers(),
        }
    }

    /// Notes that what came is no response. On a connection that was used before, it may be what was left of another one.
    pub(crate) fn note_surplus(&self) {
        match self {
            Self::Http1(exchange) => exchange.note_surplus(),
            Self::Http2(_) => {}
        }
    }

    /// The tunnel after a `101 Switching Protocols`, if the connection is still there.
    pub(crate) fn into_tunnel(self, in_flight: InFlight) -> Option<Tunnel> {
        match self {
            Self::Http1(exchange) => exchange.into_tunnel(in_flight),
            Self::Http2(_) => None,
        }
    }
}
