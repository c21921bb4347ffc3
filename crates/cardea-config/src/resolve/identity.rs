//! Issuers, the authorization server, and secrets.

use std::{collections::HashMap, net::IpAddr, path::PathBuf};

use cardea_identity::{ClaimNames, IssuerConfig, KeyRefresh, KeySource, LocalKeys, Preset};
use cardea_issuer::{AuthorizationServerConfig, CLOCK_SKEW_MAX, SecretConfig};
use url::{Host, Url};
use zeroize::Zeroizing;

use super::{
    super::{
        document::Cursor,
        expand,
        model::{AuthorizationServer, Database, DatabaseUse, Located, Secret},
        raw::{RawAuthorizationServer, RawIssuer, RawPreset, RawSecret},
        sections::EntraVersion,
        text::display_duration,
    },
    KeyFiles, Resolver,
    path::host_pattern,
};

impl Resolver<'_> {
    pub(super) fn issuers(
        &mut self,
        raw: Vec<RawIssuer>,
        server_issuer: Option<&str>,
        has_server: bool,
        at: Cursor<'_>,
    ) -> Vec<Located<IssuerConfig>> {
        let mut local: Option<usize> = None;
        let mut values: HashMap<String, usize> = HashMap::new();
        let mut issuers = Vec::with_capacity(raw.len());
        for (index, raw) in raw.into_iter().enumerate() {
            let at_issuer = at.index(index);
            if raw.local {
                if !has_server {
                    self.error(
                        at_issuer.key("local"),
                        "local issuers need this gateway's own authorization server",
                        "add the section [authorization_server], or another source of keys",
                    );
                }
                if let Some(first) = local.replace(index) {
                    let first = self.sources.position(at.index(first).key("local").location());
                    self.error(
                        at_issuer.key("local"),
                        "a second issuer is local",
                        format!("keep one; the first is at {first}"),
                    );
                }
            }
            let before = self.problems.reported();
            let issuer = self.issuer(raw, server_issuer, at_issuer);
            // Tokens are assigned to issuers by `iss`, so it must be unique.
            if !issuer.issuer.is_empty()
                && let Some(first) = values.insert(issuer.issuer.clone(), index)
            {
                let first = self.sources.position(at.index(first).location());
                self.error(
                    at_issuer.key("issuer"),
                    format!("the issuer {:?} is there twice; first at {first}", issuer.issuer),
                    "keep one, with the audiences of both",
                );
            }
            // The authorization server with these keys may be unresolved.
            let is_orphan = matches!(issuer.keys, KeySource::Local(_)) && server_issuer.is_none();
            let mut issuer = self.placed(issuer, before, at_issuer);
            issuer.is_sound &= !is_orphan;
            issuers.push(issuer);
        }
        issuers
    }

    fn issuer(&mut self, raw: RawIssuer, server_issuer: Option<&str>, at: Cursor<'_>) -> IssuerConfig {
        self.entra_keys(&raw, at);
        let keys = self.key_source(&raw, at);
        let issuer = match (&raw.issuer, raw.preset) {
            (Some(_), Some(RawPreset::Entra)) => {
                self.error(
                    at.key("issuer"),
                    "with the preset, the tenants say who the issuer is",
                    "remove issuer",
                );
                String::new()
            }
            (None, Some(RawPreset::Entra)) => String::new(),
            (Some(written), None) => {
                if raw.local && server_issuer.is_some_and(|server| !same_issuer(server, written)) {
                    self.error(
                        at.key("issuer"),
                        "the issuer differs from the authorization server's",
                        "remove it; a local issuer takes the authorization server's",
                    );
                }
                self.issuer_value(written, raw.discovery, at.key("issuer"))
            }
            (None, None) if raw.local => server_issuer.unwrap_or_default().trim_end_matches('/').to_owned(),
            (None, None) => {
                if !at.lost_any(&["issuer", "local", "preset"]) {
                    self.error(
                        at,
                        format!("the issuer {:?} does not say what its tokens' iss is", raw.name),
                        "add issuer = \"https://…\", exactly as its tokens have it",
                    );
                }
                String::new()
            }
        };
        for (index, audience) in raw.audiences.iter().enumerate() {
            if audience.trim().is_empty() {
                self.error(
                    at.key("audiences").index(index),
                    "an audience is empty",
                    "write what aud must be",
                );
            }
        }
        let key_hosts = self.key_hosts(raw.key_hosts, at.key("key_hosts"));
        let ca_file = raw.ca_file.map(|file| self.key_file(at.key("ca_file"), &file).0);
        let tenants: Vec<String> = raw.tenants.iter().map(|tenant| tenant.to_ascii_lowercase()).collect();
        let preset = raw.preset.map(|RawPreset::Entra| match raw.version.unwrap_or_default() {
            EntraVersion::V1 => Preset::EntraV1 { tenants },
            EntraVersion::V2 => Preset::EntraV2 { tenants },
        });
        let mut claims = ClaimNames::default();
        raw.claims.apply(&mut claims);
        IssuerConfig {
            name: raw.name,
            issuer,
            audiences: raw.audiences,
            keys,
            algorithms: raw.algorithms,
            types: raw.types,
            clock_skew: raw.clock_skew,
            refresh: KeyRefresh {
                stale_if_error: raw.stale_keys_max,
                timeout: raw.key_fetch_timeout,
                ..KeyRefresh::default()
            },
            lifetime_max: raw.lifetime_max,
            verdicts_max: raw.verdicts_max,
            allow_private_addresses: raw.allow_private_addresses,
            key_hosts,
            ca_file,
            claims,
            preset,
            ..IssuerConfig::default()
        }
    }

    /// Checks the keys of the Entra preset, present or not.
    fn entra_keys(&mut self, raw: &RawIssuer, at: Cursor<'_>) {
        if raw.preset.is_none() {
            for (key, is_written) in
                [("tenants", !raw.tenants.is_empty()), ("version", raw.version.is_some())]
            {
                if is_written && !at.lost_any(&["preset"]) {
                    self.error(
                        at.key(key),
                        format!("{key} has no effect without a preset"),
                        "add preset = \"entra\", or remove it",
                    );
                }
            }
            return;
        }
        if raw.tenants.is_empty() && !at.lost_any(&["tenants"]) {
            self.error(
                at.key("preset"),
                "no tenant is named, so tokens of anyone's tenant would have to be believed",
                "add tenants = [\"…\"] with the ids of your tenants",
            );
        }
        for (index, tenant) in raw.tenants.iter().enumerate() {
            let at = at.key("tenants").index(index);
            let groups: Vec<&str> = tenant.split('-').collect();
            let is_id = groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
                && groups.concat().bytes().all(|byte| byte.is_ascii_hexdigit());
            if !is_id {
                self.error(
                    at,
                    format!("{:?} is not a tenant's id", at.shown(tenant)),
                    "write the id, as in \"72f988bf-86f1-41af-91ab-2d7cd011db47\"",
                );
            }
        }
    }

    fn key_source(&mut self, raw: &RawIssuer, at: Cursor<'_>) -> KeySource {
        const SOURCES: [&str; 4] = ["discovery", "jwks_url", "jwks_file", "local"];
        let written = [raw.discovery, raw.jwks_url.is_some(), raw.jwks_file.is_some(), raw.local];
        let named: Vec<&str> =
            SOURCES.iter().zip(written).filter(|(_, is)| *is).map(|(name, _)| *name).collect();
        match named.as_slice() {
            [] if raw.preset.is_some() => {}
            [] if at.lost_any(&SOURCES) => {}
            [] => self.error(
                at,
                format!("the issuer {:?} does not say where its keys come from", raw.name),
                "add discovery = true, jwks_url, jwks_file, or local = true",
            ),
            [_] => {}
            [_, second, ..] => self.error(
                at.key(second),
                format!("the issuer {:?} takes its keys from several places: {}", raw.name, named.join(", ")),
                "keep one of them",
            ),
        }
        if let Some(url) = &raw.jwks_url {
            let at = at.key("jwks_url");
            return match Url::parse(url) {
                Ok(url) if is_secure(&url) => KeySource::Url(url),
                _ => {
                    self.error(
                        at,
                        format!("{:?} is not an https URL", at.shown(url)),
                        "write the key set's URL",
                    );
                    KeySource::Discovery
                }
            };
        }
        if let Some(file) = &raw.jwks_file {
            return KeySource::File(self.key_file(at.key("jwks_file"), file).0);
        }
        if raw.local { KeySource::Local(LocalKeys::new()) } else { KeySource::Discovery }
    }

    /// The value of `iss`: any text if the keys come from elsewhere, a URL with discovery.
    fn issuer_value(&mut self, written: &str, is_discovered: bool, at: Cursor<'_>) -> String {
        if written.is_empty() {
            self.error(at, "the issuer is empty", "write what the tokens' iss is");
        } else if is_discovered {
            let url = Url::parse(written);
            if !url.is_ok_and(|url| is_secure(&url) && url.query().is_none() && url.fragment().is_none()) {
                self.error(
                    at,
                    format!("{:?} is not an https URL, by which keys could be discovered", at.shown(written)),
                    "write the URL, or use jwks_url or jwks_file",
                );
            }
        }
        written.to_owned()
    }

    fn key_hosts(&mut self, raw: Vec<String>, at: Cursor<'_>) -> Vec<String> {
        let mut hosts = Vec::with_capacity(raw.len());
        for (index, written) in raw.into_iter().enumerate() {
            let at = at.index(index);
            match host_pattern(&written) {
                Ok(host) if !host.starts_with("*.") => hosts.push(host),
                Ok(_) => {
                    self.error(at, "keys are fetched from hosts that are named in full", "write the host")
                }
                Err(remedy) => {
                    self.error(at, format!("{:?} is not a host", at.shown(&written)), at.remedy(remedy));
                }
            }
        }
        hosts
    }

    /// The authorization server; `None` if it could not be resolved, which was reported.
    pub(super) fn authorization_server(
        &mut self,
        raw: RawAuthorizationServer,
        at: Cursor<'_>,
    ) -> Option<AuthorizationServer> {
        let issuer = self.server_issuer(&raw.issuer, at.key("issuer"));
        let (database, wrapping_key) =
            self.database_with_key(&raw.database, raw.wrapping_key, DatabaseUse::AuthorizationServer, at);
        let overlap_min = raw.access_token_lifetime.saturating_add(CLOCK_SKEW_MAX);
        if raw.key_overlap < overlap_min && !at.lost_any(&["key_overlap", "access_token_lifetime"]) {
            self.error(
                at.key("key_overlap"),
                format!(
                    "key_overlap ({}) is below access_token_lifetime and 5m ({}): tokens would outlive their key",
                    display_duration(raw.key_overlap),
                    display_duration(overlap_min)
                ),
                "raise key_overlap",
            );
        }
        if raw.key_lifetime / 2 < raw.key_publish_ahead
            && !at.lost_any(&["key_publish_ahead", "key_lifetime"])
        {
            self.error(
                at.key("key_publish_ahead"),
                format!(
                    "key_publish_ahead ({}) is more than half of key_lifetime ({})",
                    display_duration(raw.key_publish_ahead),
                    display_duration(raw.key_lifetime)
                ),
                "lower key_publish_ahead or raise key_lifetime",
            );
        }
        if let Some(age) = raw.key_set_max_age.filter(|age| *age > raw.key_publish_ahead / 2)
            && !at.lost_any(&["key_publish_ahead", "key_set_max_age"])
        {
            self.error(
                at.key("key_set_max_age"),
                format!(
                    "key_set_max_age ({}) is more than half of key_publish_ahead ({}): a key would sign before those \
                     that cache the key set know it",
                    display_duration(age),
                    display_duration(raw.key_publish_ahead)
                ),
                "lower key_set_max_age or raise key_publish_ahead",
            );
        }
        if raw.default_audience.trim().is_empty() {
            self.error(at.key("default_audience"), "the default audience is empty", "name the service");
        }
        for (index, resource) in raw.resources.iter().enumerate() {
            let at = at.key("resources").index(index);
            // RFC 8707 §2: an absolute URI without a fragment.
            if !Url::parse(resource).is_ok_and(|url| url.fragment().is_none()) {
                self.error(
                    at,
                    format!("{:?} is not an absolute URI", at.shown(resource)),
                    "write it as in \"https://api.example.com\" (RFC 8707 §2)",
                );
            }
        }
        for (index, scope) in raw.scopes.iter().enumerate() {
            self.scope(scope, at.key("scopes").index(index));
        }
        let mut secrets = SecretConfig::default();
        raw.secrets.apply(&mut secrets);
        let settings = AuthorizationServerConfig {
            issuer: issuer?,
            access_token_lifetime: raw.access_token_lifetime,
            algorithm: raw.algorithm,
            default_audience: raw.default_audience,
            resources: raw.resources,
            scopes: raw.scopes,
            key_lifetime: raw.key_lifetime,
            key_publish_ahead: raw.key_publish_ahead,
            key_set_max_age: raw.key_set_max_age,
            key_overlap: raw.key_overlap,
            secrets,
        };
        let (database, wrapping_key) = (database?, wrapping_key?);
        Some(AuthorizationServer { settings, database, wrapping_key, mount: raw.mount, at: at.location() })
    }

    /// A database, and the key that encrypts its private keys.
    pub(super) fn database_with_key(
        &mut self,
        written: &str,
        wrapping_key: RawSecret,
        used_for: DatabaseUse,
        at: Cursor<'_>,
    ) -> (Option<PathBuf>, Option<Secret>) {
        let path = self.database(written, at.key("database"));
        let wrapping_key = self.secret(wrapping_key, at.key("wrapping_key"));
        self.databases.push(Database {
            path: path.clone(),
            at: at.key("database").location(),
            wrapping_key: wrapping_key.clone(),
            wrapping_key_at: at.key("wrapping_key").location(),
            used_for,
        });
        (path, wrapping_key)
    }

    /// The file of a SQLite database.
    fn database(&mut self, written: &str, at: Cursor<'_>) -> Option<PathBuf> {
        match written.strip_prefix("sqlite:") {
            Some(file) if !file.is_empty() && !file.ends_with('/') => {
                Some(self.path(at, file.strip_prefix("//").unwrap_or(file)))
            }
            _ => {
                let shown = at.shown(written).to_owned();
                self.error(
                    at,
                    format!("{shown:?} is not a database"),
                    "write \"sqlite:\" and a file, as in \"sqlite:cardea.db\"",
                );
                None
            }
        }
    }

    /// RFC 8414 §2: an https URL without query and fragment.
    fn server_issuer(&mut self, written: &str, at: Cursor<'_>) -> Option<Url> {
        let url = Url::parse(written).ok().filter(|url| {
            let is_plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
            is_plain && (is_secure(url) || (url.scheme() == "http" && is_loopback(url)))
        });
        if url.is_none() {
            self.error(
                at,
                format!("{:?} cannot be the identifier of an authorization server", at.shown(written)),
                "write an https URL without query and fragment, as in \"https://auth.example.com\" (RFC 8414 §2)",
            );
        }
        url
    }

    /// RFC 6749 §3.3.
    pub(super) fn scope(&mut self, scope: &str, at: Cursor<'_>) {
        let fits = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
        if scope.is_empty() || !scope.bytes().all(fits) {
            self.error(
                at,
                format!("{:?} is not a scope", at.shown(scope)),
                "write each scope as a text of its own, without spaces and quotes (RFC 6749 §3.3)",
            );
        }
    }

    /// Reads a secret from its source.
    pub(super) fn secret(&mut self, raw: RawSecret, at: Cursor<'_>) -> Option<Secret> {
        let secret = match (raw.file, raw.env) {
            (Some(_), None) | (None, Some(_)) if self.key_files == KeyFiles::Skip => {
                // Any base64 value.
                Secret::in_memory(trimmed(b"AAAA".to_vec()), "$UNREAD")
            }
            (Some(file), None) => {
                let (path, content) = self.key_file(at.key("file"), &file);
                Secret::from_file(trimmed(content?), path)
            }
            (None, Some(name)) => {
                let at = at.key("env");
                let Some(value) = expand::is_name(&name).then(|| (self.environment)(&name)).flatten() else {
                    self.error(
                        at,
                        format!("the environment variable {name} is not set"),
                        "set it, or name a file",
                    );
                    return None;
                };
                Secret::in_memory(trimmed(value.into_bytes()), format!("${name}"))
            }
            (Some(_), Some(_)) => {
                self.error(at, "a secret comes from one place", "keep file or env");
                return None;
            }
            (None, None) => {
                if !at.lost_any(&["file", "env"]) {
                    self.error(
                        at,
                        "the secret does not say where it is",
                        "write { file = \"…\" } or { env = \"…\" }",
                    );
                }
                return None;
            }
        };
        if secret.expose().is_empty() {
            self.error(at, format!("the secret in {} is empty", secret.origin()), "put the secret there");
            return None;
        }
        if let Some(exposure) = secret.exposure() {
            self.problems.warn(at.key("file").location(), exposure, "make it private: chmod 600");
        }
        Some(secret)
    }
}

/// The content without white space at its end; the original is wiped.
fn trimmed(content: Vec<u8>) -> Zeroizing<Vec<u8>> {
    let content = Zeroizing::new(content);
    Zeroizing::new(content.trim_ascii_end().to_vec())
}

fn is_secure(url: &Url) -> bool {
    url.scheme() == "https" && url.host().is_some()
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        None => false,
    }
}

/// Whether two spellings name the same issuer: parsing adds a final slash to a URL without a path.
fn same_issuer(left: &str, right: &str) -> bool {
    left.trim_end_matches('/') == right.trim_end_matches('/')
}
