//! Decodes the head of a response.

#[cfg(test)]
mod tests;

use super::scan::{HeadLimits, HeadScan, diagnose_fields};
use crate::chars::is_field_value;
use crate::words::{controls, find};
use crate::{HeadError, ResponseError, ResponseHead, Version};

/// Decodes response heads (RFC 9112 §2, §4, §5), one after another, as strictly as requests. The reason phrase is
/// validated and dropped; the space before it may be missing, as many origins omit it.
#[derive(Debug, Clone)]
pub struct ResponseDecoder {
    limits: HeadLimits,
    scan: HeadScan,
}

impl ResponseDecoder {
    /// A decoder with these limits; the one for targets is ignored.
    #[must_use]
    pub fn new(limits: HeadLimits) -> Self {
        Self { limits: limits.capped(), scan: HeadScan::default() }
    }

    /// Discards the state of an incomplete head. Not needed after a complete one.
    pub fn reset(&mut self) {
        self.scan = HeadScan::default();
    }

    /// Decodes the head at the beginning of `input` and returns its length in bytes, or `None` if it is incomplete:
    /// then call again with the same bytes followed by more. No byte is scanned twice. `head` is overwritten; after an
    /// error it has no meaning.
    ///
    /// # Errors
    /// [`ResponseError`]: the connection must be closed. Limits apply before a head is complete.
    pub fn decode(&mut self, input: &[u8], head: &mut ResponseHead) -> Result<Option<usize>, ResponseError> {
        match input {
            [] => return Ok(None),
            [b'H', ..] => {}
            [b'\r' | b'\n', ..] => return Err(HeadError::EmptyLine.into()),
            _ => return Err(HeadError::StartLineInvalid.into()),
        }
        // The whole head usually arrives at once. The slow path finds the cause of an error.
        if self.scan.is_fresh()
            && let Some(result) = self.parse(input, head)
        {
            return result.map(Some);
        }
        let Some(end) = self.scan.advance(input, &self.limits)? else {
            return Ok(None);
        };
        self.reset();
        let bytes = input.get(..end).unwrap_or_default();
        match self.parse(bytes, head) {
            Some(Ok(length)) if length == end => Ok(Some(end)),
            // The parser must find the same end; otherwise it uses another grammar than the scan.
            Some(Ok(_)) => Err(HeadError::StartLineInvalid.into()),
            Some(Err(error)) => Err(error),
            None => Err(diagnose(bytes)),
        }
    }

    /// Parses the head at the beginning of `bytes`. `None` if it is incomplete, or its form is not that of the grammar.
    fn parse(&self, bytes: &[u8], head: &mut ResponseHead) -> Option<Result<usize, ResponseError>> {
        let line_end = find(bytes, 0, controls)?;
        let (line, rest) = bytes.split_at_checked(line_end)?;
        let (version, status) = status_line(line)?;
        if !rest.starts_with(b"\r\n") {
            return None;
        }
        let length = head.fields.read(bytes, line_end + 2, self.limits.fields_max)?;
        if length > self.limits.head_bytes_max {
            return None;
        }
        if !(100..=599).contains(&status) {
            return Some(Err(ResponseError::StatusInvalid));
        }
        head.status = status;
        head.version = version;
        Some(Ok(length))
    }
}

/// `HTTP-version SP status-code [ SP [ reason-phrase ] ]` (RFC 9112 §4). The phrase may hold any byte: see
/// [`is_status_line`].
fn status_line(line: &[u8]) -> Option<(Version, u16)> {
    let (version, rest) = line.split_at_checked(b"HTTP/1.1 ".len())?;
    let version = match version {
        b"HTTP/1.1 " => Version::Http11,
        b"HTTP/1.0 " => Version::Http10,
        _ => return None,
    };
    match rest {
        [a, b, c] | [a, b, c, b' ', ..] if [a, b, c].iter().all(|digit| digit.is_ascii_digit()) => {
            let digit = |byte: &u8| u16::from(byte - b'0');
            Some((version, digit(a) * 100 + digit(b) * 10 + digit(c)))
        }
        _ => None,
    }
}

/// Whether it is a status line whose phrase has no control bytes.
fn is_status_line(line: &[u8]) -> bool {
    status_line(line).is_some() && is_field_value(line)
}

/// The error of a head that was not accepted.
fn diagnose(bytes: &[u8]) -> ResponseError {
    let end = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1);
    let (first, rest) = bytes.split_at_checked(end).unwrap_or((bytes, b""));
    let line = first.strip_suffix(b"\r\n").unwrap_or(first);
    if is_status_line(line) {
        return diagnose_fields(rest).into();
    }
    match line {
        _ if line.contains(&b'\r') => HeadError::BareCr.into(),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor, b' ', ..]
            if major.is_ascii_digit() && minor.is_ascii_digit() && (*major, *minor) > (b'1', b'1') =>
        {
            ResponseError::VersionUnsupported
        }
        _ => HeadError::StartLineInvalid.into(),
    }
}
