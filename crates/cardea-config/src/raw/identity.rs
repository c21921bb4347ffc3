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
    form::{As, Threads},
    section::section,
    sections::EntraVersion,
};

/// An issuer whose tokens are believed. Its keys come from one of `discovery`, `jwks_url`, `jwks_file` or `local`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawIssuer {
    /// Its name, by which routes refer to it.
    #[schemars(extend("format" = "cardea-name"))]
    pub(crate) name: String,
    /// The value of `iss`, exactly. Left out with `local`, where it is the authorization server's, and with
    /// `preset`, where it follows from the tenants.
    #[serde(default)]
    pub(crate) issuer: Option<String>,
    /// What a token's `aud` may be: the identifiers of the services behind this gateway. A token for anyone else
    /// is not for us.
    #[schemars(length(min = 1))]
    #[schemars(extend("x-remedy" = "say whom its tokens must be for: audiences = [\"https://api.example.com\"]; without it, a token that was issued for any other service would be accepted"))]
    pub(crate) audiences: Vec<String>,
    /// Finds the keys through the issuer's metadata (`/.well-known/openid-configuration`, RFC 8414).
    #[serde(default)]
    pub(crate) discovery: bool,
    /// Where the key set (RFC 7517) is fetched from.
    #[serde(default)]
    pub(crate) jwks_url: Option<String>,
    /// A file with the key set.
    #[serde(default)]
    pub(crate) jwks_file: Option<String>,
    /// The keys are those of this gateway's own authorization server.
    #[serde(default)]
    pub(crate) local: bool,
    /// The signature algorithms that are accepted, whatever a token's header says. The default has those that
    /// issuers use and whose keys cannot be mistaken for each other's.
    #[serde(default = "algorithms", with = "As::<Vec<Algorithm>>")]
    #[schemars(length(min = 1))]
    pub(crate) algorithms: Vec<Algorithm>,
    /// What a token's `typ` may be, without `application/` and whatever its case. The default takes access
    /// tokens of RFC 9068 and the plain `JWT` of issuers from before it.
    #[serde(default = "types")]
    #[schemars(length(min = 1))]
    pub(crate) types: Vec<String>,
    /// How far the issuer's clock may be off.
    #[serde(default = "clock_skew", with = "As::<Duration>")]
    #[schemars(extend("x-maximum" = "5m"))]
    pub(crate) clock_skew: Duration,
    /// How long its keys are used after they should have been fetched again (an hour after they last were) while they can't
    /// be, over restarts too. After that its tokens get 503.
    #[serde(default = "stale_keys_max", with = "As::<Duration>")]
    #[schemars(extend("x-maximum" = "7d"))]
    pub(crate) stale_keys_max: Duration,
    /// How long one fetch of its keys may take, discovery included, and so how long a request may wait for keys.
    #[serde(default = "key_fetch_timeout", with = "As::<Duration>")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "30s"))]
    pub(crate) key_fetch_timeout: Duration,
    /// The longest lifetime (`exp` less `iat`) that is accepted. Left out, any.
    #[serde(default, with = "As::<Option<Duration>>")]
    #[schemars(extend("x-minimum" = "1m", "x-maximum" = "365d"))]
    pub(crate) lifetime_max: Option<Duration>,
    /// How many of its tokens are remembered once they were verified, so that they are not verified again on each
    /// request; with up to 4 KiB for each on average. 0: none.
    #[serde(default = "verdicts_max")]
    #[schemars(range(min = 0, max = 10_000_000))]
    pub(crate) verdicts_max: usize,
    /// Whether keys may be fetched from private, loopback and link-local addresses. Only where the issuer
    /// stands in the same network.
    #[serde(default)]
    pub(crate) allow_private_addresses: bool,
    /// Further hosts that keys may be fetched from, beside the issuer's own.
    #[serde(default)]
    pub(crate) key_hosts: Vec<String>,
    /// A PEM file with the authorities that the issuer's certificate must come from. Left out, the system's.
    #[serde(default)]
    pub(crate) ca_file: Option<String>,
    /// Where its tokens say what the caller may do.
    #[serde(default)]
    pub(crate) claims: RawClaimNames,
    /// The ways of a known issuer: `"entra"` for Microsoft Entra ID.
    #[serde(default)]
    pub(crate) preset: Option<RawPreset>,
    /// The tenants whose tokens are believed, by their ids; with `preset = "entra"`.
    #[serde(default)]
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
    /// Where an issuer's tokens say what the caller may do.
    RawClaimNames for ClaimNames {
        /// Claims with scopes, the first that is there counts; dots lead into objects. Text is split at spaces.
        #[serde(with = "As::<Vec<ClaimPath>>")]
        #[schemars(length(min = 1))]
        scopes: Vec<ClaimPath> => scopes;
        /// Claims with roles, the first that is there counts; dots lead into objects (`realm_access.roles`).
        #[serde(with = "As::<Vec<ClaimPath>>")]
        #[schemars(length(min = 1))]
        roles: Vec<ClaimPath> => roles;
    }
}

/// The ways of a known issuer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum RawPreset {
    /// Microsoft Entra ID.
    Entra,
}

/// The authorization server that issues tokens for machines. Its endpoints are there once this section is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAuthorizationServer {
    /// Its identifier: an https URL without query or fragment, the `iss` of its tokens and where clients find its
    /// metadata. http is accepted on loopback.
    #[schemars(extend("x-remedy" = "add the URL by which clients reach it: issuer = \"https://auth.example.com\""))]
    pub(crate) issuer: String,
    /// Where clients and keys are kept: `"sqlite:"` and a file.
    #[serde(default = "database")]
    pub(crate) database: String,
    /// The key under which private keys are kept: 32 octets in base64 or hex, from a file or the environment.
    #[schemars(extend("x-remedy" = "add wrapping_key = { file = \"wrapping.key\" }; make one with: openssl rand -base64 32"))]
    pub(crate) wrapping_key: RawSecret,
    /// What tokens are signed with.
    #[serde(default, with = "As::<SigningAlgorithm>")]
    pub(crate) algorithm: SigningAlgorithm,
    /// How long an access token is good for.
    #[serde(default = "access_token_lifetime", with = "As::<Duration>")]
    #[schemars(extend("x-minimum" = "1m", "x-maximum" = "1d"))]
    pub(crate) access_token_lifetime: Duration,
    /// The `aud` of a token where the client names no resource.
    #[schemars(extend("x-remedy" = "name the service that tokens are for: default_audience = \"https://api.example.com\""))]
    pub(crate) default_audience: String,
    /// What clients may name as `resource` (RFC 8707) beside the default audience; absolute URIs.
    #[serde(default)]
    pub(crate) resources: Vec<String>,
    /// The scopes that clients can be given, for the metadata.
    #[serde(default)]
    pub(crate) scopes: Vec<String>,
    /// How long a key signs before the next one takes over.
    #[serde(default = "key_lifetime", with = "As::<Duration>")]
    #[schemars(extend("x-minimum" = "1h", "x-maximum" = "3650d"))]
    pub(crate) key_lifetime: Duration,
    /// How long a new key is published before it signs, so that verifiers that cache the key set know it in time; at most
    /// half of `key_lifetime`. Time in which no gateway published it does not count. The first key signs at once.
    #[serde(default = "key_publish_ahead", with = "As::<Duration>")]
    #[schemars(extend("x-minimum" = "1m", "x-maximum" = "90d"))]
    pub(crate) key_publish_ahead: Duration,
    /// How long others may cache the key set and the metadata: the `max-age` that they are sent with. Left out, half of
    /// `key_publish_ahead`, and at most 5 m; it can't be more than half of `key_publish_ahead`.
    #[serde(default, with = "As::<Option<Duration>>")]
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "45d"))]
    pub(crate) key_set_max_age: Option<Duration>,
    /// How long a key is still published after it last signed; at least `access_token_lifetime` and 5 m, for clocks that
    /// differ.
    #[serde(default = "key_overlap", with = "As::<Duration>")]
    #[schemars(extend("x-minimum" = "1m", "x-maximum" = "90d"))]
    pub(crate) key_overlap: Duration,
    /// Whether its endpoints are reachable on every listener, at the host and the paths of its issuer, without
    /// routes. `false` where routes with `builtin` say which of them are reachable, and where.
    #[serde(default = "yes")]
    pub(crate) mount: bool,
    #[serde(default)]
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
    /// How client secrets are verified that somebody chose or brought along from another server. Those that the server
    /// generated take one SHA-256, and nothing of this.
    RawClientSecrets for SecretConfig {
        /// How many threads hash. `"auto"`: half of the processors, rounded up, so that a flood of secrets to hash leaves
        /// the other half to traffic.
        #[serde(with = "As::<Threads<256>>")]
        hash_threads: usize => hash_threads;
        /// Hashes that may wait for a thread. What comes beyond them is answered 503 with `Retry-After`.
        #[schemars(range(min = 2, max = 65_536))]
        hash_queue_max: usize => hash_queue_max;
        /// How long a request may wait for its hash, where its own time isn't over before; 503 after that.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1m"))]
        hash_wait_max: Duration => hash_wait_max;
        /// The iterations of PBKDF2-HMAC-SHA-512 under which secrets are stored from now on. Weaker hashes are replaced as
        /// their secrets turn out to be right. `cardea bench kdf` says what they cost here; the default is OWASP's.
        #[schemars(range(min = 10_000, max = 10_000_000))]
        iterations: u32 => iterations;
        /// How long a right secret is remembered, under a key that is made at each start, so that it isn't hashed on each
        /// request. `"0s"`: not at all. A secret that is rotated and a client that is disabled are refused at once all
        /// the same.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-maximum" = "1h"))]
        remember_for: Duration => remember_for;
        /// How many right secrets are remembered.
        #[schemars(range(min = 0, max = 1_000_000))]
        remembered_max: usize => remembered_max;
        /// How often a client may fail from one address (IPv6: one /64) before further attempts are answered 429. Secrets
        /// that are remembered are not concerned, and neither is the same client at another address.
        #[schemars(range(min = 1, max = 10_000))]
        failures_max: u32 => failures_max;
        /// After how long one of these failures is forgiven.
        #[serde(with = "As::<Duration>")]
        #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
        failure_forgiven_every: Duration => failure_forgiven_every;
    }
}

/// A secret, which stands in a file or in the environment and never in the configuration.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct RawSecret {
    /// The file; white space at its end does not count.
    #[serde(default)]
    pub(crate) file: Option<String>,
    /// The name of the environment variable.
    #[serde(default)]
    pub(crate) env: Option<String>,
}
