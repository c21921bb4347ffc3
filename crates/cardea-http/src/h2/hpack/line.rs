//! A decoded field line, and where decoded lines go.

use super::LineName;
use crate::FieldError;
use crate::chars::{TOKEN, class_of, is_field_value};
use crate::names::is_odd;

/// A field line as a block encodes it. Its name and value may be malformed: see [`FieldLine::check`].
#[derive(Debug, Clone, Copy)]
pub struct FieldLine<'a> {
    /// What the name is.
    pub kind: LineName,
    /// The name.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Whether the sender forbids every hop to put it into a table (RFC 7541 §7.1.3).
    pub never_indexed: bool,
    pub(super) soundness: Soundness,
}

/// Receives the field lines of a block.
///
/// It can't stop the decoder: the whole block must be decoded, or the tables of both sides would differ
/// (RFC 9113 §4.3). A sink that has had enough ignores the rest.
pub trait FieldSink {
    /// Takes the next line.
    fn field(&mut self, line: &FieldLine<'_>);
}

impl<F: FnMut(&FieldLine<'_>)> FieldSink for F {
    fn field(&mut self, line: &FieldLine<'_>) {
        self(line);
    }
}

/// Why a field line makes its message malformed (RFC 9113 §8.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// An empty name.
    #[error("an empty field name")]
    NameEmpty,
    /// A name that is no token in lower case.
    #[error("a field name is not a token in lower case")]
    NameInvalid,
    /// A control byte other than HTAB in a value.
    #[error("a control byte in a field value")]
    ValueInvalid,
    /// White space at the beginning or the end of a value.
    #[error("white space around a field value")]
    ValueSurrounded,
}

impl LineError {
    /// The stable reason code, for responses and logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NameEmpty | Self::NameInvalid => "field_name_invalid",
            Self::ValueInvalid => "field_value_invalid",
            Self::ValueSurrounded => "field_value_surrounded",
        }
    }
}

impl From<LineError> for FieldError {
    fn from(error: LineError) -> Self {
        match error {
            LineError::NameEmpty | LineError::NameInvalid => Self::NameInvalid,
            LineError::ValueInvalid | LineError::ValueSurrounded => Self::ValueInvalid,
        }
    }
}

/// What was found out about the bytes of a line. A table keeps it, so that an indexed line isn't validated again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Soundness {
    Sound,
    /// Sound, and the name has punctuation other than `-`.
    SoundOdd,
    Unsound(LineError),
}

impl Soundness {
    pub(super) fn of(kind: LineName, name: &[u8], value: &[u8]) -> Self {
        let mut sound = Self::Sound;
        if kind == LineName::Other {
            if name.is_empty() {
                return Self::Unsound(LineError::NameEmpty);
            }
            if is_odd(name) {
                sound = Self::SoundOdd;
            }
        }
        // The syntax of pseudo-header fields is a matter of the message.
        let is_lower_token = |&byte: &u8| class_of(byte) & TOKEN != 0 && !byte.is_ascii_uppercase();
        if !matches!(kind, LineName::Pseudo(_)) && !name.iter().all(is_lower_token) {
            return Self::Unsound(LineError::NameInvalid);
        }
        if !is_field_value(value) {
            return Self::Unsound(LineError::ValueInvalid);
        }
        match value {
            [b' ' | b'\t', ..] | [.., b' ' | b'\t'] => Self::Unsound(LineError::ValueSurrounded),
            _ => sound,
        }
    }
}

impl FieldLine<'_> {
    /// What RFC 7541 §4.1 counts for a line: 32 bytes more than its name and value.
    #[must_use]
    pub const fn list_len(&self) -> usize {
        self.name.len() + self.value.len() + 32
    }

    /// Why the line is malformed, if it is.
    ///
    /// # Errors
    /// [`LineError`] for a name that is no token in lower case, and a value that HTTP/1.1 would refuse or change.
    pub const fn check(&self) -> Result<(), LineError> {
        match self.soundness {
            Soundness::Sound | Soundness::SoundOdd => Ok(()),
            Soundness::Unsound(error) => Err(error),
        }
    }

    /// Whether the name has punctuation that some origins treat as `-`.
    pub(crate) const fn is_odd(&self) -> bool {
        matches!(self.soundness, Soundness::SoundOdd)
    }
}
