//! The configuration as the program uses it: complete, checked, with every default filled in and every path resolved, in the
//! types of the libraries that the gateway is built from.
#![expect(
    missing_docs,
    reason = "each key is documented once, where its written form is declared: the reference page is made from that"
)]

use std::{
    fmt, fs,
    ops::{Deref, DerefMut},
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use cardea_gateway::{
    client_certificate::ClientCertificateForward,
    model::{
        AllowEncoded, ConnectionTimeouts, Forwarding, HeaderEncoding, IdentityHeaders, Limits, Prefix,
        ProxyProtocol, Rewrite, ThrottleReport, Timeouts,
    },
    routing::RouteMatch,
};
use cardea_guard::ThrottleLimit;
use cardea_identity::{Alternative, IssuerConfig, KeySource, LocalKeys};
use cardea_issuer::AuthorizationServerConfig;
use cardea_tls::{
    ClientAuthMode, ClientAuthorityConfig, ClientName, ClientTlsConfig, ManagedCertificate, OcspConfig,
    ServerTlsConfig, acme::RequestedKey,
};
use cardea_upstream::{Balance, HealthConfig, PoolConfig, RetryConfig, ServiceConfig};
use rustls::pki_types::ServerName;
use url::Url;
use zeroize::Zeroizing;

use super::{
    fingerprint::Fingerprint,
    problem::Problem,
    rules::{AccessLog, Attribute, AttributeEdits, FieldEdits, FieldTemplate, PolicyRule},
    sections::{ChallengeKind, Drain, Log, Process, Readiness},
    source::{Place, Sources},
    text::BindAddress,
};

/// A whole configuration.
#[derive(Debug)]
pub struct Config {
    pub region: Option<String>,
    pub header_encoding: HeaderEncoding,
    pub process: Process,
    pub log: Log,
    pub access_log: AccessLog,
    pub admin: Admin,
    pub general: General,
    pub drain: Drain,
    pub readiness: Readiness,
    pub forwarding: Forwarding,
    pub trusted_proxies: Vec<Prefix>,
    pub identity_headers: IdentityHeaders,
    pub authorization_server: Option<AuthorizationServer>,
    pub acme: Option<Acme>,
    /// The databases of these, each once for each use.
    pub databases: Vec<Database>,
    /// In the order written; names are unique.
    pub client_authorities: Vec<Placed<ClientAuthorityConfig>>,
    pub attributes: Vec<Placed<Attribute>>,
    /// There may be attributes beside these, in a configuration with errors.
    pub lost_attributes: bool,
    /// What holds on all routes.
    pub policy: Vec<PolicyRule>,
    /// Of every request, before those of its route.
    pub request_headers: Vec<FieldEdits>,
    /// Of every response, before those of its route.
    pub response_headers: Vec<FieldEdits>,
    /// In the order written; names are unique.
    pub throttles: Vec<Placed<Throttle>>,
    /// In the order written; never empty.
    pub listeners: Vec<Placed<Listener>>,
    /// In the order written; names are unique.
    pub issuers: Vec<Placed<IssuerConfig>>,
    /// Where keys of issuers are kept.
    pub key_cache: Option<PathBuf>,
    /// In the order written; names are unique.
    pub services: Vec<Placed<Service>>,
    /// In the order written; names are unique.
    pub routes: Vec<Placed<Route>>,
    /// The files that it came from.
    pub sources: Arc<Sources>,
    /// What a reload compares it with another one by.
    pub fingerprint: Fingerprint,
    /// What it probably does not do as its author wants.
    pub warnings: Vec<Problem>,
    /// Whether it has no error. Where it has, values stand in for what could not be resolved, nothing may be built from
    /// it, and only its parts that are sound are judged further.
    pub is_sound: bool,
}

/// One of several things that are configured, with its place for problems that show later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed<T> {
    pub value: T,
    /// Where it was written.
    pub at: Place,
    /// Whether no error was found in it.
    pub is_sound: bool,
}

impl<T> Deref for Placed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Placed<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// What holds where a service or a route says nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct General {
    pub limits: Limits,
    pub body_bytes_max: u64,
    pub connections: ConnectionTimeouts,
    pub exchanges: Timeouts,
    pub pool: PoolConfig,
    pub failover: Failover,
    pub balance: Balance,
}

/// When endpoints are ejected, and what is tried again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Failover {
    pub health: HealthConfig,
    pub retry: RetryConfig,
}

impl Default for General {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            body_bytes_max: 16 << 20,
            connections: ConnectionTimeouts::default(),
            exchanges: Timeouts::default(),
            pool: PoolConfig::default(),
            failover: Failover::default(),
            balance: Balance::default(),
        }
    }
}

impl Config {
    /// A problem at a place of this configuration, for checks that come after loading.
    pub fn problem(&self, at: Place, message: impl Into<String>, remedy: impl Into<String>) -> Problem {
        Problem::at(&self.sources, at, message, remedy)
    }

    /// The configuration without all that is read from files of certificates and keys. It decides the same of requests:
    /// only who they come from is left to be said.
    pub(super) fn without_keys(mut self) -> Self {
        for listener in &mut self.listeners {
            listener.unloaded_tls = listener.tls.take();
        }
        for service in &mut self.services {
            service.tls = None;
        }
        for issuer in &mut self.issuers {
            issuer.ca_file = None;
            if matches!(issuer.keys, KeySource::File(_)) {
                issuer.keys = KeySource::Local(LocalKeys::new());
            }
        }
        self.client_authorities.clear();
        self.databases.clear();
        self
    }

    /// Tells the log what the configuration probably does not do as its author wants.
    pub fn log_warnings(&self) {
        for Problem { file, line, column, message, remedy, .. } in &self.warnings {
            tracing::warn!(file, line, column, remedy, "configuration: {message}");
        }
    }
}

/// The operator's side doors; `None` where closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// Metrics, health and readiness, read only.
    pub address: Option<std::net::SocketAddr>,
    /// The names by which it may be asked beside `localhost`, in lower case.
    pub hosts: Vec<String>,
    /// The Unix socket through which things are changed.
    pub socket: Option<PathBuf>,
    /// Where the section was written.
    pub at: Place,
}

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    pub name: String,
    pub address: BindAddress,
    /// Permissions of a Unix socket; `0o660` where nothing is said.
    pub mode: u32,
    /// The port that every request is redirected to, under https.
    pub redirect_to_https: Option<u16>,
    /// Trusts somebody on TCP.
    pub proxy_protocol: Option<ProxyProtocol>,
    pub http2: bool,
    pub tls: Option<ListenerTls>,
    /// The TLS that it has and whose certificates are not to be loaded, in place of `tls`.
    pub unloaded_tls: Option<ListenerTls>,
}

/// TLS of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerTls {
    /// Without certificates.
    pub settings: ServerTlsConfig,
    /// Never empty; the first is the default.
    pub certificates: Vec<Placed<Certificate>>,
}

impl ListenerTls {
    /// Whether requests may come before the handshake is done.
    #[must_use]
    pub fn early_data(&self) -> bool {
        self.settings.early_data_bytes_max > 0
    }
}

/// A certificate with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    pub source: CertificateSource,
    /// In lower case; empty: the names in the certificate.
    pub hosts: Vec<String>,
    pub trust_domain: String,
    pub ocsp: Option<OcspConfig>,
    pub client_certificate: Option<ClientAuthMode>,
    /// Names of authorities that exist; not empty where certificates are asked for.
    pub client_authorities: Vec<String>,
}

/// What a route makes of client certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificateRule {
    pub required: bool,
    /// Names of authorities that exist; empty: those of the host.
    pub authorities: Vec<String>,
    pub names: Vec<ClientName>,
    pub fingerprints: Vec<[u8; 32]>,
    /// In the form of a normalised authority.
    pub step_up: Option<StepUp>,
    pub forward: ClientCertificateForward,
    pub at: Place,
}

/// Where clients are asked for certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepUp {
    /// A host that no pattern is.
    pub host: String,
    /// Other than 443.
    pub port: Option<u16>,
}

/// Where a certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateSource {
    Files {
        chain: PathBuf,
        key: PathBuf,
    },
    /// The authority. The hosts are named, and none of them is a wildcard.
    Acme,
    /// A place in memory, which whoever makes the configuration has filled. The same place in another configuration is the same
    /// certificate, and what is put there is served without a reload.
    Memory(Arc<ManagedCertificate>),
}

/// The authority that certificates come from.
#[derive(Debug)]
pub struct Acme {
    pub directory: Url,
    pub contacts: Vec<String>,
    /// The SQLite database.
    pub database: PathBuf,
    pub wrapping_key: Secret,
    pub ca_file: Option<PathBuf>,
    /// Never empty, each once.
    pub challenges: Vec<ChallengeKind>,
    pub external_account: Option<ExternalAccount>,
    pub key_type: RequestedKey,
    /// 5 to 90.
    pub renew_before_percent: u32,
    pub at: Place,
}

/// An account that the authority knows by other means.
#[derive(Debug)]
pub struct ExternalAccount {
    pub key_id: String,
    /// Its octets.
    pub hmac_key: Secret,
}

/// The authorization server.
#[derive(Debug)]
pub struct AuthorizationServer {
    pub settings: AuthorizationServerConfig,
    /// The SQLite database.
    pub database: PathBuf,
    pub wrapping_key: Secret,
    /// Whether its endpoints are there on every listener without a route.
    pub mount: bool,
    pub at: Place,
}

/// A database that is named, with what opens the private keys in it; what could not be resolved was reported.
#[derive(Debug)]
pub struct Database {
    /// The file.
    pub path: Option<PathBuf>,
    pub at: Place,
    pub wrapping_key: Option<Secret>,
    pub wrapping_key_at: Place,
    pub used_for: DatabaseUse,
}

/// What a database is used for.
#[derive(Debug)]
pub enum DatabaseUse {
    AuthorizationServer,
    Acme { directory: Option<Url> },
}

/// A secret, from a file or the environment; its memory is cleared when it goes.
#[derive(Clone)]
pub struct Secret {
    value: Zeroizing<Vec<u8>>,
    /// Where it came from: a path or `$NAME`.
    origin: String,
    /// The file that it came from, where it is one.
    file: Option<PathBuf>,
}

impl Secret {
    pub(super) fn from_file(value: Zeroizing<Vec<u8>>, path: PathBuf) -> Self {
        Self { value, origin: path.display().to_string(), file: Some(path) }
    }

    /// One that is in memory already; messages call its place `origin`.
    #[must_use]
    pub fn in_memory(value: Zeroizing<Vec<u8>>, origin: impl Into<String>) -> Self {
        Self { value, origin: origin.into(), file: None }
    }

    /// Another form of it, from the same place.
    pub(super) fn replaced(self, value: Zeroizing<Vec<u8>>) -> Self {
        Self { value, ..self }
    }

    /// Who else may read or replace the file that it came from, where somebody may.
    pub fn exposure(&self) -> Option<String> {
        let mode = fs::metadata(self.file.as_ref()?).ok()?.mode();
        let who = match mode {
            _ if mode & 0o006 != 0 => "every user of this machine",
            _ if mode & 0o020 != 0 => "its group",
            _ => return None,
        };
        let may = if mode & 0o022 != 0 { "replace" } else { "read" };
        Some(format!("{who} may {may} {} (mode {:o})", self.origin, mode & 0o777))
    }

    /// The secret, without white space at its end.
    pub fn expose(&self) -> &[u8] {
        &self.value
    }

    /// Where it came from, for messages.
    pub fn origin(&self) -> &str {
        &self.origin
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret(from {}, redacted)", self.origin)
    }
}

/// What requests are forwarded to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The number of workers and the key of connections are the builder's.
    pub config: ServiceConfig,
    pub connect_timeout: Duration,
    /// A template of what requests have in common that go to the same endpoint.
    pub hash_policy: Option<FieldTemplate>,
    /// Names of throttles that exist.
    pub throttles: Vec<String>,
    pub tls: Option<ServiceTls>,
}

/// A limit on what requests with the same key may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Throttle {
    pub name: String,
    /// Names of attributes.
    pub key: Vec<FieldTemplate>,
    /// At most 32.
    pub ipv4_prefix: u8,
    /// At most 128.
    pub ipv6_prefix: u8,
    pub limit: ThrottleLimit,
    pub when: Option<FieldTemplate>,
    pub cost: Option<FieldTemplate>,
    pub dry_run: bool,
    pub report: ThrottleReport,
    pub all_routes: bool,
    /// At least 1.
    pub keys_max: usize,
}

impl Throttle {
    /// Whether it counts by the same as another one.
    #[must_use]
    pub fn has_key_of(&self, other: &Self) -> bool {
        let texts = |throttle: &Self| throttle.key.iter().map(|one| one.text.clone()).collect::<Vec<_>>();
        texts(self) == texts(other)
            && (self.ipv4_prefix, self.ipv6_prefix) == (other.ipv4_prefix, other.ipv6_prefix)
    }
}

/// TLS to a service's endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceTls {
    pub client: ClientTlsConfig,
    /// `None`: the host in the endpoint's address.
    pub server_name: Option<ServerName<'static>>,
}

/// Which requests go where, and who may make them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub name: String,
    /// Names of listeners exist, and are sorted like those of methods and fields.
    pub matches: RouteMatch,
    pub auth: Auth,
    pub client_certificate: Option<ClientCertificateRule>,
    pub early_data: bool,
    pub destination: Destination,
    pub rewrite: Rewrite,
    pub allow_encoded: AllowEncoded,
    pub timeouts: Timeouts,
    pub body_bytes_max: u64,
    pub forward_authorization: bool,
    pub request_headers: Vec<FieldEdits>,
    pub response_headers: Vec<FieldEdits>,
    pub when: Option<FieldTemplate>,
    /// Names of routes whose requests it takes on purpose though it asks for less.
    pub opens: Vec<String>,
    /// Names of throttles that exist.
    pub throttles: Vec<String>,
    pub policy: Vec<PolicyRule>,
    pub attributes: Vec<AttributeEdits>,
}

/// Who may make a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auth {
    /// Everyone.
    Public,
    /// Whoever has a token that fits one of these; never empty. Where no audience is named, the first of the issuer's is meant.
    AccessRequirement(Vec<Alternative>),
}

/// Where requests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// To a service.
    Service {
        /// Its index in [`Config::services`].
        index: usize,
    },
    /// Elsewhere.
    Redirect {
        /// Template of a URL or an absolute path.
        to: FieldTemplate,
        /// Whether the request's query follows it.
        keep_query: bool,
        /// 301, 302, 303, 307 or 308.
        status: u16,
    },
    /// A fixed response.
    Respond {
        /// 200 to 599.
        status: u16,
        /// The media type of the body.
        content_type: String,
        /// The body.
        body: Arc<[u8]>,
    },
    /// One inside the program.
    BuiltIn(BuiltIn),
}

/// Destinations inside the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuiltIn {
    /// The token endpoint (RFC 6749 §3.2).
    Token,
    /// The key set (RFC 7517 §5).
    KeySet,
    /// Authorization server metadata (RFC 8414).
    OauthMetadata,
    /// OpenID discovery.
    OpenidConfiguration,
    /// The authorization endpoint, which refuses.
    Authorize,
    /// 200 while the process lives.
    Health,
}

impl Destination {
    /// In place of one that could not be resolved, in a configuration from which nothing is built.
    pub(super) fn unresolved() -> Self {
        Self::Respond { status: 503, content_type: "text/plain".to_owned(), body: Arc::default() }
    }
}
