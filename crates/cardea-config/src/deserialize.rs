//! Serde over the tree: fills the raw structs with values that were checked against the schema.

use serde::{
    Deserializer,
    de::{
        Error as _, IntoDeserializer, Visitor,
        value::{Error, MapDeserializer, SeqDeserializer, StrDeserializer},
    },
};

use super::document::{Node, Value};

impl<'de> IntoDeserializer<'de, Error> for &'de Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// An error is a value that the schema takes and the types refuse; a test holds the two together.
impl<'de> Deserializer<'de> for &'de Node {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.value {
            Value::String(text) => visitor.visit_borrowed_str(&text.value),
            Value::Integer(integer) => visitor.visit_i64(*integer),
            Value::Boolean(boolean) => visitor.visit_bool(*boolean),
            Value::Array(items) => visitor.visit_seq(SeqDeserializer::new(items.iter())),
            Value::Table(table) => {
                let entries = table.entries.iter().map(|(key, entry)| (key.as_str(), &entry.node));
                visitor.visit_map(MapDeserializer::new(entries))
            }
            Value::Float | Value::Datetime | Value::Unknown => {
                Err(Error::custom(format!("unexpected {}", self.value.kind())))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match &self.value {
            Value::String(text) => visitor.visit_enum(StrDeserializer::<Error>::new(&text.value)),
            other => Err(Error::custom(format!("unexpected {}", other.kind()))),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map struct identifier ignored_any
    }
}
