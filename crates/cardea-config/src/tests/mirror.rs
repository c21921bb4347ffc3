//! Mirrors of routes.

use std::time::Duration;

use super::{Fixture, LEAST, errors::assert_problem};

fn route(keys: &str) -> String {
    let service = |name: &str, port| {
        format!("[[service]]\nname = \"{name}\"\n[[service.endpoint]]\naddress = \"127.0.0.1:{port}\"\n")
    };
    let services = [service("a", 1), service("b", 2)].concat();
    format!("{services}[[route]]\nname = \"r\"\nauth = \"public\"\n{keys}\n")
}

#[test]
fn a_mirror_has_bounds_unless_they_are_written() {
    let config = |keys: &str| {
        let written = route(&format!("service = \"a\"\nmirror = {{ service = \"b\"{keys} }}"));
        Fixture::new(&format!("{written}{LEAST}")).config()
    };
    let config_of_defaults = config("");
    let mirror = config_of_defaults.routes[0].mirror.as_ref().unwrap();
    assert_eq!((mirror.index, mirror.sample_one_in.get(), mirror.in_flight_max), (1, 1, 100));
    assert_eq!((mirror.timeout, mirror.forward_authorization), (Duration::from_secs(10), false));
    assert!(config_of_defaults.warnings.is_empty(), "both services are used");
    let written =
        config(", sample_one_in = 5, in_flight_max = 2, timeout = \"1s\", forward_authorization = true");
    let mirror = written.routes[0].mirror.as_ref().unwrap();
    assert_eq!((mirror.sample_one_in.get(), mirror.in_flight_max), (5, 2));
    assert_eq!((mirror.timeout, mirror.forward_authorization), (Duration::from_secs(1), true));
}

#[test]
fn wrong_mirrors_are_errors() {
    for (keys, expected) in [
        ("service = \"a\"\nmirror = { service = \"a\" }", "would get requests of this route twice"),
        (
            "split = [{ service = \"a\", weight = 1 }, { service = \"b\", weight = 0 }]\nmirror = { service = \"b\" }",
            "would get requests of this route twice",
        ),
        ("builtin = \"health\"\nmirror = { service = \"a\" }", "requests that the gateway answers itself"),
        ("service = \"a\"\nmirror = { service = \"c\" }", "\"c\""),
        ("service = \"a\"\nmirror = { service = \"b\", sample_one_in = 0 }", "sample_one_in"),
        ("service = \"a\"\nmirror = { service = \"b\", timeout = \"2h\" }", "out of the limits of timeout"),
    ] {
        assert_problem(&route(keys), expected);
    }
}
