//! Endpoints that come and go while requests are under way, without another model.

use std::sync::Arc;

use cardea_clock::Mono;
use cardea_upstream::{Address, Connections, EndpointConfig, PoolConfig, ServiceConfig, ServiceState};
use tokio::sync::Notify;

use crate::support::{Harness, Origin, Spec, get, origin::OK, run};

/// Puts other endpoints in the place of those of the service.
fn replace(gateway: &Harness, origins: &[&Origin], now: Mono) {
    let model = gateway.gateway.model();
    let live = &model.services[0].live;
    let endpoint = |origin: &&Origin| EndpointConfig {
        region: Some("eu-north".to_owned()),
        ..EndpointConfig::new(Address::Tcp(origin.address))
    };
    let config = ServiceConfig {
        pool: PoolConfig::default(),
        ..ServiceConfig::new("main", origins.iter().map(endpoint).collect())
    };
    let state = ServiceState::reconcile(&config, Some(&live.state()), Connections::Kept).unwrap();
    live.replace(&state, now);
}

#[test]
fn endpoints_are_replaced_under_requests_and_none_is_dropped() {
    run(async {
        let go_on = Arc::new(Notify::new());
        let waits = Arc::clone(&go_on);
        let first = Origin::start(move |mut visit| {
            let waits = Arc::clone(&waits);
            async move {
                visit.request().await?;
                waits.notified().await;
                visit.send(OK).await?;
                visit.closed().await;
                Ok(())
            }
        })
        .await;
        let second = Origin::ok().await;
        let gateway = Spec::to(&first).logging(["upstream.endpoint", "upstream.region"]).start().await;
        let generation = gateway.gateway.model();
        let mut waiting = gateway.client().await;
        waiting.send(get("/under-way")).await;
        first.until(|text| text.contains("/under-way")).await;
        replace(&gateway, &[&second], gateway.gateway.clock.mono());
        assert!(Arc::ptr_eq(&generation, &gateway.gateway.model()), "the model is the same");
        let mut client = gateway.client().await;
        assert_eq!(client.exchange(get("/new")).await.status, 200);
        assert!(second.text().contains("/new"));
        go_on.notify_one();
        assert_eq!(waiting.response().await.text(), "ok");
        // The connection to an endpoint that has left is not kept.
        first.ended(1).await;
        assert_eq!(waiting.exchange(get("/later")).await.status, 200);
        assert_eq!(first.connections(), 1);
        let lines = gateway.log(3).await;
        let logged: Vec<_> = lines
            .iter()
            .map(|line| {
                (line["upstream.endpoint"].as_str().unwrap(), line["upstream.region"].as_str().unwrap())
            })
            .collect();
        let (first, second) = (first.address.to_string(), second.address.to_string());
        let new = (&*second, "eu-north");
        assert_eq!(logged, [new, (&*first, "eu-west"), new]);
    });
}

#[test]
fn a_service_without_endpoints_refuses_until_it_has_some() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).start().await;
        let mut client = gateway.client().await;
        replace(&gateway, &[], gateway.gateway.clock.mono());
        let refused = client.exchange(get("/")).await;
        assert_eq!((refused.status, &*refused.code()), (503, "no_endpoint"));
        replace(&gateway, &[&origin], gateway.gateway.clock.mono());
        assert_eq!(client.exchange(get("/")).await.status, 200);
    });
}
