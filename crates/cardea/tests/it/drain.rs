//! The way out: what is in flight is finished, and nothing outlives the deadline.

use std::{process::Command, time::Duration};

use nix::sys::signal::Signal;

use crate::support::{
    Connection, Folder, Origin, Program, Server, folder::Settings, now, origin::SLOW_BODY, since, until,
};

#[test]
fn requests_in_flight_are_finished() {
    let origin = Origin::start();
    let settings = Settings {
        origin: Some(origin.address),
        drain_delay: "3s",
        drain_deadline: "50s",
        more: "[[route]]\nname = \"health\"\npath = \"/health\"\nauth = \"public\"\nbuiltin = \"health\"\n"
            .to_owned(),
        ..Settings::default()
    };
    let folder = Folder::new(&settings);
    let mut server = Server::start(&folder);
    let mut idle = server.connect();
    assert_eq!(idle.get("/version").unwrap().status, 200);
    assert_eq!(idle.get("/health").unwrap().status, 200);
    let mut slow = server.connect();
    slow.send(b"GET /origin/slow HTTP/1.1\r\nHost: gateway.test\r\n\r\n").unwrap();
    origin.wait_for("/slow", 1);

    server.program.signal(Signal::SIGTERM);
    let reasons = until("an end of readiness", || Some(server.ready()).filter(|(status, _)| *status == 503));
    assert!(reasons.1.contains("draining"), "{reasons:?}");
    // Load balancers have not noticed yet.
    let mut fresh = server.connect();
    assert_eq!(fresh.get("/version").unwrap().status, 200);
    assert_eq!(idle.get("/version").unwrap().status, 200);
    assert_eq!(idle.get("/health").unwrap().status, 503, "so that they notice");

    assert!(idle.is_closed().unwrap(), "an idle connection is closed");
    assert!(fresh.is_closed().unwrap(), "an idle connection is closed");
    until("an end of accepting", || Connection::plain(server.address).is_err().then_some(()));
    assert_eq!(server.ready().0, 503, "readiness can be asked for to the end");

    origin.release();
    let answer = slow.answer().unwrap().unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (200, SLOW_BODY));
    assert_eq!(answer.head.field("connection"), Some("close"));
    assert!(slow.is_closed().unwrap());
    assert_eq!(server.program.wait(), Some(0));
    assert!(!server.program.stderr.text().contains("deadline"), "{}", server.program.stderr.text());
    assert!(folder.read("access.log").contains("/origin/slow"), "the last line is in the access log");
}

#[test]
fn streams_are_reset_at_the_drain_deadline_counted_from_the_signal() {
    let origin = Origin::start();
    let settings = Settings {
        origin: Some(origin.address),
        drain_delay: "3s",
        drain_deadline: "4s",
        ..Settings::default()
    };
    let folder = Folder::new(&settings);
    let mut server = Server::start(&folder);
    let mut endless = server.connect();
    endless.send(b"GET /origin/endless HTTP/1.1\r\nHost: gateway.test\r\n\r\n").unwrap();
    let head = endless.head().unwrap().unwrap();
    let mut slow = server.connect();
    slow.send(b"GET /origin/slow HTTP/1.1\r\nHost: gateway.test\r\n\r\n").unwrap();
    origin.wait_for("/slow", 1);
    let reader = std::thread::spawn(move || {
        let mut length = 0;
        let ended = endless.body(&head, |piece| length += piece.len());
        (length, ended)
    });

    let begun = now();
    server.program.signal(Signal::SIGTERM);
    let (length, ended) = reader.join().unwrap();
    assert!(since(begun) >= Duration::from_secs(3), "{:?}", since(begun));
    assert!(ended.is_err(), "a response that was cut short must not end as if it were whole");
    assert!(length > 0);
    assert_eq!(server.program.wait(), Some(0));
    // Not delay and deadline one after the other, which would be seven.
    assert!(since(begun) < Duration::from_millis(6_500), "{:?}", since(begun));
    assert!(server.program.stderr.text().contains("the drain deadline has passed"));
    let log = folder.read("access.log");
    for path in ["/origin/endless", "/origin/slow"] {
        let line = log.lines().find(|line| line.contains(path)).unwrap_or_else(|| panic!("{path}: {log}"));
        assert!(line.contains("drain_deadline"), "{line}");
    }
}

#[test]
fn a_second_signal_ends_the_waiting() {
    let origin = Origin::start();
    let settings = Settings {
        origin: Some(origin.address),
        drain_delay: "50s",
        drain_deadline: "59s",
        ..Settings::default()
    };
    let folder = Folder::new(&settings);
    let mut server = Server::start(&folder);
    let mut slow = server.connect();
    slow.send(b"GET /origin/slow HTTP/1.1\r\nHost: gateway.test\r\n\r\n").unwrap();
    origin.wait_for("/slow", 1);
    let begun = now();
    server.program.signal(Signal::SIGTERM);
    server.program.stderr.wait_for("draining", 0);
    server.program.signal(Signal::SIGTERM);
    assert_eq!(server.program.wait(), Some(0));
    assert!(since(begun) < Duration::from_secs(20), "{:?}", since(begun));
    assert!(slow.answer().is_err() || slow.answer().is_ok_and(|answer| answer.is_none()));
}

#[test]
fn http2_requests_in_flight_are_finished_too() {
    let origin = Origin::start();
    let folder = Folder::new(&Settings { origin: Some(origin.address), ..Settings::default() });
    let mut server = Server::start(&folder);
    let port = server.address.port();
    let curl = Program::start(
        Command::new("curl")
            .args([
                "--silent",
                "--show-error",
                "--http2",
                "--cacert",
                "ca.pem",
                "--write-out",
                "\n%{http_code} %{http_version}",
            ])
            .args(["--resolve", &format!("gateway.test:{port}:127.0.0.1")])
            .arg(format!("https://gateway.test:{port}/origin/slow"))
            .current_dir(folder.path()),
    );
    origin.wait_for("/slow", 1);
    server.program.signal(Signal::SIGTERM);
    until("an end of accepting", || Connection::plain(server.address).is_err().then_some(()));
    origin.release();
    let mut curl = curl;
    assert_eq!(
        (curl.wait(), curl.stdout.text()),
        (Some(0), format!("{SLOW_BODY}\n200 2\n")),
        "{}",
        curl.stderr.text()
    );
    assert_eq!(server.program.wait(), Some(0));
    assert!(!server.program.stderr.text().contains("deadline"), "{}", server.program.stderr.text());
}
