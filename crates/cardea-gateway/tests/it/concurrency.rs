//! Throttles on requests in flight, with real requests: what they admit, when places return, and reloads.

use std::sync::atomic::Ordering::SeqCst;

use serde_json::{Value, json};

use crate::{
    admission::{Gated, sent},
    http2,
    support::{Harness, certificates::Certificates, get, run, until},
};

/// A throttle of the public route on requests in flight by address.
fn throttle(more: &str) -> String {
    format!(
        "trusted_proxies.prefixes = ['127.0.0.1/32']\n[[throttle]]\nname = 'slow'\nkey = ['source.address']\n\
         max_in_flight = 2\nall_routes = true\n{more}\n"
    )
}

fn from(address: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-For: {address}\r\n\r\n")
}

fn in_flight(gateway: &Harness) -> usize {
    let model = gateway.gateway.model();
    model.throttles[0].in_flight.as_ref().unwrap().table.keys()
}

async fn at_rest(gateway: &Harness) {
    until("no key has anything in flight", || in_flight(gateway) == 0).await;
}

#[test]
fn each_key_has_as_many_requests_in_flight_as_it_may() {
    run(async {
        let gated = Gated::start().await;
        let gateway = gated.spec(&throttle("")).start().await;
        let mut clients =
            vec![sent(&gateway, from("192.0.2.1")).await, sent(&gateway, from("192.0.2.1")).await];
        gated.has_requests(2).await;
        let mut third = gateway.client().await;
        let refused = third.exchange(from("192.0.2.1")).await;
        assert_eq!((refused.status, refused.code()), (429, "concurrency_limited".to_owned()));
        assert_eq!((refused.header("retry-after"), refused.header("ratelimit")), (Some("1"), None));
        assert!(!refused.closes());
        // The control: another key.
        clients.push(sent(&gateway, from("192.0.2.2")).await);
        gated.has_requests(3).await;
        assert_eq!(in_flight(&gateway), 2);
        gated.let_go.add_permits(3);
        for client in &mut clients {
            assert_eq!(client.response().await.status, 200);
        }
        at_rest(&gateway).await;
        gated.let_go.add_permits(1);
        assert_eq!(third.exchange(from("192.0.2.1")).await.status, 200);
        let log = gateway.log(5).await;
        let refused: Vec<_> = log.iter().filter(|line| line["reason"] == "concurrency_limited").collect();
        assert_eq!(refused.len(), 1);
        assert_eq!(
            (&refused[0]["throttle.name"], &refused[0]["throttle.limited"]),
            (&json!("slow"), &json!(true))
        );
        let metric = |outcome: &str| {
            gateway
                .metric(&format!("cardea_throttle_requests_total{{throttle=\"slow\",outcome=\"{outcome}\"}}"))
        };
        assert_eq!((metric("admitted"), metric("limited"), metric("dry_run_limited")), (4, 1, 0));
    });
}

#[test]
fn a_dry_run_refuses_nothing_and_counts_what_it_would_refuse() {
    run(async {
        let gated = Gated::start().await;
        let gateway = gated.spec(&throttle("dry_run = true")).start().await;
        let mut clients = Vec::new();
        for number in 0..4 {
            clients.push(sent(&gateway, from("192.0.2.1")).await);
            gated.has_requests(number + 1).await;
        }
        gated.let_go.add_permits(4);
        for client in &mut clients {
            assert_eq!(client.response().await.status, 200);
        }
        at_rest(&gateway).await;
        let log = gateway.log(4).await;
        let noted: Vec<_> = log.iter().filter(|line| line["throttle.name"] == "slow").collect();
        assert_eq!(noted.len(), 2);
        assert!(noted.iter().all(|line| line["throttle.limited"] == false && line["reason"] == Value::Null));
        let name = "cardea_throttle_requests_total{throttle=\"slow\",outcome=\"dry_run_limited\"}";
        assert_eq!(gateway.metric(name), 2);
    });
}

/// Whatever ends a request: its place returns.
#[test]
fn clients_that_leave_give_their_places_back() {
    run(async {
        let gated = Gated::start().await;
        let certificates = Certificates::new();
        let gateway = gated.spec(&throttle("")).with(certificates.listener()).start().await;
        for round in 1..=3 {
            let client = http2::connect(&gateway, &certificates, "a.example").await;
            let streams: Vec<_> = (0..2)
                .map(|_| {
                    let request = http2::request("GET", "https://a.example/").body(()).unwrap();
                    client.send.clone().send_request(request, true).unwrap().0
                })
                .collect();
            gated.has_requests(2 * round).await;
            assert_eq!(in_flight(&gateway), 1);
            // One stream is reset, then the connection closes.
            drop(streams);
            at_rest(&gateway).await;
        }
    });
}

#[test]
fn a_refusal_by_requests_in_flight_uses_nothing_of_rates_and_the_other_way_round() {
    run(async {
        let gated = Gated::start().await;
        let toml = "[[throttle]]\nname = 'both'\nkey = ['source.address']\nmax_in_flight = 1\nrate = '1/d'\n\
             burst = 3\nall_routes = true";
        let gateway = gated.spec(toml).start().await;
        let mut first = sent(&gateway, get("/")).await;
        gated.has_requests(1).await;
        let mut other = gateway.client().await;
        for _ in 0..5 {
            assert_eq!(other.exchange(get("/")).await.code(), "concurrency_limited");
        }
        gated.let_go.add_permits(3);
        assert_eq!(first.response().await.status, 200);
        at_rest(&gateway).await;
        assert_eq!(other.exchange(get("/")).await.status, 200);
        at_rest(&gateway).await;
        assert_eq!(other.exchange(get("/")).await.status, 200);
        at_rest(&gateway).await;
        for _ in 0..5 {
            // It is refused by its rate each time: no place stays behind.
            assert_eq!(other.exchange(get("/")).await.code(), "rate_limited");
        }
        at_rest(&gateway).await;
        assert_eq!(gated.most.load(SeqCst), 1);
    });
}

#[test]
fn a_reload_keeps_what_is_in_flight() {
    run(async {
        let gated = Gated::start().await;
        let gateway = gated.spec(&throttle("")).start().await;
        let mut clients =
            vec![sent(&gateway, from("192.0.2.1")).await, sent(&gateway, from("192.0.2.1")).await];
        gated.has_requests(2).await;
        gateway.reload(gated.spec(&throttle("").replace("max_in_flight = 2", "max_in_flight = 3")));
        clients.push(sent(&gateway, from("192.0.2.1")).await);
        gated.has_requests(3).await;
        gateway.reload(gated.spec(&throttle("").replace("max_in_flight = 2", "max_in_flight = 1")));
        let mut more = gateway.client().await;
        assert_eq!(more.exchange(from("192.0.2.1")).await.code(), "concurrency_limited");
        gated.let_go.add_permits(4);
        for client in &mut clients {
            assert_eq!(client.response().await.status, 200);
        }
        at_rest(&gateway).await;
        assert_eq!(more.exchange(from("192.0.2.1")).await.status, 200);
    });
}

/// A request that is refused later, such as for its token, has nothing in flight.
#[test]
fn a_request_that_is_refused_later_gives_its_place_back() {
    run(async {
        let gated = Gated::start().await;
        let gateway = gated.spec(&throttle("")).start().await;
        let mut client = gateway.client().await;
        for _ in 0..5 {
            assert_eq!(client.exchange(get("/api")).await.status, 401);
        }
        at_rest(&gateway).await;
    });
}
