//! How long a body is, as far as a head says, whatever the version (RFC 9110 §8.6).

use crate::{FieldError, Fields, FramingError, Known};

/// How long a body is, as far as is known before it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// There is none.
    None,
    /// This many bytes; with 0 the head says so.
    Exact(u64),
    /// Whatever comes until it ends. Trailers may follow.
    Unknown,
}

impl BodyLength {
    /// Whether no byte will come.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        matches!(self, Self::None | Self::Exact(0))
    }

    /// The length that a `Content-Length` states.
    #[must_use]
    pub const fn stated(self) -> Option<u64> {
        match self {
            Self::Exact(length) => Some(length),
            Self::None | Self::Unknown => None,
        }
    }
}

/// The length that `Content-Length` declares, where there is one that [`request_framing`](crate::h1::request_framing) and
/// [`response_framing`](crate::h1::response_framing) take.
#[must_use]
pub fn declared_length(fields: &Fields) -> Option<u64> {
    fields.get(Known::ContentLength).and_then(|value| parse_length(value).ok())
}

/// Writes `Content-Length` anew from the number that was read, or removes it where there is none, so that the received
/// digits are never sent on: `0200` is 200 here (RFC 9110 §8.6) and 128 to a recipient that reads octal.
///
/// # Errors
/// [`FieldError`] if there is no room. The message must not be sent then: its body would have no length.
pub fn set_length(fields: &mut Fields, length: Option<u64>) -> Result<(), FieldError> {
    let Some(length) = length else {
        fields.remove(Known::ContentLength);
        return Ok(());
    };
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(length).as_bytes();
    // Nearly always the digits are the same, and nothing has to move.
    let mut lines = fields.get_all(Known::ContentLength);
    if lines.next() == Some(digits) && lines.next().is_none() {
        return Ok(());
    }
    drop(lines);
    fields.set_known(Known::ContentLength, digits)
}

/// `1*DIGIT` (RFC 9110 §8.6), below 2^63 so that an origin that counts in signed numbers counts the same, and at
/// most 19 digits.
pub(crate) fn parse_length(value: &[u8]) -> Result<u64, FramingError> {
    if value.contains(&b',') {
        return Err(FramingError::ContentLengthRepeated);
    }
    if value.is_empty() || value.len() > 19 || !value.iter().all(u8::is_ascii_digit) {
        return Err(FramingError::ContentLengthInvalid);
    }
    // 19 digits fit into 64 bits.
    let length = value.iter().fold(0_u64, |length, digit| length * 10 + u64::from(digit - b'0'));
    if length > i64::MAX.unsigned_abs() { Err(FramingError::ContentLengthInvalid) } else { Ok(length) }
}
