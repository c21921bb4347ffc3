//! Text as characters: the meaning of its non-ASCII bytes.
//!
//! Text is UTF-8, or Latin-1 (ISO 8859-1) if it is not valid UTF-8; [`Value::Latin1`] always is Latin-1. Texts with the
//! same characters are equal, whatever their encoding: otherwise a caller could bypass a rule that forbids a name by
//! sending it in another encoding.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::Value;

/// The characters of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Characters<'t> {
    Utf8(&'t str),
    /// One byte per character; not all ASCII.
    Latin1(&'t [u8]),
}

impl<'t> Characters<'t> {
    /// UTF-8 if it is valid, else Latin-1.
    pub(crate) fn of(text: &'t [u8]) -> Self {
        std::str::from_utf8(text).map_or(Characters::Latin1(text), Characters::Utf8)
    }

    /// Latin-1.
    pub(crate) fn of_latin1(text: &'t [u8]) -> Self {
        match std::str::from_utf8(text) {
            Ok(ascii) if ascii.is_ascii() => Characters::Utf8(ascii),
            _ => Characters::Latin1(text),
        }
    }

    /// The text in UTF-8.
    pub(crate) fn to_utf8(self) -> Cow<'t, str> {
        match self {
            Characters::Utf8(text) => Cow::Borrowed(text),
            // The first 256 code points are those of Latin-1.
            Characters::Latin1(text) => Cow::Owned(text.iter().copied().map(char::from).collect()),
        }
    }

    /// Code point order, which is the byte order of both encodings.
    pub(crate) fn order(self, other: Characters<'_>) -> Ordering {
        match (self, other) {
            (Characters::Utf8(left), Characters::Utf8(right)) => left.cmp(right),
            (Characters::Latin1(left), Characters::Latin1(right)) => left.cmp(right),
            (Characters::Utf8(left), Characters::Latin1(right)) => {
                left.chars().cmp(right.iter().copied().map(char::from))
            }
            (Characters::Latin1(_), Characters::Utf8(_)) => other.order(self).reverse(),
        }
    }
}

impl Value<'_> {
    /// The characters of text; `None` for other types.
    pub(crate) fn characters(&self) -> Option<Characters<'_>> {
        match self {
            Value::Bytes(text) => Some(Characters::of(text)),
            Value::Inline(text) => Some(Characters::of(text.as_bytes())),
            Value::Latin1(text) => Some(Characters::of_latin1(text)),
            _ => None,
        }
    }

    /// Whether this is text with the same characters as `text`.
    #[must_use]
    pub fn is_text(&self, text: &str) -> bool {
        self.characters().is_some_and(|characters| characters.order(Characters::Utf8(text)).is_eq())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts of one character each, in order.
    const IN_ORDER: [&str; 7] = ["", "a", "\u{80}", "é", "ÿ", "Ā", "☃"];

    #[test]
    fn text_has_an_order_whatever_it_is_written_in() {
        let latin1 =
            |text: &str| text.chars().map(|c| u8::try_from(u32::from(c))).collect::<Result<Vec<u8>, _>>();
        for (index, left) in IN_ORDER.iter().enumerate() {
            for (other, right) in IN_ORDER.iter().enumerate() {
                let expected = index.cmp(&other);
                let utf8 = Characters::of(right.as_bytes());
                assert_eq!(Characters::of(left.as_bytes()).order(utf8), expected, "{left} {right}");
                let Ok(left) = latin1(left) else { continue };
                assert_eq!(Characters::of_latin1(&left).order(utf8), expected);
                assert_eq!(utf8.order(Characters::of(&left)), expected.reverse());
                let Ok(right) = latin1(right) else { continue };
                assert_eq!(Characters::of(&left).order(Characters::of_latin1(&right)), expected);
            }
        }
    }

    #[test]
    fn what_is_not_utf8_is_latin1_and_what_came_as_latin1_always_is() {
        for (value, expected) in [
            (Value::Bytes(b"caf\xC3\xA9"), "café"),
            (Value::Bytes(b"caf\xE9"), "café"),
            (Value::Latin1(b"caf\xE9"), "café"),
            (Value::Latin1(b"caf\xC3\xA9"), "cafÃ©"),
            (Value::Latin1(b"cafe"), "cafe"),
            // An overlong slash (RFC 3629 §3) is two characters, and no slash.
            (Value::Bytes(b"\xC0\xAF"), "À¯"),
        ] {
            assert!(value.is_text(expected), "{value:?}");
            assert_eq!(value.characters().unwrap().to_utf8(), expected);
        }
        assert!(!Value::Latin1(b"caf\xC3\xA9").is_text("café"));
        assert!(!Value::Int(1).is_text("1") && !Value::Absent.is_text(""));
    }
}
