//! Listeners as written.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use cardea_gateway::model::Prefix;
use cardea_tls::{MinVersion, ServerTlsConfig};

use super::super::{
    form::{As, FileMode},
    sections::{ClientCertificateMode, ProxyProtocolVersion, Tickets},
    text::BindAddress,
};

/// An address to listen on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawListener {
    /// Its name, in logs and metrics.
    #[schemars(extend("format" = "cardea-name"))]
    pub(crate) name: String,
    /// An IP address and a port (`"0.0.0.0:8443"`, `"[::]:8443"`; port 0 takes any free one), or a Unix socket
    /// (`"unix:/run/cardea/http.sock"`).
    #[serde(with = "As::<BindAddress>")]
    pub(crate) address: BindAddress,
    /// The permissions of a Unix socket, in octal. Left out, the socket is open to its owner and group: `"0660"`.
    #[serde(default, with = "As::<Option<FileMode>>")]
    pub(crate) mode: Option<u32>,
    /// Answers every request with a redirect (308) to the same URL under https: `true` for port 443, or the port.
    #[serde(default)]
    pub(crate) redirect_to_https: Option<RawRedirectToHttps>,
    /// Whether connections begin with the PROXY protocol, before TLS. TCP connections from elsewhere than
    /// `proxy_protocol_from` are closed at once and counted (`cardea_proxy_peers_refused_total`), health checks of a load
    /// balancer without a header too: give those a listener of their own.
    #[serde(default)]
    pub(crate) proxy_protocol: ProxyProtocolVersion,
    /// Who may speak the PROXY protocol. Left out, the trusted proxies.
    #[serde(default, with = "As::<Vec<Prefix>>")]
    pub(crate) proxy_protocol_from: Vec<Prefix>,
    /// Whether HTTP/2 is offered beside HTTP/1.1 (by ALPN, so with TLS only).
    #[serde(default = "yes")]
    pub(crate) http2: bool,
    /// TLS. Left out, the listener speaks plain HTTP.
    #[serde(default)]
    pub(crate) tls: Option<RawListenerTls>,
}

fn yes() -> bool {
    true
}

/// Redirects to https: whether, or to which port.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum RawRedirectToHttps {
    /// To port 443, or not.
    Switch(bool),
    /// To this port.
    Port(#[schemars(range(min = 1, max = 65535))] u16),
}

/// TLS of a listener.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawListenerTls {
    /// The oldest version that is spoken.
    #[serde(default, with = "As::<MinVersion>")]
    pub(crate) min_version: MinVersion,
    /// How many sessions are kept for resumption.
    #[serde(default = "sessions_max")]
    #[schemars(range(min = 0, max = 10_000_000))]
    pub(crate) sessions_max: usize,
    /// How long a session can be resumed.
    #[serde(default = "session_lifetime", with = "As::<Duration>")]
    #[schemars(extend("x-minimum" = "1m", "x-maximum" = "7d"))]
    pub(crate) session_lifetime: Duration,
    /// What a ticket for resuming a session is. A stateful one names a session that this node remembers; in TLS 1.3 it is good
    /// for one use. A stateless one carries the session, sealed under keys that this process makes and changes each hour, or
    /// that follow from `ticket_secret`; it takes no memory, and can be used again for up to an hour longer than the
    /// lifetime. Hosts that ask for client certificates have stateful ones always. Left out, `"stateless"` where there
    /// is a `ticket_secret`, else `"stateful"`.
    #[serde(default)]
    pub(crate) tickets: Option<Tickets>,
    /// A file with a secret that all nodes of a fleet share: each then resumes what any of them began. Made by
    /// `echo "$(date +%s) $(openssl rand -hex 32)"`. Each hour the secret in the
    /// file is replaced by one that follows from it and opens no expired ticket, so each node needs a copy that the
    /// service may replace. Left out, the keys of stateless tickets are made by the process, and end with it.
    #[serde(default)]
    pub(crate) ticket_secret: Option<String>,
    /// Whether sessions of TLS 1.2 get stateless tickets, too: whoever has the keys can read what was recorded of such
    /// sessions, which TLS 1.3 prevents. Otherwise they are remembered by this node, and resumed by their ids.
    #[serde(default)]
    pub(crate) tls12_tickets: bool,
    /// Whether a client that resumes a session by TLS 1.3 may send up to 16 KiB before the handshake is done (0-RTT). It is let in
    /// once, since a stateful ticket is good for one use; what is sent again by whoever has recorded it is dropped. Requests
    /// wait for the handshake all the same but on routes with `early_data`. Hosts that ask for client certificates take none.
    #[serde(default)]
    pub(crate) early_data: bool,
    /// Whether clients are asked for certificates in the handshake, where a certificate's table says nothing else:
    /// `"request"` lets in those without one, `"require"` nobody. One that does not hold is refused either way. Hosts
    /// that ask in different ways never share a connection.
    #[serde(default)]
    pub(crate) client_certificate: ClientCertificateMode,
    /// The names of the client authorities that may vouch for them.
    #[serde(default)]
    pub(crate) client_authorities: Vec<String>,
    /// The certificates. A client gets the one for the name it asks for, the first where it names none.
    #[schemars(length(min = 1))]
    #[schemars(extend("x-remedy" = "add a table [[listener.tls.certificate]] with chain and key"))]
    pub(crate) certificate: Vec<RawCertificate>,
}

fn sessions_max() -> usize {
    ServerTlsConfig::default().sessions_max
}

fn session_lifetime() -> Duration {
    ServerTlsConfig::default().session_lifetime
}

/// A certificate with its key: from two files, which are read again when they change, or from the authority of `[acme]`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawCertificate {
    /// A PEM file with the certificate, then those that lead to its root.
    #[serde(default)]
    pub(crate) chain: Option<String>,
    /// A PEM file with the private key.
    #[serde(default)]
    pub(crate) key: Option<String>,
    /// Whether it comes from the authority of `[acme]`, in place of files. Until the first one is there, handshakes for its
    /// hosts fail.
    #[serde(default)]
    pub(crate) acme: bool,
    /// The names that it is used for. Left out, those in the certificate; with `acme`, they must be named.
    #[serde(default)]
    pub(crate) hosts: Vec<String>,
    /// Certificates that share a trust domain may share connections: a request for a host of another domain than
    /// the connection's gets 421.
    #[serde(default = "trust_domain")]
    #[schemars(extend("format" = "cardea-name"))]
    pub(crate) trust_domain: String,
    /// What the certificate's authority says of it (OCSP), to be sent along in handshakes: `"fetch"` asks the responder that
    /// the certificate names, in time and over again; else a file in DER that somebody keeps up to date. Only what is signed,
    /// good and valid is sent. Left out, nothing is.
    #[serde(default)]
    pub(crate) ocsp_staple: Option<String>,
    /// In place of the listener's, for these hosts.
    #[serde(default)]
    pub(crate) client_certificate: Option<ClientCertificateMode>,
    /// In place of the listener's, for these hosts.
    #[serde(default)]
    pub(crate) client_authorities: Option<Vec<String>>,
}

fn trust_domain() -> String {
    "default".to_owned()
}
