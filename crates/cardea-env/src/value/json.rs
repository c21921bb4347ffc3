//! Views of JSON in memory, such as the claims of a token.

use std::ops::ControlFlow;

use serde_json::Value as Json;

use super::{List, ListOf, Map, MapOf, Value};

/// A view of JSON. An integer is an `Int` or a `Uint`, any other number a `Double`.
#[must_use]
pub fn json(json: &Json) -> Value<'_> {
    match json {
        Json::Null => Value::Null,
        Json::Bool(truth) => Value::Bool(*truth),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), _, _) => Value::Int(number),
            (None, Some(number), _) => Value::Uint(number),
            (None, None, Some(number)) => Value::Double(number),
            (None, None, None) => Value::Failed,
        },
        Json::String(text) => Value::Bytes(text.as_bytes()),
        Json::Array(items) => Value::List(List::of::<Array>(items)),
        Json::Object(map) => json_object(map),
    }
}

/// A view of an object of JSON.
#[must_use]
pub fn json_object(map: &serde_json::Map<String, Json>) -> Value<'_> {
    Value::Map(Map::of::<Object>(map))
}

/// A view of a list of strings.
#[must_use]
pub fn strings(list: &Vec<String>) -> Value<'_> {
    Value::List(List::of::<Strings>(list))
}

struct Object;

impl MapOf for Object {
    type Subject = serde_json::Map<String, Json>;

    fn get<'a>(map: &'a Self::Subject, key: &[u8]) -> Value<'a> {
        let Ok(key) = std::str::from_utf8(key) else { return Value::Absent };
        map.get(key).map_or(Value::Absent, json)
    }

    fn each<'a>(
        map: &'a Self::Subject,
        visit: &mut dyn FnMut(Value<'a>, Value<'a>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        map.iter().try_for_each(|(key, value)| visit(Value::Bytes(key.as_bytes()), json(value)))
    }

    fn len(map: &Self::Subject) -> usize {
        map.len()
    }
}

struct Array;

impl ListOf for Array {
    type Subject = Vec<Json>;

    fn get(items: &Self::Subject, index: usize) -> Value<'_> {
        items.get(index).map_or(Value::Absent, json)
    }

    fn len(items: &Self::Subject) -> usize {
        items.len()
    }
}

struct Strings;

impl ListOf for Strings {
    type Subject = Vec<String>;

    fn get(items: &Self::Subject, index: usize) -> Value<'_> {
        Value::bytes(items.get(index))
    }

    fn len(items: &Self::Subject) -> usize {
        items.len()
    }
}
