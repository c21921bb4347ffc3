//! An origin that does what the path says, a thread for each connection.

use std::{
    io::{self, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
};

use super::{
    WAIT_MAX,
    wire::{read_body, read_head},
};

/// A body of a slow answer.
pub(crate) const SLOW_BODY: &str = "late, but whole";

/// A running origin. It accepts nothing more once this is dropped.
///
/// | path | answer |
/// |---|---|
/// | `/slow…` | once [`Origin::release`] has been called |
/// | `/endless` | a body that does not end |
/// | `/source/N` | N octets |
/// | others | the length of the body that came, and the path |
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    arrivals: Vec<String>,
    released: bool,
    stopped: bool,
}

impl Origin {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::<Shared>::default();
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.state.lock().unwrap().stopped {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let shared = Arc::clone(&accepting);
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { address, shared }
    }

    /// Waits until `count` requests for `path` have arrived.
    pub(crate) fn wait_for(&self, path: &str, count: usize) {
        let missing =
            |state: &mut State| state.arrivals.iter().filter(|arrived| *arrived == path).count() < count;
        let guard = self.shared.state.lock().unwrap();
        let (guard, timeout) = self.shared.changed.wait_timeout_while(guard, WAIT_MAX, missing).unwrap();
        assert!(!timeout.timed_out(), "{path} does not arrive, only {:?}", guard.arrivals);
    }

    /// The paths of all requests that have arrived.
    pub(crate) fn arrivals(&self) -> Vec<String> {
        self.shared.state.lock().unwrap().arrivals.clone()
    }

    /// Lets slow answers go.
    pub(crate) fn release(&self) {
        self.shared.state.lock().unwrap().released = true;
        self.shared.changed.notify_all();
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state.lock().unwrap();
            state.released = true;
            state.stopped = true;
        }
        self.shared.changed.notify_all();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

/// Serves a connection until it ends, in whatever way.
fn serve(stream: TcpStream, shared: &Shared) {
    let _ = stream.set_nodelay(true);
    let Ok(mut write) = stream.try_clone() else { return };
    let mut reader = BufReader::with_capacity(64 * 1024, stream);
    while let Ok(true) = exchange(&mut reader, &mut write, shared) {}
}

fn exchange(reader: &mut BufReader<TcpStream>, write: &mut TcpStream, shared: &Shared) -> io::Result<bool> {
    let Some(head) = read_head(reader)? else { return Ok(false) };
    let path = head.first.split(' ').nth(1).unwrap_or_default().to_owned();
    shared.state.lock().unwrap().arrivals.push(path.clone());
    shared.changed.notify_all();
    let mut length = 0;
    read_body(reader, &head, |piece| length += piece.len())?;
    if path.starts_with("/slow") {
        let guard = shared.state.lock().unwrap();
        drop(shared.changed.wait_timeout_while(guard, WAIT_MAX, |state| !state.released).unwrap());
        answer(write, SLOW_BODY)?;
    } else if path == "/endless" {
        write.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        let piece = format!("1000\r\n{}\r\n", "e".repeat(0x1000));
        loop {
            write.write_all(piece.as_bytes())?;
        }
    } else if let Some(length) = path.strip_prefix("/source/") {
        let mut left: u64 = length.parse().map_err(io::Error::other)?;
        write!(write, "HTTP/1.1 200 OK\r\nContent-Length: {left}\r\n\r\n")?;
        let piece = vec![b's'; 64 * 1024];
        while left > 0 {
            let count = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            write.write_all(&piece[..count])?;
            left -= count as u64;
        }
    } else {
        answer(write, &format!("{length} {path}"))?;
    }
    Ok(true)
}

fn answer(write: &mut TcpStream, body: &str) -> io::Result<()> {
    write.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
}
