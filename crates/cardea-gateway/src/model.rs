//! The immutable snapshot of a configuration that a request is carried by.
//!
//! A reload builds a whole new [`Model`] and swaps the pointer; requests in flight keep the one that they began
//! with. What lives longer (endpoints' health, pools, key sets, counters) is in objects that the models share.

use std::{collections::HashMap, num::NonZeroU32, ops::Deref, sync::Arc, time::Duration};

use cardea_env::{Network, Template};
use cardea_http::{ForwardedHeader, ForwardedPolicy, HeaderNameSet, h1::HeadLimits};
use cardea_identity::{AccessRequirement, Authenticator};
use cardea_tls::{HostRequirements, ServerTls};
use cardea_upstream::{LiveService, Locality};

mod admission;
mod client_certificates;
mod handle;
mod mirror;
mod rules;
mod split;
mod tarpit;
mod throttles;

pub use self::admission::{
    AdaptiveModel, AdmissionModel, Learner, LimitModel, LimitScope, PriorityRule, RouteAdmission,
};
pub use self::client_certificates::{ClientCertificateForward, ClientCertificateRule};
pub use self::handle::ModelRef;
pub(crate) use self::handle::{Budgets, next_generation};
pub use self::mirror::{Mirror, MirrorOutcome, MirrorStats};
pub use self::rules::{
    AttributeChange, AttributeRule, EnvironmentModel, HeaderEncoding, HeaderRule, HeaderRules, HeadersRead,
    LogFormat, LogModel, RouteRules,
};
pub(crate) use self::split::ShareIndex;
pub use self::split::{SHARES_MAX, Share, Split, SplitError};
pub use self::tarpit::{TarpitAction, TarpitModel};
pub use self::throttles::{
    RouteThrottles, Throttle, ThrottleCost, ThrottleInFlight, ThrottleKey, ThrottleRate, ThrottleReport,
};
pub use crate::upstream::Protocol;
use crate::{
    builtin::BuiltIn,
    exchange::Exchange,
    metrics::{ListenerMetrics, RouteMetrics, ServiceMetrics},
    routing::Router,
    upstream::{Limits as UpstreamLimits, Offer, Pooled},
    warning_limit::WarningLimit,
};

/// One configuration, resolved.
#[derive(Debug)]
pub struct Model {
    /// Finds a route by authority, path, method and headers.
    pub router: Router<Arc<Route>>,
    /// The issuers that are trusted.
    pub authenticator: Arc<Authenticator>,
    /// The services, by name.
    pub services: Vec<Arc<Service>>,
    /// Listeners by their name.
    pub listeners: HashMap<String, Arc<ListenerModel>>,
    /// What the hosts in the listeners' certificates require of clients; nothing where `None`.
    pub requirements: Option<HostRequirements>,
    /// Bounds.
    pub limits: Limits,
    /// Time limits of connections.
    pub timeouts: ConnectionTimeouts,
    /// Who is believed about addresses.
    pub trusted_proxies: Vec<Network>,
    /// What services are told of the way of a request.
    pub forwarding: Forwarding,
    /// The headers that carry the caller's identity to services.
    pub identity_headers: IdentityHeaders,
    /// Where this gateway stands; endpoints of this region are preferred.
    pub region: Option<String>,
    /// Where it stands, and how far regions are. Round trips survive a reload.
    pub locality: Arc<Locality>,
    /// How access is logged; not at all where `None`.
    pub access_log: Option<LogModel>,
    /// What holds for requests on all routes.
    pub environment: EnvironmentModel,
    /// The limits on what requests may use.
    pub throttles: Vec<Throttle>,
    /// The limits on requests in flight.
    pub admission: AdmissionModel,
    /// What becomes of the refusals of those who offend again and again; nothing where `None`.
    pub tarpit: Option<TarpitModel>,
}

impl Model {
    /// Whether a rule of any route reads the time. Looks at all routes.
    pub(crate) fn reads_time(&self) -> bool {
        self.environment.reads_time || self.router.values().any(|route| route.rules.reads_time)
    }

    /// The mirrors, with the names of their routes. Looks at all routes.
    pub fn mirrors(&self) -> impl Iterator<Item = (&str, &Mirror)> {
        self.router.values().filter_map(|route| Some((route.name.as_str(), &**route.mirror.as_ref()?)))
    }
}

/// What a listener needs for each connection.
#[derive(Debug)]
pub struct ListenerModel {
    /// Its name in the configuration.
    pub name: String,
    /// Terminates TLS where present.
    pub tls: Option<Arc<ServerTls>>,
    /// Whose PROXY protocol header is expected and believed; all others are refused.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Answers every request with a redirect to HTTPS on this port.
    pub redirect_to_https: Option<u16>,
    /// Whether clients may begin with HTTP/2 without TLS (RFC 9113 §3.3).
    pub h2c: bool,
    /// What is counted for this listener, in all models that have it.
    pub metrics: Arc<ListenerMetrics>,
}

/// PROXY protocol on a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyProtocol {
    /// Peers that must begin with a header. Others are closed; those of a Unix socket are trusted.
    pub trusted: Vec<Network>,
    /// Version 1 is accepted.
    pub v1: bool,
    /// Version 2 is accepted.
    pub v2: bool,
}

/// Bounds of the process and of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Of request heads.
    pub head: HeadLimits,
    /// Of response heads.
    pub response_head: HeadLimits,
    /// Request bodies are kept up to this size for a second attempt, in bytes.
    pub replay_bytes_max: usize,
    /// All kept request bodies together, in bytes.
    pub replay_total_bytes_max: usize,
    /// All copies of requests for mirrors together, in bytes.
    pub mirror_total_bytes_max: usize,
    /// What is held for messages under way, in bytes; beyond it connections end that hold the most for the longest.
    pub buffered_bytes_max: usize,
    /// The part of the descriptors and of the memory that may be in use before anything is given up, in percent; 100 switches it off.
    pub pressure_percent: u32,
    /// Concurrent streams of an HTTP/2 connection.
    pub http2_streams_max: u32,
    /// Concurrent connections of all listeners.
    pub connections_max: usize,
    /// The same of one IPv4 address or /64 of IPv6; beyond it new ones are closed. Half of `connections_max` where `None`.
    pub connections_per_prefix_max: Option<u32>,
    /// TLS handshakes under way; beyond it the oldest gives way.
    pub handshakes_max: usize,
    /// The same of one IPv4 address or /64 of IPv6; beyond it new ones are closed.
    pub handshakes_per_prefix_max: u32,
    /// New connections a second of one IPv4 address or /64 of IPv6, after a burst of as many; no bound where `None`.
    pub new_connections_per_second_max: Option<NonZeroU32>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: HeadLimits::default(),
            response_head: HeadLimits { head_bytes_max: 64 << 10, fields_max: 256, ..HeadLimits::default() },
            replay_bytes_max: 64 << 10,
            replay_total_bytes_max: 64 << 20,
            mirror_total_bytes_max: 16 << 20,
            buffered_bytes_max: 512 << 20,
            // Below it, what is idle costs nothing that anybody else needs.
            pressure_percent: 85,
            http2_streams_max: 100,
            connections_max: 20_000,
            connections_per_prefix_max: None,
            handshakes_max: 5_000,
            handshakes_per_prefix_max: 2_500,
            new_connections_per_second_max: None,
        }
    }
}

impl Limits {
    /// Concurrent connections of one IPv4 address or /64 of IPv6.
    #[must_use]
    pub fn connections_per_prefix(&self) -> u32 {
        let half = u32::try_from(self.connections_max / 2).unwrap_or(u32::MAX);
        self.connections_per_prefix_max.unwrap_or(half).max(1)
    }
}

/// Time limits of a client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionTimeouts {
    /// For the PROXY header, where one is expected, and then for the TLS handshake.
    pub tls_handshake: Duration,
    /// From the first byte of a request to the end of its head.
    pub request_head: Duration,
    /// Between two requests.
    pub keep_alive_idle: Duration,
    /// A client that TCP hears nothing from, or that takes nothing. For whoever binds the sockets.
    pub client_unreachable: Duration,
}

impl Default for ConnectionTimeouts {
    fn default() -> Self {
        Self {
            tls_handshake: Duration::from_secs(10),
            request_head: Duration::from_secs(10),
            keep_alive_idle: Duration::from_secs(75),
            client_unreachable: Duration::from_secs(120),
        }
    }
}

/// How long a response may stand still where no route says otherwise.
pub(crate) const RESPONSE_BODY_IDLE: Duration = Duration::from_secs(60);

/// Time limits of an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// Between two parts of the request's body.
    pub request_body_idle: Duration,
    /// To a connected (and, with TLS, authenticated) service. Always below `request`.
    pub connect: Duration,
    /// From the end of the request to the head of the response.
    pub response_head: Duration,
    /// Between two parts of the response's body, from the service or to the client.
    pub response_body_idle: Duration,
    /// The whole exchange; none where `None`.
    pub request: Option<Duration>,
    /// Bytes per second that the request's body has at least while the client is waited for; any where 0.
    pub request_body_rate_min: u32,
    /// Bytes per second of the response's body that the client has to take; any where 0.
    pub response_body_rate_min: u32,
    /// The time in which both are measured.
    pub body_rate_window: Duration,
    /// How long a stream may go on after its token has expired.
    pub token_expiry_grace: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            request_body_idle: Duration::from_secs(30),
            connect: Duration::from_secs(3),
            response_head: Duration::from_secs(30),
            response_body_idle: RESPONSE_BODY_IDLE,
            request: Some(Duration::from_secs(300)),
            // Streams that say little for long are common; who has none sets a rate.
            request_body_rate_min: 0,
            response_body_rate_min: 0,
            body_rate_window: Duration::from_secs(10),
            token_expiry_grace: Duration::ZERO,
        }
    }
}

/// What services are told of the way of a request.
#[derive(Debug, Clone)]
pub struct Forwarding {
    /// The pseudonym in `Via` (RFC 9110 §7.6.3).
    pub via: String,
    /// Whether `Forwarded`/`X-Forwarded-*` are set, appended to, trusted or left out.
    pub policy: ForwardedPolicy,
    /// Which of the two kinds.
    pub header: ForwardedHeader,
    /// What is removed from a request that comes from no trusted proxy: [`IdentityHeaders::names`], and the
    /// [`hints`](crate::hints::hints) that are not kept.
    pub strangers: HeaderNameSet,
}

/// The headers that carry the caller's identity to services.
#[derive(Debug, Clone, Default)]
pub struct IdentityHeaders {
    /// All names, of [`own_headers`](crate::client_certificate::own_headers): stripped from every request on every route,
    /// whatever its spelling, before anything reads it.
    pub names: HeaderNameSet,
    /// What is set for a caller that is known.
    pub fields: Vec<(String, IdentityField)>,
}

/// What an identity header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityField {
    /// The issuer, `iss`.
    Issuer,
    /// The subject, `sub`.
    Subject,
    /// The client's id.
    ClientId,
    /// The scopes, separated by spaces.
    Scopes,
    /// The roles, separated by commas.
    Roles,
    /// Another claim, by its path; strings, numbers and booleans, and lists of these separated by commas.
    Claim(Vec<String>),
}

/// Where requests of a kind go, and what they need.
#[derive(Debug)]
pub struct Route {
    /// Its name in the configuration.
    pub name: String,
    /// What the caller must show; `None` for `auth = "public"`.
    pub requirement: Option<AccessRequirement>,
    /// What is made of the client's certificate; nothing where `None`.
    pub client_certificate: Option<ClientCertificateRule>,
    /// Where it goes.
    pub destination: Destination,
    /// Who gets copies of its requests to a service.
    pub mirror: Option<Arc<Mirror>>,
    /// Whether it is bound to listeners, so that those are meant that it is found on.
    pub is_bound: bool,
    /// The settings that the configuration has in the same form.
    pub settings: RouteSettings,
    /// The limits that its requests have to pass, unless it is split.
    pub admission: RouteAdmission,
    /// What is counted for this route, in all models that have it.
    pub metrics: Arc<RouteMetrics>,
}

impl Route {
    /// The share of its split that a request has, where it has one.
    pub(crate) fn share(&self, index: Option<ShareIndex>) -> Option<&Share> {
        match &self.destination {
            Destination::Split(split) => split.share(index?),
            _ => None,
        }
    }

    /// The service of a request with this share; none where the gateway answers, or a share is yet to be chosen.
    pub(crate) fn service(&self, index: Option<ShareIndex>) -> Option<&Arc<Service>> {
        match &self.destination {
            Destination::Service(service) => Some(service),
            _ => self.share(index).map(|share| &share.service),
        }
    }

    /// The limits that a request with this share has to pass.
    pub(crate) fn admission(&self, index: Option<ShareIndex>) -> &RouteAdmission {
        self.share(index).map_or(&self.admission, |share| &share.admission)
    }
}

impl Deref for Route {
    type Target = RouteSettings;

    fn deref(&self) -> &RouteSettings {
        &self.settings
    }
}

/// The settings of a route that refer to no other part of a model.
#[derive(Debug, Clone, Default)]
pub struct RouteSettings {
    /// Whether safe requests are forwarded before the TLS handshake is done; they may be replays (RFC 8470).
    pub early_data: bool,
    /// Time limits.
    pub timeouts: Timeouts,
    /// The largest request body, in bytes.
    pub body_bytes_max: u64,
    /// Which encodings the path may hold.
    pub allow: AllowEncoded,
    /// How the path is rewritten.
    pub rewrite: Rewrite,
    /// Whether the service gets the request's `Authorization`.
    pub forward_authorization: bool,
    /// Changes to the request's headers, after the gateway's own.
    pub request_headers: HeaderRules,
    /// Changes to the response's headers.
    pub response_headers: HeaderRules,
    /// What expressions say of its requests.
    pub rules: RouteRules,
    /// The throttles that count its requests, by their places in the model.
    pub throttles: RouteThrottles,
}

/// Encodings that most services read in more than one way, and that a route may allow nevertheless.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AllowEncoded {
    /// `%2F`.
    pub slash: bool,
    /// `%5C`.
    pub encoded_backslash: bool,
    /// `\`.
    pub backslash: bool,
    /// Path parameters (`;`, `%3B`) where they hide a path which belongs to another route, or where something that decides
    /// reads the path.
    pub parameters: bool,
}

/// How a path is rewritten.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Rewrite {
    /// Not at all.
    #[default]
    None,
    /// Without this prefix.
    StripPrefix(String),
    /// Another path, made of these parts.
    Path(Vec<PathPart>),
}

/// A part of a path that a request's is rewritten to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathPart {
    /// As it stands.
    Literal(String),
    /// What a parameter of the route's pattern matched, in its normal form.
    Parameter(String),
}

/// Where a request goes.
#[derive(Debug)]
pub enum Destination {
    /// To a service.
    Service(Arc<Service>),
    /// To one of several services.
    Split(Split),
    /// To one inside the program.
    BuiltIn(Arc<dyn BuiltIn>),
    /// Elsewhere, by a redirect.
    Redirect {
        /// The `Location`.
        to: Template<Exchange>,
        /// Whether the request's query follows it.
        keep_query: bool,
        /// 301, 302, 303, 307 or 308.
        status: u16,
    },
    /// A fixed response.
    Static {
        /// Its status.
        status: u16,
        /// Its `Content-Type`.
        content_type: String,
        /// Its body.
        body: Arc<[u8]>,
    },
}

/// A service, as one configuration describes it.
#[derive(Debug)]
pub struct Service {
    /// Its name in the configuration.
    pub name: String,
    /// Its endpoints, which change apart from the model. Their health and connections survive a reload.
    pub live: LiveService<Pooled>,
    /// TLS to its endpoints.
    pub tls: Option<ServiceTls>,
    /// The protocols by which it is reached.
    pub protocol: Protocol,
    /// The most requests at a time on a connection of HTTP/2.
    pub streams_max: u32,
    /// In place of the route's.
    pub connect_timeout: Option<Duration>,
    /// Requests for which it gives the same key go to the same endpoint.
    pub hash_policy: Option<Template<Exchange>>,
    /// What is counted for this service beside what its endpoints count, in all models that have it.
    pub metrics: Arc<ServiceMetrics>,
}

impl Service {
    /// What is offered to its endpoints for a request, which may ask for an upgrade.
    pub(crate) const fn offer(&self, is_upgrade: bool) -> Offer {
        self.protocol.offer(self.tls.is_some(), is_upgrade)
    }

    /// What connections to it are bound to.
    pub(crate) const fn limits(&self, limits: &Limits) -> UpstreamLimits {
        UpstreamLimits { head: limits.response_head, streams_max: self.streams_max }
    }
}

/// TLS to a service.
#[derive(Debug, Clone)]
pub struct ServiceTls {
    /// Roots, for connections of HTTP/1.1.
    pub config: Arc<rustls::ClientConfig>,
    /// The same for connections that may speak HTTP/2, if any may.
    pub http2: Option<Arc<rustls::ClientConfig>>,
    /// The name that must be in the endpoint's certificate; its own host name where `None`.
    pub server_name: Option<rustls::pki_types::ServerName<'static>>,
    /// The warnings of failed handshakes, of requests and of checks.
    pub handshake_warnings: Arc<WarningLimit>,
}
