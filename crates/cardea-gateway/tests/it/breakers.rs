//! Circuit breakers with real requests.

use cardea_upstream::Address;

use crate::support::{Origin, Spec, get, run, until};

#[test]
fn requests_beyond_the_limit_of_an_endpoint_go_to_another_or_are_refused() {
    run(async {
        let (one, other) = (Origin::silent().await, Origin::silent().await);
        let addresses = [&one, &other].map(|origin| Address::Tcp(origin.address));
        let limits = "[[service]]\nname = 'main'\ncircuit_breaker = { requests_max = 1 }";
        let gateway = Spec::to_addresses(addresses).with(limits).start().await;
        let mut waiting = Vec::new();
        for _ in 0..2 {
            let mut client = gateway.client().await;
            client.send(get("/")).await;
            waiting.push(client);
            until("the request has arrived", || one.connections() + other.connections() == waiting.len())
                .await;
        }
        assert_eq!((one.connections(), other.connections()), (1, 1));
        let refused = gateway.client().await.exchange(get("/")).await;
        assert_eq!((refused.status, refused.code().as_str()), (503, "upstream_requests_exhausted"));
        assert_eq!(refused.header("retry-after"), Some("1"));
        let state = gateway.gateway.model().services[0].live.state();
        assert_eq!(state.stats().limited, 1);
        // Once there is room, the next request is sent.
        drop(waiting.pop());
        until("a request has left", || !state.endpoints().all(|(_, endpoint)| endpoint.in_flight() > 0))
            .await;
        let mut next = gateway.client().await;
        next.send(get("/")).await;
        until("the request has arrived", || one.connections() + other.connections() == 3).await;
    });
}

#[test]
fn a_limit_that_is_not_reached_refuses_nothing() {
    run(async {
        let origin = Origin::ok().await;
        let limits = "[[service]]\nname = 'main'\ncircuit_breaker = { requests_max = 1, pending_max = 1 }";
        let gateway = Spec::to(&origin).with(limits).start().await;
        let mut client = gateway.client().await;
        for _ in 0..20 {
            assert_eq!(client.exchange(get("/")).await.status, 200);
        }
    });
}
