//! Tests of lists that restrict: one without elements would restrict nothing.

use super::{Fixture, LEAST, errors::assert_problem, shape};

/// A configuration with lists that restrict, each in a line.
const WHOLE: &str = r#"
[[client_authority]]
name = "staff"
ca_file = "a.pem"
crl_files = ["a.pem"]
[[issuer]]
name = "main"
issuer = "https://i.example"
audiences = ["a"]
discovery = true
[[throttle]]
name = "t"
key = []
rate = "1/s"
[[listener]]
name = "tls"
address = "127.0.0.1:2"
[listener.tls]
client_certificate = "request"
client_authorities = ["staff"]
[[listener.tls.certificate]]
chain = "a.pem"
key = "a.pem"
hosts = ["a.example"]
[[route]]
name = "r"
hosts = ["a.example"]
methods = ["GET"]
listeners = ["tls"]
throttles = ["t"]
policy = [{ deny = "request.path == '/x'" }]
respond = {}
[route.auth]
issuer = "main"
audiences = ["a"]
scopes = ["s"]
roles = ["r"]
[route.client_certificate]
mode = "required"
authorities = ["staff"]
names = ["dns:a.example"]
fingerprints = ["0000000000000000000000000000000000000000000000000000000000000000"]
[[service]]
name = "s"
throttles = ["t"]
[[service.endpoint]]
address = "127.0.0.1:1"
"#;

#[test]
fn an_empty_list_removes_no_restriction() {
    let whole = format!("{LEAST}{WHOLE}");
    let load = |text: &str| Fixture::new(text).file("a.pem", "PEM");
    load(&whole).config();
    let mut emptied = Vec::new();
    for (number, line) in whole.lines().enumerate() {
        let Some((key, _)) = line.split_once(" = [").filter(|(_, rest)| *rest != "]") else { continue };
        let text = whole
            .lines()
            .enumerate()
            .map(|(at, line)| if at == number { format!("{key} = []\n") } else { format!("{line}\n") });
        let problems = load(&text.collect::<String>()).problems();
        if key == "client_authorities" {
            assert!(problems[0].contains("nobody may vouch for clients"), "{problems:?}");
        } else {
            let at = format!("cardea.toml:{}:{}: ", number + 1, key.len() + 4);
            assert_eq!(problems, [format!("{at}{key} is empty; give at least 1")], "{line}");
        }
        emptied.push(key);
    }
    assert_eq!(emptied.len(), 16, "{emptied:?}");
    assert_problem("policy = []", ":1:10: policy is empty; give at least 1");
    assert_problem("throttle = []", ":1:12: throttle is empty; give at least 1");
    assert_problem(
        "[[listener]]\nname = \"x\"\naddress = \"127.0.0.1:1\"\nproxy_protocol = \"v2\"\nproxy_protocol_from = []\n\
         [trusted_proxies]\nprefixes = [\"10.0.0.0/8\"]",
        ":5:23: proxy_protocol_from is empty; give at least 1",
    );
    assert_problem(
        "[[issuer]]\nname = \"i\"\npreset = \"entra\"\naudiences = [\"a\"]\ntenants = []",
        ":5:11: tenants is empty; give at least 1",
    );
}

/// The lists that may be empty. No element of theirs restricts who may call or how often, or another check requires one:
/// of `client_authorities` where certificates are requested.
const MAY_BE_EMPTY: [&str; 37] = [
    "acme.contacts",
    "admin.hosts",
    "attribute",
    "authorization_server.resources",
    "authorization_server.scopes",
    "client_authority",
    "dns.servers",
    "failover.failure_statuses",
    "failover.retry_statuses",
    "forwarding.keep_client_headers",
    "include",
    "issuer",
    "issuer.key_hosts",
    "listener",
    "listener.tls.certificate.client_authorities",
    "listener.tls.client_authorities",
    "readiness.issuers",
    "region_position",
    "request_headers",
    "request_headers.remove",
    "response_headers",
    "response_headers.remove",
    "route",
    "route.allow_encoded",
    "route.attributes",
    "route.attributes.remove",
    "route.opens",
    "route.request_headers",
    "route.request_headers.remove",
    "route.response_headers",
    "route.response_headers.remove",
    "service",
    "service.failover.failure_statuses",
    "service.failover.retry_statuses",
    "tarpit.allow",
    "throttle.key",
    "trusted_proxies.prefixes",
];

#[test]
fn every_list_that_may_be_empty_is_known() {
    fn walk(shape: &shape::Shape, path: &str, found: &mut Vec<String>) {
        match &shape.kind {
            shape::Kind::List { item, items_min } => {
                if *items_min == 0 {
                    found.push(path.to_owned());
                }
                walk(item, path, found);
            }
            shape::Kind::Map(item) => walk(item, path, found),
            shape::Kind::Table(table) => {
                for (name, key) in &table.keys {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    walk(&key.shape, &path, found);
                }
            }
            shape::Kind::Any(alternatives) => {
                alternatives.iter().for_each(|alternative| walk(alternative, path, found));
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(&crate::schema::shape(), "", &mut found);
    found.sort();
    found.dedup();
    assert_eq!(found, MAY_BE_EMPTY, "does an empty list restrict less? then it needs length(min = 1)");
}
