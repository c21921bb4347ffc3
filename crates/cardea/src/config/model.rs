//! The configuration as the program uses it: complete, checked, with every default filled in and every path
//! resolved. `at` fields lead back to where something was written, for problems that only show later.

use std::{
    collections::BTreeMap, fmt, fs, os::unix::fs::MetadataExt as _, path::PathBuf, sync::Arc, time::Duration,
};

use cardea_tls::ClientName;
use url::Url;
use zeroize::Zeroizing;

use super::{
    fingerprint::Fingerprint,
    problem::Problem,
    rules::{AccessLog, Attribute, AttributeEdits, FieldEdits, FieldTemplate, PolicyRule},
    sections::{
        Algorithm, Builtin, CertificateKey, ChallengeKind, ClaimNames, ClientCertificateForward,
        ClientCertificateMode, ClientCertificateNeed, ClientSecrets, Drain, EncodedPathByte, EntraVersion,
        Forwarding, HeaderEncoding, Limits, Log, Process, ProxyProtocol, Readiness, SigningAlgorithm,
        Timeouts, TlsVersion, TrustedProxies,
    },
    source::{Place, Sources},
    text::{Address, BindAddress, IpPrefix},
};

/// A whole configuration.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) region: Option<String>,
    pub(crate) header_encoding: HeaderEncoding,
    pub(crate) process: Process,
    pub(crate) log: Log,
    pub(crate) access_log: AccessLog,
    pub(crate) admin: Admin,
    pub(crate) limits: Limits,
    pub(crate) timeouts: Timeouts,
    pub(crate) drain: Drain,
    pub(crate) readiness: Readiness,
    pub(crate) forwarding: Forwarding,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) identity_headers: IdentityHeaders,
    pub(crate) authorization_server: Option<AuthorizationServer>,
    pub(crate) acme: Option<Acme>,
    /// The databases of these, each once for each use.
    pub(crate) databases: Vec<Database>,
    /// In the order written; names are unique.
    pub(crate) client_authorities: Vec<ClientAuthority>,
    pub(crate) attributes: Vec<Attribute>,
    /// There may be attributes beside these, in a configuration with errors.
    pub(crate) lost_attributes: bool,
    /// What holds on all routes.
    pub(crate) policy: Vec<PolicyRule>,
    /// Of every request, before those of its route.
    pub(crate) request_headers: Vec<FieldEdits>,
    /// Of every response, before those of its route.
    pub(crate) response_headers: Vec<FieldEdits>,
    /// In the order written; never empty.
    pub(crate) listeners: Vec<Listener>,
    /// In the order written; names are unique.
    pub(crate) issuers: Vec<Issuer>,
    /// Where keys of issuers are kept.
    pub(crate) key_cache: Option<PathBuf>,
    /// In the order written; names are unique.
    pub(crate) services: Vec<Service>,
    /// In the order written; names are unique.
    pub(crate) routes: Vec<Route>,
    /// The files that it came from.
    pub(crate) sources: Arc<Sources>,
    /// What a reload compares it with another one by.
    pub(crate) fingerprint: Fingerprint,
    /// What it probably does not do as its author wants.
    pub(crate) warnings: Vec<Problem>,
    /// Whether it has no error. Where it has, values stand in for what could not be resolved, nothing may be built from
    /// it, and only its parts that are sound are judged further.
    pub(crate) is_sound: bool,
}

impl Config {
    /// A problem at a place of this configuration, for checks that come after loading.
    pub(crate) fn problem(
        &self,
        at: Place,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Problem {
        Problem::at(&self.sources, at, message, remedy)
    }

    /// The configuration without all that is read from files of certificates and keys. It decides the same of requests:
    /// only who they come from is left to be said.
    pub(super) fn without_keys(mut self) -> Self {
        for listener in &mut self.listeners {
            listener.is_stripped = listener.tls.take().is_some();
        }
        for service in &mut self.services {
            service.tls = None;
        }
        for issuer in &mut self.issuers {
            issuer.ca_file = None;
            if matches!(issuer.keys, KeySource::File(_)) {
                issuer.keys = KeySource::Local;
            }
        }
        self.client_authorities.clear();
        self.databases.clear();
        self
    }

    /// Tells the log what the configuration probably does not do as its author wants.
    pub(crate) fn log_warnings(&self) {
        for Problem { file, line, column, message, remedy, .. } in &self.warnings {
            tracing::warn!(file, line, column, remedy, "configuration: {message}");
        }
    }
}

/// The operator's side doors; `None` where closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Admin {
    /// Metrics, health and readiness, read only.
    pub(crate) address: Option<std::net::SocketAddr>,
    /// The names by which it may be asked beside `localhost`, in lower case.
    pub(crate) hosts: Vec<String>,
    /// The Unix socket through which things are changed.
    pub(crate) socket: Option<PathBuf>,
    /// Where the section was written.
    pub(crate) at: Place,
}

/// The fields that carry the caller's identity, in lower case and all different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdentityHeaders {
    pub(crate) issuer: String,
    pub(crate) subject: String,
    pub(crate) client_id: String,
    pub(crate) scopes: String,
    pub(crate) roles: String,
    /// Field name to claim.
    pub(crate) extra: BTreeMap<String, String>,
}

impl IdentityHeaders {
    /// Every field that only the gateway may set.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        [&self.issuer, &self.subject, &self.client_id, &self.scopes, &self.roles]
            .into_iter()
            .chain(self.extra.keys())
            .map(String::as_str)
    }
}

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listener {
    pub(crate) name: String,
    pub(crate) address: BindAddress,
    /// Permissions of a Unix socket; `0o660` where nothing is said.
    pub(crate) mode: u32,
    /// The port that every request is redirected to, under https.
    pub(crate) redirect_to_https: Option<u16>,
    pub(crate) proxy_protocol: ProxyProtocol,
    /// Who may speak the PROXY protocol; never empty on TCP where it is spoken.
    pub(crate) proxy_protocol_from: Vec<IpPrefix>,
    pub(crate) http2: bool,
    pub(crate) tls: Option<ListenerTls>,
    /// It has TLS, whose certificates were not read.
    pub(crate) is_stripped: bool,
    pub(crate) at: Place,
    /// Whether no error was found in it.
    pub(crate) is_sound: bool,
}

/// TLS of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListenerTls {
    pub(crate) min_version: TlsVersion,
    /// Sessions kept for resumption.
    pub(crate) sessions_max: u32,
    pub(crate) session_lifetime: Duration,
    /// Where present, tickets carry their sessions.
    pub(crate) stateless_tickets: Option<StatelessTickets>,
    /// Only where sessions are remembered.
    pub(crate) early_data: bool,
    /// Never empty; the first is the default.
    pub(crate) certificates: Vec<Certificate>,
}

/// Tickets that carry their sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatelessTickets {
    /// What the nodes of a fleet derive keys from; `None`: the process makes them.
    pub(crate) secret: Option<PathBuf>,
    /// Whether TLS 1.2 has them, too.
    pub(crate) tls12: bool,
}

/// A certificate with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Certificate {
    pub(crate) source: CertificateSource,
    /// In lower case; empty: the names in the certificate.
    pub(crate) hosts: Vec<String>,
    pub(crate) trust_domain: String,
    pub(crate) ocsp_staple: Option<OcspStaple>,
    pub(crate) client_certificate: ClientCertificateMode,
    /// Names of authorities that exist; not empty unless the mode is off.
    pub(crate) client_authorities: Vec<String>,
    pub(crate) at: Place,
    /// Whether no error was found in it.
    pub(crate) is_sound: bool,
}

/// Where responses about a certificate come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OcspStaple {
    /// The responder that it names.
    Fetch,
    /// A file.
    File(PathBuf),
}

/// Certificate authorities that vouch for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientAuthority {
    pub(crate) name: String,
    pub(crate) ca_file: PathBuf,
    pub(crate) crl_files: Vec<PathBuf>,
    pub(crate) at: Place,
    /// Whether no error was found in it.
    pub(crate) is_sound: bool,
}

/// What a route makes of client certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientCertificateRule {
    pub(crate) need: ClientCertificateNeed,
    /// Names of authorities that exist; empty: those of the host.
    pub(crate) authorities: Vec<String>,
    pub(crate) names: Vec<ClientName>,
    pub(crate) fingerprints: Vec<[u8; 32]>,
    /// In the form of a normalised authority.
    pub(crate) step_up: Option<StepUp>,
    pub(crate) forward: ClientCertificateForward,
    pub(crate) at: Place,
}

/// Where clients are asked for certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StepUp {
    /// A host that no pattern is.
    pub(crate) host: String,
    /// Other than 443.
    pub(crate) port: Option<u16>,
}

/// Where a certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CertificateSource {
    Files {
        chain: PathBuf,
        key: PathBuf,
    },
    /// The authority. The hosts are named, and none of them is a wildcard.
    Acme,
}

/// The authority that certificates come from.
#[derive(Debug)]
pub(crate) struct Acme {
    pub(crate) directory: Url,
    pub(crate) contacts: Vec<String>,
    /// The SQLite database.
    pub(crate) database: PathBuf,
    pub(crate) wrapping_key: Secret,
    pub(crate) ca_file: Option<PathBuf>,
    /// Never empty, each once.
    pub(crate) challenges: Vec<ChallengeKind>,
    pub(crate) external_account: Option<ExternalAccount>,
    pub(crate) key_type: CertificateKey,
    /// 5 to 90.
    pub(crate) renew_before_percent: u32,
    pub(crate) at: Place,
}

/// An account that the authority knows by other means.
#[derive(Debug)]
pub(crate) struct ExternalAccount {
    pub(crate) key_id: String,
    /// Its octets.
    pub(crate) hmac_key: Secret,
}

/// An issuer whose tokens are believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Issuer {
    pub(crate) name: String,
    /// The exact `iss`; empty with the Entra preset, whose tenants say it.
    pub(crate) issuer: String,
    /// Never empty.
    pub(crate) audiences: Vec<String>,
    pub(crate) keys: KeySource,
    pub(crate) algorithms: Vec<Algorithm>,
    pub(crate) types: Vec<String>,
    pub(crate) clock_skew: Duration,
    pub(crate) stale_keys_max: Duration,
    pub(crate) lifetime_max: Option<Duration>,
    pub(crate) verdicts_max: usize,
    pub(crate) allow_private_addresses: bool,
    /// In lower case.
    pub(crate) key_hosts: Vec<String>,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) claims: ClaimNames,
    pub(crate) preset: Option<EntraPreset>,
    pub(crate) at: Place,
    /// Whether no error was found in it.
    pub(crate) is_sound: bool,
}

/// Where an issuer's keys come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeySource {
    /// From the issuer's metadata.
    Discovery,
    /// From a URL.
    Url(Url),
    /// From a file.
    File(PathBuf),
    /// From our own authorization server.
    Local,
}

/// Microsoft Entra ID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntraPreset {
    /// Tenant ids in lower case; never empty.
    pub(crate) tenants: Vec<String>,
    pub(crate) version: EntraVersion,
}

/// The authorization server.
#[derive(Debug)]
pub(crate) struct AuthorizationServer {
    pub(crate) issuer: Url,
    /// The SQLite database.
    pub(crate) database: PathBuf,
    pub(crate) wrapping_key: Secret,
    pub(crate) algorithm: SigningAlgorithm,
    pub(crate) access_token_lifetime: Duration,
    pub(crate) default_audience: String,
    pub(crate) resources: Vec<String>,
    pub(crate) scopes: Vec<String>,
    pub(crate) key_lifetime: Duration,
    pub(crate) key_publish_ahead: Duration,
    /// At most half of the former.
    pub(crate) key_set_max_age: Option<Duration>,
    pub(crate) key_overlap: Duration,
    /// Whether its endpoints are there on every listener without a route.
    pub(crate) mount: bool,
    pub(crate) secrets: ClientSecrets,
    pub(crate) at: Place,
}

/// A database that is named, with what opens the private keys in it; what could not be resolved was reported.
#[derive(Debug)]
pub(crate) struct Database {
    /// The file.
    pub(crate) path: Option<PathBuf>,
    pub(crate) at: Place,
    pub(crate) wrapping_key: Option<Secret>,
    pub(crate) wrapping_key_at: Place,
    pub(crate) used_for: DatabaseUse,
}

/// What a database is used for.
#[derive(Debug)]
pub(crate) enum DatabaseUse {
    AuthorizationServer,
    Acme { directory: Option<Url> },
}

/// A secret, from a file or the environment; its memory is cleared when it goes.
#[derive(Clone)]
pub(crate) struct Secret {
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

    pub(super) fn from_environment(value: Zeroizing<Vec<u8>>, name: &str) -> Self {
        Self { value, origin: format!("${name}"), file: None }
    }

    /// Another form of it, from the same place.
    pub(super) fn replaced(self, value: Zeroizing<Vec<u8>>) -> Self {
        Self { value, ..self }
    }

    /// Who else may read or replace the file that it came from, where somebody may.
    pub(crate) fn exposure(&self) -> Option<String> {
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
    pub(crate) fn expose(&self) -> &[u8] {
        &self.value
    }

    /// Where it came from, for messages.
    pub(crate) fn origin(&self) -> &str {
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
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) connect_timeout: Duration,
    /// A template of what requests have in common that go to the same endpoint.
    pub(crate) hash_policy: Option<FieldTemplate>,
    pub(crate) tls: Option<ServiceTls>,
    pub(crate) pool: ServicePool,
    /// Never empty; addresses are unique.
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) at: Place,
    /// Whether no error was found in it.
    pub(crate) is_sound: bool,
}

/// TLS to a service's endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceTls {
    /// `None`: the system's authorities.
    pub(crate) ca_file: Option<PathBuf>,
    /// `None`: the host in the endpoint's address.
    pub(crate) server_name: Option<String>,
}

/// Pooled connections to each endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServicePool {
    pub(crate) idle_max: usize,
    pub(crate) connections_max: Option<usize>,
    pub(crate) idle_timeout: Duration,
}

/// One place where a service answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) address: Address,
    pub(crate) region: Option<String>,
    pub(crate) weight: u32,
}

/// Which requests go where, and who may make them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) name: String,
    /// In lower case, `*.` first where it stands for names one label below; empty: any host.
    pub(crate) hosts: Vec<String>,
    /// Names of listeners that exist, sorted; empty: all.
    pub(crate) listeners: Vec<String>,
    pub(crate) path: PathMatch,
    /// Empty: any.
    pub(crate) methods: Vec<String>,
    /// Field names in lower case with what is asked of them, sorted.
    pub(crate) headers: Vec<(String, HeaderCondition)>,
    pub(crate) auth: Auth,
    pub(crate) client_certificate: Option<ClientCertificateRule>,
    pub(crate) early_data: bool,
    pub(crate) destination: Destination,
    /// Whether the prefix of `path` is taken away; only with [`PathMatch::Prefix`].
    pub(crate) strip_prefix: bool,
    /// Template of the path that is forwarded, with the parameters of a pattern in braces.
    pub(crate) rewrite_path: Option<FieldTemplate>,
    pub(crate) allow_encoded: Vec<EncodedPathByte>,
    pub(crate) timeouts: RouteTimeouts,
    pub(crate) body_bytes_max: u64,
    pub(crate) forward_authorization: bool,
    pub(crate) request_headers: Vec<FieldEdits>,
    pub(crate) response_headers: Vec<FieldEdits>,
    pub(crate) when: Option<FieldTemplate>,
    /// Names of routes whose requests it takes on purpose though it asks for less.
    pub(crate) opens: Vec<String>,
    pub(crate) policy: Vec<PolicyRule>,
    pub(crate) attributes: Vec<AttributeEdits>,
    pub(crate) at: Place,
    /// Whether no error was found in it.
    pub(crate) is_sound: bool,
}

/// Which paths a route is for, in normalised form.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum PathMatch {
    /// This one.
    Exact(String),
    /// This one and all below, on segment boundaries; `/` is any.
    Prefix(String),
    /// Segments with `{name}`, and `{*name}` at the end.
    Pattern(String),
}

/// A condition on a header field.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum HeaderCondition {
    /// It is there.
    Present,
    /// It has this value.
    Exact(String),
}

/// Who may make a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Auth {
    /// Everyone.
    Public,
    /// Whoever has a token that fits one of these; never empty.
    Demand(Vec<Alternative>),
}

/// What a token must say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Alternative {
    /// The name of an issuer that exists.
    pub(crate) issuer: String,
    /// One of these; empty: the first of the issuer's.
    pub(crate) audiences: Vec<String>,
    /// All of these.
    pub(crate) scopes: Vec<String>,
    /// One of these; empty: none is needed.
    pub(crate) roles: Vec<String>,
}

/// Where requests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Destination {
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
    /// A built-in service.
    Builtin(Builtin),
}

impl Destination {
    /// In place of one that could not be resolved, in a configuration from which nothing is built.
    pub(super) fn unresolved() -> Self {
        Self::Respond { status: 503, content_type: "text/plain".to_owned(), body: Arc::default() }
    }
}

/// Timeouts of a route, with the general ones filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RouteTimeouts {
    pub(crate) request: Duration,
    pub(crate) request_body_idle: Duration,
    pub(crate) response_head: Duration,
    pub(crate) response_body_idle: Duration,
    pub(crate) token_expiry_grace: Duration,
}
