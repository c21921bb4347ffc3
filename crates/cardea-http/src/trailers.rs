//! What a trailer section may have (RFC 9110 §6.5), the same over every version of HTTP.

#[cfg(test)]
mod tests;

use crate::{Fields, HeadError};

/// `: ` and CR LF, which a line of HTTP/1.1 has beside its name and value.
const LINE_OVERHEAD_BYTES: usize = 4;

/// The sizes that a trailer section may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrailerLimits {
    /// The bytes of the section as HTTP/1.1 writes it, with all its line ends. Default 8 KiB.
    pub bytes_max: usize,
    /// The number of fields. Default 32, at most 256.
    pub fields_max: usize,
}

impl Default for TrailerLimits {
    fn default() -> Self {
        Self { bytes_max: 8 * 1024, fields_max: 32 }
    }
}

/// Why a trailer section is refused, and the body with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the trailer section: {0}")]
pub struct TrailerError(pub HeadError);

impl TrailerError {
    /// A stable name of the reason, for answers and logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self.0 {
            HeadError::TooLarge | HeadError::TooManyFields => "trailers_too_large",
            _ => "trailer_invalid",
        }
    }

    /// The status to answer a request with.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.0.status()
    }
}

impl TrailerLimits {
    /// The empty line at the end.
    pub(crate) const END_BYTES: usize = 2;

    /// The size of a line of HTTP/1.1.
    pub(crate) const fn line_len(name: &[u8], value: &[u8]) -> usize {
        name.len() + value.len() + LINE_OVERHEAD_BYTES
    }

    /// The fields of a section that did not come as lines of HTTP/1.1.
    ///
    /// # Errors
    /// The section is larger than the limits, or a field is malformed.
    pub fn collect<'a>(
        &self,
        section: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Fields, TrailerError> {
        let mut fields = Fields::default();
        let mut bytes = Self::END_BYTES;
        for (count, (name, value)) in section.into_iter().enumerate() {
            bytes = bytes.saturating_add(Self::line_len(name, value));
            if count >= self.fields_max {
                return Err(TrailerError(HeadError::TooManyFields));
            }
            if bytes > self.bytes_max {
                return Err(TrailerError(HeadError::TooLarge));
            }
            fields.append(name, value).map_err(|error| TrailerError(error.into()))?;
        }
        Ok(fields)
    }
}
