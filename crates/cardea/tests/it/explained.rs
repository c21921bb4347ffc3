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
hosts = ["staff.test"]
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

[[route]]
name = "spelled"
path_prefix = "/spelled"
auth = "public"
redirect = { to = "https://new.test/{request.authority}{request.path}", status = 302 }
"#;

/// A request: how it comes, and what becomes of it.
struct Case {
    listener: &'static str,
    version: &'static str,
    /// The values of `Host`, as sent.
    hosts: Vec<String>,
    method: String,
    target: String,
    fields: Vec<(&'static str, String)>,
    /// The status, and the reason of a refusal or the location of a redirect.
    expected: (u16, String),
}

fn case(method: &str, target: impl Into<String>, (status, detail): (u16, &str)) -> Case {
    Case {
        listener: "plain",
        version: "1.1",
        hosts: vec![HOST.to_owned()],
        method: method.to_owned(),
        target: target.into(),
        fields: Vec::new(),
        expected: (status, detail.to_owned()),
    }
}

impl Case {
    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    fn at(self, listener: &'static str, host: &str) -> Self {
        Self { listener, ..self }.hosts(&[host])
    }

    fn hosts(self, hosts: &[&str]) -> Self {
        Self { hosts: hosts.iter().map(|&host| host.to_owned()).collect(), ..self }
    }

    /// The same over HTTP/1.0.
    fn old(self) -> Self {
        Self { version: "1.0", ..self }
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
        let mut head = format!("{} {} HTTP/{}\r\n", self.method, self.target, self.version);
        for host in &self.hosts {
            write!(head, "Host: {host}\r\n").unwrap();
        }
        for (name, values) in self.by_name() {
            for value in values {
                write!(head, "{name}: {value}\r\n").unwrap();
            }
        }
        head + "\r\n"
    }

    /// Host and target are in the URL, if a URL can have them.
    fn test(&self, answer: &Answer) -> String {
        let scheme = if self.listener == "plain" { "http" } else { "https" };
        let mut headers = self.by_name();
        let authority = match self.hosts.as_slice() {
            [host] if !host.is_empty() && !host.contains(['/', '?', '#']) => host.as_str(),
            hosts => {
                headers.insert("host", hosts.iter().map(String::as_str).collect());
                HOST
            }
        };
        let is_in_url = self.target.starts_with('/') && !self.target.contains('#');
        let path = if is_in_url { self.target.as_str() } else { "/" };
        let mut test = format!(
            "[[test]]\nname = {}\n[test.request]\nmethod = {}\nurl = {}\nlistener = {}\n",
            text(&self.name()),
            text(&self.method),
            text(&format!("{scheme}://{authority}{path}")),
            text(self.listener),
        );
        if !is_in_url {
            writeln!(test, "request_target = {}", text(&self.target)).unwrap();
        }
        if self.version != "1.1" {
            writeln!(test, "http_version = {}", text(self.version)).unwrap();
        }
        let fields: Vec<String> = headers
            .iter()
            .map(|(name, values)| {
                let values: Vec<String> = values.iter().map(|value| text(value)).collect();
                format!("{} = [{}]", text(name), values.join(", "))
            })
            .collect();
        writeln!(test, "headers = {{ {} }}\n[test.expect]\nstatus = {}", fields.join(", "), answer.status)
            .unwrap();
        match answer.member("code") {
            Some(code) => writeln!(test, "allowed = false\ncode = {}", text(&code)).unwrap(),
            None => writeln!(test, "allowed = true").unwrap(),
        }
        if let Some(location) = answer.head.field("location") {
            writeln!(test, "location = {}", text(location)).unwrap();
        }
        test
    }

    fn name(&self) -> String {
        let short = |text: &str| text.chars().take(40).collect::<String>();
        let names: Vec<&str> = self.fields.iter().map(|(name, _)| *name).take(3).collect();
        let hosts: Vec<String> = self.hosts.iter().map(|host| short(host)).collect();
        let (method, target) = (short(&self.method), short(&self.target));
        format!("{method} {target} {} {names:?} at {hosts:?} of {}", self.version, self.listener)
    }
}

/// A TOML string. JSON's differ only in U+007F, which no case has.
fn text(value: &str) -> String {
    serde_json::to_string(value).unwrap()
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
        case("GET", "/open", (400, "host_repeated")).hosts(&[HOST, HOST]),
        case("GET", "/open", (400, "field_name_invalid")).with("x a", "1"),
        case("GET", "/nowhere", (404, "route_not_found")),
        case("PUT", "/methods", (405, "method_not_allowed")),
        case("GET", "/guarded", (401, "credentials_missing")),
        case("GET", "/guarded", (400, "credentials_malformed")).with("authorization", "Bearer a b"),
        case("GET", "/open", (403, "policy_denied")).with("x-denied", "1"),
        case("GET", "/allowed", (200, "")).with("x-role", "user"),
        case("GET", "/allowed", (403, "policy_denied")).with("x-role", "other"),
        case("GET", "/allowed", (403, "policy_failed")).with("x-role", "user").with("x-role", "other"),
        case("GET", "/moved", (302, "https://new.test/")),
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
        Self { expected: (200, String::new()), ..self }
    }
}

/// Spellings that browsers change before they send them. The location of the response has the normal form.
fn spellings() -> Vec<Case> {
    let hosts = [
        ("GATEWAY.test", "gateway.test"),
        ("gateway.test.", "gateway.test"),
        ("gateway.test:80", "gateway.test"),
        ("gateway.test:", "gateway.test"),
        ("gateway.test:0080", "gateway.test"),
        ("gateway.test:443", "gateway.test:443"),
        ("gateway.test ", "gateway.test"),
        ("xn--bcher-kva.test", "xn--bcher-kva.test"),
        ("127.0.0.1", "127.0.0.1"),
        ("[0:0::1]", "[::1]"),
        ("[::FFFF:127.0.0.1]:80", "[::ffff:127.0.0.1]"),
    ]
    .map(|(host, normal)| {
        case("GET", "/spelled", (302, &format!("https://new.test/{normal}/spelled"))).hosts(&[host])
    });
    let targets = [
        ("/spelled/a/../b", "/spelled/b"),
        ("/spelled/./a", "/spelled/a"),
        ("/spelled//a", "/spelled/a"),
        ("//x.test/../spelled", "/spelled"),
        ("/%73pelled/%7ea%c3%a9", "/spelled/~a%C3%A9"),
        ("/spelled?", "/spelled"),
        ("/spelled?a=%zz&b='c'?d", "/spelled?a=%zz&b='c'?d"),
        ("http://GATEWAY.test:80/spelled/../spelled?q", "/spelled?q"),
    ]
    .map(|(target, normal)| case("GET", target, (302, &format!("https://new.test/gateway.test{normal}"))));
    let versions = [
        case("GET", "/open", (400, "host_missing")).hosts(&[]),
        case("GET", "/open", (400, "host_missing")).hosts(&[]).old(),
        case("GET", "http://gateway.test/open", (400, "host_missing")).hosts(&[]),
        case("GET", "http://gateway.test/open", (200, "")).hosts(&[]).old(),
        case("GET", "/open", (200, "")).old(),
        case("GET", "/open", (400, "host_invalid")).hosts(&["%67ateway.test"]).old(),
        case("POST", "/open", (400, "transfer_encoding_in_http10"))
            .with("transfer-encoding", "chunked")
            .old(),
        case("POST", "/open", (200, "")).with("content-length", "1").with("expect", "100-continue").old(),
    ];
    let all = [Vec::from(hosts), targets.into(), versions.into(), refused_spellings()];
    all.into_iter().flatten().collect()
}

fn refused_spellings() -> Vec<Case> {
    let long = "a.".repeat(130) + "test";
    let hosts = [
        ("gateway.test:0", "host_port_invalid"),
        ("gateway.test:65536", "host_port_invalid"),
        ("gateway.test:http", "host_port_invalid"),
        ("b\u{fc}cher.test", "host_invalid"),
        ("gateway\u{3002}test", "host_invalid"),
        ("gate\u{ad}way.test", "host_invalid"),
        ("%67ateway.test", "host_invalid"),
        ("gate\tway.test", "host_invalid"),
        ("gateway.test\\x", "host_invalid"),
        ("0x7f.1", "host_address_invalid"),
        ("127.1", "host_address_invalid"),
        ("2130706433", "host_address_invalid"),
        ("127.0.0.01", "host_address_invalid"),
        ("[::1", "host_address_invalid"),
        ("[::1%25lo]", "host_address_invalid"),
        ("gateway..test", "host_empty"),
        (".", "host_empty"),
        (":80", "host_empty"),
        ("", "host_empty"),
        ("user@gateway.test", "host_user_info"),
        ("user:word@gateway.test", "host_user_info"),
        ("gateway.test/x", "host_invalid"),
        (long.as_str(), "host_too_long"),
    ]
    .map(|(host, code)| case("GET", "/spelled", (400, code)).hosts(&[host]));
    let targets = [
        ("/spelled/%2e%2e/x", (404, "route_not_found")),
        ("/SPELLED", (404, "route_not_found")),
        ("/spelled/%", (400, "target_escape_invalid")),
        ("/spelled/a%5cb", (400, "path_encoding_not_allowed")),
        ("/spelled/%00", (400, "path_encoding_not_allowed")),
        ("/spelled\\a", (404, "route_not_found")),
        ("/spelled/a\\b", (400, "path_encoding_not_allowed")),
        ("/spelled/<a>", (400, "target_byte_invalid")),
        ("/spelled/\u{e9}", (400, "target_byte_invalid")),
        ("/spelled/a b", (400, "start_line_invalid")),
        ("/spelled/a\tb", (400, "target_byte_invalid")),
        ("/spelled?a b", (400, "start_line_invalid")),
        ("/spelled?\u{e9}", (400, "target_byte_invalid")),
        ("/spelled?a#b", (400, "target_fragment")),
        ("/spelled#b", (400, "target_fragment")),
        ("", (400, "start_line_invalid")),
        ("*", (400, "target_form_not_allowed")),
        ("?a", (400, "target_form_invalid")),
        ("https://gateway.test/spelled", (400, "scheme_disagrees")),
        ("http://other.test/spelled", (400, "host_disagrees")),
        ("http:///spelled", (400, "target_authority_invalid")),
        ("http://user@gateway.test/spelled", (400, "target_user_info")),
        ("ftp://gateway.test/spelled", (400, "target_scheme_unknown")),
    ]
    .map(|(target, expected)| case("GET", target, expected));
    let methods = [
        ("get", (405, "method_not_allowed")),
        ("M-SEARCH", (405, "method_not_allowed")),
        ("", (400, "start_line_invalid")),
        (" GET", (400, "start_line_invalid")),
        ("G\u{c9}T", (400, "method_invalid")),
        ("GET /methods HTTP/1.1 GET", (400, "start_line_invalid")),
    ]
    .map(|(method, expected)| case(method, "/methods", expected));
    [Vec::from(hosts), targets.into(), methods.into()].into_iter().flatten().collect()
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
    for case in cases().into_iter().chain(spellings()) {
        let mut connection = match case.listener {
            "plain" => Connection::plain(server.listener("plain")).unwrap(),
            listener => Connection::tls(server.listener(listener), &server.tls).unwrap(),
        };
        connection.send(case.head().as_bytes()).unwrap();
        let answer = connection.answer().unwrap().unwrap();
        let location = answer.head.field("location").map(str::to_owned);
        let found = (answer.status, answer.member("code").or(location).unwrap_or_default());
        if found != case.expected {
            others.push(format!("{}: {found:?}, not {:?}", case.name(), case.expected));
        }
        tests.push_str(&case.test(&answer));
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
    server.stop();
    folder.write("tests.toml", &tests);
    let ran = run(folder.path(), &["test", "tests.toml", "--config", "cardea.toml"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
}
