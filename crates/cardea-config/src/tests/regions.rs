//! Regions: positions, capacities and bands.

use std::time::Duration;

use cardea_upstream::{BreakerConfig, Position};

use super::{Fixture, LEAST, errors::assert_problem};
use crate::Config;

const POSITION: &str = "[[region_position]]\nname = \"eu\"\nposition = \"53.35, -6\"\n";

fn config(text: &str) -> Config {
    Fixture::new(&format!("{text}{LEAST}")).config()
}

#[test]
fn positions_are_latitude_and_longitude() {
    let config = config(&format!("region = \"eu\"\n{POSITION}"));
    assert_eq!(config.region_positions, [("eu".to_owned(), Position::new(53.35, -6.0).unwrap())]);
}

#[test]
fn what_is_no_position_on_earth_is_an_error() {
    for wrong in ["90.5, 0", "0, -180.5", "53.35", "53.35 -6", "NaN, 0", "1e1, 0", ""] {
        assert_problem(&POSITION.replace("53.35, -6", wrong), "is not a position");
    }
    assert_problem(&format!("{POSITION}{POSITION}"), "a second region is called \"eu\"");
    assert_problem("[[region_position]]\nname = \"eu\"", "position");
}

#[test]
fn services_limit_what_their_endpoints_get() {
    let service = |breaker: &str| {
        format!("[[service]]\nname = \"x\"\n{breaker}\n[[service.endpoint]]\naddress = \"127.0.0.1:9\"\n")
    };
    let breaker = |text: &str| config(&service(text)).services[0].config.breaker;
    assert_eq!(breaker(""), BreakerConfig::default());
    let written = breaker("circuit_breaker = { requests_max = 5 }");
    assert_eq!((written.requests_max.map(u32::from), written.pending_max), (Some(5), None));
    assert_problem(
        &service("circuit_breaker = { pending_max = 0 }"),
        "0 is out of the limits of pending_max",
    );
}

#[test]
fn services_have_capacities_and_bands() {
    let config = config(
        "[failover]\nregion_band_percent = 70\n[[service]]\nname = \"x\"\n\
         failover = { region_sensitivity = \"5ms\" }\n[[service.endpoint]]\naddress = \"127.0.0.1:9\"\ncapacity = 8\n",
    );
    let service = &config.services[0].config;
    assert_eq!((service.spill.band_percent, service.spill.sensitivity), (70, Duration::from_millis(5)));
    assert_eq!(config.services[0].endpoints[0].capacity.map(u32::from), Some(8));
}
