//! Names of endpoints, resolved by a name server whose answers change.

use std::net::{IpAddr, Ipv4Addr};

use crate::support::{
    Folder, Origin, Server,
    dns::{Data, Manners, NameServer},
    folder::Settings,
    metrics::Metrics,
    until,
};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Nobody listens there.
const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// A service with these endpoints, and settings of the resolution.
fn settings(names: &NameServer, dns: &str, endpoints: &[String]) -> Settings {
    settings_with(names, dns, endpoints, true)
}

/// The same, with or without loopback addresses of name servers.
fn settings_with(names: &NameServer, dns: &str, endpoints: &[String], loopback: bool) -> Settings {
    let endpoints: String = endpoints.iter().map(|one| format!("\n[[service.endpoint]]\n{one}\n")).collect();
    let more = format!(
        "\n[dns]\nservers = [\"{}\"]\ndanger_allow_loopback = {loopback}\n{dns}\n\n[[service]]\nname = \"named\"\n{endpoints}\n\
         [[route]]\nname = \"named\"\npath_prefix = \"/named\"\nauth = \"public\"\nservice = \"named\"\n",
        names.address
    );
    Settings { more, ..Settings::default() }
}

fn named(names: &NameServer, origin: &Origin) -> Settings {
    settings(names, "", &[address("orders.test", origin)])
}

fn address(name: &str, origin: &Origin) -> String {
    format!("address = \"{name}:{}\"", origin.address.port())
}

/// Members of the endpoints that the operator is shown.
fn shown(folder: &Folder, member: &str) -> Vec<String> {
    let ran = folder.run(&["upstream", "list", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let services = ran.json();
    let endpoints = services[0]["endpoints"].as_array().unwrap();
    endpoints.iter().map(|endpoint| endpoint[member].as_str().unwrap_or("-").to_owned()).collect()
}

fn become_these(folder: &Folder, origin: &Origin, expected: &[IpAddr]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|one| std::net::SocketAddr::new(*one, origin.address.port()).to_string())
        .collect();
    until("the endpoints", || (shown(folder, "address") == expected).then_some(()));
}

/// How often a look-up of a name has had a result.
fn lookups(server: &Server, result: &str) -> f64 {
    let series =
        format!("cardea_dns_lookups_total{{name=\"orders.test\",records=\"address\",result=\"{result}\"}}");
    Metrics::of(server).get(&series).unwrap_or(0.0)
}

fn wait_for_lookup(server: &Server, result: &str) {
    let before = lookups(server, result);
    until(result, || (lookups(server, result) > before).then_some(()));
}

#[test]
fn endpoints_follow_the_answers_and_stay_without_them() {
    let (origin, names) = (Origin::start(), NameServer::start());
    names.set_addresses("orders.test", &[HERE, THERE]);
    let folder = Folder::new(&named(&names, &origin));
    let server = Server::start(&folder);
    let mut connection = server.connect();
    // They are known when the listener opens.
    let port = origin.address.port();
    assert_eq!(shown(&folder, "address"), [format!("{HERE}:{port}"), format!("{THERE}:{port}")]);
    assert_eq!(shown(&folder, "name"), [format!("orders.test:{port}"), format!("orders.test:{port}")]);
    for request in 0..20 {
        assert_eq!(connection.get(&format!("/named/{request}")).unwrap().status, 200);
    }
    let label = format!("{{service=\"named\",endpoint=\"orders.test/{HERE}:{port}\"}}");
    let requests = Metrics::of(&server).get(&format!("cardea_upstream_requests_total{label}")).unwrap();
    assert!((20.0..=21.0).contains(&requests), "{requests}");

    // A chain of aliases.
    names.set([
        ("orders.test", Data::Alias("a.test")),
        ("a.test", Data::Alias("b.test")),
        ("b.test", Data::Address(HERE)),
    ]);
    become_these(&folder, &origin, &[HERE]);
    let kept = Metrics::of(&server).get(&format!("cardea_upstream_requests_total{label}")).unwrap();
    assert!(kept >= requests, "the state of an address that stays is kept");

    for (manners, result) in [
        (Manners::Failing, "failed"),
        (Manners::Garbage, "failed"),
        (Manners::Silent, "failed"),
        (Manners::FailingV6, "partial"),
    ] {
        names.behave(manners);
        wait_for_lookup(&server, result);
        become_these(&folder, &origin, &[HERE]);
        assert_eq!(connection.get("/named/still").unwrap().status, 200, "{manners:?}");
        let (taken, line) = server.reload();
        assert!(taken, "{line}");
        become_these(&folder, &origin, &[HERE]);
        names.behave(Manners::Good);
        wait_for_lookup(&server, "resolved");
    }
    // The name is gone, or has no addresses.
    for records in [vec![], vec![("orders.test", Data::Service(1, 1, 1, "a.test"))]] {
        names.set(records);
        wait_for_lookup(&server, "missing");
        become_these(&folder, &origin, &[HERE]);
        assert_eq!(connection.get("/named/still").unwrap().status, 200);
        names.set_addresses("orders.test", &[HERE]);
        wait_for_lookup(&server, "resolved");
    }
    let metrics = Metrics::of(&server);
    let name = "{name=\"orders.test\",records=\"address\"}";
    assert_eq!(metrics.get(&format!("cardea_dns_addresses{name}")), Some(1.0));
    assert!(metrics.get(&format!("cardea_dns_age_seconds{name}")).unwrap() < 60.0);
    let log = server.program.stderr.text();
    assert!(
        log.contains("its known addresses stay in use") && log.contains("a name is resolved again"),
        "{log}"
    );
    drop(connection);
    server.stop();
}

#[test]
fn the_gateway_starts_without_an_answer_and_uses_the_first_that_comes() {
    let (origin, names) = (Origin::start(), NameServer::start());
    names.behave(Manners::Failing);
    let folder = Folder::new(&named(&names, &origin));
    let checked = folder.run(&["check"]);
    assert_eq!(checked.code, Some(0), "a check resolves nothing: {checked:?}");
    let server = Server::start(&folder);
    let mut connection = server.connect();
    let refused = connection.get("/named/early").unwrap();
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("no_endpoint"), "{}", refused.text());
    names.set_addresses("orders.test", &[HERE]);
    names.behave(Manners::Good);
    become_these(&folder, &origin, &[HERE]);
    assert_eq!(connection.get("/named/late").unwrap().status, 200);
    let log = server.program.stderr.text();
    assert!(log.contains("until it is, it has no endpoints"), "{log}");
    drop(connection);
    server.stop();
}

#[test]
fn a_reload_to_a_name_resolves_it_first() {
    let (origin, names) = (Origin::start(), NameServer::start());
    // After this, a name is not looked up again within the test.
    names.set_ttl(u32::MAX);
    names.set_addresses("orders.test", &[HERE]);
    let literal = format!("address = \"{}\"", origin.address);
    let folder = Folder::new(&settings(&names, "", &[literal]));
    let server = Server::start(&folder);
    let mut connection = server.connect();
    assert_eq!(connection.get("/named/by-address").unwrap().status, 200);
    folder.configure(&named(&names, &origin));
    let (taken, line) = server.reload();
    assert!(taken, "{line}");
    assert_eq!(connection.get("/named/by-name").unwrap().status, 200);
    assert_eq!(shown(&folder, "name"), [format!("orders.test:{}", origin.address.port())]);
    // A refused one changes nothing, and other name servers are asked at once.
    folder.write("cardea.toml", "nonsense");
    let (taken, line) = server.reload();
    assert!(!taken, "{line}");
    let others = NameServer::start();
    others.set_addresses("orders.test", &[HERE, THERE]);
    folder.configure(&named(&others, &origin));
    let (taken, line) = server.reload();
    assert!(taken, "{line}");
    become_these(&folder, &origin, &[HERE, THERE]);
    drop(connection);
    server.stop();
}

#[test]
fn a_request_ends_at_an_endpoint_that_its_name_has_left() {
    let (origin, names) = (Origin::start(), NameServer::start());
    names.set_addresses("orders.test", &[HERE]);
    let folder = Folder::new(&settings(&names, "keep_missing = \"0s\"", &[address("orders.test", &origin)]));
    let server = Server::start(&folder);
    let mut waiting = server.connect();
    let request = std::thread::spawn(move || waiting.get("/named/slow?1").map(|answer| answer.status));
    until("the request", || {
        origin.arrivals().iter().any(|path| path.starts_with("/named/slow")).then_some(())
    });
    names.set([]);
    become_these(&folder, &origin, &[]);
    let mut connection = server.connect();
    let refused = connection.get("/named/none").unwrap();
    assert_eq!((refused.status, refused.text().contains("no_endpoint")), (503, true));
    origin.release();
    assert_eq!(request.join().unwrap().unwrap(), 200);
    names.set_addresses("orders.test", &[HERE]);
    become_these(&folder, &origin, &[HERE]);
    assert_eq!(connection.get("/named/again").unwrap().status, 200);
    drop(connection);
    server.stop();
}

#[test]
fn of_more_addresses_than_are_used_some_are_and_come_by_tcp() {
    let (origin, names) = (Origin::start(), NameServer::start());
    let many = (0..2_000_u32).map(|number| IpAddr::V4(Ipv4Addr::from(0x7F00_0001 + number)));
    names.set_addresses("orders.test", &many.collect::<Vec<_>>());
    names.behave(Manners::Truncating);
    let folder = Folder::new(&named(&names, &origin));
    let server = Server::start(&folder);
    assert_eq!(shown(&folder, "address").len(), 256);
    assert!(names.by_tcp() > 0);
    let mut connection = server.connect();
    // Only the first of them listens: all others refuse, and are ejected.
    until("the address that works", || (connection.get("/named/many").unwrap().status == 200).then_some(()));
    assert!(
        server.program.stderr.text().contains("more than 256 addresses"),
        "{}",
        server.program.stderr.text()
    );
    drop(connection);
    server.stop();
}

#[test]
fn an_unreachable_family_costs_no_request() {
    let (origin, names) = (Origin::start(), NameServer::start());
    // Refused at once, or there is no such family here.
    names.set_addresses("orders.test", &["::1".parse().unwrap(), "2001:db8::1".parse().unwrap(), HERE]);
    let folder = Folder::new(&named(&names, &origin));
    let server = Server::start(&folder);
    let mut connection = server.connect();
    for request in 0..50 {
        assert_eq!(connection.get(&format!("/named/{request}")).unwrap().status, 200);
    }
    let port = origin.address.port();
    let healthy = |label: &str| {
        let series =
            format!("cardea_upstream_healthy{{service=\"named\",endpoint=\"orders.test/{label}:{port}\"}}");
        Metrics::of(&server).get(&series)
    };
    assert_eq!((healthy("[::1]"), healthy("127.0.0.1")), (Some(0.0), Some(1.0)));
    drop(connection);
    server.stop();
}

#[test]
fn service_records_say_where_and_in_which_order() {
    let (first, second, names) = (Origin::start(), Origin::start(), NameServer::start());
    let records = |first: &Origin| {
        [
            ("_http._tcp.orders.test", Data::Service(10, 1, first.address.port(), "one.test")),
            ("_http._tcp.orders.test", Data::Service(20, 1, second.address.port(), "two.test")),
            ("one.test", Data::Address(HERE)),
            ("two.test", Data::Address(HERE)),
        ]
    };
    names.set(records(&first));
    let folder = Folder::new(&settings(&names, "", &["srv = \"_http._tcp.orders.test\"".to_owned()]));
    let server = Server::start(&folder);
    let mut connection = server.connect();
    assert_eq!(shown(&folder, "name"), ["_http._tcp.orders.test", "_http._tcp.orders.test"]);
    for request in 0..10 {
        assert_eq!(connection.get(&format!("/named/{request}")).unwrap().status, 200);
    }
    assert_eq!((first.arrivals().len(), second.arrivals().len()), (10, 0), "a lower priority waits");
    let dead = Origin::start();
    let port = dead.address.port();
    drop(dead);
    names.set([
        ("_http._tcp.orders.test", Data::Service(10, 1, port, "one.test")),
        ("_http._tcp.orders.test", Data::Service(20, 1, second.address.port(), "two.test")),
        ("one.test", Data::Address(HERE)),
        ("two.test", Data::Address(HERE)),
    ]);
    let expected = [format!("{HERE}:{port}"), second.address.to_string()];
    until("the other port", || (shown(&folder, "address") == expected).then_some(()));
    for request in 0..10 {
        assert_eq!(connection.get(&format!("/named/second/{request}")).unwrap().status, 200);
    }
    assert_eq!(second.arrivals().len(), 10);
    drop(connection);
    server.stop();
}

#[test]
fn an_override_of_a_name_holds_for_all_its_addresses_and_two_names_may_share_one() {
    let (origin, names) = (Origin::start(), NameServer::start());
    let both = |more: &[IpAddr]| {
        let of_orders = more.iter().map(|address| ("orders.test", Data::Address(*address)));
        names.set(of_orders.chain([("others.test", Data::Address(HERE))]).collect::<Vec<_>>());
    };
    both(&[HERE]);
    let folder = Folder::new(&settings(
        &names,
        "",
        &[address("orders.test", &origin), address("others.test", &origin)],
    ));
    let server = Server::start(&folder);
    let mut connection = server.connect();
    assert_eq!(shown(&folder, "address"), [origin.address.to_string(), origin.address.to_string()]);
    assert_eq!(connection.get("/named/both").unwrap().status, 200);
    let name = format!("orders.test:{}", origin.address.port());
    let ran = folder.run(&["upstream", "drain", "named", &name]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(shown(&folder, "state"), ["drained", "healthy"]);
    both(&[HERE, THERE]);
    until("the second address", || {
        (shown(&folder, "state") == ["drained", "drained", "healthy"]).then_some(())
    });
    // An address is that of both names.
    let ran = folder.run(&["upstream", "disable", "named", &origin.address.to_string()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(shown(&folder, "state"), ["disabled", "drained", "disabled"]);
    assert_eq!(connection.get("/named/none").unwrap().status, 503);
    let ran = folder.run(&["upstream", "enable", "named", &format!("others.test/{}", origin.address)]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(connection.get("/named/again").unwrap().status, 200);
    drop(connection);
    server.stop();
}

#[test]
fn a_name_whose_hosts_nobody_answers_for_delays_no_other() {
    let (origin, names) = (Origin::start(), NameServer::start());
    // More questions than may be open at a time.
    let hosts = (1..=40).map(|port| ("_http._tcp.slow.test", Data::Service(1, 1, port, "silent.test")));
    let others = [("silent.test", Data::Silence), ("orders.test", Data::Address(HERE))];
    names.set(hosts.chain(others));
    names.behave(Manners::Truncating);
    let endpoints = [address("orders.test", &origin), "srv = \"_http._tcp.slow.test\"".to_owned()];
    let folder = Folder::new(&settings(&names, "", &endpoints));
    let server = Server::start(&folder);
    let slow = || {
        let series =
            "cardea_dns_lookups_total{name=\"_http._tcp.slow.test\",records=\"srv\",result=\"failed\"}";
        Metrics::of(&server).get(series).unwrap_or(0.0)
    };
    let (slow_before, before) = (slow(), lookups(&server, "resolved"));
    until("other names", || (lookups(&server, "resolved") >= before + 3.0).then_some(()));
    assert!((slow() - slow_before).abs() < 0.5, "the hosts of the slow one are still waited for");
    assert_eq!(server.connect().get("/named/one").unwrap().status, 200);
    server.stop();
}

#[test]
fn aliases_without_an_end_and_answers_of_other_names_say_nothing() {
    let (origin, names) = (Origin::start(), NameServer::start());
    let folder = Folder::new(&settings(&names, "keep_missing = \"0s\"", &[address("orders.test", &origin)]));
    names.set_addresses("orders.test", &[HERE]);
    let server = Server::start(&folder);
    become_these(&folder, &origin, &[HERE]);
    let chain = [
        ("orders.test", "a.test"),
        ("a.test", "b.test"),
        ("b.test", "c.test"),
        ("c.test", "d.test"),
        ("d.test", "e.test"),
        ("e.test", "f.test"),
    ];
    let aliases = |aliases: &[(&'static str, &'static str)]| -> Vec<_> {
        aliases.iter().map(|(name, target)| (*name, Data::Alias(target))).collect()
    };
    let looped = [&chain[..], &[("f.test", "orders.test")]].concat();
    for records in [aliases(&[("orders.test", "orders.test")]), aliases(&looped)] {
        names.set(records);
        wait_for_lookup(&server, "failed");
        become_these(&folder, &origin, &[HERE]);
        names.set_addresses("orders.test", &[HERE]);
        wait_for_lookup(&server, "resolved");
    }
    names.behave(Manners::OfAnother);
    wait_for_lookup(&server, "failed");
    become_these(&folder, &origin, &[HERE]);
    // A server without SOA records: there are no addresses of IPv6, and then there is no such name.
    names.behave(Manners::WithoutSoa);
    wait_for_lookup(&server, "resolved");
    assert!(lookups(&server, "partial") < 0.5);
    names.set([]);
    become_these(&folder, &origin, &[]);
    server.stop();
}

#[test]
fn answers_of_name_servers_lead_to_nothing_on_this_machine() {
    let (origin, names) = (Origin::start(), NameServer::start());
    names.set_addresses("orders.test", &[HERE, "::1".parse().unwrap(), "::ffff:127.0.0.2".parse().unwrap()]);
    let endpoints = [address("orders.test", &origin)];
    let folder = Folder::new(&settings_with(&names, "", &endpoints, false));
    let server = Server::start(&folder);
    wait_for_lookup(&server, "failed");
    assert!(shown(&folder, "address").is_empty());
    assert_eq!(server.connect().get("/named/one").unwrap().status, 503);
    assert!(server.program.stderr.text().contains("dns.danger_allow_loopback"));
    // An SRV record that names this machine is an answer too.
    names.set([("_http._tcp.orders.test", Data::Service(1, 1, origin.address.port(), "localhost"))]);
    folder.configure(&settings_with(&names, "", &["srv = \"_http._tcp.orders.test\"".to_owned()], false));
    let (taken, line) = server.reload();
    assert!(taken, "{line}");
    assert_eq!(server.connect().get("/named/two").unwrap().status, 503);
    // The control: by the operator's word.
    folder.configure(&settings_with(&names, "", &[address("localhost", &origin)], false));
    let (taken, line) = server.reload();
    assert!(taken, "{line}");
    assert_eq!(server.connect().get("/named/three").unwrap().status, 200);
    names.set_addresses("orders.test", &[HERE]);
    folder.configure(&settings_with(&names, "", &endpoints, true));
    let (taken, line) = server.reload();
    assert!(taken, "{line}");
    become_these(&folder, &origin, &[HERE]);
    assert_eq!(origin.arrivals(), ["/named/three"]);
    server.stop();
}

#[test]
fn no_name_leads_to_the_admin_listener() {
    let (origin, names) = (Origin::start(), NameServer::start());
    let folder = Folder::new(&settings(&names, "", &["srv = \"_http._tcp.orders.test\"".to_owned()]));
    let server = Server::start(&folder);
    names.set([
        ("_http._tcp.orders.test", Data::Service(1, 1, server.admin.port(), "one.test")),
        ("_http._tcp.orders.test", Data::Service(2, 1, origin.address.port(), "one.test")),
        ("one.test", Data::Address(HERE)),
    ]);
    until("the endpoints", || (!shown(&folder, "address").is_empty()).then_some(()));
    assert_eq!(shown(&folder, "address"), [origin.address.to_string()]);
    assert_eq!(server.connect().get("/named/one").unwrap().status, 200);
    assert!(server.program.stderr.text().contains("leads to the admin listener"));
    server.stop();
}
