//! Endpoints as the operator sees and overrides them.

use serde_json::Value;

use crate::support::{Folder, Origin, Server, client::HOST, folder::Settings, metrics::Metrics, until};

/// A service with two endpoints, both of which are checked.
fn two(one: &Origin, other: &Origin) -> Settings {
    let more = format!(
        "\n[health_check]\nprotocol = \"tcp\"\ninterval = \"1s\"\n\n[[service]]\nname = \"two\"\n\n\
         [[service.endpoint]]\naddress = \"{}\"\n\n[[service.endpoint]]\naddress = \"{}\"\nregion = \"far\"\n\n\
         [[route]]\nname = \"two\"\npath_prefix = \"/two\"\nauth = \"public\"\nservice = \"two\"\n",
        one.address, other.address
    );
    Settings { more, ..Settings::default() }
}

fn endpoints(folder: &Folder) -> Vec<Value> {
    let ran = folder.run(&["upstream", "list", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let services = ran.json();
    assert_eq!(services[0]["service"], "two");
    services[0]["endpoints"].as_array().unwrap().clone()
}

fn metric(server: &Server, name: &str) -> Option<String> {
    let mut admin = crate::support::Connection::plain(server.admin).unwrap();
    admin.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let text = admin.answer().unwrap().unwrap().text();
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
}

#[test]
fn an_endpoint_is_drained_and_enabled_and_a_reload_changes_neither() {
    let (one, other) = (Origin::start(), Origin::start());
    let folder = Folder::new(&two(&one, &other));
    let server = Server::start(&folder);
    let mut connection = server.connect();
    until("the first checks", || {
        endpoints(&folder).iter().all(|endpoint| endpoint["check_up"] == true).then_some(())
    });
    let (first, second) = (one.address.to_string(), other.address.to_string());
    assert_eq!(connection.get("/two/0").unwrap().status, 200);
    let listed = endpoints(&folder);
    assert_eq!((&listed[0]["state"], &listed[1]["region"]), (&"healthy".into(), &"far".into()));

    let ran = folder.run(&["upstream", "drain", "two", &first]);
    assert_eq!(
        (ran.code, ran.stdout.trim()),
        (Some(0), &*format!("{first} is drained; no requests are left there"))
    );
    let explained = folder.run(&["upstream", "explain", "two", "--json"]).json();
    assert_eq!(explained["chosen"], *second, "{explained}");
    assert_eq!(explained["endpoints"][0]["obstacle"], "taken_out");
    assert!(explained["endpoints"][1]["obstacle"].is_null());
    assert_eq!(explained["regions"][1]["share"], 1.0, "{explained}");
    let text = folder.run(&["upstream", "explain", "two"]).stdout;
    assert!(text.contains("no: the operator has taken it out"), "{text}");
    assert!(text.ends_with(&format!("chosen: {second}\n")), "{text}");
    let shown = |service: &str| {
        let mut admin = crate::support::Connection::plain(server.admin).unwrap();
        let request = format!("GET /choice/{service} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        admin.send(request.as_bytes()).unwrap();
        admin.answer().unwrap().unwrap()
    };
    let by_http: Value = serde_json::from_str(&shown("two").text()).unwrap();
    assert_eq!(by_http["chosen"], *second, "{by_http}");
    assert_eq!(shown("three").status, 404);
    let before = one.arrivals().len();
    for request in 0..20 {
        assert_eq!(connection.get(&format!("/two/{request}")).unwrap().status, 200);
    }
    assert_eq!(one.arrivals().len(), before, "nothing arrives at a drained endpoint");
    assert_eq!(other.arrivals().len(), 20 + 1 - before);
    let labels = format!("{{service=\"two\",endpoint=\"{first}\",override=\"drained\"}}");
    assert_eq!(metric(&server, &format!("cardea_upstream_overridden{labels}")).as_deref(), Some("1"));

    // A reload keeps it, and so does one that changes the endpoints.
    let (taken, line) = server.reload();
    assert!(taken, "{line}");
    let mut swapped = two(&other, &one);
    swapped.version = "2".to_owned();
    folder.configure(&swapped);
    let (taken, line) = server.reload();
    assert!(taken, "{line}");
    let listed = endpoints(&folder);
    assert_eq!((&listed[1]["address"], &listed[1]["state"]), (&first.as_str().into(), &"drained".into()));
    assert_eq!(connection.get("/two/after").unwrap().status, 200);
    assert_eq!(one.arrivals().len(), before);

    // The last one: nothing is left, whatever its health.
    let ran = folder.run(&["upstream", "disable", "two", &second]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("no other endpoint"), "{ran:?}");
    let refused = connection.get("/two/none").unwrap();
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("no_endpoint"), "{}", refused.text());

    let ran = folder.run(&["upstream", "enable", "two", &first, "--json"]);
    assert_eq!((ran.code, &ran.json()["changed"], &ran.json()["others"]), (Some(0), &true.into(), &1.into()));
    assert_eq!(connection.get("/two/again").unwrap().status, 200);
    assert_eq!(one.arrivals().last().unwrap(), "/two/again");
    let ran = folder.run(&["status"]);
    assert!(ran.stdout.contains("IN_FLIGHT") && ran.stdout.contains("disabled"), "{}", ran.stdout);
    let ran = folder.run(&["status", "--json"]);
    assert_eq!(ran.json()["upstreams"][0]["endpoints"][0]["overridden"], "disabled");
    let log = server.program.stderr.text();
    assert_eq!(log.matches("endpoint is overridden by the operator").count(), 3, "{log}");
    drop(connection);
    server.stop();
}

#[test]
fn what_is_not_there_is_not_overridden() {
    let origin = Origin::start();
    let folder = Folder::new(&Settings { origin: Some(origin.address), ..Settings::default() });
    let server = Server::start(&folder);
    let ran = folder.run(&["upstream", "drain", "origin", "10.0.0.1:1"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains(&origin.address.to_string()), "{ran:?}");
    let ran = folder.run(&["upstream", "drain", "orign", &origin.address.to_string()]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("no service \"orign\""), "{ran:?}");
    server.stop();
}

#[test]
fn failed_handshakes_with_a_service_do_not_fill_the_log() {
    let plain = Origin::start();
    let service = |name: &str| {
        format!(
            "\n[[service]]\nname = \"{name}\"\ntls = {{}}\n\n[[service.endpoint]]\naddress = \"{}\"\n\n\
             [[route]]\nname = \"{name}\"\npath_prefix = \"/{name}\"\nauth = \"public\"\nservice = \"{name}\"\n",
            plain.address
        )
    };
    let more = format!("{}{}", service("one"), service("two"));
    let folder = Folder::new(&Settings { more, ..Settings::default() });
    let server = Server::start(&folder);
    let mut connection = server.connect();
    for request in 0..40 {
        for name in ["one", "two"] {
            let status = connection.get(&format!("/{name}/{request}")).unwrap().status;
            assert!(matches!(status, 502 | 503), "{status}");
        }
    }
    let failures = Metrics::of(&server).get(&format!(
        "cardea_upstream_failures_total{{service=\"one\",endpoint=\"{}\",kind=\"handshake\"}}",
        plain.address
    ));
    assert!(failures.is_some_and(|failures| failures >= 40.0), "{failures:?}");
    let log = server.program.stderr.text();
    let warnings = log.matches("TLS handshake with the service failed").count();
    // One for each service, and few more where the requests took longer than ten seconds.
    assert!((2..=8).contains(&warnings), "{log}");
    drop(connection);
    server.stop();
}

#[test]
fn what_is_kept_for_retries_is_shown() {
    let origin = Origin::start();
    let folder = Folder::new(&Settings { origin: Some(origin.address), ..Settings::default() });
    let server = Server::start(&folder);
    let kept = || Metrics::of(&server).get("cardea_replay_buffered_bytes{}");
    assert_eq!(kept(), Some(0.0));
    let mut connection = server.connect();
    let body = "b".repeat(10_000);
    let head = format!("PUT /origin/slow HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {}\r\n\r\n", body.len());
    connection.send(format!("{head}{body}").as_bytes()).unwrap();
    until("the body is kept", || (kept() == Some(10_000.0)).then_some(()));
    origin.release();
    assert_eq!(connection.answer().unwrap().unwrap().status, 200);
    until("it is let go", || (kept() == Some(0.0)).then_some(()));
    server.stop();
}
