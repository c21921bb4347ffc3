//! A gateway that listens, built from a configuration as the program builds it.

use std::{
    cell::RefCell,
    net::{SocketAddr, TcpListener},
    os::unix::net::UnixListener,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use cardea_clock::{Clock, CoarseClock};
use cardea_config::{Built, Config, Draft, Foundation, KeyFiles, Provider};
use cardea_env::Template;
use cardea_gateway::{
    attributes,
    builtin::BuiltIn,
    gateway::Gateway,
    listener::{ListenSocket, Serving, watch},
    model::{HeaderRule, HeaderRules},
    record::{AccessLog, Registry},
    workers::Workers,
};
use cardea_identity::NoFetch;
use cardea_tls::{ClientAuthority, ManagedCertificate, ServerTls};
use cardea_upstream::Address;
use serde_json::{Value, json};
use tempfile::TempDir;
use toml::Table;

use super::{Client, Origin, tokens::Issuer};

/// What all tests begin with: one service, and routes that differ in what they ask for. All clients of a test have the same
/// address, so bounds of an address are out of the way.
const BASE: &str = r#"
    region = "eu-west"
    [access_log]
    path = "access.log"
    [limits]
    body_bytes_max = "1TiB"
    connections_per_prefix_max = 10000000
    [authorization_server]
    issuer = "https://id.example"
    wrapping_key = { env = "WRAPPING_KEY" }
    default_audience = "api"
    mount = false
    [[issuer]]
    name = "main"
    local = true
    audiences = ["api", "api2"]
    [[listener]]
    name = "test"
    address = "127.0.0.1:0"
    [[route]]
    name = "public"
    path_prefix = "/"
    auth = "public"
    service = "main"
    [[route]]
    name = "api"
    path_prefix = "/api"
    auth = { issuer = "main", audiences = ["api"] }
    service = "main"
    [[route]]
    name = "admin"
    path_prefix = "/admin"
    auth = { issuer = "main", audiences = ["api"], scopes = ["admin"] }
    service = "main"
    [[route]]
    name = "other"
    path_prefix = "/other"
    auth = { issuer = "main", audiences = ["api2"] }
    service = "main"
"#;

/// A change of what a configuration was resolved to.
type Change = Box<dyn Fn(&mut Config)>;

/// The configuration of a test.
pub(crate) struct Spec {
    pub(crate) config: Table,
    /// In place of the system's.
    pub(crate) clock: Option<Clock>,
    /// Every built-in destination.
    pub(crate) builtin: Option<Arc<dyn BuiltIn>>,
    pub(crate) resolved: Vec<Change>,
}

impl Spec {
    /// One service, and routes that differ in what they ask for.
    pub(crate) fn to(origin: &Origin) -> Self {
        Self::to_addresses([Address::Tcp(origin.address)])
    }

    pub(crate) fn to_addresses(endpoints: impl IntoIterator<Item = Address>) -> Self {
        let endpoints = endpoints
            .into_iter()
            .map(|address| format!("[[service.endpoint]]\naddress = \"{address}\"\nregion = \"eu-west\"\n"));
        let service = format!("[[service]]\nname = \"main\"\n{}", endpoints.collect::<String>());
        let spec = Self { config: parse(BASE), clock: None, builtin: None, resolved: Vec::new() };
        spec.with(service)
    }

    /// Adds to the configuration. Tables are merged, and so are elements of lists that have the same name.
    pub(crate) fn with(mut self, toml: impl AsRef<str>) -> Self {
        merge(&mut self.config, parse(toml.as_ref()));
        self
    }

    /// Adds keys to a route. One that is not there yet is public and leads to the service, where the keys say nothing else.
    pub(crate) fn route(mut self, name: &str, keys: impl AsRef<str>) -> Self {
        const DESTINATIONS: [&str; 5] = ["service", "split", "redirect", "respond", "builtin"];
        let mut route = parse(keys.as_ref());
        route.insert("name".to_owned(), name.into());
        if !self.list("route").iter().any(|route| is_named(route, name)) {
            route.entry("auth").or_insert("public".into());
            if !DESTINATIONS.iter().any(|key| route.contains_key(*key)) {
                route.insert("service".to_owned(), "main".into());
            }
        }
        merge_lists(self.list("route"), vec![route.into()]);
        self
    }

    /// Adds keys to the public route.
    pub(crate) fn public(self, keys: impl AsRef<str>) -> Self {
        self.route("public", keys)
    }

    /// Removes an element of a list.
    pub(crate) fn without(mut self, list: &str, name: &str) -> Self {
        self.list(list).retain(|element| !is_named(element, name));
        self
    }

    /// Has these attributes in each line of the access log.
    pub(crate) fn logging<'a>(self, attributes: impl IntoIterator<Item = &'a str>) -> Self {
        let fields = attributes.into_iter().map(|name| format!("{name:?} = {name:?}\n"));
        self.with(format!("[access_log.fields]\n{}", fields.collect::<String>()))
    }

    /// Changes what the configuration was resolved to: for what none can say.
    pub(crate) fn resolved(mut self, change: impl Fn(&mut Config) + 'static) -> Self {
        self.resolved.push(Box::new(change));
        self
    }

    fn list(&mut self, name: &str) -> &mut Vec<toml::Value> {
        let list = self.config.entry(name).or_insert(toml::Value::Array(Vec::new()));
        list.as_array_mut().unwrap()
    }

    /// The configuration as it is read from a file in `folder`.
    fn config(&self, folder: &TempDir) -> Config {
        let text = toml::to_string(&self.config).unwrap();
        let path = folder.path().join("cardea.toml");
        let environment = |name: &str| (name == "WRAPPING_KEY").then(|| "00".repeat(32));
        let draft = Draft::parse(text.clone(), &path, &environment, KeyFiles::Read);
        let mut config = draft.into_config().unwrap_or_else(|problems| panic!("{problems}\n{text}"));
        for change in &self.resolved {
            change(&mut config);
        }
        config
    }

    /// Starts a gateway on a free port.
    pub(crate) async fn start(self) -> Harness {
        self.serve_tcp(&Workers::here())
    }

    /// Starts a gateway with so many workers; the first accepts.
    pub(crate) async fn start_with_workers(self, count: usize) -> Harness {
        self.serve_tcp(&Workers::start(count).unwrap())
    }

    /// Starts a gateway on a Unix socket.
    pub(crate) async fn start_unix(self) -> Harness {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.sock");
        let socket = UnixListener::bind(&path).unwrap();
        let address = SocketAddr::from(([0; 4], 0));
        self.serve(&Workers::here(), ListenSocket::Unix(socket), address, Some(path)).keeping(folder)
    }

    fn serve_tcp(self, workers: &Arc<Workers>) -> Harness {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        self.serve(workers, ListenSocket::Tcp(socket), address, None)
    }

    fn serve(
        self,
        workers: &Arc<Workers>,
        socket: ListenSocket,
        address: SocketAddr,
        path: Option<PathBuf>,
    ) -> Harness {
        let folder = tempfile::tempdir().unwrap();
        let config = self.config(&folder);
        let issuer = Issuer::new();
        let coarse = CoarseClock::start(Duration::from_millis(2)).unwrap();
        let clock = self.clock.clone().unwrap_or_else(|| coarse.clock());
        let foundation = Foundation {
            clock: clock.clone(),
            fetch: Arc::new(NoFetch),
            local_keys: issuer.keys.clone(),
            provider: Arc::new(Provided(self.builtin)),
            names: Arc::default(),
            workers: workers.count(),
            tolerates_certificates: false,
        };
        let built = build(&config, &foundation, None);
        let registry = Arc::new(Registry::new());
        let gateway = Gateway::new(Arc::clone(&built.model), clock, Arc::clone(&registry)).unwrap();
        let log =
            AccessLog::start(config.access_log.as_ref().unwrap().config.clone(), coarse.clock()).unwrap();
        gateway.set_access_log(Some(Arc::new(log)));
        let serving = watch(workers, vec![socket]).unwrap().serve(&gateway, workers, "test");
        let workers = Arc::clone(workers);
        Harness {
            gateway,
            registry,
            address,
            path,
            issuer,
            log_path: folder.path().join("access.log"),
            foundation,
            built: RefCell::new(built),
            serving,
            more_serving: Vec::new(),
            workers,
            _coarse: coarse,
            folders: vec![folder],
        }
    }
}

/// Adds rules that no configuration may have.
pub(crate) fn add_rules(rules: &mut HeaderRules, more: Vec<HeaderRule>) {
    let mut all = rules.rules().to_vec();
    all.extend(more);
    *rules = all.into();
}

/// A rule that sets a header, for what no configuration may set.
pub(crate) fn unchecked(name: &str, value: &str) -> HeaderRule {
    HeaderRule::Set(name.to_owned(), Template::compile(value, &attributes::TABLE).unwrap())
}

fn parse(toml: &str) -> Table {
    toml.parse().unwrap_or_else(|error| panic!("{error}\n{toml}"))
}

fn is_named(element: &toml::Value, name: &str) -> bool {
    element.get("name").and_then(toml::Value::as_str) == Some(name)
}

fn merge(into: &mut Table, from: Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(toml::Value::Table(into)), toml::Value::Table(from)) => merge(into, from),
            (Some(toml::Value::Array(into)), toml::Value::Array(from)) => merge_lists(into, from),
            (_, value) => drop(into.insert(key, value)),
        }
    }
}

/// A list whose elements have no names replaces what is there.
fn merge_lists(into: &mut Vec<toml::Value>, from: Vec<toml::Value>) {
    if from.iter().any(|element| element.get("name").is_none()) {
        *into = from;
        return;
    }
    for element in from {
        let name = element["name"].as_str().unwrap();
        match into.iter_mut().find(|element| is_named(element, name)) {
            Some(there) => merge(there.as_table_mut().unwrap(), element.as_table().unwrap().clone()),
            None => into.push(element),
        }
    }
}

fn build(config: &Config, foundation: &Foundation, previous: Option<&Built>) -> Built {
    cardea_config::build(config, foundation, previous).unwrap_or_else(|problems| {
        let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
        panic!("{}", text.join("\n"))
    })
}

/// One built-in destination for all names.
struct Provided(Option<Arc<dyn BuiltIn>>);

impl Provider for Provided {
    fn builtin(&self, _: cardea_config::BuiltIn) -> Arc<dyn BuiltIn> {
        Arc::clone(self.0.as_ref().expect("the test has one"))
    }

    fn certificate(&self, _: &[String]) -> Option<Arc<ManagedCertificate>> {
        None
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
    foundation: Foundation,
    pub(crate) built: RefCell<Built>,
    pub(crate) serving: Serving,
    more_serving: Vec<Serving>,
    pub(crate) workers: Arc<Workers>,
    _coarse: CoarseClock,
    folders: Vec<TempDir>,
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.serving.stop();
        self.more_serving.iter().for_each(Serving::stop);
    }
}

impl Harness {
    pub(crate) fn keeping(mut self, folder: TempDir) -> Self {
        self.folders.push(folder);
        self
    }

    /// Puts another configuration in force, as a reload does.
    pub(crate) fn reload(&self, spec: Spec) {
        let config = spec.config(&self.folders[0]);
        let built = build(&config, &self.foundation, Some(&self.built.borrow()));
        self.gateway.set_model(Arc::clone(&built.model));
        built.succeed(&self.built.borrow(), self.gateway.clock.mono());
        self.built.replace(built);
    }

    /// TLS of the first listener.
    pub(crate) fn tls(&self) -> Arc<ServerTls> {
        Arc::clone(self.gateway.model().listeners["test"].tls.as_ref().unwrap())
    }

    /// The authority of client certificates with this name.
    pub(crate) fn client_authority(&self, name: &str) -> Arc<ClientAuthority> {
        Arc::clone(&self.built.borrow().client_authorities[name])
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
