//! The HTTP/1.1 codec (RFC 9112): heads, chunked bodies, and message framing.

mod chunked;
mod framing;
mod keep_alive;
mod request;
mod response;
mod scan;
mod write;

pub use chunked::{ChunkedDecoder, ChunkedError, ChunkedLimits, Step};
pub use framing::{Framing, request_framing, response_framing, wants_keep_alive};
pub(crate) use framing::{has_connection_fields, has_connection_option};
pub use keep_alive::KeepAlive;
pub use request::RequestDecoder;
pub use response::ResponseDecoder;
pub use scan::HeadLimits;
pub use write::{write_chunk_size, write_fields, write_last_chunk, write_request_head, write_response_head};
