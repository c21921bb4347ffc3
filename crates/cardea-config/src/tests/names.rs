//! Names of endpoints, and how they are resolved.

use std::time::Duration;

use super::{Fixture, LEAST, errors::assert_problem};
use crate::Config;

fn config(text: &str) -> Config {
    Fixture::new(&format!("{text}{LEAST}")).config()
}

fn service(endpoint: &str) -> String {
    format!("[[service]]\nname = \"x\"\n[[service.endpoint]]\n{endpoint}\n")
}

#[test]
fn name_servers_are_addresses_with_or_without_a_port() {
    let dns =
        config("[dns]\nservers = [\"10.0.0.53\", \"10.0.0.54:5353\", \"fd00::1\", \"[fd00::1]:54\"]\n").dns;
    let servers: Vec<_> = dns.servers.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["10.0.0.53:53", "10.0.0.54:5353", "[fd00::1]:53", "[fd00::1]:54"]);
    assert_eq!(dns.keep_missing, Duration::from_secs(300));
    assert_eq!(config("[dns]\nkeep_missing = \"0s\"\n").dns.keep_missing, Duration::ZERO);
    for wrong in ["ns.test", "10.0.0.53:0", "10.0.0.53:", "fd00::1:x", ""] {
        assert_problem(&format!("[dns]\nservers = [{wrong:?}]\n"), "is not the address of a name server");
    }
    assert_problem("[dns]\nkeep_missing = \"31d\"\n", "30d");
}

#[test]
fn an_endpoint_has_an_address_or_srv() {
    let found = config(&service("srv = \"_http._tcp.Search.internal\"\nregion = \"eu\""));
    let endpoint = &found.services[0].endpoints[0];
    assert_eq!(endpoint.target.to_string(), "_http._tcp.search.internal");
    assert_eq!(endpoint.target.name().unwrap().verified(), "search.internal");
    assert_problem(&service("srv = \"search.internal\""), "is not the name of SRV records");
    assert_problem(&service("srv = \"_http._tcp.a.test\"\naddress = \"a.test:80\""), "not both");
    assert_problem(&service("region = \"eu\""), "the endpoint has no address");
    assert_problem(&service("srv = \"_http._tcp.a.test\"\nweight = 2"), "weights of their own");
    let twice = "address = \"a.test:80\"\n[[service.endpoint]]\naddress = \"A.test:80\"";
    assert_problem(&service(twice), "a.test:80 is there twice");
}
