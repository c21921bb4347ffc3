//! Response heads of HTTP/2, which no window holds back: they wait for a client that does not read, and for no other.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use cardea_gateway::gateway::Phase;
use futures_util::task::AtomicWaker;
use h2::client::{Connection, ResponseFuture, SendRequest};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpSocket,
    task::JoinHandle,
};

use crate::{
    http2::{collect, connect, gateway_with, request},
    support::{Harness, Origin, certificates::Certificates, origin::OK, run, until},
};

/// Streams of a connection at a time.
const STREAMS: usize = 100;

/// What sockets take may be this many large responses more.
const LIMITS: &str = "limits.http2_streams_max = 400";

/// The fields of a head of 57 KB.
fn large() -> String {
    let value = "v".repeat(1_900);
    (0..30).map(|number| format!("x-{number}: {value}\r\n")).collect()
}

/// Answers with large heads; at `/hints` with informational ones first, at `/trailers` with trailers behind, and at `/endless`
/// with a body that does not end. `sent` counts the responses.
async fn origin() -> (Origin, Arc<AtomicUsize>) {
    let sent = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&sent);
    let origin = Origin::start(move |mut visit| {
        let count = Arc::clone(&count);
        async move {
            loop {
                let head = visit.head().await?;
                let large = large();
                if head.contains("/endless") {
                    visit.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
                    let piece = format!("4000\r\n{}\r\n", "e".repeat(0x4000));
                    loop {
                        visit.send(&piece).await?;
                    }
                } else if head.contains("/hints") {
                    let link = format!("HTTP/1.1 103 Early Hints\r\nLink: {}\r\n\r\n", "l".repeat(20_000));
                    visit.send(format!("{link}{link}{OK}")).await?;
                } else if head.contains("/trailers") {
                    let end = "0\r\nx-end: ".to_owned() + &"t".repeat(7_000) + "\r\n\r\n";
                    visit
                        .send(format!(
                            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n{end}"
                        ))
                        .await?;
                } else if head.contains("/small") {
                    visit.send(OK).await?;
                } else {
                    visit.send(format!("HTTP/1.1 200 OK\r\n{large}Content-Length: 2\r\n\r\nok")).await?;
                }
                count.fetch_add(1, Relaxed);
            }
        }
    })
    .await;
    (origin, sent)
}

/// Whether a client reads.
#[derive(Debug, Default)]
struct Gate {
    closed: AtomicBool,
    /// So much is read in a millisecond, in bytes, if it is not zero.
    pace: AtomicUsize,
    waker: AtomicWaker,
}

impl Gate {
    fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    fn open(&self) {
        self.closed.store(false, Relaxed);
        self.waker.wake();
    }
}

/// A stream that is read through a gate.
struct Gated<S> {
    stream: S,
    gate: Arc<Gate>,
    /// When a part is read of a stream that has a pace.
    every: tokio::time::Interval,
}

impl<S: AsyncRead + Unpin> AsyncRead for Gated<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.gate.waker.register(cx.waker());
        if self.gate.closed.load(Relaxed) {
            return Poll::Pending;
        }
        let pace = self.gate.pace.load(Relaxed);
        if pace == 0 {
            return Pin::new(&mut self.stream).poll_read(cx, space);
        }
        std::task::ready!(self.every.poll_tick(cx));
        let mut part = vec![0; pace.min(space.remaining())];
        let mut part = ReadBuf::new(&mut part);
        std::task::ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        space.put_slice(part.filled());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gated<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A client whose reading is up to the test.
struct Client {
    send: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
    gate: Arc<Gate>,
}

impl Client {
    async fn connect(gateway: &Harness, certificates: &Certificates) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        let tcp = socket.connect(gateway.address).await.unwrap();
        let stream = certificates.connect(tcp, "a.example", &["h2"]).await;
        let gate = Arc::<Gate>::default();
        let gated =
            Gated { stream, gate: Arc::clone(&gate), every: tokio::time::interval(Duration::from_millis(1)) };
        let (send, connection): (_, Connection<_, Bytes>) = h2::client::Builder::new()
            .initial_window_size(1 << 20)
            .initial_connection_window_size(1 << 30)
            .handshake(gated)
            .await
            .unwrap();
        Self { send, connection: tokio::spawn(connection), gate }
    }

    async fn ask(&mut self, path: &str) -> ResponseFuture {
        std::future::poll_fn(|cx| self.send.poll_ready(cx)).await.unwrap();
        let request = request("GET", &format!("https://a.example{path}")).body(()).unwrap();
        self.send.send_request(request, true).unwrap().0
    }

    /// Asks for `path` on [`STREAMS`], all of which wait for their heads behind others: the service has answered all, and the
    /// client reads nothing.
    async fn stalled(
        gateway: &Harness,
        certificates: &Certificates,
        path: &str,
        sent: &AtomicUsize,
    ) -> (Self, Vec<ResponseFuture>) {
        let mut client = Self::connect(gateway, certificates).await;
        // The settings have come: so many streams are allowed.
        assert_eq!(collect(client.ask("/small").await).await.unwrap().status, 200);
        client.gate.close();
        let before = sent.load(Relaxed);
        let mut asked = Vec::new();
        // Until the sockets and the codec are full.
        while gateway.gateway.streams() < 3 {
            asked.push(client.ask("/large").await);
            until("the service has answered", || sent.load(Relaxed) >= before + asked.len()).await;
        }
        for _ in 0..STREAMS {
            asked.push(client.ask(path).await);
        }
        until("the service has answered", || sent.load(Relaxed) >= before + asked.len()).await;
        until("all wait", || gateway.gateway.streams() >= STREAMS + 3).await;
        (client, asked)
    }
}

#[test]
fn a_client_that_reads_gets_large_heads_on_all_streams() {
    run(async {
        let (origin, _) = origin().await;
        let (gateway, certificates) = gateway_with(&origin, LIMITS).await;
        let mut client = Client::connect(&gateway, &certificates).await;
        assert_eq!(collect(client.ask("/small").await).await.unwrap().status, 200);
        for path in ["/large", "/hints", "/trailers", "/large"] {
            let mut asked = Vec::new();
            for _ in 0..STREAMS {
                asked.push(client.ask(path).await);
            }
            for response in asked {
                let answer = collect(response).await.unwrap();
                assert_eq!((answer.status, &answer.body[..]), (200, &b"ok"[..]));
                match path {
                    "/large" => assert_eq!(answer.headers["x-29"].len(), 1_900),
                    "/trailers" => assert_eq!(answer.trailers.unwrap()["x-end"].len(), 7_000),
                    _ => {}
                }
            }
        }
        for line in gateway.log(1 + 4 * STREAMS).await {
            assert_eq!(line["complete"], true, "{line}");
        }
    });
}

#[test]
fn a_client_that_reads_again_gets_all_that_has_waited() {
    run(async {
        let (origin, sent) = origin().await;
        let (gateway, certificates) = gateway_with(&origin, LIMITS).await;
        for path in ["/large", "/hints", "/trailers"] {
            let (client, asked) = Client::stalled(&gateway, &certificates, path, &sent).await;
            client.gate.open();
            for response in asked {
                let answer = collect(response).await.unwrap();
                assert_eq!((answer.status, &answer.body[..]), (200, &b"ok"[..]), "{path}");
            }
        }
    });
}

#[test]
fn a_stalled_client_delays_nobody_on_other_connections() {
    run(async {
        let (origin, sent) = origin().await;
        let (gateway, certificates) = gateway_with(&origin, LIMITS).await;
        let stalled = Client::stalled(&gateway, &certificates, "/large", &sent).await;
        let mut good = connect(&gateway, &certificates, "a.example").await;
        for _ in 0..50 {
            let answer = good.exchange(request("GET", "https://a.example/large")).await;
            assert_eq!((answer.status, &answer.body[..]), (200, &b"ok"[..]));
        }
        drop(stalled);
    });
}

/// Its codec has always more to write: were heads given up as written only when it has nothing, the others would wait for
/// the download's end.
#[test]
fn a_slow_download_delays_no_other_stream_of_its_connection() {
    run(async {
        let (origin, _) = origin().await;
        let (gateway, certificates) = gateway_with(&origin, LIMITS).await;
        let mut client = Client::connect(&gateway, &certificates).await;
        client.gate.pace.store(32 * 1024, Relaxed);
        let mut download = client.ask("/endless").await.await.unwrap().into_body();
        let reading = tokio::spawn(async move {
            while let Some(Ok(chunk)) = download.data().await {
                download.flow_control().release_capacity(chunk.len()).unwrap();
            }
        });
        for _ in 0..5 {
            let mut asked = Vec::new();
            for _ in 0..10 {
                asked.push(client.ask("/large").await);
            }
            for response in asked {
                assert_eq!(collect(response).await.unwrap().headers["x-29"].len(), 1_900);
            }
        }
        assert!(!reading.is_finished(), "the control: it goes on all the while");
        reading.abort();
    });
}

#[test]
fn streams_that_are_reset_while_they_wait_are_over() {
    run(async {
        let (origin, sent) = origin().await;
        let (gateway, certificates) = gateway_with(&origin, LIMITS).await;
        let mut lines = 0;
        for path in ["/large", "/hints", "/trailers"] {
            let (mut client, asked) = Client::stalled(&gateway, &certificates, path, &sent).await;
            lines += 1 + asked.len();
            // RST_STREAM for each.
            drop(asked);
            gateway.log(lines).await;
            client.gate.open();
            let answer = collect(client.ask("/large").await).await.unwrap();
            assert_eq!((answer.status, &answer.body[..]), (200, &b"ok"[..]), "the connection goes on");
            lines += 1;
        }
        let lines = gateway.log(lines).await;
        let aborted = lines.iter().filter(|line| line["reason"] == "client_aborted").count();
        assert!(aborted >= 3 * STREAMS, "{aborted}");
    });
}

#[test]
fn streams_that_wait_are_over_with_their_connection() {
    run(async {
        let (origin, sent) = origin().await;
        let (gateway, certificates) = gateway_with(&origin, LIMITS).await;
        let mut lines = 0;
        for path in ["/large", "/hints", "/trailers"] {
            let (client, asked) = Client::stalled(&gateway, &certificates, path, &sent).await;
            client.connection.abort();
            drop(client.send);
            lines += 1 + asked.len();
            gateway.log(lines).await;
            until("the connection is gone", || gateway.gateway.connections() == 0).await;
            drop(asked);
        }
    });
}

#[test]
fn streams_that_wait_end_by_their_idle_deadline() {
    run(async {
        let (origin, sent) = origin().await;
        // Long enough for all of them to begin to wait before the first one ends.
        let toml = format!("{LIMITS}\ntimeouts.response_body_idle = '5s'");
        let (gateway, certificates) = gateway_with(&origin, &toml).await;
        let (client, asked) = Client::stalled(&gateway, &certificates, "/large", &sent).await;
        let lines = gateway.log(asked.len() + 1).await;
        let timed_out = lines.iter().filter(|line| line["reason"] == "response_timeout").count();
        assert!(timed_out >= STREAMS, "{timed_out}");
        let count = asked.len();
        client.gate.open();
        let mut complete = 0;
        for response in asked {
            match collect(response).await {
                Ok(answer) => {
                    assert_eq!(&answer.body, b"ok");
                    complete += 1;
                }
                Err(error) => assert!(error.is_reset(), "{error}"),
            }
        }
        assert!(complete > 0 && complete + timed_out == count, "{complete} and {timed_out}");
    });
}

#[test]
fn a_drain_lets_streams_that_wait_finish_and_ends_them_at_its_deadline() {
    run(async {
        for reads in [true, false] {
            let (origin, sent) = origin().await;
            let (gateway, certificates) = gateway_with(&origin, LIMITS).await;
            let (client, asked) = Client::stalled(&gateway, &certificates, "/large", &sent).await;
            gateway.gateway.advance(Phase::Stopping);
            if reads {
                client.gate.open();
                for response in asked {
                    assert_eq!(collect(response).await.unwrap().body, b"ok");
                }
            } else {
                gateway.gateway.advance(Phase::Ending);
                let lines = gateway.log(asked.len() + 1).await;
                let ended = lines.iter().filter(|line| line["reason"] == "drain_deadline").count();
                assert!(ended >= STREAMS, "{ended}");
            }
        }
    });
}

/// The gateway's own responses wait too: their number has no bound but that of streams.
#[test]
fn refusals_wait_like_all_others() {
    run(async {
        let (origin, sent) = origin().await;
        let (gateway, certificates) = gateway_with(&origin, LIMITS).await;
        let (mut client, mut asked) = Client::stalled(&gateway, &certificates, "/large", &sent).await;
        let before = gateway.gateway.streams();
        for _ in 0..STREAMS {
            asked.push(client.ask("/api").await);
        }
        until("all wait", || gateway.gateway.streams() == before + STREAMS).await;
        client.gate.open();
        let refused = asked.split_off(asked.len() - STREAMS);
        for response in refused {
            assert_eq!(collect(response).await.unwrap().status, 401);
        }
    });
}
