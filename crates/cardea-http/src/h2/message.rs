//! Heads and trailers between blocks and our own types, by the rules of RFC 9113 §8.

mod request;
mod response;
#[cfg(test)]
pub(crate) mod tests;
mod trailers;
mod write;

pub use request::Protocol;
pub(super) use request::{RequestRules, read_request};
pub(super) use response::read_response;
pub(super) use trailers::read_trailers;
pub use write::OutgoingRequest;
pub(super) use write::{write_request, write_response, write_trailers};

use super::hpack::{Decoder, FieldLine, HpackError};

/// Decodes a block whose message nobody wants: the tables of both sides must not differ (RFC 9113 §4.3).
pub(super) fn discard(decoder: &mut Decoder, block: &[u8]) -> Result<(), HpackError> {
    decoder.decode(block, &mut |_: &FieldLine<'_>| {})
}
