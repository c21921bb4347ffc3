//! An open loop: requests start when they are due, whatever became of those before. `kept` sends over connections that
//! stay, `guesses` over a new one for each request and from many addresses, and `sink` accepts connections and closes
//! them. Lines on standard input may divide a load into parts. What was counted is on a line for each, which the harness reads.
#![forbid(unsafe_code)]

mod guesses;
mod kept;
mod outcome;
mod part;
mod request;

use std::env;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use part::Part;
use request::Requests;

const USAGE: &str = "\
usage: bench-open-loop kept ADDRESS RATE SECONDS CONNECTIONS get PATH
       bench-open-loop kept ADDRESS RATE SECONDS CONNECTIONS grants FILE
       bench-open-loop guesses ADDRESS,... RATE SECONDS SOURCES FILE
       bench-open-loop sink ADDRESS
A file has lines of an id, a space and a secret, which are used in turn.
A number on a line of standard input begins that part of the load, which has a line of its own in what is printed; it
begins with part 0. The guesses of each part have an address of their own.";

/// When requests are due.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    interval: Duration,
    count: u32,
}

impl Schedule {
    fn of(rate: f64, time: Duration) -> Option<Self> {
        let count = (rate * time.as_secs_f64()).ceil();
        let valid = rate > 0.0 && count >= 1.0 && count < f64::from(u32::MAX);
        valid.then(|| Self { interval: Duration::from_secs_f64(1.0 / rate), count: count as u32 })
    }
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["kept", address, rate, seconds, connections, kind, what] => {
            let requests = match kind {
                "get" => Requests::get(what),
                "grants" => Requests::grants(what, true)?,
                _ => return Err(usage()),
            };
            let part = Part::by_standard_input();
            kept::run(parsed(address)?, schedule(rate, seconds)?, parsed(connections)?, &requests, &part)
        }
        ["guesses", addresses, rate, seconds, sources, file] => {
            let requests = Requests::grants(file, false)?;
            let addresses = addresses.split(',').map(parsed).collect::<io::Result<Vec<_>>>()?;
            let part = Part::by_standard_input();
            guesses::run(&addresses, schedule(rate, seconds)?, parsed(sources)?, requests, &part)
        }
        ["sink", address] => guesses::sink(parsed(address)?),
        _ => Err(usage()),
    }
}

fn usage() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, USAGE)
}

fn parsed<T: FromStr>(word: &str) -> io::Result<T> {
    word.parse().map_err(|_| io::Error::new(ErrorKind::InvalidInput, format!("{word:?}\n{USAGE}")))
}

fn schedule(rate: &str, seconds: &str) -> io::Result<Schedule> {
    Schedule::of(parsed(rate)?, Duration::from_secs_f64(parsed(seconds)?)).ok_or_else(usage)
}

/// The address of a server.
type Address = SocketAddr;
