//! Services that are reached by HTTP/2.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use bytes::Bytes;
use http::{HeaderMap, Response};
use tokio::sync::{Notify, mpsc, watch};

use crate::{
    http2,
    support::{
        Spec,
        certificates::Certificates,
        get,
        http2_origin::{HTTP2, answer, origin, origin_with, read, secure_origin},
        run, until,
    },
};

#[test]
fn a_request_arrives_with_its_head_and_nothing_of_its_connection() {
    run(async {
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        let service = origin(move |request, mut response| {
            let seen = Arc::clone(&seen);
            async move {
                let (head, mut body) = request.into_parts();
                let (bytes, trailers) = read(&mut body).await?;
                seen.lock().unwrap().push((head, bytes, trailers));
                let head =
                    Response::builder().header("x-name", "1").header("via", "1.1 far").body(()).unwrap();
                let mut stream = response.send_response(head, false)?;
                stream.send_data(Bytes::from_static(b"hello "), false)?;
                stream.send_data(Bytes::from_static(b"world"), false)?;
                let mut trailers = HeaderMap::new();
                trailers.insert("x-sum", "5".parse().unwrap());
                stream.send_trailers(trailers)
            }
        })
        .await;
        let gateway = Spec::to(&service).with(HTTP2).start().await;
        let mut client = gateway.client().await;
        client
            .send(
                "POST /a/../b?c=d HTTP/1.1\r\nHost: A.example:80\r\nConnection: x-hop, te\r\nX-Hop: 1\r\nTE: trailers\r\n\
                 Keep-Alive: 5\r\nCookie: a=1; b=2\r\nTransfer-Encoding: chunked\r\n\r\n\
                 5\r\nhello\r\n0\r\nX-End: 2\r\nContent-Length: 7\r\n\r\n",
            )
            .await;
        let response = client.response().await;
        assert_eq!((response.status, response.text().as_str()), (200, "hello world"));
        assert_eq!((response.header("x-name"), response.trailers.as_str()), (Some("1"), "x-sum: 5\r\n"));
        assert_eq!(response.headers("via"), ["1.1 far", "2 cardea"]);
        let (head, bytes, trailers) = heads.lock().unwrap().pop().unwrap();
        assert_eq!((head.method.as_str(), head.uri.to_string().as_str()), ("POST", "http://a.example/b?c=d"));
        assert_eq!((head.version, &bytes[..]), (http::Version::HTTP_2, &b"hello"[..]));
        let trailers = trailers.unwrap();
        assert_eq!((trailers.len(), &trailers["x-end"]), (1, &"2".parse().unwrap()));
        for gone in ["host", "connection", "x-hop", "keep-alive", "transfer-encoding", "content-length"] {
            assert!(!head.headers.contains_key(gone), "{gone}: {head:?}");
        }
        for (name, value) in [("te", "trailers"), ("cookie", "a=1; b=2"), ("x-forwarded-proto", "http")] {
            assert_eq!(head.headers.get_all(name).iter().collect::<Vec<_>>(), [value], "{head:?}");
        }
        // One that takes no trailers promises none.
        client.send(get("/")).await;
        client.response().await;
        assert!(!heads.lock().unwrap().pop().unwrap().0.headers.contains_key("te"));
        assert_eq!(service.connections(), 1);
    });
}

#[test]
fn requests_at_the_same_time_share_a_connection() {
    run(async {
        let release = Arc::new(Notify::new());
        let waiting = Arc::new(AtomicUsize::new(0));
        let (notify, count) = (Arc::clone(&release), Arc::clone(&waiting));
        let service = origin(move |_, mut response| {
            let (notify, count) = (Arc::clone(&notify), Arc::clone(&count));
            async move {
                let notified = notify.notified();
                count.fetch_add(1, SeqCst);
                notified.await;
                answer(&mut response, 200, "ok")
            }
        })
        .await;
        let gateway = Spec::to(&service).with(HTTP2).start().await;
        let mut clients = Vec::new();
        for _ in 0..30 {
            let mut client = gateway.client().await;
            client.send(get("/")).await;
            clients.push(client);
        }
        until("all requests are at the origin", || waiting.load(SeqCst) == 30).await;
        assert_eq!(service.connections(), 1);
        release.notify_waiters();
        for client in &mut clients {
            assert_eq!(client.response().await.text(), "ok");
        }
        // And then one after the other, on the connection that is idle.
        let client = &mut clients[0];
        for _ in 0..3 {
            client.send(get("/")).await;
            until("it is at the origin", || waiting.load(SeqCst) > 30).await;
            waiting.store(30, SeqCst);
            release.notify_waiters();
            assert_eq!(client.response().await.text(), "ok");
        }
        assert_eq!(service.connections(), 1);
    });
}

#[test]
fn a_connection_takes_as_many_requests_as_the_peer_and_the_configuration_allow() {
    run(async {
        for (peer, toml, expected) in [(2, "", 3), (100, "[service.pool]\nstreams_max = 3\n", 2)] {
            let waiting = Arc::new(AtomicUsize::new(0));
            let release = Arc::new(Notify::new());
            let (notify, count) = (Arc::clone(&release), Arc::clone(&waiting));
            let mut builder = h2::server::Builder::new();
            builder.max_concurrent_streams(peer);
            let service = origin_with(builder, move |_, mut response| {
                let (notify, count) = (Arc::clone(&notify), Arc::clone(&count));
                async move {
                    let notified = notify.notified();
                    count.fetch_add(1, SeqCst);
                    notified.await;
                    answer(&mut response, 200, "ok")
                }
            })
            .await;
            let gateway = Spec::to(&service).with([HTTP2, toml].concat()).start().await;
            let mut clients = Vec::new();
            for _ in 0..6 {
                let mut client = gateway.client().await;
                client.send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n").await;
                clients.push(client);
            }
            until("all requests are at the origin", || waiting.load(SeqCst) == 6).await;
            assert_eq!(service.connections(), expected);
            release.notify_waiters();
            for client in &mut clients {
                assert_eq!(client.response().await.status, 200);
            }
        }
    });
}

#[test]
fn responses_without_a_body_end_at_once() {
    run(async {
        let service = origin(|request, mut response| async move {
            let (status, length) = match request.uri().path() {
                "/204" => (204, None),
                "/304" => (304, Some("5")),
                "/0" => (200, Some("0")),
                "/none" => (200, None),
                _ => (200, Some("5")),
            };
            let mut head = Response::builder().status(status);
            if let Some(length) = length {
                head = head.header("content-length", length);
            }
            response.send_response(head.body(()).unwrap(), true).map(drop)
        })
        .await;
        let gateway = Spec::to(&service).with(HTTP2).start().await;
        let mut client = gateway.client().await;
        for (line, status, length) in [
            ("HEAD /", 200, Some("5")),
            ("GET /204", 204, None),
            ("GET /304", 304, Some("5")),
            ("GET /0", 200, Some("0")),
            ("GET /none", 200, Some("0")),
        ] {
            client.send(format!("{line} HTTP/1.1\r\nHost: a.example\r\n\r\n")).await;
            let head = client.head().await.unwrap();
            assert_eq!((head.status, head.header("content-length")), (status, length), "{line}");
        }
        assert_eq!(service.connections(), 1);
    });
}

#[test]
fn large_bodies_pass_both_ways_within_flow_control() {
    run(async {
        const SIZE: usize = 3_000_000;
        let service = origin(|request, mut response| async move {
            let (bytes, _) = read(&mut request.into_body()).await?;
            let mut stream = response.send_response(Response::new(()), false)?;
            let mut rest = Bytes::from(bytes);
            while !rest.is_empty() {
                stream.reserve_capacity(rest.len());
                let Some(capacity) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else { break };
                stream.send_data(rest.split_to(capacity?.min(rest.len())), false)?;
            }
            stream.send_data(Bytes::new(), true)
        })
        .await;
        let certificates = Certificates::new();
        let gateway = Spec::to(&service).with(HTTP2).with(certificates.listener()).start().await;
        let body: Vec<u8> = (0..SIZE).map(|at| ((at * 7) ^ (at >> 11)) as u8).collect();
        let mut client = http2::connect(&gateway, &certificates, "a.example").await;
        for length in [true, false] {
            let mut head = http2::request("POST", "https://a.example/");
            if length {
                head = head.header("content-length", SIZE);
            }
            let answer = client.try_exchange(head.body(()).unwrap(), &body).await.unwrap();
            assert!(answer.body == body, "{}", answer.body.len());
        }
        assert_eq!(service.connections(), 1);
    });
}

#[test]
fn both_directions_flow_at_the_same_time() {
    run(async {
        let service = origin(|request, mut response| async move {
            let mut body = request.into_body();
            let mut stream = response.send_response(Response::new(()), false)?;
            while let Some(chunk) = body.data().await {
                let chunk = chunk?;
                body.flow_control().release_capacity(chunk.len())?;
                stream.send_data(chunk, false)?;
            }
            stream.send_trailers(body.trailers().await?.unwrap_or_default())
        })
        .await;
        let certificates = Certificates::new();
        let gateway = Spec::to(&service).with(HTTP2).with(certificates.listener()).start().await;
        let mut client = http2::connect(&gateway, &certificates, "a.example").await;
        let head = http2::request("POST", "https://a.example/").body(()).unwrap();
        let (response, mut send) = client.send.send_request(head, false).unwrap();
        let mut body = response.await.unwrap().into_body();
        for round in 0..50_u8 {
            send.send_data(Bytes::copy_from_slice(&[round; 100]), false).unwrap();
            let mut echoed = 0;
            while echoed < 100 {
                let chunk = body.data().await.unwrap().unwrap();
                assert!(chunk.iter().all(|byte| *byte == round));
                echoed += chunk.len();
            }
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("x-end", "1".parse().unwrap());
        send.send_trailers(trailers).unwrap();
        assert!(body.data().await.is_none());
        assert_eq!(body.trailers().await.unwrap().unwrap()["x-end"], "1");
    });
}

#[test]
fn a_client_that_takes_nothing_stops_the_service_and_nobody_else() {
    run(async {
        let (sent, watching) = watch::channel(0_usize);
        let sent = Arc::new(sent);
        let service = origin(move |request, mut response| {
            let sent = Arc::clone(&sent);
            async move {
                if request.uri().path() == "/small" {
                    return answer(&mut response, 200, "small");
                }
                let mut stream = response.send_response(Response::new(()), false)?;
                loop {
                    stream.reserve_capacity(64 * 1024);
                    let Some(capacity) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else {
                        return Ok(());
                    };
                    stream.send_data(vec![0; capacity?].into(), false)?;
                    sent.send_modify(|sent| *sent += stream.capacity());
                    sent.send_modify(|sent| *sent += 1);
                }
            }
        })
        .await;
        let gateway = Spec::to(&service).with(HTTP2).start().await;
        let mut slow = gateway.client().await;
        slow.send(get("/large")).await;
        // It stops once the windows and the sockets are full.
        let mut before = usize::MAX;
        until("the service has stopped", || {
            let now = *watching.borrow();
            now > 0 && std::mem::replace(&mut before, now) == now
        })
        .await;
        let mut other = gateway.client().await;
        other.send(get("/small")).await;
        assert_eq!(other.response().await.text(), "small");
        assert_eq!(service.connections(), 1);
    });
}

#[test]
fn a_client_that_leaves_cancels_its_stream_and_not_the_connection() {
    run(async {
        let (told, mut telling) = mpsc::unbounded_channel();
        let service = origin(move |request, mut response| {
            let told = told.clone();
            async move {
                match request.uri().path() {
                    "/head" => {}
                    "/body" => {
                        let mut stream = response.send_response(Response::new(()), false)?;
                        stream.send_data(Bytes::from_static(b"begun"), false)?;
                        let reason = std::future::poll_fn(|cx| stream.poll_reset(cx)).await?;
                        told.send(("/body", reason)).unwrap();
                        return Ok(());
                    }
                    _ => return answer(&mut response, 200, "ok"),
                }
                let reason = std::future::poll_fn(|cx| response.poll_reset(cx)).await?;
                told.send(("/head", reason)).unwrap();
                Ok(())
            }
        })
        .await;
        let gateway = Spec::to(&service).with(HTTP2).start().await;
        let mut other = gateway.client().await;
        other.send(get("/")).await;
        other.response().await;
        for path in ["/head", "/body"] {
            let mut client = gateway.client().await;
            client.send(get(path)).await;
            if path == "/body" {
                client.head().await.unwrap();
            } else {
                until("it is under way", || gateway.log_text().lines().count() >= 1).await;
            }
            drop(client);
            assert_eq!(telling.recv().await.unwrap(), (path, h2::Reason::CANCEL));
        }
        other.send(get("/")).await;
        assert_eq!(other.response().await.text(), "ok");
        assert_eq!(service.connections(), 1);
    });
}

#[test]
fn a_reset_in_the_middle_of_a_response_is_seen() {
    run(async {
        let service = origin(|_, mut response| async move {
            let mut stream = response.send_response(Response::new(()), false)?;
            stream.send_data(Bytes::from_static(b"some"), false)?;
            tokio::task::yield_now().await;
            stream.send_reset(h2::Reason::INTERNAL_ERROR);
            Ok(())
        })
        .await;
        let certificates = Certificates::new();
        let gateway = Spec::to(&service).with(HTTP2).with(certificates.listener()).start().await;
        let mut client = http2::connect(&gateway, &certificates, "a.example").await;
        let head = http2::request("GET", "https://a.example/").body(()).unwrap();
        let outcome = client.try_exchange(head, b"").await;
        assert!(
            outcome.as_ref().is_err_and(h2::Error::is_reset)
                || outcome.as_ref().is_ok_and(|a| a.status == 502),
            "{outcome:?}"
        );
    });
}

#[test]
fn a_service_chooses_its_protocol_by_tls_and_websockets_use_http_1() {
    run(async {
        for (protocol, alpn, expected) in [
            ("auto", &["h2", "http/1.1"][..], "h2"),
            ("auto", &["http/1.1"], "http/1"),
            ("auto", &[], "http/1"),
            ("http1", &["h2", "http/1.1"], "http/1"),
            ("http2", &["h2", "http/1.1"], "h2"),
            ("http2", &["http/1.1"], "upstream_connect_failed"),
        ] {
            let certificates = Arc::new(Certificates::new());
            let service = secure_origin(&certificates, alpn, |request, mut response| async move {
                assert_eq!(request.uri().scheme_str(), Some("https"));
                answer(&mut response, 200, "h2")
            })
            .await;
            let toml = format!("{}protocol = \"{protocol}\"\n", certificates.service("a.example"));
            let gateway = Spec::to(&service).with(toml).start().await;
            let mut client = gateway.client().await;
            for _ in 0..2 {
                client.send(get("/")).await;
                let response = client.response().await;
                let found = if response.status == 200 { response.text() } else { response.code() };
                assert_eq!(found, expected, "{protocol} {alpn:?}");
            }
            client
                .send(
                    "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
                )
                .await;
            let response = client.head().await.unwrap();
            let expected = if protocol == "http2" { 501 } else { 101 };
            assert_eq!(response.status, expected, "{protocol} {alpn:?} {}", response.head);
        }
    });
}

#[test]
fn early_hints_pass_and_a_body_waits_to_be_asked_for() {
    run(async {
        let certificates = Certificates::new();
        let service = origin(|request, mut response| async move {
            let hint = Response::builder().status(103).header("link", "</a>; rel=preload").body(()).unwrap();
            response.send_informational(hint)?;
            if request.headers().contains_key("expect") {
                response.send_informational(Response::builder().status(100).body(()).unwrap())?;
            }
            let (bytes, _) = read(&mut request.into_body()).await?;
            answer(&mut response, 200, &String::from_utf8(bytes).unwrap())
        })
        .await;
        let gateway = Spec::to(&service).with(HTTP2).with(certificates.listener()).start().await;
        let tls = certificates
            .connect(
                tokio::net::TcpStream::connect(gateway.address).await.unwrap(),
                "a.example",
                &["http/1.1"],
            )
            .await;
        let mut client = crate::support::Client::over(tls);
        client
            .send("PUT / HTTP/1.1\r\nHost: a.example\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
            .await;
        let first = client.head().await.unwrap();
        let second = client.head().await.unwrap();
        let mut statuses = [first.status, second.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [100, 103]);
        client.send("hello").await;
        assert_eq!(client.response().await.text(), "hello");
    });
}

#[test]
fn a_removed_endpoint_is_told_that_its_connection_ends() {
    run(async {
        let ended = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&ended);
        let service = crate::support::Origin::start(move |visit| {
            let count = Arc::clone(&count);
            async move {
                use crate::support::http2_origin::{Frames, GOAWAY, HEADERS, head};
                let mut frames = Frames::begin(visit.into_stream(), b"").await?;
                let request = frames.next_of(HEADERS).await?;
                frames.send(head(request.stream, true, &[(":status", "200")])).await?;
                frames.next_of(GOAWAY).await?;
                count.fetch_add(1, SeqCst);
                frames.closed().await
            }
        })
        .await;
        let other = crate::support::Origin::ok().await;
        let gateway = Spec::to(&service).with(HTTP2).start().await;
        let mut client = gateway.client().await;
        client.send(get("/")).await;
        assert_eq!(client.response().await.status, 200);
        assert_eq!(ended.load(SeqCst), 0);
        gateway.reload(Spec::to(&other));
        until("the endpoint was told", || ended.load(SeqCst) == 1).await;
        service.ended(1).await;
        client.send(get("/")).await;
        assert_eq!(client.response().await.status, 200);
    });
}

#[test]
fn a_connection_carries_as_many_requests_as_it_may_and_all_that_there_may_be() {
    run(async {
        let service = origin(|_, mut response| async move { answer(&mut response, 200, "ok") }).await;
        let gateway =
            Spec::to(&service).with([HTTP2, "[service.pool]\nrequests_max = 3\n"].concat()).start().await;
        let mut client = gateway.client().await;
        for expected in [1, 1, 1, 2, 2, 2, 3] {
            assert_eq!(client.exchange(get("/")).await.text(), "ok");
            assert_eq!(service.connections(), expected);
        }
        service.ended(2).await;

        let release = Arc::new(Notify::new());
        let waiting = Arc::new(AtomicUsize::new(0));
        let (notify, count) = (Arc::clone(&release), Arc::clone(&waiting));
        let service = origin(move |_, mut response| {
            let (notify, count) = (Arc::clone(&notify), Arc::clone(&count));
            async move {
                let notified = notify.notified();
                count.fetch_add(1, SeqCst);
                notified.await;
                answer(&mut response, 200, "ok")
            }
        })
        .await;
        let gateway = Spec::to(&service)
            .with([HTTP2, "[service.pool]\nconnections_max = 1\nstreams_max = 5\n"].concat())
            .start()
            .await;
        let mut clients = Vec::new();
        for expected in 1..=5 {
            let mut client = gateway.client().await;
            client.send(get("/")).await;
            clients.push(client);
            until("it is at the origin", || waiting.load(SeqCst) == expected).await;
        }
        let response = gateway.client().await.exchange(get("/")).await;
        assert_eq!((response.status, response.code().as_str()), (503, "upstream_connections_exhausted"));
        release.notify_waiters();
        for client in &mut clients {
            assert_eq!(client.response().await.text(), "ok");
        }
        assert_eq!(service.connections(), 1);
    });
}
