//! Types, as far as they are known at compile time.

use std::fmt;

use crate::value::{Kind, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// Known only at run time.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Address,
    Networks,
    Duration,
    Time,
    List,
    Map,
    /// The name of a type.
    Name,
}

impl Type {
    pub(super) fn of_kind(kind: Kind) -> Self {
        match kind {
            Kind::Bool => Type::Bool,
            Kind::Int => Type::Int,
            Kind::Double => Type::Double,
            Kind::Text => Type::Text,
            Kind::Address => Type::Address,
            Kind::Duration => Type::Duration,
            Kind::Time => Type::Time,
            Kind::List => Type::List,
            Kind::Map => Type::Map,
            Kind::Any => Type::Dyn,
        }
    }

    pub(super) fn kind(self) -> Kind {
        match self {
            Type::Bool => Kind::Bool,
            Type::Int => Kind::Int,
            Type::Double => Kind::Double,
            Type::Text => Kind::Text,
            Type::Address => Kind::Address,
            Type::Duration => Kind::Duration,
            Type::Time => Kind::Time,
            Type::List => Kind::List,
            Type::Map => Kind::Map,
            Type::Dyn | Type::Null | Type::Uint | Type::Networks | Type::Name => Kind::Any,
        }
    }

    pub(super) fn of_value(value: &Value<'_>) -> Self {
        match value {
            Value::Absent | Value::Failed => Type::Dyn,
            Value::Null => Type::Null,
            Value::Bool(_) => Type::Bool,
            Value::Int(_) => Type::Int,
            Value::Uint(_) => Type::Uint,
            Value::Double(_) => Type::Double,
            Value::Bytes(_) | Value::Latin1(_) | Value::Inline(_) => Type::Text,
            Value::Address(_) => Type::Address,
            Value::Networks(_) => Type::Networks,
            Value::Duration(_) => Type::Duration,
            Value::Time(_) => Type::Time,
            Value::List(_) => Type::List,
            Value::Map(_) => Type::Map,
            Value::Type(_) => Type::Name,
        }
    }

    /// The name that `type(…)` returns.
    pub(super) fn name(self) -> &'static str {
        match self {
            Type::Dyn => "dyn",
            Type::Null => "null_type",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::Text => "string",
            Type::Address => "net.IP",
            Type::Networks => "net.CIDR",
            Type::Duration => "google.protobuf.Duration",
            Type::Time => "google.protobuf.Timestamp",
            Type::List => "list",
            Type::Map => "map",
            Type::Name => "type",
        }
    }

    pub(super) const fn is_number(self) -> bool {
        matches!(self, Type::Int | Type::Uint | Type::Double)
    }

    /// Whether a value of this type may have the other type.
    pub(super) fn may_be(self, other: Type) -> bool {
        self == other || self == Type::Dyn || other == Type::Dyn
    }

    /// Whether values of these types can be equal; null is comparable with everything.
    pub(super) fn comparable(self, other: Type) -> bool {
        self.may_be(other)
            || (self.is_number() && other.is_number())
            || self == Type::Null
            || other == Type::Null
    }
}

/// The name in errors.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::Null => "null",
            Type::Address => "address",
            Type::Networks => "network",
            Type::Duration => "duration",
            Type::Time => "timestamp",
            other => other.name(),
        })
    }
}
