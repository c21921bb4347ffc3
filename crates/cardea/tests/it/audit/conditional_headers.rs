//! Conditions that cannot be evaluated: the header that a rule should remove does not stay.

use super::lab::{Lab, Lengths, Recorder, Request, Way};
use crate::support::client::HOST;

const ROUTES: &str = r#"
[[route]]
name = "open"
path_prefix = "/"
auth = "public"
service = "origin"

[[route]]
name = "remove"
path = "/remove"
auth = "public"
request_headers = { remove = ["x-internal"], when = "request.headers['x-kind'] == 'outside'" }
service = "origin"

[[route]]
name = "rename"
path = "/rename"
auth = "public"
request_headers = { rename = { "x-internal" = "x-outside" }, when = "request.headers['x-kind'] == 'outside'" }
service = "origin"

[[route]]
name = "set"
path = "/set"
auth = "public"
request_headers = { set = { "x-internal" = "no" }, when = "request.headers['x-kind'] == 'outside'" }
service = "origin"

[[route]]
name = "number"
path = "/number"
auth = "public"
request_headers = { remove = ["x-internal"], when = "int(request.headers['x-kind']) > 3" }
service = "origin"

[[route]]
name = "query"
path = "/query"
auth = "public"
request_headers = { remove = ["x-internal"], when = "request.query_params['kind'] == 'outside'" }
service = "origin"

[[route]]
name = "cookie"
path = "/cookie"
auth = "public"
request_headers = { remove = ["x-internal"], when = "request.cookies['kind'] == 'outside'" }
service = "origin"

[[route]]
name = "response"
path = "/response"
auth = "public"
response_headers = { remove = ["x-internal"], when = "request.headers['x-kind'] == 'outside'" }
service = "origin"
"#;

#[test]
fn a_header_is_removed_if_its_condition_cannot_be_evaluated() {
    let lab = Lab::new(ROUTES);
    for way in Way::ALL {
        for path in ["/remove", "/set", "/rename"] {
            let get = Request::get(HOST, path).with("X-Internal", "secret");
            let seen = |request: &Request| lab.reach(way, request).map(|record| record.only().clone());
            let inside = seen(&get.clone().with("X-Kind", "inside")).expect("the control");
            assert_eq!(inside.values("x-internal"), ["secret"], "{way:?} {path}");
            let outside = seen(&get.clone().with("X-Kind", "outside")).expect("the control");
            assert_ne!(outside.values("x-internal"), ["secret"], "{way:?} {path}");
            for kinds in
                [["outside", "inside"], ["inside", "outside"], ["outside", "outside"], ["", "outside"]]
            {
                let request = get.clone().with("X-Kind", kinds[0]).with("X-Kind", kinds[1]);
                if let Some(seen) = seen(&request) {
                    assert_ne!(seen.values("x-internal"), ["secret"], "{way:?} {path} {kinds:?}");
                }
            }
        }
    }
    lab.finish("/");
}

#[test]
fn it_goes_whatever_the_condition_fails_on() {
    let lab = Lab::new(ROUTES);
    for way in Way::BOTH {
        for (target, name, values) in [
            ("/number", "X-Kind", &["a"][..]),
            ("/number", "X-Kind", &["99999999999999999999"]),
            ("/number", "X-Kind", &["5", "1"]),
            ("/number", "X-Kind", &[""]),
            ("/query?kind=outside&kind=inside", "X-Other", &["a"]),
            ("/query?kind=inside&kind=outside", "X-Other", &["a"]),
            ("/query?kind=inside&%6bind=outside", "X-Other", &["a"]),
            ("/cookie", "Cookie", &["kind=outside; kind=inside"]),
            ("/cookie", "Cookie", &["kind=outside", "kind=inside"]),
        ] {
            let get = Request::get(HOST, target).with("X-Internal", "secret");
            let request = values.iter().fold(get, |request, value| request.with(name, *value));
            if let Some(record) = lab.reach(way, &request) {
                assert!(record.only().values("x-internal").is_empty(), "{way:?} {target} {values:?}");
            }
        }
        let control = Request::get(HOST, "/number").with("X-Internal", "mine").with("X-Kind", "1");
        assert_eq!(lab.reach(way, &control).unwrap().only().values("x-internal"), ["mine"]);
    }
    lab.finish("/");
}

#[test]
fn a_response_header_is_removed_likewise() {
    let origin = Recorder::answering(Lengths::Decimal, |_| {
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nX-Internal: secret\r\nContent-Length: 2\r\n\r\nok".to_vec()
    });
    let lab = Lab::with(origin, "", ROUTES);
    for way in Way::H1 {
        let get = Request::get(HOST, "/response");
        let shown = |request: &Request| {
            let answer = lab.send(way, request);
            lab.arrived(&answer);
            answer.head.contains("secret")
        };
        assert!(shown(&get.clone().with("X-Kind", "inside")), "{way:?}: the control");
        assert!(!shown(&get.clone().with("X-Kind", "outside")), "{way:?}: the control");
        assert!(!shown(&get.clone().with("X-Kind", "outside").with("X-Kind", "inside")), "{way:?}");
        assert!(!shown(&get.clone().with("X-Kind", "inside").with("X-Kind", "outside")), "{way:?}");
    }
    lab.finish("/");
}
