//! Routes that lead to several services.

use super::{Fixture, LEAST, errors::assert_problem};
use crate::{Config, model::Destination};

const SERVICES: &str = "[[service]]\nname = \"a\"\n[[service.endpoint]]\naddress = \"127.0.0.1:1\"\n\
    [[service]]\nname = \"b\"\nthrottles = [\"t\"]\n[[service.endpoint]]\naddress = \"127.0.0.1:2\"\n\
    [[throttle]]\nname = \"t\"\nkey = []\nrate = \"1/s\"\n[[throttle]]\nname = \"u\"\nrate = \"1/s\"\nkey = [\"service.name\"]\n";

fn route(keys: &str) -> String {
    format!("{SERVICES}[[route]]\nname = \"r\"\nauth = \"public\"\n{keys}\n")
}

fn config(keys: &str) -> Config {
    Fixture::new(&format!("{}{LEAST}", route(keys))).config()
}

const SPLIT: &str =
    "split = [{ service = \"a\", weight = 3 }, { service = \"b\", weight = 0 }]\nthrottles = [\"u\"]";

#[test]
fn a_split_has_services_with_weights_and_their_throttles() {
    let config = config(&format!("split_key = \"{{request.headers.x}}\"\n{SPLIT}"));
    let Destination::Split { key, shares } = &config.routes[0].destination else { panic!() };
    assert!(key.is_some());
    let shares: Vec<_> = shares.iter().map(|one| (one.index, one.weight, &*one.throttles)).collect();
    // One that counts by the service counts once that is chosen.
    assert_eq!(shares, [(0, 3, &[1][..]), (1, 0, &[0, 1])]);
    assert!(config.routes[0].throttles.before_identification.is_empty());
    assert!(config.warnings.is_empty(), "all services are used: {:?}", config.warnings);
}

#[test]
fn a_key_that_reads_the_path_decides_by_it() {
    for (key, reads) in [("{request.path}", true), ("{request.headers.x}", false)] {
        let config = config(&format!("split_key = \"{key}\"\n{SPLIT}"));
        assert_eq!(config.routes[0].rules.reads_path, reads, "{key}");
    }
}

#[test]
fn wrong_splits_are_errors() {
    for (keys, expected) in [
        ("split_key = \"{source.address}\"\nservice = \"a\"", "split_key without split"),
        ("service = \"a\"\nsplit = [{ service = \"b\", weight = 1 }]", "a route has one destination"),
        ("split = []", "split"),
        ("split = [{ service = \"a\", weight = 0 }]", "no service of the split has a weight above 0"),
        ("split = [{ service = \"a\" }]", "weight"),
        ("split = [{ service = \"a\", weight = -1 }]", "-1 is out of the limits of weight"),
        ("split = [{ service = \"c\", weight = 1 }]", "\"c\""),
        (
            "split = [{ service = \"a\", weight = 1 }, { service = \"a\", weight = 2 }]",
            "the service \"a\" is in the split twice",
        ),
        ("split_key = \"x\"\nsplit = [{ service = \"a\", weight = 1 }]", "it reads no attribute"),
        (
            "split_key = \"{service.name}\"\nsplit = [{ service = \"a\", weight = 1 }]",
            "\"service.name\" is not known yet when the service is chosen",
        ),
        (
            "split_key = \"{response.status}\"\nsplit = [{ service = \"a\", weight = 1 }]",
            "\"response.status\" is not known yet",
        ),
    ] {
        assert_problem(&route(keys), expected);
    }
    let many = format!("split = [{}]", "{ service = \"a\", weight = 1 },".repeat(65));
    let problems = Fixture::new(&format!("{}{LEAST}", route(&many))).problems();
    assert!(problems[0].contains("a split has at most 64 services"), "{problems:#?}");
}
