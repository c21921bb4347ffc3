//! Decodes chunked bodies (RFC 9112 §7.1) without copying the data.

#[cfg(test)]
mod tests;

use super::scan::{FIELDS_CAP, HeadLimits, HeadScan, diagnose_fields};
use crate::chars::hex_value;
use crate::{Fields, HeadError, TrailerError, TrailerLimits};

/// The limits of a chunked body besides its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkedLimits {
    /// The total size of all chunk extensions of a body, which RFC 9112 §7.1.1 requires to limit. Default 4 KiB.
    pub extension_bytes_max: usize,
    /// What the trailer section may have.
    pub trailers: TrailerLimits,
}

impl Default for ChunkedLimits {
    fn default() -> Self {
        Self { extension_bytes_max: 4 * 1024, trailers: TrailerLimits::default() }
    }
}

/// The action for the beginning of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Skip this many bytes of framing.
    Skip(usize),
    /// This many bytes are data. They are consumed: the next input begins after them.
    Data(usize),
    /// The input is consumed.
    NeedMore,
    /// Skip this many bytes: the body is complete. The bytes after them belong to another message.
    Done(usize),
}

/// Why a chunked body is refused. The connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkedError {
    /// Not 1 to 16 hexadecimal digits, 2^63 or more, or not followed by `;` or CR LF.
    #[error("a chunk size is malformed")]
    SizeInvalid,
    /// A control byte in an extension, or a CR or LF alone.
    #[error("a chunk extension is malformed")]
    ExtensionInvalid,
    /// More bytes of extensions than the limit.
    #[error("the chunk extensions are too large")]
    ExtensionsTooLarge,
    /// Data that is not followed by CR LF.
    #[error("a chunk's data is not followed by CR LF")]
    DataEndInvalid,
    /// A malformed trailer field, or too many.
    #[error(transparent)]
    Trailer(#[from] TrailerError),
}

impl ChunkedError {
    /// The stable reason code, for responses and logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::SizeInvalid => "chunk_size_invalid",
            Self::ExtensionInvalid => "chunk_extension_invalid",
            Self::ExtensionsTooLarge => "chunk_extensions_too_large",
            Self::DataEndInvalid => "chunk_data_end_invalid",
            Self::Trailer(error) => error.code(),
        }
    }

    /// The status of the response to a request.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::Trailer(error) => error.status(),
            _ => 400,
        }
    }
}

/// Separates framing from data in a chunked body (RFC 9112 §7.1), however the input is split.
#[derive(Debug, Clone)]
pub struct ChunkedDecoder {
    limits: ChunkedLimits,
    state: State,
    extension_bytes: usize,
    /// The received part of the trailer section, then the fields.
    section: Vec<u8>,
    scan: HeadScan,
    trailers: Option<Fields>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In a chunk size; the value so far.
    Size { size: u64, digits: u8 },
    /// In the extensions after a chunk size.
    Extension { size: u64 },
    /// After the CR of a chunk size line.
    SizeLf { size: u64 },
    /// In the data; the remaining bytes.
    Data { left: u64 },
    /// After the data.
    DataCr,
    /// After the CR that follows the data.
    DataLf,
    /// After the last chunk.
    Trailer,
    /// After the body.
    Done,
}

const SIZE: State = State::Size { size: 0, digits: 0 };

impl ChunkedDecoder {
    /// A decoder for a new body.
    #[must_use]
    pub fn new(limits: ChunkedLimits) -> Self {
        let scan = HeadScan::default();
        Self { limits, state: SIZE, extension_bytes: 0, section: Vec::new(), scan, trailers: None }
    }

    /// The action for the beginning of `input`. Call it again with the input after the bytes of the step; after
    /// [`Step::NeedMore`], with new input.
    ///
    /// # Errors
    /// [`ChunkedError`]: the data so far is not a complete body. Calling it again after an error gives no meaningful
    /// result.
    pub fn step(&mut self, input: &[u8]) -> Result<Step, ChunkedError> {
        if let State::Data { left } = self.state {
            if input.is_empty() {
                return Ok(Step::NeedMore);
            }
            let taken = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
            let left = left - taken as u64;
            self.state = if left == 0 { State::DataCr } else { State::Data { left } };
            return Ok(Step::Data(taken));
        }
        let mut taken = 0;
        for &byte in input {
            if matches!(self.state, State::Data { .. } | State::Trailer | State::Done) {
                break;
            }
            self.state = self.next(byte)?;
            taken += 1;
        }
        match self.state {
            State::Done => Ok(Step::Done(taken)),
            State::Trailer => self.trailer_section(taken, input.get(taken..).unwrap_or_default()),
            _ if taken == 0 => Ok(Step::NeedMore),
            _ => Ok(Step::Skip(taken)),
        }
    }

    /// The trailer fields, once the body is complete; `None` if it had none.
    #[must_use]
    pub const fn trailers(&self) -> Option<&Fields> {
        self.trailers.as_ref()
    }

    /// Takes the trailer fields, once the body is complete; `None` if it had none.
    pub const fn take_trailers(&mut self) -> Option<Fields> {
        self.trailers.take()
    }

    /// Whether the body is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The state after one more byte of framing.
    fn next(&mut self, byte: u8) -> Result<State, ChunkedError> {
        match self.state {
            State::Size { size, digits } => match (byte, hex_value(byte)) {
                (_, Some(digit)) if digits < 16 && size < 1 << 59 => {
                    Ok(State::Size { size: size << 4 | u64::from(digit), digits: digits + 1 })
                }
                (b'\r', _) if digits > 0 => Ok(State::SizeLf { size }),
                (b';', _) if digits > 0 => self.extension(size),
                _ => Err(ChunkedError::SizeInvalid),
            },
            State::Extension { size } => match byte {
                b'\r' => Ok(State::SizeLf { size }),
                b'\t' | 0x20..=0x7E | 0x80..=0xFF => self.extension(size),
                _ => Err(ChunkedError::ExtensionInvalid),
            },
            State::SizeLf { size } => match (byte, size) {
                (b'\n', 0) => Ok(State::Trailer),
                (b'\n', left) => Ok(State::Data { left }),
                _ => Err(ChunkedError::ExtensionInvalid),
            },
            State::DataCr if byte == b'\r' => Ok(State::DataLf),
            State::DataLf if byte == b'\n' => Ok(SIZE),
            State::DataCr | State::DataLf => Err(ChunkedError::DataEndInvalid),
            // Unreachable: these states do not consume single bytes.
            State::Data { .. } | State::Trailer | State::Done => Ok(self.state),
        }
    }

    /// One more byte of extension.
    fn extension(&mut self, size: u64) -> Result<State, ChunkedError> {
        self.extension_bytes += 1;
        if self.extension_bytes > self.limits.extension_bytes_max {
            return Err(ChunkedError::ExtensionsTooLarge);
        }
        Ok(State::Extension { size })
    }

    /// Consumes the available part of the trailer section; `taken` bytes before it were framing too.
    fn trailer_section(&mut self, taken: usize, input: &[u8]) -> Result<Step, ChunkedError> {
        // Most bodies have no trailers.
        if self.section.is_empty() && input.starts_with(b"\r\n") {
            self.state = State::Done;
            return Ok(Step::Done(taken + 2));
        }
        let limits = HeadLimits {
            head_bytes_max: self.limits.trailers.bytes_max.max(2),
            target_bytes_max: 0,
            // A head's first line is no field; here it is.
            fields_max: self.limits.trailers.fields_max.min(FIELDS_CAP).saturating_sub(1),
        };
        let before = self.section.len();
        let room = limits.head_bytes_max.saturating_sub(before).min(input.len());
        self.section.extend_from_slice(input.get(..room).unwrap_or_default());
        if matches!(self.section.first(), Some(b' ' | b'\t')) {
            return Err(TrailerError(HeadError::ObsFold).into());
        }
        let Some(end) = self.scan.advance(&self.section, &limits).map_err(TrailerError)? else {
            let taken = taken + room;
            return Ok(if taken == 0 { Step::NeedMore } else { Step::Skip(taken) });
        };
        if self.scan.lines() > self.limits.trailers.fields_max {
            return Err(TrailerError(HeadError::TooManyFields).into());
        }
        self.section.truncate(end);
        if end > 2 {
            self.trailers = Some(parse_trailers(&self.section).map_err(TrailerError)?);
        }
        self.section = Vec::new();
        self.state = State::Done;
        Ok(Step::Done(taken + end.saturating_sub(before)))
    }
}

/// Parses a complete trailer section, whose lines all end in CR LF.
fn parse_trailers(section: &[u8]) -> Result<Fields, HeadError> {
    let mut fields = Fields::default();
    match fields.read(section, 0, FIELDS_CAP) {
        Some(length) if length == section.len() => Ok(fields),
        _ => Err(diagnose_fields(section)),
    }
}
