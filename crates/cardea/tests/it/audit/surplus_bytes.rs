//! Surplus bytes of an origin, which come after its connection was given back: they are nobody's response.

use std::{
    io::{self, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use super::lab::{Hello, Lab, Lengths, Recorder, Request, Way};
use crate::support::{WAIT_MAX, client::HOST, wire::read_head};

const ROUTES: &str = r#"
[[service]]
name = "sloppy"

[[service.endpoint]]
address = "SLOPPY"

[[route]]
name = "sloppy"
path_prefix = "/"
auth = "public"
service = "sloppy"

[[route]]
name = "open"
path_prefix = "/open"
auth = "public"
service = "origin"
"#;

/// What the surplus says: a whole response.
const SURPLUS: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nforeign";

/// An origin that sends a response behind those that have no body, a moment late.
struct Sloppy {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    stopped: Arc<AtomicBool>,
}

impl Sloppy {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, stopped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, ended) = (Arc::clone(&connections), Arc::clone(&stopped));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ended.load(SeqCst) {
                    return;
                }
                count.fetch_add(1, SeqCst);
                std::thread::spawn(move || serve(stream));
            }
        });
        Self { address, connections, stopped }
    }
}

impl Drop for Sloppy {
    fn drop(&mut self) {
        self.stopped.store(true, SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(WAIT_MAX))?;
    let mut write = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    while let Some(head) = read_head(&mut reader)? {
        let bare: &[u8] = match head.first.split(' ').nth(1).unwrap_or_default() {
            "/204" => b"HTTP/1.1 204 No Content\r\n\r\n",
            "/304" => b"HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n",
            _ if head.first.starts_with("HEAD") => b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n",
            _ => {
                write.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
                continue;
            }
        };
        write.write_all(bare)?;
        // What it is about is a program that is slow with what it should not send at all.
        let late = head.field("x-late-us").and_then(|late| late.parse().ok()).unwrap_or(0);
        std::thread::park_timeout(Duration::from_micros(late));
        write.write_all(SURPLUS)?;
    }
    Ok(())
}

#[test]
fn surplus_bytes_after_a_response_are_never_delivered() {
    let sloppy = Sloppy::start();
    let routes = ROUTES.replace("SLOPPY", &sloppy.address.to_string());
    let lab = Lab::with(Recorder::start(Lengths::Decimal), "", &routes);
    let mut foreign = Vec::new();
    for way in Way::BOTH {
        // The next request of the same connection meets the same pool; that of another client may.
        let mut wires = [0; 3].map(|_| lab.connect(way, Hello::to(HOST)).unwrap());
        for round in 0..20 {
            let late = [0, 100, 300, 700, 1_500, 3_000][round % 6].to_string();
            for (method, target) in [("HEAD", "/x"), ("GET", "/204"), ("GET", "/304")] {
                let request = Request::get(HOST, target).method(method).with("X-Late-Us", &late);
                wires[0].send(&request);
                for wire in &mut wires {
                    let answer = wire.send(&Request::get(HOST, "/ok"));
                    if answer.body != b"ok" {
                        foreign.push(format!("{way:?} {method} {target} {late} us: {answer:?}"));
                        *wire = lab.connect(way, Hello::to(HOST)).unwrap();
                    }
                }
            }
        }
    }
    assert!(foreign.is_empty(), "{} of 360:\n{}", foreign.len(), foreign.join("\n"));
    lab.finish("/open");
}

#[test]
fn connections_of_origins_that_behave_are_used_again() {
    let sloppy = Sloppy::start();
    let routes = ROUTES.replace("SLOPPY", &sloppy.address.to_string());
    let lab = Lab::with(Recorder::start(Lengths::Decimal), "", &routes);
    let mut wire = lab.connect(Way::Plain, Hello::to(HOST)).unwrap();
    for _ in 0..50 {
        assert_eq!(wire.send(&Request::get(HOST, "/ok")).body, b"ok");
    }
    assert_eq!(sloppy.connections.load(SeqCst), 1);
    drop(wire);
    lab.finish("/open");
}
