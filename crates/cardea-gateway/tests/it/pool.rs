//! Connections to origins: reuse, retries, failover, bounds.

use std::time::Duration;

use cardea_upstream::{Address, SPARE_AFTER};
use tokio::net::TcpListener;

use crate::support::{
    Origin, Spec, get,
    origin::{OK, Visit},
    run, until,
};

#[test]
fn an_idempotent_request_is_retried_if_a_pooled_connection_was_closed() {
    run(async {
        let replayed = "PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello";
        let chunked =
            "PUT / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        for (request, body) in
            [(get("/").as_str(), ""), (replayed, "hello"), (chunked, "5\r\nhello\r\n0\r\n\r\n")]
        {
            let origin = Origin::resetting().await;
            let gateway = Spec::to(&origin).start().await;
            let mut client = gateway.client().await;
            assert_eq!(client.exchange(get("/")).await.status, 200);
            assert_eq!(client.exchange(request).await.status, 200, "{request}");
            let received = origin.received();
            assert_eq!(received.len(), 2);
            assert!(received[1].ends_with(format!("\r\n\r\n{body}").as_bytes()), "{}", origin.text());
            let line = gateway.log(2).await.remove(1);
            assert_eq!(line["upstream.attempts"], 2);
        }
    });
}

#[test]
fn other_requests_are_not_tried_again() {
    run(async {
        let post = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello".to_owned();
        let large = format!(
            "PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 100000\r\n\r\n{}",
            "x".repeat(100_000)
        );
        for request in [post, large] {
            let origin = Origin::resetting().await;
            let gateway = Spec::to(&origin).start().await;
            let mut client = gateway.client().await;
            assert_eq!(client.exchange(get("/")).await.status, 200);
            let response = client.exchange(request).await;
            assert_eq!((response.status, response.code().as_str()), (502, "upstream_aborted"));
            assert_eq!(origin.connections(), 1);
            assert_eq!(gateway.gateway.replay_budget.used(), 0);
        }
    });
}

#[test]
fn a_second_attempt_is_the_last_one_if_it_fails_on_a_fresh_connection() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            visit.request().await?;
            if visit.index == 0 {
                visit.send(OK).await?;
                visit.request().await?;
            }
            visit.reset();
            Ok(())
        })
        .await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        assert_eq!(client.exchange(get("/")).await.status, 200);
        assert_eq!(client.exchange(get("/")).await.status, 502);
        assert_eq!(origin.connections(), 2);
    });
}

#[test]
fn a_connection_that_the_service_closed_is_noticed_before_use() {
    run(async {
        let origin = Origin::closing(OK).await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        for count in 1..4 {
            let post = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\n\r\nhi";
            assert_eq!(client.exchange(post).await.status, 200, "no retry would be allowed");
            origin.ended(count).await;
            // The end of the connection is on its way to the gateway's socket.
            for _ in 0..200 {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(origin.connections(), 3);
    });
}

#[test]
fn bytes_behind_a_response_are_no_response() {
    run(async {
        let surplus = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npoisoned";
        for answer in [
            format!("{OK}{surplus}"),
            format!("{OK}x"),
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n{surplus}"),
            format!("HTTP/1.1 304 Not Modified\r\nContent-Length: 8\r\n\r\n{surplus}"),
            format!("HTTP/1.1 204 No Content\r\n\r\n{surplus}"),
        ] {
            let origin = Origin::answering(answer.clone()).await;
            let gateway = Spec::to(&origin).start().await;
            let mut client = gateway.client().await;
            for _ in 0..3 {
                let response = client.exchange(get("/")).await;
                assert!(!response.text().contains("poisoned"), "{answer}");
            }
            assert_eq!(origin.connections(), 3, "{answer}");
        }
    });
}

#[test]
fn connections_to_a_service_that_closes_or_uses_http_1_0_are_not_pooled() {
    run(async {
        for answer in [
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        ] {
            let origin = Origin::answering(answer).await;
            let gateway = Spec::to(&origin).start().await;
            let mut client = gateway.client().await;
            for _ in 0..2 {
                let response = client.exchange(get("/")).await;
                assert_eq!((response.text().as_str(), response.closes()), ("ok", false), "{answer}");
            }
            assert_eq!(origin.connections(), 2, "{answer}");
        }
    });
}

/// An address where nobody listens.
async fn nobody() -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    Address::Tcp(listener.local_addr().unwrap())
}

#[test]
fn another_endpoint_serves_when_one_refuses() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to_addresses([nobody().await, Address::Tcp(origin.address)]).start().await;
        let mut client = gateway.client().await;
        for _ in 0..5 {
            // Nothing was sent to the first: any method and any body may go elsewhere.
            let post = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello";
            let response = client.exchange(post).await;
            assert_eq!(response.status, 200, "{}", response.text());
        }
        assert_eq!(origin.text().matches("hello").count(), 5);
    });
}

#[test]
fn with_all_endpoints_down_it_is_a_502() {
    run(async {
        let gateway = Spec::to_addresses([nobody().await, nobody().await]).start().await;
        let mut client = gateway.client().await;
        for _ in 0..3 {
            let response = client.exchange(get("/")).await;
            assert_eq!((response.status, response.code().as_str()), (502, "upstream_connect_failed"));
        }
    });
}

#[test]
fn a_service_whose_queue_is_full_is_a_504() {
    run(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        let _listener = socket.listen(1).unwrap();
        // Fill the queue: what connects now is never accepted.
        let mut waiting = Vec::new();
        while let Ok(stream) =
            tokio::time::timeout(Duration::from_millis(100), tokio::net::TcpStream::connect(address)).await
        {
            waiting.push(stream.unwrap());
        }
        let gateway =
            Spec::to_addresses([Address::Tcp(address)]).with("timeouts.connect = '150ms'").start().await;
        let response = gateway.client().await.exchange(get("/")).await;
        assert_eq!((response.status, response.code().as_str()), (504, "upstream_connect_timeout"));
    });
}

#[test]
fn a_client_that_leaves_ends_the_attempt_to_connect() {
    run(async {
        let certificates = crate::support::certificates::Certificates::new();
        let silent = Origin::start(|mut visit| async move {
            visit.closed().await;
            Ok(())
        })
        .await;
        let spec = Spec::to(&silent).with(certificates.service("a.example"));
        let gateway = spec.start().await;
        let mut client = gateway.client().await;
        client.send(get("/")).await;
        silent.until(|text| !text.is_empty()).await;
        drop(client);
        silent.ended(1).await;
        assert_eq!(gateway.log(1).await[0]["reason"], "client_aborted");
    });
}

#[test]
fn connections_to_an_endpoint_are_bounded() {
    run(async {
        let origin = Origin::start(|mut visit| async move {
            loop {
                if visit.request().await?.line().contains("slow") {
                    visit.closed().await;
                    return Ok(());
                }
                visit.send(OK).await?;
            }
        })
        .await;
        let spec = Spec::to(&origin).with("[[service]]\nname = 'main'\npool.connections_max = 1");
        let gateway = spec.start().await;
        let mut slow = gateway.client().await;
        slow.send(get("/slow")).await;
        origin.until(|text| text.contains("/slow")).await;
        let mut client = gateway.client().await;
        let response = client.exchange(get("/")).await;
        assert_eq!((response.status, response.code().as_str()), (503, "upstream_connections_exhausted"));
        assert!(response.header("retry-after").is_some());
        drop(slow);
        origin.ended(1).await;
        let mut last = 503;
        for _ in 0..100 {
            last = client.exchange(get("/")).await.status;
            if last == 200 {
                break;
            }
        }
        assert_eq!(last, 200, "the permit came back");
    });
}

#[test]
fn parallel_requests_share_what_is_kept() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        let mut clients = Vec::new();
        for _ in 0..8 {
            clients.push(gateway.client().await);
        }
        for _ in 0..5 {
            for client in &mut clients {
                client.send(get("/")).await;
            }
            for client in &mut clients {
                assert_eq!(client.response().await.status, 200);
            }
        }
        assert!(origin.connections() <= 8, "{}", origin.connections());
        drop(clients);
        until("all connections are gone", || gateway.gateway.connections() == 0).await;
    });
}

#[test]
fn a_connection_that_its_worker_no_longer_uses_moves_to_the_one_that_needs_it() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start_with_workers(2).await;
        let mut clients = [gateway.client().await, gateway.client().await];
        let [one, two] = &mut clients;
        assert_eq!(one.exchange(get("/")).await.status, 200);
        assert_eq!(two.exchange(get("/")).await.status, 200);
        assert_eq!(origin.connections(), 2, "each worker has its own");
        assert_eq!((one.exchange(get("/")).await.status, two.exchange(get("/")).await.status), (200, 200));
        assert_eq!(origin.connections(), 2, "and keeps it");

        let gateway = Spec::to(&origin).start_with_workers(2).await;
        let mut clients = [gateway.client().await, gateway.client().await];
        for round in 0..4 {
            let client = &mut clients[round % 2];
            assert_eq!(client.exchange(get("/")).await.status, 200);
            assert_eq!(origin.connections(), 3, "round {round}: one for both");
            let spare = gateway.gateway.clock.mono().saturating_add(SPARE_AFTER);
            until("it is spare", || gateway.gateway.clock.mono() > spare).await;
        }
    });
}

#[test]
fn requests_with_the_same_key_go_to_the_same_endpoint_and_those_without_go_to_any() {
    run(async {
        let origins = [Origin::ok().await, Origin::ok().await];
        // The key is that of the request as it came.
        let spec = Spec::to_addresses(origins.iter().map(|origin| Address::Tcp(origin.address)))
            // By response time, the faster of the two might get all requests without a key.
            .with(
                "[[service]]\nname = 'main'\nhash_policy = '{request.headers.x-user}'\nbalance = 'least-requests'",
            )
            .public("request_headers.set = { x-user = '{request.headers.x-user}!' }");
        let gateway = spec.start().await;
        let mut client = gateway.client().await;
        for user in (0..64).cycle().take(192) {
            let request = format!("GET / HTTP/1.1\r\nHost: a.example\r\nX-User: u{user}\r\n\r\n");
            assert_eq!(client.exchange(request).await.status, 200);
        }
        for user in 0..64 {
            let counts =
                origins.each_ref().map(|origin| origin.text().matches(&format!(": u{user}!\r")).count());
            assert!(counts == [3, 0] || counts == [0, 3], "u{user}: {counts:?}");
        }
        let before = origins.each_ref().map(|origin| origin.text().matches("GET /").count());
        assert!(before.iter().all(|count| *count > 0), "{before:?}");
        for _ in 0..64 {
            assert_eq!(client.exchange(get("/none")).await.status, 200);
        }
        for origin in &origins {
            assert!(origin.text().contains("GET /none"));
        }
    });
}

#[test]
fn a_request_goes_to_an_endpoint_that_has_a_connection_for_it() {
    run(async {
        let script = |mut visit: Visit| async move {
            loop {
                if visit.request().await?.line().contains("slow") {
                    visit.closed().await;
                    return Ok(());
                }
                visit.send(OK).await?;
            }
        };
        let origins = [Origin::start(script).await, Origin::start(script).await];
        let spec = Spec::to_addresses(origins.iter().map(|origin| Address::Tcp(origin.address)))
            .with("[[service]]\nname = 'main'\npool.connections_max = 1");
        let gateway = spec.start().await;
        let mut slow = gateway.client().await;
        slow.send(get("/slow")).await;
        until("a slow request", || origins.iter().any(|origin| origin.text().contains("/slow"))).await;
        let mut client = gateway.client().await;
        for _ in 0..20 {
            assert_eq!(client.exchange(get("/")).await.status, 200);
        }
        // None had to try the other endpoint first.
        let lines = gateway.log(20).await;
        assert!(lines.iter().all(|line| line["upstream.attempts"] == 1), "{lines:?}");
    });
}

#[test]
fn a_connection_carries_no_more_requests_than_allowed() {
    run(async {
        let offering =
            |offer: &str| format!("HTTP/1.1 200 OK\r\nKeep-Alive: {offer}\r\nContent-Length: 2\r\n\r\nok");
        for (response, keys, connections) in [
            (offering("timeout=60, max=100"), "", 1),
            (offering("timeout=0"), "", 6),
            (offering("timeout=60, max=0"), "", 6),
            (OK.to_owned(), "pool.requests_max = 2", 3),
            (OK.to_owned(), "pool.requests_max = 1", 6),
            (OK.to_owned(), "pool.age_max = '1h'", 1),
        ] {
            let origin = Origin::answering(response.clone()).await;
            let spec = Spec::to(&origin).with(format!("[[service]]\nname = 'main'\n{keys}"));
            let gateway = spec.start().await;
            let mut client = gateway.client().await;
            for _ in 0..6 {
                assert_eq!(client.exchange(get("/")).await.status, 200);
            }
            assert_eq!(origin.connections(), connections, "{response} {keys}");
        }
    });
}
