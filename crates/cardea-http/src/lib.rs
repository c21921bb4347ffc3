//! HTTP messages, framing, normalisation and the codecs of HTTP/1.1 and HTTP/2: pure, without input or output.
//!
//! What a gateway has to know of a message, and nothing of sockets or runtimes: bytes come in as slices and
//! go out into buffers of the caller. The rules are those of RFC 9110, RFC 9112 and RFC 3986, read strictly:
//! what two readers could understand in two ways is refused, never repaired. Every error has a stable reason
//! code ([`RequestError::code`]) and a status.
//!
//! * [`Method`], [`Version`], [`Fields`], [`RequestHead`], [`ResponseHead`]: one model for HTTP/1.1 and HTTP/2.
//! * [`BodyLength`], [`declared_length`], [`set_length`]: how long a body is.
//! * [`h1`]: decoding and encoding heads and chunked bodies, and how a body is delimited.
//! * [`h2`]: the codec of HTTP/2.
//! * [`grpc`]: what a proxy reads and writes of gRPC.
//! * [`parse_target`], [`Authority`], [`normalize_path`]: what a request is for, in one spelling.
//! * [`strip_hop_by_hop`], [`append_via`], [`set_forwarded`], [`client_address`], [`strip_named`],
//!   [`strip_lookalikes`], [`filter_trailers`]: what a proxy does to the fields.
//! * [`proxy_protocol`]: who connected, as told by a load balancer in front.
//!
//! No panic is reachable from the bytes given, and everything that grows has a bound.
#![deny(clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::indexing_slicing, reason = "tests may panic"))]
#![forbid(unsafe_code)]

mod authority;
mod chars;
mod error;
mod fields;
mod forwarding;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod grpc;
pub mod h1;
pub mod h2;
mod head;
mod hop_by_hop;
mod length;
mod method;
mod names;
mod path;
pub mod proxy_protocol;
mod target;
mod trailers;
mod version;
mod words;

pub use authority::{Authority, AuthorityError, LastAuthority, Scheme, request_authority};
pub use error::{FramingError, HeadError, RequestError, ResponseError};
pub use fields::{Field, FieldError, Fields, Known, NotedFields};
pub use forwarding::{
    ForwardedHeader, ForwardedPolicy, Hop, append_via, client_address, set_forwarded, strip_forwarded,
};
pub use head::{RequestHead, ResponseHead};
pub use hop_by_hop::{
    ConnectionNames, accepts_trailers, accepts_websocket, strip_hop_by_hop, strip_hop_by_hop_response,
    upgrade_websocket,
};
pub use length::{BodyLength, declared_length, set_length};
pub use method::{Method, MethodError, OtherMethod};
pub use names::{
    HeaderNameSet, filter_trailers, fold_alike, forbidden_in_trailers, has_lookalike, strip_lookalikes,
    strip_lookalikes_of, strip_named,
};
pub use path::{PathError, PathFlags, normalize_path};
pub use target::{Target, TargetError, TargetForm, parse_target};
pub use trailers::{TrailerError, TrailerLimits};
pub use version::Version;
