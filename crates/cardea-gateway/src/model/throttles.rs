//! Throttles: what they count by, how much they let pass, and where they stand on a route.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use cardea_env::{Condition, Expression, Inline, Reference, Scratch, Value};
use cardea_guard::{InFlightTable, ThrottleLimit, ThrottleTable};

use crate::{conditions, exchange::Exchange, metrics::ThrottleMetrics};

/// A limit on what requests with the same key may use.
#[derive(Debug)]
pub struct Throttle {
    /// Its name in the configuration.
    pub name: String,
    /// What requests are counted by.
    pub key: ThrottleKey,
    /// How much each key may use, and what keys have used.
    pub rate: Option<ThrottleRate>,
    /// How many requests of each key may be in flight, and which are.
    pub in_flight: Option<ThrottleInFlight>,
    /// Counts only requests for which this holds. A request for which it can't be evaluated is counted.
    pub when: Option<Condition<Exchange>>,
    /// How many units a request uses; one where `None`.
    pub cost: Option<ThrottleCost>,
    /// Refuses nothing.
    pub dry_run: bool,
    /// Which responses tell clients about it.
    pub report: ThrottleReport,
    /// What is counted for it, in all models that have it.
    pub metrics: Arc<ThrottleMetrics>,
}

/// How much each key of a throttle may use.
#[derive(Debug, Clone)]
pub struct ThrottleRate {
    /// The limit of each key.
    pub limit: ThrottleLimit,
    /// What keys have used; shared by all models that have the throttle with the same key and limit.
    pub table: Arc<ThrottleTable>,
}

/// How many requests of each key of a throttle may be in flight.
#[derive(Debug, Clone)]
pub struct ThrottleInFlight {
    /// At least 1.
    pub max: u32,
    /// What keys have in flight; shared by all models that have the throttle with the same key.
    pub table: Arc<InFlightTable>,
}

/// Which responses carry `RateLimit` and `RateLimit-Policy` of a throttle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ThrottleReport {
    /// None.
    Never,
    /// Those to requests that it refuses.
    #[default]
    Refused,
    /// Those to all requests that it counts.
    Always,
}

/// The throttles of a route, by their places in the model.
#[derive(Debug, Clone, Default)]
pub struct RouteThrottles {
    /// Those that need no identity.
    pub before_identification: Box<[usize]>,
    /// Those that need one.
    pub after_authorization: Box<[usize]>,
}

impl RouteThrottles {
    /// All of them.
    pub fn places(&self) -> impl Iterator<Item = &usize> {
        self.before_identification.iter().chain(&self.after_authorization)
    }
}

/// How many units a request uses.
#[derive(Debug, Clone)]
pub struct ThrottleCost(Arc<Expression<Exchange>>);

impl ThrottleCost {
    /// A cost that an expression gives.
    #[must_use]
    pub fn new(expression: Expression<Exchange>) -> Self {
        Self(Arc::new(expression))
    }

    /// The expression.
    #[must_use]
    pub fn expression(&self) -> &Expression<Exchange> {
        &self.0
    }

    /// The units that a request uses. Fractions are rounded up; what does not fit becomes the largest number. `None` where
    /// the expression fails, or gives no number of at least 0.
    #[must_use]
    pub fn units(&self, exchange: &Exchange) -> Option<u64> {
        match conditions::value(&self.0, exchange, &Scratch::new())? {
            Value::Int(number) => u64::try_from(number).ok(),
            Value::Uint(number) => Some(number),
            Value::Double(number) if number >= 0.0 => Some(number.ceil() as u64),
            _ => None,
        }
    }
}

/// The attributes that a throttle counts by. Requests for which all have the same values share a limit. An absent value is a
/// value too: requests without it share a limit.
#[derive(Debug, Clone)]
pub struct ThrottleKey {
    /// The attributes. Without any, all requests share a limit.
    pub attributes: Arc<[Reference<Exchange>]>,
    /// How many bits of an IPv4 address count.
    pub ipv4_prefix: u8,
    /// How many bits of an IPv6 address count.
    pub ipv6_prefix: u8,
}

impl ThrottleKey {
    /// Appends the key of a request. No two requests whose attributes differ have the same bytes.
    pub(crate) fn render(&self, exchange: &Exchange, out: &mut Vec<u8>) {
        for attribute in &*self.attributes {
            match attribute.read(exchange) {
                Value::Address(address) => match self.prefix(address) {
                    IpAddr::V4(address) => push(Part::Ipv4, &address.octets(), out),
                    IpAddr::V6(address) => push(Part::Ipv6, &address.octets(), out),
                },
                value => match value.text(&mut Inline::new()) {
                    Some(text) => push(Part::Text, text, out),
                    None => push(Part::Absent, &[], out),
                },
            }
        }
    }

    /// The address with the bits that don't count cleared. One that is mapped into IPv6 is an IPv4 address.
    fn prefix(&self, address: IpAddr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let hidden = u32::BITS.saturating_sub(self.ipv4_prefix.into());
                let mask = u32::MAX.checked_shl(hidden).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let hidden = u128::BITS.saturating_sub(self.ipv6_prefix.into());
                let mask = u128::MAX.checked_shl(hidden).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        }
    }
}

/// What a part of a key is, so that an absent one differs from an empty one, and an address from text.
#[derive(Clone, Copy)]
enum Part {
    Absent,
    Text,
    Ipv4,
    Ipv6,
}

fn push(part: Part, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(part as u8);
    out.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::TABLE;

    fn key(attributes: &[&str], ipv4_prefix: u8, ipv6_prefix: u8) -> ThrottleKey {
        let attributes = attributes.iter().map(|name| TABLE.resolve(name).unwrap()).collect();
        ThrottleKey { attributes, ipv4_prefix, ipv6_prefix }
    }

    fn rendered(key: &ThrottleKey, exchange: &Exchange) -> Vec<u8> {
        let mut out = Vec::new();
        key.render(exchange, &mut out);
        out
    }

    #[test]
    fn addresses_count_by_their_prefix_in_any_spelling() {
        for (one, other, ipv4_prefix, ipv6_prefix, same) in [
            ("192.0.2.1", "192.0.2.1", 32, 64, true),
            ("192.0.2.1", "192.0.2.2", 32, 64, false),
            ("192.0.2.1", "192.0.2.255", 24, 64, true),
            ("192.0.2.1", "192.0.3.1", 24, 64, false),
            ("192.0.2.1", "203.0.113.9", 0, 64, true),
            ("192.0.2.1", "::ffff:192.0.2.1", 32, 64, true),
            ("192.0.2.1", "::ffff:192.0.2.200", 24, 0, true),
            ("2001:db8::1", "2001:db8::ffff:1", 32, 64, true),
            ("2001:db8::1", "2001:db8:0:1::1", 32, 64, false),
            ("2001:db8::1", "2001:db8::2", 32, 128, false),
            ("2001:db8::1", "fe80::1", 32, 0, true),
            ("0.0.0.0", "::", 0, 0, false),
        ] {
            let key = key(&["source.address"], ipv4_prefix, ipv6_prefix);
            let of = |text: &str| {
                let mut exchange = Exchange::default();
                exchange.source = Some(text.parse().unwrap());
                rendered(&key, &exchange)
            };
            assert_eq!(of(one) == of(other), same, "{one} {other} /{ipv4_prefix} /{ipv6_prefix}");
        }
    }

    #[test]
    fn values_do_not_run_into_each_other() {
        let key = key(&["request.headers.x-a", "request.headers.x-b"], 32, 64);
        let mut seen: Vec<Vec<u8>> = Vec::new();
        for fields in [
            &[][..],
            &[("x-a", "")],
            &[("x-b", "")],
            &[("x-a", ""), ("x-b", "")],
            &[("x-a", "ab"), ("x-b", "c")],
            &[("x-a", "a"), ("x-b", "bc")],
            &[("x-a", "abc"), ("x-b", "")],
            &[("x-a", "abc")],
        ] {
            let mut exchange = Exchange::default();
            for (name, value) in fields {
                exchange.head.fields.append(name.as_bytes(), value.as_bytes()).unwrap();
            }
            let key = rendered(&key, &exchange);
            assert!(!seen.contains(&key), "{fields:?}");
            seen.push(key);
        }
    }
}
