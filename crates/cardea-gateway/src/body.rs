//! A body on its way, whoever sends it and in whatever protocol.

use std::task::{Context, Poll};

use cardea_http::{Fields, TrailerError, h1::ChunkedError};

/// Why a body did not arrive whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    /// The peer ended or reset the stream.
    #[error("the peer disconnected before the body was complete")]
    Aborted,
    /// The framing is broken.
    #[error("the body is malformed: {0}")]
    Malformed(#[from] MalformedBody),
    /// More than the limit in force.
    #[error("the body is larger than the limit")]
    TooLarge,
}

/// How the framing of a body is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MalformedBody {
    /// Its chunks.
    #[error(transparent)]
    Chunked(#[from] ChunkedError),
    /// Its trailer section, where that did not come in chunks.
    #[error(transparent)]
    Trailers(#[from] TrailerError),
    /// The framing between two parts of it does not fit into a buffer.
    #[error("the chunk framing is too large")]
    FramingTooLarge,
    /// It is not as long as the head says.
    #[error("the length disagrees with Content-Length")]
    LengthDisagrees,
    /// The stream that carries it, for this reason.
    #[error("the stream has failed: {0}")]
    Stream(&'static str),
}

impl MalformedBody {
    /// The stable code, for answers and logs.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Chunked(error) => error.code(),
            Self::Trailers(error) => error.code(),
            Self::FramingTooLarge => "chunk_framing_too_large",
            Self::LengthDisagrees => "content_length_disagrees",
            Self::Stream(code) => code,
        }
    }
}

/// Where a body comes from.
///
/// Data is read in three steps: [`poll_data`](BodySource::poll_data) says whether there is some,
/// [`chunk`](BodySource::chunk) shows it in place, [`consume`](BodySource::consume) lets go of it. Nothing is read from the
/// sender before it is asked for: that is the back-pressure.
pub(crate) trait BodySource {
    /// Ready with `true` once [`chunk`](BodySource::chunk) is not empty, with `false` at the end of the body.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, BodyError>>;

    /// What was received and not consumed.
    fn chunk(&self) -> &[u8];

    /// Lets go of the first `count` bytes of the chunk.
    fn consume(&mut self, count: usize);

    /// The trailer section, once the body has ended.
    fn trailers(&self) -> Option<&Fields>;
}
