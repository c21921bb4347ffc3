//! A process that has no descriptors left: its own trouble, and nobody else's.

use std::{
    cmp::Ordering,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::{fd::AsRawFd as _, unix::net::UnixStream},
    process::{Command, Stdio},
    time::Duration,
};

use nix::sys::socket::{MsgFlags, recv};
use serde_json::Value;

use crate::support::{
    Folder, Origin, Server, WAIT_MAX, cardea,
    folder::Settings,
    program::{Ran, end},
    server::ask,
    until,
};

/// Beside the connections of the test: what the program needs for itself is below half of it.
const DESCRIPTORS: u64 = 160;

fn connect(folder: &Folder) -> UnixStream {
    let stream = UnixStream::connect(folder.file("http.sock")).unwrap();
    stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
    stream
}

/// Whether something has come, which stays to be read.
fn is_answered(stream: &UnixStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let came = recv(stream.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK).is_ok();
    stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
    came
}

/// The next response in lower case, which is small and comes in one piece or a few.
fn response(stream: &mut UnixStream) -> String {
    let mut text = String::new();
    loop {
        let mut space = [0; 4096];
        let count = stream.read(&mut space).unwrap();
        assert!(count > 0, "the connection ended after {text:?}");
        text.push_str(&String::from_utf8_lossy(&space[..count]).to_lowercase());
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if length.is_some_and(|length| body.len() >= length.parse().unwrap()) {
            return text;
        }
    }
}

#[test]
fn a_gateway_without_descriptors_blames_no_endpoint() {
    let origin = Origin::start();
    // Nothing is given up ahead of the shortage.
    let more = "[[listener]]\nname = \"plain\"\naddress = \"unix:{folder}/http.sock\"\nmode = \"0600\"\n[limits]\npressure_percent = 100\n";
    let folder =
        Folder::new(&Settings { origin: Some(origin.address), more: more.to_owned(), ..Settings::default() });
    let server = Server::start_with_descriptors(&folder, DESCRIPTORS);
    let line = server.program.stderr.wait_for("the limit of open descriptors is lower", 0);
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["fields"]["limit"], DESCRIPTORS);
    assert!(line["fields"]["needed"].as_u64().unwrap() > 40_000, "{line}");

    // One connection to the origin is in the pool.
    let mut kept = connect(&folder);
    kept.write_all(b"GET /origin/a HTTP/1.1\r\nHost: gateway.test\r\n\r\n").unwrap();
    assert!(response(&mut kept).starts_with("http/1.1 200"));

    // Heads that are begun: connections that are in use, until there is no descriptor left.
    let flood = || {
        let mut stream = connect(&folder);
        stream.write_all(b"GET /origin/slow HTTP/1.1\r\n").unwrap();
        stream
    };
    let mut flooding: Vec<_> = (0..2 * DESCRIPTORS).map(|_| flood()).collect();
    let line = server.program.stderr.wait_for("a limit of the system is reached", 0);
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&line["fields"]["shortage"], &line["fields"]["operation"]),
        (&"descriptors".into(), &"accept".into())
    );
    assert!(line["fields"]["closed"].as_u64().unwrap() >= 1, "what was idle made room: {line}");
    let message = line["fields"]["message"].as_str().unwrap();
    assert!(message.ends_with("; idle connections were closed to make room"), "{line}");

    // There are hardly any for connections to the origin either, of which each of these requests needs one: those that get
    // one wait for the origin, and the first that gets none is answered.
    let mut asked = 0;
    for stream in &mut flooding[..100] {
        stream.write_all(b"Host: gateway.test\r\n\r\n").unwrap();
        asked += 1;
        if is_answered(stream) {
            break;
        }
    }
    let refused = |answer: &str| {
        assert!(answer.starts_with("http/1.1 503"), "{answer}");
        assert!(answer.contains("gateway_resources_exhausted"), "{answer}");
        assert!(answer.contains("retry-after: 1"), "{answer}");
    };
    refused(&response(&mut flooding[asked - 1]));
    origin.release();
    for stream in &mut flooding[..asked - 1] {
        let answer = response(stream);
        if !answer.starts_with("http/1.1 200") {
            refused(&answer);
        }
    }
    // As soon as there are some, all is well: the endpoint was never to blame.
    drop(flooding);
    let ask = || {
        let mut stream = connect(&folder);
        stream.write_all(b"GET /origin/a HTTP/1.1\r\nHost: gateway.test\r\n\r\n").unwrap();
        response(&mut stream).starts_with("http/1.1 200")
    };
    until("a response of the origin", || ask().then_some(()));
    assert!((0..5).all(|_| ask()));
    let log = server.program.stderr.text();
    assert!(!log.contains("ejected"), "{log}");
    assert!(log.matches("a limit of the system is reached").count() <= 2, "{log}");
}

#[test]
fn a_gateway_with_next_to_no_descriptors_serves_or_says_why_it_does_not_start() {
    // Nothing is given up ahead of the shortage.
    let more = "[[listener]]\nname = \"plain\"\naddress = \"unix:{folder}/http.sock\"\nmode = \"0600\"\n[limits]\npressure_percent = 100\n";
    let folder = Folder::new(&Settings { more: more.to_owned(), ..Settings::default() });
    let server = Server::start_with_descriptors(&folder, 64);
    let ask = || {
        let mut stream = connect(&folder);
        stream.write_all(b"GET /version HTTP/1.1\r\nHost: gateway.test\r\n\r\n").unwrap();
        response(&mut stream)
    };
    assert!(ask().starts_with("http/1.1 200"));
    let flooding: Vec<_> = (0..200).map(|_| connect(&folder)).collect();
    drop(flooding);
    assert!(ask().starts_with("http/1.1 200"), "once they are gone it goes on");
    server.stop();

    for count in [20, 12] {
        let ran = run_with_descriptors(&folder, count);
        assert_eq!(ran.code, Some(1), "{count}: {ran:?}");
        let wanted = format!("the limit of open descriptors is {count}, and the program needs at least");
        assert!(ran.stderr.contains(&wanted), "{count}: {ran:?}");
    }
}

/// Runs a gateway to its end with no more descriptors than so many.
fn run_with_descriptors(folder: &Folder, count: u64) -> Ran {
    let script = format!("ulimit -n {count}; exec \"$0\" run --config cardea.toml");
    let wanted = cardea(folder.path(), &[]);
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(wanted.get_program()).current_dir(folder.path()).stdin(Stdio::null());
    end(&mut command)
}

#[test]
fn idle_connections_to_the_administration_give_way_where_there_are_no_descriptors() {
    let folder = Folder::new(&Settings::default());
    let server = Server::start_with_descriptors(&folder, 64);
    let mut idle = Vec::new();
    for _ in 0..150 {
        idle.push(TcpStream::connect(server.admin).unwrap());
    }
    assert_eq!(server.ready().0, 200);
    let mut more = Vec::new();
    for _ in 0..150 {
        more.push(UnixStream::connect(folder.file("admin.sock")).unwrap());
    }
    assert_eq!(server.ready().0, 200);
    let answer = ask(&folder, r#"{"command":"status"}"#);
    assert!(answer["ok"]["status"].is_object(), "{answer}");
    let log = server.program.stderr.text();
    assert!(!log.contains("can't accept"), "{log}");
}

/// How many of its descriptors the gateway uses, without those beyond the limit, which it has from the process that started it.
fn open(server: &Server) -> u64 {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", server.program.id())).unwrap();
    let number = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.unwrap().file_name().to_str().unwrap().parse::<u64>().unwrap()
    };
    descriptors.map(number).filter(|number| *number < DESCRIPTORS).count() as u64
}

/// A connection that is in use, since its head is not whole.
fn begun(folder: &Folder) -> UnixStream {
    let mut stream = connect(folder);
    stream.write_all(b"GET /version HTTP/1.1\r\n").unwrap();
    stream
}

const ADMINISTERED: &str = "[[listener]]\nname = \"plain\"\naddress = \"unix:{folder}/http.sock\"\nmode = \"0600\"\n[limits]\npressure_percent = 100\n";

#[test]
fn idle_connections_to_services_make_room_for_the_administration() {
    let origin = Origin::start();
    let settings = Settings {
        origin: Some(origin.address),
        more: ADMINISTERED.to_owned(),
        ..Settings::with_cheap_hashes()
    };
    let folder = Folder::new(&settings);
    let (id, _) = folder.create_client("one");
    let server = Server::start_with_descriptors(&folder, DESCRIPTORS);
    let slow = |_| {
        let mut stream = connect(&folder);
        stream.write_all(b"GET /origin/slow HTTP/1.1\r\nHost: gateway.test\r\n\r\n").unwrap();
        stream
    };
    let mut asking: Vec<_> = (0..20).map(slow).collect();
    origin.wait_for("/slow", 20);
    origin.release();
    assert!(asking.iter_mut().all(|stream| response(stream).starts_with("http/1.1 200")));
    drop(asking);

    // One is left.
    let mut busy = Vec::new();
    until("all descriptors but one in use", || {
        match open(&server).cmp(&(DESCRIPTORS - 1)) {
            Ordering::Less => busy.push(begun(&folder)),
            Ordering::Equal => return Some(()),
            // The one before was not accepted yet.
            Ordering::Greater => drop(busy.pop()),
        }
        None
    });
    for _ in 0..3 {
        assert_eq!(server.ready().0, 200);
        let answer = ask(&folder, r#"{"command":"status"}"#);
        assert!(answer["ok"]["status"].is_object(), "{answer}");
    }
    // None is left.
    busy.push(begun(&folder));
    // Unless the gateway has made room for it already.
    until("all descriptors in use", || {
        let made_room = server.program.stderr.text().contains("idle connections were closed to make room");
        (made_room || open(&server) == DESCRIPTORS).then_some(())
    });
    let ran = folder.run(&["client", "disable", &id]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(server.ready().0, 200);
    server.program.stderr.wait_for("idle connections were closed to make room", 0);
    // What is in use has lost nothing.
    for stream in &mut busy {
        stream.write_all(b"Host: gateway.test\r\n\r\n").unwrap();
        assert!(response(stream).starts_with("http/1.1 200"));
    }
}

#[test]
fn the_administration_works_where_all_descriptors_are_in_use() {
    let settings = Settings { more: ADMINISTERED.to_owned(), ..Settings::with_cheap_hashes() };
    let folder = Folder::new(&settings);
    let (id, _) = folder.create_client("one");
    let server = Server::start_with_descriptors(&folder, DESCRIPTORS);
    let busy: Vec<_> = (0..2 * DESCRIPTORS).map(|_| begun(&folder)).collect();
    server.program.stderr.wait_for("a limit of the system is reached", 0);
    until("all descriptors in use", || (open(&server) == DESCRIPTORS).then_some(()));
    for round in 0..3 {
        assert_eq!(server.ready().0, 200);
        let answer = ask(&folder, r#"{"command":"status"}"#);
        assert!(answer["ok"]["status"].is_object(), "{answer}");
        // The end of the first one would have made room, too.
        assert!(round > 0 || !is_answered(&busy[0]));
    }
    let ran = folder.run(&["client", "disable", &id]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    drop(busy);
}
