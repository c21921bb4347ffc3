//! Which rule of a protocol a peer has broken.

use cardea_http::{
    ResponseError,
    h2::{ConnectionError, StreamError},
};

/// Which rule of a protocol a peer has broken. Small, as the futures of requests have places for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// One of a response of HTTP/1.1.
    Response(ResponseError),
    /// One of a stream.
    Stream(StreamError),
    /// One of a connection, which ends all of its streams.
    Connection(ConnectionError),
    /// There are more informational responses than one request may have.
    InformationalTooMany,
}

impl Fault {
    /// The stable code, for answers and logs.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Response(error) => error.code(),
            Self::Stream(error) => error.code(),
            Self::Connection(error) => error.code(),
            Self::InformationalTooMany => "informational_responses_too_many",
        }
    }
}
