//! Mirrors: copies of requests, and that nothing comes of what their service does.

use cardea_gateway::model::{MirrorOutcome, MirrorStats};
use serde_json::json;

use crate::support::{Harness, Origin, Spec, get, run, until};

/// The route `/` leads to `origin`, and its requests are copied to the service at `address`.
fn spec(origin: &Origin, address: impl std::fmt::Display, keys: &str) -> Spec {
    Spec::to(origin)
        .with(format!("[[service]]\nname = 'lab'\n[[service.endpoint]]\naddress = '{address}'\n"))
        .public(format!("mirror = {{ service = 'lab', {keys} }}"))
}

fn stats(gateway: &Harness) -> impl Fn(MirrorOutcome) -> u64 {
    let model = gateway.gateway.model();
    move |outcome| {
        let mut mirrors = model.mirrors();
        let stats: &MirrorStats = &mirrors.next().unwrap().1.stats;
        stats.outcomes().into_iter().find(|(other, _)| *other == outcome).unwrap().1
    }
}

/// Waits until an outcome was counted so often, and nothing is held any more.
async fn ended(gateway: &Harness, outcome: MirrorOutcome, count: u64) {
    let of = stats(gateway);
    until(outcome.as_str(), || of(outcome) == count).await;
    until("the copies are gone", || gateway.gateway.mirror_budget.used() == 0).await;
    assert_eq!(gateway.gateway.model().mirrors().next().unwrap().1.stats.in_flight(), 0);
}

fn post(body: &str, fields: &str) -> String {
    let length = body.len();
    format!("POST /a?b=c HTTP/1.1\r\nHost: a.example\r\n{fields}Content-Length: {length}\r\n\r\n{body}")
}

#[test]
fn a_copy_is_what_the_service_gets_with_a_mark() {
    run(async {
        let (origin, lab) = (Origin::ok().await, Origin::ok().await);
        let gateway = spec(&origin, lab.address, "").start().await;
        let mut client = gateway.client().await;
        let fields = "X-One: 1\r\nCardea-Mirrored: forged\r\nAuthorization: Bearer secret\r\n";
        let chunked = format!(
            "PUT /d HTTP/1.1\r\nHost: a.example\r\n{fields}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        );
        let expecting = post("hello", &format!("{fields}Expect: 100-continue\r\n"));
        let bodyless = format!("GET /a?b=c HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n");
        for (count, (request, length, body)) in (1..).zip([
            (bodyless, None, ""),
            (post("hello", fields), Some("content-length: 5"), "hello"),
            (post("", fields), Some("content-length: 0"), ""),
            (chunked, Some("content-length: 5"), "abcde"),
            (expecting, Some("content-length: 5"), "hello"),
        ]) {
            assert_eq!(client.exchange(&request).await.status, 200);
            ended(&gateway, MirrorOutcome::Success, count).await;
            let (sent, copied) = (origin.text().to_lowercase(), lab.text().to_lowercase());
            let (head, rest) = copied.rsplit_once("\r\n\r\n").unwrap();
            let head = head.rsplit_once("http/1.1\r\n").unwrap().1.to_owned() + "\r\n";
            assert_eq!(rest, body);
            assert_eq!(head.matches("cardea-mirrored: 1\r\n").count(), 1, "{head}");
            assert!(!copied.contains("forged") && !copied.contains("secret"), "{head}");
            assert!(sent.contains("secret") && !sent.contains("cardea-mirrored"), "{sent}");
            assert!(head.contains("x-one: 1\r\n") && head.contains("host: a.example\r\n"), "{head}");
            assert!(head.contains("x-forwarded-for: 127.0.0.1\r\n"), "{head}");
            assert!(!head.contains("transfer-encoding") && !head.contains("expect"), "{head}");
            match length {
                Some(length) => assert_eq!(head.matches(length).count(), 1, "{head}"),
                None => assert!(!head.contains("content-length"), "{head}"),
            }
        }
        assert_eq!(lab.connections(), 1, "its connection is kept");
    });
}

#[test]
fn authorization_is_kept_if_the_configuration_says_so() {
    run(async {
        let (origin, lab) = (Origin::ok().await, Origin::ok().await);
        let spec = spec(&origin, lab.address, "")
            .with("[[route]]\nname = 'api'\nmirror = { service = 'lab', forward_authorization = true }\n");
        let gateway = spec.start().await;
        let token = gateway.token_with(&json!({}));
        let request =
            format!("GET /api HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer {token}\r\n\r\n");
        assert_eq!(gateway.client().await.exchange(request).await.status, 200);
        lab.until(|text| text.contains(&token) && text.contains("GET /api ")).await;
    });
}

#[test]
fn a_service_that_fails_changes_nothing_and_gets_no_copy_twice() {
    run(async {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let garbage = Origin::closing("what?\r\n\r\n").await;
        let closing = Origin::closing("").await;
        let failing =
            Origin::answering("HTTP/1.1 503 No\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n").await;
        for (address, lab, outcome) in [
            (gone, None, MirrorOutcome::Failed),
            (garbage.address, Some(&garbage), MirrorOutcome::Failed),
            (closing.address, Some(&closing), MirrorOutcome::Failed),
            (failing.address, Some(&failing), MirrorOutcome::ServerError),
        ] {
            let origin = Origin::ok().await;
            let gateway = spec(&origin, address, "").start().await;
            let mut client = gateway.client().await;
            for count in 1..=3 {
                let response = client.exchange(post("hello", "")).await;
                assert_eq!((response.status, response.text().as_str()), (200, "ok"));
                ended(&gateway, outcome, count).await;
                if let Some(lab) = lab {
                    assert_eq!(lab.text().matches("POST /a").count() as u64, count);
                }
            }
            assert_eq!(origin.text().matches("POST /a").count(), 3);
        }
    });
}

#[test]
fn a_service_that_hangs_holds_a_bounded_number_of_copies_for_a_bounded_time() {
    run(async {
        let (origin, lab) = (Origin::ok().await, Origin::silent().await);
        let admission = "[[service]]\nname = 'main'\nadmission = { max_in_flight = 1, max_queue = 0 }\n";
        let keys = "in_flight_max = 2, timeout = '300ms'";
        let gateway = spec(&origin, lab.address, keys).with(admission).start().await;
        let mut client = gateway.client().await;
        for _ in 0..10 {
            // Copies hold no permit of the service.
            assert_eq!(client.exchange(get("/")).await.status, 200);
        }
        let of = stats(&gateway);
        assert!(of(MirrorOutcome::Limited) >= 7, "{}", of(MirrorOutcome::Limited));
        assert!(lab.connections() <= 3);
        until("the copies are given up", || of(MirrorOutcome::TimedOut) >= 2).await;
        let before = of(MirrorOutcome::TimedOut);
        // There is room again.
        assert_eq!(client.exchange(get("/")).await.status, 200);
        ended(&gateway, MirrorOutcome::TimedOut, before + 1).await;
    });
}

#[test]
fn a_response_without_end_is_given_up() {
    run(async {
        let origin = Origin::ok().await;
        let lab = Origin::start(|mut visit| async move {
            visit.request().await?;
            visit.send("HTTP/1.1 200 OK\r\n\r\n").await?;
            loop {
                visit.send([b'x'; 65_536]).await?;
            }
        })
        .await;
        let gateway = spec(&origin, lab.address, "timeout = '1m'").start().await;
        let mut client = gateway.client().await;
        for count in 1..=3 {
            assert_eq!(client.exchange(get("/")).await.status, 200);
            ended(&gateway, MirrorOutcome::Success, count).await;
        }
    });
}

#[test]
fn bodies_beyond_their_bounds_are_not_copied() {
    run(async {
        let (origin, lab) = (Origin::ok().await, Origin::ok().await);
        let limits = "[limits]\nreplay_bytes_max = '1KiB'\nmirror_total_bytes_max = '3KiB'\n";
        let gateway = spec(&origin, lab.address, "").with(limits).start().await;
        let mut client = gateway.client().await;
        let chunks = format!("400\r\n{}\r\n", "x".repeat(1024)).repeat(3);
        let chunked = format!(
            "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"
        );
        for (count, request) in (1..).zip([post(&"x".repeat(1025), ""), chunked]) {
            assert_eq!(client.exchange(request).await.status, 200);
            ended(&gateway, MirrorOutcome::BodyTooLarge, count).await;
        }
        assert_eq!(client.exchange(post(&"x".repeat(1024), "")).await.status, 200);
        ended(&gateway, MirrorOutcome::Success, 1).await;
        assert_eq!(lab.text().matches("POST").count(), 1);
        // The head counts too.
        let large = format!("X-Large: {}\r\n", "x".repeat(4000));
        assert_eq!(client.exchange(post("a", &large)).await.status, 200);
        ended(&gateway, MirrorOutcome::Limited, 1).await;
        assert_eq!(lab.text().matches("POST").count(), 1);
    });
}

#[test]
fn a_request_that_does_not_arrive_whole_is_not_copied() {
    run(async {
        let lab = Origin::ok().await;
        let origin = Origin::start(|mut visit| async move {
            visit.head().await?;
            visit.closed().await;
            Ok(())
        })
        .await;
        let gateway = spec(&origin, lab.address, "").start().await;
        let mut client = gateway.client().await;
        client.send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhel").await;
        origin.until(|text| text.contains("hel")).await;
        drop(client);
        ended(&gateway, MirrorOutcome::Incomplete, 1).await;
        assert_eq!(lab.connections(), 0);
    });
}

#[test]
fn a_request_that_is_retried_is_copied_once() {
    run(async {
        let lab = Origin::ok().await;
        let origin = Origin::resetting().await;
        let gateway = spec(&origin, lab.address, "").start().await;
        let mut client = gateway.client().await;
        let put = post("hello", "").replacen("POST", "PUT", 1);
        for count in 1..=2 {
            assert_eq!(client.exchange(&put).await.status, 200);
            ended(&gateway, MirrorOutcome::Success, count).await;
        }
        assert_eq!((origin.connections(), lab.text().matches("PUT").count()), (2, 2));
    });
}

#[test]
fn a_part_of_the_requests_is_copied() {
    run(async {
        let (origin, lab) = (Origin::ok().await, Origin::ok().await);
        let gateway = spec(&origin, lab.address, "sample_one_in = 4").start().await;
        let mut client = gateway.client().await;
        for _ in 0..400 {
            assert_eq!(client.exchange(get("/")).await.status, 200);
        }
        let of = stats(&gateway);
        until("all have ended", || gateway.gateway.mirror_budget.used() == 0).await;
        let count = of(MirrorOutcome::Success);
        assert!((60..140).contains(&count), "{count}");
    });
}

#[test]
fn what_is_counted_survives_a_reload() {
    run(async {
        let (origin, lab) = (Origin::ok().await, Origin::ok().await);
        let gateway = spec(&origin, lab.address, "").start().await;
        assert_eq!(gateway.client().await.exchange(get("/")).await.status, 200);
        ended(&gateway, MirrorOutcome::Success, 1).await;
        gateway.reload(spec(&origin, lab.address, "sample_one_in = 1000000"));
        assert_eq!(stats(&gateway)(MirrorOutcome::Success), 1);
    });
}
