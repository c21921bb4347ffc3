//! Equality, order, membership and indexing, as in CEL.
//!
//! Numbers of different types are equal if they have the same value, and are ordered by value. Values of other
//! different types are never equal. Text is compared by characters, in code point order.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use super::ast::Operator;
use super::fault::FaultKind;
use super::meter::Meter;
use super::types::Type;
use crate::value::{Map, Owned, Value};

/// The bytes of a text value.
pub(super) fn text<'v>(value: &'v Value<'_>) -> Option<&'v [u8]> {
    match value {
        Value::Bytes(text) | Value::Latin1(text) => Some(text),
        Value::Inline(text) => Some(text.as_bytes()),
        _ => None,
    }
}

/// Whether two texts have the same characters; `None` if one is no text.
fn same_text(left: &Value<'_>, right: &Value<'_>, meter: &Meter<'_>) -> Option<Result<bool, FaultKind>> {
    let (one, other) = (text(left)?, text(right)?);
    let (shorter, longer) = if one.len() < other.len() { (one, other) } else { (other, one) };
    Some(meter.bytes(shorter.len()).and_then(|()| {
        // ASCII is the same in all encodings, and most text is ASCII.
        if shorter.is_ascii() {
            return Ok(one == other);
        }
        meter.bytes(longer.len())?;
        Ok(text_order(left, right) == Some(Ordering::Equal))
    }))
}

fn text_order(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    Some(left.characters()?.order(right.characters()?))
}

pub(super) fn equal(left: Value<'_>, right: Value<'_>, meter: &Meter<'_>) -> Result<bool, FaultKind> {
    if let Some(same) = same_text(&left, &right, meter) {
        return same;
    }
    Ok(match (left, right) {
        (Value::List(left), Value::List(right)) => {
            if left.len() != right.len() {
                return Ok(false);
            }
            for (left, right) in left.iter().zip(right.iter()) {
                meter.step()?;
                if !equal(left, right, meter)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Map(left), Value::Map(right)) => return equal_maps(left, right, meter),
        (Value::Null, Value::Null) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Address(left), Value::Address(right)) => left.to_canonical() == right.to_canonical(),
        (Value::Networks(left), Value::Networks(right)) => left == right,
        (Value::Duration(left), Value::Duration(right)) | (Value::Time(left), Value::Time(right)) => {
            left == right
        }
        (Value::Type(left), Value::Type(right)) => left == right,
        (left, right) => numbers(left, right) == Some(Ordering::Equal),
    })
}

fn equal_maps(left: Map<'_>, right: Map<'_>, meter: &Meter<'_>) -> Result<bool, FaultKind> {
    if left.len() != right.len() {
        return Ok(false);
    }
    let mut fault = None;
    let flow = left.each(&mut |key, value| {
        let same = meter.step().and_then(|()| match entry(right, key, meter)? {
            Value::Absent => Ok(false),
            other => equal(value, other, meter),
        });
        match same {
            Ok(true) => ControlFlow::Continue(()),
            Ok(false) => ControlFlow::Break(()),
            Err(error) => {
                fault = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    fault.map_or(Ok(flow.is_continue()), Err)
}

/// The order of two numbers; `None` if one is NaN or not a number.
fn numbers(left: Value<'_>, right: Value<'_>) -> Option<Ordering> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => Some(left.cmp(&right)),
        (Value::Uint(left), Value::Uint(right)) => Some(left.cmp(&right)),
        (Value::Double(left), Value::Double(right)) => left.partial_cmp(&right),
        (Value::Int(left), Value::Uint(right)) => Some(i128::from(left).cmp(&i128::from(right))),
        (Value::Uint(left), Value::Int(right)) => Some(i128::from(left).cmp(&i128::from(right))),
        (Value::Int(left), Value::Double(right)) => whole_and_double(left.into(), right),
        (Value::Uint(left), Value::Double(right)) => whole_and_double(left.into(), right),
        (Value::Double(left), Value::Int(right)) => {
            whole_and_double(right.into(), left).map(Ordering::reverse)
        }
        (Value::Double(left), Value::Uint(right)) => {
            whole_and_double(right.into(), left).map(Ordering::reverse)
        }
        _ => None,
    }
}

/// Exactly: a double can't represent all digits of an integer, so the integer is not converted.
fn whole_and_double(whole: i128, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    // 64-bit numbers are within the range; beyond, `as` saturates to `i128`.
    let truncated = double.trunc();
    let order = whole.cmp(&(truncated as i128));
    // With the same integer part, the fraction decides.
    Some(order.then_with(|| truncated.partial_cmp(&double).unwrap_or(Ordering::Equal)))
}

/// The order of two values; `Ok(None)` for unordered numbers.
pub(super) fn order(
    left: Value<'_>,
    right: Value<'_>,
    meter: &Meter<'_>,
) -> Result<Option<Ordering>, FaultKind> {
    if let (Some(one), Some(other)) = (text(&left), text(&right)) {
        meter.bytes(one.len() + other.len())?;
        return Ok(text_order(&left, &right));
    }
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => Ok(Some(left.cmp(&right))),
        (Value::Duration(left), Value::Duration(right)) | (Value::Time(left), Value::Time(right)) => {
            Ok(Some(left.cmp(&right)))
        }
        _ if Type::of_value(&left).is_number() && Type::of_value(&right).is_number() => {
            Ok(numbers(left, right))
        }
        _ => Err(FaultKind::Type),
    }
}

/// A comparison with a constant text or integer, if it is one. The constant's length is bounded by the configuration,
/// so it is not metered.
#[inline]
pub(super) fn with_constant(operator: Operator, left: &Value<'_>, constant: &Owned) -> Option<bool> {
    match (left, constant) {
        (Value::Bytes(left), Owned::Text(right)) => {
            let same = **left == **right;
            // ASCII is the same in all encodings; other text may be equal with different bytes.
            let decided = same || right.is_ascii();
            match operator {
                Operator::Equal if decided => Some(same),
                Operator::NotEqual if decided => Some(!same),
                _ => None,
            }
        }
        (Value::Int(left), Owned::Int(right)) => match operator {
            Operator::Equal => Some(left == right),
            Operator::NotEqual => Some(left != right),
            Operator::Less => Some(left < right),
            Operator::LessOrEqual => Some(left <= right),
            Operator::Greater => Some(left > right),
            Operator::GreaterOrEqual => Some(left >= right),
            _ => None,
        },
        _ => None,
    }
}

/// `item in range`.
pub(super) fn contains(range: Value<'_>, item: Value<'_>, meter: &Meter<'_>) -> Result<bool, FaultKind> {
    match range {
        Value::List(list) => {
            for known in list.iter() {
                meter.step()?;
                if equal(known, item, meter)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Value::Map(map) => Ok(entry(map, item, meter)? != Value::Absent),
        Value::Networks(networks) => {
            let Value::Address(address) = item else { return Err(FaultKind::Type) };
            meter.product(networks.len(), 8)?;
            Ok(networks.iter().any(|network| network.contains(address)))
        }
        _ => Err(FaultKind::Type),
    }
}

/// The value of a key of a map; `Absent` if there is none.
fn entry<'e>(map: Map<'e>, key: Value<'_>, meter: &Meter<'_>) -> Result<Value<'e>, FaultKind> {
    if let Some(entries) = map.entries() {
        for (known, value) in entries {
            meter.step()?;
            if equal(*known, key, meter)? {
                return Ok(*value);
            }
        }
        return Ok(Value::Absent);
    }
    match meter.utf8(&key)? {
        Some(key) => {
            meter.bytes(key.len())?;
            Ok(map.get(key.as_bytes()))
        }
        None => Ok(Value::Absent),
    }
}

/// `of[index]`; `Absent` if there is none.
pub(super) fn index<'e>(of: Value<'e>, index: Value<'_>, meter: &Meter<'_>) -> Result<Value<'e>, FaultKind> {
    match of {
        Value::Map(map) => match Type::of_value(&index) {
            Type::Text | Type::Bool | Type::Int | Type::Uint | Type::Double => entry(map, index, meter),
            _ => Err(FaultKind::Type),
        },
        Value::List(list) => {
            let place = match index {
                Value::Int(place) => usize::try_from(place).ok(),
                Value::Uint(place) => usize::try_from(place).ok(),
                // A double with an integer value, as JSON numbers may be.
                Value::Double(place) if place.trunc() == place && place.abs() < 1e9 => {
                    (place >= 0.0).then_some(place as usize)
                }
                _ => return Err(FaultKind::Type),
            };
            Ok(place.map_or(Value::Absent, |place| list.get(place)))
        }
        _ => Err(FaultKind::Type),
    }
}
