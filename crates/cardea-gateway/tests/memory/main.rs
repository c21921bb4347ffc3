//! The bound on what is held for messages under way. It is the process's, so these tests have a process of their own, and take
//! turns.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    dead_code,
    unused_imports,
    reason = "helpers of tests may fail the test that calls them, and are shared with other tests"
)]

#[path = "../it/support/mod.rs"]
mod support;

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;
use cardea_config::Config;
use h2::client::{ResponseFuture, SendRequest};
use http::Request;
use support::{Client, Harness, Origin, Spec, certificates::Certificates, get, origin::OK, run, until};
use tokio::net::TcpStream;

/// Far above what a thread may hold without telling, and below what the tests have held.
const MAX: usize = 4 * 1024 * 1024;
/// What threads may not have told.
const UNTOLD: usize = 512 * 1024;
/// Beyond it nothing more is received for messages under way.
const WAIT_FROM: usize = MAX + MAX / 16;
/// Beyond it nothing new is taken in.
const REFUSE_FROM: usize = MAX + MAX / 4;

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends bodies without an end at `/endless`, large ones at `/large`, none behind a large head at `/heads`, takes none of a body at `/stalled`, says nothing at
/// `/quiet`, and answers everything else.
async fn origin() -> Origin {
    Origin::start(|mut visit| async move {
        loop {
            let head = visit.head().await?;
            if head.contains("/stalled") || head.contains("/quiet") {
                std::future::pending::<()>().await;
            } else if head.contains("/large") {
                let body = "l".repeat(48 * 1024);
                visit
                    .send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
                    .await?;
                continue;
            } else if head.contains("/heads") {
                let value = "h".repeat(48 * 1024);
                visit
                    .send(format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Large: {value}\r\n\r\n"))
                    .await?;
                continue;
            } else if head.contains("/endless") {
                visit.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
                let piece = format!("4000\r\n{}\r\n", "e".repeat(0x4000));
                loop {
                    visit.send(&piece).await?;
                }
            }
            visit.send(OK).await?;
        }
    })
    .await
}

fn spec(origin: &Origin) -> Spec {
    Spec::to(origin).with("limits.buffered_bytes_max = '4MiB'")
}

fn ended(gateway: &Harness) -> u64 {
    gateway.metric("cardea_streams_ended_total{reason=\"buffers_exhausted\"}")
}

#[test]
fn unread_responses_are_evicted_oldest_first() {
    let _turn = turn();
    run(async {
        let origin = origin().await;
        let gateway = spec(&origin).start().await;
        let mut reading = gateway.client().await;
        reading.send(get("/endless")).await;
        assert_eq!(reading.head().await.unwrap().status, 200);
        let mut stalled = Vec::new();
        for count in 1..=200 {
            let mut client = gateway.client().await;
            client.send(get("/endless")).await;
            stalled.push(client);
            origin.until(|received| received.matches("/endless").count() > count).await;
            // One that reads on is not still.
            reading.bytes(64 * 1024).await.unwrap();
        }
        until("the oldest have given way", || ended(&gateway) > 20).await;
        until("the bound holds", || gateway.gateway.buffered_bytes() <= MAX + UNTOLD).await;
        assert!(stalled[0].rest().await.is_err(), "reset: it can't be taken for whole");
        assert!(reading.bytes(1024 * 1024).await.is_ok(), "the control: who reads is served");
        assert!(stalled.last_mut().unwrap().bytes(1024 * 1024).await.is_ok(), "the youngest may go on");
        assert_eq!(gateway.client().await.exchange(get("/")).await.text(), "ok");
        drop(stalled);
        drop(reading);
        until("all is let go", || gateway.gateway.buffered_bytes() <= UNTOLD).await;
    });
}

#[test]
fn heads_that_are_not_complete_are_small_and_bounded() {
    let _turn = turn();
    run(async {
        let origin = origin().await;
        // They are not to end for another reason.
        let gateway = spec(&origin).with("timeouts.request_head = '1m'").start().await;
        // As many as fit, since no more is kept of each than came.
        let mut small = Vec::new();
        for _ in 0..1_000 {
            let mut client = gateway.client().await;
            client.send(format!("GET / HTTP/1.1\r\nHost: a.example\r\nX: {}", "x".repeat(1_000))).await;
            small.push(client);
        }
        until("all are there", || gateway.gateway.buffered_bytes() > 1_000 * 1_000 - UNTOLD).await;
        assert!(gateway.gateway.buffered_bytes() < 1_000 * 1_100 + UNTOLD);
        assert_eq!(ended(&gateway), 0);
        small[0].send("\r\n\r\n").await;
        assert_eq!(small[0].response().await.status, 200, "the control: it is complete after all");
        let mut large = Vec::new();
        for _ in 0..300 {
            let mut client = gateway.client().await;
            client.send(format!("GET / HTTP/1.1\r\nHost: a.example\r\nX: {}", "x".repeat(17 * 1_024))).await;
            large.push(client);
        }
        until("the largest have given way", || ended(&gateway) > 50).await;
        until("the bound holds", || gateway.gateway.buffered_bytes() <= MAX + UNTOLD).await;
        let response = large[0].response().await;
        assert_eq!((response.status, response.code().as_str()), (503, "buffers_exhausted"));
        large[0].ended().await;
        small[1].send("\r\n\r\n").await;
        assert_eq!(small[1].response().await.status, 200, "the small ones hold little");
        assert_eq!(gateway.client().await.exchange(get("/")).await.text(), "ok");
    });
}

/// A client of HTTP/2 that reads nothing of what it does not ask for.
async fn connect(gateway: &Harness, certificates: &Certificates) -> SendRequest<Bytes> {
    let tcp = TcpStream::connect(gateway.address).await.unwrap();
    let tls = certificates.connect(tcp, "a.example", &["h2"]).await;
    let (send, connection) = h2::client::handshake(tls).await.unwrap();
    tokio::spawn(connection);
    send
}

fn request(method: &str, path: &str) -> Request<()> {
    Request::builder().method(method).uri(format!("https://a.example{path}")).body(()).unwrap()
}

#[test]
fn unread_http_2_streams_are_evicted() {
    let _turn = turn();
    run(async {
        let certificates = Certificates::new();
        let origin = origin().await;
        let gateway = spec(&origin).with(certificates.listener()).start().await;
        let mut connections = Vec::new();
        let mut stalled: Vec<ResponseFuture> = Vec::new();
        for _ in 0..4 {
            let mut send = connect(&gateway, &certificates).await;
            for _ in 0..60 {
                send = send.ready().await.unwrap();
                stalled.push(send.send_request(request("GET", "/endless"), true).unwrap().0);
            }
            connections.push(send);
        }
        until("the oldest have given way", || ended(&gateway) > 20).await;
        until("the bound holds", || gateway.gateway.buffered_bytes() <= MAX + UNTOLD).await;
        // The connections go on: only streams were given up.
        let mut refused = 0;
        let mut every = tokio::time::interval(std::time::Duration::from_millis(10));
        for send in &mut connections {
            let response = loop {
                let mut ready = send.clone().ready().await.unwrap();
                let (response, _) = ready.send_request(request("GET", "/"), true).unwrap();
                match response.await {
                    Ok(response) => break response,
                    // For as long as the others end.
                    Err(error) => assert_eq!(error.reason(), Some(h2::Reason::REFUSED_STREAM)),
                }
                refused += 1;
                every.tick().await;
            };
            assert_eq!(response.status(), 200, "{refused} were refused before");
        }
        let told = gateway.metric("cardea_refused_requests_total{reason=\"http2_stream_refused\",http_response_status_code=\"503\"}");
        assert_eq!(told, refused, "each refused stream is counted");
    });
}

#[test]
fn unread_request_bodies_are_evicted() {
    let _turn = turn();
    run(async {
        let certificates = Certificates::new();
        let origin = origin().await;
        let gateway = spec(&origin).with(certificates.listener()).start().await;
        let mut stalled = Vec::new();
        for _ in 0..40 {
            let mut send = connect(&gateway, &certificates).await.ready().await.unwrap();
            let (response, mut body) = send.send_request(request("POST", "/stalled"), false).unwrap();
            // More than the sockets hold between the gateway and the service.
            body.send_data(Bytes::from(vec![0; 8 * 1024 * 1024]), true).unwrap();
            stalled.push((send, response, body));
        }
        until("the oldest have given way", || ended(&gateway) > 5).await;
        // The others fill their windows meanwhile, and more of them give way.
        loop {
            until("the bound holds", || gateway.gateway.buffered_bytes() <= MAX + UNTOLD).await;
            let mut send = connect(&gateway, &certificates).await.ready().await.unwrap();
            let (response, _) = send.send_request(request("GET", "/"), true).unwrap();
            match response.await.unwrap().status().as_u16() {
                200 => break,
                status => assert_eq!(status, 503, "the control"),
            }
        }
    });
}

/// A client of HTTP/2 that asks for `path` so many times, and reads nothing from its socket from then on.
async fn asks_and_reads_nothing(
    gateway: &Harness,
    certificates: &Certificates,
    path: &str,
    count: usize,
) -> impl Sized {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    // What the gateway sends stays with it.
    socket.set_recv_buffer_size(4_096).unwrap();
    let tcp = socket.connect(gateway.address).await.unwrap();
    let tls = certificates.connect(tcp, "a.example", &["h2"]).await;
    let (mut send, mut connection) = h2::client::Builder::new()
        .initial_window_size(1 << 20)
        .initial_connection_window_size(1 << 30)
        .handshake::<_, Bytes>(tls)
        .await
        .unwrap();
    let mut asked = Vec::new();
    for _ in 0..count {
        let ready = std::future::poll_fn(|cx| {
            let _ = std::pin::Pin::new(&mut connection).poll(cx);
            send.poll_ready(cx)
        });
        ready.await.unwrap();
        asked.push(send.send_request(request("GET", path), true).unwrap());
    }
    // Until the requests are sent; what comes back from here on stays in the kernel and in the gateway.
    std::future::poll_fn(|cx| {
        let _ = std::pin::Pin::new(&mut connection).poll(cx);
        std::task::Poll::Ready(())
    })
    .await;
    (send, connection, asked)
}

#[test]
fn responses_that_are_queued_whole_give_way_with_their_connections() {
    // The codec has their bodies, or their heads.
    for path in ["/large", "/heads"] {
        queued_responses_give_way(path);
    }
}

fn queued_responses_give_way(path: &str) {
    let _turn = turn();
    run(async {
        let certificates = Certificates::new();
        let origin = origin().await;
        let gateway = spec(&origin).with(certificates.listener()).start().await;
        let mut stalled = Vec::new();
        for _ in 0..20 {
            stalled.push(asks_and_reads_nothing(&gateway, &certificates, path, 90).await);
        }
        until("the bound is passed, and connections end", || ended(&gateway) > 0).await;
        until("the bound holds", || gateway.gateway.buffered_bytes() <= MAX + UNTOLD).await;
        let mut send = connect(&gateway, &certificates).await.ready().await.unwrap();
        let (response, _) = send.send_request(request("GET", "/"), true).unwrap();
        assert_eq!(response.await.unwrap().status(), 200, "others are served all the while");
        drop(stalled);
        until("all is let go", || gateway.gateway.buffered_bytes() <= UNTOLD).await;
    });
}

/// The most that is held from now on, until the returned task is dropped.
fn watch_peak(gateway: &Harness) -> (Arc<AtomicUsize>, tokio::task::JoinHandle<()>) {
    let peak = Arc::<AtomicUsize>::default();
    let (highest, gateway) = (Arc::clone(&peak), Arc::clone(&gateway.gateway));
    let watching = tokio::spawn(async move {
        loop {
            highest.fetch_max(gateway.buffered_bytes(), Relaxed);
            tokio::task::yield_now().await;
        }
    });
    (peak, watching)
}

#[test]
fn heads_that_nobody_reads_do_not_pass_the_bound() {
    let _turn = turn();
    run(async {
        let certificates = Certificates::new();
        let origin = origin().await;
        let gateway = spec(&origin).with(certificates.listener()).start().await;
        let (peak, watching) = watch_peak(&gateway);
        let mut stalled = Vec::new();
        // 168 MiB of heads.
        for _ in 0..40 {
            stalled.push(asks_and_reads_nothing(&gateway, &certificates, "/heads", 90).await);
        }
        until("the bound is passed, and connections end", || ended(&gateway) > 0).await;
        until("the bound holds", || gateway.gateway.buffered_bytes() <= MAX + UNTOLD).await;
        watching.abort();
        let peak = peak.load(Relaxed);
        println!("peak: {peak} bytes");
        // And the head that a worker was receiving.
        assert!(peak <= WAIT_FROM + UNTOLD + 256 * 1024, "{peak} bytes");
    });
}

/// Keeps a worker from running anything, until this is dropped.
struct Starved(#[expect(dead_code, reason = "dropped in time")] std::sync::mpsc::Sender<()>);

async fn starve(gateway: &Harness, worker: usize) -> Starved {
    let (end, ended) = std::sync::mpsc::channel();
    let (tell, told) = tokio::sync::oneshot::channel();
    gateway.workers.runtime(worker).spawn(async move {
        tell.send(()).unwrap();
        let _ = ended.recv();
    });
    told.await.unwrap();
    Starved(end)
}

/// What connections hold that were told to end counts as freed, but a worker without processor time frees nothing.
#[test]
fn nothing_more_is_taken_in_beyond_the_hard_bound_while_a_worker_has_no_processor_time() {
    let _turn = turn();
    run(async {
        let answer = Arc::new(tokio::sync::Notify::new());
        let (asked, sent) = (Arc::clone(&answer), Arc::new(tokio::sync::Notify::new()));
        let tell = Arc::clone(&sent);
        let origin = Origin::start(move |mut visit| {
            let (asked, tell) = (Arc::clone(&asked), Arc::clone(&tell));
            async move {
                loop {
                    let head = visit.head().await?;
                    if head.contains("/endless") {
                        visit.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
                        let piece = format!("4000\r\n{}\r\n", "e".repeat(0x4000));
                        loop {
                            visit.send(&piece).await?;
                        }
                    }
                    if head.contains("/later") {
                        asked.notified().await;
                    }
                    visit.send(OK).await?;
                    tell.notify_one();
                }
            }
        })
        .await;
        let gateway =
            Spec::to(&origin).with("limits.buffered_bytes_max = '256MiB'").start_with_workers(2).await;
        let mut stalled = Vec::new();
        for count in 1..=300 {
            let mut client = gateway.client().await;
            client.send(get("/endless")).await;
            stalled.push(client);
            origin.until(|received| received.matches("/endless").count() >= count).await;
        }
        until("each worker holds more than may be", || {
            gateway.gateway.buffered_bytes() > 2 * (REFUSE_FROM + UNTOLD)
        })
        .await;
        // Both have as many connections, so every other one of these is the first worker's, which accepts.
        let mut clients = Vec::new();
        for _ in 0..6 {
            let mut client = gateway.client().await;
            assert_eq!(client.exchange(get("/")).await.text(), "ok", "the control: it is below the bound");
            clients.push(client);
        }
        let [early, _, late, _, partial, _] = &mut clients[..] else { unreachable!() };
        early.send(get("/later")).await;
        origin.until(|received| received.contains("/later")).await;
        let starved = starve(&gateway, 1).await;
        gateway.reload(spec(&origin));
        let refused = late.exchange(get("/")).await;
        assert_eq!((refused.status, refused.code().as_str()), (503, "overloaded"));
        partial.send("GET / HTTP/1.1\r\nHost: a.example\r\nX: ").await;
        assert_eq!(partial.response().await.status, 503, "nor is the rest of a head awaited");
        sent.notified().await;
        answer.notify_one();
        sent.notified().await;
        tokio::select! {
            biased;
            _ = early.head() => panic!("a response is received for which there is no room"),
            refused = late.exchange(get("/")) => assert_eq!(refused.status, 503),
        }
        drop(starved);
        assert_eq!(early.response().await.text(), "ok", "once there is room, it is");
        until("the bound holds", || gateway.gateway.buffered_bytes() <= MAX + UNTOLD).await;
        assert_eq!(late.exchange(get("/")).await.text(), "ok");
    });
}

#[test]
fn a_client_that_reads_single_bytes_counts_as_stalled() {
    let _turn = turn();
    run(async {
        let origin = origin().await;
        let gateway = spec(&origin).start().await;
        let mut reading = gateway.client().await;
        reading.send(get("/endless")).await;
        assert_eq!(reading.head().await.unwrap().status, 200);
        let mut dripping = Vec::new();
        for count in 1..=200 {
            let mut client = gateway.client().await;
            client.send(get("/endless")).await;
            dripping.push(client);
            origin.until(|received| received.matches("/endless").count() > count).await;
            for client in &mut dripping {
                let _ = client.bytes(1).await;
            }
            reading.bytes(256 * 1024).await.unwrap();
        }
        until("some have given way", || ended(&gateway) > 20).await;
        assert!(reading.bytes(1024 * 1024).await.is_ok(), "who reads is served");
    });
}

#[test]
fn quiet_streams_of_one_caller_give_way_too() {
    let _turn = turn();
    run(async {
        let origin = origin().await;
        let small = |config: &mut Config| config.general.limits.buffered_bytes_max = 1024 * 1024;
        let gateway = spec(&origin).resolved(small).start().await;
        let mut quiet = Vec::new();
        for count in 1..=400 {
            let mut client = gateway.client().await;
            client
                .send(format!("GET /quiet HTTP/1.1\r\nHost: a.example\r\nX: {}\r\n\r\n", "x".repeat(4_000)))
                .await;
            quiet.push(client);
            origin.until(|received| received.matches("/quiet").count() >= count.min(100)).await;
        }
        until("some have given way", || ended(&gateway) > 20).await;
        assert_eq!(gateway.client().await.exchange(get("/")).await.text(), "ok", "others are served");
    });
}

#[test]
fn heads_of_requests_of_http_2_that_wait_are_counted_and_give_way() {
    let _turn = turn();
    run(async {
        let certificates = Certificates::new();
        let origin = origin().await;
        let gateway = spec(&origin).with(certificates.listener()).start().await;
        let mut waiting = Vec::new();
        for number in 0..10 {
            let mut send = connect(&gateway, &certificates).await;
            for _ in 0..60 {
                send = send.ready().await.unwrap();
                let mut request = request("GET", "/quiet");
                let value = format!("{number}{}", "x".repeat(10_000)).parse().unwrap();
                request.headers_mut().insert("x-large", value);
                waiting.push(send.send_request(request, true).unwrap());
            }
        }
        until("some have given way", || ended(&gateway) > 0).await;
        until("the bound holds", || gateway.gateway.buffered_bytes() <= MAX + UNTOLD).await;
    });
}

#[test]
fn trailers_of_requests_of_http_2_that_wait_are_counted_and_give_way() {
    let _turn = turn();
    run(async {
        let certificates = Certificates::new();
        let origin = origin().await;
        let gateway = spec(&origin).with(certificates.listener()).start().await;
        let mut waiting = Vec::new();
        let send_all = async |trailer_fields: usize, waiting: &mut Vec<_>| {
            for _ in 0..10 {
                let mut send = connect(&gateway, &certificates).await;
                for _ in 0..60 {
                    send = send.ready().await.unwrap();
                    let (response, mut body) = send.send_request(request("POST", "/quiet"), false).unwrap();
                    body.send_data(Bytes::from_static(b"body"), false).unwrap();
                    let mut trailers = http::HeaderMap::new();
                    for number in 0..trailer_fields {
                        let name = http::HeaderName::try_from(format!("x-{number}")).unwrap();
                        trailers.insert(name, "t".repeat(240).parse().unwrap());
                    }
                    body.send_trailers(trailers).unwrap();
                    waiting.push((send.clone(), response));
                }
            }
        };
        send_all(1, &mut waiting).await;
        origin.until(|received| received.matches("/quiet").count() >= 600).await;
        assert_eq!(ended(&gateway), 0, "the control: the requests themselves are small");
        send_all(30, &mut waiting).await;
        until("some have given way", || ended(&gateway) > 0).await;
        until("the bound holds", || gateway.gateway.buffered_bytes() <= MAX + UNTOLD).await;
    });
}

#[test]
fn a_bound_that_is_lowered_holds_for_what_is_held_already() {
    let _turn = turn();
    run(async {
        let origin = origin().await;
        let gateway = Spec::to(&origin).with("limits.buffered_bytes_max = '256MiB'").start().await;
        let mut stalled = Vec::new();
        for count in 1..=200 {
            let mut client = gateway.client().await;
            client.send(get("/endless")).await;
            stalled.push(client);
            origin.until(|received| received.matches("/endless").count() >= count).await;
        }
        until("they hold more than what will be the bound", || {
            gateway.gateway.buffered_bytes() > MAX + UNTOLD
        })
        .await;
        assert_eq!(ended(&gateway), 0, "the control: it is below the bound");
        // From here on nothing comes or goes but the new bound.
        gateway.reload(spec(&origin));
        until("some have given way", || ended(&gateway) > 0).await;
        until("the bound holds", || gateway.gateway.buffered_bytes() <= MAX + UNTOLD).await;
        assert_eq!(gateway.client().await.exchange(get("/")).await.text(), "ok");
    });
}
