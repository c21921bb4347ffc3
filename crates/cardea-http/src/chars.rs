//! Byte classes of the grammars in one table: a test costs one load.

use crate::words::controls;

/// `tchar` (RFC 9110 §5.6.2).
pub(crate) const TOKEN: u8 = 1;
/// `unreserved` (RFC 3986 §2.3).
pub(crate) const UNRESERVED: u8 = 2;
/// Bytes that are allowed in a path without escaping, except `/` and `%`: `pchar` (RFC 3986 §3.3), and `[`, `]`, `|`,
/// `\`, which the URL standard of browsers doesn't escape there.
pub(crate) const PATH: u8 = 4;
/// Bytes that are allowed in a query without escaping, except `%`: `pchar`, `/`, `?` (RFC 3986 §3.4), and `[ ] { } | \
/// ^` and the back-quote, which browsers don't escape there.
pub(crate) const QUERY: u8 = 8;
/// Bytes that are allowed in a host name: letters, digits, `-`, `.` and `_`.
pub(crate) const HOST: u8 = 16;
/// Path bytes for which the quick test for a normal path fails.
pub(crate) const PATH_SPECIAL: u8 = 32;
/// Bytes of field names that fold to `-`: the punctuation of tokens, except `-`.
pub(crate) const ODD: u8 = 64;

static CLASSES: [u8; 256] = classes();

/// All classes of `byte`.
pub(crate) fn class_of(byte: u8) -> u8 {
    CLASSES.get(usize::from(byte)).copied().unwrap_or(0)
}

/// Whether `byte` is in (one of) the classes `class`.
pub(crate) fn is(byte: u8, class: u8) -> bool {
    class_of(byte) & class != 0
}

/// Whether `bytes` is a `token` (RFC 9110 §5.6.2): not empty, and only `tchar`.
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| is(byte, TOKEN))
}

/// Whether `bytes` is a field value after removal of surrounding white space (RFC 9110 §5.5): no control byte but HTAB.
/// 0x80–0xFF are allowed (`obs-text`).
pub(crate) fn is_field_value(bytes: &[u8]) -> bool {
    let has_controls = |word: &[u8; 8]| controls(u64::from_le_bytes(*word)) != 0;
    match bytes.last_chunk() {
        // The last eight bytes overlap those before.
        Some(last) => !has_controls(last) && !bytes.as_chunks().0.iter().any(has_controls),
        None => !bytes.iter().any(|&byte| (byte < 0x20 && byte != b'\t') || byte == 0x7F),
    }
}

/// `bytes` without the optional white space (SP, HTAB) around it.
pub(crate) fn trim_ows(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The members of a comma-separated list (RFC 9110 §5.6.1), trimmed, without empty ones.
pub(crate) fn list_members(value: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim_ows).filter(|member| !member.is_empty())
}

/// The value of a hexadecimal digit.
pub(crate) fn hex_value(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler: an index out of range does not build"
)]
const fn classes() -> [u8; 256] {
    let mut table = [0u8; 256];
    add(&mut table, b"!#$%&'*+-.^_`|~", TOKEN);
    add(&mut table, b"!#$%&'*+.^_`|~", ODD);
    add(&mut table, b"-._~", UNRESERVED | PATH | QUERY);
    add(&mut table, b"!$&'()*+,;=:@", PATH | QUERY);
    add(&mut table, b"[]|\\", PATH | QUERY);
    add(&mut table, b"/?{}^`", QUERY);
    add(&mut table, b"-._", HOST);
    add(&mut table, b"\\;", PATH_SPECIAL);
    let mut byte = 0;
    while byte < 256 {
        if (byte as u8).is_ascii_alphanumeric() {
            table[byte] |= TOKEN | UNRESERVED | PATH | QUERY | HOST;
        }
        // The full check refuses bytes that are not allowed at all.
        if table[byte] & PATH == 0 && byte != b'/' as usize {
            table[byte] |= PATH_SPECIAL;
        }
        byte += 1;
    }
    table
}

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler: an index out of range does not build"
)]
const fn add(table: &mut [u8; 256], bytes: &[u8], class: u8) {
    let mut at = 0;
    while at < bytes.len() {
        table[bytes[at] as usize] |= class;
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Byte by byte, following the grammar.
    fn is_field_value_plainly(bytes: &[u8]) -> bool {
        bytes.iter().all(|&byte| byte == b'\t' || (byte >= 0x20 && byte != 0x7F))
    }

    #[test]
    fn each_byte_in_each_place_is_judged_as_the_grammar_does() {
        for len in 1..=19 {
            for at in 0..len {
                for byte in 0..=u8::MAX {
                    for around in [b'a', b'\t', 0xFF, b' ', 0x80] {
                        let mut value = vec![around; len];
                        value[at] = byte;
                        assert_eq!(is_field_value(&value), is_field_value_plainly(&value), "{value:?}");
                    }
                }
            }
        }
        assert!(is_field_value(b""));
    }

    proptest! {
        #[test]
        fn values_are_judged_as_the_grammar_does(value in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(is_field_value(&value), is_field_value_plainly(&value));
            let text: Vec<u8> = value.iter().map(|byte| byte | 0x20).filter(|byte| *byte != 0x7F).collect();
            prop_assert!(is_field_value(&text));
        }
    }
}
