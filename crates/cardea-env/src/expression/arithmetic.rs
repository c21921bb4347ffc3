//! The operators. An overflow is a fault, and nothing is converted implicitly.

use std::cmp::Ordering;

use super::ast::Operator;
use super::compare::{contains, equal, order};
use super::fault::FaultKind;
use super::meter::Meter;
use super::types::Type;
use crate::value::{List, Value};

/// Applies an operator.
pub(super) fn binary<'e>(
    operator: Operator,
    left: Value<'e>,
    right: Value<'e>,
    meter: &Meter<'e>,
) -> Result<Value<'e>, FaultKind> {
    let ordered = |holds: fn(Ordering) -> bool| {
        order(left, right, meter).map(|order| Value::Bool(order.is_some_and(holds)))
    };
    match operator {
        Operator::Equal => equal(left, right, meter).map(Value::Bool),
        Operator::NotEqual => equal(left, right, meter).map(|same| Value::Bool(!same)),
        Operator::Less => ordered(Ordering::is_lt),
        Operator::LessOrEqual => ordered(Ordering::is_le),
        Operator::Greater => ordered(Ordering::is_gt),
        Operator::GreaterOrEqual => ordered(Ordering::is_ge),
        Operator::In => contains(right, left, meter).map(Value::Bool),
        Operator::Add => add(left, right, meter),
        Operator::Subtract => subtract(left, right),
        Operator::Multiply | Operator::Divide | Operator::Modulo => product(operator, left, right),
    }
}

/// `-value`.
pub(super) fn negate(value: Value<'_>) -> Result<Value<'_>, FaultKind> {
    match value {
        Value::Int(number) => number.checked_neg().map(Value::Int).ok_or(FaultKind::Overflow),
        Value::Double(number) => Ok(Value::Double(-number)),
        Value::Duration(nanos) => nanos.checked_neg().map(Value::Duration).ok_or(FaultKind::Overflow),
        _ => Err(FaultKind::Type),
    }
}

fn add<'e>(left: Value<'e>, right: Value<'e>, meter: &Meter<'e>) -> Result<Value<'e>, FaultKind> {
    if let (Some(left), Some(right)) = (meter.utf8(&left)?, meter.utf8(&right)?) {
        meter.fits(left.len() + right.len())?;
        return meter.text([left, right].concat());
    }
    let sum = match (left, right) {
        (Value::Int(left), Value::Int(right)) => left.checked_add(right).map(Value::Int),
        (Value::Uint(left), Value::Uint(right)) => left.checked_add(right).map(Value::Uint),
        (Value::Double(left), Value::Double(right)) => Some(Value::Double(left + right)),
        (Value::Duration(left), Value::Duration(right)) => left.checked_add(right).map(Value::Duration),
        (Value::Time(time), Value::Duration(span)) | (Value::Duration(span), Value::Time(time)) => {
            time.checked_add(span).map(Value::Time)
        }
        (Value::List(left), Value::List(right)) => {
            let length = left.len() + right.len();
            meter.fits(length.saturating_mul(size_of::<Value<'_>>()))?;
            let items: Vec<Value<'e>> = left.iter().chain(right.iter()).collect();
            Some(Value::List(List::of_items(meter.items(&items)?)))
        }
        _ => return Err(FaultKind::Type),
    };
    sum.ok_or(FaultKind::Overflow)
}

fn subtract<'e>(left: Value<'e>, right: Value<'e>) -> Result<Value<'e>, FaultKind> {
    let difference = match (left, right) {
        (Value::Int(left), Value::Int(right)) => left.checked_sub(right).map(Value::Int),
        (Value::Uint(left), Value::Uint(right)) => left.checked_sub(right).map(Value::Uint),
        (Value::Double(left), Value::Double(right)) => Some(Value::Double(left - right)),
        (Value::Duration(left), Value::Duration(right)) => left.checked_sub(right).map(Value::Duration),
        (Value::Time(time), Value::Duration(span)) => time.checked_sub(span).map(Value::Time),
        (Value::Time(left), Value::Time(right)) => left.checked_sub(right).map(Value::Duration),
        _ => return Err(FaultKind::Type),
    };
    difference.ok_or(FaultKind::Overflow)
}

fn product<'e>(operator: Operator, left: Value<'e>, right: Value<'e>) -> Result<Value<'e>, FaultKind> {
    let division = operator != Operator::Multiply;
    let result = match (left, right) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) if division => {
            return Err(FaultKind::DivisionByZero);
        }
        (Value::Int(left), Value::Int(right)) => match operator {
            Operator::Multiply => left.checked_mul(right),
            Operator::Divide => left.checked_div(right),
            _ => left.checked_rem(right),
        }
        .map(Value::Int),
        (Value::Uint(left), Value::Uint(right)) => match operator {
            Operator::Multiply => left.checked_mul(right),
            Operator::Divide => left.checked_div(right),
            _ => left.checked_rem(right),
        }
        .map(Value::Uint),
        (Value::Double(left), Value::Double(right)) => match operator {
            Operator::Multiply => Some(Value::Double(left * right)),
            Operator::Divide => Some(Value::Double(left / right)),
            _ => return Err(FaultKind::Type),
        },
        _ => return Err(FaultKind::Type),
    };
    result.ok_or(FaultKind::Overflow)
}

/// The type of an operator's result; `None` if these types don't support it.
pub(super) fn result(operator: Operator, left: Type, right: Type) -> Option<Type> {
    use Type::{Address, Bool, Double, Duration, Dyn, Int, List, Map, Networks, Text, Time, Uint};
    match operator {
        Operator::Equal | Operator::NotEqual => left.comparable(right).then_some(Bool),
        Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual => {
            let ordered = |of: Type| of.is_number() || matches!(of, Dyn | Bool | Text | Duration | Time);
            let same = left.may_be(right) || (left.is_number() && right.is_number());
            (same && ordered(left) && ordered(right)).then_some(Bool)
        }
        Operator::In => match right {
            Networks => left.may_be(Address).then_some(Bool),
            List | Map | Dyn => Some(Bool),
            _ => None,
        },
        Operator::Add => match (left, right) {
            (Dyn, Dyn) => Some(Dyn),
            (Time, Dyn | Duration) | (Dyn | Duration, Time) => Some(Time),
            // Two durations, or a duration and a time.
            (Duration, Dyn) | (Dyn, Duration) => Some(Dyn),
            (Int | Uint | Double | Text | List | Duration, _) if left.may_be(right) => Some(left),
            (Dyn, Int | Uint | Double | Text | List) => Some(right),
            _ => None,
        },
        Operator::Subtract => match (left, right) {
            (Dyn, Dyn | Duration) | (Time, Dyn) => Some(Dyn),
            (Time, Duration) => Some(Time),
            (Time | Dyn, Time) => Some(Duration),
            (Int | Uint | Double | Duration, _) if left.may_be(right) => Some(left),
            (Dyn, Int | Uint | Double) => Some(right),
            _ => None,
        },
        Operator::Multiply | Operator::Divide | Operator::Modulo => match (left, right) {
            (Double, _) | (_, Double) if operator == Operator::Modulo => None,
            (Dyn, Dyn) => Some(Dyn),
            (Int | Uint | Double, _) if left.may_be(right) => Some(left),
            (Dyn, Int | Uint | Double) => Some(right),
            _ => None,
        },
    }
}
