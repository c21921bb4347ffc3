//! What reading an attribute gives: a small value that borrows from the request and never allocates.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

mod characters;
pub(crate) mod format;
mod inline;
mod json;
mod network;
mod owned;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use characters::Characters;
pub use inline::Inline;
pub use json::{json, json_object, strings};
pub use network::{Network, NetworkError};
pub use owned::Owned;
pub use view::{List, ListOf, Map, MapOf};

use format::Unit;

/// The value of one attribute of one request, or of an expression.
///
/// Values are `Copy` and at most 48 bytes: they are returned, matched and forgotten within one read. Lists and
/// maps are views of what stands in the request; nothing is built.
///
/// Two values are equal if they are of the same type and hold the same; what CEL takes for equal is decided by
/// its expressions.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// The request has no such thing: no such header, no token, no response yet.
    Absent,
    /// A custom attribute whose expression failed. Written as if it were absent; in an expression a fault.
    Failed,
    /// The null of JSON.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number that may lie beyond `i64::MAX`.
    Uint(u64),
    /// A number with a fraction.
    Double(f64),
    /// Text that the request holds. Any bytes: UTF-8, and what is not UTF-8 is read as Latin-1 (RFC 9110 §5.5). It is
    /// written as it came.
    Bytes(&'a [u8]),
    /// The same, read as Latin-1 though it may be UTF-8.
    Latin1(&'a [u8]),
    /// Short text that is made while reading, such as an identifier in hexadecimal.
    Inline(Inline),
    /// An address; IPv6 is written as RFC 5952 says.
    Address(IpAddr),
    /// A set of networks.
    Networks(&'a [Network]),
    /// A span of time in nanoseconds, which may be negative.
    Duration(i64),
    /// A point in time, in nanoseconds since the Unix epoch.
    Time(i64),
    /// A list.
    List(List<'a>),
    /// A map.
    Map(Map<'a>),
    /// The name of a type.
    Type(&'static str),
}

impl<'a> Value<'a> {
    /// `Bytes` of what there is, else `Absent`.
    #[must_use]
    pub fn bytes<T: AsRef<[u8]> + ?Sized>(bytes: Option<&'a T>) -> Self {
        bytes.map_or(Value::Absent, |bytes| Value::Bytes(bytes.as_ref()))
    }

    /// `Int` of what there is, else `Absent`. What does not fit into an `i64` becomes `i64::MAX`.
    #[must_use]
    pub fn unsigned(number: Option<u64>) -> Self {
        number.map_or(Value::Absent, |number| Value::Int(i64::try_from(number).unwrap_or(i64::MAX)))
    }

    /// `Duration` of what there is, else `Absent`. More than 292 years become as much.
    #[must_use]
    pub fn duration(duration: Option<Duration>) -> Self {
        let nanos = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        duration.map_or(Value::Absent, |duration| Value::Duration(nanos(duration)))
    }

    /// `Address` of what there is, else `Absent`.
    #[must_use]
    pub fn address(address: Option<IpAddr>) -> Self {
        address.map_or(Value::Absent, Value::Address)
    }

    /// Whether there is no value.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        matches!(self, Value::Absent | Value::Failed)
    }

    /// The value as text, or `None` where it is absent, and for lists, maps and networks, which have no bounded
    /// form. `scratch` holds the text of what is not text already.
    ///
    /// Text is as it came. Durations are in seconds with six decimals, times as RFC 3339 has them, in UTC with milliseconds.
    #[must_use]
    pub fn text<'v>(&'v self, scratch: &'v mut Inline) -> Option<&'v [u8]> {
        *scratch = match self {
            Value::Absent | Value::Failed | Value::List(_) | Value::Map(_) | Value::Networks(_) => {
                return None;
            }
            Value::Bytes(bytes) | Value::Latin1(bytes) => return Some(bytes),
            Value::Inline(inline) => return Some(inline.as_bytes()),
            Value::Type(name) => return Some(name.as_bytes()),
            Value::Null => Inline::from_array(*b"null"),
            Value::Bool(true) => Inline::from_array(*b"true"),
            Value::Bool(false) => Inline::from_array(*b"false"),
            Value::Int(number) => format::integer(*number),
            Value::Uint(number) => format::unsigned(*number),
            Value::Double(number) => format::double(*number),
            Value::Address(address) => format::address(*address),
            Value::Duration(nanos) => Unit::Seconds.format(*nanos),
            Value::Time(nanos) => format::rfc3339(*nanos),
        };
        Some(scratch.as_bytes())
    }

    /// What a map holds under a key; `Absent` where this is no map.
    pub(crate) fn member(self, key: &[u8]) -> Self {
        match self {
            Value::Map(map) => map.get(key),
            _ => Value::Absent,
        }
    }
}

/// The type of an attribute's values, for documents and for checks when the configuration is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// `Value::Bool`.
    Bool,
    /// `Value::Int`.
    Int,
    /// `Value::Double`.
    Double,
    /// `Value::Bytes`, `Value::Latin1` or `Value::Inline`.
    Text,
    /// `Value::Address`.
    Address,
    /// `Value::Duration`.
    Duration,
    /// `Value::Time`.
    Time,
    /// `Value::List`.
    List,
    /// `Value::Map`.
    Map,
    /// Whatever the request holds, such as a claim.
    Any,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Bool => "bool",
            Kind::Int => "int",
            Kind::Double => "double",
            Kind::Text => "string",
            Kind::Address => "address",
            Kind::Duration => "duration",
            Kind::Time => "timestamp",
            Kind::List => "list",
            Kind::Map => "map",
            Kind::Any => "any",
        })
    }
}
