//! What is under way when the right to it ends: WebSockets, responses, calls of gRPC, requests.

use std::time::Duration;

use bytes::Bytes;
use cardea_clock::{LAG_MAX, ManualClock, Wall};
use cardea_gateway::{gateway::Phase, workers::Workers};
use cardea_identity::SKEW_DEFAULT;
use futures_util::{SinkExt as _, StreamExt as _};
use h2::RecvStream;
use http::Request;
use serde_json::json;
use tokio::{net::TcpStream, sync::watch};
use tokio_tungstenite::{
    WebSocketStream, accept_async, client_async,
    tungstenite::{Message, client::IntoClientRequest as _, protocol::CloseFrame},
};

use crate::client_certificates::Bench;
use crate::support::{Client, Harness, Origin, Spec, certificates::Certificates, get, run, until};

/// In 2030.
const BEGUN: i64 = 1_900_000_000;

/// How long the tokens of these tests live, in seconds; those of a control much longer.
pub(crate) const LIFE: i64 = 300;

/// Old enough for what a reload takes away.
const SETTLED: Duration = Duration::from_secs(2);

type Socket = WebSocketStream<TcpStream>;

pub(crate) fn manual() -> ManualClock {
    ManualClock::new(Wall::from_unix_seconds(BEGUN))
}

pub(crate) fn spec(origin: &Origin, clock: &ManualClock) -> Spec {
    Spec { clock: Some(clock.clock()), ..Spec::to(origin) }
}

pub(crate) fn token(gateway: &Harness, subject: &str, life: i64) -> String {
    gateway.issuer.token(BEGUN, &json!({"sub": subject, "exp": BEGUN + life}))
}

/// From the beginning to the end of a token's window.
pub(crate) fn window() -> Duration {
    Duration::from_secs(LIFE.unsigned_abs()) + SKEW_DEFAULT
}

fn authorized(request: &str, token: &str) -> String {
    request.replacen("\r\n", &format!("\r\nAuthorization: Bearer {token}\r\n"), 1)
}

/// A service that sends back what it gets, and tells how each of its WebSockets was closed.
pub(crate) async fn echo() -> (Origin, watch::Receiver<Vec<u16>>) {
    let (closed, closes) = watch::channel(Vec::new());
    let origin = Origin::start(move |visit| {
        let closed = closed.clone();
        async move {
            let mut socket = accept_async(visit.into_stream()).await.unwrap();
            while let Some(Ok(message)) = socket.next().await {
                match message {
                    Message::Close(frame) => {
                        let code = frame.map_or(0, |frame| u16::from(frame.code));
                        closed.send_modify(|codes| codes.push(code));
                    }
                    message => drop(socket.send(message).await),
                }
            }
            Ok(())
        }
    })
    .await;
    (origin, closes)
}

async fn connect(gateway: &Harness, path: &str, token: &str) -> Socket {
    let mut request = format!("ws://a.example{path}").into_client_request().unwrap();
    if !token.is_empty() {
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (socket, response) = client_async(request, stream).await.unwrap();
    assert_eq!(response.status(), 101);
    socket
}

async fn goes_on(socket: &mut Socket) {
    socket.send(Message::text("still there")).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("still there"));
}

/// How it was closed: by a close frame and then by the end of the connection.
async fn closed(mut socket: Socket) -> (u16, String) {
    let Some(Ok(Message::Close(Some(CloseFrame { code, reason })))) = socket.next().await else {
        panic!("no close frame")
    };
    assert!(socket.next().await.is_none(), "nothing follows it");
    (u16::from(code), reason.to_string())
}

#[test]
fn a_websocket_is_closed_with_1008_when_its_token_expires() {
    run(async {
        let (origin, mut closes) = echo().await;
        let clock = manual();
        let gateway = spec(&origin, &clock).start().await;
        let mut brief = connect(&gateway, "/api", &token(&gateway, "alice", LIFE)).await;
        let mut control = connect(&gateway, "/api", &token(&gateway, "alice", 10 * LIFE)).await;
        let mut public = connect(&gateway, "/chat", "").await;
        clock.advance(window().checked_sub(Duration::from_nanos(1)).unwrap());
        goes_on(&mut brief).await;
        clock.advance(Duration::from_nanos(1));
        assert_eq!(closed(brief).await, (1008, "token expired".into()));
        closes.wait_for(|codes| codes == &[1008]).await.unwrap();
        goes_on(&mut control).await;
        goes_on(&mut public).await;
        let line = gateway.log(1).await.remove(0);
        assert_eq!((&line["reason"], &line["complete"]), (&json!("token_expired"), &json!(false)));
        assert!(gateway.has_metric("cardea_streams_ended_total{reason=\"token_expired\"} 1"));
        assert_eq!(gateway.gateway.streams(), 2);
    });
}

#[test]
fn steps_of_the_wall_clock_make_no_stream_live_longer() {
    run(async {
        let (origin, _) = echo().await;
        let clock = manual();
        let gateway = spec(&origin, &clock).start().await;
        // Back: what has passed has passed.
        let mut socket = connect(&gateway, "/api", &token(&gateway, "alice", LIFE)).await;
        clock.step_wall_back(Duration::from_secs(86_400));
        goes_on(&mut socket).await;
        clock.advance(window());
        assert_eq!(closed(socket).await.0, 1008);
        // Forth: the calendar says that it is over.
        clock.step_wall_forward(Duration::from_secs(86_400) - window());
        let mut socket = connect(&gateway, "/api", &token(&gateway, "alice", LIFE)).await;
        goes_on(&mut socket).await;
        clock.step_wall_forward(window());
        assert_eq!(closed(socket).await.0, 1008);
    });
}

#[test]
fn a_refresher_that_stops_extends_no_stream_by_more_than_the_bound() {
    run(async {
        let (origin, _) = echo().await;
        let clock = manual();
        let gateway = spec(&origin, &clock).start().await;
        let mut brief = connect(&gateway, "/api", &token(&gateway, "alice", LIFE)).await;
        let mut control = connect(&gateway, "/api", &token(&gateway, "alice", 10 * LIFE)).await;
        clock.advance(window().checked_sub(Duration::from_nanos(1)).unwrap());
        // Nobody has looked yet: this is what the bound is for.
        clock.advance_unpublished(LAG_MAX);
        goes_on(&mut brief).await;
        Workers::here().watch_clock(&gateway.gateway.clock);
        assert_eq!(closed(brief).await, (1008, "token expired".into()));
        assert_eq!(gateway.gateway.clock.late_refreshes(), 1);
        goes_on(&mut control).await;
    });
}

#[test]
fn a_stream_continues_for_the_configured_grace() {
    run(async {
        let (origin, _) = echo().await;
        let clock = manual();
        let spec = spec(&origin, &clock).route("api", "timeouts.token_expiry_grace = '30s'");
        let gateway = spec.start().await;
        let mut graced = connect(&gateway, "/api", &token(&gateway, "alice", LIFE)).await;
        let other = gateway.issuer.token(BEGUN, &json!({"exp": BEGUN + LIFE, "aud": "api2"}));
        let control = connect(&gateway, "/other", &other).await;
        clock.advance(window());
        assert_eq!(closed(control).await.0, 1008);
        goes_on(&mut graced).await;
        clock.advance(Duration::from_secs(30));
        assert_eq!(closed(graced).await, (1008, "token expired".into()));
    });
}

#[test]
fn revocation_ends_only_the_streams_of_its_caller() {
    run(async {
        let (origin, _) = echo().await;
        let clock = manual();
        let gateway = spec(&origin, &clock).start().await;
        let authenticator = std::sync::Arc::clone(&gateway.gateway.model().authenticator);
        let revocations = authenticator.revocations();
        let disable = || revocations.disable("main", "mallory");
        let forget_after = Wall::from_unix_seconds(BEGUN + 10 * LIFE);
        let revoke = || revocations.revoke("main", "eve", Wall::from_unix_seconds(BEGUN), forget_after);
        let mut control = connect(&gateway, "/api", &token(&gateway, "alice", LIFE)).await;
        for (subject, act) in [("mallory", &disable as &dyn Fn()), ("eve", &revoke)] {
            let mut socket = connect(&gateway, "/api", &token(&gateway, subject, LIFE)).await;
            goes_on(&mut socket).await;
            act();
            assert_eq!(closed(socket).await, (1008, "token revoked".into()), "{subject}");
            goes_on(&mut control).await;
        }
        for line in gateway.log(2).await {
            assert_eq!(line["reason"], "token_revoked");
        }
    });
}

type Reload = fn(Spec, &Bench) -> Spec;

#[test]
fn only_a_reload_that_revokes_access_ends_streams() {
    let cases: [(Reload, &str, &str); 9] = [
        (
            |spec, _| {
                let next = "[[issuer]]\nname = 'next'\nissuer = 'https://next.example'\naudiences = ['api']\n\
                    jwks_url = 'https://next.example/keys'";
                spec.without("issuer", "main").with(next).route("end", "auth.issuer = 'next'")
            },
            "token no longer accepted",
            "issuer_changed",
        ),
        (
            |spec, _| {
                let spec = spec.with("[[issuer]]\nname = 'main'\naudiences = ['api2']");
                spec.route("end", "auth.audiences = ['api2']")
            },
            "token no longer accepted",
            "issuer_changed",
        ),
        (|spec, _| spec.without("route", "end"), "no longer available", "route_removed"),
        (|spec, _| spec.route("end", "auth.scopes = ['admin']"), "no longer allowed", "demand_unmet"),
        (
            // The route is there, but a more specific one has come that asks for more.
            |spec, _| {
                let auth = "auth = { issuer = 'main', scopes = ['admin'], audiences = ['api'] }";
                spec.route("deeper", format!("path_prefix = '/end/here'\n{auth}"))
            },
            "no longer allowed",
            "demand_unmet",
        ),
        (
            |spec, _| spec.route("end", "[[policy]]\ndeny = \"token.sub == 'alice'\""),
            "no longer allowed",
            "demand_unmet",
        ),
        (
            |spec, bench| {
                let asking = bench.listener_of("asking", &[bench.certificate("ask.example", "request")]);
                spec.with(asking).route("end", "client_certificate = 'required'")
            },
            "no longer allowed",
            "demand_unmet",
        ),
        (|spec, _| spec.route("end", "methods = ['POST']"), "no longer available", "route_removed"),
        (
            // Of the same name, elsewhere.
            |spec, _| spec.route("end", "path_prefix = '/elsewhere'"),
            "no longer available",
            "route_removed",
        ),
    ];
    for (index, (reload, text, code)) in cases.into_iter().enumerate() {
        run(async move {
            let (origin, _) = echo().await;
            let clock = manual();
            let spec = || {
                let end = "path_prefix = '/end'\n\
                    auth = { issuer = 'main', scopes = ['read'], audiences = ['api'] }";
                let routes = ["public", "api", "admin", "other"];
                let spec = spec(&origin, &clock).route("end", end).route("stay", "path_prefix = '/stay'");
                routes.into_iter().fold(spec, |spec, name| spec.without("route", name))
            };
            let gateway = spec().start().await;
            let mut socket = connect(&gateway, "/end/here", &token(&gateway, "alice", LIFE)).await;
            let mut control = connect(&gateway, "/stay", "").await;
            clock.advance(SETTLED);
            // What changes nothing for the caller ends nothing.
            gateway.reload(spec());
            goes_on(&mut socket).await;
            // Nor is a request cut that has just begun.
            let mut young = connect(&gateway, "/end/here", &token(&gateway, "alice", LIFE)).await;
            gateway.reload(reload(spec(), &Bench::new()));
            assert_eq!(closed(socket).await, (1008, text.to_owned()), "{index}");
            goes_on(&mut control).await;
            goes_on(&mut young).await;
            assert_eq!(gateway.log(1).await[0]["reason"], code, "{index}");
            clock.advance(SETTLED);
            assert_eq!(closed(young).await, (1008, text.to_owned()), "{index}");
            goes_on(&mut control).await;
        });
    }
}

const UPGRADE: &str = "GET /api HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
const CLOSED: &[u8] = b"\x88\x0f\x03\xf0token expired";

/// A tunnel whose service has sent the head of a frame of five octets, and two of them.
async fn torn(more: watch::Receiver<bool>, clock: &ManualClock) -> (Origin, Harness, Client) {
    let origin = Origin::start(move |mut visit| {
        let mut more = more.clone();
        async move {
            visit.head().await?;
            visit.send(SWITCHING).await?;
            visit.send(b"\x82\x05he").await?;
            if more.wait_for(|more| *more).await.is_ok() {
                visit.send(b"llo\x82\x01x").await?;
            }
            visit.closed().await;
            Ok(())
        }
    })
    .await;
    let gateway = spec(&origin, clock).start().await;
    let mut client = gateway.client().await;
    client.send(authorized(UPGRADE, &token(&gateway, "alice", LIFE))).await;
    assert_eq!(client.head().await.unwrap().status, 101);
    assert_eq!(client.bytes(4).await.unwrap(), b"\x82\x05he");
    (origin, gateway, client)
}

#[test]
fn a_close_frame_waits_for_the_end_of_the_frame_that_was_begun() {
    run(async {
        let clock = manual();
        let (go, more) = watch::channel(false);
        let (origin, gateway, mut client) = torn(more, &clock).await;
        clock.advance(window());
        until("it is to end", || {
            gateway.has_metric("cardea_streams_ended_total{reason=\"token_expired\"} 1")
        })
        .await;
        go.send(true).unwrap();
        // Nothing of the frame behind it.
        assert_eq!(client.rest().await.unwrap(), [b"llo", CLOSED].concat());
        origin.ended(1).await;
        let text = origin.received().concat();
        assert_eq!(text[text.len() - CLOSED.len() - 4..][..2], [0x88, 0x8f], "masked, to the service");
        assert_eq!(gateway.log(1).await[0]["http.response.body.size"], 7);
    });
}

#[test]
fn an_unfinished_frame_ends_in_a_reset() {
    run(async {
        let clock = manual();
        let (go, more) = watch::channel(false);
        let (origin, gateway, mut client) = torn(more, &clock).await;
        clock.advance(window());
        until("the wait is over", || {
            clock.advance(Duration::from_millis(10));
            gateway.gateway.connections() == 0
        })
        .await;
        assert!(client.rest().await.is_err(), "a reset");
        drop(go);
        origin.ended(1).await;
        assert_eq!(gateway.log(1).await[0]["reason"], "token_expired");
    });
}

#[test]
fn a_response_under_way_is_cut_when_its_token_expires_and_never_looks_whole() {
    run(async {
        for beginning in [
            "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            "HTTP/1.1 200 OK\r\n\r\nhello",
        ] {
            let (go, more) = watch::channel(false);
            let origin = Origin::start(move |mut visit| {
                let mut more = more.clone();
                async move {
                    visit.head().await?;
                    visit.send(beginning).await?;
                    let _ = more.wait_for(|more| *more).await;
                    let chunked = beginning.contains("chunked");
                    visit.send(if chunked { "5\r\nworld\r\n0\r\n\r\n" } else { "world" }).await
                }
            })
            .await;
            let clock = manual();
            let gateway = spec(&origin, &clock).start().await;
            let mut clients = Vec::new();
            for life in [LIFE, 10 * LIFE] {
                let mut client = gateway.client().await;
                client.send(authorized(&get("/api"), &token(&gateway, "alice", life))).await;
                clients.push(client);
            }
            until("both are under way", || gateway.gateway.streams() == 2).await;
            clock.advance(window());
            let mut control = clients.pop().unwrap();
            let mut brief = clients.pop().unwrap();
            assert!(brief.rest().await.is_err(), "{beginning:?}");
            let line = gateway.log(1).await.remove(0);
            assert_eq!((&line["reason"], &line["complete"]), (&json!("token_expired"), &json!(false)));
            go.send(true).unwrap();
            assert_eq!(control.response().await.text(), "helloworld", "{beginning:?}");
        }
    });
}

#[test]
fn a_request_under_way_is_refused_when_its_token_expires() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            visit.request().await?;
            visit.send(crate::support::origin::OK).await?;
            visit.closed().await;
            Ok(())
        })
        .await;
        let clock = manual();
        let gateway = spec(&origin, &clock).start().await;
        let head = "POST /api HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\nhello";
        let mut brief = gateway.client().await;
        brief.send(authorized(head, &token(&gateway, "alice", LIFE))).await;
        let mut control = gateway.client().await;
        control.send(authorized(head, &token(&gateway, "alice", 10 * LIFE))).await;
        until("both are under way", || gateway.gateway.streams() == 2).await;
        clock.advance(window());
        let response = brief.response().await;
        assert_eq!((response.status, response.code().as_str()), (401, "token_expired"));
        assert!(response.closes() && response.header("www-authenticate").unwrap().contains("invalid_token"));
        assert_eq!(control.exchange("world").await.status, 200);
    });
}

/// Begins a request whose response is up to the service.
async fn ask(client: &mut h2::client::SendRequest<Bytes>, token: &str) -> h2::client::ResponseFuture {
    let request = Request::get("https://a.example/api").header("authorization", format!("Bearer {token}"));
    std::future::poll_fn(|cx| client.poll_ready(cx)).await.unwrap();
    client.send_request(request.body(()).unwrap(), true).unwrap().0
}

/// Its service takes its time: a response that comes after the right has ended is nobody's.
#[test]
fn a_request_that_waits_for_its_response_is_refused_when_its_token_expires() {
    run(async {
        let (go, more) = watch::channel(false);
        let origin = Origin::start(move |mut visit| {
            let mut more = more.clone();
            async move {
                visit.request().await?;
                let _ = more.wait_for(|more| *more).await;
                visit.send(crate::support::origin::OK).await
            }
        })
        .await;
        let (clock, certificates) = (manual(), Certificates::new());
        let patient = "[timeouts]\nresponse_head = '1h'\nrequest = '1h'";
        let plain = spec(&origin, &clock).with(patient).start().await;
        let secure = spec(&origin, &clock).with(certificates.listener()).with(patient).start().await;
        let (brief, long) = (token(&plain, "alice", LIFE), token(&plain, "alice", 10 * LIFE));
        let mut waiting = plain.client().await;
        waiting.send(authorized(&get("/api"), &brief)).await;
        let mut control = plain.client().await;
        control.send(authorized(&get("/api"), &long)).await;
        let mut client = h2(&secure, &certificates).await;
        let waiting_h2 = ask(&mut client, &token(&secure, "alice", LIFE)).await;
        let control_h2 = ask(&mut client, &token(&secure, "alice", 10 * LIFE)).await;
        origin.until(|received| received.matches("GET /api").count() == 4).await;
        clock.advance(window());
        let response = waiting.response().await;
        assert_eq!((response.status, response.code().as_str()), (401, "token_expired"));
        assert_eq!(waiting_h2.await.unwrap().status(), 401);
        go.send(true).unwrap();
        assert_eq!(control.response().await.status, 200);
        assert_eq!(control_h2.await.unwrap().status(), 200);
        for gateway in [&plain, &secure] {
            assert_eq!(gateway.log(2).await[0]["reason"], "token_expired");
        }
    });
}

/// A service whose responses begin, and end with trailers once it is told.
async fn calls(more: watch::Receiver<bool>) -> Origin {
    Origin::start(move |mut visit| {
        let mut more = more.clone();
        async move {
            visit.head().await?;
            let head =
                "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\n\r\n";
            visit.send(format!("{head}5\r\nhello\r\n")).await?;
            let _ = more.wait_for(|more| *more).await;
            visit.send("5\r\nworld\r\n0\r\ngrpc-status: 0\r\n\r\n").await
        }
    })
    .await
}

/// Begins a call: its response has begun.
async fn call(client: &mut h2::client::SendRequest<Bytes>, token: &str, content_type: &str) -> RecvStream {
    let request = Request::post("https://a.example/api")
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", content_type)
        .header("te", "trailers")
        .body(())
        .unwrap();
    std::future::poll_fn(|cx| client.poll_ready(cx)).await.unwrap();
    let (response, mut upload) = client.send_request(request, false).unwrap();
    upload.send_data(Bytes::from_static(b"hi"), true).unwrap();
    let mut stream = response.await.unwrap().into_body();
    assert_eq!(stream.data().await.unwrap().unwrap(), "hello");
    stream
}

/// What came to the end, and `grpc-status` with `grpc-message`.
async fn outcome(mut stream: RecvStream) -> Result<(Vec<u8>, String), h2::Reason> {
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        body.extend_from_slice(&data.map_err(|error| error.reason().unwrap())?);
    }
    let trailers = stream.trailers().await.map_err(|error| error.reason().unwrap())?.unwrap_or_default();
    let text = |name| trailers.get(name).map_or("", |value| value.to_str().unwrap());
    Ok((body, format!("{} {}", text("grpc-status"), text("grpc-message")).trim().to_owned()))
}

async fn h2(gateway: &Harness, certificates: &Certificates) -> h2::client::SendRequest<Bytes> {
    let tcp = TcpStream::connect(gateway.address).await.unwrap();
    let tls = certificates.connect(tcp, "a.example", &["h2"]).await;
    let (send, connection) = h2::client::handshake(tls).await.unwrap();
    tokio::spawn(connection);
    send
}

#[test]
fn a_call_of_grpc_ends_with_unauthenticated_and_another_stream_with_a_reset() {
    run(async {
        let (go, more) = watch::channel(false);
        let origin = calls(more).await;
        let (clock, certificates) = (manual(), Certificates::new());
        let spec = spec(&origin, &clock).with(certificates.listener());
        let gateway = spec.start().await;
        let mut client = h2(&gateway, &certificates).await;
        let brief = token(&gateway, "alice", LIFE);
        let brief_call = call(&mut client, &brief, "application/grpc+proto").await;
        let download = call(&mut client, &brief, "application/json").await;
        let control = call(&mut client, &token(&gateway, "alice", 10 * LIFE), "application/grpc").await;
        clock.advance(window());
        assert_eq!(outcome(brief_call).await, Ok((vec![], "16 token expired".into())));
        assert_eq!(outcome(download).await, Err(h2::Reason::CANCEL));
        for line in gateway.log(2).await {
            assert_eq!((&line["reason"], &line["complete"]), (&json!("token_expired"), &json!(false)));
        }
        go.send(true).unwrap();
        assert_eq!(outcome(control).await, Ok((b"world".to_vec(), "0".into())));
    });
}

#[test]
fn streams_end_at_the_drain_deadline_in_the_form_of_their_protocol() {
    run(async {
        let (sockets, _) = echo().await;
        let (_go, more) = watch::channel(false);
        let origin = calls(more).await;
        let certificates = Certificates::new();
        let plain = Spec::to(&sockets).start().await;
        let secure = Spec::to(&origin).with(certificates.listener()).start().await;
        let mut socket = connect(&plain, "/chat", "").await;
        let mut client = h2(&secure, &certificates).await;
        let stream = call(&mut client, &secure.token(), "application/grpc").await;
        for gateway in [&plain, &secure] {
            gateway.gateway.advance(Phase::Stopping);
        }
        goes_on(&mut socket).await;
        for gateway in [&plain, &secure] {
            gateway.gateway.advance(Phase::Ending);
        }
        assert_eq!(closed(socket).await, (1001, "going away".into()));
        assert_eq!(outcome(stream).await, Ok((vec![], "14 going away".into())));
        for gateway in [&plain, &secure] {
            assert_eq!(gateway.log(1).await[0]["reason"], "drain_deadline");
            gateway.gateway.idle().await;
            assert_eq!(gateway.gateway.streams(), 0);
        }
    });
}

#[test]
fn an_exchange_whose_task_is_dropped_has_its_line_in_the_log() {
    run(async {
        let origin = Origin::silent().await;
        let gateway = Spec::to(&origin).start_with_workers(1).await;
        let mut client = gateway.client().await;
        client.send(get("/waits")).await;
        origin.until(|text| text.contains("/waits")).await;
        gateway.stop_workers();
        let line = gateway.log(1).await.remove(0);
        assert_eq!((&line["reason"], &line["complete"]), (&json!("drain_deadline"), &json!(false)));
        assert_eq!(line["url.path"], "/waits");
    });
}
