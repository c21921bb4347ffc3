//! The effect of a reload on a key, which is declared beside the key (`x-reload`). The reference documents it, and
//! reloads apply it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// When a change takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// For requests that begin after the reload.
    AtOnce,
    /// For connections that are made after the reload.
    NewConnections,
    /// At the next start. Until then the old value is used; the other changes take effect.
    Restart,
    /// At the next start. A reload that changes it is refused as a whole, because other keys depend on it.
    Refused,
}

impl Effect {
    /// The text in the reference.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::AtOnce => "reload: at once",
            Self::NewConnections => "reload: new connections",
            Self::Restart => "reload: needs a restart",
            Self::Refused => "reload: refused, needs a restart",
        }
    }

    /// The effect that the schema of a key names; without one, that of the section applies.
    pub(super) fn of_schema(schema: &Value) -> Option<Self> {
        serde_json::from_value(schema.get("x-reload")?.clone()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        schema,
        shape::{Kind, Shape},
    };

    /// The effect of a key, by its path.
    fn effect(path: &str) -> Effect {
        let root = schema::shape();
        let mut shape = &root;
        for name in path.split('.') {
            let table = match &shape.kind {
                Kind::List { item, .. } => &item.kind,
                kind => kind,
            };
            let Kind::Table(table) = table else { panic!("{path}") };
            shape = &table.keys[name].shape;
        }
        shape.effect
    }

    #[test]
    fn every_top_level_key_says_what_a_reload_does() {
        let schema = schema::json_schema();
        for (name, key) in schema["properties"].as_object().unwrap() {
            assert!(Effect::of_schema(key).is_some(), "say what a reload does with {name}");
        }
    }

    #[test]
    fn keys_have_the_effect_of_their_section_unless_they_have_their_own() {
        for (path, expected) in [
            ("limits", Effect::AtOnce),
            ("limits.fields_max", Effect::NewConnections),
            ("limits.body_bytes_max", Effect::AtOnce),
            ("log.level", Effect::AtOnce),
            ("log.format", Effect::Restart),
            ("authorization_server.secrets.iterations", Effect::Restart),
            ("authorization_server.database", Effect::Refused),
            ("authorization_server.scopes", Effect::AtOnce),
            ("listener.mode", Effect::AtOnce),
            ("listener.tls.min_version", Effect::NewConnections),
            ("route.timeouts.request", Effect::AtOnce),
            ("service.tls.ca_file", Effect::NewConnections),
            ("throttle.keys_max", Effect::Restart),
        ] {
            assert_eq!(effect(path), expected, "{path}");
        }
        let unsaid = Shape::of_schema(&serde_json::json!({ "type": "boolean" }));
        assert_eq!(unsaid.effect, Effect::Restart, "nothing is promised of what nobody thought of");
    }
}
