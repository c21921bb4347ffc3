//! Endpoints that fail: which requests are tried elsewhere, and who gets no more of them.

use std::{io, time::Duration};

use cardea_clock::{ManualClock, Wall};
use cardea_upstream::{Address, RetryCause};
use tokio::sync::watch;

use crate::{
    http2,
    support::{Harness, Origin, Spec, certificates::Certificates, get, origin::OK, run, until},
};

const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";
const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy";

/// Accepts, reads a request and closes.
async fn hanging_up() -> Origin {
    Origin::start(|mut visit| async move { visit.request().await.map(drop) }).await
}

fn to(origins: &[&Origin]) -> Spec {
    Spec::to_addresses(origins.iter().map(|origin| Address::Tcp(origin.address)))
}

fn requests_at(origin: &Origin) -> usize {
    origin.text().matches(" HTTP/1.1\r\n").count()
}

fn stats(gateway: &Harness) -> cardea_upstream::ServiceStats {
    gateway.gateway.model().services[0].live.state().stats()
}

fn ejections(gateway: &Harness, endpoint: usize) -> u64 {
    stats(gateway).endpoints[endpoint].ejections.iter().map(|(_, count)| count).sum()
}

fn post() -> String {
    "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello".to_owned()
}

#[test]
fn an_endpoint_that_reads_and_closes_is_ejected_and_its_requests_are_served_elsewhere() {
    run(async {
        let (bad, good) = (hanging_up().await, Origin::ok().await);
        let gateway = to(&[&bad, &good]).start().await;
        let mut client = gateway.client().await;
        for _ in 0..200 {
            assert_eq!(client.exchange(get("/")).await.status, 200);
        }
        assert!(requests_at(&bad) < 20, "{}", requests_at(&bad));
        assert_eq!(requests_at(&good), 200);
        // Fewer are drawn than would eject it: each costs it a share of its requests.
        let retries: u64 = stats(&gateway).retries.iter().map(|(_, [allowed, _])| allowed).sum();
        assert_eq!(retries, requests_at(&bad) as u64);
    });
}

#[test]
fn instant_errors_attract_no_requests_and_are_not_passed_on() {
    run(async {
        let (bad, good) = (Origin::answering(UNAVAILABLE).await, Origin::ok().await);
        let gateway = to(&[&bad, &good]).start().await;
        let mut client = gateway.client().await;
        for _ in 0..200 {
            assert_eq!(client.exchange(get("/")).await.text(), "ok");
        }
        assert!(requests_at(&bad) < 20, "{}", requests_at(&bad));
        assert_eq!(bad.connections(), 1, "a response that is there whole costs no connection");
    });
}

#[test]
fn five_failures_in_a_row_eject_whatever_the_balance() {
    run(async {
        for bad in [hanging_up().await, Origin::answering(UNAVAILABLE).await] {
            let good = Origin::ok().await;
            let spec = to(&[&bad, &good]).with("balance = 'round-robin'");
            let gateway = spec.start().await;
            let mut client = gateway.client().await;
            let before_the_probe = 40;
            for _ in 0..before_the_probe {
                assert_eq!(client.exchange(get("/")).await.status, 200);
            }
            assert_eq!((ejections(&gateway, 0), ejections(&gateway, 1)), (1, 0));
            assert!(stats(&gateway).endpoints[0].ejected);
            assert_eq!(requests_at(&bad), 5);
        }
    });
}

#[test]
fn no_post_arrives_twice_and_its_error_is_passed_on() {
    run(async {
        for (bad, status) in [(hanging_up().await, 502), (Origin::answering(UNAVAILABLE).await, 503)] {
            let good = Origin::ok().await;
            let gateway = to(&[&bad, &good]).start().await;
            let mut client = gateway.client().await;
            let mut answers = [0, 0];
            for _ in 0..50 {
                let response = client.exchange(post()).await;
                answers[usize::from(response.status == status)] += 1;
                assert!([200, status].contains(&response.status), "{}", response.status);
            }
            assert_eq!(requests_at(&bad) + requests_at(&good), 50);
            assert_eq!([requests_at(&good), requests_at(&bad)], answers);
        }
    });
}

#[test]
fn a_head_that_is_cut_short_is_no_response_and_is_fetched_elsewhere() {
    run(async {
        let cut = Origin::start(|mut visit| async move {
            visit.request().await?;
            visit.send("HTTP/1.1 200 OK\r\nContent-Le").await
        })
        .await;
        let good = Origin::ok().await;
        let gateway = to(&[&cut, &good]).start().await;
        let mut client = gateway.client().await;
        for _ in 0..20 {
            assert_eq!(client.exchange(get("/")).await.text(), "ok");
        }
        assert!(requests_at(&cut) > 0);
    });
}

#[test]
fn a_body_is_resent_to_another_endpoint_if_fully_buffered() {
    run(async {
        for (bytes, status) in [(5_000, 200), (20_000, 502)] {
            let (bad, good) = (hanging_up().await, Origin::ok().await);
            let spec = to(&[&bad, &good]).with("limits.replay_bytes_max = '10KB'");
            let gateway = spec.start().await;
            let mut client = gateway.client().await;
            let body = "x".repeat(bytes);
            let put = format!("PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {bytes}\r\n\r\n{body}");
            for _ in 0..20 {
                let response = client.exchange(&put).await;
                assert!([200, status].contains(&response.status), "{}", response.status);
                if requests_at(&bad) > 0 {
                    assert_eq!(response.status, status);
                    break;
                }
            }
            assert_eq!(requests_at(&bad), 1);
            assert_eq!(good.text().matches(&body).count(), requests_at(&good));
            assert_eq!(gateway.gateway.replay_budget.used(), 0);
        }
    });
}

#[test]
fn requests_do_not_wait_behind_connections_that_are_not_made() {
    run(async {
        // A queue that is full: connecting there never ends.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        let _listener = socket.listen(1).unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) =
            tokio::time::timeout(Duration::from_millis(100), tokio::net::TcpStream::connect(address)).await
        {
            waiting.push(stream.unwrap());
        }
        let good = Origin::ok().await;
        let spec = Spec::to_addresses([Address::Tcp(address), Address::Tcp(good.address)]);
        let gateway = spec.with("timeouts.connect = '20s'").start().await;
        let mut stalled = Vec::new();
        for _ in 0..100 {
            let mut client = gateway.client().await;
            client.send(get("/")).await;
            stalled.push(client);
            let done = || requests_at(&good) + stats(&gateway).endpoints[0].in_flight == stalled.len();
            until("it was served, or waits", done).await;
        }
        let pending = stats(&gateway).endpoints[0].connects_pending;
        assert!((1..=2).contains(&pending), "{pending} of 100");
    });
}

#[test]
fn an_endpoint_that_recovers_is_used_again_after_one_probe() {
    run(async {
        let well = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let says = std::sync::Arc::clone(&well);
        let sick = Origin::start(move |mut visit| {
            let says = std::sync::Arc::clone(&says);
            async move {
                loop {
                    visit.request().await?;
                    let well = says.load(std::sync::atomic::Ordering::Relaxed);
                    visit.send(if well { OK } else { UNAVAILABLE }).await?;
                }
            }
        })
        .await;
        let good = Origin::ok().await;
        let spec =
            to(&[&sick, &good]).with("failover = { ejection_time = '50ms', consecutive_failures = 1 }");
        let gateway = spec.start().await;
        let mut client = gateway.client().await;
        while ejections(&gateway, 0) == 0 {
            assert_eq!(client.exchange(get("/")).await.status, 200);
        }
        well.store(true, std::sync::atomic::Ordering::Relaxed);
        while stats(&gateway).endpoints[0].ejected {
            assert_eq!(client.exchange(get("/")).await.status, 200);
        }
        assert_eq!(ejections(&gateway, 0), 1, "the first probe has brought it back");
    });
}

#[test]
fn errors_of_clients_and_clients_that_leave_are_no_failures() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            loop {
                if visit.request().await?.line().contains("slow") {
                    visit.closed().await;
                    return Ok(());
                }
                visit.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await?;
            }
        })
        .await;
        let good = Origin::ok().await;
        let spec = to(&[&origin, &good]).with("balance = 'round-robin'");
        let gateway = spec.start().await;
        let mut client = gateway.client().await;
        let mut statuses = [0, 0];
        for _ in 0..40 {
            statuses[usize::from(client.exchange(get("/")).await.status == 404)] += 1;
        }
        assert_eq!(statuses, [20, 20]);
        for count in 1..=20 {
            let mut leaving = gateway.client().await;
            leaving.send(get("/slow")).await;
            let seen = || requests_at(&origin) + requests_at(&good) >= 40 + count;
            until("it was sent", seen).await;
        }
        let failures = stats(&gateway).endpoints.into_iter().flat_map(|endpoint| endpoint.failures);
        assert_eq!(failures.map(|(_, count)| count).sum::<u64>(), 0);
        assert_eq!(ejections(&gateway, 0), 0);
    });
}

/// Sends the head of a POST and `body` of its five bytes, has `then` happen, and returns the status.
async fn post_in_part(
    gateway: &Harness,
    certificates: Option<&Certificates>,
    body: &'static str,
    then: impl Future<Output = ()>,
) -> u16 {
    let Some(certificates) = certificates else {
        let mut client = gateway.client().await;
        let head = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\n";
        client.send(format!("{head}{body}")).await;
        then.await;
        return client.response().await.status;
    };
    let mut client = http2::connect(gateway, certificates, "a.example").await;
    let head = http2::request("POST", "https://a.example/").header("content-length", 5).body(()).unwrap();
    let (response, mut stream) = client.send.send_request(head, false).unwrap();
    stream.send_data(body.into(), body.len() == 5).unwrap();
    then.await;
    http2::collect(response).await.unwrap().status
}

/// RFC 9112 §9.3.1 lets an endpoint close an idle connection; one that has begun to answer was not idle.
#[test]
fn a_reused_connection_that_is_closed_after_an_informational_response_is_a_failure() {
    let hints = "HTTP/1.1 103 Early Hints\r\n\r\n";
    for (before, cause, failures) in
        [("", RetryCause::Stale, 0), (CONTINUE, RetryCause::Closed, 1), (hints, RetryCause::Closed, 1)]
    {
        run(async move {
            let origin = Origin::start(move |mut visit| async move {
                visit.request().await?;
                visit.send(OK).await?;
                visit.request().await?;
                if visit.index == 0 { visit.send(before).await } else { visit.send(OK).await }
            })
            .await;
            let other = Origin::ok().await;
            let gateway = to(&[&origin, &other]).with("balance = 'round-robin'").start().await;
            let mut client = gateway.client().await;
            for _ in 0..4 {
                client.send(get("/")).await;
                while client.response().await.status < 200 {}
            }
            let stats = stats(&gateway);
            let retries: Vec<_> = stats.retries.iter().filter(|(_, [allowed, _])| *allowed > 0).collect();
            assert_eq!(retries, [&(cause, [1, 0])], "{before:?}");
            let counted: Vec<_> = stats.endpoints.iter().flat_map(|endpoint| endpoint.failures).collect();
            assert_eq!(counted.iter().map(|(_, count)| count).sum::<u64>(), failures, "{before:?}");
        });
    }
}

#[test]
fn an_endpoint_that_does_not_wait_for_a_slow_client_has_not_failed() {
    let second = Duration::from_secs(1);
    for (what, body, wait, failures) in [
        ("a slow client", "hel", 2 * second, 0),
        ("a client that sends nothing of its body", "", second, 0),
        // The controls.
        ("all of the request was there", "hello", 2 * second, 1),
        ("the endpoint gives up at once", "hel", Duration::ZERO, 1),
    ] {
        for (over_http2, before) in [(false, ""), (true, ""), (false, CONTINUE)] {
            run(async move {
                println!("{what}, over HTTP/{}, {before}", if over_http2 { 2 } else { 1 });
                let (close, closing) = watch::channel(false);
                let origin = Origin::start(move |mut visit| {
                    let mut closing = closing.clone();
                    async move {
                        visit.head().await?;
                        visit.send(before).await?;
                        visit.bytes(body.len()).await?;
                        closing.wait_for(|closing| *closing).await.map(drop).map_err(io::Error::other)
                    }
                })
                .await;
                let certificates = Certificates::new();
                let clock = ManualClock::new(Wall::from_unix_seconds(1_900_000_000));
                let spec = to(&[&origin]);
                let spec = if over_http2 { spec.with(certificates.listener()) } else { spec };
                let gateway = Spec { clock: Some(clock.clock()), ..spec }.start().await;
                let (origin, clock) = (&origin, &clock);
                let then = async move {
                    let seen = || origin.text().ends_with(&format!("\r\n\r\n{body}"));
                    until("the endpoint has it", seen).await;
                    clock.advance(wait);
                    close.send_replace(true);
                };
                let certificates = over_http2.then_some(&certificates);
                assert_eq!(post_in_part(&gateway, certificates, body, then).await, 502);
                let counted = &stats(&gateway).endpoints[0].failures;
                assert_eq!(counted.iter().map(|(_, count)| count).sum::<u64>(), failures);
            });
        }
    }
}

#[test]
fn with_one_endpoint_its_errors_are_passed_on_and_it_stays_in_use() {
    run(async {
        let bad = Origin::answering(UNAVAILABLE).await;
        let gateway = to(&[&bad]).start().await;
        let mut client = gateway.client().await;
        for _ in 0..20 {
            let response = client.exchange(get("/")).await;
            assert_eq!((response.status, response.text().as_str()), (503, "busy"));
        }
        assert_eq!((requests_at(&bad), ejections(&gateway, 0)), (20, 0));
    });
}

#[test]
fn where_all_fail_half_stay_in_use() {
    run(async {
        let origins = [hanging_up().await, hanging_up().await, hanging_up().await, hanging_up().await];
        let gateway = to(&origins.each_ref()).start().await;
        let mut client = gateway.client().await;
        for _ in 0..60 {
            assert_eq!(client.exchange(get("/")).await.status, 502);
        }
        let stats = stats(&gateway);
        assert_eq!(stats.endpoints.iter().filter(|endpoint| endpoint.ejected).count(), 2);
        let attempts: usize = origins.iter().map(requests_at).sum();
        assert!(attempts <= 60 * 3, "{attempts}");
    });
}

#[test]
fn a_request_to_a_slow_endpoint_is_retried_at_another() {
    run(async {
        let (slow, good) = (Origin::silent().await, Origin::ok().await);
        let spec = |origins: &[&Origin]| {
            to(origins).with("[[service]]\nname = 'main'\nfailover.try_timeout = '50ms'")
        };
        let gateway = spec(&[&slow, &good]).start().await;
        let mut client = gateway.client().await;
        for _ in 0..30 {
            assert_eq!(client.exchange(get("/")).await.status, 200);
        }
        assert!(requests_at(&slow) > 0 && requests_at(&slow) < 5, "{}", requests_at(&slow));
        // What may not be sent twice is not, even so.
        let gateway = spec(&[&slow]).start().await;
        let response = gateway.client().await.exchange(post()).await;
        assert_eq!((response.status, response.code().as_str()), (504, "upstream_response_head_timeout"));
    });
}

#[test]
fn the_retry_budget_bounds_retries() {
    run(async {
        let origins = [Origin::answering(UNAVAILABLE).await, Origin::answering(UNAVAILABLE).await];
        let budget = "failover = { retry_percent = 10, retries_per_second = 0, retries_saved_max = 5 }";
        let spec = to(&origins.each_ref()).with(budget);
        let gateway = spec.start().await;
        let mut client = gateway.client().await;
        for _ in 0..100 {
            assert_eq!(client.exchange(get("/")).await.status, 503);
        }
        let attempts = requests_at(&origins[0]) + requests_at(&origins[1]);
        assert!((105..=115).contains(&attempts), "{attempts}");
    });
}

#[test]
fn when_one_of_three_endpoints_dies_under_load_no_idempotent_request_is_lost() {
    run(async {
        let (kill, killed) = tokio::sync::watch::channel(false);
        let mortal = Origin::start(move |mut visit| {
            let mut killed = killed.clone();
            async move {
                loop {
                    tokio::select! {
                        biased;
                        () = async { drop(killed.wait_for(|killed| *killed).await) } => {
                            visit.reset();
                            return Ok(());
                        }
                        request = visit.request() => {
                            request?;
                            visit.send(OK).await?;
                        }
                    }
                }
            }
        })
        .await;
        let others = [Origin::ok().await, Origin::ok().await];
        let gateway = to(&[&mortal, &others[0], &others[1]]).start().await;
        let mut clients = Vec::new();
        for _ in 0..12 {
            clients.push(gateway.client().await);
        }
        for round in 0..40 {
            for (at, client) in clients.iter_mut().enumerate() {
                client.send(get(&format!("/{round}-{at}-"))).await;
            }
            if round == 15 {
                kill.send_replace(true);
            }
            for client in &mut clients {
                assert_eq!(client.response().await.status, 200, "round {round}");
            }
        }
        assert!(requests_at(&mortal) > 0);
        let seen = [&mortal, &others[0], &others[1]].map(Origin::text).concat();
        for round in 0..40 {
            assert!((0..12).all(|at| seen.contains(&format!("GET /{round}-{at}- "))), "round {round}");
        }
    });
}

#[test]
fn turns_go_on_past_an_endpoint_that_resets_and_bodies_arrive_whole() {
    run(async {
        // Its resets come before or after the first octet is sent.
        let bad = Origin::start(|visit| async move {
            visit.reset();
            Ok(())
        })
        .await;
        let good = Origin::start(|mut visit| async move {
            loop {
                let length = visit.request().await?.body.len().to_string();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", length.len());
                visit.send(head + &length).await?;
            }
        })
        .await;
        let spec =
            to(&[&bad, &good]).with("balance = 'round-robin'").with("[failover]\nejected_percent_max = 0");
        let gateway = spec.start().await;
        let body = "x".repeat(440);
        for method in ["POST", "PUT"] {
            let request = format!(
                "{method} / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n1b8\r\n{body}\r\n0\r\n\r\n"
            );
            let mut client = gateway.client().await;
            let mut whole = 0;
            for _ in 0..300 {
                let response = client.exchange(&request).await;
                match response.status {
                    200 => {
                        assert_eq!(response.text(), "440", "{method}");
                        whole += 1;
                    }
                    // A POST that was sent in part is not repeated, and the budget of retries has an end.
                    status => assert_eq!(status, 502),
                }
                if response.closes() {
                    client = gateway.client().await;
                }
            }
            assert!(whole >= 100, "{method}: {whole}");
        }
    });
}
