//! The JSON Schema of the configuration, generated from the raw types and their documentation.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::{raw::RawConfig, shape::Shape};

/// The JSON Schema (draft 2020-12) of a configuration file, for editors and for the check of shapes.
pub fn json_schema() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<RawConfig>().to_value();
    without_null(&mut schema);
    if let Value::Object(root) = &mut schema {
        root.insert("title".to_owned(), Value::from("Configuration of Cardea"));
    }
    schema
}

/// The schema in the form that files are checked against.
pub(super) fn shape() -> Shape {
    Shape::of_schema(&json_schema())
}

/// TOML has no null: an optional value may be omitted.
fn without_null(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::Array(types)) = object.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    object.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(values)) = object.get_mut("enum") {
                values.retain(|value| !value.is_null());
            }
            if object.get("default").is_some_and(is_nothing) {
                object.remove("default");
            }
            // The width of integers in the program is irrelevant for the file.
            if object.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
                object.remove("format");
            }
            flatten_optional(object);
            object.retain(|_, value| !value.is_null());
            object.values_mut().for_each(without_null);
        }
        Value::Array(items) => items.iter_mut().for_each(without_null),
        _ => {}
    }
}

/// A default that is equivalent to omitting the key: null, or an empty table or list.
fn is_nothing(default: &Value) -> bool {
    match default {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    }
}

/// `anyOf: [T, null]` is T.
fn flatten_optional(object: &mut Map<String, Value>) {
    let Some(Value::Array(alternatives)) = object.get_mut("anyOf") else { return };
    alternatives.retain(|alternative| alternative.get("type").is_none_or(|name| name != "null"));
    if alternatives.len() == 1
        && let Some(Value::Object(only)) = alternatives.pop()
    {
        object.remove("anyOf");
        for (key, value) in only {
            object.entry(key).or_insert(value);
        }
    }
}
