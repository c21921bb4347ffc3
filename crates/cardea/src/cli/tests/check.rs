//! Tests of `cardea check`: all errors at once, no consequential errors, and warnings.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf, time::Duration};

use cardea_tls::authority::Authority;
use serde_json::Value;
use tempfile::TempDir;

use super::{Exit, cardea};

/// A folder with a configuration and the files that it names.
struct Fixture {
    folder: TempDir,
}

impl Fixture {
    fn new(text: &str) -> Self {
        let fixture = Self { folder: tempfile::tempdir().unwrap() };
        fixture.file("cardea.toml", text);
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).unwrap();
        // Expected of secrets; harmless for other files.
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn check(&self, arguments: &[&str]) -> (Exit, String, String) {
        let config = self.path("cardea.toml").display().to_string();
        cardea(&[&["check", "-c", &config], arguments].concat())
    }

    /// The problems as JSON.
    fn problems(&self) -> Vec<Value> {
        let (_, out, _) = self.check(&["--json"]);
        serde_json::from_str(&out).unwrap()
    }

    /// The lines with a problem of a severity, without repetition.
    fn lines(&self, severity: &str) -> Vec<usize> {
        let problems = self.problems();
        let mut lines: Vec<usize> = problems
            .iter()
            .filter(|problem| problem["severity"] == severity)
            .map(|problem| usize::try_from(problem["line"].as_u64().unwrap()).unwrap())
            .collect();
        lines.dedup();
        lines
    }
}

/// The lines of a text that contain `# wrong`.
fn marked(text: &str) -> Vec<usize> {
    (1..).zip(text.lines()).filter(|(_, line)| line.contains("# wrong")).map(|(at, _)| at).collect()
}

/// A folder with two certificates and their keys.
fn with_certificates(text: &str) -> Fixture {
    let fixture = Fixture::new(text);
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let day = Duration::from_secs(86_400);
    let at = |time: Duration| cardea_clock::Wall::from_unix_seconds(i64::try_from(time.as_secs()).unwrap());
    let authority = Authority::new("test", at(now - day), at(now + day)).unwrap();
    for name in ["one", "two"] {
        let issued = authority.issue(&["api.example.com"], at(now - day), at(now + day)).unwrap();
        fixture.file(&format!("{name}.pem"), &issued.chain_pem);
        fixture.file(&format!("{name}.key"), &issued.key_pem);
    }
    fixture
}

/// One error of every kind, each beside or within another one.
const MANY: &str = r#"
[log]
level = "loud"                                          # wrong

[access_log]
when = "response.statis == 200"                         # wrong

[[attribute]]
name = "tier"
expression = "request.methd"                            # wrong

[[attribute]]
name = "Team"                                           # wrong
template = "{request.hst}"                              # wrong

[[client_authority]]
name = "partners"
ca_file = "none.pem"                                    # wrong

[[listener]]
name = "https"
address = "127.0.0.1"                                   # wrong
[listener.tls]
client_certificate = "request"
client_authorities = ["partners"]
[[listener.tls.certificate]]                            # wrong
chain = "one.pem"
key = "two.key"
[[listener.tls.certificate]]                            # wrong
chain = "two.pem"
key = "none.key"

[[issuer]]
name = "main"
issuer = "https://main.example"
jwks_url = "http://main.example/keys"                   # wrong
audiences = ["a"]

[[service]]
name = "orders"
hash_policy = "{request.pth}"                           # wrong
[[service.endpoint]]
address = "orders.internal"                             # wrong

[[route]]                                               # wrong
name = "no-auth"
path = "/1"
service = "orders"
policy = [{ allow = "request.methd == 'GET'" }]         # wrong

[[route]]
name = "mistyped"
path = "/2"
auth = "requried"                                       # wrong
service = "ordres"                                      # wrong
policy = [{ deny = "custom.tier == 'x' || tier" }]      # wrong

[[route]]
name = "other-issuer"
path = "/3"
auth = { issuer = "mian" }                              # wrong
client_certificate = "required"
service = "orders"
request_headers = { set = { x-a = "{custom.nothing}" } }
response_headers = { set = { x-a = "{response.sttus}" } } # wrong

[[route]]                                               # wrong
name = "nowhere"
path = "/4"
auth = { issuer = "main", audiences = ["b"] }
when = "request.path ="                                 # wrong

[[route]]
name = "redirected"
path = 5                                                # wrong
auth = "public"
redirect = { to = "https://a{request.pth}" }            # wrong

[[route]]
name = "not-a-table"
path = "/6"
auth = { issuer = "main", scopes = "a" }                # wrong
rewrite_path = "/{request.pth}"                        # wrong
builtin = "token"                                       # wrong
"#;

#[test]
fn all_errors_are_reported_at_once_without_consequential_ones() {
    let fixture = with_certificates(MANY);
    let problems = fixture.problems();
    assert_eq!(fixture.lines("error"), marked(MANY), "{problems:#?}");
    // Placeholders are never shown.
    let shown = serde_json::to_string(&problems).unwrap();
    assert!(!shown.contains("placeholder"), "{shown}");
}

#[test]
fn an_address_without_a_port_hides_nothing() {
    let text = r#"
[[listener]]
name = "https"
address = "127.0.0.1"                                   # wrong
[[listener.tls.certificate]]                            # wrong
chain = "one.pem"
key = "two.key"
[[service]]
name = "orders"
[[service.endpoint]]
address = "orders.internal"                             # wrong
[[route]]
name = "orders"
auth = "public"
service = "orders"
policy = [{ allow = "request.method = 'GET'" }]         # wrong
"#;
    assert_eq!(with_certificates(text).lines("error"), marked(text));
    let right = text
        .replace("\"127.0.0.1\"", "\"127.0.0.1:0\"")
        .replace("two.key", "one.key")
        .replace("orders.internal", "orders.internal:80")
        .replace("method =", "method ==");
    let (exit, _, err) = with_certificates(&right).check(&[]);
    assert_eq!((exit, err.as_str()), (Exit::Success, ""));
}

#[test]
fn a_file_with_a_syntax_error_hides_nothing_of_the_others() {
    let text = r#"
include = ["routes.toml", "issuers.toml"]
[[listener]]
name = "main"
address = "127.0.0.1"                                   # wrong
[[route]]
name = "one"
path = "/1"
auth = { issuer = "elsewhere" }
service = "elsewhere"
policy = [{ allow = "request.methd == 'GET' || custom.elsewhere" }] # wrong
"#;
    let fixture = Fixture::new(text);
    fixture.file("routes.toml", "[[service]]\nname = \"elsewhere\"\nendpoint = [{ address = }]\n");
    fixture.file("issuers.toml", "[[route]]\nname = \"two\"\nauth = \"nobody\"\nbuiltin = \"health\"\n");
    let problems = fixture.problems();
    let of = |name: &str| -> Vec<usize> {
        let inside = problems.iter().filter(|problem| problem["file"].as_str().unwrap().ends_with(name));
        inside.map(|problem| usize::try_from(problem["line"].as_u64().unwrap()).unwrap()).collect()
    };
    assert_eq!(of("cardea.toml"), marked(text), "{problems:#?}");
    assert_eq!(of("routes.toml"), [3], "{problems:#?}");
    assert_eq!(of("issuers.toml"), [3], "{problems:#?}");
}

/// A route with an `auth`, in a configuration with an issuer.
fn with_auth(auth: &str) -> Fixture {
    Fixture::new(&format!(
        "[[listener]]\nname = \"main\"\naddress = \"127.0.0.1:0\"\n[[issuer]]\nname = \"main\"\n\
         issuer = \"https://main.example\"\ndiscovery = true\naudiences = [\"a\"]\n\
         [[route]]\nname = \"r\"\n{auth}\nbuiltin = \"health\"\n"
    ))
}

#[test]
fn no_remedy_opens_a_route() {
    for (auth, wanted) in [
        ("auth = \"requried\"", "say what a token must have: auth = { issuer = "),
        ("auth = \"pubic\"", "say what a token must have: auth = { issuer = "),
        ("auth = \"PUBLIC\"", "say what a token must have: auth = { issuer = "),
        ("auth = \"mian\"", "did you mean auth = { issuer = \"main\" }?"),
        ("auth = \"main\"", "did you mean auth = { issuer = \"main\" }?"),
        ("auth = true", "say what a token must have: auth = { issuer = "),
        ("auth = []", "give at least 1"),
        ("", "say what a token must have: auth = { issuer = "),
        (
            "auth = \"public\"\nclient_certificate = \"optionl\"",
            "write \"required\" or \"optional\", or a table",
        ),
        ("auth = \"public\"\nclient_certificate = \"requird\"", "did you mean \"required\"?"),
    ] {
        let problems = with_auth(auth).problems();
        assert_eq!(problems.len(), 1, "{auth}: {problems:#?}");
        let remedy = problems[0]["remedy"].as_str().unwrap();
        assert!(remedy.starts_with(wanted), "{auth}: {remedy}");
        assert!(!remedy.contains("mean \"public\"") && !remedy.starts_with("write \"public\""), "{remedy}");
    }
    assert_eq!(with_auth("auth = { issuer = \"main\" }").problems().len(), 0);
}

#[test]
fn warnings_fail_only_with_deny_warnings() {
    let text = "[[listener]]\nname = \"main\"\naddress = \"127.0.0.1:0\"\n[[route]]\nname = \"r\"\n\
        path_prefix = \"/api/*\"\nauth = \"public\"\nbuiltin = \"health\"\n";
    let fixture = Fixture::new(text);
    let (exit, out, err) = fixture.check(&[]);
    assert_eq!(exit, Exit::Success, "{err}");
    assert!(out.contains("valid; listeners: 1"), "{out}");
    assert!(err.contains("cardea.toml:6:15: warning: \"/api/*\" has a *"), "{err}");
    assert!(err.ends_with("cardea.toml: 1 warning\n"), "{err}");
    assert_eq!(fixture.lines("warning"), [6]);

    let (exit, out, _) = fixture.check(&["--deny-warnings"]);
    assert_eq!((exit, out.as_str()), (Exit::Usage, ""));
    let (exit, out, err) = fixture.check(&["--deny-warnings", "--json"]);
    assert_eq!((exit, err.as_str()), (Exit::Usage, ""));
    assert!(out.contains("\"warning\""), "{out}");

    fixture.file("cardea.toml", &text.replace("/api/*", "/api"));
    let (exit, _, err) = fixture.check(&["--deny-warnings"]);
    assert_eq!((exit, err.as_str()), (Exit::Success, ""), "the control");
}

#[test]
fn overlapping_listeners_are_reported_with_both_locations() {
    let listener =
        |name: &str, address: &str| format!("[[listener]]\nname = \"{name}\"\naddress = \"{address}\"\n");
    for (first, second, wrong) in [
        ("0.0.0.0:8080", "10.0.0.1:8080", true),
        ("10.0.0.1:8080", "0.0.0.0:8080", true),
        ("[::]:8080", "[::1]:8080", true),
        ("10.0.0.1:8080", "10.0.0.2:8080", false),
        ("0.0.0.0:8080", "10.0.0.1:8081", false),
        ("0.0.0.0:0", "0.0.0.0:0", false),
        ("0.0.0.0:9443", "0.0.0.0:8080", true),
        ("unix:/run/a.sock", "unix:/run/./a.sock", true),
        ("unix:/run/a.sock", "unix:/run/b.sock", false),
        ("unix:/run/cardea/admin.sock", "unix:/run/b.sock", true),
    ] {
        let fixture = Fixture::new(&format!("{}{}", listener("one", first), listener("two", second)));
        let problems = fixture.problems();
        assert_eq!(problems.len(), usize::from(wrong), "{first} {second}: {problems:#?}");
        let Some(problem) = problems.first() else { continue };
        let message = problem["message"].as_str().unwrap();
        let is_admin = first.contains("9443") || first.contains("admin");
        assert!(is_admin || message.contains("the listener \"one\" at "), "{message}");
        assert!(is_admin || message.contains("cardea.toml:3:11"), "{message}");
        assert!(is_admin || problem["line"] == 6, "{problem}");
        assert!(!is_admin || message.contains("9443") || message.contains("admin.sock"), "{message}");
    }
}

/// An authorization server with a database and a wrapping key.
const SERVER: &str = "[[listener]]\nname = \"main\"\naddress = \"127.0.0.1:0\"\n[authorization_server]\n\
    issuer = \"https://auth.example.com\"\ndefault_audience = \"https://api\"\n\
    wrapping_key = { file = \"wrapping.key\" }\n";
const KEY: &str = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
const OTHER_KEY: &str = "CAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAg=";

/// The server's folder with a database that has signing keys.
fn with_database() -> Fixture {
    let fixture = Fixture::new(SERVER);
    fixture.file("wrapping.key", KEY);
    let (exit, _, err) = fixture.check(&[]);
    assert_eq!(
        (exit, err.as_str()),
        (Exit::Success, ""),
        "a database that is not there yet is created later"
    );
    assert!(!fixture.path("cardea.db").exists(), "and not by a check");
    fixture.open(|_| {});
    fixture
}

impl Fixture {
    /// Runs a closure while the authorization server has its database open.
    fn open(&self, meanwhile: impl FnOnce(&Self)) {
        let config = crate::config::load(&self.path("cardea.toml"), &|_| None).unwrap();
        let settings = config.authorization_server.as_ref().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let clock = cardea_clock::CoarseClock::start(cardea_clock::PERIOD_DEFAULT).unwrap();
        let server = runtime.block_on(crate::server::open_issuer(settings, clock.clock().precise())).unwrap();
        meanwhile(self);
        runtime.block_on(server.close());
    }

    /// Every file in the folder, with its content and its modification time.
    fn files(&self) -> Vec<(String, Vec<u8>, std::time::SystemTime)> {
        let mut files: Vec<_> = fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                let changed = entry.metadata().unwrap().modified().unwrap();
                (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap(), changed)
            })
            .collect();
        files.sort();
        files
    }
}

#[test]
fn a_wrapping_key_that_does_not_decrypt_the_database_is_reported() {
    let fixture = with_database();
    assert_eq!(fixture.problems().len(), 0, "the control");
    let before = fixture.files();
    assert_eq!(fixture.problems().len(), 0);
    assert_eq!(fixture.files(), before, "a check changes nothing");

    for (key, wanted) in [(OTHER_KEY, "does not decrypt"), ("c2hvcnQ=", "does not contain a wrapping key")] {
        fixture.file("wrapping.key", key);
        let problems = fixture.problems();
        assert_eq!(problems.len(), 1, "{problems:#?}");
        assert_eq!((&problems[0]["line"], &problems[0]["column"]), (&7.into(), &16.into()), "{problems:#?}");
        assert!(problems[0]["message"].as_str().unwrap().contains(wanted), "{problems:#?}");
        assert!(!problems[0].to_string().contains(key), "{problems:#?}");
    }
    // Also beside another error.
    fixture.file("wrapping.key", OTHER_KEY);
    fixture.file("cardea.toml", &SERVER.replace("https://auth.example.com", "auth.example.com"));
    assert_eq!(fixture.lines("error"), [5, 7]);
}

#[test]
fn a_database_can_be_checked_while_a_server_uses_it() {
    let fixture = with_database();
    fixture.open(|fixture| {
        assert_eq!(fixture.problems().len(), 0, "the control");
        fixture.file("wrapping.key", OTHER_KEY);
        assert_eq!(fixture.lines("error"), [7]);
        fixture.file("wrapping.key", KEY);
    });
    assert_eq!(fixture.problems().len(), 0);
}

#[test]
fn a_file_that_is_not_a_database_is_reported() {
    let fixture = with_database();
    let at = |database: &str| format!("{SERVER}database = \"sqlite:{database}\"\n");
    fixture.file(
        "notes.txt",
        "these are notes, and no database at all: they go on for some more octets than a head has",
    );
    fs::create_dir(fixture.path("folder.db")).unwrap();
    for (database, wanted) in [
        ("notes.txt", "not a database"),
        ("folder.db", "is not a file"),
        ("none/cardea.db", "none does not exist"),
    ] {
        fixture.file("cardea.toml", &at(database));
        let problems = fixture.problems();
        assert_eq!(problems.len(), 1, "{database}: {problems:#?}");
        assert_eq!(problems[0]["line"], 8, "{problems:#?}");
        assert!(problems[0]["message"].as_str().unwrap().contains(wanted), "{problems:#?}");
    }
    fixture.file("cardea.toml", &at("cardea.db"));
    assert_eq!(fixture.problems().len(), 0, "the control"); // One that is gone is told from one that has yet to be made.
    let path = fixture.path("cardea.db");
    for is_empty in [true, false] {
        if is_empty { fs::write(&path, "") } else { fs::remove_file(&path) }.unwrap();
        let problems = fixture.problems();
        assert_eq!(problems.len(), 1, "{problems:#?}");
        assert!(problems[0]["message"].as_str().unwrap().contains("there was one"), "{problems:#?}");
    }
}

#[test]
fn allowed_slashes_are_reported_if_a_rule_reads_the_path() {
    let text = |gateway: &str, route: &str| {
        format!(
            "[[listener]]\nname = \"l\"\naddress = \"127.0.0.1:0\"\n{gateway}\n[[route]]\nname = \"r\"\nauth = \"public\"\n\
             respond = {{ status = 204 }}\n{route}\n"
        )
    };
    let reads = "policy = [{ deny = \"request.path.startsWith('/admin')\" }]\n";
    let allows = "allow_encoded = [\"%2F\", \";\"]\n";
    let global = "[[policy]]\ndeny = \"request.path == '/admin'\"\n";
    for (gateway, route, is_told) in [
        ("", format!("{reads}{allows}"), true),
        (global, allows.to_owned(), true),
        ("", format!("when = \"request.path != '/admin'\"\n{allows}"), true),
        ("", format!("{reads}allow_encoded = [\"%5C\"]\n"), true),
        ("", format!("{reads}allow_encoded = [\"\\\\\"]\n"), true),
        // The controls: no rule reads it, nothing is allowed, or only what serves this purpose.
        ("", allows.to_owned(), false),
        ("", reads.to_owned(), false),
        ("", format!("{reads}allow_encoded = [\";\"]\n"), false),
        ("", format!("policy = [{{ deny = \"request.method == 'PUT'\" }}]\n{allows}"), false),
    ] {
        let fixture = Fixture::new(&text(gateway, &route));
        let problems = fixture.problems();
        let told = problems.iter().any(|problem| {
            problem["severity"] == "warning"
                && problem["message"].as_str().unwrap().contains("\"r\" lets")
                && problem["line"] == if gateway.is_empty() { 5 } else { 7 }
        });
        assert_eq!(told, is_told, "{gateway}{route}: {problems:#?}");
    }
}

#[test]
fn a_redirect_to_a_host_that_the_client_chooses_is_warned_of() {
    let check = |to: &str| {
        let text = format!(
            "[[attribute]]\nname = \"region\"\nmap = {{ file = \"regions.map\", key = \"{{request.headers.x-region}}\", default = \"eu\" }}\n\
             [[attribute]]\nname = \"copy\"\ntemplate = \"{{route.parameters.to}}\"\n\
             [[listener]]\nname = \"main\"\naddress = \"127.0.0.1:0\"\n\
             [[route]]\nname = \"moved\"\npath_pattern = \"/to/{{to}}\"\nauth = \"public\"\nredirect = {{ to = {to:?} }}\n"
        );
        let fixture = Fixture::new(&text);
        fixture.file("regions.map", "us us\n");
        let (exit, _, err) = fixture.check(&[]);
        assert_eq!(exit, Exit::Success, "{to}: {err}");
        err
    };
    for good in [
        "https://new.example{request.path}",
        "https://{request.host}{request.path}",
        "https://{request.authority}/new/{route.parameters.to}",
        "https://{custom.region}.example/",
        "https://new.example/?to={route.parameters.to}",
        "https://new.example#{request.query_params.to}",
        "/new/{request.query_params.to}",
        "/{route.parameters.to}",
    ] {
        assert_eq!(check(good), "", "{good}");
    }
    for bad in [
        "https://{route.parameters.to}",
        "https://{route.parameters.to}/",
        "https://{custom.copy}.example/",
        "https://new.example{route.parameters.to}/",
        "https://new.example:{request.query_params.port}/",
        "https://{request.headers.x-region}.example/",
        "https://{request.path}",
        "/{request.query_params.to}",
        "/{request.path}",
    ] {
        let err = check(bad);
        assert!(
            err.contains("leads wherever the client says") && err.contains("cardea.toml:"),
            "{bad}: {err}"
        );
    }
}

/// One error of each kind that a throttle can have.
const THROTTLES: &str = r#"
[[listener]]
name = "main"
address = "127.0.0.1:0"

[[attribute]]
name = "tier"
header = "x-tier"

[[throttle]]
name = "a"
rate = "10 per second"                                  # wrong
key = ["source.adress", "token.scopes"]                 # wrong

[[throttle]]                                            # wrong
name = "b"
rate = "0/s"                                            # wrong

[[throttle]]
name = "c"
key = ["response.status", "throttle.name"]              # wrong
rate = "2000000/s"                                      # wrong

[[throttle]]
name = "d"
key = []
rate = "1/d"
burst = 367                                             # wrong
ipv4_prefix = 33                                        # wrong
when = "request.size > 5"                               # wrong

[[throttle]]
name = "e"
key = []
rate = "10/s"
cost = "request.method"                                 # wrong

[[throttle]]
name = "f"
key = []
rate = "10/s"
cost = "11"                                             # wrong

[[throttle]]
name = "f"                                              # wrong
key = []
rate = "10/s"
cost = "0 - 1"                                          # wrong

[[service]]
name = "s"
throttles = ["g", "e"]                                  # wrong
endpoint = [{ address = "s.internal:80" }]

[[route]]
name = "r"
auth = "public"
throttles = ["e", "e"]                                  # wrong
service = "s"
"#;

#[test]
fn every_error_in_a_throttle_is_reported_with_its_location() {
    let fixture = Fixture::new(THROTTLES);
    assert_eq!(fixture.lines("error"), marked(THROTTLES), "{:#?}", fixture.problems());
    let (_, _, err) = fixture.check(&[]);
    for expected in [
        "\"10 per second\" is not a rate; write a whole number above 0, a slash and a unit",
        "unknown attribute \"source.adress\"; did you mean \"source.address\"?",
        "\"token.scopes\" is of type list, by which nothing can be counted",
        "throttle has no key; name the attributes to count by",
        "\"response.status\" is not known yet when requests are counted",
        "the rate is above 1000000 a second; write at most \"1000000/s\"",
        "the burst is earned back in more than 366 days; lower the burst or raise the rate",
        "\"request.size\" is not known yet when requests are counted",
        "a cost is a number, and this is of type string",
        "the cost (11) is above the burst (10): every request is refused; lower the cost or raise the burst",
        "there is no throttle called \"g\"; there are: a, b, c, d, e, f",
        "\"e\" is there twice; remove one of them",
    ] {
        assert!(err.contains(expected), "{expected} is not in\n{err}");
    }
}

/// One error of each kind that a limit on requests in flight can have.
const ADMISSION: &str = r#"
[admission]
max_queue = 5                                           # wrong
max_age = "2m"                                          # wrong
priority = "queue.size > 5 ? 'low' : 'high'"            # wrong

[[listener]]
name = "main"
address = "127.0.0.1:0"

[[service]]
name = "s"
endpoint = [{ address = "s.internal:80" }]

[service.admission]
max_age = "1s"                                          # wrong

[[route]]
name = "r"
auth = "public"
service = "s"

[route.admission]
max_in_flight = 0                                       # wrong
priority = "urgent"                                     # wrong

[[route]]                                               # wrong
name = "static"
path = "/static"
auth = "public"
respond = { status = 200 }
admission = { max_in_flight = 5 }
"#;

#[test]
fn every_mistake_in_a_limit_on_requests_in_flight_is_told_with_its_place() {
    let fixture = Fixture::new(ADMISSION);
    assert_eq!(fixture.lines("error"), marked(ADMISSION), "{:#?}", fixture.problems());
    let (_, _, err) = fixture.check(&[]);
    for expected in [
        "max_queue without max_in_flight: no request waits; add max_in_flight to the same table, or remove the key",
        "max_age without max_in_flight",
        "\"queue.size\" is not known yet",
        "route \"static\" answers at once: its requests are not limited; remove its admission table",
    ] {
        assert!(err.contains(expected), "{expected} is not in\n{err}");
    }
    for (limit, expected) in [
        ("max_in_flight = 'adaptive'", ""),
        ("max_in_flight = 'adaptive'\nfloor = 20000", ""),
        ("max_in_flight = 'adaptive'\nceiling = 2", ""),
        ("max_in_flight = 'adaptive'\nfloor = 9\nceiling = 8", "the floor 9 is above the ceiling 8"),
        ("max_in_flight = 5\nfloor = 9", "floor with a fixed limit: only adaptive limits have one"),
        ("ceiling = 9", "ceiling without max_in_flight"),
        ("max_in_flight = 'automatic'", "\"adaptive\""),
    ] {
        let text = format!(
            "[admission]\n{limit}\n[[listener]]\nname = \"main\"\naddress = \"127.0.0.1:0\"\n\
             [[route]]\nname = \"r\"\nauth = \"public\"\nrespond = {{ status = 200 }}\n"
        );
        let (_, _, err) = Fixture::new(&text).check(&[]);
        assert_eq!(!err.contains("error"), expected.is_empty(), "{limit}: {err}");
        assert!(err.contains(expected), "{limit}: {err}");
    }
    for (priority, expected) in [
        ("1 + 1", "a priority is a text, and this is of type int"),
        ("'urgent'", "this is the name of no priority"),
        ("'low'", ""),
    ] {
        let text = format!(
            "[admission]\nmax_in_flight = 5\npriority = \"{priority}\"\n[[listener]]\nname = \"main\"\n\
             address = \"127.0.0.1:0\"\n[[route]]\nname = \"r\"\nauth = \"public\"\nrespond = {{ status = 200 }}\n"
        );
        let (_, _, err) = Fixture::new(&text).check(&[]);
        assert_eq!(!err.contains("error"), expected.is_empty(), "{priority}: {err}");
        assert!(err.contains(expected), "{priority}: {err}");
    }
}

/// One error of each kind that a tarpit can have.
const TARPIT: &str = r#"
[tarpit]
action = "hang"                                         # wrong
offences = 0                                            # wrong
delay_min = "31s"                                       # wrong
per_prefix_max = 0                                      # wrong
allow = ["10.0.0.0/33"]                                 # wrong
when = "source.adress == 'a'"                           # wrong

[[listener]]
name = "main"
address = "127.0.0.1:0"

[[route]]
name = "static"
auth = "public"
respond = { status = 200 }
"#;

#[test]
fn every_mistake_in_a_tarpit_is_told_with_its_place() {
    let fixture = Fixture::new(TARPIT);
    assert_eq!(fixture.lines("error"), marked(TARPIT), "{:#?}", fixture.problems());
    let (_, rest) = TARPIT.split_once("\n[[listener").unwrap();
    let swapped = format!("[tarpit]\ndelay_min = \"5s\"\ndelay_max = \"2s\"\n\n[[listener{rest}");
    let (_, _, err) = Fixture::new(&swapped).check(&[]);
    let expected = ":2:13: delay_min (5s) is above delay_max (2s); lower the one or raise the other";
    assert!(err.contains(expected), "{err}");
}

#[test]
fn a_throttle_with_a_probable_mistake_gets_a_warning() {
    const TEXT: &str = r#"
[[listener]]
name = "main"
address = "127.0.0.1:0"

[[issuer]]
name = "one"
issuer = "https://one.example"
audiences = ["a"]
discovery = true

[[issuer]]
name = "two"
issuer = "https://two.example"
audiences = ["a"]
discovery = true

[[throttle]]                                            # wrong
name = "nowhere"
key = []
rate = "10/s"

[[throttle]]
name = "callers"
key = ["token.sub"]                                     # wrong
rate = "10/s"
all_routes = true

[[throttle]]
name = "good"
key = ["token.iss", "token.sub"]
rate = "10/s"

[[route]]
name = "r"
auth = [{ issuer = "one" }, { issuer = "two" }]
throttles = ["good"]
respond = { body = "x" }
"#;
    let fixture = Fixture::new(TEXT);
    assert_eq!(fixture.lines("warning"), marked(TEXT), "{:#?}", fixture.problems());
}
