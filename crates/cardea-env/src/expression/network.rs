//! Functions of addresses and networks, as in Kubernetes' CEL, and sets of networks.

use std::net::IpAddr;

use super::compare;
use super::fault::FaultKind;
use super::meter::Meter;
use crate::value::{Network, Value};

type Result<T> = std::result::Result<T, FaultKind>;

fn parse<T: std::str::FromStr>(value: &Value<'_>) -> Result<T> {
    let text = compare::text(value).ok_or(FaultKind::Type)?;
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(FaultKind::Form)
}

/// `ip("192.0.2.1")`.
pub(super) fn ip<'e>(values: &[Value<'e>], _: &Meter<'e>) -> Result<Value<'e>> {
    match values[0] {
        Value::Address(_) => Ok(values[0]),
        _ => parse(&values[0]).map(Value::Address),
    }
}

pub(super) fn is_ip<'e>(values: &[Value<'e>], _: &Meter<'e>) -> Result<Value<'e>> {
    holds(parse::<IpAddr>(&values[0]))
}

pub(super) fn is_cidr<'e>(values: &[Value<'e>], _: &Meter<'e>) -> Result<Value<'e>> {
    holds(parse::<Network>(&values[0]))
}

fn holds<'e, T>(parsed: Result<T>) -> Result<Value<'e>> {
    match parsed {
        Err(FaultKind::Form) => Ok(Value::Bool(false)),
        parsed => parsed.map(|_| Value::Bool(true)),
    }
}

/// `cidr("10.0.0.0/8", "2001:db8::/32")`: one network or several.
pub(super) fn cidr<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    if let [Value::Networks(networks)] = values {
        return Ok(Value::Networks(networks));
    }
    let networks: Vec<Network> = values.iter().map(parse).collect::<Result<_>>()?;
    meter.networks(&networks)
}

fn networks<'e>(value: Value<'e>) -> Result<&'e [Network]> {
    match value {
        Value::Networks(networks) => Ok(networks),
        _ => Err(FaultKind::Type),
    }
}

fn address(value: &Value<'_>) -> Result<IpAddr> {
    match value {
        Value::Address(address) => Ok(*address),
        text => parse(text),
    }
}

pub(super) fn contains_ip<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    compare::contains(values[0], Value::Address(address(&values[1])?), meter).map(Value::Bool)
}

pub(super) fn contains_cidr<'e>(values: &[Value<'e>], meter: &Meter<'e>) -> Result<Value<'e>> {
    let outer = networks(values[0])?;
    let parsed: [Network; 1];
    let inner = match &values[1] {
        Value::Networks(inner) => *inner,
        text => {
            parsed = [parse(text)?];
            &parsed
        }
    };
    meter.product(outer.len(), inner.len().saturating_mul(8))?;
    let within = |inner: &Network| outer.iter().any(|outer| outer.contains_network(*inner));
    Ok(Value::Bool(inner.iter().all(within)))
}

/// The prefix length of a network.
pub(super) fn prefix_length<'e>(values: &[Value<'e>], _: &Meter<'e>) -> Result<Value<'e>> {
    match networks(values[0])? {
        [network] => Ok(Value::Int(network.length().into())),
        _ => Err(FaultKind::Type),
    }
}

/// 4 or 6.
pub(super) fn family<'e>(values: &[Value<'e>], _: &Meter<'e>) -> Result<Value<'e>> {
    test(&values[0], |address| Value::Int(if address.is_ipv4() { 4 } else { 6 }))
}

pub(super) fn is_loopback<'e>(values: &[Value<'e>], _: &Meter<'e>) -> Result<Value<'e>> {
    test(&values[0], |address| Value::Bool(address.is_loopback()))
}

pub(super) fn is_unspecified<'e>(values: &[Value<'e>], _: &Meter<'e>) -> Result<Value<'e>> {
    test(&values[0], |address| Value::Bool(address.is_unspecified()))
}

/// Whether an address is private (RFC 1918, RFC 4193) or link-local (RFC 3927, RFC 4291 §2.5.6).
pub(super) fn is_private<'e>(values: &[Value<'e>], _: &Meter<'e>) -> Result<Value<'e>> {
    test(&values[0], |address| {
        Value::Bool(match address {
            IpAddr::V4(address) => address.is_private() || address.is_link_local(),
            IpAddr::V6(address) => address.is_unique_local() || address.is_unicast_link_local(),
        })
    })
}

fn test<'e>(value: &Value<'e>, holds: impl FnOnce(IpAddr) -> Value<'e>) -> Result<Value<'e>> {
    match value {
        Value::Address(address) => Ok(holds(address.to_canonical())),
        _ => Err(FaultKind::Type),
    }
}
