//! A response on its way to the client, wherever it comes from.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use cardea_http::{BodyLength, Fields, Known, ResponseHead, declared_length};

use crate::{
    body::BodyError,
    downstream::Downstream,
    forward::{self, Attempt},
    grpc::RefusedCall,
    tarpit::{Drip, HeldRefusal},
    upstream::Tunnel,
};

/// What the driver of a connection has to do.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Send this response.
    Respond(Response),
    /// Send this `101 Switching Protocols`, then carry bytes both ways.
    Tunnel(ResponseHead, Box<Tunnel>),
    /// Give the request back, and send its refusal later.
    Hold(Box<HeldRefusal>),
    /// The client is gone, or gets no answer: end the connection (or the stream) at once.
    Close,
}

/// What the driver of a connection writes to the client.
#[derive(Debug)]
pub(crate) struct Response {
    /// Without fields that frame the message, but for a `Content-Length` that holds.
    pub(crate) head: ResponseHead,
    pub(crate) body: ResponseBody,
    /// The connection must not be used after this response.
    pub(crate) close: bool,
    /// How it ends a gRPC call that it refuses. The body is empty then.
    pub(crate) refused_call: Option<Box<RefusedCall>>,
}

impl Response {
    pub(crate) fn new(head: ResponseHead, body: ResponseBody) -> Self {
        Self { head, body, close: false, refused_call: None }
    }
}

/// Where the octets of a response come from. Read like a
/// [`BodySource`](crate::body::BodySource).
#[derive(Debug)]
pub(crate) enum ResponseBody {
    Empty,
    Bytes {
        bytes: Arc<[u8]>,
        consumed: usize,
    },
    Service(Box<Attempt>),
    /// Sent slowly.
    Drip(Box<Drip>),
}

impl ResponseBody {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::bytes(text.into().into_bytes().into())
    }

    pub(crate) const fn bytes(bytes: Arc<[u8]>) -> Self {
        Self::Bytes { bytes, consumed: 0 }
    }

    /// How long the body is, as far as is known before it has ended.
    pub(crate) fn length(&self) -> BodyLength {
        match self {
            Self::Empty => BodyLength::Exact(0),
            Self::Bytes { bytes, .. } => BodyLength::Exact(bytes.len() as u64),
            Self::Service(attempt) => attempt.response_length(),
            Self::Drip(drip) => BodyLength::Exact(drip.len() as u64),
        }
    }

    /// Ready with `true` once there is a chunk, with `false` at the end. What is left of the request's body is sent
    /// to the service meanwhile.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
        request: &mut dyn Downstream,
    ) -> Poll<Result<bool, BodyError>> {
        match self {
            Self::Empty => Poll::Ready(Ok(false)),
            Self::Bytes { bytes, consumed } => Poll::Ready(Ok(*consumed < bytes.len())),
            Self::Service(attempt) => attempt.poll_data(cx, request),
            Self::Drip(drip) => drip.poll_data(cx).map(Ok),
        }
    }

    /// Goes on sending the request while the client takes no more of the response.
    pub(crate) fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
        request: &mut dyn Downstream,
    ) -> Result<(), BodyError> {
        match self {
            Self::Empty | Self::Bytes { .. } | Self::Drip(_) => Ok(()),
            Self::Service(attempt) => attempt.poll_request(cx, request),
        }
    }

    /// Holds no more memory than what was received needs, for as long as nothing is read of it.
    pub(crate) fn park(&mut self) {
        if let Self::Service(attempt) = self {
            attempt.park();
        }
    }

    /// Gives up what is left of it, because the client has.
    pub(crate) fn abandon(self, client: &dyn Downstream) {
        if let Self::Service(attempt) = self {
            forward::abandon(attempt, true, client);
        }
    }

    /// Whether it was the client that ended the exchange early.
    pub(crate) fn client_failed(&self) -> bool {
        matches!(self, Self::Service(attempt) if attempt.client_failed())
    }

    pub(crate) fn chunk(&self) -> &[u8] {
        match self {
            Self::Empty => &[],
            Self::Bytes { bytes, consumed } => bytes.get(*consumed..).unwrap_or_default(),
            Self::Service(attempt) => attempt.chunk(),
            Self::Drip(drip) => drip.chunk(),
        }
    }

    pub(crate) fn consume(&mut self, count: usize) {
        match self {
            Self::Empty => {}
            Self::Bytes { bytes, consumed } => *consumed = (*consumed + count).min(bytes.len()),
            Self::Service(attempt) => attempt.consume(count),
            Self::Drip(drip) => drip.consume(count),
        }
    }

    pub(crate) fn trailers(&self) -> Option<&Fields> {
        match self {
            Self::Empty | Self::Bytes { .. } | Self::Drip(_) => None,
            Self::Service(attempt) => attempt.trailers(),
        }
    }
}

/// What a client may see of a response's body (RFC 9110 §6.4.1): nothing for HEAD, 204 and 304.
pub(crate) fn has_body(method: cardea_http::Method, status: u16) -> bool {
    method != cardea_http::Method::Head && status >= 200 && status != 204 && status != 304
}

/// Sets `Content-Length` to what is known, and removes it where nothing is.
pub(crate) fn set_length(head: &mut ResponseHead, length: BodyLength) {
    if cardea_http::set_length(&mut head.fields, length.stated()).is_err() {
        // A head at the limit of its memory. Without a length the client could not tell where the body ends.
        head.fields.clear();
        let _ = cardea_http::set_length(&mut head.fields, length.stated());
    }
}

/// Writes the length of a response without a body anew: that of the body which a GET would have had (RFC 9110 §8.6),
/// or none where there is never one.
pub(crate) fn renew_absent_length(head: &mut ResponseHead) {
    let length = if head.status == 204 { None } else { declared_length(&head.fields) };
    if cardea_http::set_length(&mut head.fields, length).is_err() {
        head.fields.remove(Known::ContentLength);
    }
}
