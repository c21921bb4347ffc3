//! HPACK, the compression of field sections (RFC 7541), between bytes and [`crate::Fields`].

mod decoder;
mod encoder;
mod error;
mod huffman;
mod integer;
mod line;
mod names;
mod table;
#[cfg(test)]
mod tests;

pub use decoder::Decoder;
pub use encoder::{Encoder, EncoderConfig};
pub use error::HpackError;
pub use line::{FieldLine, FieldSink, LineError};
pub use names::{LineName, Pseudo};

/// The size of the dynamic table before any settings (RFC 9113 §6.5.2), in bytes.
pub const TABLE_BYTES_DEFAULT: usize = 4096;

/// The largest dynamic table that either side uses, in bytes. The lengths of an entry fit in 16 bits.
pub const TABLE_BYTES_MAX: usize = 65_536;
