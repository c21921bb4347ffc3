//! Makes connections one after the other in several chains at a time: a TLS handshake, one small request, the end.
//! Version, group, cipher suite and the kind of resumption are checked on each of them, and anything but what was
//! asked for is an error: a figure belongs to the case that it is named after.
//!
//! With zero seconds it only says whether the server offers the case: `offered`, or `not-offered REASON`.
#![forbid(unsafe_code)]

mod client;
mod hello;

use std::env;
use std::io;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::task::JoinSet;

use client::{Client, Failure};

const USAGE: &str = "usage: bench-handshake ADDRESS CERTIFICATE-FILE 1.2|1.3 p256|x25519|x25519mlkem768 \
                     full|ticket|cache CHAINS SECONDS";

/// How a session is to begin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// With a full handshake, each.
    Full,
    /// By a ticket that holds the session.
    Ticket,
    /// By the name of a session that the server keeps.
    Cache,
}

/// What the chains did.
#[derive(Default)]
struct Tally {
    full: u64,
    resumed: u64,
    latencies_us: Vec<u64>,
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, certificate, version, group, kind, chains, seconds] = arguments.as_slice() else {
        return Err(io::Error::other(USAGE));
    };
    let kind = match kind.as_str() {
        "full" => Kind::Full,
        "ticket" => Kind::Ticket,
        "cache" => Kind::Cache,
        _ => return Err(io::Error::other(USAGE)),
    };
    let client = Client::new(address.parse().map_err(io::Error::other)?, certificate, version, group, kind)?;
    let chains: usize = chains.parse().map_err(io::Error::other)?;
    let seconds: f64 = seconds.parse().map_err(io::Error::other)?;
    let time = Duration::try_from_secs_f64(seconds).map_err(io::Error::other)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    if time.is_zero() {
        println!("{}", runtime.block_on(probe(client))?);
        return Ok(());
    }
    let tally = runtime.block_on(load(client, chains, time))?;
    println!("{}", tally.line());
    Ok(())
}

/// Whether the server offers the case: one full handshake, and another session by what the first one left.
async fn probe(client: Client) -> io::Result<String> {
    for first in [true, false] {
        if !first && client.kind == Kind::Full {
            break;
        }
        match client.session(first).await {
            Ok(_) => {}
            Err(Failure::NotOffered(reason)) => return Ok(format!("not-offered {reason}")),
            Err(Failure::Broken(error)) => return Err(error),
        }
    }
    Ok("offered".to_owned())
}

async fn load(client: Client, chains: usize, time: Duration) -> io::Result<Tally> {
    let end = Instant::now() + time;
    let mut running = JoinSet::new();
    for _ in 0..chains {
        // A chain resumes its own sessions: one that another chain has used may be no good any more.
        running.spawn(chain(client.with_own_sessions(), end));
    }
    let mut tally = Tally::default();
    while let Some(finished) = running.join_next().await {
        tally.add(finished??);
    }
    Ok(tally)
}

async fn chain(client: Client, end: Instant) -> io::Result<Tally> {
    let mut tally = Tally::default();
    let mut first = true;
    while Instant::now() < end {
        let start = Instant::now();
        client.session(first).await.map_err(|failure| match failure {
            Failure::NotOffered(reason) => {
                io::Error::other(format!("a session is not as asked for: {reason}"))
            }
            Failure::Broken(error) => error,
        })?;
        // The first session of a chain that resumes is no measurement of resumption.
        if first || client.kind == Kind::Full {
            tally.full += 1;
        } else {
            tally.resumed += 1;
        }
        if !first {
            tally.latencies_us.push(u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX));
        }
        first = false;
    }
    Ok(tally)
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.full += other.full;
        self.resumed += other.resumed;
        self.latencies_us.extend(other.latencies_us);
    }

    fn line(mut self) -> String {
        self.latencies_us.sort_unstable();
        let rank = |thousandths: usize| {
            let index =
                (self.latencies_us.len() * thousandths / 1000).min(self.latencies_us.len().saturating_sub(1));
            self.latencies_us.get(index).copied().unwrap_or(0)
        };
        format!(
            "bench-handshake full={} resumed={} p50_us={} p99_us={} p999_us={}",
            self.full,
            self.resumed,
            rank(500),
            rank(990),
            rank(999)
        )
    }
}
