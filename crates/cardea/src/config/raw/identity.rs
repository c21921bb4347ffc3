//! Issuers and the authorization server as written.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::{
    sections::{Algorithm, ClaimNames, ClientSecrets, EntraVersion, SigningAlgorithm},
    text::{DurationText, OptionalDurationText},
};

/// An issuer whose tokens are believed. Its keys come from one of `discovery`, `jwks_url`, `jwks_file` or `local`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct RawIssuer {
    /// Its name, by which routes refer to it.
    #[schemars(extend("format" = "cardea-name"))]
    pub(in crate::config) name: String,
    /// The value of `iss`, exactly. Left out with `local`, where it is the authorization server's, and with
    /// `preset`, where it follows from the tenants.
    #[serde(default)]
    pub(in crate::config) issuer: Option<String>,
    /// What a token's `aud` may be: the identifiers of the services behind this gateway. A token for anyone else
    /// is not for us.
    #[schemars(length(min = 1))]
    #[schemars(extend("x-remedy" = "say whom its tokens must be for: audiences = [\"https://api.example.com\"]; without it, a token that was issued for any other service would be accepted"))]
    pub(in crate::config) audiences: Vec<String>,
    /// Finds the keys through the issuer's metadata (`/.well-known/openid-configuration`, RFC 8414).
    #[serde(default)]
    pub(in crate::config) discovery: bool,
    /// Where the key set (RFC 7517) is fetched from.
    #[serde(default)]
    pub(in crate::config) jwks_url: Option<String>,
    /// A file with the key set.
    #[serde(default)]
    pub(in crate::config) jwks_file: Option<String>,
    /// The keys are those of this gateway's own authorization server.
    #[serde(default)]
    pub(in crate::config) local: bool,
    /// The signature algorithms that are accepted, whatever a token's header says. The default has those that
    /// issuers use and whose keys cannot be mistaken for each other's.
    #[serde(default = "algorithms")]
    #[schemars(length(min = 1))]
    pub(in crate::config) algorithms: Vec<Algorithm>,
    /// What a token's `typ` may be, without `application/` and whatever its case. The default takes access
    /// tokens of RFC 9068 and the plain `JWT` of issuers from before it.
    #[serde(default = "types")]
    #[schemars(length(min = 1))]
    pub(in crate::config) types: Vec<String>,
    /// How far the issuer's clock may be off.
    #[serde(default = "clock_skew", with = "DurationText")]
    #[schemars(extend("x-maximum" = "5m"))]
    pub(in crate::config) clock_skew: Duration,
    /// How long its keys are used after they should have been fetched again (an hour after they last were) while they can't
    /// be, over restarts too. After that its tokens get 503.
    #[serde(default = "stale_keys_max", with = "DurationText")]
    #[schemars(extend("x-maximum" = "7d"))]
    pub(in crate::config) stale_keys_max: Duration,
    /// The longest lifetime (`exp` less `iat`) that is accepted. Left out, any.
    #[serde(default, with = "OptionalDurationText")]
    #[schemars(extend("x-minimum" = "1m", "x-maximum" = "365d"))]
    pub(in crate::config) lifetime_max: Option<Duration>,
    /// How many of its tokens are remembered once they were verified, so that they are not verified again on each
    /// request; with up to 4 KiB for each on average. 0: none.
    #[serde(default = "verdicts_max")]
    #[schemars(range(min = 0, max = 10_000_000))]
    pub(in crate::config) verdicts_max: u32,
    /// Whether keys may be fetched from private, loopback and link-local addresses. Only where the issuer
    /// stands in the same network.
    #[serde(default)]
    pub(in crate::config) allow_private_addresses: bool,
    /// Further hosts that keys may be fetched from, beside the issuer's own.
    #[serde(default)]
    pub(in crate::config) key_hosts: Vec<String>,
    /// A PEM file with the authorities that the issuer's certificate must come from. Left out, the system's.
    #[serde(default)]
    pub(in crate::config) ca_file: Option<String>,
    /// Where its tokens say what the caller may do.
    #[serde(default)]
    pub(in crate::config) claims: ClaimNames,
    /// The ways of a known issuer: `"entra"` for Microsoft Entra ID.
    #[serde(default)]
    pub(in crate::config) preset: Option<RawPreset>,
    /// The tenants whose tokens are believed, by their ids; with `preset = "entra"`.
    #[serde(default)]
    pub(in crate::config) tenants: Vec<String>,
    /// The format of the tokens; with `preset = "entra"`.
    #[serde(default)]
    pub(in crate::config) version: Option<EntraVersion>,
}

fn algorithms() -> Vec<Algorithm> {
    vec![Algorithm::Rs256, Algorithm::Ps256, Algorithm::Es256, Algorithm::EdDsa]
}

fn types() -> Vec<String> {
    vec!["at+jwt".to_owned(), "JWT".to_owned()]
}

fn verdicts_max() -> u32 {
    16_384
}

fn stale_keys_max() -> Duration {
    Duration::from_secs(12 * 3_600)
}

fn clock_skew() -> Duration {
    Duration::from_secs(30)
}

/// The ways of a known issuer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(in crate::config) enum RawPreset {
    /// Microsoft Entra ID.
    Entra,
}

/// The authorization server that issues tokens for machines. Its endpoints are there once this section is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct RawAuthorizationServer {
    /// Its identifier: an https URL without query or fragment, the `iss` of its tokens and where clients find its
    /// metadata. http is accepted on loopback.
    #[schemars(extend("x-remedy" = "add the URL by which clients reach it: issuer = \"https://auth.example.com\""))]
    pub(in crate::config) issuer: String,
    /// Where clients and keys are kept: `"sqlite:"` and a file.
    #[serde(default = "database")]
    pub(in crate::config) database: String,
    /// The key under which private keys are kept: 32 octets in base64 or hex, from a file or the environment.
    #[schemars(extend("x-remedy" = "add wrapping_key = { file = \"wrapping.key\" }; make one with: openssl rand -base64 32"))]
    pub(in crate::config) wrapping_key: RawSecret,
    /// What tokens are signed with.
    #[serde(default)]
    pub(in crate::config) algorithm: SigningAlgorithm,
    /// How long an access token is good for.
    #[serde(default = "access_token_lifetime", with = "DurationText")]
    #[schemars(extend("x-minimum" = "1m", "x-maximum" = "1d"))]
    pub(in crate::config) access_token_lifetime: Duration,
    /// The `aud` of a token where the client names no resource.
    #[schemars(extend("x-remedy" = "name the service that tokens are for: default_audience = \"https://api.example.com\""))]
    pub(in crate::config) default_audience: String,
    /// What clients may name as `resource` (RFC 8707) beside the default audience; absolute URIs.
    #[serde(default)]
    pub(in crate::config) resources: Vec<String>,
    /// The scopes that clients can be given, for the metadata.
    #[serde(default)]
    pub(in crate::config) scopes: Vec<String>,
    /// How long a key signs before the next one takes over.
    #[serde(default = "key_lifetime", with = "DurationText")]
    #[schemars(extend("x-minimum" = "1h", "x-maximum" = "3650d"))]
    pub(in crate::config) key_lifetime: Duration,
    /// How long a new key is published before it signs, so that verifiers that cache the key set know it in time; at most
    /// half of `key_lifetime`. Time in which no gateway published it does not count. The first key signs at once.
    #[serde(default = "key_publish_ahead", with = "DurationText")]
    #[schemars(extend("x-minimum" = "1m", "x-maximum" = "90d"))]
    pub(in crate::config) key_publish_ahead: Duration,
    /// How long others may cache the key set and the metadata: the `max-age` that they are sent with. Left out, half of
    /// `key_publish_ahead`, and at most 5 m; it can't be more than half of `key_publish_ahead`.
    #[serde(default, with = "OptionalDurationText")]
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "45d"))]
    pub(in crate::config) key_set_max_age: Option<Duration>,
    /// How long a key is still published after it last signed; at least `access_token_lifetime` and 5 m, for clocks that
    /// differ.
    #[serde(default = "key_overlap", with = "DurationText")]
    #[schemars(extend("x-minimum" = "1m", "x-maximum" = "90d"))]
    pub(in crate::config) key_overlap: Duration,
    /// Whether its endpoints are reachable on every listener, at the host and the paths of its issuer, without
    /// routes. `false` where routes with `builtin` say which of them are reachable, and where.
    #[serde(default = "yes")]
    pub(in crate::config) mount: bool,
    #[serde(default)]
    pub(in crate::config) secrets: ClientSecrets,
}

fn yes() -> bool {
    true
}

fn database() -> String {
    "sqlite:cardea.db".to_owned()
}

fn access_token_lifetime() -> Duration {
    Duration::from_secs(3600)
}

fn key_lifetime() -> Duration {
    Duration::from_secs(90 * 86_400)
}

fn key_publish_ahead() -> Duration {
    Duration::from_secs(86_400)
}

fn key_overlap() -> Duration {
    Duration::from_secs(2 * 86_400)
}

/// A secret, which stands in a file or in the environment and never in the configuration.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(in crate::config) struct RawSecret {
    /// The file; white space at its end does not count.
    #[serde(default)]
    pub(in crate::config) file: Option<String>,
    /// The name of the environment variable.
    #[serde(default)]
    pub(in crate::config) env: Option<String>,
}
