//! Bodies after responses that have none: what comes late must not be another client's response.

use std::time::Duration;

use cardea_upstream::HOLD_FOR;

use crate::support::{Origin, Spec, get, origin::OK, run, until};

/// What is sent after the head of a response that has no body: a response that somebody else is to take for theirs.
const FOREIGN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nforeign";

/// Answers `/bodiless` with `head` and sends what follows it a little later; everything else with [`OK`].
async fn late(head: &'static str) -> Origin {
    Origin::start(move |mut visit| async move {
        for number in 0_u64.. {
            let request = visit.request().await?;
            if request.line().contains("/bodiless") {
                visit.send(head).await?;
                // tidy: sleep: the lateness is what is tested, and nothing waits for it
                tokio::time::sleep(Duration::from_millis(1 + number % 3)).await;
                visit.send(FOREIGN).await?;
            } else {
                visit.send(OK).await?;
            }
        }
        Ok(())
    })
    .await
}

#[test]
fn a_late_body_after_a_response_without_one_is_never_delivered() {
    run(async {
        for (method, head) in [
            ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 45\r\n\r\n"),
            ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 45\r\n\r\n"),
            ("DELETE", "HTTP/1.1 204 No Content\r\n\r\n"),
            ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
            ("GET", "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n"),
        ] {
            let origin = late(head).await;
            let gateway = Spec::to(&origin).start().await;
            let (mut attacker, mut victim) = (gateway.client().await, gateway.client().await);
            assert_eq!(victim.exchange(get("/")).await.text(), "ok");
            for round in 0..200 {
                attacker.send(format!("{method} /bodiless HTTP/1.1\r\nHost: a.example\r\n\r\n")).await;
                attacker.try_response(method == "HEAD").await.unwrap();
                let response = victim.exchange(get("/")).await;
                assert_eq!((response.status, response.text().as_str()), (200, "ok"), "{method} {round}");
            }
        }
    });
}

#[test]
fn a_connection_is_used_again_after_a_response_without_a_body_once_it_was_quiet_for_a_while() {
    run(async {
        for (method, answer) in [
            ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 45\r\n\r\n"),
            ("GET", "HTTP/1.1 304 Not Modified\r\n\r\n"),
            ("DELETE", "HTTP/1.1 204 No Content\r\n\r\n"),
        ] {
            let origin = Origin::answering(answer).await;
            let gateway = Spec::to(&origin).start().await;
            let mut client = gateway.client().await;
            let request = format!("{method} / HTTP/1.1\r\nHost: a.example\r\n\r\n");
            for _ in 0..2 {
                client.send(&request).await;
                client.try_response(method == "HEAD").await.unwrap();
            }
            assert_eq!(origin.connections(), 2, "{method}: the first one is held");
            let now = gateway.gateway.clock.mono();
            until("the time is over", || gateway.gateway.clock.mono().saturating_since(now) > HOLD_FOR).await;
            client.send(&request).await;
            client.try_response(method == "HEAD").await.unwrap();
            assert_eq!(origin.connections(), 2, "{method}: one of them is used again");
        }
    });
}

#[test]
fn other_responses_hold_no_connection() {
    run(async {
        for answer in [OK, "HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 2\r\n\r\nok"] {
            let origin = Origin::answering(answer).await;
            let gateway = Spec::to(&origin).start().await;
            let mut client = gateway.client().await;
            for _ in 0..20 {
                client.exchange(get("/")).await;
            }
            assert_eq!(origin.connections(), 1);
        }
    });
}

#[test]
fn an_endpoint_that_sent_a_body_after_head_keeps_no_connection_after_responses_without_one() {
    run(async {
        let origin = late("HTTP/1.1 200 OK\r\nContent-Length: 45\r\n\r\n").await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        let head = |path: &str| format!("HEAD {path} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        client.send(head("/bodiless")).await;
        client.try_response(true).await.unwrap();
        let now = gateway.gateway.clock.mono();
        until("the time is over", || gateway.gateway.clock.mono().saturating_since(now) > HOLD_FOR).await;
        // Finds the surplus on the connection that was held, and takes another.
        assert_eq!(client.exchange(get("/")).await.text(), "ok");
        assert_eq!(origin.connections(), 2);
        for count in 2..6 {
            client.send(head("/quiet")).await;
            client.try_response(true).await.unwrap();
            origin.ended(count).await;
        }
        assert_eq!(client.exchange(get("/")).await.text(), "ok");
        assert_eq!(client.exchange(get("/")).await.text(), "ok");
        assert_eq!(origin.connections(), 6, "after a body it is used again: the control");
    });
}
