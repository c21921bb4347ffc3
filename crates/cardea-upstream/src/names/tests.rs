//! Tests of names and what they are resolved to.

use super::*;

fn source(target: &str) -> EndpointSource {
    EndpointSource { target: target.parse().unwrap(), region: None, weight: 1, capacity: None }
}

fn srv(name: &str) -> EndpointSource {
    let name = DnsName::service(name).unwrap();
    EndpointSource { target: Target::Name(Arc::new(name)), ..source("10.0.0.1:1") }
}

fn host(name: &str) -> Query {
    Query::Host(name.to_owned())
}

fn addresses(list: &[&str]) -> Vec<Resolved> {
    list.iter().map(|address| Resolved::of_host(address.parse().unwrap())).collect()
}

fn expanded(names: &ResolvedNames, sources: &[EndpointSource]) -> Vec<(String, Option<String>, u32)> {
    let all = names.expand(sources).into_iter();
    all.map(|one| (one.address.to_string(), one.name.map(|name| name.to_string()), one.weight)).collect()
}

#[test]
fn targets_are_read_and_written() {
    for text in ["10.0.0.1:80", "[::1]:80", "unix:/run/a.sock", "a_b.c-d.example:65535", "localhost:1"] {
        assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
    }
    let name = "Name.Example.:80".parse::<Target>().unwrap();
    assert_eq!(name.to_string(), "name.example:80");
    let name = name.name().unwrap();
    assert_eq!(
        (name.verified(), name.port(), name.query()),
        ("name.example", Some(80), &host("name.example"))
    );
    for text in ["a..b:80", "a b:80", "-a:80", "a-:80", "1.2.3:80", "é:80", ":80", "[name]:80"] {
        assert_eq!(text.parse::<Target>(), Err(AddressError::Host(text.into())), "{text}");
    }
    for text in ["name", "name:", "name:0", "name:65536", "name:+80", ""] {
        assert_eq!(text.parse::<Target>(), Err(AddressError::Port(text.into())), "{text}");
    }
}

#[test]
fn an_excluded_address_of_a_name_is_no_endpoint() {
    let names = ResolvedNames::default();
    names.exclude(|address| address == "127.0.0.1:9901".parse().unwrap());
    names.replace(&host("a.test"), addresses(&["127.0.0.1", "10.0.0.1"]));
    let found = |text: &str| {
        let found = expanded(&names, &[source(text)]).into_iter();
        found.map(|(address, ..)| address).collect::<Vec<_>>()
    };
    assert_eq!(found("a.test:9901"), ["10.0.0.1:9901"]);
    assert_eq!(found("a.test:80"), ["10.0.0.1:80", "127.0.0.1:80"]);
    assert_eq!(found("127.0.0.1:9901"), ["127.0.0.1:9901"], "an address is the operator's choice");
}

#[test]
fn a_service_is_verified_by_its_domain() {
    let name = DnsName::service("_HTTP._tcp.Example.com.").unwrap();
    assert_eq!((name.to_string().as_str(), name.verified()), ("_http._tcp.example.com", "example.com"));
    assert_eq!((name.port(), name.query().records()), (None, "srv"));
    for name in
        ["_http._tcp", "http._tcp.example.com", "_http.tcp.example.com", "_._tcp.a", "_a._b.", "_a._b.c d"]
    {
        assert_eq!(DnsName::service(name), None, "{name}");
    }
}

#[test]
fn each_address_of_a_name_is_an_endpoint_with_the_settings_of_the_name() {
    let names = ResolvedNames::default();
    let all =
        [EndpointSource { weight: 7, ..source("a.test:80") }, source("10.0.0.2:80"), source("b.test:81")];
    assert_eq!(expanded(&names, &all), [("10.0.0.2:80".into(), None, 1)], "nothing is known of the names");
    assert!(
        names
            .replace(&host("a.test"), addresses(&["::1", "10.0.0.2", "10.0.0.1", "::ffff:10.0.0.1"]))
            .changed
    );
    assert!(names.replace(&host("b.test"), addresses(&["10.0.0.1"])).changed);
    let a = |address: &str| (address.to_owned(), Some("a.test:80".to_owned()), 7);
    assert_eq!(
        expanded(&names, &all),
        [
            a("10.0.0.1:80"),
            a("10.0.0.2:80"),
            a("[::1]:80"),
            ("10.0.0.2:80".into(), None, 1),
            ("10.0.0.1:81".into(), Some("b.test:81".into()), 1),
        ]
    );
    assert!(
        !names.replace(&host("a.test"), addresses(&["10.0.0.1", "::1", "10.0.0.2"])).changed,
        "the order"
    );
    assert!(names.replace(&host("a.test"), []).changed);
    assert!(!names.replace(&host("a.test"), []).changed);
    assert_eq!((names.count(&host("a.test")), names.count(&host("b.test"))), (0, 1));
    names.retain(|query| query.name() == "a.test");
    assert_eq!(expanded(&names, &all), [("10.0.0.2:80".into(), None, 1)]);
}

#[test]
fn priorities_and_weights_of_service_records_are_those_of_endpoints() {
    let names = ResolvedNames::default();
    let record = |priority, weight, siblings, address: &str, port| Resolved {
        priority,
        address: address.parse().unwrap(),
        port,
        weight,
        siblings,
    };
    let records = [
        record(20, 5, 1, "10.0.0.9", 90),
        record(10, 3, 2, "10.0.0.1", 80),
        record(10, 3, 2, "fd00::1", 80),
        record(10, 0, 1, "10.0.0.2", 80),
        record(10, 65_535, 1, "10.0.0.3", 80),
        // The same address once more, with a priority that counts less.
        record(30, 1, 1, "10.0.0.3", 80),
    ];
    names.replace(&Query::Service("_http._tcp.a.test".into()), records);
    let found = names.expand(&[srv("_http._tcp.a.test")]);
    let found: Vec<_> = found.iter().map(|one| (one.address.to_string(), one.priority, one.weight)).collect();
    let wanted = [
        ("10.0.0.1:80", 10, 18),
        ("10.0.0.2:80", 10, 1),
        ("10.0.0.3:80", 10, 786_420),
        ("[fd00::1]:80", 10, 18),
        ("10.0.0.9:90", 20, 60),
    ];
    assert_eq!(found, wanted.map(|(address, priority, weight)| (address.to_owned(), priority, weight)));
}

#[test]
fn of_too_many_addresses_those_in_use_stay() {
    let names = ResolvedNames::default();
    let many = |range: std::ops::Range<u32>| {
        range.map(|number| Resolved::of_host(std::net::Ipv4Addr::from(0x0A00_0000 + number).into()))
    };
    assert_eq!(names.replace(&host("a"), many(9_990..10_000)), Change { changed: true, unused: 0 });
    let change = names.replace(&host("a"), many(0..10_000));
    assert_eq!(change, Change { changed: true, unused: 10_000 - ADDRESSES_MAX });
    let used = names.expand(&[source("a:80")]);
    assert_eq!(used.len(), ADDRESSES_MAX);
    let last = Address::Tcp("10.0.39.15:80".parse().unwrap());
    assert!(used.iter().any(|endpoint| endpoint.address == last), "one that was in use");
    assert!(!names.replace(&host("a"), many(0..9_999).chain(many(9_999..10_000))).changed);
    // A service has a bound of its own.
    let sources: Vec<_> = (1..=5).map(|port| source(&format!("a:{port}"))).collect();
    assert_eq!(names.expand(&sources).len(), ENDPOINTS_MAX);
}
