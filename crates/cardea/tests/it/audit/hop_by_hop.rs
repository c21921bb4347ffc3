//! Rules and the origin read the same fields: what `Connection` names is gone before anything is decided.

use super::lab::{Lab, PUNCTUATION, Request, Way};
use crate::support::client::HOST;

const ROUTES: &str = r#"
[[attribute]]
name = "mode"
header = "x-mode"

[[route]]
name = "open"
path_prefix = "/"
auth = "public"
service = "origin"

[[route]]
name = "policy"
path = "/policy"
auth = "public"
policy = [{ allow = "request.headers['x-mode'] == 'readonly'" }]
service = "origin"

[[route]]
name = "attribute"
path = "/attribute"
auth = "public"
policy = [{ allow = "custom.mode == 'readonly'" }]
service = "origin"

[[route]]
name = "deny"
path = "/deny"
auth = "public"
policy = [{ deny = "'x-mode' in request.headers && request.headers['x-mode'] == 'admin'" }]
service = "origin"

[[route]]
name = "header"
path = "/header"
headers = { "x-mode" = "readonly" }
auth = "public"
service = "origin"

[[route]]
name = "header-else"
path = "/header"
auth = { issuer = "own" }
service = "origin"

[[route]]
name = "when"
path = "/when"
when = "'x-mode' in request.headers && request.headers['x-mode'] == 'readonly'"
auth = "public"
service = "origin"

[[route]]
name = "when-else"
path = "/when"
auth = { issuer = "own" }
service = "origin"

[[route]]
name = "hop"
path_pattern = "/hop/{name}"
auth = "public"
policy = [
    { allow = "request.headers['keep-alive'] == 'readonly'" },
    { allow = "request.headers['te'] == 'trailers'" },
    { allow = "request.headers['upgrade'] == 'readonly'" },
    { allow = "request.headers['proxy-connection'] == 'readonly'" },
    { allow = "request.headers['proxy-authenticate'] == 'readonly'" },
    { allow = "request.headers['http2-settings'] == 'readonly'" },
]
service = "origin"
"#;

const CONNECTION: [&[&str]; 12] = [
    &["x-mode"],
    &["X-Mode"],
    &["X-MODE"],
    &["close, x-mode"],
    &["x-mode, close"],
    &["keep-alive ,\tx-mode"],
    &[",,x-mode,,"],
    &["keep-alive", "x-mode"],
    &["x-mode", "x-mode"],
    &["a, b, c, d, e, f, g, x-mode"],
    &["upgrade, x-mode"],
    &["x-other,x-mode"],
];

#[test]
fn a_rule_reads_no_field_that_connection_names() {
    let lab = Lab::new(ROUTES);
    for way in Way::ALL {
        for path in ["/policy", "/attribute", "/header", "/when"] {
            let get = Request::get(HOST, path);
            let moded = get.clone().with("X-Mode", "readonly");
            let record = lab.reach(way, &moded).unwrap_or_else(|| panic!("{way:?} {path}: the control"));
            assert_eq!(record.only().values("x-mode"), ["readonly"]);
            assert!(lab.reach(way, &get).is_none(), "{way:?} {path}: the rule asks for nothing");
            for values in CONNECTION {
                let before =
                    values.iter().fold(get.clone(), |request, value| request.with("Connection", *value));
                let after =
                    values.iter().fold(moded.clone(), |request, value| request.with("Connection", *value));
                for request in [before.with("X-Mode", "readonly"), after] {
                    if let Some(record) = lab.reach(way, &request) {
                        let seen = record.only();
                        assert_eq!(seen.values("x-mode"), ["readonly"], "{way:?} {path} {values:?}");
                    }
                }
            }
        }
    }
    lab.finish("/");
}

/// A folding origin takes the fields for one, and may believe the other.
#[test]
fn a_rule_is_not_met_by_one_of_two_spellings() {
    let lab = Lab::new(ROUTES);
    for way in Way::BOTH {
        for path in ["/policy", "/attribute", "/header", "/when"] {
            let get = Request::get(HOST, path);
            let control = lab.reach(way, &get.clone().with("X-Mode", "readonly")).expect("the control");
            assert_eq!(control.only().folded("x-mode"), ["readonly"]);
            for punctuation in PUNCTUATION {
                let name = format!("X{punctuation}Mode");
                for request in [
                    get.clone().with("X-Mode", "readonly").with(&name, "admin"),
                    get.clone().with(&name, "admin").with("X-Mode", "readonly"),
                    get.clone().with(&name, "readonly"),
                ] {
                    if let Some(record) = lab.reach(way, &request) {
                        let values = record.only().folded("x-mode");
                        assert_eq!(values, ["readonly"], "{way:?} {path} {name}");
                    }
                }
            }
        }
    }
    lab.finish("/");
}

#[test]
fn a_rule_that_denies_is_not_evaded_by_another_spelling() {
    let lab = Lab::new(ROUTES);
    for way in Way::BOTH {
        let get = Request::get(HOST, "/deny");
        for control in [get.clone(), get.clone().with("X-Mode", "readonly")] {
            lab.reach(way, &control).expect("the control").assert_canonical();
        }
        for punctuation in PUNCTUATION {
            let name = format!("X{punctuation}Mode");
            let disguised = get.clone().with(&name, "admin");
            for request in [
                disguised.clone(),
                disguised.clone().with("X-Mode", "readonly"),
                get.clone().with("X-Mode", "readonly").with(&name, "admin"),
                disguised.with("Connection", &name),
            ] {
                if let Some(record) = lab.reach(way, &request) {
                    assert!(!record.only().folded("x-mode").contains(&"admin"), "{way:?} {name}");
                }
            }
        }
    }
    lab.finish("/");
}

#[test]
fn a_rule_reads_no_field_that_concerns_the_connection() {
    let lab = Lab::new(ROUTES);
    for way in Way::ALL {
        for (name, value) in [
            ("Keep-Alive", "readonly"),
            ("TE", "trailers"),
            ("Upgrade", "readonly"),
            ("Proxy-Connection", "readonly"),
            ("Proxy-Authenticate", "readonly"),
            ("HTTP2-Settings", "readonly"),
        ] {
            let get = Request::get(HOST, "/hop/x").with(name, value);
            for request in [get.clone(), get.with("Connection", name)] {
                if let Some(record) = lab.reach(way, &request) {
                    assert_eq!(
                        record.only().values(name),
                        [value],
                        "{way:?} {name}: a rule read what is not sent"
                    );
                }
            }
        }
    }
    lab.finish("/");
}

#[test]
fn known_fields_cannot_be_taken_away_from_the_origin_alone() {
    let lab = Lab::new(ROUTES);
    for way in Way::BOTH {
        for name in [
            "host",
            "authorization",
            "cookie",
            "user-agent",
            "accept",
            "origin",
            "referer",
            "content-type",
            "range",
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-request-id",
            "via",
            "content-length",
            "transfer-encoding",
            "forwarded",
            "client-cert",
            "early-data",
            "expect",
            "trailer",
        ] {
            let request = Request::get(HOST, "/").with("Cookie", "a=b").with("Connection", name);
            if let Some(record) = lab.reach(way, &request) {
                let seen = record.only();
                for kept in [
                    "host",
                    "cookie",
                    "x-forwarded-for",
                    "x-forwarded-proto",
                    "x-forwarded-host",
                    "x-request-id",
                ] {
                    assert_eq!(seen.values(kept).len(), 1, "{way:?} {name}: no {kept}");
                }
            }
        }
    }
    lab.finish("/");
}
