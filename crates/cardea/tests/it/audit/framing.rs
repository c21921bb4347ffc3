//! Lengths in every spelling: what reaches an origin has the one that no reader can mistake.

use std::process::Command;

use super::lab::{Answer, Hello, Lab, Lengths, Recorder, Request, Way};
use crate::support::client::HOST;

const ROUTES: &str = r#"
[[route]]
name = "open"
path_prefix = "/"
auth = "public"
service = "origin"
"#;

/// A body of 200 octets: who takes 128 of them, as `0200` says in octal, finds another request behind them.
fn trap() -> Vec<u8> {
    let mut body = vec![b'.'; 128];
    body.extend_from_slice(b"GET /smuggled HTTP/1.1\r\nHost: a\r\nX-Auth-Subject: root\r\n\r\n");
    body.resize(200, b'.');
    body
}

#[test]
fn a_length_reaches_the_origin_in_its_one_spelling() {
    let lab = Lab::new(ROUTES);
    let post = |length: &str| Request::get(HOST, "/orders").announced(&trap(), length);
    for way in Way::ALL {
        // The control.
        let record = lab.reach(way, &post("200")).unwrap_or_else(|| panic!("{way:?}"));
        assert_eq!(record.only().body, trap());
        for length in ["0200", "00200", "0000000000000000200", "00000000000000000000000000200"] {
            if let Some(record) = lab.reach(way, &post(length)) {
                assert_eq!(record.only().body, trap(), "{way:?} {length}");
            }
        }
        for zero in ["0", "00", "000000000"] {
            let request = Request::get(HOST, "/orders").announced(b"", zero);
            if let Some(record) = lab.reach(way, &request) {
                assert_eq!(record.only().values("content-length"), ["0"], "{way:?} {zero}");
            }
        }
    }
    lab.finish("/");
}

#[test]
fn invalid_lengths_are_refused() {
    let lab = Lab::new(ROUTES);
    for way in Way::BOTH {
        for length in [
            "+200",
            "-200",
            "0x80",
            "0XC8",
            "0o200",
            "0b11",
            "200.",
            "200.0",
            "2e2",
            "2_00",
            "200;",
            "200 0",
            "200, 200",
            "200,200",
            "200,",
            ",200",
            "\"200\"",
            "'200'",
            "200u",
            "200L",
            "",
            "\u{661}",
            "NaN",
            "18446744073709551616",
            "9223372036854775808",
            "4294967496.",
            "200\u{b}",
            "\u{c}200",
            "0,200",
        ] {
            let answer = lab.send(way, &Request::get(HOST, "/orders").announced(&trap(), length));
            assert!(matches!(answer.status, 0 | 400), "{way:?} {length:?}: {}", answer.status);
        }
        assert_eq!(lab.reach(way, &Request::get(HOST, "/").sized(&trap())).unwrap().only().body, trap());
    }
    lab.finish("/");
}

#[test]
fn a_second_framing_never_reaches_the_origin() {
    let lab = Lab::new(ROUTES);
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let pairs = [
        field("Content-Length", "0200"),
        field("Content-Length", "200"),
        field("Transfer-Encoding", "chunked"),
        field("Transfer-Encoding", "identity"),
        field("Transfer-Encoding", "xchunked"),
        field("Transfer-Encoding", "gzip, chunked"),
        field("Transfer-Encoding", "chunked;q=1"),
        field("Transfer-Encoding", "\u{b}chunked"),
        field("Connection", "content-length"),
        field("Connection", "transfer-encoding"),
        field("Content_Length", "0200"),
        field("Transfer_Encoding", "chunked"),
    ];
    for way in Way::BOTH {
        for (name, value) in &pairs {
            let get = Request::get(HOST, "/orders").with(name, value);
            for request in [get.clone().sized(&trap()), get.streamed(&trap(), &[])] {
                let answer = lab.send(way, &request);
                // Beside a body whose end the stream tells it is the only one.
                match lab.arrived(&answer).filter(|_| way.is_h2() && name == "Content-Length") {
                    Some(record) => assert_eq!(record.only().body, trap()),
                    None => {
                        let status = answer.status;
                        assert!(matches!(status, 0 | 400 | 501), "{way:?} {name}: {value}: {status}");
                    }
                }
            }
        }
    }
    lab.finish("/");
}

#[test]
fn chunks_reach_the_origin_in_their_one_spelling() {
    let lab = Lab::new(ROUTES);
    let send = |way: Way, chunks: &str| {
        let head = format!("POST /chunks HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n");
        let mut wire = lab.connect(way, Hello::to(HOST)).unwrap();
        wire.raw(format!("{head}{chunks}").as_bytes(), false)
    };
    for way in Way::H1 {
        for (size, control) in [
            ("a", true),
            ("A", false),
            ("0a", false),
            ("000A", false),
            ("000000000000000a", false),
            ("a;b", false),
            ("a;b=c", false),
            ("a;b=\"c\"", false),
            ("a ;b=c", false),
        ] {
            let answer = send(way, &format!("{size}\r\n0123456789\r\n0\r\n\r\n"));
            assert!(!control || answer.status == 200, "{way:?} {size:?}");
            match lab.arrived(&answer) {
                Some(record) => assert_eq!(record.only().body, b"0123456789", "{way:?} {size:?}"),
                None => assert_nothing_whole(&lab, size),
            }
        }
    }
    for chunks in [
        "0xa\r\n0123456789\r\n0\r\n\r\n",
        "+a\r\n0123456789\r\n0\r\n\r\n",
        "-a\r\n0123456789\r\n0\r\n\r\n",
        " a\r\n0123456789\r\n0\r\n\r\n",
        "a,a\r\n0123456789\r\n0\r\n\r\n",
        "a\n0123456789\r\n0\r\n\r\n",
        "a\r\n0123456789\n0\r\n\r\n",
        "a\r\n01234567890\r\n0\r\n\r\n",
        "a\r\n0123456789\r\n\r\n0\r\n\r\n",
        "1000000000000000a\r\n0123456789\r\n0\r\n\r\n",
        "fffffffffffffffff\r\n0123456789\r\n0\r\n\r\n",
        "g\r\n0123456789\r\n0\r\n\r\n",
        "\r\n0123456789\r\n0\r\n\r\n",
        "a;b=\"c\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n\"\r\n0123456789\r\n0\r\n\r\n",
    ] {
        assert!(matches!(send(Way::Plain, chunks).status, 0 | 400), "{chunks:?}");
        assert_nothing_whole(&lab, chunks);
    }
    let zero = ["0", "00", "0000000000000000", "0;a=b"];
    for size in zero {
        let answer = send(Way::Plain, &format!("5\r\n01234\r\n{size}\r\n\r\n"));
        match lab.arrived(&answer) {
            Some(record) => assert_eq!(record.only().chunks, ["5", "0"], "{size:?}"),
            None => assert_nothing_whole(&lab, size),
        }
    }
    lab.finish("/");
}

/// Nothing of a request that was refused has reached the origin as if it were whole; its head alone may have.
fn assert_nothing_whole(lab: &Lab, chunks: &str) {
    let record = lab.origin.take_if_head_of("/chunks");
    assert!(record.is_none_or(|record| record.requests.is_empty()), "{chunks:?}");
}

/// What an origin says of the length of its answer, at `/N`.
const ANSWERS: [(&str, &str); 8] = [
    ("10", "0123456789"),
    ("010", "0123456789"),
    ("00000000000000010", "0123456789"),
    ("+10", "0123456789"),
    ("0xa", "0123456789"),
    ("10, 10", "0123456789"),
    ("1_0", "0123456789"),
    ("0000000000000000000000010", "0123456789"),
];

#[test]
fn clients_get_lengths_in_their_one_spelling() {
    let origin = Recorder::answering(Lengths::Decimal, |seen| {
        let (number, how) = seen.target()[1..].split_once('/').unwrap_or(("0", ""));
        let (length, body) = ANSWERS[number.parse::<usize>().unwrap()];
        let chunked = "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
        match how {
            "chunked" => format!("{chunked}000A;a=\"{length}\"\r\n{body}\r\n00;b\r\n\r\n"),
            "304" => {
                format!("HTTP/1.1 304 Not Modified\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n")
            }
            _ => {
                let body = if seen.first.starts_with("HEAD") { "" } else { body };
                format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
            }
        }
        .into_bytes()
    });
    let lab = Lab::with(origin, "", ROUTES);
    let of = |transcript: &str| -> Option<Vec<String>> {
        let head = transcript.split("\r\n\r\n").next().unwrap().to_ascii_lowercase();
        let refused = head.starts_with("http/1.1 502") || head.starts_with("http/2 502");
        let lengths = head.lines().filter_map(|line| line.strip_prefix("content-length: "));
        (!refused).then(|| lengths.map(str::to_owned).collect())
    };
    for (index, (length, _)) in ANSWERS.iter().enumerate() {
        for (method, how) in [("GET", ""), ("HEAD", ""), ("GET", "304"), ("GET", "chunked")] {
            let target = format!("/{index}/{how}");
            for way in Way::H1 {
                let mut wire = lab.connect(way, Hello::to(HOST)).unwrap();
                let request = Request::get(HOST, &target).method(method).with("Connection", "close");
                let transcript = wire.transcript(&request.encode());
                lab.origin.take();
                let lengths = of(&transcript);
                assert!(index > 0 || lengths.is_some(), "the control: {transcript}");
                if let Some(lengths) = lengths {
                    let expected: &[&str] = if how == "chunked" { &[] } else { &["10"] };
                    // Of a 304 it may be left out.
                    let left_out = how == "304" && lengths.is_empty();
                    assert!(left_out || lengths == expected, "{way:?} {method} {length:?}: {transcript}");
                    if how == "chunked" {
                        assert!(transcript.ends_with("\r\n\r\na\r\n0123456789\r\n0\r\n\r\n"), "{transcript}");
                    }
                }
            }
            let url = format!("https://{HOST}:{}{target}", lab.server.address.port());
            let resolve = format!("{HOST}:{}:127.0.0.1", lab.server.address.port());
            let mut curl = Command::new("curl");
            curl.args(["-sSk", "--http2", "-D", "-", "--resolve", &resolve, &url]);
            if method == "HEAD" {
                curl.arg("--head");
            }
            let said = String::from_utf8(curl.output().unwrap().stdout).unwrap();
            assert!(said.starts_with("HTTP/2 "), "{said}");
            lab.origin.take();
            if let Some(lengths) = of(&said) {
                assert!(lengths.iter().all(|length| length == "10"), "{method} {length:?}: {said}");
            }
        }
    }
    lab.server.stop();
}

#[test]
fn spaces_and_line_ends_hide_no_length() {
    let lab = Lab::new(ROUTES);
    let body = String::from_utf8(trap()).unwrap();
    for lines in [
        "Content-Length : 200",
        "Content-Length\t: 200",
        " Content-Length: 200",
        "X: a\r\n Content-Length: 0200\r\nContent-Length: 200",
        "Content-Length: 200\n",
        "Content-Length: 200\rX: b",
        "X: a\nContent-Length: 0200\r\nContent-Length: 200",
        "Content-Length: \r\n 200",
        "Content-Length:\u{0}200",
        "X: \0\r\nContent-Length: 200",
        "Content-Length\0: 0200\r\nContent-Length: 200",
        "Content-Length\u{a0}: 0200\r\nContent-Length: 200",
    ] {
        let mut wire = lab.connect(Way::Plain, Hello::to(HOST)).unwrap();
        let head = format!("POST /orders HTTP/1.1\r\nHost: {HOST}\r\n{lines}\r\n\r\n{body}");
        let Answer { status, .. } = wire.raw(head.as_bytes(), false);
        assert!(matches!(status, 0 | 400), "{lines:?}: {status}");
    }
    // Optional white space around a value is none of it (RFC 9110 §5.5).
    for length in ["200 ", "\t200", "  200\t "] {
        let record = lab.reach(Way::Plain, &Request::get(HOST, "/orders").announced(&trap(), length));
        assert_eq!(record.unwrap().only().values("content-length"), ["200"], "{length:?}");
    }
    lab.finish("/");
}
