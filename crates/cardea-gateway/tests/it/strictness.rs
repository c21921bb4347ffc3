//! What is refused for its syntax, from clients and from origins (RFC 9110, RFC 9112).

use crate::support::{Origin, Spec, get, origin::OK, run};

/// The second request in each write: if it arrives anywhere, a boundary was misread.
const NEXT: &str = "GET /smuggled HTTP/1.1\r\nHost: a.example\r\n\r\n";

/// Requests that are refused for their head: the bytes, the status, the code.
fn refused_heads() -> Vec<(String, u16, &'static str)> {
    let post = |fields: &str, body: &str| format!("POST / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n{body}");
    let head = |fields: &str| format!("GET / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n");
    let line = |line: &str| format!("{line}\r\nHost: a.example\r\n\r\n");
    vec![
        (
            post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
            400,
            "content_length_with_transfer_encoding",
        ),
        (
            post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"),
            400,
            "content_length_with_transfer_encoding",
        ),
        (post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello"), 400, "content_length_repeated"),
        (post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"), 400, "content_length_repeated"),
        (post("Content-Length: 5, 5\r\n", "hello"), 400, "content_length_repeated"),
        (post("Content-Length: +5\r\n", "hello"), 400, "content_length_invalid"),
        (post("Content-Length: -5\r\n", "hello"), 400, "content_length_invalid"),
        (post("Content-Length: 0x5\r\n", "hello"), 400, "content_length_invalid"),
        (post("Content-Length: 5 5\r\n", "hello"), 400, "content_length_invalid"),
        (post("Content-Length:\r\n", "hello"), 400, "content_length_invalid"),
        (post("Content-Length: 99999999999999999999\r\n", "hello"), 400, "content_length_invalid"),
        (post("Content_Length: 5\r\n", "hello"), 400, "framing_field_lookalike"),
        (post("Transfer_Encoding: chunked\r\n", "0\r\n\r\n"), 400, "framing_field_lookalike"),
        (post("Content.Length: 5\r\n", "hello"), 400, "framing_field_lookalike"),
        (post("Transfer~Encoding: chunked\r\n", "0\r\n\r\n"), 400, "framing_field_lookalike"),
        (post("Transfer-Encoding: identity\r\n", ""), 400, "transfer_encoding_unknown"),
        (post("Transfer-Encoding: gzip\r\n", ""), 400, "transfer_encoding_unknown"),
        (post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"), 400, "transfer_encoding_unknown"),
        (post("Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n"), 400, "transfer_encoding_unknown"),
        (post("Transfer-Encoding: chunked;q=1\r\n", "0\r\n\r\n"), 400, "transfer_encoding_unknown"),
        (post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), 400, "transfer_encoding_repeated"),
        (post("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"), 400, "transfer_encoding_repeated"),
        (
            post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n"),
            400,
            "transfer_encoding_repeated",
        ),
        (post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"), 400, "space_before_colon"),
        (post("Content-Length : 5\r\n", "hello"), 400, "space_before_colon"),
        (post("Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n"), 400, "field_value_invalid"),
        (
            "POST / HTTP/1.0\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(),
            400,
            "transfer_encoding_in_http10",
        ),
        (head("X: a\r\n b\r\n"), 400, "obs_fold"),
        (head(" X: a\r\n"), 400, "obs_fold"),
        (head("X: a\nY: b\r\n"), 400, "bare_lf"),
        (head("X: a\rY: b\r\n"), 400, "bare_cr"),
        ("GET / HTTP/1.1\nHost: a.example\n\n".into(), 400, "bare_lf"),
        (head("X y: a\r\n"), 400, "field_name_invalid"),
        (head("X(): a\r\n"), 400, "field_name_invalid"),
        (head(": a\r\n"), 400, "field_name_invalid"),
        (head("no colon\r\n"), 400, "colon_missing"),
        (head("X: a\0b\r\n"), 400, "field_value_invalid"),
        (head("X: a\x7fb\r\n"), 400, "field_value_invalid"),
        ("GET / HTTP/1.1\r\n\r\n".into(), 400, "host_missing"),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n".into(), 400, "host_repeated"),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n".into(), 400, "host_empty"),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n".into(), 400, "host_invalid"),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n".into(), 400, "host_invalid"),
        ("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n".into(), 400, "host_user_info"),
        ("GET / HTTP/1.1\r\nHost: a:99999\r\n\r\n".into(), 400, "host_port_invalid"),
        (line("GET http://b.example/ HTTP/1.1"), 400, "host_disagrees"),
        (line("GET https://a.example/ HTTP/1.1"), 400, "scheme_disagrees"),
        (line("GET ftp://a.example/ HTTP/1.1"), 400, "target_scheme_unknown"),
        (line("GET a HTTP/1.1"), 400, "target_form_invalid"),
        (line("GET * HTTP/1.1"), 400, "target_form_not_allowed"),
        (line("GET /a#b HTTP/1.1"), 400, "target_fragment"),
        (line("GET /a\"b HTTP/1.1"), 400, "target_byte_invalid"),
        (line("GET /%zz HTTP/1.1"), 400, "target_escape_invalid"),
        (line("GET /../a HTTP/1.1"), 400, "path_above_root"),
        (line("GET  / HTTP/1.1"), 400, "start_line_invalid"),
        (line("GET /"), 400, "start_line_invalid"),
        (line("GET / HTTP/1.2"), 505, "version_unsupported"),
        (line("GET / HTTP/2.0"), 505, "version_unsupported"),
        (line("GET / HTTP/0.9"), 505, "version_unsupported"),
        (line("GET / http/1.1"), 400, "start_line_invalid"),
        (line("G@T / HTTP/1.1"), 400, "method_invalid"),
        (line("CONNECT a.example:443 HTTP/1.1"), 501, "connect_not_supported"),
        (head(&format!("X: {}\r\n", "a".repeat(40_000))), 431, "head_too_large"),
        (head(&"X: a\r\n".repeat(101)), 431, "too_many_fields"),
        (line(&format!("GET /{} HTTP/1.1", "a".repeat(9_000))), 414, "target_too_long"),
        (head("Connection: content-length\r\n"), 400, "connection_names_end_to_end"),
        (head("Connection: host\r\n"), 400, "connection_names_end_to_end"),
        (head("Connection: authorization\r\n"), 400, "connection_names_end_to_end"),
        (head("Connection: \"x\"\r\n"), 400, "connection_invalid"),
        ("GET / HTTP/1.0\r\n\r\n".into(), 400, "host_missing"),
        (post("Content-Length: 5\r\nExpect: 200-ok\r\n", "hello"), 417, "expectation_failed"),
    ]
}

/// The same for bodies.
fn refused_bodies() -> Vec<(String, u16, &'static str)> {
    let chunked = |body: &str| {
        format!("POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
    };
    vec![
        (chunked("x\r\n"), 400, "chunk_size_invalid"),
        (chunked("-1\r\n"), 400, "chunk_size_invalid"),
        (chunked("0x5\r\nhello\r\n0\r\n\r\n"), 400, "chunk_size_invalid"),
        (chunked(" 5\r\nhello\r\n0\r\n\r\n"), 400, "chunk_size_invalid"),
        (chunked("5 \r\nhello\r\n0\r\n\r\n"), 400, "chunk_size_invalid"),
        (chunked("5\nhello\r\n0\r\n\r\n"), 400, "chunk_size_invalid"),
        (chunked("fffffffffffffffff\r\n"), 400, "chunk_size_invalid"),
        (chunked("5;a\nb\r\nhello\r\n0\r\n\r\n"), 400, "chunk_extension_invalid"),
        (
            chunked(&format!("5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(5_000))),
            400,
            "chunk_extensions_too_large",
        ),
        (chunked("5\r\nhelloX\r\n0\r\n\r\n"), 400, "chunk_data_end_invalid"),
        (chunked("5\r\nhello\n0\r\n\r\n"), 400, "chunk_data_end_invalid"),
        (chunked("0\r\nX : y\r\n\r\n"), 400, "trailer_invalid"),
        (chunked(&format!("0\r\nX: {}\r\n\r\n", "a".repeat(9_000))), 400, "trailers_too_large"),
    ]
}

#[test]
fn broken_requests_are_refused_and_nothing_behind_them_is_read() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        for (request, status, code) in refused_heads().into_iter().chain(refused_bodies()) {
            let shown = request.chars().take(120).collect::<String>();
            let mut client = gateway.client().await;
            client.try_send(format!("{request}{NEXT}")).await;
            let response =
                client.try_response(false).await.unwrap_or_else(|error| panic!("{error}: {shown:?}"));
            assert_eq!((response.status, response.code().as_str()), (status, code), "{shown:?}");
            assert!(response.closes(), "{shown:?}: {}", response.head);
            client.ended().await;
        }
        assert!(!origin.text().contains("smuggled"), "{}", origin.text());
        let mut client = gateway.client().await;
        assert_eq!(client.exchange(get("/control")).await.status, 200);
        // Bodies that are found broken on the way may have begun; nothing of a broken head may arrive.
        for request in origin.text().split("HTTP/1.1\r\n").filter(|text| text.contains("GET ")) {
            assert!(request.ends_with("GET /control "), "{request}");
        }
    });
}

#[test]
fn the_same_requests_without_their_fault_pass() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        let requests = [
            "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello",
            "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nX: y\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nHost: A.example:80\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.example.\r\nConnection: x, close-not\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "\r\n\r\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET /a?b=%zz&c=100% HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET /a?b=%zz&c=\"d\" HTTP/1.1\r\nHost: a.example\r\n\r\n",
        ];
        let mut client = gateway.client().await;
        for request in requests.iter().take(8) {
            let response = client.exchange(request).await;
            assert_eq!(response.status, 200, "{request:?} {}", response.text());
        }
    });
}

#[test]
fn a_body_over_the_routes_limit_is_refused_by_length_and_when_it_is_met() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).public("body_bytes_max = '10B'").start().await;
        let post = |fields: &str, body: &str| {
            format!("POST / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n{body}{NEXT}")
        };
        for (request, arrives) in [
            (post("Content-Length: 11\r\n", "hello world"), false),
            (post("Content-Length: 11\r\nExpect: 100-continue\r\n", ""), false),
            (post("Transfer-Encoding: chunked\r\n", "b\r\nhello world\r\n0\r\n\r\n"), true),
            (post("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"), true),
        ] {
            let before = origin.text();
            let mut client = gateway.client().await;
            client.send(&request).await;
            let response = client.response().await;
            assert_eq!((response.status, response.code().as_str()), (413, "request_body_too_large"));
            assert!(response.closes());
            client.ended().await;
            assert!(arrives || origin.text() == before, "{}", origin.text());
        }
        assert!(!origin.text().contains("smuggled") && !origin.text().contains("world"));
        let mut client = gateway.client().await;
        let within = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\n0123456789";
        assert_eq!(client.exchange(within).await.status, 200);
    });
}

#[test]
fn broken_responses_are_not_passed_on_and_their_connections_not_kept() {
    run(async {
        let cases = [
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX : y\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nX: y\r\n z\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
            "HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 999 OK\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/2 200\r\n\r\n",
            "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\nX : y\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
            "SSH-2.0-x\r\n\r\n",
            "\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        ];
        for broken in cases {
            let origin = Origin::start(move |mut visit| async move {
                loop {
                    visit.request().await?;
                    visit.send(if visit.index == 0 { broken } else { OK }).await?;
                }
            })
            .await;
            let gateway = Spec::to(&origin).start().await;
            let mut client = gateway.client().await;
            let response = client.exchange(get("/")).await;
            assert_eq!(
                (response.status, response.code().as_str()),
                (502, "upstream_malformed"),
                "{broken:?}"
            );
            assert_eq!(client.exchange(get("/")).await.status, 200, "{broken:?}");
            assert_eq!(origin.connections(), 2, "{broken:?}");
        }
    });
}

#[test]
fn a_response_head_over_the_limit_is_not_passed_on() {
    run(async {
        let large = format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 2\r\n\r\nok", "a".repeat(70_000));
        let within = format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 2\r\n\r\nok", "a".repeat(60_000));
        for (response, status) in [(large, 502), (within, 200)] {
            let origin = Origin::answering(response).await;
            let gateway = Spec::to(&origin).start().await;
            assert_eq!(gateway.client().await.exchange(get("/")).await.status, status);
        }
    });
}

#[test]
fn informational_responses_can_not_be_endless() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            visit.request().await?;
            loop {
                visit.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n").await?;
            }
        })
        .await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        client.send(get("/")).await;
        let mut hints = 0;
        let last = loop {
            let response = client.response().await;
            if response.status != 103 {
                break response;
            }
            hints += 1;
        };
        assert!(hints <= 32, "{hints}");
        assert_eq!((last.status, last.code().as_str()), (502, "upstream_malformed"));
    });
}

#[test]
fn informational_responses_can_not_be_large_together() {
    run(async {
        let answer = async |count: usize| {
            let hint = format!("HTTP/1.1 103 Early Hints\r\nLink: <{}>\r\n\r\n", "a".repeat(10 * 1024));
            let response = format!("{}HTTP/1.1 204 No Content\r\n\r\n", hint.repeat(count));
            let origin = Origin::answering(response).await;
            let gateway = Spec::to(&origin).start().await;
            let mut client = gateway.client().await;
            client.send(get("/")).await;
            loop {
                let response = client.response().await;
                if response.status != 103 {
                    return response.status;
                }
            }
        };
        assert_eq!((answer(6).await, answer(7).await), (204, 502));
    });
}

#[test]
fn options_of_the_server_as_a_whole_are_answered_here() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        let response = client.exchange("OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        assert_eq!((response.status, response.header("content-length")), (204, None));
        assert_eq!(origin.text(), "");
        // The control: those of a resource are its service's.
        assert_eq!(client.exchange("OPTIONS /a HTTP/1.1\r\nHost: a.example\r\n\r\n").await.status, 200);
        assert!(origin.text().starts_with("OPTIONS /a HTTP/1.1\r\n"));
    });
}

#[test]
fn response_fields_are_limited() {
    run(async {
        let response = |count: usize| {
            format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{}\r\nok", "X: y\r\n".repeat(count - 1))
        };
        for (count, limit, status) in [(256, 256, 200), (257, 256, 502), (20, 20, 200), (21, 20, 502)] {
            let origin = Origin::answering(response(count)).await;
            let spec = Spec::to(&origin).with(format!("limits.response_fields_max = {limit}"));
            let answer = spec.start().await.client().await.exchange(get("/")).await;
            assert_eq!(answer.status, status, "{count} of {limit}");
            assert_eq!(answer.headers("x").len(), if status == 200 { count - 1 } else { 0 });
        }
    });
}
