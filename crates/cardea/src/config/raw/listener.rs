//! Listeners as written.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::{
    sections::{ClientCertificateMode, ProxyProtocol, Tickets, TlsVersion},
    text::{BindAddress, DurationText, IpPrefix, OptionalFileModeText},
};

/// An address to listen on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct RawListener {
    /// Its name, in logs and metrics.
    #[schemars(extend("format" = "cardea-name"))]
    pub(in crate::config) name: String,
    /// An IP address and a port (`"0.0.0.0:8443"`, `"[::]:8443"`; port 0 takes any free one), or a Unix socket
    /// (`"unix:/run/cardea/http.sock"`).
    pub(in crate::config) address: BindAddress,
    /// The permissions of a Unix socket, in octal. Left out, the socket is open to its owner and group: `"0660"`.
    #[serde(default, with = "OptionalFileModeText")]
    pub(in crate::config) mode: Option<u32>,
    /// Answers every request with a redirect (308) to the same URL under https: `true` for port 443, or the port.
    #[serde(default)]
    pub(in crate::config) redirect_to_https: Option<RawRedirectToHttps>,
    /// Whether connections begin with the PROXY protocol, before TLS. TCP connections from elsewhere than
    /// `proxy_protocol_from` are closed at once and counted (`cardea_proxy_peers_refused_total`), health checks of a load
    /// balancer without a header too: give those a listener of their own.
    #[serde(default)]
    pub(in crate::config) proxy_protocol: ProxyProtocol,
    /// Who may speak the PROXY protocol. Left out, the trusted proxies.
    #[serde(default)]
    pub(in crate::config) proxy_protocol_from: Vec<IpPrefix>,
    /// Whether HTTP/2 is offered beside HTTP/1.1 (by ALPN, so with TLS only).
    #[serde(default = "yes")]
    pub(in crate::config) http2: bool,
    /// TLS. Left out, the listener speaks plain HTTP.
    #[serde(default)]
    pub(in crate::config) tls: Option<RawListenerTls>,
}

fn yes() -> bool {
    true
}

/// Redirects to https: whether, or to which port.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(in crate::config) enum RawRedirectToHttps {
    /// To port 443, or not.
    Switch(bool),
    /// To this port.
    Port(#[schemars(range(min = 1, max = 65535))] u16),
}

/// TLS of a listener.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct RawListenerTls {
    /// The oldest version that is spoken.
    #[serde(default)]
    pub(in crate::config) min_version: TlsVersion,
    /// How many sessions are kept for resumption.
    #[serde(default = "sessions_max")]
    #[schemars(range(min = 0, max = 10_000_000))]
    pub(in crate::config) sessions_max: u32,
    /// How long a session can be resumed.
    #[serde(default = "session_lifetime", with = "DurationText")]
    #[schemars(extend("x-minimum" = "1m", "x-maximum" = "7d"))]
    pub(in crate::config) session_lifetime: Duration,
    /// What a ticket for resuming a session is. A stateful one names a session that this node remembers; in TLS 1.3 it is good
    /// for one use. A stateless one carries the session, sealed under keys that this process makes and changes each hour, or
    /// that follow from `ticket_secret`; it takes no memory, and can be used again for up to an hour longer than the
    /// lifetime. Hosts that ask for client certificates have stateful ones always. Left out, `"stateless"` where there
    /// is a `ticket_secret`, else `"stateful"`.
    #[serde(default)]
    pub(in crate::config) tickets: Option<Tickets>,
    /// A file with a secret that all nodes of a fleet share: each then resumes what any of them began. Made by
    /// `echo "$(date +%s) $(openssl rand -hex 32)"`. Each hour the secret in the
    /// file is replaced by one that follows from it and opens no expired ticket, so each node needs a copy that the
    /// service may replace. Left out, the keys of stateless tickets are made by the process, and end with it.
    #[serde(default)]
    pub(in crate::config) ticket_secret: Option<String>,
    /// Whether sessions of TLS 1.2 get stateless tickets, too: whoever has the keys can read what was recorded of such
    /// sessions, which TLS 1.3 prevents. Otherwise they are remembered by this node, and resumed by their ids.
    #[serde(default)]
    pub(in crate::config) tls12_tickets: bool,
    /// Whether a client that resumes a session by TLS 1.3 may send up to 16 KiB before the handshake is done (0-RTT). It is let in
    /// once, since a stateful ticket is good for one use; what is sent again by whoever has recorded it is dropped. Requests
    /// wait for the handshake all the same but on routes with `early_data`. Hosts that ask for client certificates take none.
    #[serde(default)]
    pub(in crate::config) early_data: bool,
    /// Whether clients are asked for certificates in the handshake, where a certificate's table says nothing else:
    /// `"request"` lets in those without one, `"require"` nobody. One that does not hold is refused either way. Hosts
    /// that ask in different ways never share a connection.
    #[serde(default)]
    pub(in crate::config) client_certificate: ClientCertificateMode,
    /// The names of the client authorities that may vouch for them.
    #[serde(default)]
    pub(in crate::config) client_authorities: Vec<String>,
    /// The certificates. A client gets the one for the name it asks for, the first where it names none.
    #[schemars(length(min = 1))]
    #[schemars(extend("x-remedy" = "add a table [[listener.tls.certificate]] with chain and key"))]
    pub(in crate::config) certificate: Vec<RawCertificate>,
}

fn sessions_max() -> u32 {
    20_000
}

fn session_lifetime() -> Duration {
    Duration::from_secs(12 * 3_600)
}

/// A certificate with its key: from two files, which are read again when they change, or from the authority of `[acme]`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct RawCertificate {
    /// A PEM file with the certificate, then those that lead to its root.
    #[serde(default)]
    pub(in crate::config) chain: Option<String>,
    /// A PEM file with the private key.
    #[serde(default)]
    pub(in crate::config) key: Option<String>,
    /// Whether it comes from the authority of `[acme]`, in place of files. Until the first one is there, handshakes for its
    /// hosts fail.
    #[serde(default)]
    pub(in crate::config) acme: bool,
    /// The names that it is used for. Left out, those in the certificate; with `acme`, they must be named.
    #[serde(default)]
    pub(in crate::config) hosts: Vec<String>,
    /// Certificates that share a trust domain may share connections: a request for a host of another domain than
    /// the connection's gets 421.
    #[serde(default = "trust_domain")]
    #[schemars(extend("format" = "cardea-name"))]
    pub(in crate::config) trust_domain: String,
    /// What the certificate's authority says of it (OCSP), to be sent along in handshakes: `"fetch"` asks the responder that
    /// the certificate names, in time and over again; else a file in DER that somebody keeps up to date. Only what is signed,
    /// good and valid is sent. Left out, nothing is.
    #[serde(default)]
    pub(in crate::config) ocsp_staple: Option<String>,
    /// In place of the listener's, for these hosts.
    #[serde(default)]
    pub(in crate::config) client_certificate: Option<ClientCertificateMode>,
    /// In place of the listener's, for these hosts.
    #[serde(default)]
    pub(in crate::config) client_authorities: Option<Vec<String>>,
}

fn trust_domain() -> String {
    "default".to_owned()
}
