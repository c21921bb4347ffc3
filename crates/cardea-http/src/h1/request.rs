//! Decodes the head of a request.

#[cfg(test)]
mod tests;

use super::scan::{HeadLimits, HeadScan, diagnose_fields};
use crate::words::{find, invisible};
use crate::{HeadError, Method, OtherMethod, RequestError, RequestHead, Version};

/// Decodes request heads (RFC 9112 §2, §3, §5), one after another.
///
/// Deviations from the grammar are refused: LF without CR, folded lines, white space before a colon, more than one
/// space in the request line, control bytes, empty names, other versions. Up to four empty lines before the request
/// line are skipped (RFC 9112 §2.2).
#[derive(Debug, Clone)]
pub struct RequestDecoder {
    limits: HeadLimits,
    scan: HeadScan,
}

/// The most empty lines before a request: some clients send one or two after a body without counting them.
const EMPTY_LINES_MAX: usize = 4;

/// The parts of a request line besides its target: the longest method, two spaces, the version, CR.
const REQUEST_LINE_REST: usize = OtherMethod::LEN_MAX + b"  HTTP/1.1\r".len();

impl RequestDecoder {
    /// A decoder with these limits.
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
    /// [`RequestError`]: the request must be answered and the connection closed. Limits apply before a head is
    /// complete.
    pub fn decode(&mut self, input: &[u8], head: &mut RequestHead) -> Result<Option<usize>, RequestError> {
        let mut bytes = input;
        while let [b'\r', b'\n', rest @ ..] = bytes {
            bytes = rest;
            if input.len() - bytes.len() > EMPTY_LINES_MAX * 2 {
                return Err(HeadError::EmptyLine.into());
            }
        }
        let skipped = input.len() - bytes.len();
        match bytes {
            [] | b"\r" => return Ok(None),
            [b'\n', ..] => return Err(HeadError::BareLf.into()),
            [b'\r', ..] => return Err(HeadError::BareCr.into()),
            // Other protocols, such as a TLS handshake, are refused at once.
            [first, ..] if !crate::chars::is(*first, crate::chars::TOKEN) => {
                return Err(HeadError::StartLineInvalid.into());
            }
            _ => {}
        }
        // The whole head usually arrives at once. The slow path finds the cause of an error.
        if self.scan.is_fresh()
            && let Some(result) = self.parse(bytes, head)
        {
            return result.map(|length| Some(skipped + length));
        }
        let end = match self.scan.advance(bytes, &self.limits) {
            Ok(end) => end,
            Err(HeadError::TooLarge) if self.scan.lines() == 0 => return Err(RequestError::TargetTooLong),
            Err(error) => return Err(error.into()),
        };
        let Some(end) = end else {
            if self.scan.lines() == 0
                && bytes.len() > self.limits.target_bytes_max.saturating_add(REQUEST_LINE_REST)
            {
                return Err(RequestError::TargetTooLong);
            }
            return Ok(None);
        };
        self.reset();
        let bytes = bytes.get(..end).unwrap_or_default();
        match self.parse(bytes, head) {
            Some(Ok(length)) if length == end => Ok(Some(skipped + end)),
            // The parser must find the same end; otherwise it uses another grammar than the scan.
            Some(Ok(_)) => Err(HeadError::StartLineInvalid.into()),
            Some(Err(error)) => Err(error),
            None => Err(diagnose(bytes, self.limits.target_bytes_max)),
        }
    }

    /// Parses the head at the beginning of `bytes`. `None` if it is incomplete, or its form is not that of the grammar.
    fn parse(&self, bytes: &[u8], head: &mut RequestHead) -> Option<Result<usize, RequestError>> {
        let method_end = bytes.iter().take(OtherMethod::LEN_MAX + 1).position(|&byte| byte == b' ')?;
        let target_start = method_end + 1;
        let target_end = find(bytes, target_start, invisible)?;
        let (version, lines_start) = match bytes.get(target_end..)? {
            [b' ', rest @ ..] if rest.starts_with(b"HTTP/1.1\r\n") => (Version::Http11, target_end + 11),
            [b' ', rest @ ..] if rest.starts_with(b"HTTP/1.0\r\n") => (Version::Http10, target_end + 11),
            _ => return None,
        };
        let length = head.fields.read(bytes, lines_start, self.limits.fields_max)?;
        let target = bytes.get(target_start..target_end).filter(|target| !target.is_empty())?;
        if length > self.limits.head_bytes_max {
            return None;
        }
        head.version = version;
        match Method::parse(bytes.get(..method_end)?) {
            Ok(method) => head.method = method,
            Err(error) => return Some(Err(error.into())),
        }
        if target.len() > self.limits.target_bytes_max {
            return Some(Err(RequestError::TargetTooLong));
        }
        head.set_target(target);
        Some(Ok(length))
    }
}

/// The error of a head that was not accepted.
fn diagnose(bytes: &[u8], target_bytes_max: usize) -> RequestError {
    let invalid = RequestError::Head(HeadError::StartLineInvalid);
    let end = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1);
    let Some((first, rest)) = bytes.split_at_checked(end) else {
        return invalid;
    };
    let line = first.strip_suffix(b"\r\n").unwrap_or(first);
    if line.contains(&b'\r') {
        return HeadError::BareCr.into();
    }
    let mut parts = line.split(|&byte| byte == b' ');
    let (method, target, version) = (parts.next(), parts.next(), parts.next());
    let (Some(method), Some(target), Some(version), None) = (method, target, version, parts.next()) else {
        return invalid;
    };
    if let Err(error) = Method::parse(method) {
        return error.into();
    }
    if target.len() > target_bytes_max {
        return RequestError::TargetTooLong;
    }
    match version {
        b"HTTP/1.1" | b"HTTP/1.0" => {}
        // RFC 9112 §2.3: two digits and a dot; RFC 9113 §3.4 announces itself as 2.0.
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            return RequestError::VersionUnsupported;
        }
        _ => return invalid,
    }
    if target.is_empty() {
        return invalid;
    }
    if !target.iter().all(u8::is_ascii_graphic) {
        return crate::TargetError::ByteInvalid.into();
    }
    diagnose_fields(rest).into()
}
