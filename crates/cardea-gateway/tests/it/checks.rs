//! Active checks of endpoints.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use cardea_gateway::checks::Checks;
use cardea_upstream::{Address, CheckResult, EndpointStats, FailureKind};

use crate::support::{Harness, Origin, Spec, get, origin::OK, run, until};

const FAST: &str =
    "[health_check]\nprotocol = 'http'\npath = '/health?deep=1'\ninterval = '100ms'\ntimeout = '1s'\n";

fn to(origins: &[&Origin]) -> Spec {
    Spec::to_addresses(origins.iter().map(|origin| Address::Tcp(origin.address)))
}

fn stats(gateway: &Harness, endpoint: usize) -> EndpointStats {
    stats_of(gateway, "main").swap_remove(endpoint)
}

fn stats_of(gateway: &Harness, service: &str) -> Vec<EndpointStats> {
    let model = gateway.gateway.model();
    let service = model.services.iter().find(|known| known.name == service).unwrap();
    service.live.state().stats().endpoints
}

fn passed(stats: &EndpointStats) -> u64 {
    stats.checks.iter().filter(|(result, _)| *result == CheckResult::Passed).map(|(_, count)| count).sum()
}

fn failed(stats: &EndpointStats) -> u64 {
    stats.checks.iter().filter(|(result, _)| *result != CheckResult::Passed).map(|(_, count)| count).sum()
}

fn begin(gateway: &Harness) -> Checks {
    let checks = Checks::new(&gateway.gateway);
    checks.follow(&gateway.gateway.model().services);
    checks
}

async fn is(gateway: &Harness, endpoint: usize, up: bool) {
    until("the state of the endpoint", || stats(gateway, endpoint).check.up == Some(up)).await;
}

/// Answers checks as `healthy` says, and other requests with 200.
async fn switched(healthy: &Arc<AtomicBool>) -> Origin {
    let healthy = Arc::clone(healthy);
    Origin::start(move |mut visit| {
        let healthy = Arc::clone(&healthy);
        async move {
            loop {
                let request = visit.request().await?;
                let fails = request.line().contains("/health") && !healthy.load(SeqCst);
                let down = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
                visit.send(if fails { down } else { OK }).await?;
            }
        }
    })
    .await
}

#[test]
fn an_endpoint_whose_checks_fail_gets_no_requests_until_they_pass() {
    run(async {
        let healthy = Arc::new(AtomicBool::new(true));
        let (one, other) = (switched(&healthy).await, Origin::ok().await);
        let gateway = to(&[&one, &other]).with(FAST).start().await;
        let _checks = begin(&gateway);
        is(&gateway, 0, true).await;
        is(&gateway, 1, true).await;
        assert!(one.text().contains("GET /health?deep=1 HTTP/1.1\r\n"));
        assert!(one.text().contains(&format!("Host: {}\r\n", one.address)));
        healthy.store(false, SeqCst);
        is(&gateway, 0, false).await;
        let down = stats(&gateway, 0);
        assert!(!down.available && !down.ejected, "the states are separate");
        assert_eq!(down.check.last, Some(CheckResult::Failed(FailureKind::Status)));
        let mut client = gateway.client().await;
        for request in 0..40 {
            assert_eq!(client.exchange(get(&format!("/{request}"))).await.status, 200);
        }
        assert!(!one.text().contains("GET /0 ") && !one.text().contains("GET /39 "));
        healthy.store(true, SeqCst);
        is(&gateway, 0, true).await;
        until("it gets requests again", || stats(&gateway, 0).available).await;
    });
}

#[test]
fn what_is_no_good_answer_fails_a_check() {
    run(async {
        let moved = "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 2\r\n\r\nok".to_owned();
        let endless = format!("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n{}", "x".repeat(200 << 10));
        let chunked =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nit i\r\n6\r\ns fine\r\n0\r\n\r\n";
        let (status, body) = (CheckResult::Failed(FailureKind::Status), CheckResult::Body);
        for (answer, keys, wanted) in [
            (OK.to_owned(), "", CheckResult::Passed),
            (OK.to_owned(), "statuses = [204]", status),
            (moved.clone(), "", status),
            (moved, "statuses = [302]", CheckResult::Passed),
            (OK.to_owned(), "body_contains = 'ok'", CheckResult::Passed),
            (OK.to_owned(), "body_contains = 'fine'", body),
            (chunked.to_owned(), "body_contains = 'it is fine'", CheckResult::Passed),
            (endless.clone(), "body_contains = 'fine'", body),
            (endless, "", CheckResult::Passed),
            ("SSH-2.0-garbage\r\n\r\n".to_owned(), "", CheckResult::Failed(FailureKind::Malformed)),
            ("HTTP/1.1 200".to_owned(), "", CheckResult::Failed(FailureKind::Closed)),
            (String::new(), "", CheckResult::Failed(FailureKind::Closed)),
        ] {
            let origin = Origin::closing(answer.clone()).await;
            let gateway = to(&[&origin]).with(format!("{FAST}{keys}")).start().await;
            let _checks = begin(&gateway);
            until("a result", || stats(&gateway, 0).check.last.is_some()).await;
            let found = stats(&gateway, 0).check;
            let answer: String = answer.chars().take(60).collect();
            assert_eq!(found.last, Some(wanted), "{answer:?} {keys}");
            assert_eq!(found.up, Some(wanted == CheckResult::Passed), "the first check decides");
            assert!(!origin.text().contains("/elsewhere"), "a redirect is not followed");
        }
    });
}

#[test]
fn a_target_that_never_answers_or_trickles_fails_in_time_and_holds_up_no_other_check() {
    run(async {
        let trickling = Origin::start(|mut visit| async move {
            visit.request().await?;
            visit.send("HTTP/1.1 200 OK\r\nX-Endless: ").await?;
            let mut every = tokio::time::interval(std::time::Duration::from_millis(5));
            loop {
                every.tick().await;
                visit.send("x").await?;
            }
        })
        .await;
        let (silent, good) = (Origin::silent().await, Origin::ok().await);
        let spec = to(&[&trickling, &silent, &good]).with(FAST).with("[health_check]\ntimeout = '200ms'");
        let gateway = spec.start().await;
        let _checks = begin(&gateway);
        for (endpoint, up) in [(2, true), (0, false), (1, false)] {
            is(&gateway, endpoint, up).await;
        }
        let late = Some(CheckResult::Failed(FailureKind::ResponseTimeout));
        assert_eq!([0, 1].map(|endpoint| stats(&gateway, endpoint).check.last), [late; 2]);
        assert_eq!(stats(&gateway, 2).check.up, Some(true));
    });
}

#[test]
fn a_connection_is_enough_for_tcp() {
    run(async {
        let origin = Origin::silent().await;
        let gone = Origin::ok().await;
        let address = gone.address;
        drop(gone);
        until("nothing listens", || std::net::TcpStream::connect(address).is_err()).await;
        let endpoints = [Address::Tcp(origin.address), Address::Tcp(address)];
        let spec = Spec::to_addresses(endpoints).with(FAST).with("[health_check]\nprotocol = 'tcp'");
        let gateway = spec.start().await;
        let _checks = begin(&gateway);
        is(&gateway, 0, true).await;
        is(&gateway, 1, false).await;
        assert_eq!(stats(&gateway, 1).check.last, Some(CheckResult::Failed(FailureKind::Connect)));
        assert_eq!(origin.text(), "");
    });
}

#[test]
fn reloads_begin_and_end_checks_and_what_they_found() {
    run(async {
        let origins =
            [Origin::answering("HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n").await, Origin::ok().await];
        let spec = |origins: &[&Origin]| to(origins).with(FAST);
        let both: Vec<_> = origins.iter().collect();
        let gateway = spec(&both).start().await;
        let checks = begin(&gateway);
        is(&gateway, 0, false).await;
        is(&gateway, 1, true).await;
        // An endpoint that stays is as it was, whatever else changes.
        gateway.reload(spec(&both).with("[failover]\nattempts_max = 2"));
        checks.follow(&gateway.gateway.model().services);
        assert_eq!((checks.count(), stats(&gateway, 0).check.up), (2, Some(false)));
        gateway.reload(spec(&both[1..]));
        checks.follow(&gateway.gateway.model().services);
        assert_eq!(checks.count(), 1);
        gateway.reload(to(&both));
        checks.follow(&gateway.gateway.model().services);
        assert_eq!(checks.count(), 0);
        let unchecked = stats(&gateway, 1);
        assert!(unchecked.available && unchecked.check.up.is_none(), "nothing is known without checks");
    });
}

#[test]
fn where_all_are_down_requests_are_sent_all_the_same() {
    run(async {
        let healthy = Arc::new(AtomicBool::new(false));
        let origin = switched(&healthy).await;
        let gateway = to(&[&origin]).with(FAST).start().await;
        let _checks = begin(&gateway);
        is(&gateway, 0, false).await;
        assert_eq!(gateway.client().await.exchange(get("/")).await.status, 200);
        assert!(gateway.gateway.model().services[0].live.state().stats().panicking);
    });
}

#[test]
fn checks_use_one_connection_as_long_as_the_endpoint_keeps_it() {
    run(async {
        let failing = "HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\noh";
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
        for (answer, keys) in [
            (OK.to_owned(), ""),
            (OK.to_owned(), "body_contains = 'o'"),
            (failing.to_owned(), ""),
            (chunked.to_owned(), ""),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n".to_owned(), "method = 'HEAD'"),
        ] {
            let origin = Origin::answering(answer.clone()).await;
            let gateway = to(&[&origin]).with(format!("{FAST}{keys}")).start().await;
            let checks = begin(&gateway);
            until("checks", || passed(&stats(&gateway, 0)) + failed(&stats(&gateway, 0)) >= 4).await;
            assert_eq!(origin.connections(), 1, "{answer:?} {keys}");
            until("it is counted", || stats(&gateway, 0).check_connections == 1).await;
            drop(checks);
            origin.ended(1).await;
            until("it is closed", || stats(&gateway, 0).check_connections == 0).await;
        }
    });
}

#[test]
fn a_connection_that_may_carry_something_else_is_not_used_again() {
    run(async {
        for answer in [
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        ] {
            let origin = Origin::answering(answer).await;
            let gateway = to(&[&origin]).with(FAST).start().await;
            let _checks = begin(&gateway);
            until("checks", || passed(&stats(&gateway, 0)) >= 3).await;
            assert!(origin.connections() >= 3, "{answer:?}");
            let text = origin.received();
            let requests = |text: &Vec<u8>| memchr::memmem::find_iter(text, b"GET ").count();
            assert!(text.iter().all(|text| requests(text) <= 1), "{answer:?}");
            assert_eq!(failed(&stats(&gateway, 0)), 0, "{answer:?}");
        }
    });
}

#[test]
fn a_kept_connection_that_the_endpoint_closes_fails_no_check() {
    run(async {
        let tired = "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        // Closed after each response without a word, reset on the second request, answered with a farewell.
        let closing = Origin::closing(OK).await;
        let resetting = Origin::start(|mut visit| async move {
            visit.request().await?;
            visit.send(OK).await?;
            visit.request().await?;
            visit.reset();
            Ok(())
        })
        .await;
        let farewell = Origin::start(move |mut visit| async move {
            visit.request().await?;
            visit.send(OK).await?;
            visit.request().await?;
            visit.send(tired).await
        })
        .await;
        // On a new connection, the same are failures.
        let dead = Origin::closing("").await;
        let refusing = Origin::answering(tired).await;
        let origins = [&closing, &resetting, &farewell, &dead, &refusing];
        let gateway = to(&origins).with(FAST).start().await;
        let _checks = begin(&gateway);
        for (endpoint, origin) in origins.iter().enumerate().take(3) {
            until("checks", || passed(&stats(&gateway, endpoint)) >= 4).await;
            assert_eq!(failed(&stats(&gateway, endpoint)), 0, "{endpoint}");
            assert!(origin.connections() >= 3, "{endpoint}");
        }
        for (endpoint, kind) in [(3, FailureKind::Closed), (4, FailureKind::Status)] {
            is(&gateway, endpoint, false).await;
            let stats = stats(&gateway, endpoint);
            assert_eq!((stats.check.last, passed(&stats)), (Some(CheckResult::Failed(kind)), 0));
        }
    });
}

#[test]
fn endpoints_that_answer_nothing_delay_no_check_of_another_service() {
    run(async {
        // Connections are accepted by the system, and nothing is ever read there.
        let silent = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let addresses = (0..300_u16).map(|at| {
            let [high, low] = at.to_be_bytes();
            Address::Tcp(([127, 9, high, low], port).into())
        });
        let good = Origin::ok().await;
        let spec = Spec::to_addresses(addresses)
            .with(format!("[[service]]\nname = 'good'\n[[service.endpoint]]\naddress = '{}'", good.address))
            .with("[health_check]\nprotocol = 'http'\ninterval = '100ms'\ntimeout = '1m'");
        let gateway = spec.start().await;
        let _checks = begin(&gateway);
        let late = |endpoint: &EndpointStats| endpoint.check_waits_since.is_some();
        until("checks of the silent service are late", || stats_of(&gateway, "main").iter().any(late)).await;
        let before = passed(&stats_of(&gateway, "good")[0]);
        until("checks of the good service", || passed(&stats_of(&gateway, "good")[0]) >= before + 3).await;
        assert!(!late(&stats_of(&gateway, "good")[0]));
    });
}

#[test]
fn checks_do_not_trust_an_old_connection_where_no_new_one_can_be_made() {
    run(async {
        let (leaving, other) = (Origin::ok().await, Origin::ok().await);
        let gateway = to(&[&leaving, &other]).with(FAST).start().await;
        let _checks = begin(&gateway);
        is(&gateway, 0, true).await;
        until("a kept connection", || stats(&gateway, 0).check_connections == 1).await;
        // It accepts no more connections, and serves those that it has.
        drop(leaving);
        let before = passed(&stats(&gateway, 0));
        until("checks over the old connection", || passed(&stats(&gateway, 0)) >= before + 2).await;
        let mut client = gateway.client().await;
        while !stats(&gateway, 0).ejected && stats(&gateway, 0).check.up == Some(true) {
            assert_eq!(client.exchange(get("/")).await.status, 200);
        }
        is(&gateway, 0, false).await;
        assert_eq!(stats(&gateway, 0).check.last, Some(CheckResult::Failed(FailureKind::Connect)));
    });
}
