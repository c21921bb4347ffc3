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

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use http::Request;
use support::{Client, Harness, Origin, Spec, certificates::Certificates, get, origin::OK, run, until};
use tokio::net::TcpStream;

/// Far above what a thread may hold without telling, and below what the tests have held.
const MAX: usize = 4 * 1024 * 1024;
/// What threads may not have told.
const UNTOLD: usize = 512 * 1024;

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends bodies without an end at `/endless`, takes none of a body at `/stalled`, and answers everything else.
async fn origin() -> Origin {
    Origin::start(|mut visit| async move {
        loop {
            let head = visit.head().await?;
            if head.contains("/stalled") {
                std::future::pending::<()>().await;
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
    let mut spec = Spec::to(origin);
    spec.limits.buffered_bytes_max = MAX;
    spec
}

fn ended(gateway: &Harness) -> u64 {
    gateway.metric("cardea_streams_ended_total{reason=\"buffers_exhausted\"}")
}

#[test]
fn responses_that_nobody_reads_give_way_the_oldest_first() {
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
        let mut spec = spec(&origin);
        // They are not to end for another reason.
        spec.timeouts.request_head = support::TEST_TIME_MAX;
        let gateway = spec.start().await;
        // As many as fit, since no more is kept of each than came.
        let mut small = Vec::new();
        for _ in 0..1_000 {
            let mut client = gateway.client().await;
            client.send(format!("GET / HTTP/1.1\r\nHost: a.example\r\nX: {}", "x".repeat(1_000))).await;
            small.push(client);
        }
        until("all are there", || gateway.gateway.streams() == 1_000).await;
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
        until("the oldest have given way", || ended(&gateway) > 200).await;
        until("the bound holds", || gateway.gateway.buffered_bytes() <= MAX + UNTOLD).await;
        let response = small[1].response().await;
        assert_eq!((response.status, response.code().as_str()), (503, "buffers_exhausted"));
        small[1].ended().await;
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
fn streams_of_http_2_that_nobody_reads_give_way() {
    let _turn = turn();
    run(async {
        let certificates = Certificates::new();
        let origin = origin().await;
        let gateway = Spec { tls: Some(certificates.server()), ..spec(&origin) }.start().await;
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
        for send in &mut connections {
            let mut ready = send.clone().ready().await.unwrap();
            let (response, _) = ready.send_request(request("GET", "/"), true).unwrap();
            assert_eq!(response.await.unwrap().status(), 200);
        }
    });
}

#[test]
fn bodies_that_the_service_does_not_take_give_way() {
    let _turn = turn();
    run(async {
        let certificates = Certificates::new();
        let origin = origin().await;
        let gateway = Spec { tls: Some(certificates.server()), ..spec(&origin) }.start().await;
        let mut stalled = Vec::new();
        for _ in 0..40 {
            let mut send = connect(&gateway, &certificates).await.ready().await.unwrap();
            let (response, mut body) = send.send_request(request("POST", "/stalled"), false).unwrap();
            // More than the sockets hold between the gateway and the service.
            body.send_data(Bytes::from(vec![0; 8 * 1024 * 1024]), true).unwrap();
            stalled.push((send, response, body));
        }
        until("the oldest have given way", || ended(&gateway) > 5).await;
        until("the bound holds", || gateway.gateway.buffered_bytes() <= MAX + UNTOLD).await;
        let mut send = connect(&gateway, &certificates).await.ready().await.unwrap();
        let (response, _) = send.send_request(request("GET", "/"), true).unwrap();
        assert_eq!(response.await.unwrap().status(), 200, "the control");
    });
}
