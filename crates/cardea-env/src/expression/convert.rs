//! Explicit conversions: `int("7")`, `timestamp("…")`; and encodings.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD, URL_SAFE_NO_PAD};
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig};
use sha2::{Digest as _, Sha256};

use super::compare;
use super::fault::FaultKind;
use super::meter::Meter;
use super::time::{self, Part};
use super::types::Type;
use crate::value::{Inline, Value, format};

type Result<T> = std::result::Result<T, FaultKind>;

/// A second in nanoseconds.
const SECOND: i64 = 1_000_000_000;

/// Standard base64, with padding or without.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// base64url, with padding or without.
const LENIENT_URL: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

fn utf8<'v>(value: &'v Value<'_>) -> Result<&'v str> {
    let text = compare::text(value).ok_or(FaultKind::Type)?;
    std::str::from_utf8(text).map_err(|_| FaultKind::Form)
}

/// Parses a number, as Rust's `parse` does, but without a plus sign, which CEL doesn't allow, and without words.
fn parse<T: std::str::FromStr>(value: &Value<'_>) -> Result<T> {
    let text = utf8(value)?;
    let plain = text.len() <= 64
        && text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '-' | '.'));
    text.parse().ok().filter(|_| plain).ok_or(FaultKind::Form)
}

pub(super) fn int<'e>(values: &[Value<'e>], _: &Meter<'e>) -> Result<Value<'e>> {
    let number = match values[0] {
        Value::Int(number) => number,
        Value::Uint(number) => i64::try_from(number).map_err(|_| FaultKind::Overflow)?,
        // The bounds are doubles that also represent values out of range.
        Value::Double(number) if number > i64::MIN as f64 && number < i64::MAX as f64 => number as i64,
        Value::Double(_) => return Err(FaultKind::Overflow),
        Value::Time(nanos) => nanos.div_euclid(SECOND),
        Value::Duration(nanos) => nanos / SECOND,
        value => parse(&value)?,
    };
    Ok(Value::Int(number))
}

pub(super) fn uint<'e>(values: &[Value<'e>], _: &Meter<'e>) -> Result<Value<'e>> {
    let number = match values[0] {
        Value::Uint(number) => number,
        Value::Int(number) => u64::try_from(number).map_err(|_| FaultKind::Overflow)?,
        Value::Double(number) if (0.0..18_446_744_073_709_551_616.0).contains(&number) => number as u64,
        Value::Double(_) => return Err(FaultKind::Overflow),
        value => parse(&value)?,
    };
    Ok(Value::Uint(number))
}

pub(super) fn double<'e>(values: &[Value<'e>], _: &Meter<'e>) -> Result<Value<'e>> {
    Ok(Value::Double(match values[0] {
        Value::Double(number) => number,
        Value::Int(number) => number as f64,
        Value::Uint(number) => number as f64,
        value => match utf8(&value)? {
            "NaN" => f64::NAN,
            "Infinity" | "+Infinity" => f64::INFINITY,
            "-Infinity" => f64::NEG_INFINITY,
            _ => parse(&value)?,
        },
    }))
}

pub(super) fn bool<'e>(values: &[Value<'e>], _: &Meter<'e>) -> Result<Value<'e>> {
    if let Value::Bool(_) = values[0] {
        return Ok(values[0]);
    }
    match utf8(&values[0])? {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
        _ => Err(FaultKind::Form),
    }
}

pub(super) fn string<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let value = values[0];
    match value {
        Value::Bytes(_) | Value::Latin1(_) | Value::Inline(_) => Ok(value),
        Value::Time(nanos) => meter.text(time::write_time(nanos).as_bytes()),
        Value::Duration(nanos) => meter.text(time::write_duration(nanos).as_bytes()),
        Value::Networks([network]) => Ok(Value::Inline(Inline::display(network))),
        Value::Bool(truth) => Ok(Value::Bytes(if truth { b"true" } else { b"false" })),
        Value::Int(number) => Ok(Value::Inline(format::integer(number))),
        Value::Uint(number) => Ok(Value::Inline(format::unsigned(number))),
        Value::Double(number) => Ok(Value::Inline(format::double(number))),
        Value::Address(address) => Ok(Value::Inline(format::address(address))),
        _ => Err(FaultKind::Type),
    }
}

pub(super) fn timestamp<'e>(values: &[Value<'e>], _: &Meter<'e>) -> Result<Value<'e>> {
    match values[0] {
        Value::Time(_) => Ok(values[0]),
        Value::Int(seconds) => seconds.checked_mul(SECOND).map(Value::Time).ok_or(FaultKind::Overflow),
        value => time::parse_time(utf8(&value)?).map(Value::Time).ok_or(FaultKind::Form),
    }
}

pub(super) fn duration<'e>(values: &[Value<'e>], _: &Meter<'e>) -> Result<Value<'e>> {
    match values[0] {
        Value::Duration(_) => Ok(values[0]),
        value => time::parse_duration(utf8(&value)?).map(Value::Duration).ok_or(FaultKind::Form),
    }
}

/// The value itself, with an unknown type.
pub(super) fn dynamic<'e>(values: &[Value<'e>], _: &Meter<'e>) -> Result<Value<'e>> {
    Ok(values[0])
}

pub(super) fn type_of<'e>(values: &[Value<'e>], _: &Meter<'e>) -> Result<Value<'e>> {
    Ok(Value::Type(Type::of_value(&values[0]).name()))
}

pub(super) fn size<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let size = match &values[0] {
        Value::List(list) => list.len() as i64,
        Value::Map(map) => map.len() as i64,
        value => {
            let text = meter.utf8(value)?.ok_or(FaultKind::Type)?;
            meter.bytes(text.len())?;
            text.chars().count() as i64
        }
    };
    Ok(Value::Int(size))
}

/// A part of a time, in UTC or with an offset; for a duration, the whole duration in this unit.
pub(super) fn part<'e>(part: Part, values: &[Value<'e>]) -> Result<Value<'e>> {
    match values[0] {
        Value::Time(nanos) => {
            let offset = match values.get(1) {
                None => 0,
                Some(zone) => time::parse_offset(utf8(zone)?).ok_or(FaultKind::Form)?,
            };
            Ok(Value::Int(time::part(part, nanos, offset)))
        }
        Value::Duration(nanos) if values.len() == 1 => Ok(Value::Int(match part {
            Part::Hours => nanos / (3_600 * SECOND),
            Part::Minutes => nanos / (60 * SECOND),
            Part::Seconds => nanos / SECOND,
            // Only the milliseconds part, as in CEL: 321 of 123.321 s.
            Part::Milliseconds => nanos % SECOND / 1_000_000,
            _ => return Err(FaultKind::Type),
        })),
        _ => Err(FaultKind::Type),
    }
}

/// The bytes of text, unchanged.
fn bytes<'v>(value: &'v Value<'_>) -> Result<&'v [u8]> {
    compare::text(value).ok_or(FaultKind::Type)
}

pub(super) fn encode<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let text = bytes(&values[0])?;
    meter.fits(text.len().saturating_mul(2))?;
    meter.text(STANDARD.encode(text).as_bytes())
}

pub(super) fn encode_url<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let text = bytes(&values[0])?;
    meter.fits(text.len().saturating_mul(2))?;
    meter.text(URL_SAFE_NO_PAD.encode(text).as_bytes())
}

pub(super) fn decode<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    decode_by(&LENIENT, values, meter)
}

pub(super) fn decode_url<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    decode_by(&LENIENT_URL, values, meter)
}

fn decode_by<'e>(engine: &GeneralPurpose, values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let text = bytes(&values[0])?;
    meter.fits(text.len())?;
    meter.text(&engine.decode(text).map_err(|_| FaultKind::Form)?)
}

/// SHA-256 in hexadecimal.
pub(super) fn sha256<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let text = bytes(&values[0])?;
    // A hash costs more per byte than a comparison.
    meter.product(text.len() + 64, 8)?;
    let digest = Sha256::digest(text);
    let mut written = [0; 64];
    for (pair, byte) in written.chunks_exact_mut(2).zip(digest) {
        pair[0] = HEX[usize::from(byte >> 4)];
        pair[1] = HEX[usize::from(byte & 15)];
    }
    meter.text(written)
}
