//! How a client is written that comes from another server.

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

use crate::admin::protocol::Sensitive;

/// A client to be imported. A line of a file of JSON lines has these members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImportClient {
    pub(crate) client_id: String,
    /// What its secret was stored as; Keycloak's credential may stand there as the object that it is.
    #[serde(deserialize_with = "text_or_object")]
    pub(crate) secret_hash: Sensitive,
    /// Left out, the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Left out, it may have tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) enabled: Option<bool>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) scopes: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) audiences: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) access_token_lifetime_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret_expires_in_seconds: Option<u64>,
    /// `auto`, `form-encoded` or `raw`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) basic_encoding: Option<String>,
    /// Left out, a right secret may be remembered for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) remember_secret: Option<bool>,
}

/// Messages don't repeat the value: it is what verifies a secret.
fn text_or_object<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Sensitive, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(Sensitive::new(text)),
        object @ Value::Object(_) => Ok(Sensitive::new(object.to_string())),
        _ => Err(D::Error::custom("secret_hash is neither text nor an object")),
    }
}
