//! Functions of text. Positions count characters; text that is not UTF-8 is Latin-1, where each byte is one.

use super::compare;
use super::fault::FaultKind;
use super::meter::Meter;
use crate::value::{List, Value};

type Result<T> = std::result::Result<T, FaultKind>;

/// Text, with its characters.
#[derive(Clone, Copy)]
struct Characters<'t> {
    bytes: &'t [u8],
    /// One byte each.
    single: bool,
}

impl<'t> Characters<'t> {
    fn of(bytes: &'t [u8]) -> Self {
        Self { bytes, single: bytes.is_ascii() || std::str::from_utf8(bytes).is_err() }
    }

    fn count(self) -> usize {
        if self.single { self.bytes.len() } else { self.bytes.iter().filter(|byte| begins(**byte)).count() }
    }

    /// Where the character of this index begins; the length, for the index behind the last.
    fn offset(self, index: i64) -> Result<usize> {
        let index = usize::try_from(index).map_err(|_| FaultKind::Range)?;
        if self.single {
            return if index <= self.bytes.len() { Ok(index) } else { Err(FaultKind::Range) };
        }
        let begins = self.bytes.iter().enumerate().filter(|(_, byte)| begins(**byte)).map(|(at, _)| at);
        begins.chain([self.bytes.len()]).nth(index).ok_or(FaultKind::Range)
    }

    /// Where the character behind the one at an offset begins.
    fn next(self, at: usize) -> usize {
        if self.single {
            return (at + 1).min(self.bytes.len());
        }
        (at + 1..self.bytes.len()).find(|next| begins(self.bytes[*next])).unwrap_or(self.bytes.len())
    }

    /// The index of the character that begins at this offset.
    fn index(self, offset: usize) -> i64 {
        let before = Self { bytes: &self.bytes[..offset], single: self.single };
        before.count() as i64
    }
}

/// Whether a byte of UTF-8 begins a character.
fn begins(byte: u8) -> bool {
    byte & 0xC0 != 0x80
}

/// How many characters there are.
pub(super) fn size(text: &[u8]) -> i64 {
    Characters::of(text).count() as i64
}

fn arguments<'v, 'e, const N: usize>(values: &'v [Value<'e>]) -> Result<[&'v [u8]; N]> {
    let mut texts = [b"".as_slice(); N];
    for (room, value) in texts.iter_mut().zip(values) {
        *room = compare::text(value).ok_or(FaultKind::Type)?;
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

/// Where one text is first found in another, from an offset on.
fn find(text: &[u8], part: &[u8], from: usize) -> Option<usize> {
    memchr::memmem::find(text.get(from..)?, part).map(|at| at + from)
}

pub(super) fn contains<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let [text, part] = arguments(values)?;
    meter.bytes(text.len() + part.len())?;
    Ok(Value::Bool(find(text, part, 0).is_some()))
}

pub(super) fn starts_with<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let [text, part] = arguments(values)?;
    meter.bytes(part.len())?;
    Ok(Value::Bool(text.starts_with(part)))
}

pub(super) fn ends_with<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let [text, part] = arguments(values)?;
    meter.bytes(part.len())?;
    Ok(Value::Bool(text.ends_with(part)))
}

pub(super) fn char_at<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let [text] = arguments(&values[..1])?;
    meter.bytes(text.len())?;
    let (text, index) = (Characters::of(text), number(values.get(1), 0)?);
    let start = text.offset(index)?;
    if start == text.bytes.len() {
        return Ok(Value::Bytes(b""));
    }
    meter.text(&text.bytes[start..text.offset(index.saturating_add(1))?])
}

pub(super) fn index_of<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let [text, part] = arguments(&values[..2])?;
    meter.bytes(text.len() + part.len())?;
    let text = Characters::of(text);
    let from = text.offset(number(values.get(2), 0)?)?;
    Ok(Value::Int(find(text.bytes, part, from).map_or(-1, |at| text.index(at))))
}

pub(super) fn last_index_of<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let [text, part] = arguments(&values[..2])?;
    meter.bytes(text.len() + part.len())?;
    let text = Characters::of(text);
    // The part may begin at this index, but not behind it.
    let last = match values.get(2) {
        None => text.bytes.len(),
        index => text.offset(number(index, 0)?)?,
    };
    let end = last.saturating_add(part.len()).min(text.bytes.len());
    let found = memchr::memmem::rfind(&text.bytes[..end], part);
    Ok(Value::Int(found.map_or(-1, |at| text.index(at))))
}

pub(super) fn lower_ascii<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let [text] = arguments(values)?;
    meter.fits(text.len())?;
    meter.text(&text.to_ascii_lowercase())
}

pub(super) fn upper_ascii<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let [text] = arguments(values)?;
    meter.fits(text.len())?;
    meter.text(&text.to_ascii_uppercase())
}

pub(super) fn trim<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let Some(text) = meter.held(values[0])? else { return Err(FaultKind::Type) };
    meter.bytes(text.len())?;
    Ok(Value::Bytes(match std::str::from_utf8(text) {
        Ok(text) => text.trim().as_bytes(),
        Err(_) => text.trim_ascii(),
    }))
}

pub(super) fn reverse<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let [text] = arguments(values)?;
    meter.fits(text.len())?;
    match std::str::from_utf8(text) {
        Ok(text) => meter.text(text.chars().rev().collect::<String>().as_bytes()),
        Err(_) => meter.text(&text.iter().rev().copied().collect::<Vec<u8>>()),
    }
}

pub(super) fn substring<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let Some(bytes) = meter.held(values[0])? else { return Err(FaultKind::Type) };
    meter.bytes(bytes.len())?;
    let text = Characters::of(bytes);
    let start = text.offset(number(values.get(1), 0)?)?;
    let end = match values.get(2) {
        None => bytes.len(),
        end => text.offset(number(end, 0)?)?,
    };
    bytes.get(start..end).map(Value::Bytes).ok_or(FaultKind::Range)
}

pub(super) fn replace<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let [text, old, new] = arguments(&values[..3])?;
    meter.bytes(text.len())?;
    let limit = usize::try_from(number(values.get(3), -1)?).unwrap_or(usize::MAX);
    let characters = Characters::of(text);
    let mut out = Vec::new();
    let mut rest = 0;
    for count in 0.. {
        let found = if count < limit { find(text, old, rest) } else { None };
        let Some(found) = found else { break };
        // Nothing is found at each place between characters.
        let next = if old.is_empty() { characters.next(found) } else { found };
        meter.fits(out.len() + (next - rest) + new.len())?;
        meter.step()?;
        if old.is_empty() {
            out.extend_from_slice(new);
            out.extend_from_slice(&text[found..next]);
            rest = next;
            if found == text.len() {
                break;
            }
        } else {
            out.extend_from_slice(&text[rest..found]);
            out.extend_from_slice(new);
            rest = found + old.len();
        }
    }
    meter.fits(out.len() + text.len() - rest)?;
    out.extend_from_slice(&text[rest..]);
    meter.text(&out)
}

pub(super) fn split<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let Some(text) = meter.held(values[0])? else { return Err(FaultKind::Type) };
    let Some(separator) = values.get(1).and_then(compare::text) else { return Err(FaultKind::Type) };
    meter.bytes(text.len())?;
    let limit = usize::try_from(number(values.get(2), -1)?).unwrap_or(usize::MAX);
    let characters = Characters::of(text);
    let mut items = Vec::new();
    let mut rest = 0;
    let room = |items: &Vec<Value<'_>>| {
        meter.step()?;
        meter.fits((items.len() + 1) * size_of::<Value<'_>>())
    };
    while items.len() + 1 < limit {
        let (end, next) = if separator.is_empty() {
            let next = characters.next(rest);
            if next >= text.len() {
                break;
            }
            (next, next)
        } else {
            let Some(end) = find(text, separator, rest) else { break };
            (end, end + separator.len())
        };
        room(&items)?;
        items.push(Value::Bytes(&text[rest..end]));
        rest = next;
    }
    if limit > 0 && !(separator.is_empty() && text.is_empty()) {
        room(&items)?;
        items.push(Value::Bytes(&text[rest..]));
    }
    Ok(Value::List(List::of_items(meter.items(&items)?)))
}

pub(super) fn join<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let Value::List(list) = values[0] else { return Err(FaultKind::Type) };
    let separator = match values.get(1) {
        None => b"".as_slice(),
        Some(separator) => compare::text(separator).ok_or(FaultKind::Type)?,
    };
    let mut out = Vec::new();
    for (index, item) in list.iter().enumerate() {
        meter.step()?;
        let item = compare::text(&item).ok_or(FaultKind::Type)?.to_vec();
        meter.fits(out.len() + separator.len() + item.len())?;
        if index > 0 {
            out.extend_from_slice(separator);
        }
        out.extend_from_slice(&item);
    }
    meter.text(&out)
}

/// Whether a text is as a pattern says: `*` is any number of characters but `/`, `**` any number of any, `?` one
/// character but `/`; a backslash takes the next as it is. The whole text is compared.
pub(super) fn glob<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let [text, pattern] = arguments(values)?;
    // The worst case: each place of the text for each of the pattern.
    meter.product(text.len() + 1, pattern.len() + 1)?;
    Ok(Value::Bool(matches_glob(text, pattern)))
}

/// By the set of places in the pattern that the text so far may have led to: no way back, and so no blow-up.
fn matches_glob(text: &[u8], pattern: &[u8]) -> bool {
    let parts = parts(pattern);
    let single = Characters::of(text).single;
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
    for byte in text {
        // The other bytes of a character belong to its first.
        let inside = !single && !begins(*byte);
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
