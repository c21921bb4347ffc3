//! Bodies: chunked, delimited by close, expected, streamed with back-pressure, answered early.

use std::sync::OnceLock;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Origin, Spec, get, origin::OK, run};

#[test]
fn chunked_bodies_and_trailers_pass_both_ways() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            loop {
                let request = visit.request().await?;
                assert_eq!(request.body, b"hello world");
                assert_eq!(request.trailers, "X-Sum: 1\r\n");
                visit
                    .send(
                        "HTTP/1.1 200 OK\r\nTrailer: X-End\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nfoo\r\n",
                    )
                    .await?;
                visit.send("4\r\nbars\r\n0\r\nX-End: 2\r\nContent-Length: 3\r\nTransfer-Encoding: x\r\n\r\n").await?;
            }
        })
        .await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        for te in ["TE: trailers\r\n", ""] {
            client
                .send(format!(
                    "POST / HTTP/1.1\r\nHost: a.example\r\n{te}Transfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n"
                ))
                .await;
            client.send("6\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n").await;
            let response = client.response().await;
            assert_eq!(response.text(), "foobars");
            assert_eq!(response.trailers, if te.is_empty() { "" } else { "X-End: 2\r\n" });
        }
        assert_eq!(origin.connections(), 1);
    });
}

#[test]
fn a_body_that_ends_with_the_connection_is_chunked_for_1_1_and_closed_for_1_0() {
    run(async {
        for framing in ["", "Connection: close\r\n"] {
            let origin = Origin::closing(format!("HTTP/1.1 200 OK\r\n{framing}\r\nall of it")).await;
            let gateway = Spec::to(&origin).start().await;
            let mut client = gateway.client().await;
            for _ in 0..2 {
                let response = client.exchange(get("/")).await;
                assert_eq!(response.text(), "all of it");
                assert_eq!(response.header("transfer-encoding"), Some("chunked"));
                assert!(response.header("connection").is_none());
            }
            assert_eq!(origin.connections(), 2);
            let response =
                client.exchange("GET / HTTP/1.0\r\nHost: a.example\r\nConnection: keep-alive\r\n\r\n").await;
            assert_eq!(response.text(), "all of it");
            assert!(response.closes());
        }
    });
}

#[test]
fn a_body_is_asked_for_when_the_service_asks() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            let head = visit.head().await?;
            assert!(head.to_lowercase().contains("expect: 100-continue"), "{head}");
            visit.send("HTTP/1.1 100 Continue\r\n\r\n").await?;
            assert_eq!(visit.bytes(5).await?, b"hello");
            visit.send(OK).await?;
            visit.closed().await;
            Ok(())
        })
        .await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        let head = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
        assert_eq!(client.exchange(head).await.status, 100);
        let response = client.exchange("hello").await;
        assert_eq!((response.status, response.closes()), (200, false));
    });
}

#[test]
fn a_service_that_never_asks_gets_the_body_after_a_while() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        let head = "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n";
        assert_eq!(client.exchange(head).await.status, 100);
        let response = client.exchange("5\r\nhello\r\n0\r\n\r\n").await;
        assert_eq!(response.text(), "ok");
        // And a client that does not wait is not asked.
        let whole =
            "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello";
        assert_eq!(client.exchange(whole).await.status, 200);
        assert_eq!(origin.connections(), 1);
    });
}

#[test]
fn a_service_that_refuses_the_body_ends_both_connections() {
    run(async {
        for status in ["417 Expectation Failed", "413 Content Too Large"] {
            let origin = Origin::start(move |mut visit| async move {
                visit.head().await?;
                visit.send(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nno")).await?;
                visit.closed().await;
                Ok(())
            })
            .await;
            let gateway = Spec::to(&origin).start().await;
            let mut client = gateway.client().await;
            let response = client
                .exchange(
                    "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
                )
                .await;
            assert_eq!((response.text().as_str(), response.closes()), ("no", true));
            client.ended().await;
            origin.ended(1).await;
            assert!(!origin.text().contains("hello"));
        }
    });
}

#[test]
fn informational_responses_pass_without_what_concerns_a_connection() {
    run(async {
        let origin = Origin::answering(format!(
            "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: x-hop\r\nX-Hop: 1\r\nContent-Length: 0\r\n\r\n{OK}"
        ))
        .await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        for _ in 0..2 {
            let hints = client.exchange(get("/")).await;
            assert_eq!((hints.status, hints.header("link")), (103, Some("</a.css>")));
            for gone in ["connection", "x-hop", "content-length", "transfer-encoding"] {
                assert!(hints.header(gone).is_none(), "{}", hints.head);
            }
            assert_eq!(client.response().await.text(), "ok");
        }
        let response =
            client.exchange("GET / HTTP/1.0\r\nHost: a.example\r\nConnection: keep-alive\r\n\r\n").await;
        assert_eq!(response.status, 200, "a client of HTTP/1.0 gets none");
        assert_eq!(origin.connections(), 1);
    });
}

/// Bytes that differ wherever one looks, over and over. Their number is a prime: no buffer's size divides it.
fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| (0..65_521_usize).map(|at| ((at * 31) ^ (at >> 7)) as u8).collect())
}

/// The `count` bytes of a large body from `at` on.
fn part(at: usize, count: usize) -> Vec<u8> {
    let mut part = Vec::with_capacity(count);
    while part.len() < count {
        let rest = &pattern()[(at + part.len()) % pattern().len()..];
        part.extend_from_slice(&rest[..rest.len().min(count - part.len())]);
    }
    part
}

const LARGE: usize = 64 * 1024 * 1024;

#[test]
fn a_large_upload_arrives_whole() {
    run(async {
        let origin = Origin::start(move |mut visit| async move {
            visit.head().await?;
            // Compared here and not recorded: the record would be as large as the body.
            let mut received = visit.unread.len();
            assert!(visit.unread == part(0, received));
            let mut chunk = vec![0; 128 * 1024];
            while received < LARGE {
                let count = visit.stream.read(&mut chunk).await?;
                assert!(chunk[..count] == part(received, count));
                received += count;
            }
            visit.send(OK).await
        })
        .await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        client.send(format!("PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {LARGE}\r\n\r\n")).await;
        let mut at = 0;
        while at < LARGE {
            let part = part(at, (LARGE - at).min(100_000));
            client.send(&part).await;
            at += part.len();
        }
        assert_eq!(client.response().await.text(), "ok");
    });
}

#[test]
fn a_large_chunked_upload_arrives_whole() {
    run(async {
        const SIZE: usize = LARGE / 16;
        let origin = Origin::start(move |mut visit| async move {
            let request = visit.request().await?;
            assert!(request.body == part(0, SIZE));
            visit.send(OK).await
        })
        .await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        client.send("PUT / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        let mut at = 0;
        let mut sizes = [1, 2, 100, 16_383, 16_384, 16_385, 40_000, 7].iter().cycle();
        while at < SIZE {
            let part = part(at, (SIZE - at).min(*sizes.next().unwrap()));
            client.send([format!("{:x}\r\n", part.len()).as_bytes(), &part, b"\r\n"].concat()).await;
            at += part.len();
        }
        client.send("0\r\n\r\n").await;
        assert_eq!(client.response().await.text(), "ok");
    });
}

#[test]
fn a_large_download_arrives_whole() {
    run(async {
        for framing in ["length", "chunked", "close"] {
            let size = if framing == "length" { LARGE } else { LARGE / 8 };
            let origin = Origin::start(move |mut visit| async move {
                visit.head().await?;
                match framing {
                    "length" => {
                        visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n")).await?
                    }
                    "chunked" => visit.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?,
                    _ => visit.send("HTTP/1.1 200 OK\r\n\r\n").await?,
                }
                let mut at = 0;
                while at < size {
                    let part = part(at, (size - at).min(77_777));
                    at += part.len();
                    if framing == "chunked" {
                        visit
                            .send([format!("{:x}\r\n", part.len()).as_bytes(), &part, b"\r\n"].concat())
                            .await?;
                    } else {
                        visit.send(&part).await?;
                    }
                }
                if framing == "chunked" {
                    visit.send("0\r\n\r\n").await?;
                }
                Ok(())
            })
            .await;
            let gateway = Spec::to(&origin).start().await;
            let response = gateway.client().await.exchange(get("/")).await;
            assert!(response.body == part(0, size), "{framing}: {}", response.body.len());
        }
    });
}

#[test]
fn a_client_that_sends_on_gets_the_reason_all_the_same() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).public("body_bytes_max = '10B'").start().await;
        for path in ["/", "/api"] {
            let mut client = gateway.client().await;
            let head = format!("PUT {path} HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4000000\r\n\r\n");
            client.send(head).await;
            client.send(vec![b'x'; 4_000_000]).await;
            let response = client.response().await;
            assert_eq!((response.status, response.closes()), (if path == "/" { 413 } else { 401 }, true));
            client.finish().await;
            client.ended().await;
        }
        // What is left of a small one is not worth a connection.
        let mut client = gateway.client().await;
        let small = "PUT /api HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1000\r\n\r\n";
        client.send(format!("{small}{}{}", "x".repeat(1000), get("/next"))).await;
        let response = client.response().await;
        assert_eq!((response.status, response.closes()), (401, false));
        assert_eq!(client.response().await.status, 200);
        assert_eq!(origin.text().matches("HTTP/1.1").count(), 1);
    });
}

/// Writes until the peer has taken nothing for a while; gives how much it took.
async fn write_until_stalled(stream: &mut (impl tokio::io::AsyncWrite + Unpin)) -> usize {
    let part = vec![b'x'; 64 * 1024];
    let mut taken = 0;
    while taken < LARGE {
        // A stall is the absence of progress: there is nothing else to wait for.
        match tokio::time::timeout(std::time::Duration::from_millis(300), stream.write(&part)).await {
            Ok(written) => taken += written.unwrap(),
            Err(_) => break,
        }
    }
    taken
}

/// What the kernel may hold on the way, on both of our sides: its buffers grow to some megabytes each.
const IN_KERNEL_MAX: usize = 32 * 1024 * 1024;

#[test]
fn a_service_that_stops_reading_stalls_the_client() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            visit.head().await?;
            std::future::pending().await
        })
        .await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        client.send(format!("PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {LARGE}\r\n\r\n")).await;
        let taken = write_until_stalled(&mut client.stream).await;
        assert!(taken < IN_KERNEL_MAX, "{taken}");
    });
}

#[test]
fn a_client_that_stops_reading_stalls_the_service() {
    run(async {
        let (stalled, stall) = tokio::sync::oneshot::channel();
        let stalled = std::sync::Mutex::new(Some(stalled));
        let stalled = std::sync::Arc::new(stalled);
        let origin = Origin::start(move |mut visit| {
            let stalled = std::sync::Arc::clone(&stalled);
            async move {
                visit.head().await?;
                visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n")).await?;
                let taken = write_until_stalled(&mut visit.stream).await;
                let _ = stalled.lock().unwrap().take().unwrap().send(taken);
                std::future::pending().await
            }
        })
        .await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        client.send(get("/")).await;
        let taken = stall.await.unwrap();
        assert!(taken < IN_KERNEL_MAX, "{taken}");
    });
}

#[test]
fn a_service_may_answer_while_the_body_is_still_sent() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            visit.head().await?;
            visit.bytes(5).await?;
            visit.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n").await?;
            let rest = visit.bytes(5).await?;
            visit.send([b"5\r\n", &rest[..], b"\r\n0\r\n\r\n"].concat()).await?;
            visit.request().await?;
            visit.send(OK).await
        })
        .await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        client.send("PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\nhello").await;
        let head = client.head().await.unwrap();
        assert_eq!(head.status, 200);
        assert_eq!(client.bytes(10).await.unwrap(), b"5\r\nearly\r\n");
        client.send("world").await;
        assert_eq!(client.bytes(15).await.unwrap(), b"5\r\nworld\r\n0\r\n\r\n");
        // The body was sent whole in the end, so both connections go on.
        assert_eq!(client.exchange(get("/")).await.status, 200);
        assert_eq!(origin.connections(), 1);
    });
}

#[test]
fn a_whole_answer_before_the_body_was_sent_ends_the_services_connection() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            visit.head().await?;
            visit.send(OK).await?;
            visit.closed().await;
            Ok(())
        })
        .await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        client.send("PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\nhello").await;
        assert_eq!(client.response().await.status, 200);
        origin.ended(1).await;
        // What is left of the body is not taken for a request.
        client.send(format!("GET /{}", get("/next"))).await;
        assert_eq!(client.response().await.status, 200);
        assert!(
            origin.text().ends_with("\r\n\r\n") && origin.text().contains("GET /next HTTP/1.1"),
            "{}",
            origin.text()
        );
        assert_eq!(origin.connections(), 2);
    });
}
