//! Bytes of headers that are not ASCII: rules see characters, whatever they are sent in; services get what was sent.

use cardea_env::{Condition, Effect, JsonRecord, Policy, Rule, Template};
use cardea_gateway::{
    attributes::TABLE,
    model::{EnvironmentModel, HeaderEncoding, LogFormat, RouteRules},
    routing::{HeaderMatch, PathMatch, RouteMatch},
};
use serde_json::{Value, json};

use crate::support::{Origin, RouteSpec, Spec, run};

const UTF8: &[u8] = b"j\xC3\xB6rg";
const LATIN1: &[u8] = b"j\xF6rg";

fn spec(origin: &Origin) -> Spec {
    let mut spec = Spec::to(origin).public(|route| {
        route.rules = || {
            let condition = "'x-user' in request.headers && request.headers['x-user'].matches('^j\u{f6}.*$')\
                 || 'who' in request.cookies && request.cookies.who == 'j\u{f6}rg'";
            let condition = Condition::compile(condition, &TABLE).unwrap();
            let rule = Rule { effect: Effect::Deny, condition, reason: None, show: false };
            RouteRules { policy: Some(Policy::new(vec![rule])), ..RouteRules::default() }
        };
        route.request_headers = vec![
            ("x-copy", "<{request.headers.x-user}>"),
            ("x-same", "{= has(request.headers['x-user']) ? request.headers['x-user'] : ''}"),
        ];
    });
    let mut special = RouteSpec::new("special", "/");
    special.matches = RouteMatch::new(PathMatch::Exact("/special".into()));
    special.matches.headers = vec![("x-user".into(), HeaderMatch::Exact("zo\u{eb}".into()))];
    special.response_headers = vec![("x-route", "special")];
    spec.routes.push(special);
    spec.log = || {
        let fields = ["request.headers.x-user", "request.first_header.x-user"].map(|name| (name, name));
        LogFormat::Json(JsonRecord::compile(fields, &TABLE).unwrap()).into()
    };
    spec
}

fn latin1() -> EnvironmentModel {
    EnvironmentModel { header_encoding: HeaderEncoding::Latin1, ..EnvironmentModel::default() }
}

fn request(path: &str, name: &str, value: &[u8]) -> Vec<u8> {
    let head = format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n{name}");
    [head.as_bytes(), value, b"\r\n\r\n"].concat()
}

/// As the records of origins and clients show bytes.
fn shown(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

fn line(user: &str) -> Value {
    json!({ "request.headers.x-user": user, "request.first_header.x-user": user })
}

#[test]
fn a_rule_is_not_passed_by_in_another_encoding_and_bytes_go_on_as_they_came() {
    run(async {
        let origin = Origin::ok().await;
        let environments: [fn() -> EnvironmentModel; 2] = [EnvironmentModel::default, latin1];
        let [as_utf8, as_latin1] = environments;
        // Where services read Latin-1, two bytes of UTF-8 are two characters to them, and another name.
        for (environment, sent, logged, allowed) in [
            (as_utf8, UTF8, "j\u{f6}rg", false),
            (as_utf8, LATIN1, "j\u{f6}rg", false),
            (as_utf8, b"j\xF6\xFF".as_slice(), "j\u{f6}\u{ff}", false),
            (as_utf8, b"j\xE4rg".as_slice(), "j\u{e4}rg", true),
            (as_latin1, LATIN1, "j\u{f6}rg", false),
            (as_latin1, b"j\xF6\xC3\xB6".as_slice(), "j\u{f6}\u{c3}\u{b6}", false),
            (as_latin1, UTF8, "j\u{c3}\u{b6}rg", true),
        ] {
            let mut spec = spec(&origin);
            spec.environment = environment;
            let gateway = spec.start().await;
            let mut client = gateway.client().await;
            let before = origin.text().len();
            let response = client.exchange(request("/", "X-User: ", sent)).await;
            assert_eq!(response.status, if allowed { 200 } else { 403 }, "{}", sent.escape_ascii());
            assert_eq!(gateway.log(1).await[0], line(logged));
            let forwarded = origin.text().split_off(before);
            for field in ["x-user: ", "x-copy: <", "x-same: "] {
                let expected = format!("{field}{}", shown(sent));
                assert_eq!(forwarded.to_ascii_lowercase().contains(&expected), allowed, "{forwarded}");
            }
        }
    });
}

#[test]
fn cookies_and_headers_of_routes_are_read_in_the_same_way() {
    run(async {
        let origin = Origin::ok().await;
        let special = Some("special");
        for (environment, utf8, in_latin1) in [
            (EnvironmentModel::default as fn() -> EnvironmentModel, (403, special), (403, special)),
            (latin1, (200, None), (403, special)),
        ] {
            let mut spec = spec(&origin);
            spec.environment = environment;
            let gateway = spec.start().await;
            let mut client = gateway.client().await;
            for (user, zoe, (status, route)) in
                [(UTF8, b"zo\xC3\xAB".as_slice(), utf8), (LATIN1, b"zo\xEB".as_slice(), in_latin1)]
            {
                let response = client.exchange(request("/", "Cookie: a=1; who=", user)).await;
                assert_eq!(response.status, status, "{}", user.escape_ascii());
                let response = client.exchange(request("/special", "X-User: ", zoe)).await;
                assert_eq!((response.status, response.header("x-route")), (200, route));
            }
        }
    });
}

#[test]
fn what_a_header_is_made_of_is_not_broken_out_of_in_any_encoding() {
    run(async {
        let origin = Origin::ok().await;
        let mut spec = Spec::to(&origin).public(|route| {
            route.rules_of_headers = || {
                let made = Template::compile("{= request.headers['x-user'] + '\u{2603}'}", &TABLE).unwrap();
                (vec![cardea_gateway::model::HeaderRule::Set("x-made".into(), made)], Vec::new())
            };
        });
        spec.environment = latin1;
        let gateway = spec.start().await;
        // U+0085 and U+008D end lines for some readers of Unicode, and end none in a header.
        let sent = b"a\x85X-Evil: 1\x8D\xC4\x8A";
        assert_eq!(gateway.client().await.exchange(request("/", "X-User: ", sent)).await.status, 200);
        let made = "a\u{85}X-Evil: 1\u{8d}\u{c4}\u{8a}\u{2603}";
        let text = origin.text();
        assert!(text.contains(&format!("x-made: {}\r\n", shown(made.as_bytes()))), "{text:?}");
        assert_eq!(text.matches("\r\nX-Evil").count(), 0);
    });
}
