//! What the operator wrote: the shape of the files and nothing else. The documentation of these types is the
//! reference of the configuration, and their schema is what files are checked against.

mod acme;
mod client_certificate;
mod failover;
mod identity;
mod limits;
mod listener;
mod route;
mod rules;
mod service;
mod throttle;

use std::collections::BTreeMap;

use cardea_gateway::model::HeaderEncoding;
use cardea_upstream::Balance;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) use self::{
    acme::{RawAcme, RawExternalAccount},
    client_certificate::{RawClientAuthority, RawClientCertificate, RawClientCertificateRule},
    failover::RawFailover,
    identity::{RawAuthorizationServer, RawIssuer, RawPreset, RawSecret},
    limits::{RawLimits, RawTimeouts},
    listener::{RawCertificate, RawListener, RawListenerTls, RawRedirectToHttps},
    route::{RawAuth, RawDemand, RawHeaderCondition, RawRedirect, RawRespond, RawRoute},
    rules::{
        OneOrMany, RawAccessLog, RawAttribute, RawAttributeEdits, RawAttributeMap, RawFieldEdits,
        RawPolicyRule,
    },
    service::RawService,
    throttle::RawThrottle,
};
use super::{
    form::As,
    sections::{Drain, ForwardingText, Log, Process, Readiness, TrustedProxies},
};

/// The configuration of Cardea, in TOML. Texts may refer to the environment: `${NAME}`, or `${NAME:-default}`
/// where it may be unset; `$$` stands for a dollar sign. Relative paths start from the folder of the file that
/// names them. Durations are a whole number and a unit (`ms`, `s`, `m`, `h`, `d`), sizes likewise (`B`, `KB`,
/// `KiB`, `MB`, `MiB`, …).
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawConfig {
    /// Further files, relative to this one: `["conf.d/*.toml"]`. `*` and `?` stand in the last part of a path, and
    /// files are read in the order of their names. Tables merge, lists append, and any other value must be set
    /// once. An included file includes no others.
    pub(super) include: Vec<String>,
    /// The region where this gateway stands. Endpoints in it are preferred.
    #[schemars(extend("format" = "cardea-name"))]
    pub(super) region: Option<String>,
    /// How expressions and JSON logs read bytes in the values of headers that are not ASCII: as the services behind do.
    /// They are forwarded, and written into headers, as they came.
    #[serde(with = "As::<HeaderEncoding>")]
    pub(super) header_encoding: HeaderEncoding,
    pub(super) process: Process,
    pub(super) log: Log,
    pub(super) access_log: RawAccessLog,
    pub(super) admin: RawAdmin,
    pub(super) limits: RawLimits,
    pub(super) timeouts: RawTimeouts,
    pub(super) failover: RawFailover,
    /// How an endpoint of a region is chosen, where a service says nothing else.
    #[serde(with = "As::<Balance>")]
    pub(super) balance: Balance,
    pub(super) drain: Drain,
    pub(super) readiness: Readiness,
    pub(super) forwarding: ForwardingText,
    pub(super) trusted_proxies: TrustedProxies,
    pub(super) identity_headers: RawIdentityHeaders,
    pub(super) authorization_server: Option<RawAuthorizationServer>,
    pub(super) acme: Option<RawAcme>,
    /// Who vouches for clients that show certificates.
    pub(super) client_authority: Vec<RawClientAuthority>,
    /// Attributes of requests that this configuration adds to those of docs/attributes.md.
    pub(super) attribute: Vec<RawAttribute>,
    /// Who may, on all routes: asked before the route's own policy.
    pub(super) policy: Vec<RawPolicyRule>,
    /// Changes to the fields of every request before it is forwarded. Those of its route come after them.
    pub(super) request_headers: OneOrMany<RawFieldEdits>,
    /// Changes to the fields of every response before it is sent, refusals of the gateway included. Those of its route
    /// come after them.
    pub(super) response_headers: OneOrMany<RawFieldEdits>,
    /// Rate limits.
    pub(super) throttle: Vec<RawThrottle>,
    /// Where the gateway listens; at least one.
    pub(super) listener: Vec<RawListener>,
    /// Whose tokens are believed.
    pub(super) issuer: Vec<RawIssuer>,
    /// A folder in which the keys of issuers are kept once they were fetched, so that a restart does not depend on each
    /// issuer being reachable; `"off"`: none. It is made, for the gateway's user alone, and is believed only where nobody
    /// else may write to it. Left out, `issuer-keys` beside the database, or beside this file where there is no database.
    pub(super) key_cache: Option<String>,
    /// What requests are forwarded to.
    pub(super) service: Vec<RawService>,
    /// Which requests go where, and who may make them. The most specific match wins, whatever the order: exact
    /// host, longest wildcard host, any host; then exact path, pattern, longest prefix; then more header
    /// conditions; then an expression; then a method.
    pub(super) route: Vec<RawRoute>,
}

/// The operator's side doors.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawAdmin {
    /// Where metrics, health and readiness are read over HTTP; nothing can be changed there. `"off"` closes it.
    /// The default is reachable from this machine alone.
    pub(super) address: String,
    /// The DNS names by which `address` may be asked, beside `localhost` and IP addresses: those that scrapers and checks of
    /// health use. Requests for any other name are answered 421, so that no web page can lead a name of its own here (DNS
    /// rebinding).
    pub(super) hosts: Vec<String>,
    /// The Unix socket, of mode 0600, through which the command line changes things. `"off"` closes it.
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

/// The fields in which origins are told who calls. They are removed from every request on every route, then set
/// where the caller is known and has the claim.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawIdentityHeaders {
    /// The issuer of the token, exactly.
    pub(super) issuer: String,
    /// The subject, which means nothing without its issuer.
    pub(super) subject: String,
    /// The client that the token was issued to.
    pub(super) client_id: String,
    /// The scopes, separated by spaces.
    pub(super) scopes: String,
    /// The roles, separated by commas.
    pub(super) roles: String,
    /// Further fields, each with the claim that it carries: `{ "x-auth-tenant" = "tid" }`.
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
