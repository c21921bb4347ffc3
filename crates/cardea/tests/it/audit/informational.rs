//! Informational responses: none has a body, and none may hide one.

use super::lab::{Lab, Lengths, Recorder, Request, Way};
use crate::support::client::HOST;

const ROUTES: &str = r#"
[[route]]
name = "open"
path_prefix = "/"
auth = "public"
service = "origin"
"#;

const FINAL: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";

/// What comes before the final response, at `/N`, and whether that is well.
const BEFORE: [(&str, bool); 16] = [
    ("", true),
    ("HTTP/1.1 100 Continue\r\n\r\n", true),
    ("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n", true),
    ("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n", true),
    ("HTTP/1.1 103 Early Hints\r\nContent-Length: 2\r\n\r\nxx", false),
    ("HTTP/1.1 103 Early Hints\r\nContent-Length: 2\r\n\r\n", false),
    ("HTTP/1.1 100 Continue\r\nContent-Length: 41\r\n\r\n", false),
    ("HTTP/1.1 100 Continue\r\nContent-Length: 041\r\n\r\n", false),
    ("HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\n", false),
    ("HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false),
    ("HTTP/1.1 102 Processing\r\nTransfer-Encoding: identity\r\n\r\n", false),
    ("HTTP/1.1 199 What\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n", false),
    ("HTTP/1.1 103 Early Hints\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", false),
    ("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 103 Early Hints\r\nContent-Length: 1\r\n\r\n", false),
    ("HTTP/1.1 103 Early Hints\r\nContent-Length: x\r\n\r\n", false),
    ("HTTP/1.1 103 Early Hints\r\ntransfer-encoding : chunked\r\n\r\n", false),
];

#[test]
fn an_informational_response_with_a_body_is_refused() {
    let origin = Recorder::answering(Lengths::Decimal, |seen| {
        let number: usize = seen.target()[1..].parse().unwrap();
        format!("{}{FINAL}", BEFORE[number].0).into_bytes()
    });
    let lab = Lab::with(origin, "", ROUTES);
    for way in Way::ALL {
        for (number, (before, good)) in BEFORE.iter().enumerate() {
            for request in [
                Request::get(HOST, &format!("/{number}")),
                Request::get(HOST, &format!("/{number}")).with("Expect", "100-continue").sized(b"body"),
            ] {
                let answer = lab.send(way, &request);
                lab.origin.take();
                let expected = if *good { 200 } else { 502 };
                assert_eq!(answer.status, expected, "{way:?} {before:?}");
                assert!(!good || answer.body == b"ok", "{way:?} {before:?}: {answer:?}");
            }
        }
    }
    lab.finish("/0");
}
