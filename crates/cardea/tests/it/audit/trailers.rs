//! Trailers: origins that merge them into the head (RFC 9110 §6.5.1) get no field by them that would have been judged, or that
//! adds to one which was.

use super::lab::{Lab, PUNCTUATION, Request, Way};
use crate::support::client::HOST;

const ROUTES: &str = r#"
[[attribute]]
name = "team"
header = "x-team"

[[attribute]]
name = "twice"
template = "{custom.team}"

[[policy]]
deny = "has(request.headers['x-debug'])"

[[route]]
name = "open"
path_prefix = "/"
auth = "public"
policy = [
    { deny = "has(request.headers['x-role']) && request.headers['x-role'] == 'admin'" },
    { deny = "has(custom.twice) && custom.twice == 'admin'" },
]
service = "origin"

[[route]]
name = "canary"
path_prefix = "/matched"
headers = { x-canary = true }
auth = { issuer = "own" }
service = "origin"

[[route]]
name = "when"
path_prefix = "/matched"
when = "has(request.headers['x-beta'])"
auth = { issuer = "own" }
service = "origin"

[[route]]
name = "rest"
path_prefix = "/matched"
auth = "public"
request_headers = { set = { "x-seen" = "1" }, when = "has(request.headers['x-level']) && request.headers['x-level'] == '2'" }
service = "origin"
"#;

/// Fields that something reads, on this route or another.
const READ: [&str; 6] = ["x-debug", "x-role", "x-team", "x-canary", "x-beta", "x-level"];

fn trailer(name: &str, value: &str) -> [(String, String); 1] {
    [(name.to_owned(), value.to_owned())]
}

fn spellings(name: &str) -> impl Iterator<Item = String> {
    PUNCTUATION.into_iter().map(move |other| name.to_ascii_uppercase().replace('-', &other.to_string()))
}

#[test]
fn no_trailer_is_a_field_that_rules_read() {
    let lab = Lab::new(ROUTES);
    for way in Way::ALL {
        for target in ["/", "/matched"] {
            let control = Request::get(HOST, target).streamed(b"body", &trailer("x-checksum", "mine"));
            let record = lab.reach(way, &control).expect("the control");
            assert_eq!(record.only().values("x-checksum"), ["mine"], "{way:?} {target}");
            for name in READ {
                for spelling in spellings(name) {
                    let request = Request::get(HOST, target).streamed(b"body", &trailer(&spelling, "admin"));
                    if let Some(record) = lab.reach(way, &request) {
                        assert!(record.only().folded(name).is_empty(), "{way:?} {target} {spelling}");
                    }
                }
            }
        }
    }
    lab.finish("/");
}

#[test]
fn no_trailer_adds_to_a_field_of_the_head() {
    let lab = Lab::new(ROUTES);
    for way in Way::ALL {
        for name in ["x-own", "etag"] {
            for spelling in spellings(name) {
                let request = Request::get(HOST, "/")
                    .with(name, "head")
                    .streamed(b"body", &trailer(&spelling, "trailer"));
                if let Some(record) = lab.reach(way, &request) {
                    assert_eq!(record.only().folded(name), ["head"], "{way:?} {spelling}");
                }
            }
        }
    }
    lab.finish("/");
}

#[test]
fn no_trailer_brings_back_what_connection_names() {
    let lab = Lab::new(ROUTES);
    for way in Way::H1 {
        for spelling in spellings("x-once") {
            let request = Request::get(HOST, "/")
                .with("Connection", "close, X-Once")
                .with("X-Once", "head")
                .streamed(b"body", &trailer(&spelling, "trailer"));
            let record = lab.reach(way, &request).expect("the field goes, and the request is let in");
            assert!(record.only().folded("x-once").is_empty(), "{way:?} {spelling}");
        }
    }
    lab.finish("/");
}

#[test]
fn where_any_field_may_be_read_no_trailer_passes() {
    let any =
        ROUTES.replace("has(request.headers['x-debug'])", "request.headers.exists(name, name == 'x-debug')");
    assert_ne!(any, ROUTES);
    let lab = Lab::new(&any);
    for way in Way::BOTH {
        let request = Request::get(HOST, "/").streamed(b"body", &trailer("x-checksum", "mine"));
        let record = lab.reach(way, &request).expect("the request is let in");
        assert!(record.only().values("x-checksum").is_empty(), "{way:?}");
    }
    lab.finish("/");
}

#[test]
fn a_reload_holds_trailers_to_the_rules_that_it_brings() {
    let lab = Lab::new(ROUTES);
    let request = Request::get(HOST, "/").streamed(b"body", &trailer("x-late", "admin"));
    for way in Way::BOTH {
        let record = lab.reach(way, &request).expect("the control");
        assert_eq!(record.only().values("x-late"), ["admin"]);
    }
    lab.reload("", &ROUTES.replace("x-debug", "x-late"));
    for way in Way::BOTH {
        let record = lab.reach(way, &request).expect("the request is let in");
        assert!(record.only().values("x-late").is_empty(), "{way:?}");
    }
    lab.finish("/");
}
