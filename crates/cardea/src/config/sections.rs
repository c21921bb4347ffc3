//! The sections and values whose written form needs no resolving: they are used as they are read, since the
//! schema holds all that there is to check.

mod acme;
mod client_certificate;
mod readiness;
mod secrets;
mod threads;

use std::time::Duration;

use cardea_clock::PERIOD_DEFAULT;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use self::acme::{CertificateKey, ChallengeKind};
pub(crate) use self::client_certificate::{
    ClientCertificateForward, ClientCertificateMode, ClientCertificateNeed,
};
pub(crate) use self::readiness::{Need, Readiness};
pub(crate) use self::secrets::{ClientSecrets, HashThreads};
use self::threads::Threads;
use super::text::{DurationText, IpPrefix, SizeText};

/// The process: who it runs as, and how many processors it uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Process {
    /// The user to become after the sockets are bound, where the program is started as root. Left out, it stays
    /// who it is.
    pub(crate) user: Option<String>,
    /// The group to become with `user`. Left out, the user's own.
    pub(crate) group: Option<String>,
    /// How many threads carry traffic. `"auto"` counts the processors that the process may use: its affinity and
    /// its control group's quota.
    pub(crate) workers: Workers,
    /// Lets other processes of the same user read this one's memory and the kernel write it to a core dump, as debuggers need
    /// it. Private keys and secrets are in that memory. Off, nobody but root can.
    pub(crate) danger_dumpable: bool,
    /// How often the time is read from the system. Every check of a token reads what was read then; so much later it
    /// may expire.
    #[serde(with = "DurationText")]
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "500ms"))]
    pub(crate) clock_period: Duration,
}

impl Default for Process {
    fn default() -> Self {
        Self {
            user: None,
            group: None,
            workers: Workers::default(),
            danger_dumpable: false,
            clock_period: PERIOD_DEFAULT,
        }
    }
}

/// How many threads carry traffic: one for each processor that the process may use, or a number.
pub(crate) type Workers = Threads<1024>;

/// What the program says about itself, on standard error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Log {
    /// The least severe messages that are written.
    pub(crate) level: LogLevel,
    /// How messages are written.
    pub(crate) format: LogFormat,
}

/// The severity of log messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum LogLevel {
    /// Something that was asked for cannot be done.
    Error,
    /// Something that someone should look at.
    Warn,
    /// Starts, reloads, changes of health.
    #[default]
    Info,
    /// Decisions about connections and requests.
    Debug,
    /// Everything; too much for production.
    Trace,
}

/// How log messages are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object a line, for collectors.
    Json,
}

/// What a syslog server takes the access log for (RFC 5424 §6.2.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum SyslogFacility {
    User,
    Daemon,
    Local0,
    Local1,
    Local2,
    Local3,
    Local4,
    Local5,
    Local6,
    #[default]
    Local7,
}

/// Bounds on what clients and origins may make the process hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Limits {
    /// Client connections at a time, over all listeners. The default is what two processors serve without pain;
    /// the process's file descriptors must allow twice as many.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(crate) connections_max: u32,
    /// The same of one IPv4 address or one /64 of IPv6, trusted proxies excepted. Beyond it new connections are closed. Left
    /// out, half of `connections_max`: nobody takes every place, and many clients may stand behind one address. Where
    /// `connections_max` is reached all the same, the connections that have been idle for the longest are closed.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(crate) connections_per_prefix_max: Option<u32>,
    /// TLS handshakes under way, over all listeners. Beyond it the oldest gives way: a client that means it is done within
    /// a few round trips.
    #[schemars(range(min = 10, max = 10_000_000))]
    pub(crate) handshakes_max: u32,
    /// TLS handshakes under way of one IPv4 address or one /64 of IPv6, trusted proxies excepted. Beyond it new connections
    /// are closed. The default is half of the default for all: many clients may stand behind one address and come back
    /// at once.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(crate) handshakes_per_prefix_max: u32,
    /// New connections a second of one IPv4 address or one /64 of IPv6, trusted proxies excepted; as many may come at once.
    /// Beyond it they are closed. 0: any number, since many clients may stand behind one address.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(crate) new_connections_per_second_max: u32,
    /// The head of a request: its first line and fields. Larger ones get 431. The default has room for the
    /// largest cookies and tokens that browsers and identity providers make.
    #[serde(with = "SizeText")]
    #[schemars(extend("x-minimum" = "1KiB", "x-maximum" = "1MiB"))]
    pub(crate) head_bytes_max: u64,
    /// The target of a request: path and query. Longer ones get 414. The default is what RFC 9110 §4.1 asks for.
    #[serde(with = "SizeText")]
    #[schemars(extend("x-minimum" = "256B", "x-maximum" = "1MiB"))]
    pub(crate) target_bytes_max: u64,
    /// How many fields the head of a request may have. More get 431. The default is about three times what
    /// browsers behind two proxies send.
    #[schemars(range(min = 10, max = 256))]
    pub(crate) fields_max: u32,
    /// The head of an origin's response. Larger ones are answered with 502.
    #[serde(with = "SizeText")]
    #[schemars(extend("x-minimum" = "1KiB", "x-maximum" = "1MiB"))]
    pub(crate) response_head_bytes_max: u64,
    /// How many fields the head of an origin's response may have. More are answered with 502. The default is as many as can
    /// be held.
    #[schemars(range(min = 10, max = 256))]
    pub(crate) response_fields_max: u32,
    /// The body of a request, where the route says nothing else. Larger ones get 413. The default suits calls of
    /// programs and small uploads; a route that takes more says so.
    #[serde(with = "SizeText")]
    #[schemars(extend("x-maximum" = "1TiB"))]
    pub(crate) body_bytes_max: u64,
    /// How much of a request's body is kept to send it again to another endpoint. A body beyond it is sent once.
    #[serde(with = "SizeText")]
    #[schemars(extend("x-maximum" = "16MiB"))]
    pub(crate) replay_bytes_max: u64,
    /// What all requests together may keep for sending bodies again; beyond it bodies are sent once.
    #[serde(with = "SizeText")]
    #[schemars(extend("x-maximum" = "64GiB"))]
    pub(crate) replay_total_bytes_max: u64,
    /// What is held for all messages under way: what clients and origins have sent and the other side has not taken, heads that
    /// are not complete, and the heads of requests that wait for their response. Beyond it, what has stood still for the longest
    /// is given up (a reset, 503 where nothing was sent), and where that is not enough, requests to services get 503. Kept bodies
    /// (`replay_total_bytes_max`) and TLS sessions come on top.
    #[serde(with = "SizeText")]
    #[schemars(extend("x-minimum" = "4MiB", "x-maximum" = "1TiB"))]
    pub(crate) buffered_bytes_max: u64,
    /// Concurrent requests on one HTTP/2 connection. The default is the least that RFC 9113 §6.5.2 recommends.
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) http2_streams_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 20_000,
            connections_per_prefix_max: None,
            handshakes_max: 5_000,
            handshakes_per_prefix_max: 2_500,
            new_connections_per_second_max: 0,
            head_bytes_max: 32 << 10,
            target_bytes_max: 8 << 10,
            fields_max: 100,
            response_head_bytes_max: 64 << 10,
            response_fields_max: 256,
            body_bytes_max: 16 << 20,
            replay_bytes_max: 64 << 10,
            replay_total_bytes_max: 64 << 20,
            buffered_bytes_max: 512 << 20,
            http2_streams_max: 100,
        }
    }
}

/// How long the gateway waits, for clients and for origins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Timeouts {
    /// From the accepted connection to the end of the TLS handshake. The default lets a handshake over a bad
    /// mobile link with two retransmissions through.
    #[serde(with = "DurationText")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "5m"))]
    pub(crate) tls_handshake: Duration,
    /// From the first octet of a request to the end of its head; 408 after that. Slow heads are how slow clients
    /// hold a server.
    #[serde(with = "DurationText")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "5m"))]
    pub(crate) request_head: Duration,
    /// Between two pieces of a request's body; 408 after that.
    #[serde(with = "DurationText")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1h"))]
    pub(crate) request_body_idle: Duration,
    /// A kept-alive client connection without a request. The default is what browsers and libraries expect.
    #[serde(with = "DurationText")]
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "1d"))]
    pub(crate) keep_alive_idle: Duration,
    /// Connecting to an endpoint, with its TLS handshake. Must be below `request`, so that there is time left for
    /// another endpoint.
    #[serde(with = "DurationText")]
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1m"))]
    pub(crate) connect: Duration,
    /// From the sent request to the head of the response; 504 after that.
    #[serde(with = "DurationText")]
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
    pub(crate) response_head: Duration,
    /// Between two pieces of a response's body; the response is cut after that.
    #[serde(with = "DurationText")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1d"))]
    pub(crate) response_body_idle: Duration,
    /// A whole request, from its head to the last octet of the response; tunnels are exempt. Routes that carry
    /// large bodies or long streams say more.
    #[serde(with = "DurationText")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "7d"))]
    pub(crate) request: Duration,
    /// How long a WebSocket, a response or a request that is under way may go on after its token has expired. Then it
    /// ends, and can't be taken for whole.
    #[serde(with = "DurationText")]
    #[schemars(extend("x-maximum" = "1h"))]
    pub(crate) token_expiry_grace: Duration,
    /// A pooled connection to an endpoint without a request. Must be below what the endpoint itself keeps idle
    /// connections for; the default is below the 60 s and more of most servers.
    #[serde(with = "DurationText")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1h"))]
    pub(crate) upstream_keep_alive_idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            tls_handshake: Duration::from_secs(10),
            request_head: Duration::from_secs(10),
            request_body_idle: Duration::from_secs(30),
            keep_alive_idle: Duration::from_secs(75),
            connect: Duration::from_secs(3),
            response_head: Duration::from_secs(30),
            response_body_idle: Duration::from_secs(60),
            request: Duration::from_secs(300),
            token_expiry_grace: Duration::ZERO,
            upstream_keep_alive_idle: Duration::from_secs(50),
        }
    }
}

/// How the process ends (SIGTERM): it fails its readiness, goes on accepting for `delay`, then finishes what is
/// in flight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Drain {
    /// How long new connections are still accepted, so that load balancers notice the failing readiness. The
    /// default is two probes of five seconds.
    #[serde(with = "DurationText")]
    #[schemars(extend("x-maximum" = "10m"))]
    pub(crate) delay: Duration,
    /// When what is still in flight is reset, counted from the signal. Must be above `delay`. The default is
    /// below the 90 s after which systemd kills.
    #[serde(with = "DurationText")]
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "1d"))]
    pub(crate) deadline: Duration,
}

impl Default for Drain {
    fn default() -> Self {
        Self { delay: Duration::from_secs(10), deadline: Duration::from_secs(60) }
    }
}

/// What origins are told about the way of a request, and clients about that of a response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Forwarding {
    /// The pseudonym in `Via` fields (RFC 9110 §7.6.3).
    #[schemars(extend("format" = "cardea-name"))]
    pub(crate) via: String,
    /// What becomes of the fields that name the client.
    pub(crate) forwarded: ForwardedPolicy,
    /// Which fields name the client. Those of the other kind are removed, since whoever reads them would believe
    /// what a client wrote.
    pub(crate) header: ForwardedHeader,
    /// Fields of clients that are forwarded although they are hints which only a trusted proxy may give (docs/headers.md
    /// lists them): `["X-HTTP-Method-Override"]`. The default is none, since services act on them unchecked.
    pub(crate) keep_client_headers: Vec<String>,
    /// Whether `Authorization` is forwarded on routes that ask for a token. By default it is, as RFC 9110 §11.6.2 has it
    /// and as services need that verify tokens themselves; `false` keeps tokens from services that don't.
    pub(crate) authorization: bool,
}

impl Default for Forwarding {
    fn default() -> Self {
        Self {
            via: "cardea".to_owned(),
            forwarded: ForwardedPolicy::Set,
            header: ForwardedHeader::XForwarded,
            keep_client_headers: Vec::new(),
            authorization: true,
        }
    }
}

/// What becomes of the fields that name the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum ForwardedPolicy {
    /// Replaced by what the gateway knows: right for the outermost proxy.
    Set,
    /// The peer's address is appended to the addresses that came, whoever sent them: for origins that know which
    /// of them to believe.
    Append,
    /// Kept as they came, and what is missing is set: only where nobody but `trusted_proxies` that set them all
    /// can connect.
    #[schemars(extend("x-opens" = true))]
    Trust,
    /// Removed, and none are set.
    Off,
}

/// Which fields name the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(crate) enum ForwardedHeader {
    /// `X-Forwarded-For`, `-Proto` and `-Host`, which most origins read.
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// How bytes in the values of headers are read that are not ASCII.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) enum HeaderEncoding {
    /// As UTF-8, and as Latin-1 where they are not UTF-8.
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    /// As Latin-1, each byte a character.
    #[serde(rename = "latin-1")]
    Latin1,
}

/// Proxies in front of the gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TrustedProxies {
    /// Whose word on the client's address is believed: the address of a request's source is the rightmost one in
    /// `Forwarded` or `X-Forwarded-For` that is in none of these prefixes. Also whose PROXY protocol is believed,
    /// where a listener does not say.
    pub(crate) prefixes: Vec<IpPrefix>,
}

/// The PROXY protocol before TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum ProxyProtocol {
    /// Not spoken.
    #[default]
    Off,
    /// Version 1, the text form.
    V1,
    /// Version 2, the binary form.
    V2,
    /// Either.
    Any,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) enum TlsVersion {
    /// TLS 1.2, with forward secrecy and authenticated encryption only.
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    Tls13,
}

/// What a ticket for resuming a TLS session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Tickets {
    /// The name of a session that this node remembers.
    Stateful,
    /// The session itself, sealed.
    Stateless,
}

/// A signature algorithm of tokens (RFC 7518 §3.1, RFC 8037 §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[schemars(inline)]
pub(crate) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    Es512,
    #[serde(rename = "EdDSA")]
    EdDsa,
}

/// The algorithm that the authorization server signs with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) enum SigningAlgorithm {
    /// ECDSA on P-256: small and fast, and every client knows it.
    #[default]
    #[serde(rename = "ES256")]
    Es256,
    /// RSA of 2048 bits, for clients that know nothing else.
    #[serde(rename = "RS256")]
    Rs256,
    /// Ed25519.
    #[serde(rename = "EdDSA")]
    EdDsa,
}

/// Which of Microsoft Entra's two token formats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) enum EntraVersion {
    /// Tokens of `https://sts.windows.net/…/`.
    #[serde(rename = "1.0")]
    V1,
    /// Tokens of `https://login.microsoftonline.com/…/v2.0`.
    #[default]
    #[serde(rename = "2.0")]
    V2,
}

/// Where an issuer's tokens say what the caller may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ClaimNames {
    /// Claims with scopes, the first that is there counts; dots lead into objects. Text is split at spaces.
    #[schemars(length(min = 1))]
    pub(crate) scopes: Vec<String>,
    /// Claims with roles, the first that is there counts; dots lead into objects (`realm_access.roles`).
    #[schemars(length(min = 1))]
    pub(crate) roles: Vec<String>,
}

impl Default for ClaimNames {
    fn default() -> Self {
        Self { scopes: vec!["scope".to_owned(), "scp".to_owned()], roles: vec!["roles".to_owned()] }
    }
}

/// A built-in service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum Builtin {
    /// The authorization server's token endpoint.
    Token,
    /// Its key set.
    Jwks,
    /// Its metadata (RFC 8414).
    OauthMetadata,
    /// The same metadata where OpenID Connect clients look for it.
    OpenidConfiguration,
    /// Its authorization endpoint, which refuses.
    Authorize,
    /// Answers 200 while the process is up, 503 while it drains.
    Health,
}

impl Builtin {
    /// Whether it is a part of the authorization server.
    pub(crate) fn needs_authorization_server(self) -> bool {
        self != Self::Health
    }
}

/// What a path may carry only where a route says so, since origins read it in two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) enum EncodedPathByte {
    /// An encoded slash.
    #[serde(rename = "%2F")]
    Slash,
    /// An encoded backslash.
    #[serde(rename = "%5C")]
    EncodedBackslash,
    /// A backslash as it is.
    #[serde(rename = "\\")]
    Backslash,
    /// Path parameters (`/admin;x/users`, also as `%3B`), which some origins drop. They are refused where the path without
    /// them belongs to another route, and where a policy, a condition or a change to attributes or headers reads the path.
    #[serde(rename = ";")]
    Parameters,
}
