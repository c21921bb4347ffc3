//! A process that is about to run out of descriptors: what it gives up, in which order, and that it recovers.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    os::unix::net::UnixStream,
};

use crate::support::{Folder, Origin, Server, WAIT_MAX, folder::Settings, metrics::Metrics, until};

const DESCRIPTORS: usize = 200;

/// A gateway with few descriptors, and a listener on a Unix socket, which many clients may share, and one without TLS.
fn start(limits: &str, origin: Option<&Origin>) -> (Folder, Server) {
    let listener = |name: &str, more: &str| format!("[[listener]]\nname = \"{name}\"\n{more}\n");
    let more = listener("local", "address = \"unix:{folder}/http.sock\"\nmode = \"0600\"")
        + &listener("plain", "address = \"127.0.0.1:0\"")
        + limits;
    let origin = origin.map(|origin| origin.address);
    let folder = Folder::new(&Settings { origin, more, ..Settings::default() });
    let server = Server::start_with_descriptors(&folder, DESCRIPTORS as u64);
    (folder, server)
}

fn connect(folder: &Folder) -> UnixStream {
    let stream = UnixStream::connect(folder.file("http.sock")).unwrap();
    stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
    stream
}

/// Whether a request on this connection is answered.
fn is_served(stream: &mut (impl std::io::Read + std::io::Write)) -> bool {
    let sent = stream.write_all(b"GET /version HTTP/1.1\r\nHost: gateway.test\r\n\r\n");
    let mut space = [0; 4096];
    sent.is_ok() && stream.read(&mut space).is_ok_and(|count| space[..count].starts_with(b"HTTP/1.1 200"))
}

/// How many connections there may be until this part of the descriptors is in use.
fn room(server: &Server, percent: usize) -> usize {
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.program.id())).unwrap().count();
    (DESCRIPTORS * percent / 100).checked_sub(open).unwrap()
}

fn degraded(server: &Server) -> bool {
    server.ready().1.contains("resource_pressure:descriptors")
}

fn stage(server: &Server) -> f64 {
    metric(server, "cardea_resource_pressure{resource=\"descriptors\"}")
}

fn metric(server: &Server, series: &str) -> f64 {
    Metrics::of(server).get(series).unwrap_or_default()
}

#[test]
fn idle_connections_are_closed_before_descriptors_run_out() {
    let (folder, server) = start("", None);
    let count = room(&server, 92);
    let mut idle: Vec<_> = (0..count).map(|_| connect(&folder)).collect();
    // Some may be closed before all were asked.
    let served = idle.iter_mut().map(is_served).filter(|is_served| *is_served).count();
    assert!(served > count / 2, "{served} of {count}");
    server.program.stderr.wait_for("a resource is nearly exhausted", 0);
    assert_eq!(server.ready().0, 200);
    let closed = || metric(&server, "cardea_idle_connections_closed_total{reason=\"pressure\"}");
    until("idle connections that are closed", || (closed() > 0.0).then_some(()));
    until("recovery, though nobody has left", || (!degraded(&server)).then_some(()));
    assert!(stage(&server) < 0.5);
    // Some were closed, and not all.
    let is_closed = |stream: &mut UnixStream| {
        stream.set_nonblocking(true).unwrap();
        stream.read(&mut [0]).is_ok_and(|count| count == 0)
    };
    let ended = idle.iter_mut().map(is_closed).filter(|is_closed| *is_closed).count();
    assert!((1..count / 2).contains(&ended), "{ended} of {count}");
    assert!(is_served(&mut connect(&folder)));
    let log = server.program.stderr.text();
    assert!(
        log.contains("a resource is nearly exhausted") && log.contains("no longer nearly exhausted"),
        "{log}"
    );
    assert!(!log.contains("a limit of the system is reached"), "{log}");
}

/// The control of the others.
#[test]
fn nothing_is_given_up_where_that_is_switched_off() {
    let (folder, server) = start("[limits]\npressure_percent = 100\n", None);
    let count = room(&server, 92);
    let mut idle: Vec<_> = (0..count).map(|_| connect(&folder)).collect();
    assert!(idle.iter_mut().all(is_served));
    let used = || metric(&server, "cardea_resource_usage_ratio{resource=\"descriptors\"}");
    until("a look at the descriptors", || (used() > 0.9).then_some(()));
    assert!(!degraded(&server));
    assert!(idle.iter_mut().all(is_served));
    assert!(is_served(&mut TcpStream::connect(server.listener("plain")).unwrap()));
}

#[test]
fn stalled_streams_and_then_new_connections_of_clients_are_given_up() {
    let origin = Origin::start();
    let (folder, server) = start("", Some(&origin));
    // A client that reads nothing of a long response.
    let mut stalled = connect(&folder);
    stalled.write_all(b"GET /origin/endless HTTP/1.1\r\nHost: gateway.test\r\n\r\n").unwrap();
    let plain = (Ipv4Addr::LOCALHOST, server.listener("plain").port());
    let mut client = TcpStream::connect(plain).unwrap();
    client.set_read_timeout(Some(WAIT_MAX)).unwrap();
    assert!(is_served(&mut client));
    // Connections in use, which nothing ends.
    let begun = |_| {
        let mut stream = connect(&folder);
        stream
            .write_all(b"POST /origin/slow HTTP/1.1\r\nHost: gateway.test\r\nContent-Length: 9\r\n")
            .unwrap();
        stream
    };
    let flooding: Vec<_> = (0..room(&server, 99)).map(begun).collect();
    until("all stages", || (stage(&server) > 4.5).then_some(()));
    assert!(degraded(&server));
    let refused = || metric(&server, "cardea_excess_connections_total{bound=\"pressure_percent\"}");
    let mut new = TcpStream::connect(plain).unwrap();
    new.set_read_timeout(Some(WAIT_MAX)).unwrap();
    assert!(!is_served(&mut new));
    assert!(refused() > 0.0);
    // What is of another class: clients of a proxy that is trusted.
    assert!(is_served(&mut connect(&folder)));
    let ended = || metric(&server, "cardea_streams_ended_total{reason=\"buffers_exhausted\"}");
    until("the end of the stalled stream", || (ended() > 0.0).then_some(()));
    let mut rest = Vec::new();
    let _ = stalled.read_to_end(&mut rest);
    assert!(!rest.ends_with(b"0\r\n\r\n"), "it is not whole");
    drop(flooding);
    until("recovery", || (!degraded(&server)).then_some(()));
    let mut new = TcpStream::connect(plain).unwrap();
    new.set_read_timeout(Some(WAIT_MAX)).unwrap();
    assert!(is_served(&mut new));
}
