//! `application/x-www-form-urlencoded` (WHATWG URL §5.1, RFC 6749 appendix B), strict and bounded.

use std::str;

use zeroize::Zeroizing;

/// The most parameters of a request.
const PARAMETERS_MAX: usize = 64;

/// The parameters of a body that have a value, in order. Values may be secrets; they are wiped on drop.
pub(crate) struct Form(Vec<(String, Zeroizing<String>)>);

/// Why a body can't be parsed as a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormError {
    /// An octet that must be escaped, an invalid escape, or text that isn't UTF-8.
    Malformed,
    /// More than [`PARAMETERS_MAX`] parameters.
    TooMany,
}

impl Form {
    /// Parses a body. A parameter without a value counts as absent (RFC 6749 §3.2) and is dropped.
    ///
    /// # Errors
    /// [`FormError`].
    pub(crate) fn parse(body: &[u8]) -> Result<Self, FormError> {
        let mut parameters = Vec::new();
        for (index, pair) in body.split(|byte| *byte == b'&').enumerate() {
            if index >= PARAMETERS_MAX {
                return Err(FormError::TooMany);
            }
            let (name, value) = match pair.iter().position(|byte| *byte == b'=') {
                Some(equals) => (&pair[..equals], &pair[equals + 1..]),
                None => (pair, &[][..]),
            };
            let name = text(name).ok_or(FormError::Malformed)?;
            let value = text(value).ok_or(FormError::Malformed)?;
            if !value.is_empty() {
                parameters.push((name.to_string(), value));
            }
        }
        Ok(Self(parameters))
    }

    /// The value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// All values of a parameter that may be repeated.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The first parameter that is repeated. Only `resource` may be (RFC 8707 §2). Unknown parameters count too,
    /// because RFC 6749 §3.2 forbids repetition before it allows to ignore them.
    pub(crate) fn repeated(&self) -> Option<&str> {
        let mut names: Vec<&str> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        let repeated = names.windows(2).find(|pair| pair[0] == pair[1] && pair[0] != "resource");
        repeated.map(|pair| pair[0])
    }
}

/// Undoes form-encoding: `+` is a space, `%XX` an octet. `None` if an escape is invalid. Other octets are unchanged.
pub(crate) fn decode(encoded: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut decoded = Zeroizing::new(Vec::with_capacity(encoded.len()));
    let mut rest = encoded;
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (b'%', [high, low, tail @ ..]) => {
                decoded.push(hex_digit(*high)? << 4 | hex_digit(*low)?);
                tail
            }
            (b'%', _) => return None,
            (b'+', _) => {
                decoded.push(b' ');
                tail
            }
            (byte, _) => {
                decoded.push(*byte);
                tail
            }
        };
    }
    Some(decoded)
}

/// Decodes a name or a value of a body. Only visible ASCII may be unescaped.
fn text(encoded: &[u8]) -> Option<Zeroizing<String>> {
    if !encoded.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let decoded = decode(encoded)?;
    Some(Zeroizing::new(str::from_utf8(&decoded).ok()?.to_owned()))
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(body: &str) -> Result<Vec<(String, String)>, FormError> {
        Form::parse(body.as_bytes())
            .map(|form| form.0.iter().map(|(name, value)| (name.clone(), value.to_string())).collect())
    }

    #[test]
    fn forms_are_decoded() {
        let expect = |body: &str, expected: &[(&str, &str)]| {
            let expected: Vec<_> =
                expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            assert_eq!(pairs(body), Ok(expected), "{body:?}");
        };
        expect("", &[]);
        expect("a=1&b=2", &[("a", "1"), ("b", "2")]);
        expect("a=b+c%20d%2Be", &[("a", "b c d+e")]);
        expect("a==b", &[("a", "=b")]);
        expect("a=%c3%a9", &[("a", "é")]);
        expect("%61=1", &[("a", "1")]);
        // Without a value: treated as absent (RFC 6749 §3.2).
        expect("a=&b&=&&c=1&", &[("c", "1")]);
    }

    #[test]
    fn what_form_encoding_never_writes_is_refused() {
        for body in [
            "a=%", "a=%4", "a=%zz", "a=%+1", "a=\u{e9}", "a=b c", "a=b\r\n", "a=\0", "a=%ff", "%=1",
            "a=%u0041",
        ] {
            assert_eq!(pairs(body), Err(FormError::Malformed), "{body:?}");
        }
    }

    #[test]
    fn the_number_of_parameters_is_bounded() {
        assert_eq!(pairs(&"a=1&".repeat(63)).unwrap().len(), 63);
        assert_eq!(pairs(&"a=1&".repeat(64)), Err(FormError::TooMany));
        assert_eq!(pairs(&"&".repeat(100_000)), Err(FormError::TooMany));
    }

    #[test]
    fn repetition_is_noticed_but_for_resource_and_empty_values() {
        for (body, repeated) in [
            ("a=1&b=2", None),
            ("a=1&a=1", Some("a")),
            ("a=1&b=2&%61=3", Some("a")),
            ("a=1&a=", None),
            ("a=1&A=1", None),
            ("resource=x&resource=y", None),
        ] {
            assert_eq!(
                Form::parse(body.as_bytes())
                    .map(|form| form.repeated().map(str::to_owned))
                    .ok()
                    .flatten()
                    .as_deref(),
                repeated,
                "{body}"
            );
        }
    }

    proptest! {
        #[test]
        fn parsing_agrees_with_the_url_crate_on_what_it_encodes(
            list in proptest::collection::vec(("[a-z]{1,5}", "\\PC{1,20}"), 0..20)
        ) {
            let body: String = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(&list).finish();
            prop_assert_eq!(pairs(&body), Ok(list));
        }

        #[test]
        fn no_body_panics(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Form::parse(&body);
            let _ = decode(&body);
        }
    }
}
