//! Lengths and chunk sizes are written anew from what was read: nobody behind the gateway sees the digits that came.

use crate::{
    http2,
    support::{Origin, Spec, client::headers, get, origin::OK, run},
};

/// Values of `Content-Length` that have one decimal reading and another one for a recipient that reads octal, and the
/// length that they mean.
const LEADING_ZEROS: [(&str, usize); 4] = [("0200", 200), ("00", 0), ("007", 7), ("0000000000000000012", 12)];

fn post(length: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}\r\n\r\n{body}")
}

#[test]
fn a_requests_length_is_written_from_the_parsed_number() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        for (given, length) in LEADING_ZEROS {
            let before = origin.text().len();
            let body = "x".repeat(length);
            assert_eq!(client.exchange(post(given, &body)).await.status, 200, "{given}");
            let arrived = origin.text()[before..].to_owned();
            assert_eq!(headers(&arrived, "content-length"), [length.to_string()], "{given}: {arrived}");
            assert!(arrived.ends_with(&format!("\r\n\r\n{body}")), "{arrived}");
        }
        // The control: a plain length passes, and chunk sizes are those of what was gathered.
        assert_eq!(client.exchange(post("5", "hello")).await.status, 200);
        assert!(origin.text().contains("Content-Length: 5\r\n"));
        let chunked = "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0005;x=1\r\nhello\r\n00\r\n\r\n";
        assert_eq!(client.exchange(chunked).await.status, 200);
        assert!(origin.text().ends_with("\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), "{}", origin.text());
    });
}

#[test]
fn rules_read_the_length_that_the_service_gets() {
    run(async {
        let origin = Origin::ok().await;
        let spec = Spec::to(&origin)
            .public("request_headers.set = { x-length = '{request.headers.content-length}' }");
        let gateway = spec.start().await;
        let mut client = gateway.client().await;
        assert_eq!(client.exchange(post("010", "0123456789")).await.status, 200);
        assert_eq!(headers(&origin.text(), "x-length"), ["10"]);
    });
}

#[test]
fn a_requests_length_over_http_2_is_written_from_the_parsed_number() {
    run(async {
        let origin = Origin::ok().await;
        let (gateway, certificates) = http2::gateway_with(&origin, "").await;
        let mut client = http2::connect(&gateway, &certificates, "a.example").await;
        for given in ["012", "12"] {
            let before = origin.text().len();
            let request = http2::request("POST", "https://a.example/").header("content-length", given);
            let answer = client.try_exchange(request.body(()).unwrap(), b"hello, world").await.unwrap();
            assert_eq!(answer.status, 200, "{given}");
            let arrived = origin.text()[before..].to_owned();
            assert_eq!(headers(&arrived, "content-length"), ["12"], "{arrived}");
            assert!(arrived.ends_with("\r\n\r\nhello, world"), "{arrived}");
        }
    });
}

#[test]
fn a_responses_length_is_written_from_the_parsed_number() {
    let head = |path: &str| get(path).replacen("GET", "HEAD", 1);
    // What the service says, how the client asked, and the length that the client is told.
    let cases = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 002\r\n\r\nok", get("/"), Some("2")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0200\r\n\r\n", head("/"), Some("200")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n", head("/"), Some("200")),
        ("HTTP/1.1 200 OK\r\n\r\n", head("/"), None),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 0200\r\n\r\n", get("/"), Some("200")),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 200\r\n\r\n", get("/"), Some("200")),
        ("HTTP/1.1 204 No Content\r\nContent-Length: 00\r\n\r\n", get("/"), None),
        ("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", head("/"), None),
    ];
    run(async {
        for (response, request, expected) in &cases {
            let origin = Origin::answering(*response).await;
            let (gateway, certificates) = http2::gateway_with(&origin, "").await;
            let method = if request.starts_with("HEAD") { "HEAD" } else { "GET" };
            let mut client = http2::connect(&gateway, &certificates, "a.example").await;
            let answer = client.exchange(http2::request(method, "https://a.example/")).await;
            let told = answer.headers.get("content-length").map(|value| value.to_str().unwrap());
            assert_eq!(told, *expected, "HTTP/2: {response:?}");

            let gateway = Spec::to(&origin).start().await;
            let mut client = gateway.client().await;
            client.send(request).await;
            let head = client.head().await.unwrap().head;
            assert_eq!(headers(&head, "content-length").first().copied(), *expected, "{response:?}: {head}");
        }
    });
}

#[test]
fn an_informational_response_with_a_body_is_malformed() {
    let broken = [
        "HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 102 Processing\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nContent-Length: 0x0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\nTransfer-Encoding: chunked\r\n\r\n",
    ];
    let sound = [
        "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n",
        // It has one reading.
        "HTTP/1.1 103 Early Hints\r\nContent-Length: 0\r\n\r\n",
    ];
    let upgrade = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    run(async {
        for informational in broken {
            let origin = Origin::start(move |mut visit| async move {
                loop {
                    visit.request().await?;
                    visit
                        .send(if visit.index == 0 { format!("{informational}{OK}") } else { OK.into() })
                        .await?;
                }
            })
            .await;
            let gateway = Spec::to(&origin).start().await;
            let mut client = gateway.client().await;
            let request = if informational.contains(" 101 ") { upgrade.to_owned() } else { get("/") };
            let response = client.exchange(request).await;
            assert_eq!(
                (response.status, response.code().as_str()),
                (502, "upstream_malformed"),
                "{informational:?}"
            );
            assert_eq!(client.exchange(get("/")).await.text(), "ok");
            assert_eq!(origin.connections(), 2, "{informational:?}");
        }
        for informational in sound {
            let origin = Origin::answering(format!("{informational}{OK}")).await;
            let gateway = Spec::to(&origin).start().await;
            let mut client = gateway.client().await;
            client.send(get("/")).await;
            let hints = client.response().await;
            assert_eq!((hints.status, hints.header("content-length")), (103, None));
            assert_eq!(client.response().await.text(), "ok");
        }
    });
}
