//! Certificates from an ACME authority, as written.

use cardea_tls::acme::RequestedKey;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    super::{effect::Effect, form::As, sections::ChallengeKind},
    identity::RawSecret,
};

/// The ACME authority (RFC 8555) that issues the certificates with `acme = true`. They are ordered at the first start
/// and renewed in time. The account and the certificates are stored in a database, with their private keys encrypted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAcme {
    /// The https URL of the authority's directory.
    #[schemars(extend("x-remedy" = "name the authority: directory = \"https://acme-v02.api.letsencrypt.org/directory\""))]
    pub(crate) directory: String,
    /// Whether you agree to the authority's terms of service, which its directory refers to. Without agreement it
    /// issues no certificate.
    #[schemars(extend("x-remedy" = "read the authority's terms; if you agree to them: terms_of_service_agreed = true"))]
    pub(crate) terms_of_service_agreed: bool,
    /// Contacts for the authority's messages about the account: `"mailto:…"`.
    #[serde(default)]
    pub(crate) contacts: Vec<String>,
    /// The database for the account and the certificates: `"sqlite:"` and a file. It may be the authorization server's.
    /// Gateways that share it share the certificates, and one of them at a time talks to the authority.
    #[serde(default = "database")]
    pub(crate) database: String,
    /// The key that encrypts stored private keys: 32 octets in base64 or hex, from a file or the environment.
    #[schemars(extend("x-remedy" = "add wrapping_key = { file = \"wrapping.key\" }; make one with: openssl rand -base64 32"))]
    #[schemars(extend("x-reload" = Effect::Restart))]
    pub(crate) wrapping_key: RawSecret,
    /// A PEM file with CA certificates that are trusted for the directory's own certificate, in addition to the
    /// system's. For private authorities.
    #[serde(default)]
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(crate) ca_file: Option<String>,
    /// The challenges that prove control of a host, in order of preference. The first one that the authority offers is
    /// used; after a failure, the next attempt begins with the next one. The default needs only port 443.
    #[serde(default = "challenges")]
    #[schemars(length(min = 1))]
    pub(crate) challenges: Vec<ChallengeKind>,
    /// The external account binding, if the authority requires one.
    #[serde(default)]
    #[schemars(extend("x-reload" = Effect::Restart))]
    pub(crate) external_account: Option<RawExternalAccount>,
    /// The key type of certificates. Each certificate gets a new key.
    #[serde(default, with = "As::<RequestedKey>")]
    pub(crate) key_type: RequestedKey,
    /// When a certificate is renewed whose authority suggests no time (RFC 9773): when less than this percentage of its
    /// lifetime is left. With 33, a certificate of 90 days is renewed after 60 days.
    #[serde(default = "renew_before_percent")]
    #[schemars(range(min = 5, max = 90))]
    pub(crate) renew_before_percent: u32,
}

/// An external account binding (RFC 8555 §7.3.4).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct RawExternalAccount {
    /// The key identifier from the authority.
    pub(crate) key_id: String,
    /// The key from the authority: base64url, from a file or the environment.
    pub(crate) hmac_key: RawSecret,
}

fn database() -> String {
    "sqlite:cardea.db".to_owned()
}

fn challenges() -> Vec<ChallengeKind> {
    vec![ChallengeKind::TlsAlpn01]
}

fn renew_before_percent() -> u32 {
    33
}
