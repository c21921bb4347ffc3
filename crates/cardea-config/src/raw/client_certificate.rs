//! Client certificates as written.

use cardea_gateway::client_certificate::ClientCertificateForward;
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::{form::As, sections::ClientCertificateNeed};

/// A set of certificate authorities that vouch for clients. Its files are read again when they change, and connections
/// are held to them from their next request on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawClientAuthority {
    /// Its name, by which listeners and routes refer to it.
    #[schemars(extend("format" = "cardea-name"))]
    pub(crate) name: String,
    /// A PEM file with the roots.
    pub(crate) ca_file: String,
    /// PEM files with revocation lists. Where there are any, each certificate between a client's and its root must be
    /// covered by one that has not run out.
    #[serde(default)]
    pub(crate) crl_files: Vec<String>,
}

/// What a route makes of client certificates.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum RawClientCertificate {
    /// Any that the host's authorities vouch for.
    Need(ClientCertificateNeed),
    /// These.
    Rule(RawClientCertificateRule),
}

/// What a route makes of client certificates. One that came must fit, whether it is needed or not.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawClientCertificateRule {
    /// Whether the client must have shown one.
    pub(crate) mode: ClientCertificateNeed,
    /// The names of the client authorities that may vouch for it. Left out, those of the host.
    #[serde(default)]
    pub(crate) authorities: Vec<String>,
    /// Alternative names of which it must have one: `"dns:…"`, `"uri:…"`, `"email:…"` or `"ip:…"`. The common name is not
    /// looked at.
    #[serde(default)]
    pub(crate) names: Vec<String>,
    /// SHA-256 of certificates that are let in, in hexadecimal, beside those with one of the names.
    #[serde(default)]
    pub(crate) fingerprints: Vec<String>,
    /// The host, with its port unless that is 443, where the handshake asks for a certificate: GET and HEAD without one
    /// are redirected there (307), all else gets 403 with the name of this host. The route must be for it, too.
    #[serde(default)]
    pub(crate) step_up: Option<String>,
    /// What the service is told of it (RFC 9440).
    #[serde(default, with = "As::<ClientCertificateForward>")]
    pub(crate) forward: ClientCertificateForward,
}
