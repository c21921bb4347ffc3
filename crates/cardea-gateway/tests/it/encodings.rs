//! Bytes of headers that are not ASCII: rules see characters, whatever they are sent in; services get what was sent.

use serde_json::{Value, json};

use crate::support::{Origin, Spec, run};

const UTF8: &[u8] = b"j\xC3\xB6rg";
const LATIN1: &[u8] = b"j\xF6rg";

fn spec(origin: &Origin, encoding: &str) -> Spec {
    // A dollar sign is written twice.
    let public = r#"
        policy = [
            { deny = "'x-user' in request.headers && request.headers['x-user'].matches('^j\u00f6.*$$') || 'who' in request.cookies && request.cookies.who == 'j\u00f6rg'" },
        ]
        [request_headers.set]
        x-copy = "<{request.headers.x-user}>"
        x-same = "{= has(request.headers['x-user']) ? request.headers['x-user'] : ''}"
    "#;
    let special = r#"
        path = "/special"
        headers = { x-user = "zo\u00eb" }
        response_headers.set = { x-route = "special" }
    "#;
    Spec::to(origin)
        .with(format!("header_encoding = '{encoding}'"))
        .public(public)
        .route("special", special)
        .logging(["request.headers.x-user", "request.first_header.x-user"])
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
        let (as_utf8, as_latin1) = ("utf-8", "latin-1");
        // Where services read Latin-1, two bytes of UTF-8 are two characters to them, and another name.
        for (encoding, sent, logged, allowed) in [
            (as_utf8, UTF8, "j\u{f6}rg", false),
            (as_utf8, LATIN1, "j\u{f6}rg", false),
            (as_utf8, b"j\xF6\xFF".as_slice(), "j\u{f6}\u{ff}", false),
            (as_utf8, b"j\xE4rg".as_slice(), "j\u{e4}rg", true),
            (as_latin1, LATIN1, "j\u{f6}rg", false),
            (as_latin1, b"j\xF6\xC3\xB6".as_slice(), "j\u{f6}\u{c3}\u{b6}", false),
            (as_latin1, UTF8, "j\u{c3}\u{b6}rg", true),
        ] {
            let gateway = spec(&origin, encoding).start().await;
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
        for (encoding, utf8, in_latin1) in
            [("utf-8", (403, special), (403, special)), ("latin-1", (200, None), (403, special))]
        {
            let gateway = spec(&origin, encoding).start().await;
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
fn header_values_cannot_be_escaped_in_any_encoding() {
    run(async {
        let origin = Origin::ok().await;
        let made = r#"request_headers.set = { x-made = "{= request.headers['x-user'] + '\u2603'}" }"#;
        let gateway = Spec::to(&origin).with("header_encoding = 'latin-1'").public(made).start().await;
        // U+0085 and U+008D end lines for some readers of Unicode, and end none in a header.
        let sent = b"a\x85X-Evil: 1\x8D\xC4\x8A";
        assert_eq!(gateway.client().await.exchange(request("/", "X-User: ", sent)).await.status, 200);
        let made = "a\u{85}X-Evil: 1\u{8d}\u{c4}\u{8a}\u{2603}";
        let text = origin.text();
        assert!(text.contains(&format!("x-made: {}\r\n", shown(made.as_bytes()))), "{text:?}");
        assert_eq!(text.matches("\r\nX-Evil").count(), 0);
    });
}
