//! Builds a [`Model`] from a configuration. Everything that can fail at a reload fails here, before anything changes.

mod admission;
mod client_certificates;
mod listeners;
mod mount;
mod throttles;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
};

use cardea_clock::{Clock, CoarseClock, Mono, PERIOD_DEFAULT};
use cardea_env::Template;
use cardea_gateway::{
    builtin::BuiltIn,
    exchange::Exchange,
    metrics::{RouteMetrics, ServiceMetrics},
    model::{
        Destination, Mirror, MirrorStats, Model, Protocol, Route, Service, ServiceTls, Share, Split,
        TarpitAction,
    },
    routing::Router,
};
use cardea_identity::{AccessRequirement, Authenticator, Fetch, IssuerConfig, KeySource, LocalKeys, NoFetch};
use cardea_tls::{
    ClientAuthority, ClientTlsConfig, ManagedCertificate, ServerTlsConfig, TlsError, client_config,
};
use cardea_upstream::{
    Connections, LiveService, Locality, PoolConfig, ResolvedNames, ServiceConfig, ServiceState,
};

use self::admission::AdmissionParts;
use super::{
    model::{self, Config, Located},
    problem::{Problem, Severity},
    source::Location,
};

/// The objects that a configuration names and the program provides.
pub trait Provider: Send + Sync {
    /// The built-in destination.
    fn builtin(&self, which: model::BuiltIn) -> Arc<dyn BuiltIn>;

    /// The slot for the certificate of these hosts that an authority issues; `None` if no authority was opened, as in a
    /// check.
    fn certificate(&self, hosts: &[String]) -> Option<Arc<ManagedCertificate>>;
}

/// The objects that all models of a process share.
pub struct Foundation {
    /// The clock for checks of certificates.
    pub clock: Clock,
    /// Fetches key sets.
    pub fetch: Arc<dyn Fetch>,
    /// The keys of local issuers.
    pub local_keys: LocalKeys,
    /// The objects that the program provides.
    pub provider: Arc<dyn Provider>,
    /// What names of endpoints were resolved to.
    pub names: Arc<ResolvedNames>,
    /// The number of workers.
    pub workers: usize,
    /// Whether unusable certificates are left out, so that the others are served at a start. A check tolerates none.
    pub tolerates_certificates: bool,
}

/// A model that is ready to be used.
pub struct Built {
    /// The model.
    pub model: Arc<Model>,
    /// The services, by name.
    pub services: HashMap<String, Arc<Service>>,
    /// The authorities of client certificates, by name.
    pub client_authorities: HashMap<String, Arc<ClientAuthority>>,
    /// Settings that probably do not do what their author wants.
    pub warnings: Vec<Problem>,
    /// Certificates that were not loaded and whose hosts can't be told: what hosts require of clients is not known then.
    pub unknown_hosts: Vec<PathBuf>,
    /// The settings that each listener's TLS was loaded by, by name.
    tls: HashMap<String, ServerTlsConfig>,
    /// The TLS settings of connections to each service, by name.
    service_ways: HashMap<String, (Protocol, Option<model::ServiceTls>)>,
    /// The metrics of each route, by name.
    route_metrics: HashMap<String, Arc<RouteMetrics>>,
    /// What is counted of the mirror of each route, by the route's name.
    mirror_stats: HashMap<String, Arc<MirrorStats>>,
    /// The settings of each throttle, in the order of the model's.
    throttles: Vec<model::Throttle>,
}

impl Built {
    /// Takes over the state of `previous`'s services. Call it once, after the model has become the current one.
    pub fn succeed(&self, previous: &Self, now: Mono) {
        for (name, service) in &self.services {
            let old = previous.services.get(name).map(|old| old.live.state());
            service.live.state().activate(old.as_deref(), now);
        }
        for (name, old) in &previous.services {
            if !self.services.contains_key(name) {
                old.live.state().retire();
            }
        }
    }

    /// The certificate files that can't be used.
    fn unusable_certificates(&self) -> HashSet<PathBuf> {
        let tls = self.model.listeners.values().filter_map(|listener| listener.tls.as_ref());
        let states = tls.flat_map(|tls| tls.certificate_states().to_vec());
        states.filter(|state| state.served.is_none()).map(|state| state.path).collect()
    }
}

/// Builds the model of `config`. Long-lived objects are taken over from `previous`.
///
/// # Errors
/// All problems, sorted by file and line.
pub fn build(
    config: &Config,
    foundation: &Foundation,
    previous: Option<&Built>,
) -> Result<Built, Vec<Problem>> {
    let mut builder = Builder {
        config,
        foundation,
        previous,
        problems: Vec::new(),
        warnings: Vec::new(),
        client_authorities: HashMap::new(),
        tls: HashMap::new(),
        service_ways: HashMap::new(),
        route_metrics: HashMap::new(),
        mirror_stats: HashMap::new(),
        locality: Arc::new(Locality::new(
            config.region.clone(),
            config.region_positions.iter().cloned(),
            previous.map(|built| &*built.model.locality),
        )),
        admission: AdmissionParts::new(
            previous.map(|built| built.model.admission.queue.clone()),
            foundation.workers,
        ),
    };
    builder.client_authorities();
    let throttles = builder.throttles();
    let listeners = builder.listeners();
    let (issuers, authenticator) = builder.identity();
    let mut services = builder.services();
    let router = builder.router(&issuers, &services);
    builder.check_client_certificates(&listeners);
    builder.check_something_is_served(&listeners);
    let (requirements, unknown_hosts) = builder.requirements(&listeners);
    builder.check_certificates_of_routes(&listeners);
    builder.problems.sort_by(|one, other| {
        (&one.file, one.line, one.column).cmp(&(&other.file, other.line, other.column))
    });
    let (Some(router), Some(authenticator)) = (router, authenticator) else { return Err(builder.problems) };
    if !builder.problems.is_empty() || !config.is_sound {
        return Err(builder.problems);
    }
    services.sort_by(|one, other| one.name.cmp(&other.name));
    let tarpit = &config.general.tarpit;
    let model = Model {
        router,
        authenticator,
        services: services.clone(),
        listeners,
        requirements,
        limits: config.general.limits.clone(),
        timeouts: config.general.connections,
        trusted_proxies: config.trusted_proxies.clone(),
        forwarding: config.forwarding.clone(),
        identity_headers: config.identity_headers.clone(),
        region: config.region.clone(),
        locality: builder.locality,
        access_log: config.access_log.as_ref().map(|log| log.lines.clone()),
        environment: config.environment.clone(),
        throttles,
        tarpit: (tarpit.action != TarpitAction::Off).then(|| tarpit.clone()),
        admission: builder.admission.into_model(&config.general.admission),
    };
    let services = services.into_iter().map(|service| (service.name.clone(), service)).collect();
    Ok(Built {
        model: Arc::new(model),
        services,
        client_authorities: builder.client_authorities,
        warnings: builder.warnings,
        unknown_hosts,
        tls: builder.tls,
        service_ways: builder.service_ways,
        route_metrics: builder.route_metrics,
        mirror_stats: builder.mirror_stats,
        throttles: config.throttles.iter().map(|throttle| throttle.value.clone()).collect(),
    })
}

/// Builds a model for its problems and warnings, and drops it. Nothing is opened, bound or fetched. Of a configuration
/// with errors, the sound parts are checked.
///
/// # Errors
/// The problems, or else the warnings.
pub fn check(config: &Config, provider: Arc<dyn Provider>) -> Result<(), Vec<Problem>> {
    // Read once, for the validity of certificates.
    let clock = CoarseClock::start(PERIOD_DEFAULT).map_err(|error| {
        vec![config.problem(
            Location::default(),
            format!("no clock: {error}"),
            "see the error of the operating system",
        )]
    })?;
    let foundation = Foundation {
        clock: clock.clock(),
        fetch: Arc::new(NoFetch),
        local_keys: LocalKeys::new(),
        provider,
        names: Arc::default(),
        workers: 1,
        tolerates_certificates: false,
    };
    let warnings = build(config, &foundation, None)?.warnings;
    if warnings.is_empty() { Ok(()) } else { Err(warnings) }
}

struct Builder<'a> {
    config: &'a Config,
    foundation: &'a Foundation,
    previous: Option<&'a Built>,
    /// What is known of regions.
    locality: Arc<Locality>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
    client_authorities: HashMap<String, Arc<ClientAuthority>>,
    tls: HashMap<String, ServerTlsConfig>,
    service_ways: HashMap<String, (Protocol, Option<model::ServiceTls>)>,
    route_metrics: HashMap<String, Arc<RouteMetrics>>,
    mirror_stats: HashMap<String, Arc<MirrorStats>>,
    admission: AdmissionParts,
}

impl Builder<'_> {
    fn problem(&mut self, at: Location, message: impl ToString, remedy: &str) {
        if !self.config.sources.is_judged(at) {
            return;
        }
        self.problems.push(self.config.problem(at, message.to_string(), remedy));
    }

    fn warn(&mut self, at: Location, message: String, remedy: &str) {
        let problem = self.config.problem(at, message, remedy);
        self.warnings.push(Problem { severity: Severity::Warning, ..problem });
    }

    /// The metrics of a route are kept as long as a route of its name exists.
    fn route_metrics(&mut self, name: &str) -> Arc<RouteMetrics> {
        let known = self.previous.and_then(|built| built.route_metrics.get(name));
        let metrics = known.map_or_else(|| Arc::new(RouteMetrics::new(name)), Arc::clone);
        Arc::clone(self.route_metrics.entry(name.to_owned()).or_insert(metrics))
    }

    fn identity(&mut self) -> (Vec<IssuerConfig>, Option<Arc<Authenticator>>) {
        let issuers: Vec<IssuerConfig> = self
            .config
            .issuers
            .iter()
            .filter(|issuer| issuer.is_sound)
            .map(|issuer| with_keys(&issuer.value, &self.foundation.local_keys))
            .collect();
        let old = self.previous.map(|built| &*built.model.authenticator);
        // Disabling a client revokes its tokens only if the issuer is known to be the built-in one.
        if let Some(server) = &self.config.authorization_server {
            let ours = server.settings.issuer_text();
            let config = self.config;
            let foreign = |issuer: &&Located<IssuerConfig>| {
                !matches!(issuer.keys, KeySource::Local(_)) && issuer.issuer.trim_end_matches('/') == ours
            };
            for issuer in config.issuers.iter().filter(foreign) {
                let message = format!("issuer \"{}\" is our own authorization server", issuer.name);
                self.problem(issuer.at, message, "write local = true in place of where its keys are");
            }
        }
        let errors = Authenticator::check(&issuers);
        for error in &errors {
            let named =
                self.config.issuers.iter().find(|issuer| Some(issuer.name.as_str()) == error.issuer());
            let at = named.map_or_else(Location::default, |issuer| issuer.at);
            self.problem(at, error, "see [[issuer]] in docs/configuration.md");
        }
        if !errors.is_empty() {
            return (issuers, None);
        }
        match Authenticator::new(issuers.clone(), old, Arc::clone(&self.foundation.fetch)) {
            Ok(authenticator) => (issuers, Some(Arc::new(authenticator))),
            Err(error) => {
                self.problem(Location::default(), error, "see [[issuer]] in docs/configuration.md");
                (issuers, None)
            }
        }
    }

    fn services(&mut self) -> Vec<Arc<Service>> {
        let mut services = Vec::with_capacity(self.config.services.len());
        // Clients with equal settings share one configuration, which contains the roots.
        let mut shared: Vec<(ClientTlsConfig, Arc<rustls::ClientConfig>)> = Vec::new();
        for service in self.config.services.iter().filter(|service| service.is_sound) {
            let tls = match &service.tls {
                None => None,
                Some(tls) => match service_tls(tls, service.protocol, &mut shared) {
                    Ok(tls) => Some(tls),
                    Err(error) => {
                        self.problem(service.at, error, "see [service.tls] in docs/configuration.md");
                        continue;
                    }
                },
            };
            let name = &service.config.name;
            let settings = ServiceConfig {
                pool: PoolConfig { workers: self.foundation.workers, ..service.config.pool },
                locality: Arc::clone(&self.locality),
                endpoints: self.foundation.names.expand(&service.endpoints),
                ..service.config.clone()
            };
            let old = self.previous.and_then(|built| built.services.get(name));
            let old_state = old.map(|old| old.live.state());
            let old_way = self.previous.and_then(|built| built.service_ways.get(name));
            let way = (service.protocol, service.tls.clone());
            let connections = if old_way == Some(&way) { Connections::Kept } else { Connections::Dropped };
            self.service_ways.insert(name.clone(), way);
            match ServiceState::reconcile(&settings, old_state.as_ref(), connections) {
                Ok(state) => services.push(Arc::new(Service {
                    name: name.clone(),
                    live: LiveService::new(&state),
                    tls,
                    protocol: service.protocol,
                    streams_max: settings.pool.streams_max,
                    connect_timeout: Some(service.connect_timeout),
                    hash_policy: service.hash_policy.clone(),
                    metrics: old
                        .map_or_else(|| Arc::new(ServiceMetrics::new(name)), |old| Arc::clone(&old.metrics)),
                })),
                Err(error) => self.problem(service.at, error, "see [[service]] in docs/configuration.md"),
            }
        }
        services
    }

    /// The services of a split. One that could not be built was reported already.
    fn split(
        &mut self,
        route: &Located<model::Route>,
        key: Option<Template<Exchange>>,
        shares: &[model::Share],
        services: &HashMap<&str, &Arc<Service>>,
    ) -> Option<Split> {
        let mut built = Vec::with_capacity(shares.len());
        for model::Share { index, weight, throttles } in shares {
            let name = self.config.services.get(*index)?.config.name.as_str();
            let service = Arc::clone(services.get(name)?);
            built.push(Share {
                admission: self.service_admission(route, &service),
                service,
                weight: *weight,
                throttles: throttles.clone(),
            });
        }
        let split = Split::new(key, built);
        split.map_err(|error| self.problem(route.at, error, "see split in docs/splitting.md")).ok()
    }

    /// The mirror of a route. A service that could not be built was reported already.
    fn mirror(
        &mut self,
        route: &str,
        mirror: &model::Mirror,
        services: &HashMap<&str, &Arc<Service>>,
    ) -> Option<Arc<Mirror>> {
        let model::Mirror { index, sample_one_in, in_flight_max, timeout, forward_authorization } = *mirror;
        let name = self.config.services.get(index)?.config.name.as_str();
        let known = self.previous.and_then(|built| built.mirror_stats.get(route));
        let stats = known.map_or_else(Arc::default, Arc::clone);
        self.mirror_stats.insert(route.to_owned(), Arc::clone(&stats));
        let service = Arc::clone(services.get(name)?);
        Some(Arc::new(Mirror {
            service,
            sample_one_in,
            in_flight_max,
            timeout,
            forward_authorization,
            stats,
        }))
    }

    fn router(&mut self, issuers: &[IssuerConfig], services: &[Arc<Service>]) -> Option<Router<Arc<Route>>> {
        let mut routes = Vec::with_capacity(self.config.routes.len() + 5);
        let mut places = Vec::with_capacity(self.config.routes.len());
        let by_name: HashMap<&str, &Arc<Service>> =
            services.iter().map(|service| (service.name.as_str(), service)).collect();
        for route in self.config.routes.iter().filter(|route| route.is_sound) {
            let Some(model) = self.route(route, issuers, &by_name) else { continue };
            routes.push((route.matches.clone(), Arc::new(model)));
            places.push(route);
        }
        self.mount_issuer(&mut routes);
        match Router::new(routes) {
            Ok(router) => Some(router),
            Err(error) => {
                let at = error
                    .route()
                    .and_then(|index| places.get(index))
                    .map_or_else(Location::default, |route| route.at);
                self.problem(at, error, "change one of the routes");
                None
            }
        }
    }

    fn route(
        &mut self,
        route: &Located<model::Route>,
        issuers: &[IssuerConfig],
        services: &HashMap<&str, &Arc<Service>>,
    ) -> Option<Route> {
        let requirement = match &route.auth {
            model::Auth::Public => None,
            model::Auth::AccessRequirement(alternatives) => {
                match AccessRequirement::resolve(alternatives.clone(), issuers) {
                    Ok(requirement) => Some(requirement),
                    Err(error) => {
                        self.problem(route.at, error, "see auth in docs/configuration.md");
                        return None;
                    }
                }
            }
        };
        let destination = match &route.destination {
            // A service that could not be built was reported already.
            model::Destination::Service { index } => {
                let name = self.config.services.get(*index)?.config.name.as_str();
                Destination::Service(services.get(name).map(|service| Arc::clone(service))?)
            }
            model::Destination::Split { key, shares } => {
                let split = self.split(route, key.clone(), shares, services)?;
                Destination::Split(split)
            }
            model::Destination::Redirect { to, keep_query, status } => {
                Destination::Redirect { to: to.clone(), keep_query: *keep_query, status: *status }
            }
            model::Destination::Respond { status, content_type, body } => Destination::Static {
                status: *status,
                content_type: content_type.clone(),
                body: Arc::clone(body),
            },
            model::Destination::BuiltIn(which) => {
                Destination::BuiltIn(self.foundation.provider.builtin(*which))
            }
        };
        let mirror = match &route.mirror {
            Some(mirror) => Some(self.mirror(&route.name, mirror, services)?),
            None => None,
        };
        let admission = self.route_admission(route, &destination);
        Some(Route {
            name: route.name.clone(),
            requirement,
            client_certificate: route.client_certificate.as_ref().map(|rule| self.client_certificate(rule)),
            destination,
            mirror,
            is_bound: !route.matches.listeners.is_empty(),
            settings: route.settings.clone(),
            admission,
            metrics: self.route_metrics(&route.name),
        })
    }
}

/// An issuer in the authenticator's form; local keys are those of this process.
fn with_keys(issuer: &IssuerConfig, local_keys: &LocalKeys) -> IssuerConfig {
    let mut issuer = issuer.clone();
    if let KeySource::Local(keys) = &mut issuer.keys {
        keys.clone_from(local_keys);
    }
    issuer
}

/// The TLS of a service. Services with equal settings share their roots.
fn service_tls(
    tls: &model::ServiceTls,
    protocol: Protocol,
    shared: &mut Vec<(ClientTlsConfig, Arc<rustls::ClientConfig>)>,
) -> Result<ServiceTls, TlsError> {
    let mut choosing = |alpn: &[&[u8]]| -> Result<_, TlsError> {
        let alpn = alpn.iter().map(|name| name.to_vec()).collect();
        let settings = ClientTlsConfig { alpn, ..tls.client.clone() };
        if let Some((_, config)) = shared.iter().find(|(other, _)| *other == settings) {
            return Ok(Arc::clone(config));
        }
        let config = client_config(&settings)?;
        shared.push((settings, Arc::clone(&config)));
        Ok(config)
    };
    let (config, http2) = match protocol {
        Protocol::Http1 => (choosing(&[])?, None),
        Protocol::Auto => (choosing(&[b"http/1.1"])?, Some(choosing(&[b"h2", b"http/1.1"])?)),
        Protocol::Http2 => (choosing(&[b"http/1.1"])?, Some(choosing(&[b"h2"])?)),
    };
    let server_name = tls.server_name.clone();
    Ok(ServiceTls { config, http2, server_name, handshake_warnings: Arc::default() })
}
