//! What the pipeline may ask of the client's side of an exchange, whatever protocol it speaks.

use std::task::{Context, Poll};

use cardea_http::{Fields, ResponseHead, h1::Framing};

/// Why a body did not arrive whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    /// The peer ended or reset the stream.
    #[error("the peer gave up before the body was complete")]
    Aborted,
    /// The framing is broken; the reason code of the codec.
    #[error("the body is malformed: {0}")]
    Malformed(&'static str),
    /// More than the limit in force.
    #[error("the body is larger than the limit")]
    TooLarge,
}

/// The client gave up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Aborted;

/// The client's side: a request body to take in, and a way to speak before the response.
///
/// Data is read in three steps: [`poll_data`](Downstream::poll_data) says whether there is some,
/// [`chunk`](Downstream::chunk) shows it in place, [`consume`](Downstream::consume) lets go of it.
/// Nothing is read from the client before it is asked for: that is the back-pressure.
pub(crate) trait Downstream: Send {
    /// How the request body is delimited; `Chunked` where its length isn't known.
    fn framing(&self) -> Framing;

    /// Bounds the request body to `bytes`; beyond it [`BodyError::TooLarge`].
    fn set_body_limit(&mut self, bytes: u64);

    /// Ready with `true` once [`chunk`](Downstream::chunk) is not empty, with `false` at the end of the body.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, BodyError>>;

    /// What was received and not consumed.
    fn chunk(&self) -> &[u8];

    /// Lets go of the first `count` bytes of the chunk.
    fn consume(&mut self, count: usize);

    /// How many octets of the body were found so far.
    fn body_bytes(&self) -> u64;

    /// The trailer section, once the body has ended.
    fn trailers(&self) -> Option<&Fields>;

    /// Sends an informational response (RFC 9110 §15.2) ahead of the final one.
    fn inform(&mut self, head: &ResponseHead);

    /// Ready once the client's handshake is done: what was received is no replay then (RFC 8470 §3).
    fn poll_established(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Aborted>> {
        Poll::Ready(Ok(()))
    }

    /// Sends what was queued by [`inform`](Downstream::inform), and is ready once the client has given up.
    fn poll_background(&mut self, cx: &mut Context<'_>) -> Poll<Aborted>;
}
