//! Load by `wrk`: a closed loop over kept-alive connections.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::machine::on;
use crate::process::{Caught, catch};

/// Beyond the time that wrk was told to take.
const GRACE: Duration = Duration::from_secs(30);

/// What is to be asked for, by whom.
#[derive(Debug)]
pub(super) struct Load<'a> {
    pub(super) address: SocketAddr,
    pub(super) tls: bool,
    pub(super) path: &'static str,
    /// Octets of a body; where there are any, the method is POST.
    pub(super) body_bytes: usize,
    pub(super) connections: usize,
    /// One thread for each.
    pub(super) processors: &'a [usize],
    pub(super) time: Duration,
    /// Who asks, as `bench/wrk/load.lua` has it; empty where nobody is to know.
    pub(super) caller: &'a [String],
}

/// wrk while it runs.
#[derive(Debug)]
pub(super) struct Running {
    receiver: Receiver<Result<Caught>>,
}

/// What wrk counted, from its first connection to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
}

impl Load<'_> {
    pub(super) fn start(&self, sources: &Path) -> Running {
        let mut command = self.command(sources);
        let limit = self.time + GRACE;
        let (sender, receiver) = mpsc::sync_channel(1);
        thread::spawn(move || {
            // Nobody is left to hear it where the measurement has failed.
            let _ = sender.send(catch(&mut command, limit));
        });
        Running { receiver }
    }

    fn command(&self, sources: &Path) -> Command {
        let threads = self.processors.len().min(self.connections);
        let scheme = if self.tls { "https" } else { "http" };
        // wrk counts whole seconds; interrupted, it says what it has counted, and ends as it does otherwise.
        let mut command = on(self.processors, "timeout");
        command
            .args(["--preserve-status", "--signal=INT"])
            .arg(format!("{}s", self.time.as_secs_f64()))
            .arg("wrk")
            .arg(format!("--threads={threads}"))
            .arg(format!("--connections={}", self.connections))
            .arg(format!("--duration={}s", (self.time + GRACE).as_secs()))
            .arg("--timeout=10s")
            .arg("--script")
            .arg(sources.join("wrk/load.lua"))
            .arg(format!("{scheme}://{}{}", self.address, self.path))
            .arg("--")
            .arg(if self.body_bytes > 0 { "POST" } else { "GET" })
            .arg(self.body_bytes.to_string())
            .args(self.caller);
        command
    }
}

impl Running {
    /// Lets `time` pass.
    ///
    /// # Errors
    ///
    /// wrk ended meanwhile, with what it said.
    pub(super) fn go_on_for(&self, time: Duration) -> Result<()> {
        match self.receiver.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => bail!("wrk can't be waited for"),
            Ok(caught) => bail!("wrk ended too early: {}", caught?.last_line()),
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// It failed, or any request did.
    pub(super) fn finish(self) -> Result<Outcome> {
        let caught = self.receiver.recv()??;
        ensure!(caught.success, "wrk: {}", caught.last_line());
        let line = caught.output.lines().find_map(|line| line.strip_prefix("bench-load "));
        parse(line.context("wrk printed no results")?)
    }
}

fn parse(line: &str) -> Result<Outcome> {
    let field = |name: &str| -> Result<u64> {
        let word = line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        word.and_then(|value| value.parse().ok()).with_context(|| format!("wrk printed no {name}: {line}"))
    };
    for error in ["connect", "read", "write", "status", "timeout"] {
        let count = field(error)?;
        ensure!(count == 0, "{count} requests failed ({error})");
    }
    let latency = |name| field(name).map(|us| Duration::from_micros(us).as_secs_f64() * 1e6);
    Ok(Outcome {
        requests: field("requests")?,
        bytes: field("bytes")?,
        p50_us: latency("p50_us")?,
        p99_us: latency("p99_us")?,
        p999_us: latency("p999_us")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "requests=1000 duration_us=2000000 bytes=250000 connect=0 read=0 write=0 status=0 \
                        timeout=0 p50_us=120 p99_us=450 p999_us=1900";

    #[test]
    fn results_are_read_from_the_line_of_the_script() {
        let expected =
            Outcome { requests: 1000, bytes: 250_000, p50_us: 120.0, p99_us: 450.0, p999_us: 1900.0 };
        assert_eq!(parse(LINE).unwrap(), expected);
        assert!(parse("requests=1").is_err());
    }

    #[test]
    fn one_failed_request_makes_a_measurement_worthless() {
        for error in ["connect", "read", "write", "status", "timeout"] {
            let line = LINE.replace(&format!("{error}=0"), &format!("{error}=3"));
            assert!(parse(&line).unwrap_err().to_string().contains(error), "{line}");
        }
    }
}
