//! A reload under load: no request notices it but by what it finds afterwards.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use crate::support::{Folder, Origin, Server, folder::Settings, server::ask};

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
fn the_admin_socket_reloads_and_says_what_is_wrong() {
    let folder = Folder::new(&Settings::default());
    let server = Server::start(&folder);
    let mut connection = server.connect();
    assert_eq!(ask(&folder, r#"{"command":"status"}"#)["ok"]["status"]["generation"], 1);

    folder.configure(&Settings { version: "2".to_owned(), ..Settings::default() });
    assert_eq!(ask(&folder, r#"{"command":"reload"}"#)["ok"], "done");
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
fn another_verification_of_secrets_needs_a_restart() {
    let folder = Folder::new(&Settings::default());
    let server = Server::start(&folder);
    let change = |version: &str, iterations: u32| {
        let more = format!("\n[authorization_server.secrets]\niterations = {iterations}\n");
        folder.configure(&Settings { version: version.to_owned(), more, ..Settings::default() });
        server.reload()
    };
    let (taken, line) = change("2", 20_000);
    assert!(!taken && line.contains("[authorization_server] has changed; that needs a restart"), "{line}");
    assert_eq!(server.connect().get("/version").unwrap().text(), "version 1");
    assert!(change("3", 210_000).0, "the default, written out");
    server.stop();
}

#[test]
fn what_a_reload_does_not_change_is_said() {
    let folder = Folder::new(&Settings::default());
    let server = Server::start(&folder);
    let from = server.program.stderr.len();
    let more = "\n[limits]\nconnections_max = 77\n".to_owned();
    folder.configure(&Settings { log_level: "debug", more, ..Settings::default() });
    assert!(server.reload().0);
    server.program.stderr.wait_for("[log]", from);
    server.program.stderr.wait_for("limits.connections_max", from);
    server.stop();
}
