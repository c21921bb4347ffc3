//! The JSON Schema in the form that trees are checked against and the reference is generated from.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{effect::Effect, text::Format};

/// The shape of a value.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) description: String,
    /// The default of an omitted key.
    pub(super) default: Option<Value>,
    /// The remedy if a value is missing or has none of its forms.
    pub(super) remedy: Option<String>,
    /// The effect of a reload on the value.
    pub(super) effect: Effect,
    pub(super) kind: Kind,
}

/// The kinds of values.
#[derive(Debug)]
pub(super) enum Kind {
    /// Text, with an optional format and limits.
    String {
        format: Option<Format>,
        minimum: Option<String>,
        maximum: Option<String>,
    },
    /// One of several words.
    Choice(Vec<Word>),
    Integer {
        minimum: i64,
        maximum: i64,
    },
    Boolean,
    List {
        item: Box<Shape>,
        items_min: usize,
    },
    /// A table whose keys the operator chooses.
    Map(Box<Shape>),
    Table(TableShape),
    /// One of several shapes of different types.
    Any(Vec<Shape>),
}

/// One of the words of a choice.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) value: String,
    pub(super) description: String,
    /// It admits more callers than the other words; messages never suggest it.
    pub(super) opens: bool,
}

/// A table with known keys.
#[derive(Debug)]
pub(super) struct TableShape {
    pub(super) keys: BTreeMap<String, Key>,
}

/// A key of a table.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) shape: Shape,
    pub(super) required: bool,
}

impl Shape {
    /// Reads a schema that [`super::schema`] generated. Other schemas are not supported.
    pub(super) fn of_schema(schema: &Value) -> Self {
        Self::within(schema, Effect::Restart)
    }

    /// The shape of a schema in a section with this effect.
    fn within(schema: &Value, section: Effect) -> Self {
        let effect = Effect::of_schema(schema).unwrap_or(section);
        let text = |key: &str| schema.get(key).and_then(Value::as_str).map(str::to_owned);
        Self {
            description: text("description").unwrap_or_default(),
            default: schema.get("default").cloned(),
            remedy: text("x-remedy"),
            effect,
            kind: kind(schema, effect),
        }
    }

    /// The type for messages.
    pub(super) fn expected(&self) -> String {
        match &self.kind {
            Kind::String { format: None, .. } => "a string".to_owned(),
            Kind::String { format: Some(format), .. } => format!("a string ({})", format.title()),
            Kind::Choice(words) => words_of(words),
            Kind::Integer { .. } => "a whole number".to_owned(),
            Kind::Boolean => "true or false".to_owned(),
            Kind::List { .. } => "a list".to_owned(),
            Kind::Map(_) | Kind::Table(_) => "a table".to_owned(),
            Kind::Any(alternatives) => {
                alternatives.iter().map(Shape::expected).collect::<Vec<_>>().join(", or ")
            }
        }
    }
}

/// The words of a choice, as written.
pub(super) fn words_of(words: &[Word]) -> String {
    words.iter().map(|word| format!("{:?}", word.value)).collect::<Vec<_>>().join(" or ")
}

fn kind(schema: &Value, effect: Effect) -> Kind {
    let shape = |schema: &Value| Shape::within(schema, effect);
    if let Some(Value::Array(alternatives)) = schema.get("anyOf") {
        return Kind::Any(alternatives.iter().map(shape).collect());
    }
    if let Some(words) = words(schema) {
        return Kind::Choice(words);
    }
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    let number = |key: &str| schema.get(key).and_then(Value::as_i64);
    match text("type") {
        Some("string") => Kind::String {
            format: text("format").and_then(Format::of_schema),
            minimum: text("x-minimum").map(str::to_owned),
            maximum: text("x-maximum").map(str::to_owned),
        },
        Some("integer") => Kind::Integer {
            minimum: number("minimum").unwrap_or(i64::MIN),
            maximum: number("maximum").unwrap_or(i64::MAX),
        },
        Some("boolean") => Kind::Boolean,
        Some("array") => Kind::List {
            item: Box::new(schema.get("items").map_or_else(|| anything(effect), shape)),
            items_min: number("minItems").and_then(|min| usize::try_from(min).ok()).unwrap_or(0),
        },
        _ => match schema.get("properties") {
            Some(Value::Object(properties)) => {
                let required = |key: &str| {
                    let required = schema.get("required").and_then(Value::as_array);
                    required.is_some_and(|required| required.iter().any(|name| name == key))
                };
                let key = |(name, schema): (&String, &Value)| {
                    (name.clone(), Key { shape: shape(schema), required: required(name) })
                };
                Kind::Table(TableShape { keys: properties.iter().map(key).collect() })
            }
            _ => Kind::Map(Box::new(
                schema.get("additionalProperties").map_or_else(|| anything(effect), shape),
            )),
        },
    }
}

fn anything(effect: Effect) -> Shape {
    let kind = Kind::String { format: None, minimum: None, maximum: None };
    Shape { description: String::new(), default: None, remedy: None, effect, kind }
}

/// Choices are `enum` lists if their words have no documentation, otherwise `oneOf` constants.
fn words(schema: &Value) -> Option<Vec<Word>> {
    let opens = schema.get("x-opens").and_then(Value::as_bool).unwrap_or_default();
    let word = |value: &Value, description: Option<&Value>| {
        let description = description.and_then(Value::as_str).unwrap_or_default().to_owned();
        value.as_str().map(|value| Word { value: value.to_owned(), description, opens })
    };
    if let Some(value) = schema.get("const") {
        return word(value, schema.get("description")).map(|word| vec![word]);
    }
    if let Some(Value::Array(values)) = schema.get("enum") {
        return values.iter().map(|value| word(value, None)).collect();
    }
    if let Some(Value::Array(alternatives)) = schema.get("oneOf") {
        let mut found = Vec::new();
        for alternative in alternatives {
            found.extend(words(alternative)?);
        }
        return Some(found);
    }
    None
}
