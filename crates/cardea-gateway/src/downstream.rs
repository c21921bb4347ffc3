//! What the pipeline may ask of the client's side of an exchange, whatever protocol it speaks.

use std::task::{Context, Poll};

use cardea_http::{BodyLength, ResponseHead};

use crate::body::BodySource;

/// The client gave up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Aborted;

/// The client's side: a request body to take in, and a way to speak before the response.
pub(crate) trait Downstream: BodySource + Send {
    /// How long the request body is, as far as its head says.
    fn body_length(&self) -> BodyLength;

    /// Bounds the request body to `bytes`; beyond it [`BodyError::TooLarge`](crate::body::BodyError::TooLarge).
    fn set_body_limit(&mut self, bytes: u64);

    /// How many octets of the body were found so far.
    fn body_bytes(&self) -> u64;

    /// Sends an informational response (RFC 9110 §15.2) ahead of the final one. Ready once it is on its way; it waits while
    /// the client has taken too little of what was sent before.
    fn poll_inform(&mut self, cx: &mut Context<'_>, head: &ResponseHead) -> Poll<Result<(), Aborted>>;

    /// Ready once the client's handshake is done: what was received is no replay then (RFC 8470 §3).
    fn poll_established(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Aborted>> {
        Poll::Ready(Ok(()))
    }

    /// Sends what was queued by [`poll_inform`](Downstream::poll_inform), and is ready once the client has given up.
    fn poll_background(&mut self, cx: &mut Context<'_>) -> Poll<Aborted>;

    /// Whether the client's connection goes on when the exchange is given up.
    fn is_multiplexed(&self) -> bool {
        false
    }

    /// Ready once the client has given up, while nobody takes its request's body: what it sends meanwhile is received as far
    /// as there is room, so that its end is seen behind that.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Aborted> {
        self.poll_background(cx)
    }

    /// Ready once the client has given up, while nothing of its request is wanted any more: what it sends is thrown away, up
    /// to `room` bytes, which become less by it.
    fn poll_left(&mut self, cx: &mut Context<'_>, _room: &mut usize) -> Poll<Aborted> {
        self.poll_gone(cx)
    }
}
