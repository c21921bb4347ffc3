//! The resolved configuration: complete and checked, with every default and every path resolved, in the types of the
//! libraries that the gateway is built from.
#![expect(
    missing_docs,
    reason = "each key is documented once, where its written form is declared: the reference page is made from that"
)]

mod route;

use std::{
    fmt, fs,
    ops::{Deref, DerefMut},
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use cardea_env::{Condition, Network, Template};
use cardea_gateway::{
    client_certificate::ClientCertificateForward,
    exchange::Exchange,
    model::{
        ConnectionTimeouts, EnvironmentModel, Forwarding, IdentityHeaders, Limits, LogModel, PriorityRule,
        Protocol, ProxyProtocol, TarpitModel, ThrottleCost, ThrottleKey, ThrottleReport, Timeouts,
    },
    record::AccessLogConfig,
};
use cardea_guard::{AdmissionSettings, CLIENT_SHARE_PERCENT, Priority, ThrottleLimit};
use cardea_identity::{IssuerConfig, KeySource, LocalKeys};
use cardea_issuer::AuthorizationServerConfig;
use cardea_tls::{
    ClientAuthMode, ClientAuthorityConfig, ClientName, ClientTlsConfig, ManagedCertificate, OcspConfig,
    ServerTlsConfig, acme::RequestedKey,
};
use cardea_upstream::{
    Balance, CheckConfig, EndpointSource, HealthConfig, PoolConfig, Position, RetryConfig, ServiceConfig,
    SpillConfig,
};
use rustls::pki_types::ServerName;
use url::Url;
use zeroize::Zeroizing;

pub use self::route::{Auth, BuiltIn, Destination, Mirror, Route, Share};
use super::{
    fingerprint::Fingerprint,
    problem::Problem,
    sections::{ChallengeKind, Dns, Drain, Log, Process, Readiness},
    source::{Location, Sources},
    text::BindAddress,
};

/// A whole configuration.
#[derive(Debug)]
pub struct Config {
    pub region: Option<String>,
    /// Where regions are, by their names.
    pub region_positions: Vec<(String, Position)>,
    /// The attributes, and what holds for requests on all routes.
    pub environment: EnvironmentModel,
    pub process: Process,
    pub log: Log,
    /// `None` if it is disabled.
    pub access_log: Option<AccessLog>,
    pub admin: Admin,
    pub general: General,
    pub dns: Dns,
    pub drain: Drain,
    pub readiness: Readiness,
    pub forwarding: Forwarding,
    pub trusted_proxies: Vec<Network>,
    pub identity_headers: IdentityHeaders,
    pub authorization_server: Option<AuthorizationServer>,
    pub acme: Option<Acme>,
    /// The databases of these, once per use.
    pub databases: Vec<Database>,
    /// In the order written; names are unique.
    pub client_authorities: Vec<Located<ClientAuthorityConfig>>,
    /// In the order written; names are unique.
    pub throttles: Vec<Located<Throttle>>,
    /// In the order written; never empty.
    pub listeners: Vec<Located<Listener>>,
    /// In the order written; names are unique.
    pub issuers: Vec<Located<IssuerConfig>>,
    /// The folder for the fetched keys of issuers.
    pub key_cache: Option<PathBuf>,
    /// In the order written; names are unique.
    pub services: Vec<Located<Service>>,
    /// In the order written; names are unique.
    pub routes: Vec<Located<Route>>,
    /// The files of the configuration.
    pub sources: Arc<Sources>,
    /// For comparisons with another configuration at a reload.
    pub fingerprint: Fingerprint,
    /// Warnings about settings that probably do not do what their author wants.
    pub warnings: Vec<Problem>,
    /// Whether it has no error. Otherwise it contains placeholders, nothing may be built from it, and only its sound
    /// parts are checked further.
    pub is_sound: bool,
}

/// A configured object, with its location for problems that are found later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<T> {
    pub value: T,
    /// Where it was written.
    pub at: Location,
    /// Whether no error was found in it.
    pub is_sound: bool,
}

impl<T> Deref for Located<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Located<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// The defaults for services and routes.
#[derive(Debug, Clone)]
pub struct General {
    pub limits: Limits,
    pub body_bytes_max: u64,
    pub connections: ConnectionTimeouts,
    pub exchanges: Timeouts,
    pub pool: PoolConfig,
    pub failover: Failover,
    pub check: CheckConfig,
    pub balance: Balance,
    pub admission: Admission,
    pub tarpit: TarpitModel,
}

/// When endpoints are ejected, and what is tried again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Failover {
    pub health: HealthConfig,
    pub retry: RetryConfig,
    pub spill: SpillConfig,
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
            check: CheckConfig::default(),
            balance: Balance::default(),
            admission: Admission::default(),
            tarpit: TarpitModel::default(),
        }
    }
}

impl Config {
    /// A problem at a location of this configuration, for checks after loading.
    pub fn problem(&self, at: Location, message: impl Into<String>, remedy: impl Into<String>) -> Problem {
        Problem::at(&self.sources, at, message, remedy)
    }

    /// The configuration without the content of certificate and key files. It decides requests in the same way, but
    /// can't identify their callers.
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

    /// Logs the warnings.
    pub fn log_warnings(&self) {
        for Problem { file, line, column, message, remedy, .. } in &self.warnings {
            tracing::warn!(file, line, column, remedy, "configuration: {message}");
        }
    }
}

/// The access log: one line for each request.
#[derive(Debug)]
pub struct AccessLog {
    /// Where lines go.
    pub config: AccessLogConfig,
    /// What they contain, and for which requests.
    pub lines: LogModel,
}

/// A template, an expression or a name as written, and its location.
#[derive(Debug, Clone)]
pub struct SourceText {
    pub text: String,
    pub at: Location,
}

/// The admin listener and the admin socket; `None` if disabled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// Metrics, health and readiness; read only.
    pub address: Option<std::net::SocketAddr>,
    /// The accepted host names besides `localhost`, in lower case.
    pub hosts: Vec<String>,
    /// The Unix socket for changes.
    pub socket: Option<PathBuf>,
    /// Where the section was written.
    pub at: Location,
}

/// A listening address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    pub name: String,
    pub address: BindAddress,
    /// The permissions of a Unix socket; `0o660` by default.
    pub mode: u32,
    /// The port of the https URLs that every request is redirected to.
    pub redirect_to_https: Option<u16>,
    /// TCP only; it has trusted peers.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// HTTP/2 without TLS is accepted; it has no TLS then.
    pub h2c: bool,
    pub tls: Option<ListenerTls>,
    /// The TLS that it has and whose certificates are not to be loaded, in place of `tls`.
    pub unloaded_tls: Option<ListenerTls>,
}

/// The TLS settings of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerTls {
    /// Without certificates.
    pub settings: ServerTlsConfig,
    /// Never empty; the first is the default.
    pub certificates: Vec<Located<Certificate>>,
}

impl ListenerTls {
    /// Whether requests may arrive as early data.
    #[must_use]
    pub fn early_data(&self) -> bool {
        self.settings.early_data_bytes_max > 0
    }
}

/// A certificate with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    pub source: CertificateSource,
    /// In lower case. If empty, the names in the certificate apply.
    pub hosts: Vec<String>,
    pub trust_domain: String,
    pub ocsp: Option<OcspConfig>,
    pub client_certificate: Option<ClientAuthMode>,
    /// Names of existing authorities; not empty if certificates are requested.
    pub client_authorities: Vec<String>,
}

/// The client certificate rule of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificateRule {
    pub required: bool,
    /// Names of existing authorities. If empty, those of the host apply.
    pub authorities: Vec<String>,
    pub names: Vec<ClientName>,
    pub fingerprints: Vec<[u8; 32]>,
    /// As a normalised authority.
    pub step_up: Option<StepUp>,
    pub forward: ClientCertificateForward,
    pub at: Location,
}

/// The host at which clients are asked for certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepUp {
    /// A host, not a pattern.
    pub host: String,
    /// If not 443.
    pub port: Option<u16>,
}

/// The source of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateSource {
    Files {
        chain: PathBuf,
        key: PathBuf,
    },
    /// The ACME authority. The hosts are configured, and none is a wildcard.
    Acme,
    /// A slot in memory, which its owner fills. The same slot in another configuration is the same certificate, and a
    /// change of its content needs no reload.
    Memory(Arc<ManagedCertificate>),
}

/// The ACME authority.
#[derive(Debug)]
pub struct Acme {
    pub directory: Url,
    pub contacts: Vec<String>,
    /// The SQLite database.
    pub database: PathBuf,
    pub wrapping_key: Secret,
    pub ca_file: Option<PathBuf>,
    /// Never empty, without repetition.
    pub challenges: Vec<ChallengeKind>,
    pub external_account: Option<ExternalAccount>,
    pub key_type: RequestedKey,
    /// 5 to 90.
    pub renew_before_percent: u32,
    pub at: Location,
}

/// An account that the authority knows by other means (external account binding).
#[derive(Debug)]
pub struct ExternalAccount {
    pub key_id: String,
    /// The decoded key.
    pub hmac_key: Secret,
}

/// The authorization server.
#[derive(Debug)]
pub struct AuthorizationServer {
    pub settings: AuthorizationServerConfig,
    /// The SQLite database.
    pub database: PathBuf,
    pub wrapping_key: Secret,
    /// Whether its endpoints are served on every listener without a route.
    pub mount: bool,
    pub at: Location,
}

/// A configured database, with the key of its private keys. Unresolved parts were reported.
#[derive(Debug)]
pub struct Database {
    /// The file of the database.
    pub path: Option<PathBuf>,
    pub at: Location,
    pub wrapping_key: Option<Secret>,
    pub wrapping_key_at: Location,
    pub used_for: DatabaseUse,
}

/// The use of a database.
#[derive(Debug)]
pub enum DatabaseUse {
    AuthorizationServer,
    Acme { directory: Option<Url> },
}

/// A secret from a file or the environment. Its memory is wiped when it is dropped.
#[derive(Clone)]
pub struct Secret {
    value: Zeroizing<Vec<u8>>,
    /// The source: a path or `$NAME`.
    origin: String,
    /// The file of the secret, if it is from one.
    file: Option<PathBuf>,
}

impl Secret {
    pub(super) fn from_file(value: Zeroizing<Vec<u8>>, path: PathBuf) -> Self {
        Self { value, origin: path.display().to_string(), file: Some(path) }
    }

    /// A secret that is already in memory; messages name its source by `origin`.
    #[must_use]
    pub fn in_memory(value: Zeroizing<Vec<u8>>, origin: impl Into<String>) -> Self {
        Self { value, origin: origin.into(), file: None }
    }

    /// A converted form of the secret from the same source.
    pub(super) fn replaced(self, value: Zeroizing<Vec<u8>>) -> Self {
        Self { value, ..self }
    }

    /// Which other users may read or replace the file of the secret, if any.
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

    /// The source of the secret, for messages.
    pub fn origin(&self) -> &str {
        &self.origin
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret(from {}, redacted)", self.origin)
    }
}

/// A service that requests are forwarded to.
#[derive(Debug, Clone)]
pub struct Service {
    /// The builder sets the number of workers and the endpoints.
    pub config: ServiceConfig,
    pub endpoints: Vec<EndpointSource>,
    pub protocol: Protocol,
    pub connect_timeout: Duration,
    /// A template. Requests for which it has the same value go to the same endpoint.
    pub hash_policy: Option<Template<Exchange>>,
    pub admission: Option<AdmissionSettings>,
    /// Names of throttles that exist.
    pub throttles: Vec<String>,
    pub tls: Option<ServiceTls>,
}

/// Limits on requests in flight.
#[derive(Debug, Clone)]
pub struct Admission {
    /// Of all requests.
    pub limit: Option<AdmissionSettings>,
    /// The default of services and routes.
    pub max_age: Duration,
    pub max_streams: Option<u32>,
    pub stream_after: Duration,
    pub shed_callers: bool,
    /// In percent, 1 to 100.
    pub client_share: u32,
    pub priority: Option<PriorityRule>,
    /// Whether the priority depends on the path.
    pub priority_reads_path: bool,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            limit: None,
            // Clients that wait for longer often give up and come again.
            max_age: Duration::from_secs(1),
            max_streams: None,
            // Longer than most requests take, shorter than most streams.
            stream_after: Duration::from_secs(10),
            // It takes ten minutes until other callers are refused: an operator has to want that.
            shed_callers: false,
            client_share: CLIENT_SHARE_PERCENT,
            priority: None,
            priority_reads_path: false,
        }
    }
}

/// Limits on the requests of a route in flight, and their priority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteAdmission {
    pub limit: Option<AdmissionSettings>,
    pub priority: Option<Priority>,
}

/// A limit on what requests with the same key may use.
#[derive(Debug, Clone)]
pub struct Throttle {
    pub name: String,
    /// Names of attributes.
    pub written_key: Vec<SourceText>,
    /// The same, compiled.
    pub key: ThrottleKey,
    /// It has a rate, a limit on requests in flight, or both.
    pub rate: Option<ThrottleLimit>,
    pub max_in_flight: Option<u32>,
    pub when: Option<Condition<Exchange>>,
    pub cost: Option<ThrottleCost>,
    pub dry_run: bool,
    pub report: ThrottleReport,
    pub all_routes: bool,
    /// At least 1.
    pub keys_max: usize,
    /// Whether it reads what is known only once the caller is identified.
    pub needs_identity: bool,
    /// Whether it reads the service.
    pub reads_service: bool,
    pub reads_path: bool,
}

impl Throttle {
    /// Whether it counts by the same as another one.
    #[must_use]
    pub fn has_key_of(&self, other: &Self) -> bool {
        let (own, others) = (&self.key, &other.key);
        let names = self.written_key.iter().map(|one| &one.text);
        names.eq(other.written_key.iter().map(|one| &one.text))
            && (own.ipv4_prefix, own.ipv6_prefix) == (others.ipv4_prefix, others.ipv6_prefix)
    }
}

/// TLS to a service's endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceTls {
    pub client: ClientTlsConfig,
    /// `None`: the host of the endpoint's address.
    pub server_name: Option<ServerName<'static>>,
}
