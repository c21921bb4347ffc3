//! The format of imported clients.

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

use crate::admin::protocol::Sensitive;

/// A client to be imported. The lines of a JSON lines file have these members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImportClient {
    pub(crate) client_id: String,
    /// The stored hash of its secret. Keycloak's credential may be an object.
    #[serde(deserialize_with = "text_or_object")]
    pub(crate) secret_hash: Sensitive,
    /// Default: the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Default: enabled.
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
    /// Default: a verified secret may be cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) remember_secret: Option<bool>,
}

/// Messages don't repeat the value, because it verifies a secret.
fn text_or_object<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Sensitive, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(Sensitive::new(text)),
        object @ Value::Object(_) => Ok(Sensitive::new(object.to_string())),
        _ => Err(D::Error::custom("secret_hash is neither text nor an object")),
    }
}
