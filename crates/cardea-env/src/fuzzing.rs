//! Properties that hold for any bytes: the bodies of the fuzz targets, run by the fuzzers and by a test that replays
//! their corpus.
//!
//! The bytes are a text followed by NUL-separated values for the request: path, a header, a claim.

#[cfg(test)]
mod tests;

use crate::expression::Fault;
use crate::testing::{Request, names, request};
use crate::value::format::Unit;
use crate::write::push_json_value;
use crate::{Escape, Expression, Lookup as _, Owned, Scratch, Template, Value};

/// The most memory of an evaluation: its limit, and the growth of an arena.
const MEMORY_MAX: usize = 512 * 1024;

/// A value that no text contains by chance.
const SECRET: &[u8] = b"f2c1e7a09b6d48d3";

/// A text, and a request from the rest, which contains a secret.
fn split(data: &[u8]) -> Option<(&str, Request)> {
    let mut parts = data.split(|byte| *byte == 0);
    let text = std::str::from_utf8(parts.next()?).ok()?;
    let mut request = request();
    let names = names();
    let mut set = |name: &str, value: Owned| {
        if let Ok(reference) = names.resolve(name) {
            let _ = request.overrides.set(&reference, value);
        }
    };
    for name in ["request.path", "request.headers.x-tenant", "token.claims.level"] {
        match parts.next() {
            Some(value) if name.contains("headers") && value.len() % 2 == 1 => {
                set(name, Owned::Latin1(value.into()));
            }
            Some(value) => set(name, Owned::text(value)),
            None => {}
        }
    }
    set("request.headers.cookie", Owned::text(SECRET));
    set("request.query", Owned::text([b"a=1&code=", SECRET].concat()));
    Some((text, request))
}

/// An expression compiles or fails with a position. Its value stays within the limits, is deterministic, and can be
/// written; shown values contain no secret.
pub fn expression(data: &[u8]) {
    let Some((text, request)) = split(data) else { return };
    let names = names();
    let expression = match Expression::compile(text, &names) {
        Ok(expression) => expression,
        Err(error) => {
            assert!(text.is_char_boundary(error.position.min(text.len())) && error.position <= text.len());
            assert!(!error.message.contains(['\n', '\r']));
            return;
        }
    };
    let scratch = Scratch::new();
    let value = expression.evaluate(&request, &scratch);
    assert!(scratch.bytes() <= MEMORY_MAX);
    let written = json(value, text);
    assert_eq!(written, json(expression.evaluate(&request, &Scratch::new()), text));
    if let Ok(shown) = Expression::compile_in(text, &names.view(), true) {
        let scratch = Scratch::new();
        let written = json(shown.evaluate(&request, &scratch), text);
        // The fuzzer learns the secret from this comparison, and writes it into the text.
        let known = SECRET.windows(4).any(|part| holds(data, part));
        assert!(known || !holds(&written, SECRET));
    }
}

fn holds(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn json(value: Result<Value<'_>, Fault>, text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        Ok(value) => {
            push_json_value(value, None, Unit::Seconds, &mut out);
            assert!(serde_json::from_slice::<serde_json::Value>(&out).is_ok());
        }
        Err(fault) => {
            assert!(fault.position as usize <= text.len());
            out.extend_from_slice(fault.to_string().as_bytes());
        }
    }
    out
}

/// A template compiles or fails with a position. A header value contains no control characters, a log line no line
/// feed, and keys differ if values do.
pub fn template(data: &[u8]) {
    let Some((text, request)) = split(data) else { return };
    let names = names();
    let template = match Template::compile_raw(text, &names) {
        Ok(template) => template,
        Err(error) => {
            assert!(text.is_char_boundary(error.position.min(text.len())) && error.position <= text.len());
            assert!(!error.message.contains(['\n', '\r']));
            return;
        }
    };
    let render = |escape: Escape| {
        let mut out = Vec::new();
        let _ = template.render(&request, escape, &mut out);
        out
    };
    let header = render(Escape::HeaderValue);
    assert!(!header.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t'));
    assert_eq!(header, header.trim_ascii());
    let printable = |byte: &u8| matches!(byte, 0x20..=0x7E);
    // The template's own text is unchanged, except in headers.
    if text.bytes().all(|byte| printable(&byte)) {
        for escape in [Escape::LogField, Escape::Apache, Escape::ApacheBare, Escape::Percent] {
            assert!(render(escape).iter().all(printable));
        }
    }
    if let Some(constant) = template.constant() {
        assert_eq!(render(Escape::None), constant);
    }
    let mut key = Vec::new();
    let one = template.render_key(&request, &mut key);
    let mut rest = key.as_slice();
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let length = match u32::from_be_bytes(*length) {
            u32::MAX => 0,
            length => length as usize,
        };
        assert!(length <= tail.len());
        rest = &tail[length..];
    }
    assert!(rest.is_empty());
    assert_eq!(one.absent, template.render(&request, Escape::None, &mut Vec::new()).absent);
}

/// All lookups agree on whether a name exists. Removed names are absent everywhere, and others are unchanged.
pub fn attribute(data: &[u8]) {
    let Some((name, mut request)) = split(data) else { return };
    let names = names();
    let reference = match names.resolve(name) {
        Ok(reference) => reference,
        Err(error) => {
            // At most 64 characters of the name, each escaped to up to ten.
            assert!(error.to_string().chars().count() < 1_000);
            assert!(!error.to_string().contains(['\n', '\r']));
            return;
        }
    };
    let before = Owned::of(reference.read(&request));
    assert_eq!(before, Owned::of(names.dictionary(&request).get(name)), "{name:?}");
    let count = names.dictionary(&request).len();
    if request.overrides.remove(&reference).is_err() {
        return;
    }
    assert!(reference.read(&request).is_absent());
    assert!(!names.dictionary(&request).contains(name));
    assert!(names.dictionary(&request).len() <= count);
    let set = Owned::text("set");
    assert_eq!(request.overrides.set(&reference, set.clone()), Ok(()));
    assert_eq!(Owned::of(reference.read(&request)), Some(set.clone()));
    assert_eq!(Owned::of(names.dictionary(&request).get(name)), Some(set));
    request.overrides.clear();
    assert!(reference.read(&request).is_absent() && names.dictionary(&request).is_empty());
}
