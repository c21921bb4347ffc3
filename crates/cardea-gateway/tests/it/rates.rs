//! The least rates of bodies, with clients that trickle.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{interval, timeout},
};

use crate::{
    http2,
    support::{Client, Origin, Spec, get, run, until},
};

/// 100 bytes have to move in each second.
const RATES: &str =
    "[timeouts]\nrequest_body_rate_min = 100\nresponse_body_rate_min = 100\nbody_rate_window = '1s'\n";

/// How often clients send or read something.
const BEAT: Duration = Duration::from_millis(50);

/// Sends a body in pieces of so many bytes, until it is whole or there is a response. The response.
async fn trickle(client: Client, piece: usize, length: usize) -> String {
    let (mut reading, mut writing) = tokio::io::split(client.stream);
    let head = format!("PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}\r\n\r\n");
    writing.write_all(head.as_bytes()).await.unwrap();
    let mut beat = interval(BEAT);
    let mut left = length;
    let mut answer = vec![0; 4096];
    loop {
        tokio::select! {
            _ = beat.tick(), if left > 0 => {
                let piece = piece.min(left);
                // The gateway may have answered meanwhile.
                let _ = writing.write_all(&vec![b'x'; piece]).await;
                left -= piece;
            }
            read = reading.read(&mut answer) => {
                return String::from_utf8_lossy(&answer[..read.unwrap()]).into_owned();
            }
        }
    }
}

#[test]
fn a_request_body_that_trickles_is_refused_and_one_at_the_rate_is_not() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).with(RATES).start().await;
        let answer = trickle(gateway.client().await, 1, 1_000).await;
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("request_body_too_slow"), "{answer}");
        // The controls: 400 bytes a second, and the same trickle where there is no rate.
        let answer = trickle(gateway.client().await, 20, 600).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let gateway = Spec::to(&origin).start().await;
        let answer = trickle(gateway.client().await, 1, 30).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    });
}

#[test]
fn a_request_body_that_trickles_is_refused_over_http2_too() {
    run(async {
        let origin = Origin::ok().await;
        let (gateway, certificates) = http2::gateway_with(&origin, RATES).await;
        let client = http2::connect(&gateway, &certificates, "a.example").await;
        let request = http2::request("PUT", "https://a.example/").body(()).unwrap();
        let (response, mut body) = client.send.clone().send_request(request, false).unwrap();
        let sending = tokio::spawn(async move {
            let mut beat = interval(BEAT);
            loop {
                beat.tick().await;
                if body.send_data(bytes::Bytes::from_static(b"x"), false).is_err() {
                    return;
                }
            }
        });
        let answer = http2::collect(response).await.unwrap();
        assert_eq!((answer.status, answer.code()), (408, "request_body_too_slow".to_owned()));
        sending.abort();
    });
}

/// What comes within a while by reads of so many bytes, and whether it ended.
async fn sip(client: &mut Client, count: usize) -> bool {
    let mut beat = interval(BEAT);
    let mut space = vec![0; count];
    loop {
        beat.tick().await;
        match timeout(Duration::from_secs(10), client.stream.read(&mut space)).await.unwrap() {
            Ok(0) | Err(_) => return true,
            Ok(_) => {}
        }
    }
}

/// A response that is larger than what sockets hold.
async fn large() -> Origin {
    let body = "x".repeat(32 << 20);
    Origin::answering(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await
}

#[test]
fn a_response_that_is_taken_too_slowly_is_cut() {
    run(async {
        let origin = large().await;
        let gateway = Spec::to(&origin).with(RATES).start().await;
        let mut client = gateway.client().await;
        client.send(get("/")).await;
        // It reads some bytes, which is less than what makes the kernel open the window.
        assert!(timeout(Duration::from_secs(30), async {
            let mut some = [0; 10];
            client.stream.read_exact(&mut some).await.unwrap();
            until("the response is cut", || {
                gateway.metric("cardea_aborted_requests_total{reason=\"response_too_slow\",http_response_status_code=\"200\"}") == 1
            })
            .await;
            true
        })
        .await
        .unwrap());
        assert!(sip(&mut client, 1 << 20).await);
        let log = gateway.log(1).await;
        assert_eq!(log[0]["reason"], "response_too_slow");
    });
}

/// The control: a client that takes enough gets all, however long that takes; so does one that waits for its service.
#[test]
fn a_response_at_the_rate_and_one_of_a_slow_service_are_whole() {
    run(async {
        let slow = Origin::start(|mut visit| async move {
            visit.request().await?;
            visit.send("HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n").await?;
            let mut beat = interval(BEAT * 2);
            for _ in 0..25 {
                beat.tick().await;
                visit.send("x").await?;
            }
            Ok(())
        })
        .await;
        let gateway = Spec::to(&slow).with(RATES).start().await;
        let response = gateway.client().await.exchange(get("/")).await;
        assert_eq!((response.status, response.body.len()), (200, 25));
    });
}
