//! Serde over the tree: fills the raw structs from values that have been checked against the schema.

use std::fmt;

use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, Visitor,
    value::StrDeserializer,
};

use super::document::{Node, Value};

/// The schema let something through that the types refuse; a test holds the two together.
#[derive(Debug)]
pub(super) struct Unfit(String);

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unfit {}

impl de::Error for Unfit {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = Unfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        match &self.value {
            Value::String(text) => visitor.visit_borrowed_str(&text.value),
            Value::Integer(integer) => visitor.visit_i64(*integer),
            Value::Boolean(boolean) => visitor.visit_bool(*boolean),
            Value::Array(items) => visitor.visit_seq(Items(items.iter())),
            Value::Table(table) => visitor.visit_map(Entries { rest: table.entries.iter(), value: None }),
            Value::Float | Value::Datetime | Value::Unknown => {
                Err(Unfit(format!("unexpected {}", self.value.kind())))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        match &self.value {
            Value::String(text) => visitor.visit_enum(Choice(text.value.as_str())),
            other => Err(Unfit(format!("unexpected {}", other.kind()))),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map struct identifier ignored_any
    }
}

struct Items<'de>(std::slice::Iter<'de, Node>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Unfit;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Unfit> {
        self.0.next().map(|node| seed.deserialize(node)).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

struct Entries<'de> {
    rest: std::collections::btree_map::Iter<'de, String, super::document::Entry>,
    value: Option<&'de Node>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Unfit;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Unfit> {
        let Some((key, entry)) = self.rest.next() else { return Ok(None) };
        self.value = Some(&entry.node);
        let key: StrDeserializer<'_, Unfit> = key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Unfit> {
        let node =
            self.value.take().ok_or_else(|| Unfit("a value was asked for before its key".to_owned()))?;
        seed.deserialize(node)
    }
}

struct Choice<'de>(&'de str);

impl<'de> EnumAccess<'de> for Choice<'de> {
    type Error = Unfit;
    type Variant = UnitOnly;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, UnitOnly), Unfit> {
        let name: StrDeserializer<'_, Unfit> = self.0.into_deserializer();
        Ok((seed.deserialize(name)?, UnitOnly))
    }
}

struct UnitOnly;

impl<'de> de::VariantAccess<'de> for UnitOnly {
    type Error = Unfit;

    fn unit_variant(self) -> Result<(), Unfit> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Unfit> {
        Err(Unfit("unexpected value of a choice".to_owned()))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Unfit> {
        Err(Unfit("unexpected value of a choice".to_owned()))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Unfit> {
        Err(Unfit("unexpected value of a choice".to_owned()))
    }
}
