//! The written form: the shape of the files and nothing else. The documentation of these types is the reference of the
//! configuration, and files are checked against their schema.

mod acme;
mod admission;
mod client_certificate;
mod failover;
mod health_check;
mod identity;
mod limits;
mod listener;
mod route;
mod rules;
mod service;
mod tarpit;
mod throttle;

use std::collections::BTreeMap;

use cardea_gateway::model::HeaderEncoding;
use cardea_upstream::Balance;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) use self::{
    acme::{RawAcme, RawExternalAccount},
    admission::{RawAdmission, RawRouteAdmission, RawServiceAdmission},
    client_certificate::{RawClientAuthority, RawClientCertificate, RawClientCertificateRule},
    failover::RawFailover,
    health_check::RawHealthCheck,
    identity::{RawAuthorizationServer, RawIssuer, RawPreset, RawSecret},
    limits::{RawLimits, RawTimeouts},
    listener::{RawCertificate, RawListener, RawListenerTls, RawRedirectToHttps},
    route::{
        RawAccessRequirement, RawAuth, RawHeaderCondition, RawMirror, RawRedirect, RawRespond, RawRoute,
        RawShare,
    },
    rules::{OneOrMany, RawAccessLog, RawAttribute, RawAttributeEdits, RawFieldEdits, RawPolicyRule},
    service::{RawEndpoint, RawRegionPosition, RawService},
    tarpit::RawTarpit,
    throttle::RawThrottle,
};
use super::{
    effect::Effect,
    form::As,
    sections::{Dns, Drain, ForwardingText, Log, Process, Readiness, TrustedProxies},
};

/// The configuration of Cardea, in TOML. Strings may refer to the environment: `${NAME}`, or `${NAME:-default}` if it
/// may be unset; `$$` stands for a dollar sign. Relative paths start from the folder of the file that contains them.
/// Durations are a whole number and a unit (`ms`, `s`, `m`, `h`, `d`), sizes likewise (`B`, `KB`, `KiB`, `MB`, `MiB`,
/// …).
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawConfig {
    /// Further files, relative to this one: `["conf.d/*.toml"]`. `*` and `?` are allowed in the last part of a path,
    /// and files are read in the order of their names. Tables are merged, lists are appended, and any other value must
    /// be set once. An included file includes no others, and is not empty.
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) include: Vec<String>,
    /// The region of this gateway. Endpoints in the same region are preferred.
    #[schemars(extend("format" = "cardea-name"))]
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) region: Option<String>,
    /// Where regions are. Those that are listed are ordered by their round trip.
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) region_position: Vec<RawRegionPosition>,
    /// How expressions and JSON logs decode non-ASCII bytes in header values: choose what the services do. The bytes
    /// are forwarded unchanged.
    #[serde(with = "As::<HeaderEncoding>")]
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) header_encoding: HeaderEncoding,
    #[schemars(extend("x-reload" = Effect::Restart))]
    pub(super) process: Process,
    #[schemars(extend("x-reload" = Effect::Restart))]
    pub(super) log: Log,
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) access_log: RawAccessLog,
    #[schemars(extend("x-reload" = Effect::Restart))]
    pub(super) admin: RawAdmin,
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) limits: RawLimits,
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) timeouts: RawTimeouts,
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) failover: RawFailover,
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) health_check: RawHealthCheck,
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) admission: RawAdmission,
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) tarpit: RawTarpit,
    /// How an endpoint of a region is chosen, where a service says nothing else.
    #[serde(with = "As::<Balance>")]
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) balance: Balance,
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) dns: Dns,
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) drain: Drain,
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) readiness: Readiness,
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) forwarding: ForwardingText,
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) trusted_proxies: TrustedProxies,
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) identity_headers: RawIdentityHeaders,
    #[schemars(extend("x-reload" = Effect::Refused))]
    pub(super) authorization_server: Option<RawAuthorizationServer>,
    #[schemars(extend("x-reload" = Effect::Refused))]
    pub(super) acme: Option<RawAcme>,
    /// The authorities of client certificates.
    #[schemars(extend("x-reload" = Effect::NewConnections))]
    pub(super) client_authority: Vec<RawClientAuthority>,
    /// Additional attributes of requests, besides those of docs/attributes.md.
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) attribute: Vec<RawAttribute>,
    /// The policy of all routes, evaluated before the route's own.
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    #[schemars(length(min = 1))]
    pub(super) policy: Vec<RawPolicyRule>,
    /// Changes to the header fields of every request before it is forwarded. Those of its route follow.
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) request_headers: OneOrMany<RawFieldEdits>,
    /// Changes to the header fields of every response before it is sent, including the gateway's own refusals. Those of
    /// its route follow.
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) response_headers: OneOrMany<RawFieldEdits>,
    /// Rate limits.
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    #[schemars(length(min = 1))]
    pub(super) throttle: Vec<RawThrottle>,
    /// Where the gateway listens; at least one.
    #[schemars(extend("x-reload" = Effect::NewConnections))]
    pub(super) listener: Vec<RawListener>,
    /// The trusted issuers of tokens.
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) issuer: Vec<RawIssuer>,
    /// A folder for the fetched keys of issuers, so that a restart does not depend on every issuer being reachable;
    /// `"off"` disables it. It is created for the gateway's user only, and used only if no other user may write to it.
    /// Default: `issuer-keys` beside the database, or beside this file if there is no database.
    #[schemars(extend("x-reload" = Effect::Restart))]
    pub(super) key_cache: Option<String>,
    /// The services that requests are forwarded to.
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) service: Vec<RawService>,
    /// The routes of requests. The most specific match wins, whatever the order: exact host, longest wildcard host, any
    /// host; then exact path, pattern, longest prefix; then more header conditions; then an expression; then a method.
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) route: Vec<RawRoute>,
}

/// The admin listener and the admin socket.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawAdmin {
    /// The address of metrics, health and readiness over HTTP. It is read only. `"off"` disables it. The default is
    /// reachable from this machine only.
    pub(super) address: String,
    /// The DNS names by which `address` may be requested, in addition to `localhost` and IP addresses: those that
    /// scrapers and health checks use. Requests for other names are answered 421, which prevents DNS rebinding by web
    /// pages.
    #[schemars(extend("x-reload" = Effect::AtOnce))]
    pub(super) hosts: Vec<String>,
    /// The Unix socket, with mode 0600, through which the command line makes changes. `"off"` disables it.
    pub(super) socket: String,
}

impl Default for RawAdmin {
    fn default() -> Self {
        Self {
            address: "127.0.0.1:9443".to_owned(),
            hosts: Vec::new(),
            socket: "/run/cardea/admin.sock".to_owned(),
        }
    }
}

/// The header fields that tell origins the identity of the caller. They are removed from every request on every route,
/// and set if the caller is known and has the claim.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawIdentityHeaders {
    /// The exact issuer of the token.
    pub(super) issuer: String,
    /// The subject, which is unique only together with its issuer.
    pub(super) subject: String,
    /// The client that the token was issued to.
    pub(super) client_id: String,
    /// The scopes, separated by spaces.
    pub(super) scopes: String,
    /// The roles, separated by commas.
    pub(super) roles: String,
    /// Further fields, each with its claim: `{ "x-auth-tenant" = "tid" }`.
    pub(super) extra: BTreeMap<String, String>,
}

impl Default for RawIdentityHeaders {
    fn default() -> Self {
        Self {
            issuer: "x-auth-issuer".to_owned(),
            subject: "x-auth-subject".to_owned(),
            client_id: "x-auth-client-id".to_owned(),
            scopes: "x-auth-scopes".to_owned(),
            roles: "x-auth-roles".to_owned(),
            extra: BTreeMap::new(),
        }
    }
}
