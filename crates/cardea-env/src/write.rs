//! Writes any value as text or JSON.

use std::ops::ControlFlow;

use crate::escape::{Escape, push_json, push_json_latin1};
use crate::redaction::{Hide, REDACTED, shown_query};
use crate::value::format::{self, Unit};
use crate::value::{Inline, Value};

/// The depth to which lists and maps are written; deeper parts are null.
const DEPTH_MAX: usize = 16;

/// Appends a value as text.
///
/// The items of a list are separated by commas; a map, and a list in a list, is written as JSON.
pub(crate) fn push_text(value: Value<'_>, hide: Option<&Hide>, escape: Escape, out: &mut Vec<u8>) -> Written {
    let altered = match (value, hide) {
        (Value::Absent | Value::Failed, _) => return Written::Nothing,
        (_, Some(Hide::Whole)) => escape.push(REDACTED, out),
        (_, Some(Hide::Query(secret))) => push_query(value, secret, escape, out),
        (Value::List(list), _) => {
            let mut altered = false;
            for (index, item) in list.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                altered |= match item {
                    Value::List(_) | Value::Map(_) => push_as_json(item, None, escape, out),
                    item => push_scalar(item, escape, out),
                };
            }
            altered
        }
        (Value::Map(_), hide) => push_as_json(value, hide, escape, out),
        (value, _) => push_scalar(value, escape, out),
    };
    if altered { Written::Altered } else { Written::AsIs }
}

/// The result of writing a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// The value is absent.
    Nothing,
    /// The value was written.
    AsIs,
    /// The value was written, with bytes replaced that a header can't contain.
    Altered,
}

fn push_scalar(value: Value<'_>, escape: Escape, out: &mut Vec<u8>) -> bool {
    if let Value::Networks(networks) = value {
        for (index, network) in networks.iter().enumerate() {
            // Networks need no escape, except `/` and `:` in a URI.
            let text = Inline::display(network);
            escape.push(if index > 0 { b"," } else { b"" }, out);
            escape.push(text.as_bytes(), out);
        }
        return false;
    }
    if let Value::Latin1(text) = value {
        return escape.push_latin1(text, out);
    }
    let mut scratch = Inline::new();
    value.text(&mut scratch).is_some_and(|text| escape.push(text, out))
}

fn push_query(value: Value<'_>, secret: &[Box<str>], escape: Escape, out: &mut Vec<u8>) -> bool {
    let mut scratch = Inline::new();
    let Some(text) = value.text(&mut scratch) else { return escape.push(REDACTED, out) };
    let push = if matches!(value, Value::Latin1(_)) { Escape::push_latin1 } else { Escape::push };
    shown_query(text, secret).fold(false, |altered, piece| altered | push(escape, piece, out))
}

/// Writes the JSON, then its escaped form after it, and removes the former: no memory but that of `out`.
fn push_as_json(value: Value<'_>, hide: Option<&Hide>, escape: Escape, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    push_json_value(value, hide, Unit::Seconds, out);
    let end = out.len();
    let mut altered = false;
    let mut next = start;
    while next < end {
        // One character of up to four bytes, which must not be split.
        let mut character = [0; 4];
        let mut length = 0;
        while next < end && length < character.len() && (length == 0 || out[next] & 0xC0 == 0x80) {
            character[length] = out[next];
            length += 1;
            next += 1;
        }
        altered |= escape.push(&character[..length], out);
    }
    out.drain(start..end);
    altered
}

/// Appends a value as JSON. Durations are numbers in a unit; absent values are null.
pub(crate) fn push_json_value(value: Value<'_>, hide: Option<&Hide>, unit: Unit, out: &mut Vec<u8>) {
    match hide {
        None => push(value, None, unit, DEPTH_MAX, out),
        Some(Hide::Whole) => quote(REDACTED, out),
        Some(Hide::Keys(_)) => push(value, hide, unit, DEPTH_MAX, out),
        Some(Hide::Query(secret)) => {
            let mut scratch = Inline::new();
            let Some(text) = value.text(&mut scratch) else { return quote(REDACTED, out) };
            let push = if matches!(value, Value::Latin1(_)) { push_json_latin1 } else { push_json };
            out.push(b'"');
            shown_query(text, secret).for_each(|piece| push(piece, out));
            out.push(b'"');
        }
    }
}

fn push(value: Value<'_>, hide: Option<&Hide>, unit: Unit, depth: usize, out: &mut Vec<u8>) {
    match value {
        Value::Absent | Value::Failed | Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(number) => out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
        Value::Uint(number) => out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
        Value::Double(number) if number.is_finite() => {
            out.extend_from_slice(format::double(number).as_bytes())
        }
        Value::Double(_) => out.extend_from_slice(b"null"),
        Value::Duration(nanos) => out.extend_from_slice(unit.format(nanos).as_bytes()),
        Value::Bytes(text) => quote(text, out),
        Value::Latin1(text) => {
            out.push(b'"');
            push_json_latin1(text, out);
            out.push(b'"');
        }
        Value::Inline(text) => quote(text.as_bytes(), out),
        Value::Type(name) => quote(name.as_bytes(), out),
        Value::Address(address) => quote_plain(format::address(address).as_bytes(), out),
        Value::Time(nanos) => quote_plain(&format::rfc3339(nanos), out),
        Value::Networks(networks) => {
            push_items(
                networks.iter().map(|network| Value::Inline(Inline::display(network))),
                unit,
                depth,
                out,
            );
        }
        Value::List(_) | Value::Map(_) if depth == 0 => out.extend_from_slice(b"null"),
        Value::List(list) => push_items(list.iter(), unit, depth, out),
        Value::Map(map) => {
            let start = out.len();
            let _ = map.each(&mut |key, value| {
                let mut scratch = Inline::new();
                let Some(text) = key.text(&mut scratch) else { return ControlFlow::Continue(()) };
                let value = match hide {
                    Some(Hide::Keys(keys)) => Hide::entry(keys, key, value),
                    _ => value,
                };
                out.push(b',');
                quote(text, out);
                out.push(b':');
                push(value, None, unit, depth - 1, out);
                ControlFlow::Continue(())
            });
            enclose(b'{', b'}', start, out);
        }
    }
}

fn push_items<'a>(items: impl Iterator<Item = Value<'a>>, unit: Unit, depth: usize, out: &mut Vec<u8>) {
    let start = out.len();
    for item in items {
        out.push(b',');
        push(item, None, unit, depth.saturating_sub(1), out);
    }
    enclose(b'[', b']', start, out);
}

/// Adds brackets around the output from `start` on, the first of them in place of its first comma.
fn enclose(open: u8, close: u8, start: usize, out: &mut Vec<u8>) {
    match out.get_mut(start) {
        Some(comma) => *comma = open,
        None => out.push(open),
    }
    out.push(close);
}

fn quote(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    push_json(text, out);
    out.push(b'"');
}

/// The same for text that needs no escape.
fn quote_plain(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(text);
    out.push(b'"');
}
