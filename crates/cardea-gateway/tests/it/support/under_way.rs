//! Responses and WebSockets that go on until they are ended, one connection each.

use bytes::Bytes;
use h2::{RecvStream, client::SendRequest};
use http::Request;
use tokio::sync::watch;

use super::{Client, Origin, client::Stream};

const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A piece of a stream: a frame of a WebSocket, a chunk of a response.
const FRAME: &[u8] = b"\x81\x04tick";
const CHUNK: &[u8] = b"4\r\ntick\r\n";

/// How a stream is carried to its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Http1,
    Http2,
    WebSocket,
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::Http1, Self::Http2, Self::WebSocket];

    pub(crate) const fn alpn(self) -> &'static str {
        match self {
            Self::Http2 => "h2",
            Self::Http1 | Self::WebSocket => "http/1.1",
        }
    }
}

/// A service that sends a piece of each of its streams when it is told to.
pub(crate) struct Ticking {
    pub(crate) origin: Origin,
    ticks: watch::Sender<u64>,
}

impl Ticking {
    pub(crate) async fn start() -> Self {
        let (ticks, ticked) = watch::channel(0);
        let origin = Origin::start(move |mut visit| {
            let mut ticked = ticked.clone();
            async move {
                let head = visit.head().await?;
                let is_websocket = head.contains("websocket");
                ticked.mark_unchanged();
                visit.send(if is_websocket { SWITCHING } else { CHUNKED }).await?;
                while ticked.changed().await.is_ok() {
                    visit.send(if is_websocket { FRAME } else { CHUNK }).await?;
                }
                Ok(())
            }
        })
        .await;
        Self { origin, ticks }
    }

    /// Asserts that a piece still gets through on each of `streams`.
    pub(crate) async fn all_go_on(&self, streams: &mut [UnderWay]) {
        self.ticks.send_modify(|ticks| *ticks += 1);
        for stream in streams {
            stream.tick().await;
        }
    }
}

/// A stream as its client sees it.
pub(crate) struct UnderWay {
    way: Way,
    what: String,
    kind: Kind,
}

enum Kind {
    /// The connection goes with the stream.
    Http2(RecvStream, SendRequest<Bytes>),
    Bytes(Client),
}

/// Begins a stream over a connection of its own.
pub(crate) async fn begin(
    way: Way,
    connection: impl Stream + 'static,
    url: (&str, &str),
    fields: &[(&str, &str)],
) -> UnderWay {
    let (host, path) = url;
    let what = format!("{way:?} of {path} with {fields:?}");
    if way == Way::Http2 {
        let (mut send, connection) = h2::client::handshake(connection).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::get(format!("https://{host}{path}"));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (response, _) = send.send_request(request.body(()).unwrap(), true).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.status(), 200, "{what}");
        return UnderWay { way, what, kind: Kind::Http2(response.into_body(), send) };
    }
    let mut client = Client::over(connection);
    let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let upgrade = if way == Way::WebSocket { UPGRADE } else { "" };
    client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{fields}{upgrade}\r\n")).await;
    let status = client.head().await.unwrap().status;
    assert_eq!(status, if way == Way::WebSocket { 101 } else { 200 }, "{what}");
    UnderWay { way, what, kind: Kind::Bytes(client) }
}

impl UnderWay {
    async fn tick(&mut self) {
        let (got, wanted) = match &mut self.kind {
            Kind::Http2(stream, _) => (stream.data().await.unwrap().unwrap().to_vec(), &b"tick"[..]),
            Kind::Bytes(client) => {
                let wanted = if self.way == Way::WebSocket { FRAME } else { CHUNK };
                (client.bytes(wanted.len()).await.expect(&self.what), wanted)
            }
        };
        assert_eq!(got, wanted, "{}", self.what);
    }

    /// Asserts that the gateway has ended it, in such a way that it can't be taken for whole: a WebSocket by a close frame
    /// that gives this reason.
    pub(crate) async fn expect_end(self, reason: &str) {
        let Self { way, what, kind } = self;
        match kind {
            Kind::Http2(mut stream, _send) => loop {
                match stream.data().await {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => break assert_eq!(error.reason(), Some(h2::Reason::CANCEL), "{what}"),
                    None => panic!("{what} has come to its end"),
                }
            },
            Kind::Bytes(mut client) if way == Way::WebSocket => {
                let rest = client.rest().await.expect(&what);
                let mut frame = vec![0x88, u8::try_from(2 + reason.len()).unwrap()];
                frame.extend(1008_u16.to_be_bytes());
                frame.extend(reason.as_bytes());
                assert!(rest.ends_with(&frame), "{what}: {}", rest.escape_ascii());
            }
            Kind::Bytes(mut client) => assert!(client.rest().await.is_err(), "{what} looks whole"),
        }
    }
}
