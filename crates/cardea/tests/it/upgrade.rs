//! An upgrade by socket activation: one gateway goes, the next one takes the same socket, and no client notices.

use std::{
    net::TcpListener,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use nix::sys::signal::Signal;

use crate::support::{
    Connection, Folder, Origin, Server, client::Answer, folder::Settings, origin::SLOW_BODY, until,
};

/// Asks again and again until told to stop; what went wrong.
fn hammer(
    connect: impl Fn() -> std::io::Result<Connection>,
    keeps: bool,
    stop: &AtomicBool,
    served: &AtomicU64,
) -> Result<(), String> {
    let mut kept = None;
    while !stop.load(Relaxed) {
        let (mut connection, used) = match kept.take() {
            Some(connection) => (connection, true),
            None => (connect().map_err(|error| format!("a connection was refused: {error}"))?, false),
        };
        let path = "/origin/x";
        let sent = connection.send(format!("GET {path} HTTP/1.1\r\nHost: gateway.test\r\n\r\n").as_bytes());
        let answer: Option<Answer> = match sent.and_then(|()| connection.answer()) {
            // A connection that was idle may have been closed while the request was on its way (RFC 9112 §9.3.1);
            // then not one byte of an answer has come.
            Ok(None) if used => continue,
            Err(error) if used && error.kind() == std::io::ErrorKind::ConnectionReset => continue,
            Err(error) if used && error.kind() == std::io::ErrorKind::BrokenPipe => continue,
            other => other.map_err(|error| format!("a request was cut (used: {used}): {error}"))?,
        };
        let Some(answer) = answer else {
            return Err("a fresh connection was closed without an answer".into());
        };
        if answer.status != 200 || answer.text() != "0 /x" {
            return Err(format!("{answer:?}"));
        }
        served.fetch_add(1, Relaxed);
        if keeps && answer.head.field("connection") != Some("close") {
            kept = Some(connection);
        }
    }
    Ok(())
}

#[test]
fn no_connection_is_refused_and_no_request_cut() {
    let origin = Origin::start();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let folder =
        Folder::new(&Settings { listen: address, origin: Some(origin.address), ..Settings::default() });
    let mut server = Server::start_on(&folder, &socket);
    assert_eq!(server.address, address);
    let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let failures = Arc::new(Mutex::new(Vec::new()));
    let clients: Vec<_> = [true, false, true, false]
        .into_iter()
        .map(|keeps| {
            let tls = Arc::clone(&server.tls);
            let (stop, served, failures) = (Arc::clone(&stop), Arc::clone(&served), Arc::clone(&failures));
            std::thread::spawn(move || {
                if let Err(failure) = hammer(|| Connection::tls(address, &tls), keeps, &stop, &served) {
                    failures.lock().unwrap().push(failure);
                }
            })
        })
        .collect();
    let more_are_served = || {
        let before = served.load(Relaxed);
        until("requests", || {
            (served.load(Relaxed) >= before + 20 || !failures.lock().unwrap().is_empty()).then_some(())
        });
    };

    for round in 1..=3 {
        more_are_served();
        let mut slow = server.connect();
        slow.send(b"GET /origin/slow HTTP/1.1\r\nHost: gateway.test\r\n\r\n").unwrap();
        origin.wait_for("/slow", round);
        server.program.signal(Signal::SIGTERM);
        server.program.stderr.wait_for("draining", 0);
        origin.release();
        assert_eq!(slow.answer().unwrap().unwrap().text(), SLOW_BODY, "in flight when the signal came");
        assert_eq!(server.program.wait(), Some(0));
        // Nobody accepts now; the kernel does, and the next gateway finds it.
        let waiting = std::net::TcpStream::connect(address).unwrap();
        server = Server::start_on(&folder, &socket);
        drop(waiting);
    }
    more_are_served();
    stop.store(true, Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(*failures.lock().unwrap(), Vec::<String>::new());
    server.stop();
}
