//! Why a block can't be decoded.

/// A block that can't be decoded (RFC 7541). The tables of both sides may differ from here on, so it ends the connection
/// with COMPRESSION_ERROR (RFC 9113 §4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HpackError {
    /// The block ends within a field line.
    #[error("a block ends within a field line")]
    Truncated,
    /// An integer above 2^28 or encoded in more than five octets (RFC 7541 §5.1).
    #[error("an integer is too large")]
    IntegerTooLarge,
    /// An index that is 0 or beyond both tables (RFC 7541 §2.3.3).
    #[error("an index is in neither table")]
    IndexInvalid,
    /// A string with the EOS symbol, or padding that is longer than 7 bits or not a prefix of EOS (RFC 7541 §5.2).
    #[error("a Huffman-coded string is malformed")]
    HuffmanInvalid,
    /// A size update behind the first field line of a block (RFC 7541 §4.2).
    #[error("a table size update within a block")]
    SizeUpdateMisplaced,
    /// A size update above the limit in SETTINGS_HEADER_TABLE_SIZE (RFC 7541 §6.3).
    #[error("a table size update above the limit")]
    SizeUpdateTooLarge,
    /// No size update although the limit was lowered below the size in use (RFC 7541 §4.2).
    #[error("no table size update after the limit was lowered")]
    SizeUpdateMissing,
}

impl HpackError {
    /// The stable reason code, for logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Truncated => "hpack_truncated",
            Self::IntegerTooLarge => "hpack_integer_too_large",
            Self::IndexInvalid => "hpack_index_invalid",
            Self::HuffmanInvalid => "hpack_huffman_invalid",
            Self::SizeUpdateMisplaced => "hpack_size_update_misplaced",
            Self::SizeUpdateTooLarge => "hpack_size_update_too_large",
            Self::SizeUpdateMissing => "hpack_size_update_missing",
        }
    }
}
