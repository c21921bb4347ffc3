//! Field lines as a plain reader finds them: one byte, one line, one rule at a time.

use crate::chars::{is_token, trim_ows};
use crate::{Fields, Known};

type Lines<'a> = Vec<(&'a [u8], &'a [u8])>;

/// More than any test has.
const LINES_MAX: usize = 256;

/// The fast reader and the plain one agree on `data`, and on what follows its first line.
pub(super) fn check(data: &[u8]) {
    agree(data);
    if let Some(end) = data.windows(2).position(|pair| pair == b"\r\n") {
        agree(data.get(end + 2..).unwrap_or_default());
    }
}

fn agree(data: &[u8]) {
    let mut fields = Fields::default();
    let length = fields.read(data, 0, LINES_MAX);
    let plain = plain(data);
    assert_eq!(length, plain.as_ref().map(|(length, _)| *length));
    let lines = plain.map(|(_, lines)| lines).unwrap_or_default();
    let found: Vec<_> = fields.iter().map(|field| (field.name, field.value)).collect();
    assert_eq!(found, lines);
    for field in fields.iter() {
        let known =
            Known::ALL.iter().find(|known| known.as_str().as_bytes().eq_ignore_ascii_case(field.name));
        assert_eq!(field.known, known.copied());
        assert_eq!(
            fields.get_by_name(field.name).is_some(),
            known.is_none_or(|known| fields.contains(*known))
        );
    }
    for &known in Known::ALL {
        assert_eq!(fields.contains(known), fields.iter().any(|field| field.known == Some(known)));
    }
    let is_odd = |name: &[u8]| name.iter().any(|&byte| byte != b'-' && !byte.is_ascii_alphanumeric());
    assert_eq!(fields.may_have_odd_names(), fields.iter().any(|field| is_odd(field.name)));
}

/// The lines to the empty one, and where that ends.
fn plain(data: &[u8]) -> Option<(usize, Lines<'_>)> {
    let (mut lines, mut rest) = (Vec::new(), data);
    loop {
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        let (line, next) = (rest.get(..end)?, rest.get(end + 2..)?);
        if line.is_empty() {
            return Some((data.len() - next.len(), lines));
        }
        let colon = line.iter().position(|&byte| byte == b':')?;
        let (name, value) = (line.get(..colon)?, line.get(colon + 1..)?);
        let is_allowed = |&byte: &u8| byte == b'\t' || (byte >= b' ' && byte != 0x7F);
        if !is_token(name) || name.len() > 0xFFFF || !value.iter().all(is_allowed) || lines.len() == LINES_MAX
        {
            return None;
        }
        lines.push((name, trim_ows(value)));
        rest = next;
    }
}
