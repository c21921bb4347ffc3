//! An origin that is as fast as it is and no faster: it has a number of slots, and a request takes one for a fixed
//! time. Those that find none free wait in line, in order, and like most origins it does not notice that somebody
//! who waits has gone. It answers `GET /served` with what it has done so far, at once and outside of the line.
#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::env;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep_until};

const HEAD_BYTES_MAX: usize = 16 * 1024;
const BACKLOG: u32 = 4096;
const RESPONSE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nserved";

/// What it does, and has done.
struct Origin {
    line: RefCell<Line>,
    served: Cell<u64>,
}

/// When each slot will be free.
struct Line {
    free: BinaryHeap<Reverse<Instant>>,
    delay: Duration,
}

impl Line {
    fn new(slots: usize, delay: Duration, now: Instant) -> Self {
        Self { free: vec![Reverse(now); slots].into(), delay }
    }

    /// Takes the slot that is free first, and says when the request will be done. That the times follow from each
    /// other, not from when a timer fired, keeps the capacity exact.
    fn join(&mut self, now: Instant) -> Instant {
        let free = self.free.pop().map_or(now, |Reverse(free)| free.max(now));
        let done = free + self.delay;
        self.free.push(Reverse(done));
        done
    }
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let parsed = match arguments.as_slice() {
        [listen, slots, delay] => {
            listen.parse::<SocketAddr>().ok().zip(slots.parse::<usize>().ok()).zip(delay.parse::<u64>().ok())
        }
        _ => None,
    };
    let Some(((listen, slots @ 1..), delay_ms)) = parsed else {
        return Err(io::Error::other("usage: bench-origin LISTEN-ADDRESS SLOTS DELAY-MILLISECONDS"));
    };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, serve(listen, slots, Duration::from_millis(delay_ms)))
}

async fn serve(listen: SocketAddr, slots: usize, delay: Duration) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(listen)?;
    let listener = socket.listen(BACKLOG)?;
    let line = RefCell::new(Line::new(slots, delay, Instant::now()));
    let origin = Rc::new(Origin { line, served: Cell::new(0) });
    loop {
        let (client, _) = listener.accept().await?;
        let origin = Rc::clone(&origin);
        spawn_local(async move {
            // A peer that goes away ends its connection; there is nobody to tell.
            let _ = connection(client, &origin).await;
        });
    }
}

async fn connection(mut client: TcpStream, origin: &Origin) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let end = loop {
            if let Some(start) = head.windows(4).position(|window| window == b"\r\n\r\n") {
                break start + 4;
            }
            let length = client.read(&mut chunk).await?;
            if length == 0 {
                return Ok(());
            }
            if head.len() > HEAD_BYTES_MAX {
                return Err(io::Error::other("a head without an end"));
            }
            head.extend_from_slice(&chunk[..length]);
        };
        if head.starts_with(b"GET /served ") {
            let body = origin.served.get().to_string();
            let length = body.len();
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
            // Whoever asks reads to the end.
            return client.write_all(response.as_bytes()).await;
        }
        let done = origin.line.borrow_mut().join(Instant::now());
        sleep_until(done).await;
        origin.served.set(origin.served.get() + 1);
        client.write_all(RESPONSE.as_bytes()).await?;
        // Requests of the benches have no bodies.
        head.drain(..end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_takes_one_request_at_a_time_and_the_first_come_is_the_first_served() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut line = Line::new(2, Duration::from_millis(10), start);
        let done: Vec<Instant> = (0..5).map(|_| line.join(start)).collect();
        assert_eq!(done, [10, 10, 20, 20, 30].map(after));
        // A slot that was free for a while works from now on.
        assert_eq!(line.join(after(100)), after(110));
    }
}
