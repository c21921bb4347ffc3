//! Tests of warnings, each with a similar configuration that has none.

use cardea_gateway::routing::{HeaderMatch, HostPattern, Outcome, RequestView, RouteMatch, Router};
use proptest::prelude::*;

use super::{Fixture, LEAST};

/// The warnings about a valid configuration, without their locations.
fn warnings(text: &str) -> Vec<String> {
    let fixture = Fixture::new(&format!("{LEAST}{text}"));
    fixture.config().warnings.iter().map(|problem| problem.message.clone()).collect()
}

const SERVICE: &str = "[[service]]\nname = \"s\"\n[[service.endpoint]]\naddress = \"10.0.0.1:8080\"\n\
    [[route]]\nname = \"s\"\nauth = \"public\"\nservice = \"s\"\n";

#[test]
fn unused_objects_are_reported() {
    let issuer = "[[issuer]]\nname = \"i\"\nissuer = \"https://i\"\ndiscovery = true\naudiences = [\"a\"]\n";
    let asks = "[[route]]\nname = \"r\"\npath = \"/r\"\nauth = { issuer = \"i\" }\nbuiltin = \"health\"\n";
    assert_eq!(warnings(&format!("{SERVICE}{issuer}{asks}")), [""; 0]);
    assert_eq!(warnings(&format!("{SERVICE}{issuer}")), ["no route asks for tokens of the issuer \"i\""]);
    let unused = SERVICE.replace("service = \"s\"", "builtin = \"health\"");
    assert_eq!(warnings(&unused), ["no route leads to the service \"s\""]);
}

#[test]
fn plaintext_to_port_443_is_reported() {
    let https = SERVICE.replace(":8080", ":443");
    let found = warnings(&https);
    assert!(
        found.len() == 1 && found[0].starts_with("requests travel in clear text to 10.0.0.1:443"),
        "{found:?}"
    );
    assert_eq!(warnings(&https.replace("name = \"s\"\n[[", "name = \"s\"\ntls = {}\n[[")), [""; 0]);
}

#[test]
fn a_configuration_with_only_redirecting_listeners_is_reported() {
    let redirecting = format!("{LEAST}redirect_to_https = true\n{SERVICE}");
    let found = Fixture::new(&redirecting).config().warnings;
    assert_eq!(found[0].message, "every listener redirects to https, so that no route is ever used");
    let other = format!("{redirecting}[[listener]]\nname = \"other\"\naddress = \"127.0.0.1:0\"\n");
    assert_eq!(Fixture::new(&other).config().warnings, []);
}

#[test]
fn scopes_and_audiences_that_are_never_issued_are_reported() {
    let server = |scopes: &str, auth: &str| {
        format!(
            "[authorization_server]\nissuer = \"https://auth.example.com\"\ndefault_audience = \"https://api\"\n\
             resources = [\"https://more\"]\nscopes = {scopes}\nwrapping_key = {{ env = \"WRAPPING_KEY\" }}\n\
             [[issuer]]\nname = \"own\"\nlocal = true\naudiences = [\"https://api\", \"https://more\", \"https://else\"]\n\
             [[route]]\nname = \"r\"\nauth = {{ issuer = \"own\"{auth} }}\nbuiltin = \"health\"\n"
        )
    };
    for (scopes, auth, expected) in [
        ("[\"orders.read\"]", ", scopes = [\"orders.read\"]", None),
        (
            "[\"orders.read\"]",
            ", scopes = [\"orders.raed\"]",
            Some("\"orders.raed\", which the authorization server gives"),
        ),
        // Without a list, any scope is possible.
        ("[]", ", scopes = [\"orders.raed\"]", None),
        ("[]", ", audiences = [\"https://more\"]", None),
        ("[]", ", audiences = [\"https://else\", \"https://more\"]", None),
        ("[]", ", audiences = [\"https://else\"]", Some("issues no token for")),
    ] {
        let found = warnings(&server(scopes, auth));
        assert_eq!(found.len(), usize::from(expected.is_some()), "{auth}: {found:?}");
        assert!(expected.is_none_or(|expected| found[0].contains(expected)), "{found:?}");
    }
}

/// A request to the router.
struct Asked {
    method: &'static str,
    x: Option<&'static str>,
}

impl RequestView for Asked {
    fn method(&self) -> &str {
        self.method
    }

    fn has_header(&self, name: &str) -> bool {
        name == "x" && self.x.is_some()
    }

    fn listener(&self) -> &str {
        "main"
    }

    fn meets_condition(&self, _: usize) -> bool {
        true
    }

    fn header_equals(&self, name: &str, value: &str) -> bool {
        name == "x" && self.x == Some(value)
    }
}

/// A route as written, and as the router has it.
fn route(host: usize, path: usize, methods: usize, header: usize) -> (String, RouteMatch) {
    let (host, hosts) = [("[]", None), ("[\"a.example\"]", Some("a.example"))][host];
    let (key, path) = [
        ("path_prefix", "/a"),
        ("path_prefix", "/"),
        ("path", "/a"),
        ("path", "/a/"),
        ("path", "/"),
        ("path_pattern", "/a/{*rest}"),
        ("path_pattern", "/{*rest}"),
    ][path];
    let (methods, names): (&str, &[&str]) =
        [("[]", &[][..]), ("[\"GET\"]", &["GET"]), ("[\"GET\", \"PUT\"]", &["GET", "PUT"])][methods];
    let (headers, wanted) = [
        ("{}", None),
        ("{ x = true }", Some(HeaderMatch::Present)),
        ("{ x = \"1\" }", Some(HeaderMatch::Exact("1".to_owned()))),
    ][header]
        .clone();
    let matched = RouteMatch {
        hosts: hosts.into_iter().map(|host| host.parse::<HostPattern>().unwrap()).collect(),
        path: match key {
            "path" => cardea_gateway::routing::PathMatch::Exact(path.to_owned()),
            "path_prefix" => cardea_gateway::routing::PathMatch::Prefix(path.to_owned()),
            _ => cardea_gateway::routing::PathMatch::Pattern(path.to_owned()),
        },
        methods: names.iter().map(|&name| name.to_owned()).collect(),
        headers: wanted.into_iter().map(|wanted| ("x".to_owned(), wanted)).collect(),
        listeners: Vec::new(),
        condition: false,
    };
    (format!("hosts = {host}\n{key} = \"{path}\"\nmethods = {methods}\nheaders = {headers}\n"), matched)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_route_is_called_unreachable_only_where_no_request_reaches_it(
        routes in prop::collection::vec((0..2_usize, 0..7_usize, 0..3_usize, 0..3_usize), 1..9),
    ) {
        let mut text = LEAST.to_owned();
        let mut matches = Vec::new();
        for (index, (host, path, methods, header)) in routes.into_iter().enumerate() {
            let (written, matched) = route(host, path, methods, header);
            text.push_str(&format!("[[route]]\nname = \"r{index}\"\nauth = \"public\"\nbuiltin = \"health\"\n{written}"));
            matches.push((matched, index));
        }
        let (Ok(config), Ok(router)) = (Fixture::new(&text).load(), Router::new(matches)) else { return Ok(()) };
        let unreachable: Vec<&str> =
            config.warnings.iter().filter_map(|one| one.message.split('"').nth(1)).collect();
        for host in ["a.example", "b.example"] {
            for path in ["/", "/a", "/a/", "/a/b", "/a/b/", "/ab", "/b/c"] {
                for method in ["GET", "PUT", "DELETE"] {
                    for x in [None, Some("1"), Some("2")] {
                        if let Outcome::Found(found) = router.find(host, path.as_bytes(), &Asked { method, x }) {
                            let name = format!("r{}", found.route());
                            prop_assert!(!unreachable.contains(&name.as_str()), "{name} {host} {path} {method} {x:?}\n{text}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_prefix_covered_by_other_routes_is_reported() {
    let rest = "[[route]]\nname = \"%\"\nauth = \"public\"\nbuiltin = \"health\"\n";
    let route = |name: &str, path: &str| format!("{}{path}\n", rest.replace('%', name));
    let mut text = route("all", "path_prefix = \"/a\"");
    for (name, path) in
        [("it", "path = \"/a\""), ("slash", "path = \"/a/\""), ("below", "path_pattern = \"/a/{*x}\"")]
    {
        assert_eq!(warnings(&text), [""; 0], "{text}");
        text.push_str(&route(name, path));
    }
    assert_eq!(warnings(&text), ["no request reaches the route \"all\": preferred ones take them all"]);
    assert_eq!(warnings(&text.replace("path = \"/a/\"", "path = \"/a/\"\nmethods = [\"GET\"]")), [""; 0]);
}
