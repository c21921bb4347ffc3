//! A number of threads, or as many as the machine is for.

use std::num::NonZeroU32;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// How many threads do something: `"auto"`, or a number of at most `MAX`, beyond which it is a mistake rather than a
/// machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Threads<const MAX: u32> {
    /// By the processors that the process may use.
    #[default]
    Auto,
    /// This many.
    Count(NonZeroU32),
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum ThreadsText {
    Count(u32),
    Word(String),
}

impl<const MAX: u32> Serialize for Threads<MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Count(count) => serializer.serialize_u32(count.get()),
        }
    }
}

impl<'de, const MAX: u32> Deserialize<'de> for Threads<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match ThreadsText::deserialize(deserializer)? {
            ThreadsText::Word(word) if word == "auto" => Ok(Self::Auto),
            ThreadsText::Count(count) if count <= MAX => {
                NonZeroU32::new(count).map(Self::Count).ok_or_else(|| D::Error::custom("no threads"))
            }
            _ => Err(D::Error::custom("neither \"auto\" nor a number")),
        }
    }
}

impl<const MAX: u32> JsonSchema for Threads<MAX> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Threads".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "string", "enum": ["auto"] },
                { "type": "integer", "minimum": 1, "maximum": MAX },
            ]
        })
    }
}
