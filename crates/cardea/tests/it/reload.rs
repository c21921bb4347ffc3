//! A reload under load: no request notices it but by what it finds afterwards.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use crate::support::{Folder, Origin, Server, folder::Settings, program::run, server::ask};

/// The configuration that is in force after the good reload number `version`.
fn settings(origin: &Origin, version: usize) -> Settings {
    let mut more = String::new();
    // Routes and services come and go.
    if version % 2 == 1 {
        more.push_str(
            "\n[[route]]\nname = \"odd\"\npath = \"/odd\"\nauth = \"public\"\nservice = \"more\"\n",
        );
        more.push_str(&format!(
            "\n[[service]]\nname = \"more\"\n\n[[service.endpoint]]\naddress = \"{}\"\n",
            origin.address
        ));
    }
    Settings { origin: Some(origin.address), version: version.to_string(), more, ..Settings::default() }
}

#[test]
fn no_request_fails_while_the_configuration_changes() {
    let origin = Origin::start();
    let folder = Folder::new(&settings(&origin, 0));
    let server = Server::start(&folder);
    let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let failures = Arc::new(Mutex::new(Vec::new()));
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let mut connection = server.connect();
            let (stop, served, failures) = (Arc::clone(&stop), Arc::clone(&served), Arc::clone(&failures));
            std::thread::spawn(move || {
                // All on one connection: a reload closes none.
                let (path, body) =
                    if number % 2 == 0 { ("/version", "version ") } else { ("/origin/x", "0 /x") };
                while !stop.load(Relaxed) {
                    match connection.get(path) {
                        Ok(answer) if answer.status == 200 && answer.text().starts_with(body) => {
                            served.fetch_add(1, Relaxed);
                        }
                        other => {
                            failures.lock().unwrap().push(format!("{path}: {other:?}"));
                            return;
                        }
                    }
                }
            })
        })
        .collect();

    let mut connection = server.connect();
    let mut version = 0;
    for round in 1..=20 {
        let before = served.load(Relaxed);
        if round % 4 == 0 {
            let good = folder.read("cardea.toml");
            folder.write("cardea.toml", &good.replace("[[listener]]", "[[listner]]"));
            let at = 1 + good.lines().position(|line| line == "[[listener]]").unwrap();
            let (taken, line) = server.reload();
            assert!(!taken && line.contains(&format!("cardea.toml:{at}:")), "{line}");
        } else {
            version = round;
            folder.configure(&settings(&origin, version));
            let (taken, line) = server.reload();
            assert!(taken, "{line}");
        }
        // Not one request later, on a connection from before.
        assert_eq!(connection.get("/version").unwrap().text(), format!("version {version}"));
        let odd = connection.get("/odd").unwrap().status;
        assert_eq!(odd, if version % 2 == 1 { 200 } else { 404 }, "version {version}");
        assert!(server.program.stderr.len() < 500, "a reload has little to say");
        crate::support::until("requests between two reloads", || {
            (served.load(Relaxed) > before || !failures.lock().unwrap().is_empty()).then_some(())
        });
    }
    stop.store(true, Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(*failures.lock().unwrap(), Vec::<String>::new());
    assert!(served.load(Relaxed) > 100, "{served:?}");
    server.stop();
}

#[test]
fn the_admin_socket_reloads_and_reports_errors() {
    let folder = Folder::new(&Settings::default());
    let server = Server::start(&folder);
    let mut connection = server.connect();
    assert_eq!(ask(&folder, r#"{"command":"status"}"#)["ok"]["status"]["generation"], 1);

    folder.configure(&Settings { version: "2".to_owned(), ..Settings::default() });
    assert_eq!(ask(&folder, r#"{"command":"reload"}"#)["ok"]["reloaded"]["generation"], 2);
    assert_eq!(connection.get("/version").unwrap().text(), "version 2");

    let more = "\n[[route]]\nname = \"bad\"\npath = \"/bad\"\nrespond = {}\n".to_owned();
    folder.configure(&Settings { version: "3".to_owned(), more, ..Settings::default() });
    let reply = ask(&folder, r#"{"command":"reload"}"#);
    assert_eq!(reply["error"]["code"], "configuration", "{reply}");
    let message = reply["error"]["message"].as_str().unwrap();
    assert!(message.contains("cardea.toml:") && message.contains("auth"), "{message}");
    assert_eq!(connection.get("/version").unwrap().text(), "version 2");
    assert_eq!(ask(&folder, r#"{"command":"status"}"#)["ok"]["status"]["generation"], 2);
    server.stop();
}

#[test]
fn listeners_come_and_go_and_one_that_cannot_be_bound_changes_nothing() {
    let folder = Folder::new(&Settings::default());
    let server = Server::start(&folder);
    let mut old = server.connect();
    assert_eq!(old.get("/version").unwrap().status, 200);

    let second = |address: &str, version: &str| {
        let more = format!("\n[[listener]]\nname = \"second\"\naddress = \"{address}\"\n");
        folder.configure(&Settings { version: version.to_owned(), more, ..Settings::default() });
    };
    // Where the first one listens.
    second(&server.address.to_string(), "2");
    let (taken, line) = server.reload();
    assert!(!taken && line.contains("second") && line.contains(&server.address.to_string()), "{line}");
    assert_eq!(old.get("/version").unwrap().text(), "version 1");

    let from = server.program.stderr.len();
    second("127.0.0.1:0", "3");
    assert!(server.reload().0);
    let address = server.program.stderr.find("the second listener", from, |line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        let address = line["fields"]["address"].as_str()?.parse().ok()?;
        (line["fields"]["listener"] == "second").then_some(address)
    });
    let mut plain = crate::support::Connection::plain(address).unwrap();
    assert_eq!(plain.get("/version").unwrap().text(), "version 3");

    folder.configure(&Settings::default());
    assert!(server.reload().0);
    crate::support::until("the second listener's end", || {
        std::net::TcpStream::connect(address).is_err().then_some(())
    });
    assert_eq!(old.get("/version").unwrap().status, 200, "connections of other listeners stay");
    server.stop();
}

#[test]
fn keys_that_need_a_restart_are_named_and_the_rest_takes_effect() {
    let folder = Folder::new(&Settings::default());
    let server = Server::start(&folder);
    let from = server.program.stderr.len();
    let more = "\n[limits]\nfields_max = 50\n\n[process]\nworkers = 3\n\n[authorization_server.secrets]\niterations = 20000\n";
    folder.configure(&Settings { version: "2".to_owned(), more: more.to_owned(), ..Settings::default() });
    let ran = folder.run(&["reload", "--json"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let expected = ["authorization_server.secrets.iterations", "process.workers"];
    assert_eq!(ran.json()["needs_restart"], serde_json::json!(expected), "{ran:?}");
    server.program.stderr.wait_for("authorization_server.secrets.iterations, process.workers", from);
    assert_eq!(server.connect().get("/version").unwrap().text(), "version 2");
    let status = folder.run(&["status", "--json"]);
    assert_eq!(
        status.json()["needs_restart"],
        serde_json::json!(expected),
        "they are remembered: {status:?}"
    );

    // As at the start, with a default written out.
    let more = "\n[authorization_server.secrets]\niterations = 210000\n".to_owned();
    folder.configure(&Settings { version: "3".to_owned(), more, ..Settings::default() });
    let ran = folder.run(&["reload"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    server.stop();
}

#[test]
fn the_level_of_the_log_changes_at_once() {
    let folder = Folder::new(&Settings::default());
    let server = Server::start(&folder);
    // The handshakes that were logged up to the end of another reload.
    let handshakes = |level: &'static str, version: &str| {
        folder.configure(&Settings { log_level: level, version: version.to_owned(), ..Settings::default() });
        let ran = folder.run(&["reload"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let from = server.program.stderr.len();
        assert_eq!(server.connect().get("/version").unwrap().text(), format!("version {version}"));
        assert!(server.reload().0);
        let text = server.program.stderr.text();
        text.lines().skip(from).filter(|line| line.contains("TLS handshake completed")).count()
    };
    assert_eq!(handshakes("debug", "2"), 1);
    assert_eq!(handshakes("info", "3"), 0);
    assert_eq!(handshakes("trace", "4"), 1);
    server.stop();
}

#[test]
fn the_number_of_connections_changes_at_once() {
    let folder = Folder::new(&Settings::default());
    let server = Server::start(&folder);
    let limit = |max: usize| {
        let more = format!("\n[limits]\nconnections_max = {max}\nconnections_per_prefix_max = 100\n");
        folder.configure(&Settings { more, ..Settings::default() });
        let ran = folder.run(&["reload"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    };
    let mut idle = [server.connect(), server.connect()];
    for connection in &mut idle {
        assert_eq!(connection.get("/version").unwrap().status, 200);
    }
    limit(1);
    let mut another = server.connect();
    assert_eq!(another.get("/version").unwrap().status, 200);
    assert!(idle.iter_mut().all(|connection| connection.is_closed().unwrap()), "those idle give way");
    limit(2);
    assert_eq!(server.connect().get("/version").unwrap().status, 200);
    assert_eq!(another.get("/version").unwrap().status, 200, "there is room for both");
    server.stop();
}

#[test]
fn the_permissions_of_a_unix_socket_change_at_once() {
    let settings = |mode: &str| Settings {
        more: format!(
            "\n[[listener]]\nname = \"local\"\naddress = \"unix:{{folder}}/http.sock\"\nmode = \"{mode}\"\n"
        ),
        ..Settings::default()
    };
    let folder = Folder::new(&settings("0600"));
    let server = Server::start(&folder);
    let mode = |name: &str| fs::metadata(folder.file(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("http.sock"), 0o600);
    folder.configure(&settings("0660"));
    let ran = folder.run(&["reload"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("changed listener local: mode\n"), "{ran:?}");
    assert_eq!(mode("http.sock"), 0o660);

    // Whatever somebody put in its place is left alone, and what is reported is what has become of it.
    fs::rename(folder.file("http.sock"), folder.file("moved.sock")).unwrap();
    folder.write("other", "");
    symlink(folder.file("other"), folder.file("http.sock")).unwrap();
    folder.configure(&settings("0666"));
    let ran = folder.run(&["reload", "--json"]);
    assert_eq!((ran.code, &ran.json()["needs_restart"]), (Some(3), &serde_json::json!(["listener.mode"])));
    assert_eq!((mode("other"), mode("moved.sock")), (0o600, 0o660));
    let status = folder.run(&["status", "--json"]).json();
    assert_eq!(status["needs_restart"], serde_json::json!(["listener.mode"]), "{status}");
    // It is tried again by the next reload.
    fs::rename(folder.file("moved.sock"), folder.file("http.sock")).unwrap();
    assert_eq!(folder.run(&["reload"]).code, Some(0));
    assert_eq!(mode("http.sock"), 0o666);
    server.stop();
}

#[test]
fn a_file_that_the_configuration_names_is_a_change_where_only_its_content_differs() {
    let more = "\n[[route]]\nname = \"page\"\npath = \"/page\"\nauth = \"public\"\nrespond = { file = \"page.txt\" }\n";
    let folder = Folder::new(&Settings::default());
    folder.write("page.txt", "one");
    folder.configure(&Settings { more: more.to_owned(), ..Settings::default() });
    let server = Server::start(&folder);
    assert!(folder.run(&["reload"]).stdout.ends_with("no changes\n"), "the control");
    folder.write("page.txt", "two");
    let ran = folder.run(&["reload"]);
    assert!(ran.stdout.ends_with("changed route page: respond.file\n"), "{ran:?}");
    assert_eq!(server.connect().get("/page").unwrap().text(), "two");
    server.stop();
}

#[test]
fn a_reload_that_would_tear_the_configuration_apart_is_refused_by_name() {
    let folder = Folder::new(&Settings::default());
    let server = Server::start(&folder);
    let good = folder.read("cardea.toml");
    for (from, to, named) in [
        (
            "[authorization_server]",
            "[authorization_server]\ndatabase = \"sqlite:other.db\"",
            "authorization_server.database",
        ),
        (
            "issuer = \"https://gateway.test\"",
            "issuer = \"https://other.test\"",
            "authorization_server.issuer",
        ),
    ] {
        let changed = good.replacen(from, to, 1).replace("body = \"version 1\"", "body = \"version 2\"");
        assert_ne!(changed, good, "{from}");
        folder.write("cardea.toml", &changed);
        let ran = folder.run(&["reload"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        let line = 1 + changed.lines().position(|line| to.ends_with(line) && !line.is_empty()).unwrap();
        let place = format!("cardea.toml:{line}:1: a reload can't change {named}");
        assert!(ran.stderr.contains(&place) && ran.stderr.contains("restart"), "{place}: {ran:?}");
        assert_eq!(server.connect().get("/version").unwrap().text(), "version 1", "nothing was put in force");
    }
    // Of a section that is new, the section alone.
    let acme = "[acme]\ndirectory = \"https://acme.test/d\"\nterms_of_service_agreed = true\n\
                wrapping_key = { file = \"wrapping.key\" }\n";
    folder.write("cardea.toml", &format!("{acme}{good}"));
    let ran = folder.run(&["reload"]);
    assert_eq!(ran.stderr.matches("can't change").count(), 1, "{ran:?}");
    assert!(ran.stderr.contains("cardea.toml:1:2: a reload can't change acme,"), "{ran:?}");
    folder.write("cardea.toml", &good);
    assert_eq!(folder.run(&["reload"]).code, Some(0), "the control");
    server.stop();
}

#[test]
fn scopes_resources_and_lifetimes_of_the_authorization_server_change_by_a_reload() {
    let folder = Folder::new(&Settings::default());
    let server = Server::start(&folder);
    let refused = folder.run(&["client", "create", "early", "--scope", "audit", "--json"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");

    let good = folder.read("cardea.toml");
    let changed = good.replacen(
        "scopes = [\"read\", \"write\"]",
        "scopes = [\"read\", \"audit\"]\nresources = [\"https://more.test\"]\naccess_token_lifetime = \"10m\"",
        1,
    );
    let changed = changed.replace("scopes = [\"write\"]", "scopes = [\"audit\"]");
    folder.write("cardea.toml", &changed);
    let ran = folder.run(&["reload"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for key in ["scopes", "resources", "access_token_lifetime"] {
        assert!(ran.stdout.contains(&format!("setting authorization_server.{key}\n")), "{ran:?}");
    }
    assert!(ran.stdout.contains("changed route write: auth\n"), "{ran:?}");

    let arguments =
        ["client", "create", "auditor", "--scope", "audit", "--audience", "https://more.test", "--json"];
    let created = folder.run(&arguments);
    assert_eq!(created.code, Some(0), "{created:?}");
    let member = |name: &str| created.json()[name].as_str().unwrap().to_owned();
    let answer = server.connect().token(&member("client_id"), &member("client_secret")).unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    let token: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((&token["expires_in"], &token["scope"]), (&600.into(), &"audit".into()), "{token}");
    let metadata = server.connect().get("/.well-known/oauth-authorization-server").unwrap().text();
    let metadata: serde_json::Value = serde_json::from_str(&metadata).unwrap();
    assert_eq!(metadata["scopes_supported"], serde_json::json!(["read", "audit"]));
    server.stop();
}

#[test]
fn a_reload_by_command_prints_the_changes_and_sets_the_exit_code() {
    let folder = Folder::new(&Settings::default());
    let absent = folder.run(&["reload"]);
    assert_eq!(absent.code, Some(1), "{absent:?}");
    assert!(absent.stderr.contains("no gateway responds at") && absent.stdout.is_empty(), "{absent:?}");
    assert_eq!(folder.run(&["status"]).code, Some(1));
    // Whatever answers at the default socket is not meant by a file that is not there.
    let mistaken = run(folder.path(), &["reload", "--config", "cardae.toml"]);
    assert_eq!(mistaken.code, Some(2), "{mistaken:?}");
    assert!(mistaken.stderr.contains("cardae.toml"), "{mistaken:?}");
    let good = folder.read("cardea.toml");
    folder.write("cardea.toml", &good.replace("\"admin.sock\"", "\"moved.sock\"\nadress = \"off\""));
    let hidden = folder.run(&["reload"]);
    assert_eq!(hidden.code, Some(1), "{hidden:?}");
    assert!(
        hidden.stderr.contains("no gateway responds at") && hidden.stderr.contains("adress"),
        "{hidden:?}"
    );
    folder.write("cardea.toml", &good);

    let server = Server::start(&folder);
    let unchanged = folder.run(&["reload"]);
    assert_eq!(unchanged.code, Some(0), "{unchanged:?}");
    assert!(unchanged.stdout.ends_with("no changes\n"), "{unchanged:?}");

    let origin = Origin::start();
    let more =
        "\n[timeouts]\nrequest = \"17s\"\n\n[[listener]]\nname = \"second\"\naddress = \"127.0.0.1:0\"\n";
    let settings = Settings {
        origin: Some(origin.address),
        version: "2".to_owned(),
        more: more.to_owned(),
        ..Settings::default()
    };
    folder.configure(&settings);
    // A line more moves all that follows, which is no change.
    folder.write("cardea.toml", &format!("# A remark.\n{}", folder.read("cardea.toml")));
    folder.write_certificate(&folder.issue());
    let ran = folder.run(&["reload", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let reloaded = ran.json();
    assert_eq!(reloaded["generation"], 3);
    let changes: Vec<(String, String, String)> = reloaded["changes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|change| change["kind"] != "certificate")
        .map(|change| {
            let text = |key: &str| change[key].as_str().unwrap().to_owned();
            (text("happened"), text("kind"), text("name"))
        })
        .collect();
    let expected = [
        ("changed", "setting", "timeouts.request"),
        // Its certificate is another file.
        ("changed", "listener", "https"),
        ("added", "listener", "second"),
        ("added", "route", "origin"),
        ("changed", "route", "version"),
        ("added", "service", "origin"),
    ];
    let expected = expected.map(|(what, kind, name)| (what.to_owned(), kind.to_owned(), name.to_owned()));
    assert_eq!(changes, expected, "{ran:?}");

    let status = folder.run(&["status", "--json"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    let status = status.json();
    assert_eq!((&status["generation"], &status["ready"]), (&3.into(), &true.into()), "{status}");
    assert_eq!(status["routes"], folder.read("cardea.toml").matches("[[route]]").count(), "{status}");
    assert!(status["configuration"].as_str().unwrap().starts_with('/'), "{status}");
    assert_eq!(status["listeners"].as_array().unwrap().len(), 2, "{status}");
    assert_eq!((&status["endpoints"], &status["endpoints_healthy"]), (&1.into(), &1.into()), "{status}");
    assert_eq!(status["key_sets"][0]["issuer"], "own", "{status}");
    assert!(status["next_certificate_expiry"]["not_after"].as_i64().unwrap() > 0, "{status}");

    // The gateway is asked though the file is wrong: that is when it matters.
    folder.write(
        "cardea.toml",
        &folder.read("cardea.toml").replace("[timeouts]", "[timeouts]\nconect = \"1s\""),
    );
    let ran = folder.run(&["reload"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    assert!(ran.stderr.contains("stays in effect") && ran.stderr.contains("conect"), "{ran:?}");
    let status = folder.run(&["status"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    for text in ["generation", "3, loaded at", "failed at", "second", "1 of 1 healthy"] {
        assert!(status.stdout.contains(text), "{text}: {status:?}");
    }
    assert_eq!(server.connect().get("/version").unwrap().text(), "version 2");
    server.stop();
}

#[test]
fn the_admin_listener_answers_by_the_names_that_it_is_given() {
    let folder = Folder::new(&Settings::default());
    let server = Server::start(&folder);
    let asked = |host: &str| {
        let mut admin = crate::support::Connection::plain(server.admin).unwrap();
        admin.send(format!("GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).unwrap();
        admin.answer().unwrap().unwrap()
    };
    let answer = asked("gateway-1.test:9443");
    assert_eq!(answer.status, 421);
    assert!(answer.text().contains("admin.hosts"), "{answer:?}");
    assert_eq!(asked("localhost").status, 200, "the control");

    let good = folder.read("cardea.toml");
    folder.write("cardea.toml", &good.replacen("[admin]\n", "[admin]\nhosts = [\"Gateway-1.test\"]\n", 1));
    assert_eq!(folder.run(&["reload"]).code, Some(0));
    for (host, status) in [
        ("gateway-1.test", 200),
        ("GATEWAY-1.test.:9443", 200),
        ("127.0.0.1", 200),
        ("gateway-2.test", 421),
        ("gateway-1.test.evil.test", 421),
        ("x@gateway-1.test", 421),
    ] {
        assert_eq!(asked(host).status, status, "{host}");
    }
    folder.write("cardea.toml", &good.replacen("[admin]\n", "[admin]\nhosts = [\"gateway:9443\"]\n", 1));
    let wrong = folder.run(&["check"]);
    assert!(wrong.code == Some(2) && format!("{wrong:?}").contains("is not a DNS name"), "{wrong:?}");
    server.stop();
}

#[test]
fn a_reload_refuses_a_wrapping_key_with_which_the_next_start_would_fail() {
    let folder = Folder::new(&Settings::default());
    let server = Server::start(&folder);
    let good = folder.read("wrapping.key");
    let half = &good.trim()[..good.trim().len() / 2];
    for bad in [half, "\u{1}\u{2}garbage", ""] {
        folder.write("wrapping.key", bad);
        let checked = folder.run(&["check"]);
        let ran = folder.run(&["reload"]);
        assert_eq!((checked.code, ran.code), (Some(2), Some(2)), "{checked:?} {ran:?}");
        assert!(ran.stderr.contains("cardea.toml:") && ran.stderr.contains("wrapping.key"), "{ran:?}");
        assert!(!ran.stderr.contains(half), "{ran:?}");
    }
    // The control: another key takes effect at the next start.
    folder.write("wrapping.key", &"ab".repeat(32));
    let ran = folder.run(&["reload"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    folder.write("wrapping.key", &good);
    assert_eq!(folder.run(&["reload"]).code, Some(0));
    server.stop();
}
