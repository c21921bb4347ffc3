//! Resolves the written form: references, addresses, files, and checks that involve more than one key.

mod access_log;
mod acme;
mod admission;
mod attributes;
mod client_certificate;
mod compile;
mod destination;
mod files;
mod headers;
mod identity;
mod listener;
mod mirror;
mod overlap;
mod path;
mod precedence;
mod references;
mod route;
mod rules;
mod service;
mod split;
mod tarpit;
mod throttle;

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use cardea_gateway::{
    exchange::Exchange,
    model::{EnvironmentModel, IdentityHeaders, Timeouts},
};
use cardea_http::ForwardedPolicy;
use cardea_identity::IssuerConfig;
use cardea_upstream::is_host_name;

pub use self::access_log::hostname;
#[cfg(test)]
pub(super) use self::attributes::map_of;
use self::compile::{HeadersUsed, fixed_names, is_path, is_time};
pub(super) use self::throttle::{throttles_of, throttles_read_path};
use super::{
    Environment, KeyFiles,
    check::Dropped,
    document::{Cursor, Node},
    fingerprint::{Contents, Fingerprint},
    model::{
        Acme, Admin, AuthorizationServer, Config, Database, General, Listener, Located, Route, Service,
        Throttle,
    },
    problem::Problems,
    raw::{OneOrMany, RawAdmin, RawConfig, RawFieldEdits},
    sections::{Drain, Readiness},
    source::Sources,
    text::{BindAddress, display_duration, display_size},
};

/// The most unknown names for which a similar name is suggested.
const SUGGESTIONS_MAX: usize = 100;

/// Resolves one configuration.
pub(super) struct Resolver<'a> {
    problems: &'a mut Problems,
    sources: &'a Sources,
    dropped: &'a Dropped,
    environment: Environment<'a>,
    key_files: KeyFiles,
    /// How many suggestions are still computed: each compares every name.
    suggestions_left: usize,
    /// The databases that were configured so far.
    databases: Vec<Database>,
    /// Whether the configured trusted proxies were invalid.
    lost_trusted_proxies: bool,
    /// The contents of files that the configuration names.
    contents: Contents,
    /// The attributes that were declared so far.
    names: cardea_env::Names<Exchange>,
    /// The attributes of the configuration, and whether they have a source.
    attributes: BTreeMap<String, bool>,
    /// Whether there may be further attributes, which were not resolved.
    lost_attributes: bool,
    headers_used: HeadersUsed,
    /// Whether the `when` of a route reads the time.
    time_chooses: bool,
}

/// The names that routes refer to.
struct Names<'a> {
    services: &'a [Located<Service>],
    service_indices: HashMap<&'a str, usize>,
    issuers: HashMap<&'a str, &'a Located<IssuerConfig>>,
    has_authorization_server: bool,
    identity_headers: &'a IdentityHeaders,
    client_authorities: &'a [&'a str],
    listeners: &'a [Located<Listener>],
    throttles: &'a [Located<Throttle>],
    general: &'a General,
    /// The default for routes that require a token.
    forwards_authorization: bool,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(
        problems: &'a mut Problems,
        sources: &'a Sources,
        dropped: &'a Dropped,
        environment: Environment<'a>,
        key_files: KeyFiles,
    ) -> Self {
        Self {
            problems,
            sources,
            dropped,
            environment,
            key_files,
            suggestions_left: SUGGESTIONS_MAX,
            databases: Vec::new(),
            lost_trusted_proxies: false,
            contents: Contents::default(),
            names: fixed_names(),
            attributes: BTreeMap::new(),
            lost_attributes: false,
            headers_used: HeadersUsed::default(),
            time_chooses: false,
        }
    }

    /// The contents of files that the configuration names.
    pub(super) fn into_contents(self) -> Contents {
        self.contents
    }

    /// What holds for all services and routes.
    fn general(&mut self, general: &General, at: Cursor<'_>) {
        self.limits(general, at.key("limits"));
        self.timeouts(general, at.key("timeouts"));
        self.failover(&general.failover, request_timeout(&general.exchanges), at.key("failover"));
        self.health_check(&general.check, at.key("health_check"));
    }

    pub(super) fn config(&mut self, raw: RawConfig, root: &Node) -> Config {
        let at = Cursor::root(root);
        self.unique_sections(&raw, at);
        self.trusted_proxies(&raw, at);
        let mut general = General { balance: raw.balance, ..General::default() };
        raw.limits.apply(&mut general);
        raw.timeouts.apply(&mut general);
        raw.failover.apply(&mut general.failover);
        raw.health_check.apply(&mut general.check);
        self.general(&general, at);
        self.drain(&raw.drain, at.key("drain"));
        self.attributes(raw.attribute, at.key("attribute"));
        general.admission = self.admission(raw.admission, at.key("admission"));
        general.tarpit = self.tarpit(raw.tarpit, at.key("tarpit"));
        let access_log = self.access_log(raw.access_log, at.key("access_log"));
        let admin = self.admin(&raw.admin, at.key("admin"));
        let identity_headers = self.identity_headers(raw.identity_headers, at.key("identity_headers"));
        let server_written = raw.authorization_server.is_some() || at.lost_any(&["authorization_server"]);
        let authorization_server = raw
            .authorization_server
            .and_then(|server| self.authorization_server(server, at.key("authorization_server")));
        let server_issuer =
            authorization_server.as_ref().map(|server| server.settings.issuer.as_str().to_owned());

        let acme_written = raw.acme.is_some() || at.lost_any(&["acme"]);
        let acme = raw.acme.and_then(|acme| self.acme(acme, at.key("acme")));

        let client_authorities = self.client_authorities(raw.client_authority, at.key("client_authority"));
        let authority_names: Vec<&str> = client_authorities.iter().map(|one| one.name.as_str()).collect();
        let listeners = self.listeners(raw.listener, &authority_names, &raw.trusted_proxies.prefixes, at);
        self.overlaps(&listeners, &admin, at);
        let environment = EnvironmentModel {
            hostname: hostname(),
            header_encoding: raw.header_encoding,
            policy: self.policy(raw.policy, at.key("policy")),
            ..EnvironmentModel::default()
        };
        let headers = (raw.request_headers, raw.response_headers);
        let environment = self.headers_of_all(headers, environment, &identity_headers, at);
        let forwards_authorization = raw.forwarding.authorization;
        let forwarding = self.forwarding(raw.forwarding, &identity_headers, at.key("forwarding"));
        let issuers = self.issuers(raw.issuer, server_issuer.as_deref(), server_written, at.key("issuer"));
        let key_cache = self.key_cache(raw.key_cache, authorization_server.as_ref(), acme.as_ref(), at);
        let throttles = self.throttles(raw.throttle, &raw.route, at.key("throttle"));
        let services = self.services(raw.service, &general, &throttles, at.key("service"));
        let names = Names {
            services: &services,
            service_indices: services
                .iter()
                .enumerate()
                .map(|(index, service)| (service.config.name.as_str(), index))
                .collect(),
            issuers: issuers.iter().map(|issuer| (issuer.name.as_str(), issuer)).collect(),
            has_authorization_server: server_written,
            identity_headers: &identity_headers,
            client_authorities: &authority_names,
            listeners: &listeners,
            throttles: &throttles,
            general: &general,
            forwards_authorization,
        };
        self.readiness(&raw.readiness, &names, at.key("readiness"));
        let routes = self.routes(raw.route, &names, at.key("route"));
        self.route_precedence(&routes, at.key("route"));
        self.early_data_of_routes(&routes, &listeners);
        self.acme_certificates(&listeners, acme.as_ref(), acme_written);
        Config {
            region: raw.region,
            region_positions: raw.region_position.into_iter().map(|raw| (raw.name, raw.position)).collect(),
            environment: self.environment(environment, &routes),
            process: raw.process,
            log: raw.log,
            access_log,
            admin,
            general,
            dns: raw.dns,
            drain: raw.drain,
            readiness: raw.readiness,
            forwarding,
            trusted_proxies: raw.trusted_proxies.prefixes,
            identity_headers,
            authorization_server,
            acme,
            databases: std::mem::take(&mut self.databases),
            client_authorities,
            throttles,
            listeners,
            issuers,
            key_cache,
            services,
            routes,
            sources: Arc::new(Sources::default()),
            fingerprint: Fingerprint::default(),
            warnings: Vec::new(),
            is_sound: false,
        }
    }

    /// Adds the header rules that apply to all routes.
    fn headers_of_all(
        &mut self,
        (request, response): (OneOrMany<RawFieldEdits>, OneOrMany<RawFieldEdits>),
        environment: EnvironmentModel,
        identity_headers: &IdentityHeaders,
        at: Cursor<'_>,
    ) -> EnvironmentModel {
        let request_at = at.key("request_headers");
        let request_headers = self.header_rules(request, identity_headers, true, request_at);
        let response_at = at.key("response_headers");
        let response_headers = self.header_rules(response, identity_headers, false, response_at);
        EnvironmentModel { request_headers, response_headers, ..environment }
    }

    /// Completes the environment by what its rules and those of the routes read. Nothing is compiled after it.
    fn environment(&mut self, environment: EnvironmentModel, routes: &[Located<Route>]) -> EnvironmentModel {
        let policy = environment.policy.as_ref();
        EnvironmentModel {
            reads_path: self.policy_reads(policy, is_path)
                || self.headers_read_path(environment.request_headers.rules())
                || self.headers_read_path(environment.response_headers.rules()),
            reads_time: self.policy_reads(policy, is_time) || self.time_chooses,
            headers_read: self.headers_read(routes.iter().map(|route| &route.matches)),
            names: Some(Arc::new(std::mem::replace(&mut self.names, fixed_names()))),
            ..environment
        }
    }

    fn trusted_proxies(&mut self, raw: &RawConfig, at: Cursor<'_>) {
        self.lost_trusted_proxies =
            at.lost_any(&["trusted_proxies"]) || at.key("trusted_proxies").lost_any(&["prefixes"]);
        let trusts_nobody = raw.trusted_proxies.prefixes.is_empty() && !self.lost_trusted_proxies;
        if raw.forwarding.forwarded == ForwardedPolicy::Trust && trusts_nobody {
            self.error(
                at.key("forwarding").key("forwarded"),
                "the word of proxies is trusted, but no proxy is",
                "name them in trusted_proxies.prefixes, or write \"set\"",
            );
        }
    }

    fn limits(&mut self, general: &General, at: Cursor<'_>) {
        let limits = &general.limits;
        if limits.head.target_bytes_max > limits.head.head_bytes_max
            && !at.lost_any(&["target_bytes_max", "head_bytes_max"])
        {
            self.error(
                at.key("target_bytes_max"),
                format!(
                    "target_bytes_max ({}) is above head_bytes_max ({}), which holds the target too",
                    display_size(limits.head.target_bytes_max as u64),
                    display_size(limits.head.head_bytes_max as u64)
                ),
                "lower the one or raise the other",
            );
        }
        if limits.replay_bytes_max > limits.replay_total_bytes_max
            && !at.lost_any(&["replay_bytes_max", "replay_total_bytes_max"])
        {
            self.error(
                at.key("replay_bytes_max"),
                "replay_bytes_max of one request is above replay_total_bytes_max of all",
                "lower the one or raise the other",
            );
        }
    }

    fn timeouts(&mut self, general: &General, at: Cursor<'_>) {
        let (connect, request) = (general.exchanges.connect, request_timeout(&general.exchanges));
        if !at.lost_any(&["connect", "request"]) {
            self.leaves_time(("connect", connect), ("request", request), at);
        }
    }

    /// Reports a timeout that is not below the one of the whole request.
    fn leaves_time(
        &mut self,
        (key, timeout): (&str, Duration),
        (outer_key, outer): (&str, Duration),
        at: Cursor<'_>,
    ) {
        if timeout >= outer {
            let (timeout, outer) = (display_duration(timeout), display_duration(outer));
            self.error(
                at.key(key),
                format!("{key} ({timeout}) is not below {outer_key} ({outer})"),
                "lower it, so that there is time left for another endpoint",
            );
        }
    }

    fn drain(&mut self, drain: &Drain, at: Cursor<'_>) {
        if drain.delay >= drain.deadline && !at.lost_any(&["delay", "deadline"]) {
            self.error(
                at.key("deadline"),
                format!(
                    "deadline ({}) is not above delay ({}); nothing could finish in between",
                    display_duration(drain.deadline),
                    display_duration(drain.delay)
                ),
                "raise deadline or lower delay",
            );
        }
    }

    /// The folder for the keys of issuers: beside the database by default.
    fn key_cache(
        &self,
        written: Option<String>,
        server: Option<&AuthorizationServer>,
        acme: Option<&Acme>,
        at: Cursor<'_>,
    ) -> Option<PathBuf> {
        let database = server.map(|server| &server.database).or(acme.map(|acme| &acme.database));
        let database = database.map(PathBuf::as_path);
        match (written.as_deref(), database.and_then(Path::parent)) {
            (Some("off"), _) => None,
            (Some(written), _) => Some(self.path(at.key("key_cache"), written)),
            (None, Some(folder)) => Some(folder.join("issuer-keys")),
            (None, None) => Some(self.path(at, "issuer-keys")),
        }
    }

    fn readiness(&mut self, readiness: &Readiness, names: &Names<'_>, at: Cursor<'_>) {
        if let Some(issuers) = &readiness.issuers {
            self.known_names("issuer", issuers, names.issuers.keys().copied(), at.key("issuers"));
        }
    }

    fn admin(&mut self, raw: &RawAdmin, at: Cursor<'_>) -> Admin {
        let address = match (raw.address.as_str(), raw.address.parse()) {
            ("off", _) => None,
            (_, Ok(BindAddress::Tcp(address))) => Some(address),
            (written, _) => {
                let shown = at.key("address").shown(written).to_owned();
                self.error(
                    at.key("address"),
                    format!("{shown:?} is not an address to listen on"),
                    "write an IP address and a port, as in \"127.0.0.1:9443\", or \"off\"",
                );
                None
            }
        };
        let socket = match raw.socket.as_str() {
            "off" => None,
            written => {
                let path = self.path(at.key("socket"), written.strip_prefix("unix:").unwrap_or(written));
                let name_of_file = !written.is_empty() && !written.ends_with('/');
                if !name_of_file || path.as_os_str().len() > 107 {
                    self.error(
                        at.key("socket"),
                        format!("{:?} is not the path of a Unix socket", at.key("socket").shown(written)),
                        "write a path of at most 107 octets, or \"off\"",
                    );
                }
                Some(path)
            }
        };
        let mut hosts = Vec::with_capacity(raw.hosts.len());
        for (index, host) in raw.hosts.iter().enumerate() {
            let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
            if is_host_name(&name) && name.parse::<IpAddr>().is_err() {
                hosts.push(name);
            } else {
                let at = at.key("hosts").index(index);
                self.error(
                    at,
                    format!("{:?} is not a DNS name", at.shown(host)),
                    "write a name without a port, as in \"gateway-1.example.com\"; IP addresses need no entry",
                );
            }
        }
        Admin { address, hosts, socket, at: at.location() }
    }

    /// Reports repeated names of sections that are referred to by name.
    fn unique_sections(&mut self, raw: &RawConfig, at: Cursor<'_>) {
        self.unique_names(
            raw.attribute.iter().map(|raw| raw.name.as_str()),
            at.key("attribute"),
            "attribute",
        );
        self.unique_names(raw.listener.iter().map(|raw| raw.name.as_str()), at.key("listener"), "listener");
        self.unique_names(raw.issuer.iter().map(|raw| raw.name.as_str()), at.key("issuer"), "issuer");
        self.unique_names(raw.service.iter().map(|raw| raw.name.as_str()), at.key("service"), "service");
        self.unique_names(raw.throttle.iter().map(|raw| raw.name.as_str()), at.key("throttle"), "throttle");
        self.unique_names(
            raw.region_position.iter().map(|raw| raw.name.as_str()),
            at.key("region_position"),
            "region",
        );
        self.unique_names(raw.route.iter().map(|raw| raw.name.as_str()), at.key("route"), "route");

        self.unique_names(
            raw.client_authority.iter().map(|raw| raw.name.as_str()),
            at.key("client_authority"),
            "client_authority",
        );
    }

    /// Reports repeated names.
    fn unique_names<'n>(&mut self, names: impl Iterator<Item = &'n str>, at: Cursor<'_>, what: &str) {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (index, name) in names.enumerate() {
            if let Some(&first) = seen.get(name) {
                let first = self.sources.position(at.index(first).key("name").location());
                self.error(
                    at.index(index).key("name"),
                    format!("a second {what} is called {name:?}; the first is at {first}"),
                    "give each its own name",
                );
            } else {
                seen.insert(name, index);
            }
        }
    }

    /// Whether no error was reported since there were `before` of them, and everything at `at` is valid.
    fn is_sound_since(&self, before: usize, at: Cursor<'_>) -> bool {
        self.problems.reported() == before && at.is_sound()
    }

    /// The resolved value at `at`; there were `before` errors before.
    fn placed<T>(&self, value: T, before: usize, at: Cursor<'_>) -> Located<T> {
        Located { value, at: at.location(), is_sound: self.is_sound_since(before, at) }
    }

    /// Resolves each element of a list, and notes where it is and whether an error was found in it.
    fn each<R, T>(
        &mut self,
        raw: Vec<R>,
        at: Cursor<'_>,
        mut resolve: impl FnMut(&mut Self, R, Cursor<'_>) -> T,
    ) -> Vec<Located<T>> {
        let mut resolved = Vec::with_capacity(raw.len());
        for (index, raw) in raw.into_iter().enumerate() {
            let at = at.index(index);
            let before = self.problems.reported();
            let value = resolve(self, raw, at);
            resolved.push(self.placed(value, before, at));
        }
        resolved
    }

    /// The first of these keys that is written; reports a second one beside it.
    fn only_one<'k>(
        &mut self,
        written: &[(&'k str, bool)],
        at: Cursor<'_>,
        message: &str,
        remedy: &str,
    ) -> Option<&'k str> {
        let mut keys = written.iter().filter(|(_, is_written)| *is_written).map(|(key, _)| *key);
        let (first, second) = (keys.next()?, keys.next());
        if let Some(second) = second {
            self.error(at.key(second), format!("{message}; {first} is there too"), remedy);
        }
        Some(first)
    }

    fn error(&mut self, at: Cursor<'_>, message: impl Into<String>, remedy: impl Into<String>) {
        self.problems.add(at.location(), message, remedy);
    }
}

/// The time limit of a whole request.
fn request_timeout(timeouts: &Timeouts) -> Duration {
    timeouts.request.unwrap_or(Duration::MAX)
}
