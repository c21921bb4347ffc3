//! Spellings of a protected path never reach the origin without a token, whatever an origin makes of them.

use crate::support::{Origin, Spec, get, run};

/// What a lenient origin makes of a target: decodes, turns backslashes, drops parameters, resolves dots, twice.
fn lenient(target: &str) -> String {
    let mut path = target.split(['?', '#']).next().unwrap().to_owned();
    if let Some(rest) = path.strip_prefix("http://") {
        path = rest.find('/').map_or("/".to_owned(), |at| rest[at..].to_owned());
    }
    for _ in 0..2 {
        let mut decoded = Vec::new();
        let mut rest = path.as_bytes();
        while let [byte, after @ ..] = rest {
            rest = after;
            let value = (*byte == b'%')
                .then(|| {
                    after.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok())
                })
                .flatten();
            match value {
                Some(value) => {
                    decoded.push(value);
                    rest = &after[2..];
                }
                None => decoded.push(*byte),
            }
        }
        let text = String::from_utf8_lossy(&decoded).replace('\\', "/");
        let text = text.split('\0').next().unwrap().to_owned();
        let mut segments: Vec<&str> = Vec::new();
        for segment in text.split('/') {
            match segment.split(';').next().unwrap() {
                "" | "." => {}
                ".." => drop(segments.pop()),
                other => segments.push(other),
            }
        }
        path = format!("/{}", segments.join("/"));
    }
    path
}

const SPELLINGS: &[&str] = &[
    "/api",
    "/api/",
    "/api/x",
    "/x/../api",
    "/x/../api/x",
    "/./api",
    "/x/./../api",
    "//api",
    "///api//x",
    "/%61pi",
    "/%61%70%69",
    "/a%70i/x",
    "/x/%2e%2e/api",
    "/x/%2E./api",
    "/x/.%2e/api",
    "/api/%2e%2e/api",
    "/api/../api",
    "/api%2f..",
    "/api%2fx",
    "/api%2Fx",
    "/x%2f..%2fapi",
    "/%2fapi",
    "/.%2fapi",
    "/api%5cx",
    "/x/..%5capi",
    "/x\\..\\api",
    "/\\api",
    "/api%00",
    "/api%00/x",
    "/api;x",
    "/api;x=y/z",
    "/api;/x",
    "/;x/api",
    "/x/..;/api",
    "/x/..;a=b/api",
    "/x;/../api",
    "/x/%2e%2e;/api",
    "/api%3bx",
    "/api?x",
    "/api/?x=/../",
    "/%2561pi",
    "/x/%252e%252e/api",
    "/x/..%252fapi",
    "http://a.example/api",
    "http://a.example//api",
    "http://a.example/x/../api",
    "http://A.EXAMPLE:80/%61pi",
    "/../api",
    "/x/../../api",
    "api",
    "*",
    "/api#x",
    "/api\tx",
    "/x/\u{ff0e}\u{ff0e}/api",
    "/%c0%afapi",
    "/x/%c0%ae%c0%ae/api",
];

#[test]
fn no_spelling_of_a_protected_path_arrives_without_a_token() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        for spelling in SPELLINGS {
            let mut client = gateway.client().await;
            let before = origin.text().len();
            client.send(get(spelling)).await;
            let response = client.response().await;
            let text = origin.text();
            let arrived = text[before..].split(' ').nth(1).map(str::to_owned);
            match arrived {
                // Doubly encoded, it is another path to whoever decodes once; and none that decodes twice is helped
                // by a gateway that decodes once.
                Some(target) if target.contains("%25") || target.contains("%C0") => {
                    assert_eq!(response.status, 200, "{spelling}");
                }
                Some(target) => panic!("{spelling} arrived as {target}, read as {}", lenient(&target)),
                None => assert!(matches!(response.status, 400 | 401 | 404), "{spelling}: {}", response.head),
            }
        }
        // The path of another case is another path: it goes where its own route says, as it is.
        let before = origin.text().len();
        let mut client = gateway.client().await;
        assert_eq!(client.exchange(get("/API")).await.status, 200);
        assert!(origin.text()[before..].starts_with("GET /API HTTP/1.1\r\n"));
        assert!(!origin.text().to_lowercase().contains("x-auth-"));
    });
}

#[test]
fn a_lenient_reader_finds_the_protected_path_in_these_spellings() {
    // The control of the test above: the spellings are attacks on some origin.
    let found = SPELLINGS.iter().filter(|spelling| lenient(spelling).starts_with("/api")).count();
    assert!(found > 40, "{found}");
}

#[test]
fn with_a_token_the_spellings_that_are_one_path_arrive_in_one_spelling() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        let token = gateway.token();
        for spelling in [
            "/api/x",
            "/y/../api/x",
            "//api//x",
            "/%61pi/x",
            "/./api/./x",
            "http://a.example/api/x",
            "/api/%2e%2e/api/x",
        ] {
            let before = origin.text().len();
            let mut client = gateway.client().await;
            let request = format!(
                "GET {spelling} HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer {token}\r\n\r\n"
            );
            assert_eq!(client.exchange(request).await.status, 200, "{spelling}");
            let text = origin.text();
            assert!(text[before..].starts_with("GET /api/x HTTP/1.1\r\n"), "{spelling}: {}", &text[before..]);
            assert!(text[before..].contains("\r\nx-auth-subject: alice\r\n"), "{text}");
        }
    });
}

#[test]
fn encodings_pass_where_the_route_allows_them() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).public("allow_encoded = ['%2F']").start().await;
        let mut client = gateway.client().await;
        assert_eq!(client.exchange(get("/a%2fb")).await.status, 200);
        assert!(origin.text().starts_with("GET /a%2Fb HTTP/1.1\r\n"));
        let refused = client.exchange(get("/a%5cb")).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "path_encoding_not_allowed"));
        assert_eq!(client.exchange(get("/c")).await.status, 200);
    });
}
