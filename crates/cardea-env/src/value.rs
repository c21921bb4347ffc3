//! The value of an attribute: small, borrowed from the request, never allocated.

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
pub use format::civil_date;
pub use inline::Inline;
pub use json::{json, json_object, strings};
pub use network::{Network, NetworkError};
pub use owned::Owned;
pub use view::{List, ListOf, Map, MapOf};

use format::Unit;

/// The value of an attribute of a request, or of an expression.
///
/// Values are `Copy` and at most 48 bytes. Lists and maps are views of the request's data; nothing is built.
///
/// Two values are equal if they have the same type and content; CEL's equality is implemented by expressions.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// The value doesn't exist: no such header, no token, no response yet.
    Absent,
    /// A custom attribute whose expression failed. It is written as if absent, and is a fault in an expression.
    Failed,
    /// JSON null.
    Null,
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An integer that may exceed `i64::MAX`.
    Uint(u64),
    /// A number with a fraction.
    Double(f64),
    /// Text of the request: any bytes. They are UTF-8, or Latin-1 if they are not valid UTF-8 (RFC 9110 §5.5). They are
    /// written unchanged.
    Bytes(&'a [u8]),
    /// Text that is Latin-1 even if it is valid UTF-8.
    Latin1(&'a [u8]),
    /// Short text that is created by the read, such as an identifier in hexadecimal.
    Inline(Inline),
    /// An IP address; IPv6 is written as in RFC 5952.
    Address(IpAddr),
    /// A set of networks.
    Networks(&'a [Network]),
    /// A duration in nanoseconds, which may be negative.
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
    /// `Bytes`, or `Absent` for `None`.
    #[must_use]
    pub fn bytes<T: AsRef<[u8]> + ?Sized>(bytes: Option<&'a T>) -> Self {
        bytes.map_or(Value::Absent, |bytes| Value::Bytes(bytes.as_ref()))
    }

    /// `Int`, or `Absent` for `None`. Values out of range become `i64::MAX`.
    #[must_use]
    pub fn unsigned(number: Option<u64>) -> Self {
        number.map_or(Value::Absent, |number| Value::Int(i64::try_from(number).unwrap_or(i64::MAX)))
    }

    /// `Duration`, or `Absent` for `None`. It saturates at 292 years.
    #[must_use]
    pub fn duration(duration: Option<Duration>) -> Self {
        let nanos = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        duration.map_or(Value::Absent, |duration| Value::Duration(nanos(duration)))
    }

    /// `Address`, or `Absent` for `None`.
    #[must_use]
    pub fn address(address: Option<IpAddr>) -> Self {
        address.map_or(Value::Absent, Value::Address)
    }

    /// Whether there is no value.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        matches!(self, Value::Absent | Value::Failed)
    }

    /// The value as text. `None` if it is absent, and for lists, maps and networks, whose text is unbounded. `scratch`
    /// stores the text of other types.
    ///
    /// Text is unchanged. Durations are in seconds with six decimals, times are RFC 3339 in UTC with milliseconds.
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
            Value::Time(nanos) => Inline::from_array(format::rfc3339(*nanos)),
        };
        Some(scratch.as_bytes())
    }

    /// The value of a map's key; `Absent` if this is no map.
    pub(crate) fn member(self, key: &[u8]) -> Self {
        match self {
            Value::Map(map) => map.get(key),
            _ => Value::Absent,
        }
    }
}

/// The type of an attribute's values, for documents and compile-time checks.
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
    /// Any type, such as a claim.
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
