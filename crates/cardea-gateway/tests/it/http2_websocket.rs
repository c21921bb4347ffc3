//! WebSockets over HTTP/2 (RFC 8441), to services of HTTP/1.1.

use bytes::Bytes;
use cardea_gateway::gateway::Phase;
use futures_util::{SinkExt as _, StreamExt as _};
use h2::{RecvStream, SendStream, ext::Protocol};
use http::HeaderMap;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    net::TcpStream,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        protocol::{CloseFrame, Role},
    },
};

use crate::{
    http2::{self, Answer, Client, collect, request},
    streams::{LIFE, echo, manual, spec, token, window},
    support::{Origin, Spec, certificates::Certificates, origin::OK, run, until},
};

type Socket = WebSocketStream<DuplexStream>;

const REFUSED: &str = "websocket_refused";

/// An extended CONNECT.
fn open(uri: &str, protocol: &'static str) -> http::request::Builder {
    request("CONNECT", uri).extension(Protocol::from_static(protocol)).header("sec-websocket-version", "13")
}

fn websocket(path: &str) -> http::request::Builder {
    open(&format!("https://a.example{path}"), "websocket")
}

/// A client that knows what the gateway offers.
async fn connect(gateway: &crate::support::Harness, certificates: &Certificates) -> Client {
    let mut client = http2::connect(gateway, certificates, "a.example").await;
    std::future::poll_fn(|cx| client.send.poll_ready(cx)).await.unwrap();
    until_offered(&mut client).await;
    client
}

async fn until_offered(client: &mut Client) {
    // The settings come before the response.
    let _ = client.try_exchange(request("GET", "https://a.example/none").body(()).unwrap(), b"").await;
    assert!(client.send.is_extended_connect_protocol_enabled());
}

type Begun = (h2::client::ResponseFuture, SendStream<Bytes>);

async fn begin(client: &mut Client, request: http::request::Builder) -> Begun {
    std::future::poll_fn(|cx| client.send.poll_ready(cx)).await.unwrap();
    client.send.send_request(request.body(()).unwrap(), false).unwrap()
}

/// The answer to a CONNECT that is refused.
async fn refused(client: &mut Client, request: http::request::Builder) -> Answer {
    let (response, _upload) = begin(client, request).await;
    collect(response).await.unwrap()
}

/// A WebSocket, and the head of the response that has opened it.
async fn opened(client: &mut Client, request: http::request::Builder) -> (Socket, HeaderMap) {
    let (response, upload) = begin(client, request).await;
    let (head, download) = response.await.unwrap().into_parts();
    assert_eq!(head.status, 200);
    let (ours, theirs) = duplex(64 * 1024);
    let (from, to) = tokio::io::split(theirs);
    tokio::spawn(send(from, upload));
    tokio::spawn(receive(download, to));
    (WebSocketStream::from_raw_socket(ours, Role::Client, None).await, head.headers)
}

async fn send(mut from: impl AsyncReadExt + Unpin, mut to: SendStream<Bytes>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        to.reserve_capacity(count);
        while to.capacity() < count {
            match std::future::poll_fn(|cx| to.poll_capacity(cx)).await {
                Some(Ok(_)) => {}
                _ => return,
            }
        }
        if to.send_data(Bytes::copy_from_slice(&buffer[..count]), false).is_err() {
            return;
        }
    }
    let _ = to.send_data(Bytes::new(), true);
}

async fn receive(mut from: RecvStream, mut to: impl AsyncWriteExt + Unpin) {
    while let Some(Ok(data)) = from.data().await {
        to.write_all(&data).await.unwrap();
        from.flow_control().release_capacity(data.len()).unwrap();
    }
    let _ = to.shutdown().await;
}

async fn goes_on(socket: &mut Socket) {
    socket.send(Message::text("still there")).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("still there"));
}

async fn closed(mut socket: Socket) -> (u16, String) {
    let Some(Ok(Message::Close(Some(CloseFrame { code, reason })))) = socket.next().await else {
        panic!("no close frame")
    };
    (u16::from(code), reason.to_string())
}

#[test]
fn a_websocket_is_carried_on_a_stream_beside_others() {
    run(async {
        let (origin, mut closes) = echo().await;
        let certificates = Certificates::new();
        let answering = Origin::answering(OK).await;
        let other = format!(
            "[[service]]\nname = 'other'\n[[service.endpoint]]\naddress = '{}'\n[[route]]\nname = 'none'\n\
             path = '/none'\nauth = 'public'\nservice = 'other'",
            answering.address
        );
        let gateway = Spec::to(&origin).with(certificates.listener()).with(other).start().await;
        let mut client = connect(&gateway, &certificates).await;
        let (mut first, headers) = opened(&mut client, websocket("/chat")).await;
        assert!(headers.contains_key("date") && headers.contains_key("x-request-id"), "{headers:?}");
        for absent in ["sec-websocket-accept", "upgrade", "connection"] {
            assert!(!headers.contains_key(absent), "{headers:?}");
        }
        let (mut second, _) = opened(&mut client, websocket("/chat")).await;
        goes_on(&mut first).await;
        goes_on(&mut second).await;
        // More than the windows of both ends, one after the other.
        let large = Message::binary(vec![7; 1 << 20]);
        let (mut write, mut read) = first.split();
        let (sent, received) = tokio::join!(write.send(large.clone()), read.next());
        sent.unwrap();
        assert!(received.unwrap().unwrap() == large);
        let mut first = write.reunite(read).unwrap();
        assert_eq!(client.exchange(request("GET", "https://a.example/none")).await.status, 200);
        first.close(None).await.unwrap();
        assert!(matches!(first.next().await, Some(Ok(Message::Close(_)))));
        drop(first);
        closes.wait_for(|codes| codes.len() == 1).await.unwrap();
        goes_on(&mut second).await;
        let lines = gateway.log(3).await;
        let line = lines.iter().find(|line| line["url.path"] == "/chat").unwrap();
        assert_eq!(
            (&line["http.request.method"], &line["http.response.status_code"], &line["network.protocol"]),
            (&json!("GET"), &json!(200), &json!("HTTP/2"))
        );
        assert_eq!(line["complete"], true, "{line}");
    });
}

#[test]
fn the_service_gets_an_upgrade_with_a_key_of_the_gateway() {
    run(async {
        const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
        const WRONG: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
        let origin = Origin::answering(WRONG).await;
        let (gateway, certificates) = http2::gateway_with(&origin, "").await;
        let mut client = connect(&gateway, &certificates).await;
        let request = websocket("/chat?a=b")
            .header("sec-websocket-key", KEY)
            .header("sec-websocket-protocol", "mqtt")
            .header("origin", "https://a.example");
        // What it answers is the answer to the key of the client.
        let answer = refused(&mut client, request).await;
        assert_eq!((answer.status, &answer.code()[..]), (502, "upstream_malformed"));
        let text = origin.text();
        let head = text.split("\r\n\r\n").find(|head| head.contains("/chat")).unwrap().to_lowercase();
        assert!(head.contains("get /chat?a=b http/1.1\r\n"), "{head}");
        for line in [
            "host: a.example",
            "connection: upgrade",
            "upgrade: websocket",
            "sec-websocket-version: 13",
            "sec-websocket-protocol: mqtt",
            "origin: https://a.example",
        ] {
            assert_eq!(head.lines().filter(|other| *other == line).count(), 1, "{line} in {head}");
        }
        let keys: Vec<_> = head.lines().filter_map(|line| line.strip_prefix("sec-websocket-key: ")).collect();
        assert!(keys.len() == 1 && keys[0].len() == 24 && keys[0] != KEY.to_lowercase(), "{head}");
        assert!(!head.contains("transfer-encoding") && !head.contains("content-length"), "{head}");
    });
}

#[test]
fn the_checks_of_other_requests_apply_and_no_refusal_opens_a_websocket() {
    run(async {
        let origin = Origin::answering(OK).await;
        let toml = "[[route]]\nname = 'static'\npath_prefix = '/static'\nauth = 'public'\n\
                    respond = { status = 204 }\n\
                    [[route]]\nname = 'reads'\npath_prefix = '/reads'\nmethods = ['GET']\n\
                    auth = { issuer = 'main', audiences = ['api'] }\nservice = 'main'\n\
                    [[route]]\nname = 'no-sockets'\npath_prefix = '/plain'\nauth = 'public'\nservice = 'main'\n\
                    policy = [{ deny = \"has(request.headers.upgrade)\" }]";
        let (gateway, certificates) = http2::gateway_with(&origin, toml).await;
        let mut client = connect(&gateway, &certificates).await;
        let grpc = |path: &str| websocket(path).header("content-type", "application/grpc");
        for (request, expected) in [
            (websocket("/api"), (401, "credentials_missing")),
            (grpc("/api"), (401, "credentials_missing")),
            (websocket("/api").header("authorization", "Bearer x"), (401, "token_malformed")),
            (websocket("/reads"), (401, "credentials_missing")),
            (websocket("/plain"), (403, "policy_denied")),
            (websocket("/a%2fb"), (400, "path_encoding_not_allowed")),
            (websocket("/chat").header("content-length", "5"), (400, "body_not_allowed")),
            (websocket("/chat").header("sec-websocket-version", "8"), (426, "websocket_version_unsupported")),
            (open("https://c.example/chat", "websocket"), (421, "misdirected_request")),
            (open("https://a.example/chat", "connect-udp"), (501, "connect_protocol_unsupported")),
            // A status of success, which is not for a WebSocket.
            (websocket("/static"), (502, REFUSED)),
            (grpc("/static"), (502, REFUSED)),
            (websocket("/chat"), (502, REFUSED)),
        ] {
            let answer = refused(&mut client, request).await;
            assert_eq!((answer.status, &answer.code()[..]), expected);
        }
        // Controls.
        assert_eq!(client.exchange(request("GET", "https://a.example/static")).await.status, 204);
        assert_eq!(client.exchange(request("GET", "https://a.example/plain")).await.status, 200);
    });
}

#[test]
fn a_websocket_ends_with_its_right_and_with_the_gateway() {
    run(async {
        let (origin, mut closes) = echo().await;
        let (clock, certificates) = (manual(), Certificates::new());
        let gateway = spec(&origin, &clock)
            .with(certificates.listener())
            .with("[[route]]\nname = 'none'\npath = '/none'\nauth = 'public'\nrespond = { status = 204 }");
        let gateway = gateway.start().await;
        let mut client = connect(&gateway, &certificates).await;
        let bearer = |life| format!("Bearer {}", token(&gateway, "alice", life));
        let (mut brief, _) =
            opened(&mut client, websocket("/api").header("authorization", bearer(LIFE))).await;
        let (mut control, _) =
            opened(&mut client, websocket("/api").header("authorization", bearer(10 * LIFE))).await;
        goes_on(&mut brief).await;
        clock.advance(window());
        assert_eq!(closed(brief).await, (1008, "token expired".into()));
        closes.wait_for(|codes| codes == &[1008]).await.unwrap();
        goes_on(&mut control).await;
        let line = gateway.log(2).await.remove(1);
        assert_eq!((&line["reason"], &line["complete"]), (&json!("token_expired"), &json!(false)));
        gateway.gateway.advance(Phase::Stopping);
        goes_on(&mut control).await;
        gateway.gateway.advance(Phase::Ending);
        assert_eq!(closed(control).await, (1001, "going away".into()));
        until("no stream is left", || gateway.gateway.streams() == 0).await;
    });
}

#[test]
fn a_stream_that_is_reset_ends_the_connection_to_the_service() {
    run(async {
        let (ended, mut has_ended) = tokio::sync::watch::channel(0);
        let origin = Origin::start(move |visit| {
            let ended = ended.clone();
            async move {
                let mut socket = tokio_tungstenite::accept_async(visit.into_stream()).await.unwrap();
                while let Some(Ok(_)) = socket.next().await {}
                ended.send_modify(|count| *count += 1);
                Ok(())
            }
        })
        .await;
        let (gateway, certificates) = http2::gateway_with(
            &origin,
            "[[route]]\nname = 'none'\npath = '/none'\nauth = 'public'\nrespond = { status = 204 }",
        )
        .await;
        let mut client = connect(&gateway, &certificates).await;
        for count in 1..3 {
            let (response, mut upload) = begin(&mut client, websocket("/chat")).await;
            assert_eq!(response.await.unwrap().status(), 200);
            if count == 1 {
                upload.send_reset(h2::Reason::CANCEL);
            } else {
                upload.send_data(Bytes::new(), true).unwrap();
            }
            has_ended.wait_for(|ended| *ended == count).await.unwrap();
        }
    });
}

#[test]
fn a_websocket_is_carried_without_tls_too() {
    run(async {
        let (origin, _closes) = echo().await;
        let gateway = Spec::to(&origin).with("[[listener]]\nname = 'test'\nh2c = true").start().await;
        let tcp = TcpStream::connect(gateway.address).await.unwrap();
        let (send, connection) = h2::client::handshake(tcp).await.unwrap();
        let mut client = Client { send, connection: tokio::spawn(connection) };
        until("extended CONNECT is offered", || client.send.is_extended_connect_protocol_enabled()).await;
        let (mut socket, _) = opened(&mut client, open("http://a.example/chat", "websocket")).await;
        goes_on(&mut socket).await;
    });
}
