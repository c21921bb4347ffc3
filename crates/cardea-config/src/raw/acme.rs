//! Certificates from an authority, as written.

use cardea_tls::acme::RequestedKey;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    super::{form::As, sections::ChallengeKind},
    identity::RawSecret,
};

/// The authority that certificates with `acme = true` come from (RFC 8555). They are ordered when the gateway first
/// runs, and renewed in time. Its account and the certificates are kept in a database, their keys encrypted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAcme {
    /// The https URL of its directory.
    #[schemars(extend("x-remedy" = "name the authority: directory = \"https://acme-v02.api.letsencrypt.org/directory\""))]
    pub(crate) directory: String,
    /// Whether you agree to the authority's terms of service, which its directory refers to. It issues nothing without.
    #[schemars(extend("x-remedy" = "read the authority's terms; if you agree to them: terms_of_service_agreed = true"))]
    pub(crate) terms_of_service_agreed: bool,
    /// Whom the authority may write to about the account: `"mailto:…"`.
    #[serde(default)]
    pub(crate) contacts: Vec<String>,
    /// Where the account and the certificates are kept: `"sqlite:"` and a file. It may be that of the authorization
    /// server. Gateways that share it share the certificates, and one of them at a time asks the authority.
    #[serde(default = "database")]
    pub(crate) database: String,
    /// The key under which private keys are kept: 32 octets in base64 or hex, from a file or the environment.
    #[schemars(extend("x-remedy" = "add wrapping_key = { file = \"wrapping.key\" }; make one with: openssl rand -base64 32"))]
    pub(crate) wrapping_key: RawSecret,
    /// A PEM file with the authorities that the directory's own certificate may come from beside the system's, where the
    /// authority is a private one.
    #[serde(default)]
    pub(crate) ca_file: Option<String>,
    /// How the authority is shown that a host is ours: the first that it offers. Where an attempt fails, the next one
    /// begins with the next. The default needs port 443 alone.
    #[serde(default = "challenges")]
    #[schemars(length(min = 1))]
    pub(crate) challenges: Vec<ChallengeKind>,
    /// What ties the account to one that the authority knows by other means, where it asks for that.
    #[serde(default)]
    pub(crate) external_account: Option<RawExternalAccount>,
    /// The key of each certificate, which is made anew for each.
    #[serde(default, with = "As::<RequestedKey>")]
    pub(crate) key_type: RequestedKey,
    /// When a certificate is renewed whose authority does not suggest when (RFC 9773): once less than so many percent of
    /// its lifetime are left. With 33, one of 90 days after 60 days.
    #[serde(default = "renew_before_percent")]
    #[schemars(range(min = 5, max = 90))]
    pub(crate) renew_before_percent: u32,
}

/// An account that the authority knows by other means (RFC 8555 §7.3.4).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct RawExternalAccount {
    /// The name of the key that the authority gave out.
    pub(crate) key_id: String,
    /// That key: base64url, from a file or the environment.
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
