//! Client certificates as written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::sections::{ClientCertificateForward, ClientCertificateNeed};

/// A set of certificate authorities that vouch for clients. Its files are read again when they change, and connections
/// are held to them from their next request on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct RawClientAuthority {
    /// Its name, by which listeners and routes refer to it.
    #[schemars(extend("format" = "cardea-name"))]
    pub(in crate::config) name: String,
    /// A PEM file with the roots.
    pub(in crate::config) ca_file: String,
    /// PEM files with revocation lists. Where there are any, each certificate between a client's and its root must be
    /// covered by one that has not run out.
    #[serde(default)]
    pub(in crate::config) crl_files: Vec<String>,
}

/// What a route makes of client certificates.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(in crate::config) enum RawClientCertificate {
    /// Any that the host's authorities vouch for.
    Need(ClientCertificateNeed),
    /// These.
    Rule(RawClientCertificateRule),
}

/// What a route makes of client certificates. One that came must fit, whether it is needed or not.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct RawClientCertificateRule {
    /// Whether the client must have shown one.
    pub(in crate::config) mode: ClientCertificateNeed,
    /// The names of the client authorities that may vouch for it. Left out, those of the host.
    #[serde(default)]
    pub(in crate::config) authorities: Vec<String>,
    /// Alternative names of which it must have one: `"dns:…"`, `"uri:…"`, `"email:…"` or `"ip:…"`. The common name is not
    /// looked at.
    #[serde(default)]
    pub(in crate::config) names: Vec<String>,
    /// SHA-256 of certificates that are let in, in hexadecimal, beside those with one of the names.
    #[serde(default)]
    pub(in crate::config) fingerprints: Vec<String>,
    /// The host, with its port unless that is 443, where the handshake asks for a certificate: GET and HEAD without one
    /// are redirected there (307), all else gets 403 with the name of this host. The route must be for it, too.
    #[serde(default)]
    pub(in crate::config) step_up: Option<String>,
    /// What the service is told of it (RFC 9440).
    #[serde(default)]
    pub(in crate::config) forward: ClientCertificateForward,
}
