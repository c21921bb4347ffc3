//! Tests of whole configurations: defaults, the environment, includes, secrets, the schema and its page.

use std::{
    fs,
    path::{Path, PathBuf},
};

use cardea_gateway::{
    model::{AllowEncoded, HeaderRule, IdentityField},
    routing::{HeaderMatch, PathMatch},
};
use cardea_identity::{KeySource, Preset};
use cardea_tls::{ClientAuthMode, Roots, TicketKeys, acme::RequestedKey};
use cardea_upstream::{Balance, BudgetConfig, HealthConfig, RetryConfig, StatusSet};
use tempfile::TempDir;

use super::{
    model::Failover,
    raw::{RawFailover, RawHealthCheck, RawLimits, RawTimeouts},
    sections::ForwardingText,
    *,
};

mod acme;
mod arbitrary;
mod client_certificates;
mod differences;
mod empty_lists;
mod errors;
mod example;
mod lints;
mod mirror;
mod names;
mod precedence;
mod regions;
mod rules;
mod scale;
mod secrets;
mod split;
mod tickets;

/// A folder with configuration files.
struct Fixture {
    folder: TempDir,
}

impl Fixture {
    fn new(main: &str) -> Self {
        let fixture = Self { folder: tempfile::tempdir().unwrap() };
        fixture.file("cardea.toml", main)
    }

    fn file(self, name: &str, content: &str) -> Self {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    fn load(&self) -> Result<Config, Problems> {
        load(&self.path("cardea.toml"), &|name| match name {
            "REGION" => Some("eu-west".to_owned()),
            "WORKERS" => Some("3".to_owned()),
            "PASSWORD" => Some("hunter2-very-secret".to_owned()),
            "WRAPPING_KEY" => Some("c2VjcmV0\n".to_owned()),
            _ => None,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn config(&self) -> Config {
        self.load().unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// The problems, one line each, without the folder.
    fn problems(&self) -> Vec<String> {
        let problems = self.load().map(|_| ()).unwrap_err();
        let folder = format!("{}/", self.folder.path().display());
        problems.iter().map(|problem| problem.to_string().replace(&folder, "")).collect()
    }
}

/// The smallest valid configuration.
const LEAST: &str = "[[listener]]\nname = \"main\"\naddress = \"127.0.0.1:0\"\n";

#[test]
fn a_listener_is_enough_and_everything_else_has_a_default() {
    let config = Fixture::new(LEAST).config();
    assert_eq!(config.listeners.len(), 1);
    assert_eq!(format!("{:?}", config.general), format!("{:?}", General::default()));
    assert_eq!(config.drain, Drain::default());
    assert_eq!(config.process.workers, 0);
    assert_eq!(config.admin.address, Some("127.0.0.1:9443".parse().unwrap()));
    assert!(matches!(config.access_log.unwrap().lines.format, cardea_gateway::model::LogFormat::Json(_)));
    assert_eq!(config.identity_headers.fields[1], ("x-auth-subject".to_owned(), IdentityField::Subject));
    assert!(config.routes.is_empty());
}

#[test]
fn the_defaults_are_within_their_own_limits() {
    // Written out in full, the defaults must pass the same checks.
    let mut text = String::new();
    for (section, value) in [
        ("limits", toml::to_string(&RawLimits::default()).unwrap()),
        ("timeouts", toml::to_string(&RawTimeouts::default()).unwrap()),
        ("failover", toml::to_string(&RawFailover::default()).unwrap()),
        ("health_check", toml::to_string(&RawHealthCheck::default()).unwrap()),
        ("drain", toml::to_string(&Drain::default()).unwrap()),
        ("readiness", toml::to_string(&Readiness::default()).unwrap()),
        ("forwarding", toml::to_string(&ForwardingText::default()).unwrap()),
        ("log", toml::to_string(&Log::default()).unwrap()),
    ] {
        text.push_str(&format!("[{section}]\n{value}\n"));
    }
    let config = Fixture::new(&format!("{text}{LEAST}")).config();
    assert_eq!(format!("{:?}", config.general), format!("{:?}", General::default()));
}

#[test]
fn the_environment_fills_texts_and_what_is_not_text() {
    let config = Fixture::new(&format!(
        "region = \"${{REGION}}\"\n[process]\nworkers = \"${{WORKERS}}\"\nuser = \"${{NONE:-web}}\"\n[access_log]\nenabled = \"${{NONE:-false}}\"\n{LEAST}"
    ))
    .config();
    assert_eq!(config.region.as_deref(), Some("eu-west"));
    assert_eq!(config.process.workers, 3);
    assert_eq!(config.process.user.as_deref(), Some("web"));
    assert!(config.access_log.is_none());
}

#[test]
fn includes_merge_tables_append_lists_and_keep_their_own_folders() {
    let fixture = Fixture::new(&format!(
        "include = [\"conf.d/*.toml\", \"more.toml\"]\n[limits]\nfields_max = 50\n[trusted_proxies]\nprefixes = [\"10.0.0.0/8\"]\n{LEAST}"
    ))
    .file("conf.d/20-b.toml", "[[service]]\nname = \"b\"\n[[service.endpoint]]\naddress = \"127.0.0.1:2\"\n")
    .file(
        "conf.d/10-a.toml",
        "[limits]\nhttp2_streams_max = 7\n[[service]]\nname = \"a\"\ntls = { ca_file = \"ca.pem\" }\n[[service.endpoint]]\naddress = \"name:1\"\n",
    )
    .file("conf.d/ca.pem", "PEM")
    .file("conf.d/.hidden.toml", "nonsense")
    .file("conf.d/notes.txt", "nonsense")
    .file("more.toml", "[trusted_proxies]\nprefixes = [\"fd00::/8\"]\n");
    let config = fixture.config();
    assert_eq!((config.general.limits.head.fields_max, config.general.limits.http2_streams_max), (50, 7));
    assert_eq!(
        config.services.iter().map(|service| service.config.name.as_str()).collect::<Vec<_>>(),
        ["a", "b"]
    );
    assert_eq!(config.trusted_proxies.len(), 2);
    let Roots::File(ca_file) = &config.services[0].tls.as_ref().unwrap().client.roots else { panic!() };
    assert!(ca_file.ends_with("conf.d/ca.pem") && ca_file.exists());
}

#[test]
fn secrets_come_from_files_and_the_environment_and_are_never_shown() {
    let server = |key: &str| {
        format!(
            "{LEAST}[authorization_server]\nissuer = \"https://auth.example.com\"\ndefault_audience = \"https://api.example.com\"\nwrapping_key = {key}\n"
        )
    };
    for (key, expected) in [("{ env = \"WRAPPING_KEY\" }", "c2VjcmV0"), ("{ file = \"key\" }", "from-a-file")]
    {
        let config = Fixture::new(&server(key)).file("key", "from-a-file \n").config();
        let server = config.authorization_server.as_ref().unwrap();
        assert_eq!(server.wrapping_key.expose(), expected.as_bytes());
        assert!(!format!("{config:?}").contains(expected), "{key}");
        assert!(server.database.ends_with("cardea.db") && server.database.is_absolute());
    }
}

#[test]
fn values_of_the_environment_are_in_no_message() {
    let problems = Fixture::new(&format!(
        "[log]\nlevel = \"${{PASSWORD}}\"\n[timeouts]\nconnect = \"${{PASSWORD}}\"\n[admin]\naddress = \"${{PASSWORD}}\"\n[[issuer]]\nname = \"a\"\nissuer = \"${{PASSWORD}}\"\naudiences = [\"b\"]\ndiscovery = true\n[[route]]\nname = \"r\"\nauth = {{ issuer = \"a\", audiences = [\"${{PASSWORD}}\"], scopes = [\"a b ${{PASSWORD}}\"] }}\nhosts = [\"${{PASSWORD}}_/\"]\npath = \"${{PASSWORD}}\"\nredirect = {{ to = \"${{PASSWORD}}\" }}\n{LEAST}"
    ))
    .problems();
    assert!(problems.len() >= 8, "{problems:#?}");
    for problem in problems {
        assert!(!problem.contains("hunter2"), "{problem}");
    }
}

#[test]
fn a_route_inherits_from_the_general_sections() {
    let config = Fixture::new(&format!(
        "{LEAST}[limits]\nbody_bytes_max = \"1MiB\"\n[timeouts]\nrequest = \"20s\"\n[[service]]\nname = \"s\"\n[[service.endpoint]]\naddress = \"unix:/run/s.sock\"\n\
         [[route]]\nname = \"r\"\nhosts = [\"API.Example.com.\", \"*.example.org\"]\npath_prefix = \"/a/\"\nmethods = [\"POST\", \"GET\"]\nauth = \"public\"\nservice = \"s\"\n\
         headers = {{ X-Canary = \"1\", x-any = true }}\ntimeouts = {{ response_head = \"1s\" }}\nallow_encoded = [\"%2F\", \"\\\\\"]\n\
         request_headers = {{ set = {{ X-Host = \"{{request.host}}\" }}, remove = [\"Cookie\"] }}\n"
    ))
    .config();
    let route = &config.routes[0];
    let hosts: Vec<String> = route.matches.hosts.iter().map(ToString::to_string).collect();
    assert_eq!(hosts, ["api.example.com", "*.example.org"]);
    assert_eq!(route.matches.path, PathMatch::Prefix("/a".to_owned()));
    assert_eq!(route.matches.methods, ["GET", "POST"]);
    assert_eq!(
        route.matches.headers,
        [
            ("x-any".to_owned(), HeaderMatch::Present),
            ("x-canary".to_owned(), HeaderMatch::Exact("1".to_owned()))
        ]
    );
    assert_eq!(route.body_bytes_max, 1 << 20);
    assert_eq!(route.timeouts.request.unwrap().as_secs(), 20);
    assert_eq!(route.timeouts.response_head.as_secs(), 1);
    assert_eq!(route.allow, AllowEncoded { slash: true, backslash: true, ..Default::default() });
    let [HeaderRule::Remove(removed), HeaderRule::Set(set, _)] = route.request_headers.rules() else {
        panic!("{:?}", route.request_headers)
    };
    assert_eq!((removed.as_str(), set.as_str()), ("cookie", "x-host"));
    assert!(matches!(route.destination, Destination::Service { index: 0 }));
    assert_eq!(config.services[0].connect_timeout, General::default().exchanges.connect);
}

#[test]
fn a_service_inherits_omitted_keys() {
    let config = Fixture::new(&format!(
        "balance = \"round-robin\"\n[failover]\nconsecutive_failures = 0\nattempts_max = 2\nretry_statuses = [503]\n\
         try_timeout = \"2s\"\n{LEAST}\
         [[service]]\nname = \"a\"\n[[service.endpoint]]\naddress = \"127.0.0.1:1\"\n\
         [[service]]\nname = \"b\"\nbalance = \"peak-ewma\"\n\
         failover = {{ attempts_max = 4, consecutive_failures = 7, slow_start = \"0s\", retries_saved_max = 0 }}\n\
         [[service.endpoint]]\naddress = \"127.0.0.1:2\"\n"
    ))
    .config();
    let [a, b] = [0, 1].map(|at: usize| &config.services[at].config);
    let two_seconds = Some(std::time::Duration::from_secs(2));
    let Failover { health, retry, spill } = Failover::default();
    assert_eq!((a.balance, b.balance), (Balance::RoundRobin, Balance::PeakEwma));
    assert_eq!(a.health, HealthConfig { consecutive_failures: None, ..health });
    let statuses = StatusSet::new([503]);
    let wanted = RetryConfig { attempts_max: 2, statuses, try_timeout: two_seconds, ..retry };
    assert_eq!(a.retry, wanted);
    let slow_start = std::time::Duration::ZERO;
    assert_eq!(
        b.health,
        HealthConfig { consecutive_failures: std::num::NonZeroU32::new(7), slow_start, ..health }
    );
    let budget = BudgetConfig { capacity: 0, ..retry.budget };
    assert_eq!(b.retry, RetryConfig { attempts_max: 4, budget, ..wanted });
    assert_eq!((a.spill, b.spill), (spill, spill));
}

#[test]
fn auth_is_public_or_a_requirement_or_several() {
    let config = Fixture::new(&format!(
        "{LEAST}[[issuer]]\nname = \"main\"\nissuer = \"https://i.example\"\naudiences = [\"a\", \"b\"]\ndiscovery = true\n\
         [[issuer]]\nname = \"entra\"\npreset = \"entra\"\ntenants = [\"72F988BF-86f1-41af-91ab-2d7cd011db47\"]\naudiences = [\"a\"]\n\
         [[route]]\nname = \"one\"\npath = \"/1\"\nauth = {{ issuer = \"main\", audiences = [\"b\"], scopes = [\"x\"] }}\nbuiltin = \"health\"\n\
         [[route]]\nname = \"two\"\npath = \"/2\"\nauth = [{{ issuer = \"main\" }}, {{ issuer = \"entra\", roles = [\"r\"] }}]\nbuiltin = \"health\"\n"
    ))
    .config();
    let Auth::AccessRequirement(one) = &config.routes[0].auth else { panic!("public") };
    assert_eq!(
        (one.len(), one[0].audiences.as_slice(), one[0].scopes.as_slice()),
        (1, &["b".to_owned()][..], &["x".to_owned()][..])
    );
    let Auth::AccessRequirement(two) = &config.routes[1].auth else { panic!("public") };
    assert_eq!((two.len(), two[1].issuer.as_str()), (2, "entra"));
    let tenants = vec!["72f988bf-86f1-41af-91ab-2d7cd011db47".to_owned()];
    assert_eq!(config.issuers[1].preset, Some(Preset::EntraV2 { tenants }));
    assert_eq!(config.issuers[1].keys, KeySource::Discovery);
}

#[test]
fn the_time_for_fetching_keys_is_the_librarys_or_as_written() {
    let issuer = |line: &str| {
        let text = format!(
            "{LEAST}[[issuer]]\nname = \"a\"\nissuer = \"https://i.example\"\naudiences = [\"b\"]\ndiscovery = true\n{line}"
        );
        Fixture::new(&text)
    };
    let timeout = |line: &str| issuer(line).config().issuers[0].refresh.timeout;
    assert_eq!(timeout(""), cardea_identity::KeyRefresh::default().timeout);
    assert_eq!(timeout("key_fetch_timeout = \"250ms\"").as_millis(), 250);
    let problems = issuer("key_fetch_timeout = \"31s\"").problems();
    assert!(problems[0].contains("is out of the limits of key_fetch_timeout"), "{problems:?}");
}

#[test]
fn a_local_issuer_has_the_authorization_servers_name() {
    let config = Fixture::new(&format!(
        "{LEAST}[authorization_server]\nissuer = \"https://auth.example.com\"\ndefault_audience = \"https://api\"\nwrapping_key = {{ env = \"WRAPPING_KEY\" }}\n\
         [[issuer]]\nname = \"own\"\nlocal = true\naudiences = [\"https://api\"]\n"
    ))
    .config();
    assert!(matches!(config.issuers[0].keys, KeySource::Local(_)));
    assert_eq!(config.issuers[0].issuer, "https://auth.example.com");
}

#[test]
fn the_reference_page_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let written = fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == markdown(),
        "docs/configuration.md is stale; run: cargo run -p cardea -- schema --markdown > docs/configuration.md"
    );
}

#[test]
fn every_key_is_documented() {
    fn walk(path: &str, shape: &shape::Shape, missing: &mut Vec<String>) {
        let is_section = matches!(&shape.kind, shape::Kind::Table(_))
            || matches!(&shape.kind, shape::Kind::List { item, .. } if !item.description.is_empty());
        if shape.description.is_empty() && !is_section {
            missing.push(path.to_owned());
        }
        match &shape.kind {
            shape::Kind::Table(table) => {
                for (name, key) in &table.keys {
                    walk(&format!("{path}.{name}"), &key.shape, missing);
                }
            }
            shape::Kind::List { item, .. } if matches!(item.kind, shape::Kind::Table(_)) => {
                walk(path, item, missing)
            }
            _ => {}
        }
    }
    let mut missing = Vec::new();
    walk("", &schema::shape(), &mut missing);
    assert_eq!(missing, [""; 0]);
}

#[test]
fn every_limit_in_the_schema_can_be_read() {
    fn walk(shape: &shape::Shape) -> usize {
        let mut limits = 0;
        if let shape::Kind::String { format, minimum, maximum } = &shape.kind {
            for limit in minimum.iter().chain(maximum) {
                assert!(format.unwrap().measure(limit).is_some(), "{limit}");
                limits += 1;
            }
        }
        limits
            + match &shape.kind {
                shape::Kind::Table(table) => table.keys.values().map(|key| walk(&key.shape)).sum(),
                shape::Kind::List { item, .. } | shape::Kind::Map(item) => walk(item),
                shape::Kind::Any(alternatives) => alternatives.iter().map(walk).sum(),
                _ => 0,
            }
    }
    assert!(walk(&schema::shape()) > 40);
}

#[test]
fn the_schema_has_no_null_and_names_no_rust_type() {
    let text = json_schema().to_string();
    for word in ["null", "uint", "Raw"] {
        let context = text.find(word).map(|at| &text[at.saturating_sub(80)..at + word.len()]);
        assert_eq!(context, None);
    }
}
