//! Client certificates as written.

use cardea_gateway::client_certificate::ClientCertificateForward;
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::{form::As, sections::ClientCertificateNeed};

/// A set of CA certificates that client certificates are verified against. Its files are reloaded when they change, and
/// connections are checked against them from their next request on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawClientAuthority {
    /// The name by which listeners and routes refer to it.
    #[schemars(extend("format" = "cardea-name"))]
    pub(crate) name: String,
    /// A PEM file with the root certificates.
    pub(crate) ca_file: String,
    /// PEM files with revocation lists. If there are any, each certificate between a client's and its root must be
    /// covered by a list that has not expired.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(crate) crl_files: Vec<String>,
}

/// The client certificate rule of a route.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum RawClientCertificate {
    /// Any certificate that the host's client authorities accept.
    Need(ClientCertificateNeed),
    /// Only certificates that meet these conditions.
    Rule(RawClientCertificateRule),
}

/// The client certificate rule of a route. A certificate that is present must meet the conditions, even if it is
/// optional.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawClientCertificateRule {
    /// Whether the client must present a certificate.
    pub(crate) mode: ClientCertificateNeed,
    /// The names of the client authorities that may have issued it. Default: those of the host.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(crate) authorities: Vec<String>,
    /// Accepted alternative names: `"dns:…"`, `"uri:…"`, `"email:…"` or `"ip:…"`. The certificate must have one of
    /// them. The common name is ignored.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(crate) names: Vec<String>,
    /// SHA-256 fingerprints of certificates that are accepted in addition to those with one of the names, in
    /// hexadecimal.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(crate) fingerprints: Vec<String>,
    /// The host, with its port unless that is 443, whose handshake requests a certificate. GET and HEAD requests
    /// without a certificate are redirected there (307); all others get 403 with the name of this host. The route must
    /// match this host too.
    #[serde(default)]
    pub(crate) step_up: Option<String>,
    /// What is forwarded to the service (RFC 9440).
    #[serde(default, with = "As::<ClientCertificateForward>")]
    pub(crate) forward: ClientCertificateForward,
}
