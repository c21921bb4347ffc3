//! The normal form of paths (RFC 3986 §6.2.2), so that the origin sees the path that was authorized.

#[cfg(test)]
mod tests;

use crate::chars::{self, PATH, PATH_SPECIAL, UNRESERVED, hex_value};

/// Parts of the received path that origins interpret differently. A route must allow each explicitly. A flag is also
/// set for a segment that a `..` removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathFlags {
    /// `%2F`: a slash to origins that decode before splitting.
    pub encoded_slash: bool,
    /// `%5C`: a backslash.
    pub encoded_backslash: bool,
    /// `%00`: the end of the string to origins written in C.
    pub encoded_nul: bool,
    /// A literal `\`, which is a slash to some origins.
    pub backslash: bool,
    /// `;`, or `%3B`: path parameters, which some origins drop (`/a;x/b` is `/a/b` to them). Common and legal, so
    /// not part of [`PathFlags::any_refused`]: for routes that guard by exact segments.
    pub parameters: bool,
}

/// Why a path is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not begin with `/`.
    #[error("the path does not begin with a slash")]
    NotAbsolute,
    /// More `..` than segments before it.
    #[error("the path climbs above the root")]
    AboveRoot,
    /// A `%` that is not followed by two hexadecimal digits.
    #[error("the path has a bad percent-encoding")]
    EscapeInvalid,
    /// A byte that must be percent-encoded.
    #[error("the path has a byte that must be percent-encoded")]
    ByteInvalid,
    /// A dot segment that only some origins recognise: `..;x`, `..%2Fx`, `..\x`.
    #[error("the path has a disguised dot segment")]
    DotSegmentDisguised,
}

/// Writes the normal form of `path` (without its query) into `out`, which is cleared first.
///
/// Escapes of unreserved characters are decoded, all others kept with upper-case digits; dot segments are
/// removed, also escaped ones; an empty segment between two slashes is dropped, before `..` can count it (RFC
/// 3986 would keep it; most origins do not). A slash at the end stays. Path parameters stay. The result
/// normalises to itself.
///
/// # Errors
/// [`PathError`]; a path above the root is refused, where RFC 3986 §5.2.4 would cut it off.
pub fn normalize_path(path: &[u8], out: &mut Vec<u8>) -> Result<PathFlags, PathError> {
    out.clear();
    if is_normal(path) {
        out.extend_from_slice(path);
        return Ok(PathFlags::default());
    }
    let Some(rest) = path.strip_prefix(b"/") else {
        return Err(PathError::NotAbsolute);
    };
    let mut flags = PathFlags::default();
    out.push(b'/');
    // `out` ends in a slash before each segment.
    let mut segments = rest.split(|&byte| byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let start = out.len();
        push_segment(segment, out, &mut flags)?;
        match out.get(start..).unwrap_or_default() {
            b"" => {}
            b"." => out.truncate(start),
            b".." => {
                out.truncate(start);
                pop_segment(out)?;
            }
            decoded => {
                if is_disguised(decoded) {
                    return Err(PathError::DotSegmentDisguised);
                }
                if segments.peek().is_some() {
                    out.push(b'/');
                }
            }
        }
    }
    Ok(flags)
}

impl PathFlags {
    /// Whether anything is present that is refused unless a route allows it.
    #[must_use]
    pub const fn any_refused(&self) -> bool {
        self.encoded_slash || self.encoded_backslash || self.encoded_nul || self.backslash
    }
}

impl PathError {
    /// The stable reason code, for responses and logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotAbsolute => "path_not_absolute",
            Self::AboveRoot => "path_above_root",
            Self::EscapeInvalid => "path_escape_invalid",
            Self::ByteInvalid => "path_byte_invalid",
            Self::DotSegmentDisguised => "path_dot_segment_disguised",
        }
    }

    /// The status of the response.
    #[must_use]
    pub const fn status(&self) -> u16 {
        400
    }
}

/// Whether the path is certainly in normal form without flags: one load per byte.
fn is_normal(path: &[u8]) -> bool {
    let mut after_slash = false;
    let mut special = path.first() != Some(&b'/');
    for &byte in path {
        let slash = byte == b'/';
        special |= chars::is(byte, PATH_SPECIAL) | (after_slash & (slash | (byte == b'.')));
        after_slash = slash;
    }
    !special
}

/// Appends a segment with normalised escapes, and records its flags.
fn push_segment(segment: &[u8], out: &mut Vec<u8>, flags: &mut PathFlags) -> Result<(), PathError> {
    let mut rest = segment;
    while let [byte, after @ ..] = rest {
        rest = after;
        match *byte {
            b'%' => {
                let [high, low, after @ ..] = after else {
                    return Err(PathError::EscapeInvalid);
                };
                let (Some(high), Some(low)) = (hex_value(*high), hex_value(*low)) else {
                    return Err(PathError::EscapeInvalid);
                };
                rest = after;
                push_escape(high << 4 | low, out, flags);
            }
            byte if chars::is(byte, PATH) => {
                flags.backslash |= byte == b'\\';
                flags.parameters |= byte == b';';
                out.push(byte);
            }
            _ => return Err(PathError::ByteInvalid),
        }
    }
    Ok(())
}

fn push_escape(byte: u8, out: &mut Vec<u8>, flags: &mut PathFlags) {
    if chars::is(byte, UNRESERVED) {
        out.push(byte);
        return;
    }
    match byte {
        b'/' => flags.encoded_slash = true,
        b'\\' => flags.encoded_backslash = true,
        b';' => flags.parameters = true,
        0 => flags.encoded_nul = true,
        _ => {}
    }
    let digit = |value: u8| if value < 10 { b'0' + value } else { b'A' + value - 10 };
    out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
}

/// Removes the last segment; `out` ends in a slash before and after.
fn pop_segment(out: &mut Vec<u8>) -> Result<(), PathError> {
    let before = out.strip_suffix(b"/").unwrap_or_default();
    let slash = before.iter().rposition(|&byte| byte == b'/').ok_or(PathError::AboveRoot)?;
    out.truncate(slash + 1);
    Ok(())
}

/// Whether an origin that splits at `\`, `%2F` or `%5C`, drops the part after `;` or `%3B`, or stops at `%00`, would
/// find a dot segment.
fn is_disguised(segment: &[u8]) -> bool {
    let mut rest = segment;
    // The part after the last separator, as long as it contains only dots.
    let mut dots = Some(0_u8);
    loop {
        let (ends, after) = match rest {
            [] => (true, rest),
            [b'\\' | b';', after @ ..] => (true, after),
            [b'%', b'2', b'F', after @ ..]
            | [b'%', b'5', b'C', after @ ..]
            | [b'%', b'3', b'B', after @ ..]
            | [b'%', b'0', b'0', after @ ..] => (true, after),
            [b'.', after @ ..] => {
                dots = dots.map(|dots| dots.saturating_add(1));
                (false, after)
            }
            [_, after @ ..] => {
                dots = None;
                (false, after)
            }
        };
        if ends {
            if matches!(dots, Some(1 | 2)) {
                return true;
            }
            dots = Some(0);
        }
        if rest.is_empty() {
            return false;
        }
        rest = after;
    }
}
