//! Requests over a new connection each, from many addresses; and what takes connections and does nothing with them.

use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::runtime::Builder;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::part::{Outcomes, Part};
use crate::request::{Requests, response};
use crate::{Address, Schedule};

/// How often it looks what is due.
const TICK: Duration = Duration::from_millis(1);
/// For one connection, from its beginning to its end.
const LIMIT: Duration = Duration::from_secs(5);
/// The last byte of an address, from 1.
const PER_NET: u32 = 250;

/// Sends what is due, and prints what became of it.
pub(crate) fn run(
    addresses: &[Address],
    schedule: Schedule,
    sources: u32,
    requests: Requests,
    part: &Part,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let outcomes = Rc::new(RefCell::new(Outcomes::default()));
    let requests = Rc::new(requests);
    LocalSet::new().block_on(&runtime, async {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut under_way = JoinSet::new();
        let start = Instant::now();
        let mut next = 0;
        while next < schedule.count {
            tick.tick().await;
            while next < schedule.count && schedule.interval * next <= start.elapsed() {
                let (outcomes, requests, index) = (Rc::clone(&outcomes), Rc::clone(&requests), next);
                let part = part.now();
                let Some(&address) = addresses.get(part) else {
                    return Err(io::Error::other(format!("part {part} has no address")));
                };
                under_way.spawn_local(async move {
                    let begun = Instant::now();
                    let asked =
                        timeout(LIMIT, ask(address, source(index % sources.max(1)), requests.of(index)));
                    let answer = asked.await;
                    let mut outcomes = outcomes.borrow_mut();
                    let outcome = outcomes.of(part);
                    match answer {
                        Ok(Ok(Some(status))) => outcome.answered(status, begun.elapsed().as_micros()),
                        Ok(Ok(None)) => outcome.closed(),
                        Ok(Err(_)) | Err(_) => outcome.failed(),
                    }
                });
                next += 1;
            }
            while under_way.try_join_next().is_some() {}
        }
        while under_way.join_next().await.is_some() {}
        Ok(())
    })?;
    part.print(outcomes.take())
}

/// An address of its own, below 127.1.0.0/16.
fn source(number: u32) -> SocketAddr {
    let [.., high, low] = ((number / PER_NET) << 8 | (number % PER_NET + 1)).to_be_bytes();
    SocketAddr::from((Ipv4Addr::new(127, 1, high, low), 0))
}

/// The status; nothing where the connection was closed without a response.
async fn ask(address: Address, source: SocketAddr, request: &[u8]) -> io::Result<Option<u16>> {
    let socket = TcpSocket::new_v4()?;
    // Closed by a reset, a connection leaves no port behind that waits for a minute.
    socket.set_zero_linger()?;
    socket.bind(source)?;
    let mut stream = socket.connect(address).await?;
    if stream.write_all(request).await.is_err() {
        return Ok(None);
    }
    let mut read = Vec::with_capacity(1024);
    loop {
        match stream.read_buf(&mut read).await {
            Ok(0) | Err(_) => return Ok(None),
            Ok(_) => {}
        }
        if let Some(response) = response(&read)?
            && read.len() >= response.bytes
        {
            return Ok(Some(response.status));
        }
    }
}

/// Accepts connections and closes them, until it is stopped.
pub(crate) fn sink(address: Address) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    loop {
        // What goes wrong with one connection is nothing to the next.
        let _ = listener.accept();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_an_address_of_its_own() {
        for (number, expected) in
            [(0, "127.1.0.1:0"), (249, "127.1.0.250:0"), (250, "127.1.1.1:0"), (63_999, "127.1.255.250:0")]
        {
            assert_eq!(source(number).to_string(), expected);
        }
    }
}
