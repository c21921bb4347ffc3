//! Opens the built-in authorization server, and connects its keys and revocations to the authenticator.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use arc_swap::ArcSwap;
use cardea_clock::{Timestamp, Wall};
use cardea_gateway::gateway::Gateway;
use cardea_identity::{KeySource, LocalKeys, Revocations};
use cardea_issuer::{AuthorizationServer, REVOCATION_RETENTION, RevocationSink, WrappingKey};
use cardea_store::sqlite::SqliteStore;

use crate::config::{self, Config};

/// How long a token request may run while its client is deleted.
const UNDER_WAY: Duration = Duration::from_secs(2);

/// Opens the authorization server that `config` describes.
pub(crate) async fn open(
    config: &config::AuthorizationServer,
    now: Timestamp,
) -> Result<AuthorizationServer> {
    let key = WrappingKey::parse(config.wrapping_key.expose()).with_context(|| {
        format!("authorization_server.wrapping_key, from {}", config.wrapping_key.origin())
    })?;
    let store = SqliteStore::open(&config.database)
        .await
        .with_context(|| format!("authorization_server.database {}", config.database.display()))?;
    Ok(AuthorizationServer::open(config.settings.clone(), Arc::new(store), key, now).await?)
}

/// Passes revocations of the built-in server's tokens to the current authenticator, for every issuer of the
/// configuration that is `local`.
pub(crate) struct Revoker {
    gateway: Arc<Gateway>,
    issuers: ArcSwap<Vec<String>>,
}

impl Revoker {
    pub(crate) fn new(gateway: Arc<Gateway>, config: &Config) -> Self {
        let this = Self { gateway, issuers: ArcSwap::default() };
        this.follow(config);
        this
    }

    /// Takes over the issuers of another configuration. The revocations themselves survive a reload.
    pub(crate) fn follow(&self, config: &Config) {
        let local = config.issuers.iter().filter(|issuer| matches!(issuer.keys, KeySource::Local(_)));
        self.issuers.store(Arc::new(local.map(|issuer| issuer.name.clone()).collect()));
    }

    fn each(&self, tell: impl Fn(&Revocations, &str)) {
        let model = self.gateway.model();
        for issuer in self.issuers.load().iter() {
            tell(model.authenticator.revocations(), issuer);
        }
    }
}

impl RevocationSink for Revoker {
    fn disabled(&self, client_id: &str, _forget_after: Wall) {
        self.each(|revocations, issuer| revocations.disable(issuer, client_id));
    }

    fn enabled(&self, client_id: &str, revoked_through: Wall, forget_after: Wall) {
        // The server counts whole seconds, as `iat` does.
        let through = Wall::from_unix_seconds(revoked_through.unix_seconds());
        self.each(|revocations, issuer| {
            revocations.revoke(issuer, client_id, through, forget_after);
            revocations.enable(issuer, client_id);
        });
    }

    fn deleted(&self, client_id: &str, forget_after: Wall) {
        // A running token request may have been answered a moment after the deletion. A longer time would affect a new
        // client with the same id.
        let deleted_at = forget_after.saturating_sub(REVOCATION_RETENTION);
        let through = deleted_at.saturating_add(UNDER_WAY);
        self.each(|revocations, issuer| {
            revocations.revoke(issuer, client_id, through, forget_after);
            revocations.enable(issuer, client_id);
        });
    }
}

/// Publishes the server's keys to the verifier, in memory.
pub(crate) fn publish_keys(server: &AuthorizationServer, keys: &LocalKeys) -> Result<()> {
    keys.publish(server.key_set().as_bytes()).context("the authorization server's key set")
}

#[cfg(test)]
mod tests {
    use cardea_issuer::{AuthorizationServerConfig, SecretConfig};

    use super::*;
    use crate::admin::testing::Fixture;

    /// The authorization server's settings with one additional line about secrets, or its problem.
    fn with(line: &str) -> Result<AuthorizationServerConfig, String> {
        let fixture = Fixture::new();
        fixture.edit("[[issuer]]", &format!("[authorization_server.secrets]\n{line}\n\n[[issuer]]"));
        let config = config::load(&fixture.path("cardea.toml"), &|_| None).map_err(|e| e.to_string())?;
        Ok(config.authorization_server.unwrap().settings)
    }

    #[test]
    fn secrets_are_verified_as_the_library_does_where_nothing_is_said() {
        assert_eq!(with("").unwrap().secrets, SecretConfig::default());
    }

    #[test]
    fn the_limits_of_the_configuration_are_those_of_the_library() {
        for (key, least, most, beyond) in [
            ("hash_threads", "1", "256", &["0", "257", "\"many\""][..]),
            ("hash_queue_max", "2", "65536", &["1", "65537"]),
            ("hash_wait_max", "\"1ms\"", "\"1m\"", &["\"0s\"", "\"61s\""]),
            ("iterations", "10000", "10000000", &["9999", "10000001"]),
            ("remember_for", "\"0s\"", "\"1h\"", &["\"3601s\""]),
            ("remembered_max", "0", "1000000", &["1000001", "-1"]),
            ("failures_max", "1", "10000", &["0", "10001"]),
            ("failure_forgiven_every", "\"1ms\"", "\"1h\"", &["\"0s\"", "\"3601s\""]),
        ] {
            for value in [least, most] {
                let settings = with(&format!("{key} = {value}")).unwrap();
                assert!(settings.check().is_ok(), "{key} = {value}: {:?}", settings.check());
                assert_ne!(settings.secrets, SecretConfig::default(), "{key} = {value} says something");
            }
            for value in beyond {
                let refused = with(&format!("{key} = {value}")).unwrap_err();
                assert!(refused.contains(key), "{key} = {value}: {refused}");
            }
        }
    }
}
