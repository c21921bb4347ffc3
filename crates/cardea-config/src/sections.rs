//! Sections and values whose written form needs no resolution: the schema contains all of their checks.

mod acme;
mod client_certificate;
mod dns;
mod readiness;

use std::time::Duration;

use cardea_clock::PERIOD_DEFAULT;
use cardea_env::Network;
use cardea_http::{ForwardedHeader, ForwardedPolicy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::acme::ChallengeKind;
pub use self::client_certificate::{ClientCertificateMode, ClientCertificateNeed};
pub use self::dns::Dns;
pub use self::readiness::{Need, Readiness};
use super::{
    effect::Effect,
    form::{As, Threads},
};

/// The process: its user, and the processors that it uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Process {
    /// The user to switch to after the sockets are bound, if the program is started as root. Default: no switch.
    pub user: Option<String>,
    /// The group to switch to with `user`. Default: the user's own.
    pub group: Option<String>,
    /// The number of worker threads. `"auto"` uses the number of available processors: the CPU affinity and the quota
    /// of the control group.
    #[serde(with = "As::<Threads<1024>>")]
    pub workers: usize,
    /// Allows other processes of the same user to read this process's memory, and the kernel to write core dumps, as
    /// debuggers need it. The memory contains private keys and secrets. Off, only root can.
    pub danger_dumpable: bool,
    /// How often the clock is read. Token checks use the last value read, so a token may be accepted for this much
    /// longer.
    #[serde(with = "As::<Duration>")]
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "500ms"))]
    pub clock_period: Duration,
}

impl Default for Process {
    fn default() -> Self {
        Self { user: None, group: None, workers: 0, danger_dumpable: false, clock_period: PERIOD_DEFAULT }
    }
}

/// The program's own log messages, on standard error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// The lowest severity that is written.
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub level: LogLevel,
    /// The format of messages.
    pub format: LogFormat,
}

/// The severity of log messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum LogLevel {
    /// A requested operation failed.
    Error,
    /// An operator should investigate.
    Warn,
    /// Starts, reloads, changes of health.
    #[default]
    Info,
    /// Decisions about connections and requests.
    Debug,
    /// Everything; too much for production.
    Trace,
}

/// The format of log messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum LogFormat {
    /// Readable lines.
    #[default]
    Text,
    /// One JSON object per line, for log collectors.
    Json,
}

/// The syslog facility of access-log lines (RFC 5424 §6.2.1).
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

/// The shutdown of the process (SIGTERM): readiness fails, new connections are accepted for `delay`, and running
/// requests are finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Drain {
    /// How long new connections are still accepted, so that load balancers notice the failing readiness. The default is
    /// two probes at intervals of five seconds.
    #[serde(with = "As::<Duration>")]
    #[schemars(extend("x-maximum" = "10m"))]
    pub delay: Duration,
    /// When remaining requests are aborted, counted from the signal. Must be above `delay`. The default is below the 90
    /// s after which systemd kills the process.
    #[serde(with = "As::<Duration>")]
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "1d"))]
    pub deadline: Duration,
}

impl Default for Drain {
    fn default() -> Self {
        Self { delay: Duration::from_secs(10), deadline: Duration::from_secs(60) }
    }
}

/// The fields that tell origins about the client of a request, and clients about the path of a response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ForwardingText {
    /// The pseudonym in `Via` fields (RFC 9110 §7.6.3).
    #[schemars(extend("format" = "cardea-name"))]
    pub via: String,
    /// The handling of the fields that name the client.
    #[serde(with = "As::<ForwardedPolicy>")]
    pub forwarded: ForwardedPolicy,
    /// Which fields name the client. Those of the other kind are removed, because an origin that reads them would trust
    /// values from clients.
    #[serde(with = "As::<ForwardedHeader>")]
    pub header: ForwardedHeader,
    /// Client header fields that are forwarded although they are hints that only a trusted proxy may set
    /// (docs/headers.md lists them): `["X-HTTP-Method-Override"]`. The default is none, because services act on them
    /// without checks.
    pub keep_client_headers: Vec<String>,
    /// Whether `Authorization` is forwarded on routes that require a token. By default it is, as RFC 9110 §11.6.2
    /// allows and as services need that verify tokens themselves. `false` withholds tokens from services.
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
    /// The address prefixes of trusted proxies. A request's source address is the rightmost one in `Forwarded` or
    /// `X-Forwarded-For` outside these prefixes. It is not known if an element to its right cannot be read
    /// ([headers.md](headers.md#the-source-address)). They are also the default peers of the PROXY protocol.
    #[serde(with = "As::<Vec<Network>>")]
    pub prefixes: Vec<Network>,
}

/// The PROXY protocol before TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum ProxyProtocolVersion {
    /// Disabled.
    #[default]
    Off,
    /// Version 1, the text form.
    V1,
    /// Version 2, the binary form.
    V2,
    /// Either version.
    Any,
}

/// The kind of TLS session tickets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Tickets {
    /// The ticket refers to a session that this node stores.
    Stateful,
    /// The ticket contains the encrypted session.
    Stateless,
}

/// The token format of Microsoft Entra ID.
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

/// Path characters that a route must allow explicitly, because origins interpret them in two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum EncodedPathByte {
    /// An encoded slash.
    #[serde(rename = "%2F")]
    Slash,
    /// An encoded backslash.
    #[serde(rename = "%5C")]
    EncodedBackslash,
    /// A literal backslash.
    #[serde(rename = "\\")]
    Backslash,
    /// Path parameters (`/admin;x/users`, also as `%3B`), which some origins remove. They are refused if the path
    /// without them belongs to another route, and if a policy, a condition or a change to attributes or headers reads
    /// the path.
    #[serde(rename = ";")]
    Parameters,
}
