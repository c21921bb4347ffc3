//! The sections and values whose written form needs no resolving: they are used as they are read, since the
//! schema holds all that there is to check.

mod acme;
mod client_certificate;
mod readiness;

use std::time::Duration;

use cardea_clock::PERIOD_DEFAULT;
use cardea_gateway::model::Prefix;
use cardea_http::{ForwardedHeader, ForwardedPolicy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::acme::ChallengeKind;
pub use self::client_certificate::{ClientCertificateMode, ClientCertificateNeed};
pub use self::readiness::{Need, Readiness};
use super::form::{As, Threads};

/// The process: who it runs as, and how many processors it uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Process {
    /// The user to become after the sockets are bound, where the program is started as root. Left out, it stays
    /// who it is.
    pub user: Option<String>,
    /// The group to become with `user`. Left out, the user's own.
    pub group: Option<String>,
    /// How many threads carry traffic. `"auto"` counts the processors that the process may use: its affinity and
    /// its control group's quota.
    #[serde(with = "As::<Threads<1024>>")]
    pub workers: usize,
    /// Lets other processes of the same user read this one's memory and the kernel write it to a core dump, as debuggers need
    /// it. Private keys and secrets are in that memory. Off, nobody but root can.
    pub danger_dumpable: bool,
    /// How often the time is read from the system. Every check of a token reads what was read then; so much later it
    /// may expire.
    #[serde(with = "As::<Duration>")]
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "500ms"))]
    pub clock_period: Duration,
}

impl Default for Process {
    fn default() -> Self {
        Self { user: None, group: None, workers: 0, danger_dumpable: false, clock_period: PERIOD_DEFAULT }
    }
}

/// What the program says about itself, on standard error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// The least severe messages that are written.
    pub level: LogLevel,
    /// How messages are written.
    pub format: LogFormat,
}

/// The severity of log messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum LogLevel {
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
pub enum LogFormat {
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
#[expect(missing_docs, reason = "these are the names of RFC 5424")]
pub enum SyslogFacility {
    User = 1,
    Daemon = 3,
    Local0 = 16,
    Local1,
    Local2,
    Local3,
    Local4,
    Local5,
    Local6,
    #[default]
    Local7,
}

/// How the process ends (SIGTERM): it fails its readiness, goes on accepting for `delay`, then finishes what is
/// in flight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Drain {
    /// How long new connections are still accepted, so that load balancers notice the failing readiness. The
    /// default is two probes of five seconds.
    #[serde(with = "As::<Duration>")]
    #[schemars(extend("x-maximum" = "10m"))]
    pub delay: Duration,
    /// When what is still in flight is reset, counted from the signal. Must be above `delay`. The default is
    /// below the 90 s after which systemd kills.
    #[serde(with = "As::<Duration>")]
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "1d"))]
    pub deadline: Duration,
}

impl Default for Drain {
    fn default() -> Self {
        Self { delay: Duration::from_secs(10), deadline: Duration::from_secs(60) }
    }
}

/// What origins are told about the way of a request, and clients about that of a response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ForwardingText {
    /// The pseudonym in `Via` fields (RFC 9110 §7.6.3).
    #[schemars(extend("format" = "cardea-name"))]
    pub via: String,
    /// What becomes of the fields that name the client.
    #[serde(with = "As::<ForwardedPolicy>")]
    pub forwarded: ForwardedPolicy,
    /// Which fields name the client. Those of the other kind are removed, since whoever reads them would believe
    /// what a client wrote.
    #[serde(with = "As::<ForwardedHeader>")]
    pub header: ForwardedHeader,
    /// Fields of clients that are forwarded although they are hints which only a trusted proxy may give (docs/headers.md
    /// lists them): `["X-HTTP-Method-Override"]`. The default is none, since services act on them unchecked.
    pub keep_client_headers: Vec<String>,
    /// Whether `Authorization` is forwarded on routes that ask for a token. By default it is, as RFC 9110 §11.6.2 has it
    /// and as services need that verify tokens themselves; `false` keeps tokens from services that don't.
    pub authorization: bool,
}

impl Default for ForwardingText {
    fn default() -> Self {
        Self {
            via: "cardea".to_owned(),
            forwarded: ForwardedPolicy::default(),
            header: ForwardedHeader::default(),
            keep_client_headers: Vec::new(),
            authorization: true,
        }
    }
}

/// Proxies in front of the gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrustedProxies {
    /// Whose word on the client's address is believed: the address of a request's source is the rightmost one in
    /// `Forwarded` or `X-Forwarded-For` that is in none of these prefixes. Also whose PROXY protocol is believed,
    /// where a listener does not say.
    #[serde(with = "As::<Vec<Prefix>>")]
    pub prefixes: Vec<Prefix>,
}

/// The PROXY protocol before TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum ProxyProtocolVersion {
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

/// What a ticket for resuming a TLS session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Tickets {
    /// The name of a session that this node remembers.
    Stateful,
    /// The session itself, sealed.
    Stateless,
}

/// Which of Microsoft Entra's two token formats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum EntraVersion {
    /// Tokens of `https://sts.windows.net/…/`.
    #[serde(rename = "1.0")]
    V1,
    /// Tokens of `https://login.microsoftonline.com/…/v2.0`.
    #[default]
    #[serde(rename = "2.0")]
    V2,
}

/// What a path may carry only where a route says so, since origins read it in two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum EncodedPathByte {
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
