//! Functions of text. Positions count characters, and results are UTF-8.

use super::fault::FaultKind;
use super::meter::Meter;
use crate::value::{List, Value};

type Result<T> = std::result::Result<T, FaultKind>;

/// The byte offset of the character with this index; the length for the index after the last.
fn offset(text: &str, index: i64) -> Result<usize> {
    let index = usize::try_from(index).map_err(|_| FaultKind::Range)?;
    let begins = text.char_indices().map(|(at, _)| at);
    begins.chain([text.len()]).nth(index).ok_or(FaultKind::Range)
}

/// The offset of the next character; the length if there is none.
fn next(text: &str, at: usize) -> usize {
    let character = text.get(at..).and_then(|rest| rest.chars().next());
    character.map_or(text.len(), |character| at + character.len_utf8())
}

/// The index of the character at this byte offset.
fn index(text: &str, offset: usize) -> i64 {
    text.get(..offset).map_or(-1, |before| before.chars().count() as i64)
}

fn arguments<'v, 'e, const N: usize>(values: &'v [Value<'e>], meter: &Meter<'e>) -> Result<[&'v str; N]> {
    let mut texts = [""; N];
    for (room, value) in texts.iter_mut().zip(values) {
        *room = meter.utf8(value)?.ok_or(FaultKind::Type)?;
    }
    Ok(texts)
}

fn number(value: Option<&Value<'_>>, default: i64) -> Result<i64> {
    match value {
        None => Ok(default),
        Some(Value::Int(number)) => Ok(*number),
        Some(_) => Err(FaultKind::Type),
    }
}

/// The first occurrence of one text in another, from an offset on.
fn find(text: &str, part: &str, from: usize) -> Option<usize> {
    memchr::memmem::find(text.as_bytes().get(from..)?, part.as_bytes()).map(|at| at + from)
}

pub(super) fn contains<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let [text, part] = arguments(values, meter)?;
    meter.bytes(text.len() + part.len())?;
    Ok(Value::Bool(find(text, part, 0).is_some()))
}

pub(super) fn starts_with<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let [text, part] = arguments(values, meter)?;
    meter.bytes(text.len() + part.len())?;
    Ok(Value::Bool(text.starts_with(part)))
}

pub(super) fn ends_with<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let [text, part] = arguments(values, meter)?;
    meter.bytes(text.len() + part.len())?;
    Ok(Value::Bool(text.ends_with(part)))
}

pub(super) fn char_at<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let [text] = arguments(&values[..1], meter)?;
    meter.bytes(text.len())?;
    let start = offset(text, number(values.get(1), 0)?)?;
    meter.text(&text[start..next(text, start)])
}

pub(super) fn index_of<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let [text, part] = arguments(&values[..2], meter)?;
    meter.bytes(text.len() + part.len())?;
    let from = offset(text, number(values.get(2), 0)?)?;
    Ok(Value::Int(find(text, part, from).map_or(-1, |at| index(text, at))))
}

pub(super) fn last_index_of<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let [text, part] = arguments(&values[..2], meter)?;
    meter.bytes(text.len() + part.len())?;
    // The part may begin at this index, but not after it.
    let last = match values.get(2) {
        None => text.len(),
        index => offset(text, number(index, 0)?)?,
    };
    let end = last.saturating_add(part.len()).min(text.len());
    let found = memchr::memmem::rfind(&text.as_bytes()[..end], part.as_bytes());
    Ok(Value::Int(found.map_or(-1, |at| index(text, at))))
}

pub(super) fn lower_ascii<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let [text] = arguments(values, meter)?;
    meter.fits(text.len())?;
    meter.text(text.to_ascii_lowercase())
}

pub(super) fn upper_ascii<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let [text] = arguments(values, meter)?;
    meter.fits(text.len())?;
    meter.text(text.to_ascii_uppercase())
}

pub(super) fn trim<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let Some(text) = meter.held(values[0])? else { return Err(FaultKind::Type) };
    meter.bytes(text.len())?;
    Ok(Value::Bytes(text.trim().as_bytes()))
}

pub(super) fn reverse<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let [text] = arguments(values, meter)?;
    meter.fits(text.len())?;
    meter.text(text.chars().rev().collect::<String>())
}

pub(super) fn substring<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let Some(text) = meter.held(values[0])? else { return Err(FaultKind::Type) };
    meter.bytes(text.len())?;
    let start = offset(text, number(values.get(1), 0)?)?;
    let end = match values.get(2) {
        None => text.len(),
        end => offset(text, number(end, 0)?)?,
    };
    text.get(start..end).map(|part| Value::Bytes(part.as_bytes())).ok_or(FaultKind::Range)
}

pub(super) fn replace<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let [text, old, new] = arguments(&values[..3], meter)?;
    meter.bytes(text.len())?;
    let limit = usize::try_from(number(values.get(3), -1)?).unwrap_or(usize::MAX);
    let mut out = String::new();
    let mut rest = 0;
    for count in 0.. {
        let found = if count < limit { find(text, old, rest) } else { None };
        let Some(found) = found else { break };
        // An empty text is found at every position between characters.
        let next = if old.is_empty() { next(text, found) } else { found };
        meter.fits(out.len() + (next - rest) + new.len())?;
        meter.step()?;
        if old.is_empty() {
            out.push_str(new);
            out.push_str(&text[found..next]);
            rest = next;
            if found == text.len() {
                break;
            }
        } else {
            out.push_str(&text[rest..found]);
            out.push_str(new);
            rest = found + old.len();
        }
    }
    meter.fits(out.len() + text.len() - rest)?;
    out.push_str(&text[rest..]);
    meter.text(out)
}

pub(super) fn split<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let Some(text) = meter.held(values[0])? else { return Err(FaultKind::Type) };
    let [separator] = arguments(values.get(1..2).unwrap_or_default(), meter)?;
    meter.bytes(text.len())?;
    let limit = usize::try_from(number(values.get(2), -1)?).unwrap_or(usize::MAX);
    let mut items = Vec::new();
    let mut rest = 0;
    let room = |items: &Vec<Value<'_>>| {
        meter.step()?;
        meter.fits((items.len() + 1) * size_of::<Value<'_>>())
    };
    while items.len() + 1 < limit {
        let (end, next) = if separator.is_empty() {
            let next = next(text, rest);
            if next >= text.len() {
                break;
            }
            (next, next)
        } else {
            let Some(end) = find(text, separator, rest) else { break };
            (end, end + separator.len())
        };
        room(&items)?;
        items.push(Value::Bytes(&text.as_bytes()[rest..end]));
        rest = next;
    }
    if limit > 0 && !(separator.is_empty() && text.is_empty()) {
        room(&items)?;
        items.push(Value::Bytes(&text.as_bytes()[rest..]));
    }
    Ok(Value::List(List::of_items(meter.items(&items)?)))
}

pub(super) fn join<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let Value::List(list) = values[0] else { return Err(FaultKind::Type) };
    let separator = match values.get(1) {
        None => "",
        Some(separator) => meter.utf8(separator)?.ok_or(FaultKind::Type)?,
    };
    let mut out = String::new();
    for (index, item) in list.iter().enumerate() {
        meter.step()?;
        let item = meter.utf8(&item)?.ok_or(FaultKind::Type)?;
        meter.fits(out.len() + separator.len() + item.len())?;
        if index > 0 {
            out.push_str(separator);
        }
        out.push_str(item);
    }
    meter.text(out)
}

/// Whether a text matches a pattern: `*` is any number of characters but `/`, `**` any number of any, `?` one character
/// but `/`; a backslash escapes the next one. The whole text is compared.
pub(super) fn glob<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let [text, pattern] = arguments(values, meter)?;
    // The worst case: each position of the text with each of the pattern.
    meter.product(text.len() + 1, pattern.len() + 1)?;
    Ok(Value::Bool(matches_glob(text, pattern)))
}

/// Tracks the set of pattern positions that the text so far may have reached: no backtracking, and so no blow-up.
fn matches_glob(text: &str, pattern: &str) -> bool {
    let parts = parts(pattern.as_bytes());
    let skip = |reached: &mut [bool]| {
        for (place, part) in parts.iter().enumerate() {
            if reached[place] && matches!(part, Part::Some | Part::Any) {
                reached[place + 1] = true;
            }
        }
    };
    let mut reached = vec![false; parts.len() + 1];
    let mut next = reached.clone();
    reached[0] = true;
    skip(&mut reached);
    for byte in text.as_bytes() {
        // Continuation bytes belong to the first byte of a character.
        let inside = byte & 0xC0 == 0x80;
        next.fill(false);
        for (place, part) in parts.iter().enumerate() {
            match part {
                Part::Any => next[place] |= reached[place],
                Part::Some => next[place] |= reached[place] && *byte != b'/',
                Part::One if inside => next[place + 1] |= reached[place + 1],
                Part::One => next[place + 1] |= reached[place] && *byte != b'/',
                Part::Byte(expected) => next[place + 1] |= reached[place] && expected == byte,
            }
        }
        skip(&mut next);
        std::mem::swap(&mut reached, &mut next);
    }
    reached[parts.len()]
}

#[derive(Clone, Copy)]
enum Part {
    Byte(u8),
    One,
    Some,
    Any,
}

fn parts(pattern: &[u8]) -> Vec<Part> {
    let mut parts = Vec::with_capacity(pattern.len());
    let mut bytes = pattern.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        parts.push(match byte {
            b'*' if bytes.next_if_eq(&b'*').is_some() => Part::Any,
            b'*' => Part::Some,
            b'?' => Part::One,
            b'\\' => Part::Byte(bytes.next().unwrap_or(b'\\')),
            byte => Part::Byte(byte),
        });
    }
    parts
}
