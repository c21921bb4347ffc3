//! The HTTP/2 codec (RFC 9113): frames and HPACK.

pub mod frame;
pub mod hpack;
