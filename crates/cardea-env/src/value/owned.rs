//! Owned values, for overrides and snapshots.

use std::fmt;
use std::net::IpAddr;
use std::ops::ControlFlow;

use super::{List, ListOf, Map, MapOf, Network, Value};

/// The depth to which lists and maps are copied; deeper parts are omitted.
const DEPTH_MAX: usize = 16;

/// An owned value.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Owned {
    /// `Value::Null`.
    Null,
    /// `Value::Bool`.
    Bool(bool),
    /// `Value::Int`.
    Int(i64),
    /// `Value::Uint`.
    Uint(u64),
    /// `Value::Double`.
    Double(f64),
    /// `Value::Bytes`.
    Text(Box<[u8]>),
    /// `Value::Latin1`.
    Latin1(Box<[u8]>),
    /// `Value::Address`.
    Address(IpAddr),
    /// `Value::Networks`.
    Networks(Box<[Network]>),
    /// `Value::Duration`, in nanoseconds.
    Duration(i64),
    /// `Value::Time`, in nanoseconds since the Unix epoch.
    Time(i64),
    /// `Value::List`.
    List(Box<[Owned]>),
    /// `Value::Map`: unique keys with their values.
    Map(Box<[(Box<[u8]>, Owned)]>),
}

impl Owned {
    /// Text.
    #[must_use]
    pub fn text(text: impl AsRef<[u8]>) -> Self {
        Owned::Text(text.as_ref().into())
    }

    /// A copy of a value; `None` if it is absent.
    #[must_use]
    pub fn of(value: Value<'_>) -> Option<Self> {
        Self::copy(value, DEPTH_MAX)
    }

    fn copy(value: Value<'_>, depth: usize) -> Option<Self> {
        let inner = depth.checked_sub(1)?;
        Some(match value {
            Value::Absent | Value::Failed => return None,
            Value::Null => Owned::Null,
            Value::Bool(truth) => Owned::Bool(truth),
            Value::Int(number) => Owned::Int(number),
            Value::Uint(number) => Owned::Uint(number),
            Value::Double(number) => Owned::Double(number),
            Value::Bytes(text) => Owned::text(text),
            Value::Latin1(text) => Owned::Latin1(text.into()),
            Value::Inline(text) => Owned::text(text.as_bytes()),
            Value::Type(name) => Owned::text(name),
            Value::Address(address) => Owned::Address(address),
            Value::Networks(networks) => Owned::Networks(networks.into()),
            Value::Duration(nanos) => Owned::Duration(nanos),
            Value::Time(nanos) => Owned::Time(nanos),
            Value::List(list) => {
                Owned::List(list.iter().filter_map(|item| Self::copy(item, inner)).collect())
            }
            Value::Map(map) => {
                let mut entries = Vec::with_capacity(map.len());
                let _ = map.each(&mut |key, value| {
                    let mut scratch = super::Inline::new();
                    if let (Some(key), Some(value)) = (key.text(&mut scratch), Self::copy(value, inner)) {
                        entries.push((key.into(), value));
                    }
                    ControlFlow::Continue(())
                });
                Owned::Map(entries.into())
            }
        })
    }

    /// A view of it.
    #[must_use]
    pub fn value(&self) -> Value<'_> {
        match self {
            Owned::Null => Value::Null,
            Owned::Bool(truth) => Value::Bool(*truth),
            Owned::Int(number) => Value::Int(*number),
            Owned::Uint(number) => Value::Uint(*number),
            Owned::Double(number) => Value::Double(*number),
            Owned::Text(text) => Value::Bytes(text),
            Owned::Latin1(text) => Value::Latin1(text),
            Owned::Address(address) => Value::Address(*address),
            Owned::Networks(networks) => Value::Networks(networks),
            Owned::Duration(nanos) => Value::Duration(*nanos),
            Owned::Time(nanos) => Value::Time(*nanos),
            Owned::List(items) => Value::List(List::of::<OwnedList>(items)),
            Owned::Map(entries) => Value::Map(Map::of::<OwnedMap>(entries)),
        }
    }
}

/// Text may be private or a secret: only its length is shown.
impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owned::Text(text) | Owned::Latin1(text) => write!(f, "Text({} bytes)", text.len()),
            other => fmt::Debug::fmt(&other.value(), f),
        }
    }
}

struct OwnedList;

impl ListOf for OwnedList {
    type Subject = Box<[Owned]>;

    fn get(items: &Self::Subject, index: usize) -> Value<'_> {
        items.get(index).map_or(Value::Absent, Owned::value)
    }

    fn len(items: &Self::Subject) -> usize {
        items.len()
    }
}

struct OwnedMap;

impl MapOf for OwnedMap {
    type Subject = Box<[(Box<[u8]>, Owned)]>;

    fn get<'a>(entries: &'a Self::Subject, key: &[u8]) -> Value<'a> {
        entries.iter().find(|(known, _)| &**known == key).map_or(Value::Absent, |(_, value)| value.value())
    }

    fn each<'a>(
        entries: &'a Self::Subject,
        visit: &mut dyn FnMut(Value<'a>, Value<'a>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        entries.iter().try_for_each(|(key, value)| visit(Value::Bytes(key), value.value()))
    }

    fn len(entries: &Self::Subject) -> usize {
        entries.len()
    }
}
