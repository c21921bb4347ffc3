//! Issuers and the authorization server as written.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use cardea_identity::{Algorithm, ClaimNames, ClaimPath, IssuerConfig};
use cardea_issuer::{
    ACCESS_TOKEN_LIFETIME_DEFAULT, KEY_LIFETIME_DEFAULT, KEY_OVERLAP_DEFAULT, KEY_PUBLISH_AHEAD_DEFAULT,
    SecretConfig, SigningAlgorithm,
};

use super::super::{
    effect::Effect,
    form::{As, Threads},
    section::section,
    sections::EntraVersion,
};

/// A trusted issuer of tokens. Its keys come from one of `discovery`, `jwks_url`, `jwks_file` or `local`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawIssuer {
    /// The name by which routes refer to it.
    #[schemars(extend("format" = "cardea-name"))]
    pub(crate) name: String,
    /// The exact value of `iss`. Omit it with `local`, where it is that of the authorization server, and with `preset`,
    /// where it follows from the tenants.
    #[serde(default)]
    pub(crate) issuer: Option<String>,
    /// The accepted values of a token's `aud`: the identifiers of the services behind this gateway. Tokens for other
    /// audiences are refused.
    #[schemars(length(min = 1))]
    #[schemars(extend("x-remedy" = "say whom its tokens must be for: audiences = [\"https://api.example.com\"]; without it, a token that was issued for any other service would be accepted"))]
    pub(crate) audiences: Vec<String>,
    /// Finds the keys through the issuer's metadata (`/.well-known/openid-configuration`, RFC 8414).
    #[serde(default)]
    pub(crate) discovery: bool,
    /// The URL of the key set (RFC 7517).
    #[serde(default)]
    pub(crate) jwks_url: Option<String>,
    /// A file with the key set.
    #[serde(default)]
    pub(crate) jwks_file: Option<String>,
    /// Uses the keys of this gateway's own authorization server.
    #[serde(default)]
    pub(crate) local: bool,
    /// The accepted signature algorithms, whatever a token's header says. The default contains the common ones, whose
    /// keys cannot be confused with each other.
    #[serde(default = "algorithms", with = "As::<Vec<Algorithm>>")]
    #[schemars(length(min = 1))]
    pub(crate) algorithms: Vec<Algorithm>,
    /// The accepted values of a token's `typ`, without `application/`, case-insensitive. The default accepts access
    /// tokens of RFC 9068 and the plain `JWT` of older issuers.
    #[serde(default = "types")]
    #[schemars(length(min = 1))]
    pub(crate) types: Vec<String>,
    /// The accepted difference between the issuer's clock and the gateway's.
    #[serde(default = "clock_skew", with = "As::<Duration>")]
    #[schemars(extend("x-maximum" = "5m"))]
    pub(crate) clock_skew: Duration,
    /// How long keys are used after they should have been fetched again (an hour after the last fetch) while fetches
    /// fail, across restarts too. After that, tokens of the issuer get 503.
    #[serde(default = "stale_keys_max", with = "As::<Duration>")]
    #[schemars(extend("x-maximum" = "7d"))]
    pub(crate) stale_keys_max: Duration,
    /// The time limit of one fetch of the keys, including discovery. It is also the longest time that a request waits
    /// for keys.
    #[serde(default = "key_fetch_timeout", with = "As::<Duration>")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "30s"))]
    pub(crate) key_fetch_timeout: Duration,
    /// The longest accepted lifetime (`exp` minus `iat`). Default: no limit.
    #[serde(default, with = "As::<Option<Duration>>")]
    #[schemars(extend("x-minimum" = "1m", "x-maximum" = "365d"))]
    pub(crate) lifetime_max: Option<Duration>,
    /// The most verified tokens that are cached, so that they are not verified again on each request; with up to 4 KiB
    /// for each on average. 0 disables the cache.
    #[serde(default = "verdicts_max")]
    #[schemars(range(min = 0, max = 10_000_000))]
    pub(crate) verdicts_max: usize,
    /// Whether keys may be fetched from private, loopback and link-local addresses. Only for an issuer in the same
    /// network.
    #[serde(default)]
    pub(crate) allow_private_addresses: bool,
    /// Further hosts from which keys may be fetched, in addition to the issuer's own.
    #[serde(default)]
    pub(crate) key_hosts: Vec<String>,
    /// A PEM file with the CA certificates for the issuer's TLS certificate. Default: the system's.
    #[serde(default)]
    pub(crate) ca_file: Option<String>,
    /// The claims with scopes and roles.
    #[serde(default)]
    pub(crate) claims: RawClaimNames,
    /// The rules of a known provider: `"entra"` for Microsoft Entra ID.
    #[serde(default)]
    pub(crate) preset: Option<RawPreset>,
    /// The ids of the tenants whose tokens are accepted; with `preset = "entra"`.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(crate) tenants: Vec<String>,
    /// The format of the tokens; with `preset = "entra"`.
    #[serde(default)]
    pub(crate) version: Option<EntraVersion>,
}

fn algorithms() -> Vec<Algorithm> {
    IssuerConfig::default().algorithms
}

fn types() -> Vec<String> {
    IssuerConfig::default().types
}

fn verdicts_max() -> usize {
    IssuerConfig::default().verdicts_max
}

fn stale_keys_max() -> Duration {
    IssuerConfig::default().refresh.stale_if_error
}

fn key_fetch_timeout() -> Duration {
    IssuerConfig::default().refresh.timeout
}

fn clock_skew() -> Duration {
    IssuerConfig::default().clock_skew
}

section! {
    /// The claims of an issuer's tokens that contain scopes and roles.
    RawClaimNames for ClaimNames {
        /// Claims with scopes; the first one that the token has is used. Dots separate the names of nested objects.
        /// Text is split at spaces.
        #[serde(with = "As::<Vec<ClaimPath>>")]
        #[schemars(length(min = 1))]
        scopes: Vec<ClaimPath> => scopes;
        /// Claims with roles; the roles of all of them count. Dots separate the names of nested objects
        /// (`realm_access.roles`).
        #[serde(with = "As::<Vec<ClaimPath>>")]
        #[schemars(length(min = 1))]
        roles: Vec<ClaimPath> => roles;
    }
}

/// The rules of a known provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum RawPreset {
    /// Microsoft Entra ID.
    Entra,
}

/// The authorization server, which issues tokens for machine clients. This section enables its endpoints.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAuthorizationServer {
    /// The issuer identifier: an https URL without query or fragment. It is the `iss` of tokens and the base of the
    /// metadata's URL. http is allowed on loopback.
    #[schemars(extend("x-remedy" = "add the URL by which clients reach it: issuer = \"https://auth.example.com\""))]
    pub(crate) issuer: String,
    /// The database for clients and keys: `"sqlite:"` and a file.
    #[serde(default = "database")]
    pub(crate) database: String,
    /// The key that encrypts stored private keys: 32 octets in base64 or hex, from a file or the environment.
    #[schemars(extend("x-remedy" = "add wrapping_key = { file = \"wrapping.key\" }; make one with: openssl rand -base64 32"))]
    #[schemars(extend("x-reload" = Effect::Restart))]
    pub(crate) wrapping_key: RawSecret,
    /// The signature algorithm of tokens.
    #[serde(default, with = "As::<SigningAlgorithm>")]
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(crate) algorithm: SigningAlgorithm,
    /// The lifetime of access tokens.
    #[serde(default = "access_token_lifetime", with = "As::<Duration>")]
    #[schemars(extend("x-minimum" = "1m", "x-maximum" = "1d"))]
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(crate) access_token_lifetime: Duration,
    /// The `aud` of a token if the client requests no resource.
    #[schemars(extend("x-remedy" = "name the service that tokens are for: default_audience = \"https://api.example.com\""))]
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(crate) default_audience: String,
    /// The values that clients may use as `resource` (RFC 8707) in addition to the default audience; absolute URIs. A
    /// client may use those that it was created with (`--audience`). A client without any may use only the default
    /// audience.
    #[serde(default)]
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(crate) resources: Vec<String>,
    /// The scopes that clients can be given, for the metadata.
    #[serde(default)]
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(crate) scopes: Vec<String>,
    /// How long a key signs before the next one replaces it.
    #[serde(default = "key_lifetime", with = "As::<Duration>")]
    #[schemars(extend("x-minimum" = "1h", "x-maximum" = "3650d"))]
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(crate) key_lifetime: Duration,
    /// How long a new key is published before it signs, so that verifiers that cache the key set know it in time; at
    /// most half of `key_lifetime`. Time in which no gateway published it does not count. The first key signs at once.
    #[serde(default = "key_publish_ahead", with = "As::<Duration>")]
    #[schemars(extend("x-minimum" = "1m", "x-maximum" = "90d"))]
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(crate) key_publish_ahead: Duration,
    /// The `max-age` of the key set and the metadata: how long they may be cached. Default: half of
    /// `key_publish_ahead`, at most 5 m. It can't exceed half of `key_publish_ahead`.
    #[serde(default, with = "As::<Option<Duration>>")]
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "45d"))]
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(crate) key_set_max_age: Option<Duration>,
    /// How long a key is still published after it last signed; at least `access_token_lifetime` plus 5 m, for clock
    /// differences.
    #[serde(default = "key_overlap", with = "As::<Duration>")]
    #[schemars(extend("x-minimum" = "1m", "x-maximum" = "90d"))]
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(crate) key_overlap: Duration,
    /// Whether its endpoints are served on every listener, at the host and the paths of its issuer, without routes.
    /// With `false`, routes with `builtin` decide which of them are served, and where.
    #[serde(default = "yes")]
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(crate) mount: bool,
    #[serde(default)]
    #[schemars(extend("x-reload" = Effect::Restart))]
    pub(crate) secrets: RawClientSecrets,
}

fn yes() -> bool {
    true
}

fn database() -> String {
    "sqlite:cardea.db".to_owned()
}

fn access_token_lifetime() -> Duration {
    ACCESS_TOKEN_LIFETIME_DEFAULT
}

fn key_lifetime() -> Duration {
    KEY_LIFETIME_DEFAULT
}

fn key_publish_ahead() -> Duration {
    KEY_PUBLISH_AHEAD_DEFAULT
}

fn key_overlap() -> Duration {
    KEY_OVERLAP_DEFAULT
}

section! {
    /// The verification of client secrets that were chosen by an operator or imported from another server. Generated
    /// secrets take one SHA-256 and none of this.
    RawClientSecrets for SecretConfig {
        /// The number of hash threads. `"auto"`: half of the processors, rounded up, so that a flood of secrets leaves
        /// the other half to traffic.
        #[serde(with = "As::<Threads<256>>")]
        hash_threads: usize => hash_threads;
        /// The most hashes that wait for a thread. Further requests are answered 503 with `Retry-After`.
        #[schemars(range(min = 2, max = 65_536))]
        hash_queue_max: usize => hash_queue_max;
        /// How long a request may wait for its hash, unless its own deadline is earlier. After that it is answered 503.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1m"))]
        hash_wait_max: Duration => hash_wait_max;
        /// The PBKDF2-HMAC-SHA-512 iterations of newly stored secrets. Weaker hashes are replaced when their secrets
        /// are next verified. `cardea bench kdf` measures the cost on this machine; the default is OWASP's
        /// recommendation.
        #[schemars(range(min = 10_000, max = 10_000_000))]
        iterations: u32 => iterations;
        /// How long a verified secret is cached, under a key that is generated at each start, so that it isn't hashed
        /// on each request. `"0s"` disables the cache. Secrets that were rotated and clients that were disabled are
        /// refused at once in any case.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-maximum" = "1h"))]
        remember_for: Duration => remember_for;
        /// The most cached secrets.
        #[schemars(range(min = 0, max = 1_000_000))]
        remembered_max: usize => remembered_max;
        /// How many failed attempts a client may have from one address (IPv6: one /64) before further ones are answered
        /// 429. Cached secrets and attempts from other addresses are not affected.
        #[schemars(range(min = 1, max = 10_000))]
        failures_max: u32 => failures_max;
        /// The time after which one of these failures is forgiven.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
        failure_forgiven_every: Duration => failure_forgiven_every;
    }
}

/// A secret, which is in a file or in the environment and never in the configuration.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct RawSecret {
    /// The file. White space at its end is ignored.
    #[serde(default)]
    pub(crate) file: Option<String>,
    /// The name of the environment variable.
    #[serde(default)]
    pub(crate) env: Option<String>,
}
