//! Requests over connections that stay, each driven by a thread.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::part::{Outcomes, Part};
use crate::request::{Requests, response};
use crate::{Address, Schedule};

/// For one response.
const LIMIT: Duration = Duration::from_secs(10);
/// A thread needs little.
const STACK_BYTES: usize = 128 * 1024;

/// Sends what is due, and prints what became of it. A latency counts from when its request was due, where no connection
/// was free then; else from when it was sent, so that it counts nothing of how late this program is woken.
pub(crate) fn run(
    address: Address,
    schedule: Schedule,
    connections: usize,
    requests: &Requests,
    part: &Part,
) -> io::Result<()> {
    let next = AtomicU32::new(0);
    let open: Vec<TcpStream> = (0..connections).map(|_| connect(address)).collect::<io::Result<_>>()?;
    let start = Instant::now();
    let mut sum = Outcomes::default();
    thread::scope(|scope| -> io::Result<()> {
        let next = &next;
        let drive = |stream| {
            let work = move || drive(address, stream, schedule, start, next, requests, part);
            thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work)
        };
        let threads = open.into_iter().map(drive).collect::<io::Result<Vec<_>>>()?;
        for thread in threads {
            sum.add(thread.join().map_err(|_| io::Error::other("a thread panicked"))?);
        }
        Ok(())
    })?;
    part.print(sum)
}

fn connect(address: Address) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LIMIT))?;
    Ok(stream)
}

fn drive(
    address: Address,
    stream: TcpStream,
    schedule: Schedule,
    start: Instant,
    next: &AtomicU32,
    requests: &Requests,
    part: &Part,
) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let mut stream = Some(stream);
    let mut buffer = Vec::with_capacity(4096);
    loop {
        let index = next.fetch_add(1, Relaxed);
        if index >= schedule.count {
            return outcomes;
        }
        let due = start + schedule.interval * index;
        let now = Instant::now();
        let begun = if now < due {
            thread::sleep(due - now);
            Instant::now()
        } else {
            due
        };
        let outcome = outcomes.of(part.now());
        let open = stream.take().map_or_else(|| connect(address), Ok);
        let asked = open.and_then(|mut stream| {
            let (status, closes) = ask(&mut stream, requests.of(index), &mut buffer)?;
            Ok((status, (!closes).then_some(stream)))
        });
        match asked {
            Ok((status, open)) => {
                outcome.answered(status, begun.elapsed().as_micros());
                stream = open;
            }
            Err(_) => outcome.failed(),
        }
    }
}

/// The status of the response, and whether the connection ends with it.
fn ask(stream: &mut TcpStream, request: &[u8], buffer: &mut Vec<u8>) -> io::Result<(u16, bool)> {
    stream.write_all(request)?;
    buffer.clear();
    loop {
        let read = buffer.len();
        buffer.resize(read + 4096, 0);
        let count = stream.read(&mut buffer[read..])?;
        buffer.truncate(read + count);
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if let Some(response) = response(buffer)?
            && buffer.len() >= response.bytes
        {
            return Ok((response.status, response.closes));
        }
    }
}
