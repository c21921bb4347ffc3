//! `cardea test` says what the gateway does: both are asked the same requests, with the same configuration.

use std::{collections::BTreeMap, fmt::Write as _};

use cardea_clock::Wall;
use cardea_tls::authority::Authority;

use crate::support::{
    Connection, Folder, Server,
    client::{Answer, HOST},
    folder::Settings,
    run,
};

const FROM: Wall = Wall::from_unix_seconds(0);
const TO: Wall = Wall::from_unix_seconds(4_000_000_000);

/// Nobody's: no token is sent.
const KEYS: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","use":"sig","alg":"EdDSA","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

const CONFIGURATION: &str = r#"
[admin]
address = "127.0.0.1:0"
socket = "admin.sock"

[drain]
delay = "0s"

[log]
format = "json"

[limits]
head_bytes_max = "4KiB"
target_bytes_max = "1KiB"
fields_max = 20
body_bytes_max = "1KiB"

[[client_authority]]
name = "staff"
ca_file = "staff.pem"

[[listener]]
name = "plain"
address = "127.0.0.1:0"

[[listener]]
name = "https"
address = "127.0.0.1:0"
[[listener.tls.certificate]]
chain = "gateway.pem"
key = "gateway.key"

[[listener]]
name = "staff"
address = "127.0.0.1:0"
[[listener.tls.certificate]]
chain = "staff-host.pem"
key = "staff-host.key"
client_certificate = "require"
client_authorities = ["staff"]

[[issuer]]
name = "main"
issuer = "https://id.test"
audiences = ["api"]
jwks_file = "keys.json"

[[policy]]
deny = "has(request.headers['x-denied'])"

[[route]]
name = "open"
path_prefix = "/open"
auth = "public"
respond = { body = "open" }

[[route]]
name = "small"
path_prefix = "/small"
auth = "public"
body_bytes_max = "10B"
respond = { status = 201, body = "small" }

[[route]]
name = "methods"
path_prefix = "/methods"
methods = ["GET"]
auth = "public"
respond = { body = "methods" }

[[route]]
name = "guarded"
path_prefix = "/guarded"
auth = { issuer = "main" }
respond = { body = "guarded" }

[[route]]
name = "allowed"
path_prefix = "/allowed"
auth = "public"
policy = [{ allow = "request.headers['x-role'] == 'user'" }]
respond = { body = "allowed" }

[[route]]
name = "moved"
path_prefix = "/moved"
auth = "public"
redirect = { to = "https://new.test/", status = 302 }
"#;

/// A request: how it comes, and what becomes of it.
struct Case {
    listener: &'static str,
    host: &'static str,
    method: &'static str,
    target: String,
    fields: Vec<(&'static str, String)>,
    /// The status, and the reason of a refusal.
    expected: (u16, &'static str),
}

fn case(method: &'static str, target: impl Into<String>, expected: (u16, &'static str)) -> Case {
    Case { listener: "plain", host: HOST, method, target: target.into(), fields: Vec::new(), expected }
}

impl Case {
    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    fn at(self, listener: &'static str, host: &'static str) -> Self {
        Self { listener, host, ..self }
    }

    /// Values by names, as a file of tests has them.
    fn by_name(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut fields: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, value) in &self.fields {
            fields.entry(name).or_default().push(value);
        }
        fields
    }

    fn head(&self) -> String {
        let mut head = format!("{} {} HTTP/1.1\r\nHost: {}\r\n", self.method, self.target, self.host);
        for (name, values) in self.by_name() {
            for value in values {
                write!(head, "{name}: {value}\r\n").unwrap();
            }
        }
        head + "\r\n"
    }

    fn test(&self, answer: &Answer) -> String {
        let scheme = if self.listener == "plain" { "http" } else { "https" };
        let mut test = format!(
            "[[test]]\nname = {:?}\n[test.request]\nmethod = {:?}\nurl = \"{scheme}://{}/\"\nrequest_target = {:?}\nlistener = {:?}\n",
            self.name(),
            self.method,
            self.host,
            self.target,
            self.listener
        );
        let fields: Vec<String> =
            self.by_name().iter().map(|(name, values)| format!("{name:?} = {values:?}")).collect();
        writeln!(test, "headers = {{ {} }}\n[test.expect]\nstatus = {}", fields.join(", "), answer.status)
            .unwrap();
        match answer.member("code") {
            Some(code) => writeln!(test, "allowed = false\ncode = {code:?}").unwrap(),
            None => writeln!(test, "allowed = true").unwrap(),
        }
        if let Some(location) = answer.head.field("location") {
            writeln!(test, "location = {location:?}").unwrap();
        }
        test
    }

    fn name(&self) -> String {
        let target: String = self.target.chars().take(40).collect();
        let names: Vec<&str> = self.fields.iter().map(|(name, _)| *name).take(3).collect();
        format!("{} {target} {names:?} at {} of {}", self.method, self.host, self.listener)
    }
}

fn cases() -> Vec<Case> {
    let many = |count: usize| {
        (0..count).fold(case("GET", "/open", (431, "too_many_fields")), |case, _| case.with("x-a", "1"))
    };
    vec![
        case("GET", "/open", (200, "")),
        case("POST", "/open", (200, "")).with("content-length", "1024"),
        case("POST", "/open", (413, "request_body_too_large")).with("content-length", "1025"),
        case("POST", "/small", (201, "")).with("content-length", "10"),
        case("POST", "/small", (413, "request_body_too_large")).with("content-length", "11"),
        case("POST", "/open", (200, "")).with("transfer-encoding", "chunked"),
        case("POST", "/open", (400, "content_length_repeated"))
            .with("content-length", "1")
            .with("content-length", "1"),
        case("POST", "/open", (400, "content_length_repeated")).with("content-length", "1, 1"),
        case("POST", "/open", (400, "content_length_invalid")).with("content-length", "+1"),
        case("POST", "/open", (400, "content_length_with_transfer_encoding"))
            .with("content-length", "1")
            .with("transfer-encoding", "chunked"),
        case("POST", "/open", (400, "transfer_encoding_unknown")).with("transfer-encoding", "gzip"),
        case("POST", "/open", (400, "framing_field_lookalike")).with("content_length", "1"),
        case("POST", "/open", (417, "expectation_failed"))
            .with("content-length", "1")
            .with("expect", "coffee"),
        case("POST", "/open", (200, "")).with("content-length", "1").with("expect", "100-Continue"),
        many(19).into_good(),
        many(20),
        case("GET", "/open", (431, "head_too_large")).with("x-large", "x".repeat(5_000)),
        case("GET", format!("/open/{}", "x".repeat(1_100)), (414, "target_too_long")),
        case("GET", "/open/%zz", (400, "target_escape_invalid")),
        case("GET", "/open/a%2fb", (400, "path_encoding_not_allowed")),
        case("GET", "open", (400, "target_form_invalid")),
        case("CONNECT", "api.test:443", (501, "connect_not_supported")),
        case("G=T", "/open", (400, "method_invalid")),
        case("GET", "/open", (400, "host_repeated")).with("host", HOST),
        case("GET", "/open", (400, "field_name_invalid")).with("x a", "1"),
        case("GET", "/nowhere", (404, "route_not_found")),
        case("PUT", "/methods", (405, "method_not_allowed")),
        case("GET", "/guarded", (401, "credentials_missing")),
        case("GET", "/guarded", (400, "credentials_malformed")).with("authorization", "Bearer a b"),
        case("GET", "/open", (403, "policy_denied")).with("x-denied", "1"),
        case("GET", "/allowed", (200, "")).with("x-role", "user"),
        case("GET", "/allowed", (403, "policy_denied")).with("x-role", "other"),
        case("GET", "/allowed", (403, "policy_failed")).with("x-role", "user").with("x-role", "other"),
        case("GET", "/moved", (302, "")),
        // What is asked for is judged in this order.
        case("POST", "/guarded", (413, "request_body_too_large")).with("content-length", "2000"),
        // What a host requires of clients binds its requests wherever they come by.
        case("GET", "/open", (421, "client_certificate_unasked")).at("plain", "staff.test"),
        case("GET", "/open", (421, "client_certificate_unasked")).at("https", "staff.test"),
        case("GET", "/open", (200, "")).at("https", HOST),
    ]
}

impl Case {
    fn into_good(self) -> Self {
        Self { expected: (200, ""), ..self }
    }
}

#[test]
fn a_test_finds_what_the_gateway_answers() {
    let folder = Folder::new(&Settings::default());
    let web = Authority::new("web", FROM, TO).unwrap();
    let issued = web.issue(&["staff.test"], FROM, TO).unwrap();
    folder.write("staff-host.pem", &issued.chain_pem);
    folder.write("staff-host.key", &issued.key_pem);
    folder.write("staff.pem", &web.certificate_pem());
    folder.write("keys.json", KEYS);
    folder.write("cardea.toml", CONFIGURATION);
    let server = Server::start(&folder);
    let (mut tests, mut others) = (String::new(), Vec::new());
    for case in cases() {
        let mut connection = match case.listener {
            "plain" => Connection::plain(server.listener("plain")).unwrap(),
            listener => Connection::tls(server.listener(listener), &server.tls).unwrap(),
        };
        connection.send(case.head().as_bytes()).unwrap();
        let answer = connection.answer().unwrap().unwrap();
        let code = answer.member("code").unwrap_or_default();
        if (answer.status, code.as_str()) != case.expected {
            others.push(format!("{}: {} {code}, not {:?}", case.name(), answer.status, case.expected));
        }
        tests.push_str(&case.test(&answer));
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
    server.stop();
    folder.write("tests.toml", &tests);
    let ran = run(folder.path(), &["test", "tests.toml", "--config", "cardea.toml"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
}
