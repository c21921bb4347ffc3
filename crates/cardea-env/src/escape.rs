//! How the bytes of a value are escaped for each kind of output.
//!
//! Callers choose most of the bytes that are written here. So each rule is defined by what its output can contain.

use crate::value::Characters;

/// The escaping rule of a value's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Escape {
    /// No escaping; for keys that nothing parses.
    None,
    /// The same characters in UTF-8: bytes that are not UTF-8 are read as Latin-1.
    Utf8,
    /// For header values: each control character but HTAB becomes a space (RFC 9110 §5.5), also in the template's own
    /// text, and white space at both ends is removed. The output contains no CR, LF or NUL.
    HeaderValue,
    /// For the content of a JSON string (RFC 8259 §7). Bytes that are not UTF-8 are read as Latin-1, so the output is
    /// always valid UTF-8.
    Json,
    /// For a line of a text log: quotes, backslashes, control characters and bytes from 0x7F on become `\xHH`. The
    /// output is one line of ASCII, and can't end a field that the template puts in quotes.
    LogField,
    /// For quoted fields of Apache's log formats: quotes and backslashes are escaped with a backslash, control
    /// characters as in C (`\n`), and other bytes that are not printable ASCII as `\xhh`.
    Apache,
    /// The same for unquoted fields: a space becomes `\x20`.
    ApacheBare,
    /// For a part of a URI: all but the unreserved characters (RFC 3986 §2.3) become `%HH`.
    Percent,
}

impl Escape {
    /// Appends a value's bytes; returns true if bytes were replaced that a header can't contain.
    pub(crate) fn push(self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        match self {
            Escape::None => out.extend_from_slice(bytes),
            Escape::Utf8 => out.extend_from_slice(Characters::of(bytes).to_utf8().as_bytes()),
            Escape::HeaderValue => return push_header_value(bytes, out),
            Escape::Json => push_json(bytes, out),
            Escape::LogField => push_log_field(bytes, out),
            Escape::Apache => push_apache(bytes, false, out),
            Escape::ApacheBare => push_apache(bytes, true, out),
            Escape::Percent => push_percent(bytes, out),
        }
        false
    }

    /// The same for bytes that are Latin-1 even if they are valid UTF-8. It makes a difference only for rules that
    /// write characters.
    pub(crate) fn push_latin1(self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        match self {
            Escape::Utf8 => out.extend_from_slice(Characters::of_latin1(bytes).to_utf8().as_bytes()),
            Escape::Json => push_json_latin1(bytes, out),
            _ => return self.push(bytes, out),
        }
        false
    }
}

fn push_header_value(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    out.extend_from_slice(bytes);
    let mut altered = false;
    for byte in &mut out[start..] {
        if byte.is_ascii_control() && *byte != b'\t' {
            *byte = b' ';
            altered = true;
        }
    }
    altered
}

fn push_log_field(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        match byte {
            b'"' | b'\\' | ..=0x1F | 0x7F.. => out.extend_from_slice(&[
                b'\\',
                b'x',
                HEX_UPPER[usize::from(byte >> 4)],
                HEX_UPPER[usize::from(byte & 15)],
            ]),
            _ => out.push(byte),
        }
    }
}

fn push_apache(bytes: &[u8], bare: bool, out: &mut Vec<u8>) {
    for &byte in bytes {
        let letter = match byte {
            b'"' | b'\\' => byte,
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x08 => b'b',
            0x0B => b'v',
            b' ' if bare => b'x',
            ..=0x1F | 0x7F.. => b'x',
            _ => {
                out.push(byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', letter]);
        if letter == b'x' {
            out.extend_from_slice(&[HEX_LOWER[usize::from(byte >> 4)], HEX_LOWER[usize::from(byte & 15)]]);
        }
    }
}

fn push_percent(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte),
            _ => out.extend_from_slice(&[
                b'%',
                HEX_UPPER[usize::from(byte >> 4)],
                HEX_UPPER[usize::from(byte & 15)],
            ]),
        }
    }
}

/// Appends the content of a JSON string. Most values need no escape and are copied.
pub(crate) fn push_json(bytes: &[u8], out: &mut Vec<u8>) {
    let plain = json_plain_prefix(bytes);
    let (plain, rest) = bytes.split_at(plain);
    out.extend_from_slice(plain);
    if !rest.is_empty() {
        push_json_escaped(rest, std::str::from_utf8(rest).is_ok(), out);
    }
}

/// The same for Latin-1.
pub(crate) fn push_json_latin1(bytes: &[u8], out: &mut Vec<u8>) {
    push_json_escaped(bytes, false, out);
}

#[cold]
fn push_json_escaped(bytes: &[u8], utf8: bool, out: &mut Vec<u8>) {
    for &byte in bytes {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            // DEL too: JSON allows it, but terminals that show the log may not.
            ..=0x1F | 0x7F => out.extend_from_slice(&[
                b'\\',
                b'u',
                b'0',
                b'0',
                HEX_LOWER[usize::from(byte >> 4)],
                HEX_LOWER[usize::from(byte & 15)],
            ]),
            // Latin-1 characters are the first 256 code points: two bytes in UTF-8.
            0x80.. if !utf8 => out.extend_from_slice(&[0xC0 | byte >> 6, 0x80 | byte & 0x3F]),
            _ => out.push(byte),
        }
    }
}

const HEX_LOWER: &[u8; 16] = b"0123456789abcdef";
const HEX_UPPER: &[u8; 16] = b"0123456789ABCDEF";

/// The number of leading bytes that need no escape in a JSON string: ASCII, no control character, quote or backslash.
fn json_plain_prefix(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let found = json_special(*word);
        if found != 0 {
            return index * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    if rest.is_empty() {
        return bytes.len();
    }
    let tail = match bytes.last_chunk::<8>() {
        // Its first bytes are plain, as was seen above.
        Some(tail) => *tail,
        None => {
            let mut tail = [b' '; 8];
            tail[8 - rest.len()..].copy_from_slice(rest);
            tail
        }
    };
    match json_special(tail) {
        0 => bytes.len(),
        found => bytes.len() + found.trailing_zeros() as usize / 8 - 8,
    }
}

/// Sets the top bit of each byte that needs an escape in a JSON string.
///
/// All eight bytes are tested at once. A sum with a byte that isn't ASCII carries into the next byte, whose bit may be wrong
/// then. So only the earliest bit may be used.
fn json_special(word: [u8; 8]) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = ONES * 0x80;
    let word = u64::from_le_bytes(word);
    // The top bit of a byte of a sum is set if that byte ...
    let no_control = word.wrapping_add(ONES * 0x60);
    let delete = word.wrapping_add(ONES);
    let no_quote = (word ^ (ONES * b'"' as u64)).wrapping_add(ONES * 0x7F);
    let no_backslash = (word ^ (ONES * b'\\' as u64)).wrapping_add(ONES * 0x7F);
    (!(no_control & no_quote & no_backslash) | delete | word) & TOPS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(escape: Escape, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        escape.push(bytes, &mut out);
        out
    }

    #[test]
    fn each_rule_writes_its_field() {
        let input = b"a \"b\\\r\n\t\0\x7F/\xE9~";
        let cases: [(Escape, &[u8]); 8] = [
            (Escape::None, input),
            (Escape::Utf8, b"a \"b\\\r\n\t\0\x7F/\xC3\xA9~"),
            (Escape::HeaderValue, b"a \"b\\  \t  /\xE9~"),
            (Escape::Json, b"a \\\"b\\\\\\r\\n\\t\\u0000\\u007f/\xC3\xA9~"),
            (Escape::LogField, b"a \\x22b\\x5C\\x0D\\x0A\\x09\\x00\\x7F/\\xE9~"),
            (Escape::Apache, b"a \\\"b\\\\\\r\\n\\t\\x00\\x7f/\\xe9~"),
            (Escape::ApacheBare, b"a\\x20\\\"b\\\\\\r\\n\\t\\x00\\x7f/\\xe9~"),
            (Escape::Percent, b"a%20%22b%5C%0D%0A%09%00%7F%2F%E9~"),
        ];
        for (escape, expected) in cases {
            assert_eq!(
                escaped(escape, input).escape_ascii().to_string(),
                expected.escape_ascii().to_string()
            );
        }
    }

    #[test]
    fn utf8_stays_and_what_is_not_becomes_latin1() {
        assert_eq!(escaped(Escape::Json, "naïve ☃\"".as_bytes()), "naïve ☃\\\"".as_bytes());
        assert_eq!(escaped(Escape::Json, b"na\xEFve \xE2\x98"), "naïve â\u{98}".as_bytes());
        // An overlong slash (RFC 3629 §3) is not UTF-8.
        assert_eq!(escaped(Escape::Json, b"\xC0\xAF"), "À¯".as_bytes());
    }

    #[test]
    fn latin1_is_written_as_such_where_characters_are_and_as_it_came_elsewhere() {
        let as_latin1 = |escape: Escape| {
            let mut out = Vec::new();
            escape.push_latin1("é\"".as_bytes(), &mut out);
            out
        };
        assert_eq!(as_latin1(Escape::Json), "Ã©\\\"".as_bytes());
        assert_eq!(as_latin1(Escape::Utf8), "Ã©\"".as_bytes());
        for escape in [Escape::None, Escape::HeaderValue, Escape::LogField, Escape::Apache, Escape::Percent] {
            assert_eq!(as_latin1(escape), escaped(escape, "é\"".as_bytes()), "{escape:?}");
        }
    }

    #[test]
    fn the_plain_prefix_is_that_of_a_search_by_bytes() {
        for byte in 0..=u8::MAX {
            for length in 1..=20 {
                for position in 0..length {
                    for filler in [b'x', b' ', b'!', b'#', b'[', b']', b'~'] {
                        let mut text = vec![filler; length];
                        text[position] = byte;
                        let plain = matches!(byte, 0x20..=0x7E) && byte != b'"' && byte != b'\\';
                        let expected = if plain { length } else { position };
                        assert_eq!(json_plain_prefix(&text), expected, "{byte:#x} in {text:?}");
                    }
                }
            }
        }
    }
}
