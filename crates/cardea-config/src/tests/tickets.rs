//! Tests of session ticket and early data settings.

use super::{Fixture, TicketKeys};

fn listener(tls: &str) -> Fixture {
    let certificate = "[[listener.tls.certificate]]\nchain = \"a.pem\"\nkey = \"a.pem\"\n";
    let text = format!(
        "[[listener]]\nname = \"a\"\naddress = \"127.0.0.1:0\"\n[listener.tls]\n{tls}\n{certificate}"
    );
    Fixture::new(&text).file("a.pem", "PEM").file("secret", "1 ab")
}

#[test]
fn tickets_are_stateful_unless_something_says_otherwise() {
    for (tls, secret, tls12) in [
        ("", None, None),
        ("tickets = \"stateful\"", None, None),
        ("tickets = \"stateless\"", Some(false), Some(false)),
        ("tickets = \"stateless\"\ntls12_tickets = true", Some(false), Some(true)),
        ("ticket_secret = \"secret\"", Some(true), Some(false)),
        ("tickets = \"stateless\"\nticket_secret = \"secret\"\ntls12_tickets = true", Some(true), Some(true)),
    ] {
        let config = listener(tls).config();
        let tickets = config.listeners[0].tls.as_ref().unwrap().settings.stateless_tickets.as_ref();
        let is_shared = tickets.map(|tickets| matches!(tickets.keys, TicketKeys::Fleet(_)));
        assert_eq!(is_shared, secret, "{tls}");
        assert_eq!(tickets.map(|tickets| tickets.tls12), tls12, "{tls}");
    }
}

#[test]
fn settings_without_effect_are_errors() {
    for (tls, expected) in [
        (
            "tickets = \"stateful\"\nticket_secret = \"secret\"",
            "ticket_secret has no effect on stateful tickets; write tickets = \"stateless\", or remove it",
        ),
        ("tls12_tickets = true", "tls12_tickets has no effect on stateful tickets"),
        ("tickets = \"none\"", "none"),
    ] {
        let problems = listener(tls).problems();
        assert_eq!(problems.len(), 1, "{tls}: {problems:#?}");
        assert!(problems[0].contains(expected), "{}\nis not\n{expected}", problems[0]);
    }
}

#[test]
fn early_data_needs_a_listener_that_takes_it_and_remembers_sessions() {
    const ROUTE: &str = "[[route]]\nname = \"r\"\nauth = \"public\"\nearly_data = true\nrespond = {}\n";
    let with_route = |tls: &str| {
        let text = format!(
            "{ROUTE}[[listener]]\nname = \"a\"\naddress = \"127.0.0.1:0\"\n[listener.tls]\n{tls}\n[[listener.tls.certificate]]\nchain = \"a.pem\"\nkey = \"a.pem\"\n"
        );
        Fixture::new(&text).file("a.pem", "PEM").file("secret", "1 ab")
    };
    let config = with_route("early_data = true").config();
    assert!(config.routes[0].early_data && config.listeners[0].tls.as_ref().unwrap().early_data());
    let config = listener("").config();
    assert!(!config.listeners[0].tls.as_ref().unwrap().early_data());
    const FORGOTTEN: &str = "only sessions that are remembered";
    for (tls, expected) in [
        ("", "the route \"r\" allows early data, which no listener takes"),
        ("early_data = true\ntickets = \"stateless\"", FORGOTTEN),
        ("early_data = true\nticket_secret = \"secret\"", FORGOTTEN),
        ("early_data = true\nsessions_max = 0", FORGOTTEN),
    ] {
        let problems = with_route(tls).problems();
        assert_eq!(problems.len(), 1, "{tls}: {problems:#?}");
        assert!(problems[0].contains(expected), "{}\nis not\n{expected}", problems[0]);
    }
}
