//! Regions: round trips as connections show them, and the region that serves.

use std::time::Duration;

use cardea_gateway::measure_round_trip;
use cardea_upstream::{Address, EndpointIndex, RegionStats};

use crate::support::{Harness, Origin, Spec, get, run};

const POSITIONS: &str = r#"
    [[region_position]]
    name = "eu-west"
    position = "53.3, -6.3"
    [[region_position]]
    name = "us-east"
    position = "39, -77.5"
"#;

/// An origin that closes each connection after its response.
async fn closing() -> Origin {
    Origin::start(|mut visit| async move {
        visit.request().await?;
        visit.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok").await
    })
    .await
}

fn regions(gateway: &Harness) -> Vec<RegionStats> {
    gateway.gateway.model().services[0].live.state().stats().regions
}

#[test]
fn connections_for_requests_measure_the_round_trip() {
    run(async {
        let origin = closing().await;
        let gateway = Spec::to(&origin).with(POSITIONS).start().await;
        let mut client = gateway.client().await;
        for _ in 0..5 {
            assert!(!regions(&gateway)[0].is_measured);
            assert_eq!(client.exchange(get("/")).await.status, 200);
        }
        let region = &regions(&gateway)[0];
        assert!(region.is_home && region.is_measured, "{region:?}");
        assert!(region.round_trip.unwrap() > Duration::ZERO);
    });
}

#[test]
fn a_region_without_connections_is_due_for_a_measurement() {
    run(async {
        let origin = Origin::ok().await;
        let gateway = Spec::to(&origin).with(POSITIONS).start().await;
        let state = gateway.gateway.model().services[0].live.state();
        let now = gateway.gateway.clock.mono();
        let due = state.round_trips_due(now);
        assert_eq!(due.iter().map(|index: &EndpointIndex| index.get()).collect::<Vec<_>>(), [0]);
        assert!(state.round_trips_due(now).is_empty(), "once");
        assert!(measure_round_trip(&Address::Tcp(origin.address)).await.is_some());
        let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(measure_round_trip(&Address::Tcp(unused)).await.is_none());
    });
}

#[test]
fn the_own_region_serves_and_the_next_one_takes_over() {
    run(async {
        let (near, far) = (Origin::ok().await, Origin::ok().await);
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for (own, expected) in [(near.address, &near), (gone, &far)] {
            let endpoint = |address, region| {
                format!(
                    "[[service.endpoint]]\naddress = \"{address}\"\nregion = \"{region}\"\ncapacity = 10\n"
                )
            };
            let service = format!(
                "[[service]]\nname = \"main\"\n{}{}",
                endpoint(far.address, "us-east"),
                endpoint(own, "eu-west")
            );
            let gateway = Spec::to_addresses([]).with(POSITIONS).with(service).start().await;
            let names: Vec<_> = regions(&gateway).into_iter().filter_map(|region| region.name).collect();
            assert_eq!(names, ["eu-west", "us-east"]);
            let before = expected.connections();
            assert_eq!(gateway.client().await.exchange(get("/")).await.status, 200);
            assert_eq!(expected.connections(), before + 1);
        }
    });
}
