//! Many at once, and every way that a stream may be cut: no answer is ever another request's.

use std::{io, sync::Arc};

use tokio::task::JoinSet;

use crate::support::{Client, Origin, Spec, TEST_TIME_MAX, get, run, until};

/// Answers with what it was sent, chunked or not, as the path says; in pieces of `piece` bytes.
async fn echo(piece: usize) -> Origin {
    Origin::start(move |mut visit| async move {
        loop {
            let request = visit.request().await?;
            let path = request.line().split(' ').nth(1).unwrap().to_owned();
            let body = [path.as_bytes(), &request.body].concat();
            let answer = if path.contains("chunked") {
                let (one, two) = body.split_at(body.len() / 2);
                let chunk =
                    |data: &[u8]| [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat();
                [
                    &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"[..],
                    &chunk(one),
                    &chunk(two),
                    b"0\r\n\r\n",
                ]
                .concat()
            } else {
                [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), &body]
                    .concat()
            };
            for piece in answer.chunks(piece) {
                visit.send(piece).await?;
                if piece.len() < 100 {
                    tokio::task::yield_now().await;
                }
            }
        }
    })
    .await
}

fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a.example\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn chunked(path: &str, body: &str) -> String {
    let (one, two) = body.split_at(body.len() / 2);
    let framed = format!("{:x}\r\n{one}\r\n{:x};x=y\r\n{two}\r\n0\r\nX-T: z\r\n\r\n", one.len(), two.len());
    format!("POST {path} HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n{framed}")
}

#[test]
fn wherever_a_stream_is_cut_it_reads_the_same() {
    run(async {
        for size in [1, 2, 3, 5, 7, 11, 64, 100_000] {
            let origin = echo(size).await;
            let gateway = Spec::to(&origin).start().await;
            let mut client = gateway.client().await;
            let long = "long".repeat(50);
            let stream = [
                get("/1"),
                post("/2", "hello"),
                chunked("/3-chunked", "hello world"),
                post("/4-chunked", ""),
                format!("\r\n{}", chunked("/5", &long)),
                get("/6-chunked"),
            ]
            .concat();
            for piece in stream.as_bytes().chunks(size) {
                client.send(piece).await;
                tokio::task::yield_now().await;
            }
            let long = format!("/5{long}");
            for expected in ["/1", "/2hello", "/3-chunkedhello world", "/4-chunked", &long, "/6-chunked"] {
                assert_eq!(client.response().await.text(), expected, "in pieces of {size}");
            }
        }
    });
}

#[test]
fn a_thousand_pipelined_requests_are_answered_in_order() {
    run(async {
        let origin = echo(100_000).await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        let requests: String = (0..1_000).map(|n| get(&format!("/{n}"))).collect();
        client.send(requests).await;
        for n in 0..1_000 {
            assert_eq!(client.response().await.text(), format!("/{n}"));
        }
        assert_eq!(origin.connections(), 1);
    });
}

/// One client: what it asks for, how it frames it and when it leaves are taken from `seed`.
async fn play(mut client: Client, seed: usize) -> io::Result<()> {
    let mut state = seed as u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for n in 0..30 {
        let size = draw(if n % 10 == 0 { 200_000 } else { 300 });
        let body = format!("{seed}-{n}-").repeat(usize::try_from(size).unwrap() / 8 + 1);
        let path = format!("/{seed}/{n}{}", if draw(2) == 0 { "-chunked" } else { "" });
        let request = match draw(3) {
            0 => get(&path),
            1 => post(&path, &body),
            _ => chunked(&path, &body),
        };
        if draw(40) == 0 {
            client.send(&request.as_bytes()[..request.len() / 2]).await;
            return Ok(());
        }
        client.send(&request).await;
        if draw(40) == 0 {
            return Ok(());
        }
        let response = client.try_response(false).await?;
        let expected = if request.starts_with("GET") { path.clone() } else { format!("{path}{body}") };
        assert!(response.text() == expected, "{path}: {} {}", response.head, response.body.len());
    }
    Ok(())
}

#[test]
fn nobody_gets_anothers_answer() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let origin = Arc::new(echo(30_000).await);
        let gateway = Spec::to(&origin).start().await;
        let mut players = JoinSet::new();
        for seed in 0..60 {
            players.spawn(play(gateway.client().await, seed));
        }
        let all = async {
            while let Some(played) = players.join_next().await {
                played.unwrap().unwrap();
            }
            until("all connections are gone", || gateway.gateway.connections() == 0).await;
        };
        tokio::time::timeout(TEST_TIME_MAX, all).await.expect("the test hangs");
        assert_eq!(gateway.gateway.replay_budget.used(), 0);
    });
}
