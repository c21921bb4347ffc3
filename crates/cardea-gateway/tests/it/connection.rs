//! Connections: kept, pipelined, of HTTP/1.0, upgraded, drained.

use std::sync::Arc;

use cardea_clock::{ManualClock, Wall};
use cardea_config::Config;
use cardea_gateway::gateway::Phase;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Origin, Spec, add_rules, get, origin::OK, run, unchecked, until};

#[test]
fn connections_are_kept_alive_on_both_sides() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        for _ in 0..5 {
            let response = client.exchange(get("/")).await;
            assert_eq!((response.status, response.text().as_str()), (200, "ok"));
            assert!(response.header("connection").is_none() && response.header("date").is_some());
        }
        assert_eq!(origin.connections(), 1);
        assert_eq!(origin.text().matches("GET / HTTP/1.1").count(), 5);
    });
}

#[test]
fn the_origin_receives_the_request_that_was_authorized() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        client
            .exchange(
                "GET http://A.Example:80/x/../a?q=1 HTTP/1.1\r\nHost: a.example\r\nConnection: keep-alive, X-Hop\r\n\
                 X-Hop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n\
                 Proxy-Authorization: x\r\nProxy-Connection: x\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\n\
                 X-Kept: \u{e9}\r\n\r\n",
            )
            .await;
        let text = origin.text().to_lowercase();
        assert!(text.starts_with("get /a?q=1 http/1.1\r\n"), "{text}");
        assert_eq!(text.matches("\r\nhost: a.example\r\n").count(), 1, "{text}");
        assert!(text.contains("\r\nx-forwarded-for: 127.0.0.1\r\n"), "{text}");
        assert!(text.contains("\r\nvia: 1.1 cardea\r\n") && text.contains("\r\nx-request-id: "), "{text}");
        for gone in [
            "connection:",
            "x-hop",
            "keep-alive",
            "te:",
            "upgrade",
            "http2-settings",
            "proxy-",
            "6.6.6.6",
            "\r\nforwarded",
        ] {
            assert!(!text.contains(gone), "{gone} in {text}");
        }
    });
}

#[test]
fn only_trusted_proxies_set_the_client_address() {
    run(async {
        let header = "X-Forwarded-For: 6.6.6.6, 203.0.113.9\r\nX-Forwarded-Proto: https\r\n";
        let request = format!("GET / HTTP/1.1\r\nHost: a.example\r\n{header}\r\n");
        for (trusted, policy, source, sent) in [
            ("127.0.0.1", "set", "203.0.113.9", "127.0.0.1"),
            ("127.0.0.1", "append", "203.0.113.9", "6.6.6.6, 203.0.113.9, 127.0.0.1"),
            ("127.0.0.1", "trust", "203.0.113.9", "6.6.6.6, 203.0.113.9"),
            ("192.0.2.1", "set", "127.0.0.1", "127.0.0.1"),
            ("192.0.2.1", "append", "127.0.0.1", "127.0.0.1"),
            ("192.0.2.1", "trust", "127.0.0.1", "127.0.0.1"),
        ] {
            let origin = Origin::ok().await;
            let spec = Spec::to(&origin)
                .with(format!("trusted_proxies.prefixes = ['{trusted}']"))
                .with(format!("forwarding.forwarded = '{policy}'"));
            let gateway = spec.start().await;
            assert_eq!(gateway.client().await.exchange(&request).await.status, 200);
            assert_eq!(gateway.log(1).await[0]["client.address"], source, "{trusted} {policy:?}");
            let text = origin.text();
            assert!(text.contains(&format!("\r\nX-Forwarded-For: {sent}\r\n")), "{policy:?} {text}");
            assert_eq!(text.contains("Proto: https"), sent == "6.6.6.6, 203.0.113.9", "{text}");
        }
    });
}

#[test]
fn ten_pipelined_requests_are_answered_in_order() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            loop {
                let request = visit.request().await?;
                let path = request.line().split(' ').nth(1).unwrap().to_owned();
                visit
                    .send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len()))
                    .await?;
            }
        })
        .await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        let requests: String = (0..10)
            .map(|n| match n % 3 {
                0 => get(&format!("/{n}")),
                1 => format!("POST /{n} HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nabc"),
                _ => format!("POST /{n} HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
            })
            .collect();
        client.send(requests).await;
        for n in 0..10 {
            assert_eq!(client.response().await.text(), format!("/{n}"));
        }
        assert_eq!(origin.connections(), 1);
    });
}

#[test]
fn http_1_0_is_closed_unless_it_asks_to_be_kept() {
    run(async {
        let origin =
            Origin::answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
                .await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        let response = client.exchange("GET / HTTP/1.0\r\nHost: a.example\r\n\r\n").await;
        assert_eq!((response.status, response.text().as_str()), (200, "ok"));
        assert!(response.closes() && response.header("transfer-encoding").is_none(), "{}", response.head);

        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        for _ in 0..2 {
            let response =
                client.exchange("GET / HTTP/1.0\r\nHost: a.example\r\nConnection: keep-alive\r\n\r\n").await;
            assert_eq!((response.text().as_str(), response.header("connection")), ("ok", Some("keep-alive")));
        }
        let response = client.exchange("GET / HTTP/1.0\r\nHost: a.example\r\n\r\n").await;
        assert!(response.closes());
        client.ended().await;
        // The service is spoken to in HTTP/1.1 all the same (RFC 9110 §2.5).
        assert!(origin.text().starts_with("GET / HTTP/1.1\r\n"));
    });
}

#[test]
fn connections_without_further_requests_are_closed_without_waiting() {
    run(async {
        // Nobody is waited for in vain: this clock stands still.
        let clock = ManualClock::new(Wall::from_unix_seconds(1_900_000_000));
        let origin = Origin::ok().await;
        let gateway = Spec { clock: Some(clock.clock()), ..Spec::to(&origin) }.start().await;
        let ends = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
        let body = "POST / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nContent-Length: 2\r\n\r\n12";
        let old = "GET / HTTP/1.0\r\nHost: a.example\r\n\r\n";
        let more = format!("{ends}{}", get("/more"));
        let malformed = "GET / HTTP/1.1\r\nHost: a.example\r\n broken\r\n\r\n";
        for (request, is_waited_for) in
            [(ends, false), (body, false), (old, false), (more.as_str(), true), (malformed, true)]
        {
            let mut client = tokio::net::TcpStream::connect(gateway.address).await.unwrap();
            client.write_all(request.as_bytes()).await.unwrap();
            let mut response = String::new();
            client.read_to_string(&mut response).await.unwrap();
            assert!(response.starts_with("HTTP/1."), "{request:?} {response:?}");
            // What comes to a socket that is closed is answered with a reset.
            let (mut taken, mut is_closed) = (0, false);
            until("it is closed, or has taken much", || {
                is_closed = client.try_write(b"x").is_err();
                taken += 1;
                is_closed || taken == 100
            })
            .await;
            assert_eq!(is_closed, !is_waited_for, "{request:?}: {taken}");
        }
    });
}

#[test]
fn responses_without_a_body_may_have_a_length() {
    run(async {
        let cases = [
            ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\n", 200, Some("5")),
            ("HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200, None),
            ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304, Some("5")),
            ("GET", "HTTP/1.1 204 No Content\r\n\r\n", 204, None),
            ("GET", "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", 204, None),
        ];
        for (method, answer, status, length) in cases {
            let origin = Origin::answering(answer).await;
            let gateway = Spec::to(&origin).start().await;
            let mut client = gateway.client().await;
            for _ in 0..2 {
                client.send(format!("{method} / HTTP/1.1\r\nHost: a.example\r\n\r\n")).await;
                let response = client.try_response(true).await.unwrap();
                assert_eq!(
                    (response.status, response.header("content-length")),
                    (status, length),
                    "{answer}"
                );
                assert!(response.header("transfer-encoding").is_none());
            }
            assert_eq!(origin.connections(), 2, "held for a moment: {answer}");
        }
    });
}

#[test]
fn a_refused_head_request_gets_no_body() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        client.send(format!("HEAD /api HTTP/1.1\r\nHost: a.example\r\n\r\n{}", get("/"))).await;
        assert_eq!(client.try_response(true).await.unwrap().status, 401);
        assert_eq!(client.response().await.text(), "ok");
    });
}

#[test]
fn bytes_above_ascii_pass_unchanged_in_values() {
    run(async {
        let origin =
            Origin::answering(b"HTTP/1.1 200 OK\r\nX-Name: J\xf6rg \x80\xff\r\nContent-Length: 0\r\n\r\n")
                .await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        let response =
            client.exchange(b"GET / HTTP/1.1\r\nHost: a.example\r\nX-Name: \x80\xffz\xe9\r\n\r\n").await;
        assert_eq!(response.header("x-name"), Some("J\u{f6}rg \u{80}\u{ff}"));
        let received = origin.received().concat();
        assert!(memchr::memmem::find(&received, b"X-Name: \x80\xffz\xe9\r\n").is_some());
    });
}

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

#[test]
fn a_websocket_is_carried_both_ways_and_half_closed() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            let head = visit.head().await?;
            assert!(head.contains("connection: upgrade\r\nupgrade: websocket\r\n"), "{head}");
            // The first octets of the service come together with its head.
            visit.send(format!("{SWITCHING}hello")).await?;
            assert_eq!(visit.bytes(9).await?, b"earlylate");
            visit.closed().await;
            visit.send("after the client's end").await
        })
        .await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        // A client may send before it has the 101.
        client.send(format!("{UPGRADE}early")).await;
        let response = client.head().await.unwrap();
        assert_eq!((response.status, response.headers("upgrade")), (101, vec!["websocket"]));
        assert_eq!(response.headers("connection"), ["upgrade"]);
        assert_eq!(client.bytes(5).await.unwrap(), b"hello");
        client.send("late").await;
        client.finish().await;
        assert_eq!(client.rest().await.unwrap(), b"after the client's end");
        origin.ended(1).await;
        let line = gateway.log(1).await.remove(0);
        assert_eq!(
            (line["http.response.status_code"].as_u64(), line["complete"].as_bool()),
            (Some(101), Some(true))
        );
    });
}

#[test]
fn a_websocket_whose_one_end_dies_ends_at_the_other() {
    run(async {
        for client_dies in [true, false] {
            let origin = Origin::start(move |mut visit| async move {
                visit.head().await?;
                visit.send(format!("{SWITCHING}hello")).await?;
                if client_dies {
                    visit.closed().await;
                } else {
                    visit.bytes(4).await?;
                    visit.reset();
                }
                Ok(())
            })
            .await;
            let gateway = Spec::to(&origin).start().await;
            let mut client = gateway.client().await;
            client.send(UPGRADE).await;
            assert_eq!(client.head().await.unwrap().status, 101);
            assert_eq!(client.bytes(5).await.unwrap(), b"hello");
            if client_dies {
                drop(client);
            } else {
                client.send("ping").await;
                assert!(client.rest().await.unwrap_or_default().is_empty());
                drop(client);
            }
            origin.ended(1).await;
            until("the connection is gone", || gateway.gateway.connections() == 0).await;
        }
    });
}

#[test]
fn a_refused_upgrade_is_an_ordinary_response() {
    run(async {
        let origin =
            Origin::answering("HTTP/1.1 426 Upgrade Required\r\nUpgrade: x\r\nContent-Length: 2\r\n\r\nno")
                .await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        for _ in 0..2 {
            let response = client.exchange(UPGRADE).await;
            assert_eq!((response.status, response.text().as_str()), (426, "no"));
            assert!(response.header("upgrade").is_none());
        }
        assert_eq!(origin.connections(), 1);
    });
}

const ACCEPT: &str = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";

#[test]
fn only_a_service_that_answers_the_handshake_gets_a_tunnel() {
    run(async {
        for answer in [
            SWITCHING.replace(ACCEPT, ""),
            SWITCHING.replace("s3pP", "s3pQ"),
            SWITCHING.replace(ACCEPT, &ACCEPT.repeat(2)),
            SWITCHING.replace("Connection: Upgrade\r\n", ""),
            SWITCHING.replace("Connection: Upgrade", "Connection: close"),
        ] {
            let origin = Origin::start(move |mut visit| {
                let answer = answer.clone();
                async move {
                    loop {
                        let line = visit.request().await?.line().to_owned();
                        visit.send(if line.contains("/chat") { answer.as_str() } else { OK }).await?;
                    }
                }
            })
            .await;
            let gateway = Spec::to(&origin).start().await;
            let mut client = gateway.client().await;
            // In a tunnel, the second request would meet no rule.
            let response =
                client.exchange(format!("{UPGRADE}GET /admin HTTP/1.1\r\nHost: a.example\r\n\r\n")).await;
            assert_eq!((response.status, response.code().as_str()), (502, "upstream_malformed"));
            assert_eq!(client.response().await.code(), "credentials_missing");
            assert_eq!(client.exchange(get("/")).await.text(), "ok");
            assert_eq!(origin.connections(), 2, "a connection that was to become a tunnel is not used again");
        }
    });
}

#[test]
fn a_handshake_without_a_valid_key_or_version_reaches_no_service() {
    run(async {
        let origin = Origin::answering(SWITCHING).await;
        let gateway = Spec::to(&origin).start().await;
        let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        for request in [
            UPGRADE.replace(key, ""),
            UPGRADE.replace(key, &key.repeat(2)),
            UPGRADE.replace("dGhl", "dGh"),
            UPGRADE.replace("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25j"),
        ] {
            let response = gateway.client().await.exchange(request.as_str()).await;
            assert_eq!(
                (response.status, response.code().as_str()),
                (400, "websocket_key_invalid"),
                "{request}"
            );
        }
        let version = "Sec-WebSocket-Version: 13\r\n";
        for request in [
            UPGRADE.replace(version, ""),
            UPGRADE.replace(": 13", ": 8"),
            UPGRADE.replace(version, &version.repeat(2)),
        ] {
            let response = gateway.client().await.exchange(request.as_str()).await;
            assert_eq!(
                (response.status, response.code().as_str()),
                (426, "websocket_version_unsupported"),
                "{request}"
            );
            assert_eq!(response.header("sec-websocket-version"), Some("13"));
            assert_eq!(
                (response.headers("upgrade"), response.headers("connection")),
                (vec!["websocket"], vec!["upgrade"])
            );
        }
        assert_eq!(origin.connections(), 0);
        let mut client = gateway.client().await;
        client.send(UPGRADE).await;
        assert_eq!(client.head().await.unwrap().status, 101);
    });
}

#[test]
fn a_switch_that_was_not_asked_for_is_malformed() {
    run(async {
        for (request, answer) in [
            (UPGRADE.replace("websocket", "h2c"), SWITCHING.replace("websocket", "h2c")),
            (UPGRADE.replace("websocket", "h2c"), SWITCHING.to_owned()),
            (UPGRADE.replace("GET", "POST"), SWITCHING.to_owned()),
            (UPGRADE.replace("HTTP/1.1", "HTTP/1.0"), SWITCHING.to_owned()),
            (UPGRADE.to_owned(), SWITCHING.replace("websocket", "h2c")),
        ] {
            let origin = Origin::answering(answer).await;
            let gateway = Spec::to(&origin).start().await;
            let response = gateway.client().await.exchange(request).await;
            assert_eq!((response.status, response.code().as_str()), (502, "upstream_malformed"));
            assert!(!origin.text().contains("h2c"));
        }
    });
}

#[test]
fn idle_connections_close_when_the_gateway_stops_and_busy_ones_finish_first() {
    run(async {
        let release = Arc::new(tokio::sync::Semaphore::new(0));
        let gate = Arc::clone(&release);
        let origin = Origin::start(move |mut visit| {
            let gate = Arc::clone(&gate);
            async move {
                loop {
                    if visit.request().await?.line().contains("slow") {
                        gate.acquire().await.unwrap().forget();
                    }
                    visit.send(OK).await?;
                }
            }
        })
        .await;
        let mut gateway = Spec::to(&origin).start().await;
        let mut idle = gateway.client().await;
        assert_eq!(idle.exchange(get("/")).await.status, 200);
        let mut busy = gateway.client().await;
        busy.send(get("/slow")).await;
        origin.until(|text| text.contains("/slow")).await;
        gateway.gateway.advance(Phase::Draining);
        assert_eq!(idle.exchange(get("/")).await.status, 200, "draining still serves");
        gateway.gateway.advance(Phase::Stopping);
        idle.ended().await;
        gateway.serving.ended().await;
        until("the idle one is gone", || gateway.gateway.connections() == 1).await;
        release.add_permits(1);
        let response = busy.response().await;
        assert_eq!(response.status, 200);
        assert!(response.closes());
        busy.ended().await;
        drop((idle, busy));
        gateway.gateway.idle().await;
    });
}

#[test]
fn a_request_in_flight_keeps_its_model_and_the_next_gets_the_new_one() {
    run(async {
        let release = Arc::new(tokio::sync::Semaphore::new(0));
        let gate = Arc::clone(&release);
        let old = Origin::start(move |mut visit| {
            let gate = Arc::clone(&gate);
            async move {
                visit.request().await?;
                gate.acquire().await.unwrap().forget();
                visit.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nold").await
            }
        })
        .await;
        let new = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nnew").await;
        let header = |value: &str| format!("response_headers.set = {{ x-model = '{value}' }}");
        let gateway = Spec::to(&old).public(header("one")).start().await;
        let mut client = gateway.client().await;
        client.send(format!("{}{}", get("/"), get("/"))).await;
        old.until(|text| text.contains("GET")).await;
        gateway.reload(Spec::to(&new).public(header("two")));
        release.add_permits(1);
        let first = client.response().await;
        assert_eq!((first.text().as_str(), first.header("x-model")), ("old", Some("one")));
        let second = client.response().await;
        assert_eq!((second.text().as_str(), second.header("x-model")), ("new", Some("two")));
    });
}

#[test]
fn header_rules_can_not_split_or_frame_a_message() {
    run(async {
        let origin = Origin::ok().await;
        let edits = "set = { x-echo = '{request.headers.x-in}{request.query}' }\nremove = ['x-gone']";
        // No configuration may set these.
        let framing = |config: &mut Config| {
            let route = config.routes.iter_mut().find(|route| route.name == "public").unwrap();
            let route = &mut route.value.settings;
            for rules in [&mut route.request_headers, &mut route.response_headers] {
                let framing =
                    [("content-length", "7"), ("transfer-encoding", "chunked"), ("connection", "x-echo")];
                add_rules(rules, framing.map(|(name, value)| unchecked(name, value)).into());
            }
        };
        let gateway = Spec::to(&origin)
            .public(format!("[request_headers]\n{edits}\n[response_headers]\n{edits}"))
            .resolved(framing)
            .start()
            .await;
        let mut client = gateway.client().await;
        for query in ["a%0d%0aX-Split:1", "a%0D%0A%0D%0A%3Cb%3E"] {
            let request = format!(
                "GET /?{query} HTTP/1.1\r\nHost: a.example\r\nX-In: \u{80}\u{8d}\u{8a}\r\nX-Gone: 1\r\n\r\n"
            );
            let response = client.exchange(request).await;
            assert_eq!(response.text(), "ok", "{}", response.head);
            assert!(
                response.header("x-split").is_none() && response.header("x-echo").is_some(),
                "{}",
                response.head
            );
            assert_eq!(response.headers("content-length"), ["2"]);
            assert!(
                response.header("transfer-encoding").is_none() && response.header("connection").is_none()
            );
        }
        let text = origin.text().to_lowercase();
        assert!(
            !text.contains("\r\nx-split")
                && !text.contains("transfer-encoding")
                && !text.contains("content-length")
        );
        assert!(!text.contains("x-gone"));
    });
}

#[test]
fn routes_and_methods_that_are_not_served_are_told_apart() {
    run(async {
        let origin = Origin::ok().await;
        let spec = Spec::to(&origin).public("path_prefix = '/only'\nmethods = ['GET', 'PUT']");
        let gateway = spec.start().await;
        let mut client = gateway.client().await;
        let missing = client.exchange(get("/else")).await;
        assert_eq!((missing.status, missing.code().as_str()), (404, "route_not_found"));
        let post = "POST /only HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\n\r\nhi";
        let method = client.exchange(post).await;
        assert_eq!((method.status, method.header("allow")), (405, Some("GET, PUT")));
        assert_eq!(client.exchange(get("/only/x")).await.status, 200);
        assert_eq!(origin.text().matches("HTTP/1.1").count(), 1);
    });
}

#[test]
fn connections_are_counted_while_they_last() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        let mut clients = Vec::new();
        for _ in 0..20 {
            let mut client = gateway.client().await;
            client.exchange(get("/")).await;
            clients.push(client);
        }
        assert_eq!(gateway.gateway.connections(), 20);
        drop(clients);
        until("all connections are gone", || gateway.gateway.connections() == 0).await;
    });
}
