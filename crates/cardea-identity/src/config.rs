//! The configuration of an issuer, and its limits.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use url::Url;

use crate::algorithm::Algorithm;
use crate::error::IdentityError;
use crate::keyset::LocalKeys;

/// The default clock skew. Synchronised machines stay within a second. Half a minute tolerates those that are not, and
/// extends a stolen token's life by no more than that.
pub const SKEW_DEFAULT: Duration = Duration::from_secs(30);

/// The largest clock skew: five minutes, as in Kerberos.
pub const SKEW_MAX: Duration = Duration::from_secs(5 * 60);

/// The default number of cached verdicts of an issuer: those of 16,384 callers, in up to 64 MiB.
pub const VERDICTS_MAX_DEFAULT: usize = 16_384;

/// The largest number of cached verdicts of an issuer.
pub const VERDICTS_MAX_LIMIT: usize = 10_000_000;

/// One trusted issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerConfig {
    /// The name of the issuer in routes and logs; unique, at most 64 bytes. State that survives a reload is keyed by
    /// it.
    pub name: String,
    /// The exact value of `iss` (RFC 7519 §4.1.1), compared byte by byte; unique. With [`KeySource::Discovery`] it also
    /// locates the metadata. Ignored with a [`Preset`], which defines the issuers.
    pub issuer: String,
    /// The accepted values of `aud`. A token must have at least one of them. Never empty, because a token for any
    /// audience may be meant for somebody else. The first one is the default of a route's access requirement.
    pub audiences: Vec<String>,
    /// The source of the keys. Default: discovery.
    pub keys: KeySource,
    /// The allowed signature algorithms. Default: [`Algorithm::DEFAULT`]. Never empty.
    pub algorithms: Vec<Algorithm>,
    /// The accepted values of `typ`, case-insensitive. The prefix `application/` may be omitted, here and in tokens. An
    /// empty string stands for a header without `typ`. Default: `at+jwt` (RFC 9068 §2.1) and `JWT` (which most
    /// providers still send).
    pub types: Vec<String>,
    /// The accepted difference between the issuer's clock and ours. Default [`SKEW_DEFAULT`], limit [`SKEW_MAX`].
    pub clock_skew: Duration,
    /// The longest accepted `exp − iat`; then a token without `iat` is refused. Default: no limit.
    pub lifetime_max: Option<Duration>,
    /// The claims with scopes and roles.
    pub claims: ClaimNames,
    /// The provider-specific rules.
    pub preset: Option<Preset>,
    /// The times of key fetches, and the lifetime of keys.
    pub refresh: KeyRefresh,
    /// Whether keys may be fetched from private, loopback and link-local addresses. Default: no.
    pub allow_private_addresses: bool,
    /// Hosts other than the issuer's own from which discovery may take keys, for example `www.googleapis.com`. Compared
    /// exactly, case-insensitive; no wildcards.
    pub key_hosts: Vec<String>,
    /// Whether `http` is allowed for a loopback address, for development. Default: no.
    pub danger_allow_http_loopback: bool,
    /// A PEM file of CA certificates that are trusted for fetches, in addition to those of the system.
    pub ca_file: Option<PathBuf>,
    /// The most cached verdicts of the issuer's tokens, with up to 4 KiB for each on average. Zero disables the cache.
    /// Default [`VERDICTS_MAX_DEFAULT`], limit [`VERDICTS_MAX_LIMIT`].
    pub verdicts_max: usize,
}

impl Default for IssuerConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            issuer: String::new(),
            audiences: Vec::new(),
            keys: KeySource::Discovery,
            algorithms: Algorithm::DEFAULT.to_vec(),
            types: vec!["at+jwt".to_owned(), "JWT".to_owned()],
            clock_skew: SKEW_DEFAULT,
            lifetime_max: None,
            claims: ClaimNames::default(),
            preset: None,
            refresh: KeyRefresh::default(),
            allow_private_addresses: false,
            key_hosts: Vec::new(),
            danger_allow_http_loopback: false,
            ca_file: None,
            verdicts_max: VERDICTS_MAX_DEFAULT,
        }
    }
}

impl IssuerConfig {
    /// Checks all settings that don't involve other issuers.
    pub(crate) fn validate(&self) -> Result<(), IdentityError> {
        if self.name.is_empty() || self.name.len() > 64 {
            return Err(self.error("the name needs 1 to 64 bytes"));
        }
        if self.audiences.is_empty() || self.audiences.iter().any(String::is_empty) {
            return Err(
                self.error("audiences must not be empty: name the values of `aud` that are meant for you")
            );
        }
        if self.algorithms.is_empty() {
            return Err(self.error("algorithms must not be empty"));
        }
        if self.types.is_empty() {
            return Err(self.error("types must not be empty; \"\" accepts a header without typ"));
        }
        if self.clock_skew > SKEW_MAX {
            return Err(self.error("clock_skew must be at most 5 minutes"));
        }
        if self.verdicts_max > VERDICTS_MAX_LIMIT {
            return Err(self.error("verdicts_max must be at most 10,000,000"));
        }
        if self.lifetime_max.is_some_and(|max| max.is_zero()) {
            return Err(self.error("lifetime_max must not be zero"));
        }
        if self.preset.is_none() && self.issuer.is_empty() {
            return Err(self.error("the issuer must not be empty"));
        }
        self.refresh.validate().map_err(|message| self.error(message))
    }

    pub(crate) fn error(&self, message: impl Into<String>) -> IdentityError {
        IdentityError::Config { name: self.name.clone(), message: message.into() }
    }

    /// The settings that fetched keys depend on, as a text to be compared: those of [`Self::shares_keys_with`]. The text is
    /// the same in every version of the program.
    pub(crate) fn key_source_text(&self) -> String {
        let (kind, place) = match &self.keys {
            KeySource::Discovery => ("discovery", None),
            KeySource::Url(url) => ("url", Some(url.to_string())),
            KeySource::File(path) => ("file", Some(escaped(path))),
            KeySource::Local(_) => ("local", None),
        };
        let (preset, tenants) = match &self.preset {
            None => (None, &[][..]),
            Some(Preset::EntraV1 { tenants }) => (Some("entra-v1"), tenants.as_slice()),
            Some(Preset::EntraV2 { tenants }) => (Some("entra-v2"), tenants.as_slice()),
        };
        let algorithms: Vec<&str> = self.algorithms.iter().map(|algorithm| algorithm.name()).collect();
        serde_json::json!({
            "issuer": self.issuer,
            "keys": kind,
            "place": place,
            "algorithms": algorithms,
            "preset": preset,
            "tenants": tenants,
            "key_hosts": self.key_hosts,
            "ca_file": self.ca_file.as_deref().map(escaped),
            "allow_private_addresses": self.allow_private_addresses,
            "danger_allow_http_loopback": self.danger_allow_http_loopback,
        })
        .to_string()
    }

    /// Whether keys fetched under `other` may be used under this configuration.
    pub(crate) fn shares_keys_with(&self, other: &Self) -> bool {
        (&self.issuer, &self.keys, &self.algorithms, &self.preset)
            == (&other.issuer, &other.keys, &other.algorithms, &other.preset)
            && (&self.key_hosts, &self.ca_file) == (&other.key_hosts, &other.ca_file)
            && self.allow_private_addresses == other.allow_private_addresses
            && self.danger_allow_http_loopback == other.danger_allow_http_loopback
    }
}

/// The source of an issuer's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// The `jwks_uri` of the issuer's metadata. The metadata is at `/.well-known/openid-configuration` after the issuer
    /// (OpenID Connect Discovery 1.0 §4), else at `/.well-known/oauth-authorization-server` between its host and path
    /// (RFC 8414 §3). The metadata's `issuer` must be the configured one.
    Discovery,
    /// A JWK set at this URL, on any host, because it is configured explicitly.
    Url(Url),
    /// A JWK set in a file of at most 1 MiB, read when the configuration loads.
    File(PathBuf),
    /// Keys in memory, of the built-in authorization server.
    Local(LocalKeys),
}

/// Provider-specific rules, so that an operator need not know them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Preset {
    /// Microsoft Entra ID, tokens of version 1.0: `https://sts.windows.net/{tenant}/`.
    EntraV1 {
        /// The GUIDs of the accepted tenants: 1 to 1,000.
        tenants: Vec<String>,
    },
    /// Microsoft Entra ID, tokens of version 2.0: `https://login.microsoftonline.com/{tenant}/v2.0`.
    EntraV2 {
        /// The GUIDs of the accepted tenants: 1 to 1,000.
        tenants: Vec<String>,
    },
}

/// A path as a text, of which no two paths have the same.
fn escaped(path: &Path) -> String {
    path.as_os_str().as_encoded_bytes().escape_ascii().to_string()
}

/// Which claims hold scopes and roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimNames {
    /// Scopes are taken from the first of these claims that the token has: a space-separated string (RFC 8693 §4.2) or
    /// an array of strings. Default: `scope`, then `scp`.
    pub scopes: Vec<ClaimPath>,
    /// Roles are collected from all of these claims: arrays of strings, or a single string. Default: `roles`.
    pub roles: Vec<ClaimPath>,
}

impl Default for ClaimNames {
    fn default() -> Self {
        Self { scopes: vec!["scope".into(), "scp".into()], roles: vec!["roles".into()] }
    }
}

/// The path of a claim: `roles`, or `realm_access.roles` for a nested one. With a leading `/`
/// (`/resource_access/my.client/roles`) the parts may contain dots. A name with `://` is taken whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimPath(Vec<String>);

impl ClaimPath {
    /// The names from the outermost object to the innermost.
    pub(crate) fn parts(&self) -> &[String] {
        &self.0
    }
}

impl From<&str> for ClaimPath {
    fn from(path: &str) -> Self {
        if path.contains("://") {
            return Self(vec![path.to_owned()]);
        }
        let parts = match path.strip_prefix('/') {
            Some(pointer) => pointer.split('/'),
            None => return Self(path.split('.').map(str::to_owned).collect()),
        };
        // RFC 6901 §4: `~1` is `/`, `~0` is `~`, in this order.
        Self(parts.map(|part| part.replace("~1", "/").replace("~0", "~")).collect())
    }
}

impl FromStr for ClaimPath {
    type Err = std::convert::Infallible;

    fn from_str(path: &str) -> Result<Self, Self::Err> {
        Ok(path.into())
    }
}

impl fmt::Display for ClaimPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

/// The times of key fetches, and the lifetime of fetched keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRefresh {
    /// How long fetched keys are fresh; one minute to one day. Default: one hour, so that a key that its issuer
    /// withdrew is removed within the hour.
    pub lifetime: Duration,
    /// How long before the end of `lifetime` the keys are fetched again; less than `lifetime`. Default: 15 minutes.
    pub ahead: Duration,
    /// How long keys are used after `lifetime` while fetches fail; at most seven days. Default: 12 hours, to survive an
    /// outage over night. After that, tokens are answered `keys_unavailable`.
    pub stale_if_error: Duration,
    /// The shortest time between fetches caused by unknown key ids; one second to one hour. Default: 30 seconds.
    pub cooldown: Duration,
    /// The longest time of one refresh, including discovery, and so the longest time that a request waits for keys; 100
    /// ms to 30 s. Default: 5 seconds.
    pub timeout: Duration,
}

impl Default for KeyRefresh {
    fn default() -> Self {
        Self {
            lifetime: Duration::from_secs(3600),
            ahead: Duration::from_secs(15 * 60),
            stale_if_error: Duration::from_secs(12 * 3600),
            cooldown: Duration::from_secs(30),
            timeout: Duration::from_secs(5),
        }
    }
}

impl KeyRefresh {
    fn validate(&self) -> Result<(), &'static str> {
        let day = Duration::from_secs(24 * 3600);
        if !(Duration::from_secs(60)..=day).contains(&self.lifetime) {
            return Err("the keys' lifetime must be 1 minute to 1 day");
        }
        if self.ahead >= self.lifetime {
            return Err("keys must be refreshed ahead by less than their lifetime");
        }
        if self.stale_if_error > 7 * day {
            return Err("stale keys must be used for at most 7 days");
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&self.cooldown) {
            return Err("the cooldown must be 1 second to 1 hour");
        }
        if !(Duration::from_millis(100)..=Duration::from_secs(30)).contains(&self.timeout) {
            return Err("the timeout for fetching keys must be 100 ms to 30 s");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_paths_are_dotted_pointers_or_whole() {
        let table: [(&str, &[&str]); 5] = [
            ("roles", &["roles"]),
            ("realm_access.roles", &["realm_access", "roles"]),
            ("/resource_access/my.client/roles", &["resource_access", "my.client", "roles"]),
            ("/a~1b/c~0d/~01", &["a/b", "c~d", "~1"]),
            ("https://example.com/roles", &["https://example.com/roles"]),
        ];
        for (path, parts) in table {
            assert_eq!(ClaimPath::from(path).parts(), parts, "{path}");
        }
    }

    #[test]
    fn settings_out_of_range_are_errors() {
        let good = IssuerConfig {
            name: "main".into(),
            issuer: "https://id.example".into(),
            audiences: vec!["api".into()],
            ..IssuerConfig::default()
        };
        assert!(good.validate().is_ok());
        let bad: [fn(&mut IssuerConfig); 13] = [
            |c| c.name.clear(),
            |c| c.name = "x".repeat(65),
            |c| c.issuer.clear(),
            |c| c.audiences.clear(),
            |c| c.audiences = vec![String::new()],
            |c| c.algorithms.clear(),
            |c| c.types.clear(),
            |c| c.clock_skew = Duration::from_secs(301),
            |c| c.lifetime_max = Some(Duration::ZERO),
            |c| c.refresh.lifetime = Duration::from_secs(59),
            |c| c.refresh.ahead = c.refresh.lifetime,
            |c| c.refresh.cooldown = Duration::ZERO,
            |c| c.refresh.timeout = Duration::from_secs(31),
        ];
        for (index, spoil) in bad.iter().enumerate() {
            let mut config = good.clone();
            spoil(&mut config);
            assert!(config.validate().is_err(), "case {index}");
        }
    }
}
