//! Untrusted JSON: one object with unique names and bounded depth and size.
//!
//! RFC 8259 §4 doesn't define the meaning of repeated names, so two parsers may read two different tokens from the same
//! bytes (RFC 8725 §2.6). Here they are an error.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The limits of a document's structure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The nesting of arrays and objects, including the outermost object.
    pub(crate) depth: usize,
    /// The number of values and names together.
    pub(crate) nodes: usize,
}

/// A JWS header is a flat object; `jwk` (which is refused later) is nested once.
pub(crate) const HEADER_LIMITS: Limits = Limits { depth: 4, nodes: 128 };

/// Claims are nested a little (`realm_access.roles`, `_claim_sources`); a few hundred groups are common.
pub(crate) const CLAIMS_LIMITS: Limits = Limits { depth: 12, nodes: 4096 };

/// A key set or a discovery document, up to 1 MiB.
pub(crate) const DOCUMENT_LIMITS: Limits = Limits { depth: 12, nodes: 32_768 };

const REPEATED: &str = "a name occurs twice";
const DEEP: &str = "nested too deep";
const MANY: &str = "too many values";

/// Parses `bytes` as exactly one JSON object within `limits`.
///
/// The error is a constant that describes the problem without quoting the input.
pub(crate) fn object(bytes: &[u8], limits: Limits) -> Result<Map<String, Value>, &'static str> {
    let left = Cell::new(limits.nodes);
    let refused = Cell::new(None);
    let strict = Strict { depth: limits.depth, left: &left, refused: &refused };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = strict.deserialize(&mut deserializer).and_then(|value| deserializer.end().map(|()| value));
    match value {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err("not a JSON object"),
        Err(_) => Err(refused.get().unwrap_or("not JSON")),
    }
}

#[derive(Clone, Copy)]
struct Strict<'a> {
    depth: usize,
    left: &'a Cell<usize>,
    refused: &'a Cell<Option<&'static str>>,
}

impl Strict<'_> {
    fn refuse<E: serde::de::Error>(self, why: &'static str) -> E {
        self.refused.set(Some(why));
        E::custom(why)
    }

    fn count<E: serde::de::Error>(self) -> Result<(), E> {
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(self.refuse(MANY)),
        }
    }

    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        match self.depth.checked_sub(1) {
            Some(depth) => Ok(Self { depth, ..self }),
            None => Err(self.refuse(DEEP)),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.count()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut values = Vec::new();
        while let Some(value) = access.next_element_seed(inner)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut map = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            self.count()?;
            let value = access.next_value_seed(inner)?;
            if map.insert(name, value).is_some() {
                return Err(self.refuse(REPEATED));
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_what_two_parsers_may_read_differently() {
        let table: &[(&str, Result<usize, &str>)] = &[
            (r"{}", Ok(0)),
            (r#"{"a":1,"b":[1,{"a":2}]}"#, Ok(2)),
            (r#" {"a" : null} "#, Ok(1)),
            (r#"{"a":1,"a":1}"#, Err(REPEATED)),
            (r#"{"a":1,"\u0061":2}"#, Err(REPEATED)),
            (r#"{"x":{"a":1,"a":1}}"#, Err(REPEATED)),
            (r#"{"x":[{"a":1,"a":1}]}"#, Err(REPEATED)),
            (r"[]", Err("not a JSON object")),
            (r#""a""#, Err("not a JSON object")),
            (r"{} {}", Err("not JSON")),
            (r"{}x", Err("not JSON")),
            ("\u{feff}{}", Err("not JSON")),
            (r#"{"a":1,}"#, Err("not JSON")),
            (r#"{"a":01}"#, Err("not JSON")),
            (r#"{"a":1e99999}"#, Err("not JSON")),
            (r#"{"a":NaN}"#, Err("not JSON")),
            (r#"{"a":"\ud800"}"#, Err("not JSON")),
            (r#"{a:1}"#, Err("not JSON")),
            ("", Err("not JSON")),
        ];
        for (input, expected) in table {
            let found = object(input.as_bytes(), CLAIMS_LIMITS).map(|map| map.len());
            assert_eq!(found, *expected, "{input}");
        }
        assert_eq!(object(b"{\"a\":\"\xff\"}", CLAIMS_LIMITS), Err("not JSON"));
    }

    #[test]
    fn bounds_depth_and_number_of_values() {
        let limits = Limits { depth: 3, nodes: 9 };
        assert!(object(br#"{"a":[[1]]}"#, limits).is_ok());
        assert_eq!(object(br#"{"a":[[[1]]]}"#, limits), Err(DEEP));
        assert!(object(br#"{"a":[1,2,3,4,5,6]}"#, limits).is_ok());
        assert_eq!(object(br#"{"a":[1,2,3,4,5,6,7]}"#, limits), Err(MANY));
        let bomb = format!("{{\"a\":{}", "[".repeat(100_000));
        assert_eq!(object(bomb.as_bytes(), CLAIMS_LIMITS), Err(DEEP));
        let digits = format!("{{\"a\":{}}}", "9".repeat(15_000));
        assert!(object(digits.as_bytes(), CLAIMS_LIMITS).is_err());
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json_on_what_it_accepts(input in r#"[\[\]{}:,"a0 .eE+-]{0,40}"#) {
            if let Ok(map) = object(input.as_bytes(), CLAIMS_LIMITS) {
                let reference: Value = serde_json::from_str(&input).unwrap();
                prop_assert_eq!(Value::Object(map), reference);
            }
        }
    }
}
