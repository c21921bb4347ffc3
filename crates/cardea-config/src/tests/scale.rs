//! Tests of large configurations.

use std::fmt::Write as _;

use super::{Destination, Fixture, LEAST};

/// 1,000 services and 10,000 routes.
fn large() -> String {
    let mut text = LEAST.to_owned();
    text.push_str(
        "[[issuer]]\nname = \"main\"\nissuer = \"https://i.example\"\naudiences = [\"a\"]\ndiscovery = true\n",
    );
    for service in 0..1000 {
        let _ = write!(
            text,
            "[[service]]\nname = \"service-{service}\"\n[[service.endpoint]]\naddress = \"10.0.{}.{}:8080\"\nregion = \"eu\"\n[[service.endpoint]]\naddress = \"10.1.{}.{}:8080\"\n",
            service / 250,
            service % 250,
            service / 250,
            service % 250
        );
    }
    for route in 0..10_000 {
        let _ = write!(
            text,
            "[[route]]\nname = \"route-{route}\"\nhosts = [\"host-{}.example.com\"]\npath_prefix = \"/api/{route}\"\nauth = {{ issuer = \"main\", scopes = [\"scope-{}\"] }}\nservice = \"service-{}\"\n",
            route % 500,
            route % 10,
            route % 1000
        );
    }
    text
}

#[test]
fn ten_thousand_routes_resolve() {
    let fixture = Fixture::new(&large());
    #[expect(clippy::disallowed_methods, reason = "the load's duration is what is shown")]
    let start = std::time::Instant::now();
    let config = fixture.config();
    let elapsed = start.elapsed();
    println!("loaded in {elapsed:?}");
    assert_eq!((config.services.len(), config.routes.len()), (1000, 10_000));
    assert!(matches!(config.routes[9_999].destination, Destination::Service { index: 999 }));
    // The target is a second in a release build. Without optimisation, on a shared machine, a time has no meaning.
    assert!(cfg!(debug_assertions) || elapsed.as_secs() < 1, "{elapsed:?}");
}

#[test]
fn ten_thousand_errors_are_reported() {
    let problems = Fixture::new(&large().replace("service = \"service-", "service = \"missing-")).problems();
    assert_eq!(problems.len(), 10_000);
}
