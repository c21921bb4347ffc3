//! What attributes need of a request beyond its head: parameters of the query, cookies.
//!
//! Names and values of the query are decoded before they are compared, since services decode them too: a rule that
//! compared what is on the wire would not see `%61dmin`.

use std::sync::OnceLock;

/// What is worked out once for a request, when it is first asked for; until then it is one empty pointer.
#[derive(Debug, Default)]
pub(crate) struct Derived {
    parameters: OnceLock<Box<[Pair]>>,
    cookies: OnceLock<Box<[Pair]>>,
}

/// A parameter of the query, decoded, or a cookie.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) name: Vec<u8>,
    /// The first of its values.
    pub(crate) value: Vec<u8>,
    /// There are others, of which a service may take any, or all as a list.
    pub(crate) is_ambiguous: bool,
}

impl Derived {
    /// Forgets all of it.
    pub(crate) fn clear(&mut self) {
        self.parameters.take();
        self.cookies.take();
    }

    /// The parameters of the query, decoded and sorted by name; each name once.
    pub(crate) fn parameters(&self, query: &[u8]) -> &[Pair] {
        self.parameters.get_or_init(|| {
            let all = pairs(query).map(|(name, value)| (utf8(decode(name)), decode(value)));
            distinct(all, |_, _| true)
        })
    }

    /// The cookies, sorted by name; each name once.
    pub(crate) fn cookies<'a>(&self, lines: impl Iterator<Item = &'a [u8]>) -> &[Pair] {
        self.cookies.get_or_init(|| {
            let all = cookies(lines).map(|(name, value)| (name.to_vec(), value.to_vec()));
            distinct(all, |one, other| one != other)
        })
    }

    /// A parameter of the query.
    pub(crate) fn parameter(&self, query: &[u8], name: &[u8]) -> Option<&Pair> {
        let parameters = self.parameters(query);
        let at = parameters.binary_search_by(|known| known.name.as_slice().cmp(name)).ok()?;
        parameters.get(at)
    }
}

/// Each name once, where two values of it may `differ` for a service. Sorted, so that a client that sends thousands does not
/// make us compare each with each.
fn distinct(
    pairs: impl Iterator<Item = (Vec<u8>, Vec<u8>)>,
    differ: impl Fn(&[u8], &[u8]) -> bool,
) -> Box<[Pair]> {
    let mut all: Vec<Pair> = pairs.map(|(name, value)| Pair { name, value, is_ambiguous: false }).collect();
    all.sort_by(|left, right| left.name.cmp(&right.name));
    all.dedup_by(|later, first| {
        let same = later.name == first.name;
        first.is_ambiguous |= same && differ(&later.value, &first.value);
        same
    });
    all.into()
}

/// The pairs of a query as they are written (application/x-www-form-urlencoded); a name alone has an empty value.
fn pairs(query: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=');
        equals.map_or((pair, &[][..]), |at| (&pair[..at], pair.get(at + 1..).unwrap_or_default()))
    })
}

/// `+` and `%HH` decoded; what is no escape stays as it is.
fn decode(text: &[u8]) -> Vec<u8> {
    let hex = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        decoded.push(match first {
            b'+' => b' ',
            b'%' => match (hex(tail.first()), hex(tail.get(1))) {
                (Some(high), Some(low)) => {
                    rest = tail.get(2..).unwrap_or_default();
                    (high * 16 + low) as u8
                }
                _ => b'%',
            },
            other => *other,
        });
    }
    decoded
}

/// Rules name parameters in UTF-8, and values that are not UTF-8 are read as Latin-1: so are names.
fn utf8(name: Vec<u8>) -> Vec<u8> {
    match std::str::from_utf8(&name) {
        Ok(_) => name,
        Err(_) => name.into_iter().map(char::from).collect::<String>().into_bytes(),
    }
}

/// The cookies of a request (RFC 6265 §4.2.1) as they were sent, all lines in their order.
pub(crate) fn cookies<'a>(
    lines: impl Iterator<Item = &'a [u8]>,
) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    lines.flat_map(|line| {
        line.split(|byte| *byte == b';').filter_map(|pair| {
            let (name, value) = pair.split_at(pair.iter().position(|byte| *byte == b'=')?);
            Some((name.trim_ascii(), value.get(1..).unwrap_or_default().trim_ascii()))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_parameters_are_detected() {
        let query =
            b"role=user&%72ole=admin&a=%41+b%2&flag&=x&empty=&same=1&same=1&gr%F6%DFe=1&gr%C3%B6%C3%9Fe=2";
        let derived = Derived::default();
        for (name, expected) in [
            ("role", Some(("user", true))),
            ("a", Some(("A b%2", false))),
            ("flag", Some(("", false))),
            ("empty", Some(("", false))),
            ("", Some(("x", false))),
            ("same", Some(("1", true))),
            ("Role", None),
            ("größe", Some(("1", true))),
        ] {
            let found = derived.parameter(query, name.as_bytes());
            let found = found.map(|found| (std::str::from_utf8(&found.value).unwrap(), found.is_ambiguous));
            assert_eq!(found, expected, "{name}");
        }
        assert_eq!(Derived::default().parameter(b"%72ole=admin", b"role").unwrap().value, b"admin");
    }

    #[test]
    fn cookies_come_from_all_lines() {
        let lines = [&b"a=1; session=first;b"[..], b"session=second; =x; c = 3 "];
        let found: Vec<String> = cookies(lines.into_iter())
            .map(|(name, value)| format!("{}:{}", name.escape_ascii(), value.escape_ascii()))
            .collect();
        assert_eq!(found, ["a:1", "session:first", "session:second", ":x", "c:3"]);
    }
}
