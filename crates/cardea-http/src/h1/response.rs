//! Decodes the head of a response.

#[cfg(test)]
mod tests;

use core::mem::MaybeUninit;

use super::scan::{FIELDS_CAP, HeadLimits, HeadScan, diagnose_fields, lines_end_in_crlf};
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

    /// Parses the head at the beginning of `bytes`. `None` if it is incomplete or its line ends are invalid.
    fn parse(&self, bytes: &[u8], head: &mut ResponseHead) -> Option<Result<usize, ResponseError>> {
        let mut lines = [const { MaybeUninit::uninit() }; FIELDS_CAP];
        let mut response = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
            &mut response,
            bytes,
            &mut lines,
        );
        let Ok(httparse::Status::Complete(length)) = parsed else {
            return None;
        };
        let block = bytes.get(..length)?;
        let within = length <= self.limits.head_bytes_max && response.headers.len() <= self.limits.fields_max;
        if !within || !lines_end_in_crlf(block, response.headers) {
            return None;
        }
        Some(take(block, &response, head).map(|()| length))
    }
}

/// Takes over a parsed head.
fn take(
    block: &[u8],
    response: &httparse::Response<'_, '_>,
    head: &mut ResponseHead,
) -> Result<(), ResponseError> {
    // The parser is more tolerant (it accepts several spaces), so the first line is checked again.
    let (Some(status), Some(version), true) =
        (response.code, response.version, is_status_line(first_line(block)))
    else {
        return Err(HeadError::StartLineInvalid.into());
    };
    if !(100..=599).contains(&status) {
        return Err(ResponseError::StatusInvalid);
    }
    head.status = status;
    head.version = if version == 0 { Version::Http10 } else { Version::Http11 };
    head.fields.adopt(block, response.headers)?;
    Ok(())
}

/// `HTTP-version SP status-code [ SP [ reason-phrase ] ]` (RFC 9112 §4).
fn is_status_line(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"HTTP/1.0 ").or_else(|| line.strip_prefix(b"HTTP/1.1 ")) else {
        return false;
    };
    match rest {
        [a, b, c, reason @ ..] if [a, b, c].iter().all(|digit| digit.is_ascii_digit()) => match reason {
            [] => true,
            [b' ', reason @ ..] => crate::chars::is_field_value(reason),
            _ => false,
        },
        _ => false,
    }
}

fn first_line(bytes: &[u8]) -> &[u8] {
    let end = memchr::memchr(b'\r', bytes).unwrap_or(bytes.len());
    bytes.get(..end).unwrap_or_default()
}

/// The error of a head that the parser refused.
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
