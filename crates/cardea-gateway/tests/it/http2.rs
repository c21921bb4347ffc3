//! The same gateway over HTTP/2.

use std::task::Poll;

use bytes::Bytes;
use cardea_gateway::gateway::Phase;
use h2::client::{ResponseFuture, SendRequest};
use http::{HeaderMap, Request};
use tokio::net::TcpStream;

use crate::support::{Harness, Origin, Spec, certificates::Certificates, origin::OK, run, until};

pub(crate) struct Client {
    pub(crate) send: SendRequest<Bytes>,
    pub(crate) connection: tokio::task::JoinHandle<Result<(), h2::Error>>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Answer {
    pub(crate) fn code(&self) -> String {
        let document: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        document["code"].as_str().unwrap().to_owned()
    }
}

pub(crate) async fn gateway_with(origin: &Origin, toml: &str) -> (Harness, Certificates) {
    let certificates = Certificates::new();
    let spec = Spec::to(origin).with(certificates.listener()).with(toml);
    (spec.start().await, certificates)
}

pub(crate) async fn connect(gateway: &Harness, certificates: &Certificates, sni: &str) -> Client {
    let tcp = TcpStream::connect(gateway.address).await.unwrap();
    let tls = certificates.connect(tcp, sni, &["h2", "http/1.1"]).await;
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (send, connection) = h2::client::handshake(tls).await.unwrap();
    Client { send, connection: tokio::spawn(connection) }
}

pub(crate) fn request(method: &str, uri: &str) -> http::request::Builder {
    Request::builder().method(method).uri(uri)
}

pub(crate) async fn collect(response: ResponseFuture) -> Result<Answer, h2::Error> {
    let (head, mut stream) = response.await?.into_parts();
    let mut body = Vec::new();
    while let Some(chunk) = stream.data().await {
        let chunk = chunk?;
        body.extend_from_slice(&chunk);
        stream.flow_control().release_capacity(chunk.len()).unwrap();
    }
    let trailers = stream.trailers().await?;
    Ok(Answer { status: head.status.as_u16(), headers: head.headers, body, trailers })
}

impl Client {
    pub(crate) async fn try_exchange(
        &mut self,
        request: Request<()>,
        body: &[u8],
    ) -> Result<Answer, h2::Error> {
        std::future::poll_fn(|cx| self.send.poll_ready(cx)).await?;
        let (response, mut stream) = self.send.send_request(request, body.is_empty())?;
        if !body.is_empty() {
            stream.send_data(Bytes::copy_from_slice(body), true)?;
        }
        collect(response).await
    }

    pub(crate) async fn exchange(&mut self, request: http::request::Builder) -> Answer {
        self.try_exchange(request.body(()).unwrap(), b"").await.unwrap()
    }
}

#[test]
fn a_request_and_its_response_are_carried() {
    run(async {
        let origin = Origin::answering("HTTP/1.1 200 OK\r\nX-Name: \u{e9}\r\nConnection: x-hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nContent-Length: 2\r\n\r\nok").await;
        let (gateway, certificates) = gateway_with(&origin, "").await;
        let mut client = connect(&gateway, &certificates, "a.example").await;
        let answer = client
            .exchange(
                request("GET", "https://a.example/x/%2e%2e/a?b=c")
                    .header("cookie", "a=1")
                    .header("cookie", "b=2")
                    .header("te", "trailers")
                    .header("x-auth-subject", "mallory"),
            )
            .await;
        assert_eq!((answer.status, &answer.body[..]), (200, &b"ok"[..]));
        assert_eq!(answer.headers["content-length"], "2");
        assert!(answer.headers.contains_key("date"));
        for gone in ["connection", "x-hop", "keep-alive"] {
            assert!(!answer.headers.contains_key(gone), "{answer:?}");
        }
        let text = origin.text().to_lowercase();
        assert!(text.starts_with("get /a?b=c http/1.1\r\n"), "{text}");
        for there in [
            "\r\nhost: a.example\r\n",
            "\r\ncookie: a=1; b=2\r\n",
            "\r\nvia: 2 cardea\r\n",
            "\r\nx-forwarded-proto: https\r\n",
        ] {
            assert_eq!(text.matches(there).count(), 1, "{there} in {text}");
        }
        assert!(!text.contains("mallory") && !text.contains("\r\nte:"), "{text}");
        assert_eq!(gateway.log(1).await[0]["network.protocol"], "HTTP/2");
    });
}

#[test]
fn bodies_and_trailers_pass_both_ways() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            let request = visit.request().await?;
            assert_eq!((&request.body[..], request.trailers.as_str()), (&b"hello"[..], "x-sum: 1\r\n"));
            visit
                .send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-End: 2\r\nContent-Length: 1\r\n\r\n")
                .await
        })
        .await;
        let (gateway, certificates) = gateway_with(&origin, "").await;
        let mut client = connect(&gateway, &certificates, "a.example").await;
        let (response, mut stream) =
            client.send.send_request(request("POST", "https://a.example/").body(()).unwrap(), false).unwrap();
        stream.send_data(Bytes::from_static(b"hello"), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "1".parse().unwrap());
        trailers.insert("x-auth-subject", "mallory".parse().unwrap());
        stream.send_trailers(trailers).unwrap();
        let answer = collect(response).await.unwrap();
        assert_eq!(answer.body, b"ok");
        let trailers = answer.trailers.unwrap();
        assert_eq!((trailers.len(), &trailers["x-end"]), (1, &"2".parse().unwrap()));
    });
}

#[test]
fn large_bodies_pass_within_flow_control() {
    run(async {
        const SIZE: usize = 8_000_000;
        let origin = Origin::start(|mut visit| async move {
            loop {
                let request = visit.request().await?;
                visit
                    .send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len()))
                    .await?;
                visit.send(&request.body).await?;
            }
        })
        .await;
        let (gateway, certificates) = gateway_with(&origin, "").await;
        let mut client = connect(&gateway, &certificates, "a.example").await;
        let body: Vec<u8> = (0..SIZE).map(|at| ((at * 7) ^ (at >> 11)) as u8).collect();
        for length in [true, false] {
            let mut head = request("PUT", "https://a.example/");
            if length {
                head = head.header("content-length", SIZE);
            }
            let answer = client.try_exchange(head.body(()).unwrap(), &body).await.unwrap();
            assert!(answer.body == body, "{}", answer.body.len());
        }
    });
}

#[test]
fn responses_without_a_body_end_at_once() {
    run(async {
        for (method, answer, status) in [
            ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200),
            ("GET", "HTTP/1.1 204 No Content\r\n\r\n", 204),
            ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304),
        ] {
            let origin = Origin::answering(answer).await;
            let (gateway, certificates) = gateway_with(&origin, "").await;
            let mut client = connect(&gateway, &certificates, "a.example").await;
            for _ in 0..2 {
                let answer = client.exchange(request(method, "https://a.example/")).await;
                assert_eq!((answer.status, answer.body.len()), (status, 0));
            }
            assert_eq!(origin.connections(), 2, "the first is held for a moment");
        }
    });
}

#[test]
fn refusals_are_those_of_http_1() {
    run(async {
        let origin = Origin::ok().await;
        let (gateway, certificates) =
            gateway_with(&origin, "[[route]]\nname = 'public'\nbody_bytes_max = '10B'").await;
        let mut client = connect(&gateway, &certificates, "a.example").await;
        let token = gateway.token();
        let bearer = |path: &str| {
            request("GET", &format!("https://a.example{path}"))
                .header("authorization", format!("Bearer {token}"))
        };
        let cases = [
            (request("GET", "https://a.example/api"), 401, "credentials_missing"),
            (request("GET", "https://a.example/x/..//%61pi"), 401, "credentials_missing"),
            (bearer("/admin"), 403, "insufficient_scope"),
            (bearer("/other"), 401, "audience_mismatch"),
            (bearer("/api").header("authorization", "Bearer x"), 400, "credentials_malformed"),
            (request("GET", "https://a.example/a%2fb"), 400, "path_encoding_not_allowed"),
            (request("GET", "https://a.example/../a"), 400, "path_above_root"),
            (request("GET", "https://c.example/"), 421, "misdirected_request"),
            (request("GET", "https://a.example/").header("host", "b.example"), 400, "host_disagrees"),
            (
                request("GET", "https://a.example/").header("content_length", "5"),
                400,
                "framing_field_lookalike",
            ),
            (request("GET", "http://a.example/"), 400, "scheme_disagrees"),
            (request("GET", &format!("https://a.example/{}", "a".repeat(9_000))), 414, "target_too_long"),
            (
                (0..101).fold(request("GET", "https://a.example/"), |r, n| r.header(format!("x-{n}"), "y")),
                431,
                "too_many_fields",
            ),
        ];
        for (request, status, code) in cases {
            let shown = format!("{request:?}");
            let answer = client.exchange(request).await;
            assert_eq!((answer.status, answer.code().as_str()), (status, code), "{shown}");
        }
        let large = request("POST", "https://a.example/").header("content-length", "11").body(()).unwrap();
        let answer = client.try_exchange(large, b"hello world").await.unwrap();
        assert_eq!((answer.status, answer.code().as_str()), (413, "request_body_too_large"));
        assert_eq!(origin.connections(), 0, "{}", origin.text());
        let streamed = request("POST", "https://a.example/").body(()).unwrap();
        let answer = client.try_exchange(streamed, b"hello world").await.unwrap();
        assert_eq!((answer.status, answer.code().as_str()), (413, "request_body_too_large"));
        assert_eq!(client.exchange(bearer("/api")).await.status, 200, "one connection for all of it");
    });
}

#[test]
fn a_length_that_disagrees_with_the_body_reaches_no_whole_request() {
    run(async {
        let origin = Origin::ok().await;
        let (gateway, certificates) = gateway_with(&origin, "").await;
        for (length, body) in [("3", &b"hello"[..]), ("9", b"hello"), ("5", b"")] {
            let mut client = connect(&gateway, &certificates, "a.example").await;
            let head =
                request("POST", "https://a.example/").header("content-length", length).body(()).unwrap();
            let outcome = client.try_exchange(head, body).await;
            assert!(outcome.as_ref().map_or(true, |answer| answer.status == 400), "{outcome:?}");
        }
        let mut client = connect(&gateway, &certificates, "a.example").await;
        let head = request("POST", "https://a.example/").header("content-length", "5").body(()).unwrap();
        assert_eq!(client.try_exchange(head, b"hello").await.unwrap().status, 200);
        let text = origin.text().to_lowercase();
        assert_eq!(text.matches("hello").count(), text.matches("content-length: 5\r\n").count());
    });
}

#[test]
fn a_client_that_resets_a_stream_ends_the_services_connection() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            let head = visit.head().await?;
            if head.contains("/response") {
                visit.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello").await?;
            }
            visit.closed().await;
            Ok(())
        })
        .await;
        let (gateway, certificates) = gateway_with(&origin, "").await;
        let mut client = connect(&gateway, &certificates, "a.example").await;
        for (index, path) in ["/head", "/response", "/upload"].into_iter().enumerate() {
            let uri = format!("https://a.example{path}");
            let (response, mut stream) =
                client.send.send_request(request("POST", &uri).body(()).unwrap(), false).unwrap();
            origin.until(|text| text.contains(path)).await;
            let kept = if path == "/response" { Some(response.await.unwrap()) } else { None };
            stream.send_reset(h2::Reason::CANCEL);
            origin.ended(index + 1).await;
            assert_eq!(gateway.log(index + 1).await[index]["reason"], "client_aborted", "{path}");
            drop(kept);
        }
    });
}

#[test]
fn a_response_cut_short_resets_its_stream_alone() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            if visit.request().await?.line().contains("/cut") {
                visit.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello").await?;
                return Ok(());
            }
            visit.send(OK).await
        })
        .await;
        let (gateway, certificates) = gateway_with(&origin, "").await;
        let mut client = connect(&gateway, &certificates, "a.example").await;
        let cut = request("GET", "https://a.example/cut").body(()).unwrap();
        assert!(client.try_exchange(cut, b"").await.unwrap_err().is_reset());
        assert_eq!(client.exchange(request("GET", "https://a.example/")).await.status, 200);
        assert_eq!(gateway.log(2).await[0]["reason"], "upstream_aborted");
    });
}

#[test]
fn an_unread_body_may_still_be_sent_after_the_response() {
    run(async {
        let origin = Origin::ok().await;
        let (gateway, certificates) = gateway_with(&origin, "").await;
        let mut client = connect(&gateway, &certificates, "a.example").await;
        // Within the window of the stream, and beyond it.
        for (octets, fits) in [(0, true), (100_000, true), (400_000, false)] {
            let refused = request("POST", "https://a.example/a%00").body(()).unwrap();
            let (response, mut body) = client.send.send_request(refused, false).unwrap();
            assert_eq!(collect(response).await.unwrap().status, 400);
            body.send_data(vec![b'x'; octets].into(), fits).unwrap();
            assert_eq!(client.exchange(request("GET", "https://a.example/")).await.status, 200);
            let reset = std::future::poll_fn(|cx| match body.poll_reset(cx) {
                Poll::Pending if fits => Poll::Ready(None),
                reset => reset.map(|reason| Some(reason.unwrap())),
            });
            let expected = if fits { None } else { Some(h2::Reason::NO_ERROR) };
            assert_eq!(reset.await, expected, "{octets} octets");
        }
    });
}

#[test]
fn a_client_may_wait_to_be_asked_for_the_body() {
    run(async {
        let origin = Origin::ok().await;
        let (gateway, certificates) = gateway_with(&origin, "").await;
        let mut client = connect(&gateway, &certificates, "a.example").await;
        let head = request("POST", "https://a.example/").header("expect", "100-continue").body(()).unwrap();
        let (mut response, mut stream) = client.send.send_request(head, false).unwrap();
        let informational = std::future::poll_fn(|cx| response.poll_informational(cx)).await;
        assert_eq!(informational.unwrap().unwrap().status().as_u16(), 100);
        stream.send_data(Bytes::from_static(b"hello"), true).unwrap();
        assert_eq!(collect(response).await.unwrap().status, 200);
        assert!(origin.text().contains("hello"));
    });
}

#[test]
fn many_streams_share_a_connection_and_stopping_lets_them_finish() {
    run(async {
        let release = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
        let gate = std::sync::Arc::clone(&release);
        let origin = Origin::start(move |mut visit| {
            let gate = std::sync::Arc::clone(&gate);
            async move {
                visit.request().await?;
                gate.acquire().await.unwrap().forget();
                visit.send(OK).await
            }
        })
        .await;
        let (gateway, certificates) = gateway_with(&origin, "").await;
        let mut client = connect(&gateway, &certificates, "a.example").await;
        let mut answers = Vec::new();
        for _ in 0..20 {
            let head = request("GET", "https://a.example/").body(()).unwrap();
            answers.push(client.send.send_request(head, true).unwrap().0);
        }
        origin.until(|text| text.matches("GET / ").count() == 20).await;
        gateway.gateway.advance(Phase::Stopping);
        release.add_permits(20);
        for answer in answers {
            assert_eq!(collect(answer).await.unwrap().status, 200);
        }
        client.connection.await.unwrap().unwrap();
        gateway.gateway.idle().await;
    });
}

#[test]
fn an_idle_connection_is_closed_and_a_busy_one_is_not() {
    run(async {
        let origin = Origin::ok().await;
        let (gateway, certificates) = gateway_with(&origin, "timeouts.keep_alive_idle = '1s'").await;
        let mut client = connect(&gateway, &certificates, "a.example").await;
        assert_eq!(client.exchange(request("GET", "https://a.example/")).await.status, 200);
        client.connection.await.unwrap().unwrap();
        until("the connection is gone", || gateway.gateway.connections() == 0).await;
    });
}

#[test]
fn an_idle_connection_gives_way_to_another_and_one_in_use_does_not() {
    run(async {
        let release = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
        let released = std::sync::Arc::clone(&release);
        let origin = Origin::start(move |mut visit| {
            let released = std::sync::Arc::clone(&released);
            async move {
                loop {
                    if visit.request().await?.line().contains("/slow") {
                        released.acquire().await.unwrap().forget();
                    }
                    visit.send(OK).await?;
                }
            }
        })
        .await;
        let (gateway, certificates) = gateway_with(&origin, "limits.connections_max = 2").await;
        let (mut used, mut idle) = (
            connect(&gateway, &certificates, "a.example").await,
            connect(&gateway, &certificates, "a.example").await,
        );
        assert_eq!(idle.exchange(request("GET", "https://a.example/")).await.status, 200);
        let slow = used.exchange(request("GET", "https://a.example/slow"));
        let other = async {
            origin.until(|received| received.contains("/slow")).await;
            let mut third = connect(&gateway, &certificates, "a.example").await;
            assert_eq!(third.exchange(request("GET", "https://a.example/")).await.status, 200);
            let refused =
                idle.try_exchange(request("GET", "https://a.example/").body(()).unwrap(), b"").await;
            assert!(refused.is_err(), "it was told to go");
            release.add_permits(1);
        };
        let (slow, ()) = tokio::join!(slow, other);
        assert_eq!(slow.status, 200);
    });
}
