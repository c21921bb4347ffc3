//! The effect of a reload on each key. The reference documents it, and reloads apply it.

/// When a change takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

    /// The effect of a key, by its path without the names of routes and the like. The longest matching entry applies.
    pub fn of(path: &str) -> Self {
        let is_within = |prefix: &str| {
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let entries = EFFECTS.iter().filter(|(prefix, _)| is_within(prefix));
        entries.max_by_key(|(prefix, _)| prefix.len()).map_or(Self::Restart, |(_, effect)| *effect)
    }
}

/// The effects of all top-level keys, and of keys below them with another effect.
const EFFECTS: &[(&str, Effect)] = &[
    ("include", Effect::AtOnce),
    ("region", Effect::AtOnce),
    ("header_encoding", Effect::AtOnce),
    ("process", Effect::Restart),
    ("log", Effect::Restart),
    ("log.level", Effect::AtOnce),
    ("access_log", Effect::AtOnce),
    ("admin", Effect::Restart),
    ("admin.hosts", Effect::AtOnce),
    ("limits", Effect::AtOnce),
    ("limits.connections_per_prefix_max", Effect::NewConnections),
    ("limits.handshakes_max", Effect::NewConnections),
    ("limits.handshakes_per_prefix_max", Effect::NewConnections),
    ("limits.new_connections_per_second_max", Effect::NewConnections),
    ("limits.head_bytes_max", Effect::NewConnections),
    ("limits.target_bytes_max", Effect::NewConnections),
    ("limits.fields_max", Effect::NewConnections),
    ("limits.http2_streams_max", Effect::NewConnections),
    ("timeouts", Effect::AtOnce),
    ("timeouts.tls_handshake", Effect::NewConnections),
    ("timeouts.request_head", Effect::NewConnections),
    ("timeouts.keep_alive_idle", Effect::NewConnections),
    ("timeouts.client_unreachable", Effect::Restart),
    ("failover", Effect::AtOnce),
    ("balance", Effect::AtOnce),
    ("drain", Effect::AtOnce),
    ("readiness", Effect::AtOnce),
    ("forwarding", Effect::AtOnce),
    ("trusted_proxies", Effect::AtOnce),
    ("identity_headers", Effect::AtOnce),
    ("request_headers", Effect::AtOnce),
    ("response_headers", Effect::AtOnce),
    // Tokens, routes and key sets of the rest of the file depend on the issuer and the client database.
    ("authorization_server", Effect::Refused),
    ("authorization_server.wrapping_key", Effect::Restart),
    ("authorization_server.secrets", Effect::Restart),
    ("authorization_server.algorithm", Effect::AtOnce),
    ("authorization_server.access_token_lifetime", Effect::AtOnce),
    ("authorization_server.default_audience", Effect::AtOnce),
    ("authorization_server.resources", Effect::AtOnce),
    ("authorization_server.scopes", Effect::AtOnce),
    ("authorization_server.key_lifetime", Effect::AtOnce),
    ("authorization_server.key_publish_ahead", Effect::AtOnce),
    ("authorization_server.key_overlap", Effect::AtOnce),
    ("authorization_server.key_set_max_age", Effect::AtOnce),
    ("authorization_server.mount", Effect::AtOnce),
    ("acme", Effect::Refused),
    ("acme.wrapping_key", Effect::Restart),
    ("acme.external_account", Effect::Restart),
    ("acme.ca_file", Effect::AtOnce),
    ("client_authority", Effect::NewConnections),
    ("attribute", Effect::AtOnce),
    ("policy", Effect::AtOnce),
    ("throttle", Effect::AtOnce),
    // What keys have used goes on, in the memory that it is in.
    ("throttle.keys_max", Effect::Restart),
    ("listener", Effect::NewConnections),
    ("listener.mode", Effect::AtOnce),
    ("issuer", Effect::AtOnce),
    ("key_cache", Effect::Restart),
    ("service", Effect::AtOnce),
    ("service.tls", Effect::NewConnections),
    ("route", Effect::AtOnce),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        schema,
        shape::{Kind, Shape},
    };

    fn paths(shape: &Shape, path: &str, found: &mut BTreeSet<String>) {
        match &shape.kind {
            Kind::Table(table) => {
                for (name, key) in &table.keys {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    paths(&key.shape, &path, found);
                    found.insert(path);
                }
            }
            Kind::List { item, .. } => paths(item, path, found),
            Kind::Any(alternatives) => alternatives.iter().for_each(|shape| paths(shape, path, found)),
            _ => {}
        }
    }

    #[test]
    fn every_key_has_an_effect_and_every_effect_is_of_a_key() {
        let mut keys = BTreeSet::new();
        paths(&schema::shape(), "", &mut keys);
        assert!(keys.contains("route.timeouts.request") && keys.contains("limits.fields_max"), "{keys:?}");
        for (path, _) in EFFECTS {
            assert!(keys.contains(*path), "there is no key {path}");
        }
        for key in keys {
            let top = key.split('.').next().unwrap();
            assert!(EFFECTS.iter().any(|(path, _)| *path == top), "say what a reload does with {top}");
        }
    }

    #[test]
    fn the_longest_entry_counts() {
        assert_eq!(Effect::of("limits.fields_max"), Effect::NewConnections);
        assert_eq!(Effect::of("limits.fields_max_more"), Effect::AtOnce);
        assert_eq!(Effect::of("authorization_server.secrets.iterations"), Effect::Restart);
        assert_eq!(Effect::of("authorization_server.database"), Effect::Refused);
        assert_eq!(
            Effect::of("something.new"),
            Effect::Restart,
            "nothing is promised of what nobody thought of"
        );
    }
}
