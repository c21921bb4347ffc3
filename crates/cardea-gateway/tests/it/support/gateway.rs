//! A gateway that listens, with a model made by hand.

use std::{
    collections::HashMap,
    net::{SocketAddr, TcpListener},
    os::unix::net::UnixListener,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use cardea_clock::{Clock, CoarseClock};
use cardea_env::{JsonRecord, Template};
use cardea_gateway::{
    attributes::{LOG_FIELDS, TABLE},
    builtin::BuiltIn,
    client_certificate::{ClientCertificateRule, own_headers},
    gateway::Gateway,
    hints::hints,
    listener::{ListenSocket, Serving, watch},
    metrics::{ListenerMetrics, RouteMetrics, ServiceMetrics},
    model::{
        AllowEncoded, ConnectionTimeouts, Destination, EnvironmentModel, Forwarding, HeaderRule,
        IdentityField, IdentityHeaders, Limits, ListenerModel, LogFormat, LogModel, Model, Prefix,
        ProxyProtocol, Rewrite, Route, RouteRules, Service, ServiceTls, Timeouts,
    },
    record::{AccessLog, AccessLogConfig, Registry, Sink},
    routing::{PathMatch, RouteMatch, Router},
    workers::Workers,
};
use cardea_http::{ForwardedHeader, ForwardedPolicy};
use cardea_identity::{AccessRequirement, Alternative, IssuerConfig};
use cardea_tls::{HostRequirements, ServerTls};
use cardea_upstream::{
    Address, Balance, Connections, EndpointConfig, HealthConfig, PoolConfig, RetryConfig, ServiceConfig,
    ServiceState,
};
use serde_json::{Value, json};

use super::{Client, Origin, tokens::Issuer};

pub(crate) struct ServiceSpec {
    pub(crate) name: &'static str,
    pub(crate) endpoints: Vec<Address>,
    pub(crate) pool: PoolConfig,
    pub(crate) balance: Balance,
    pub(crate) health: HealthConfig,
    pub(crate) retry: RetryConfig,
    pub(crate) tls: Option<ServiceTls>,
    pub(crate) hash_policy: Option<&'static str>,
}

pub(crate) struct RouteSpec {
    pub(crate) name: &'static str,
    pub(crate) matches: RouteMatch,
    /// Scopes and audiences; public where there is none.
    pub(crate) demand: Option<(Vec<&'static str>, Vec<&'static str>)>,
    pub(crate) service: &'static str,
    /// In place of the service.
    pub(crate) builtin: Option<Arc<dyn BuiltIn>>,
    pub(crate) timeouts: Timeouts,
    pub(crate) body_bytes_max: u64,
    pub(crate) allow: AllowEncoded,
    pub(crate) rewrite: fn() -> Rewrite,
    pub(crate) forward_authorization: bool,
    pub(crate) request_headers: Vec<(&'static str, &'static str)>,
    pub(crate) response_headers: Vec<(&'static str, &'static str)>,
    pub(crate) client_certificate: Option<ClientCertificateRule>,
    pub(crate) early_data: bool,
    pub(crate) rules: fn() -> RouteRules,
    /// Further changes to headers, of requests and of responses.
    pub(crate) rules_of_headers: fn() -> (Vec<HeaderRule>, Vec<HeaderRule>),
}

impl RouteSpec {
    pub(crate) fn new(name: &'static str, prefix: &str) -> Self {
        Self {
            name,
            matches: RouteMatch::new(PathMatch::Prefix(prefix.into())),
            demand: None,
            service: "main",
            builtin: None,
            timeouts: Timeouts::default(),
            body_bytes_max: u64::MAX,
            allow: AllowEncoded::default(),
            rewrite: || Rewrite::None,
            forward_authorization: true,
            request_headers: Vec::new(),
            response_headers: Vec::new(),
            client_certificate: None,
            early_data: false,
            rules: RouteRules::default,
            rules_of_headers: Default::default,
        }
    }

    fn build(&self, services: &HashMap<&str, Arc<Service>>) -> Arc<Route> {
        let demand = self.demand.as_ref().map(|(scopes, audiences)| AccessRequirement {
            alternatives: vec![Alternative {
                issuer: "main".into(),
                audiences: audiences.iter().map(|text| (*text).to_owned()).collect(),
                scopes: scopes.iter().map(|text| (*text).to_owned()).collect(),
                roles: Vec::new(),
            }],
        });
        let rules = |rules: &[(&'static str, &'static str)]| {
            let rule = |(name, template): &(&str, &str)| match *template {
                "" => HeaderRule::Remove((*name).to_owned()),
                text => HeaderRule::Set((*name).to_owned(), Template::compile(text, &TABLE).unwrap()),
            };
            rules.iter().map(rule).collect::<Vec<_>>()
        };
        let (mut request_headers, mut response_headers) = (self.rules_of_headers)();
        request_headers.extend(rules(&self.request_headers));
        response_headers.extend(rules(&self.response_headers));
        Arc::new(Route {
            name: self.name.into(),
            demand,
            client_certificate: self.client_certificate.clone(),
            early_data: self.early_data,
            destination: match &self.builtin {
                Some(builtin) => Destination::BuiltIn(Arc::clone(builtin)),
                None => Destination::Service(Arc::clone(&services[self.service])),
            },
            timeouts: self.timeouts.clone(),
            body_bytes_max: self.body_bytes_max,
            allow: self.allow,
            rewrite: (self.rewrite)(),
            forward_authorization: self.forward_authorization,
            request_headers: request_headers.into(),
            response_headers: response_headers.into(),
            is_bound: !self.matches.listeners.is_empty(),
            rules: (self.rules)(),
            metrics: Arc::new(RouteMetrics::new(self.name)),
        })
    }
}

/// What a test says of its gateway.
pub(crate) struct Spec {
    pub(crate) services: Vec<ServiceSpec>,
    pub(crate) routes: Vec<RouteSpec>,
    pub(crate) limits: Limits,
    pub(crate) timeouts: ConnectionTimeouts,
    pub(crate) trusted_proxies: Vec<Prefix>,
    pub(crate) policy: ForwardedPolicy,
    /// Hints of strangers that pass.
    pub(crate) kept_hints: &'static [&'static str],
    pub(crate) tls: Option<Arc<ServerTls>>,
    pub(crate) proxy_protocol: Option<ProxyProtocol>,
    pub(crate) redirect_to_https: Option<u16>,
    /// Listeners beside the one called `test`, which [`Harness::listen`] opens.
    pub(crate) more_listeners: Vec<(&'static str, Option<Arc<ServerTls>>)>,
    /// In place of the system's.
    pub(crate) clock: Option<Clock>,
    pub(crate) log: fn() -> LogModel,
    pub(crate) environment: fn() -> EnvironmentModel,
    /// Changes the issuer.
    pub(crate) issuer: fn(IssuerConfig) -> IssuerConfig,
}

impl Spec {
    /// One service, and routes that differ in what they ask for.
    pub(crate) fn to(origin: &Origin) -> Self {
        Self::to_addresses([Address::Tcp(origin.address)])
    }

    pub(crate) fn to_addresses(endpoints: impl IntoIterator<Item = Address>) -> Self {
        let guarded = |name, prefix, scopes, audiences| RouteSpec {
            demand: Some((scopes, audiences)),
            ..RouteSpec::new(name, prefix)
        };
        Self {
            services: vec![ServiceSpec {
                name: "main",
                endpoints: endpoints.into_iter().collect(),
                pool: PoolConfig::default(),
                balance: Balance::default(),
                health: HealthConfig::default(),
                retry: RetryConfig::default(),
                tls: None,
                hash_policy: None,
            }],
            routes: vec![
                RouteSpec::new("public", "/"),
                guarded("api", "/api", vec![], vec!["api"]),
                guarded("admin", "/admin", vec!["admin"], vec!["api"]),
                guarded("other", "/other", vec![], vec!["api2"]),
            ],
            // All clients of a test have the same address.
            limits: Limits { connections_per_prefix_max: Some(u32::MAX), ..Limits::default() },
            timeouts: ConnectionTimeouts::default(),
            trusted_proxies: Vec::new(),
            policy: ForwardedPolicy::Set,
            kept_hints: &[],
            tls: None,
            proxy_protocol: None,
            redirect_to_https: None,
            more_listeners: Vec::new(),
            clock: None,
            log: || LogFormat::Json(JsonRecord::compile(LOG_FIELDS.iter().copied(), &TABLE).unwrap()).into(),
            environment: EnvironmentModel::default,
            issuer: |config| config,
        }
    }

    /// Changes the public route.
    pub(crate) fn public(mut self, change: impl FnOnce(&mut RouteSpec)) -> Self {
        change(&mut self.routes[0]);
        self
    }

    pub(crate) fn timeouts(self, change: impl FnOnce(&mut Timeouts)) -> Self {
        self.public(|route| change(&mut route.timeouts))
    }

    fn listeners(&self) -> HashMap<String, Arc<ListenerModel>> {
        let of = |name: &'static str, tls: Option<Arc<ServerTls>>| {
            let model = ListenerModel {
                name: name.into(),
                tls,
                proxy_protocol: self.proxy_protocol.clone(),
                redirect_to_https: self.redirect_to_https,
                http2: true,
                metrics: Arc::new(ListenerMetrics::new(name)),
            };
            (name.to_owned(), Arc::new(model))
        };
        let more = self.more_listeners.iter().map(|(name, tls)| of(name, tls.clone()));
        more.chain([of("test", self.tls.clone())]).collect()
    }

    fn secure_listeners(&self) -> Vec<(&'static str, Arc<ServerTls>)> {
        let more = self.more_listeners.iter().filter_map(|(name, tls)| Some((*name, tls.clone()?)));
        self.tls.iter().map(|tls| ("test", Arc::clone(tls))).chain(more).collect()
    }

    pub(crate) fn model(&self, issuer: &Issuer) -> Arc<Model> {
        let services = self.services.iter().map(|spec| {
            let endpoints = spec.endpoints.iter().cloned().map(EndpointConfig::new).collect();
            let config = ServiceConfig {
                pool: spec.pool,
                balance: spec.balance,
                health: spec.health,
                retry: spec.retry,
                ..ServiceConfig::new(spec.name, endpoints)
            };
            let state = ServiceState::reconcile(&config, None, Connections::Kept).unwrap();
            let regions = spec.endpoints.iter().map(|address| (address.to_string(), "eu-west".to_owned()));
            let service = Service {
                name: spec.name.into(),
                state,
                tls: spec.tls.clone(),
                connect_timeout: None,
                hash_policy: spec.hash_policy.map(|text| Template::compile_raw(text, &TABLE).unwrap()),
                regions: regions.collect(),
                metrics: Arc::new(ServiceMetrics::new(spec.name)),
            };
            (spec.name, Arc::new(service))
        });
        let services: HashMap<&str, Arc<Service>> = services.collect();
        let routes = self.routes.iter().map(|spec| (spec.matches.clone(), spec.build(&services))).collect();
        let fields = vec![
            ("x-auth-subject".to_owned(), IdentityField::Subject),
            ("x-auth-issuer".to_owned(), IdentityField::Issuer),
        ];
        let names = own_headers(fields.iter().map(|(name, _)| name.as_str())).unwrap();
        Arc::new(Model {
            router: Router::new(routes).unwrap(),
            authenticator: Arc::clone(&issuer.authenticator),
            services: services.values().map(Arc::clone).collect(),
            listeners: self.listeners(),
            requirements: HostRequirements::new(self.secure_listeners()),
            limits: self.limits.clone(),
            timeouts: self.timeouts,
            trusted_proxies: self.trusted_proxies.clone(),
            forwarding: Forwarding {
                via: "cardea".into(),
                policy: self.policy,
                header: ForwardedHeader::XForwarded,
                strangers: names.clone().and(&hints(self.kept_hints).unwrap()),
            },
            identity_headers: IdentityHeaders { names, fields },
            region: Some("eu-west".into()),
            access_log: Some((self.log)()),
            environment: (self.environment)(),
        })
    }

    /// Starts a gateway on a free port.
    pub(crate) async fn start(self) -> Harness {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        self.serve(&Workers::here(), ListenSocket::Tcp(socket), address, None)
    }

    /// Starts a gateway with so many workers; the first accepts.
    pub(crate) async fn start_with_workers(mut self, count: usize) -> Harness {
        for service in &mut self.services {
            service.pool.workers = count;
        }
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        self.serve(&Workers::start(count).unwrap(), ListenSocket::Tcp(socket), address, None)
    }

    /// Starts a gateway on a Unix socket.
    pub(crate) async fn start_unix(self) -> Harness {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.sock");
        let socket = UnixListener::bind(&path).unwrap();
        self.serve(&Workers::here(), ListenSocket::Unix(socket), SocketAddr::from(([0; 4], 0)), Some(path))
            .keeping(folder)
    }

    fn serve(
        self,
        workers: &Arc<Workers>,
        socket: ListenSocket,
        address: SocketAddr,
        path: Option<PathBuf>,
    ) -> Harness {
        let issuer = Issuer::new(self.issuer);
        let coarse = CoarseClock::start(Duration::from_millis(2)).unwrap();
        let clock = self.clock.clone().unwrap_or_else(|| coarse.clock());
        let registry = Arc::new(Registry::new());
        let gateway = Gateway::new(self.model(&issuer), clock, Arc::clone(&registry)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let log_path = folder.path().join("access.log");
        let config = AccessLogConfig { sink: Sink::File(log_path.clone()), ..AccessLogConfig::default() };
        gateway.set_access_log(Some(Arc::new(AccessLog::start(config, coarse.clock()).unwrap())));
        let serving = watch(workers, vec![socket]).unwrap().serve(&gateway, workers, "test");
        let workers = Arc::clone(workers);
        Harness {
            gateway,
            registry,
            address,
            path,
            issuer,
            log_path,
            serving,
            more_serving: Vec::new(),
            workers,
            _coarse: coarse,
            folders: vec![folder],
        }
    }
}

/// A gateway that runs until it is dropped.
pub(crate) struct Harness {
    pub(crate) gateway: Arc<Gateway>,
    registry: Arc<Registry>,
    pub(crate) address: SocketAddr,
    pub(crate) path: Option<PathBuf>,
    pub(crate) issuer: Issuer,
    log_path: PathBuf,
    pub(crate) serving: Serving,
    more_serving: Vec<Serving>,
    workers: Arc<Workers>,
    _coarse: CoarseClock,
    folders: Vec<tempfile::TempDir>,
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.serving.stop();
        self.more_serving.iter().for_each(Serving::stop);
    }
}

impl Harness {
    pub(crate) fn keeping(mut self, folder: tempfile::TempDir) -> Self {
        self.folders.push(folder);
        self
    }

    /// Opens another of the listeners, by a free port.
    pub(crate) fn listen(&mut self, name: &str) -> SocketAddr {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let watched = watch(&self.workers, vec![ListenSocket::Tcp(socket)]).unwrap();
        self.more_serving.push(watched.serve(&self.gateway, &self.workers, name));
        address
    }

    /// The same by a Unix socket.
    pub(crate) fn listen_unix(&mut self, name: &str) -> PathBuf {
        let path = self.log_path.with_file_name(format!("{name}.sock"));
        let socket = UnixListener::bind(&path).unwrap();
        let watched = watch(&self.workers, vec![ListenSocket::Unix(socket)]).unwrap();
        self.more_serving.push(watched.serve(&self.gateway, &self.workers, name));
        path
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    /// A token that the routes `/api` take.
    pub(crate) fn token(&self) -> String {
        self.token_with(&json!({}))
    }

    pub(crate) fn token_with(&self, claims: &Value) -> String {
        self.issuer.token(self.gateway.clock.now().wall.unix_seconds(), claims)
    }

    /// The lines of the access log, of which there must be `count`.
    pub(crate) async fn log(&self, count: usize) -> Vec<Value> {
        let mut lines: Vec<Value> = Vec::new();
        super::until("the access log is complete", || {
            assert!(self.gateway.access_log().unwrap().flush(Duration::from_secs(5)));
            let text = std::fs::read_to_string(&self.log_path).unwrap();
            lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            lines.len() >= count
        })
        .await;
        assert_eq!(lines.len(), count, "{lines:#?}");
        lines
    }

    /// Stops the workers under what is in flight.
    pub(crate) fn stop_workers(&self) {
        self.workers.stop();
    }

    /// Whether this line is among the metrics.
    pub(crate) fn has_metric(&self, line: &str) -> bool {
        let mut text = String::new();
        self.registry.render(&mut text);
        text.lines().any(|other| other == line)
    }

    /// The value behind a name with its labels among the metrics; 0 if it is not there.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let mut text = String::new();
        self.registry.render(&mut text);
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_default()
    }

    pub(crate) fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log_path).unwrap()
    }
}
