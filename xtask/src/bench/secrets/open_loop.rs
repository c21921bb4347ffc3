//! `bench-open-loop`: requests that start when they are due.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::super::machine::on;
use super::super::server::{Server, free_address};
use super::super::tools::Tools;
use crate::process::{Caught, catch_running, start_caught};

/// Beyond the time that it was told to take.
const GRACE: Duration = Duration::from_secs(30);

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind<'a> {
    /// A path, over connections that stay.
    Get(&'a str),
    /// Tokens for the clients of a file, over connections that stay.
    Grants(&'a Path),
    /// The same with a new connection for each, from so many addresses.
    Guesses { file: &'a Path, sources: usize },
}

/// Requests at a rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenLoop<'a> {
    /// One; of guesses one for each part.
    pub(super) addresses: &'a [SocketAddr],
    pub(super) rate: f64,
    pub(super) time: Duration,
    pub(super) connections: usize,
    pub(super) kind: Kind<'a>,
}

/// One that is under way.
pub(super) struct Running {
    ended: Receiver<Result<Caught>>,
    input: ChildStdin,
}

/// What became of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    pub(super) requests: f64,
    pub(super) served: f64,
    pub(super) wrong: f64,
    pub(super) too_often: f64,
    pub(super) busy: f64,
    pub(super) closed: f64,
    /// Of those that were served.
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

impl Outcome {
    /// What was served, in percent.
    pub(super) fn served_percent(&self) -> f64 {
        self.served * 100.0 / self.requests.max(1.0)
    }
}

/// The program.
pub(super) struct Generator<'a> {
    program: std::path::PathBuf,
    processors: &'a [usize],
}

impl<'a> Generator<'a> {
    pub(super) fn provide(tools: &Tools, processors: &'a [usize]) -> Result<Self> {
        Ok(Self { program: tools.own_program("bench-open-loop")?, processors })
    }

    pub(super) fn start(&self, load: &OpenLoop<'_>) -> Result<Running> {
        let mut command = on(self.processors, &self.program);
        let mode = if matches!(load.kind, Kind::Guesses { .. }) { "guesses" } else { "kept" };
        let addresses: Vec<String> = load.addresses.iter().map(SocketAddr::to_string).collect();
        command.args([mode, &addresses.join(","), &load.rate.to_string()]);
        command.arg(load.time.as_secs_f64().to_string());
        match load.kind {
            Kind::Get(path) => command.arg(load.connections.to_string()).args(["get", path]),
            Kind::Grants(file) => command.arg(load.connections.to_string()).arg("grants").arg(file),
            Kind::Guesses { file, sources } => command.arg(sources.to_string()).arg(file),
        };
        let mut child = start_caught(command.stdin(Stdio::piped()))?;
        let input = child.stdin.take().context("standard input is piped")?;
        let limit = load.time + GRACE;
        let (sender, receiver) = mpsc::sync_channel(1);
        thread::spawn(move || {
            // Nobody is left to hear it where the measurement has failed.
            let _ = sender.send(catch_running(child, limit));
        });
        Ok(Running { ended: receiver, input })
    }

    /// What accepts connections and closes them.
    pub(super) fn sink(&self, folder: &Path) -> Result<Server> {
        let address = free_address()?;
        let mut command: Command = on(self.processors, &self.program);
        command.arg("sink").arg(address.to_string());
        Server::start(&mut command, address, &folder.join("sink.log")).context("starting the sink")
    }
}

impl Running {
    /// What starts from now on is of that part.
    pub(super) fn begin(&mut self, part: usize) -> Result<()> {
        writeln!(self.input, "{part}").context("bench-open-loop exited early")
    }

    /// Waits for its end. The outcomes of the parts that there were, in order.
    pub(super) fn finish_parts(self) -> Result<Vec<Outcome>> {
        let caught = self.ended.recv()??;
        ensure!(caught.success, "bench-open-loop: {}", caught.last_line());
        caught.output.lines().filter_map(|line| line.strip_prefix("bench-open-loop ")).map(parse).collect()
    }

    /// Waits for its end, where there were no parts.
    pub(super) fn finish(self) -> Result<Outcome> {
        self.finish_parts()?.pop().context("bench-open-loop printed no results")
    }
}

fn parse(line: &str) -> Result<Outcome> {
    let field = |name: &str| -> Result<f64> {
        let word = line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        word.and_then(|value| value.parse().ok()).with_context(|| format!("it printed no {name}: {line}"))
    };
    Ok(Outcome {
        requests: field("requests")?,
        served: field("status_200")?,
        wrong: field("status_401")?,
        too_often: field("status_429")?,
        busy: field("status_503")?,
        closed: field("closed")?,
        p50_us: field("p50_us")?,
        p99_us: field("p99_us")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_from_the_line_of_the_program() {
        let line = "requests=10 status_200=5 status_401=1 status_429=2 status_503=1 status_other=0 closed=1 \
                    failed=0 p50_us=120 p99_us=450";
        let outcome = parse(line).unwrap();
        assert_eq!(
            outcome,
            Outcome {
                requests: 10.0,
                served: 5.0,
                wrong: 1.0,
                too_often: 2.0,
                busy: 1.0,
                closed: 1.0,
                p50_us: 120.0,
                p99_us: 450.0
            }
        );
        assert!((outcome.served_percent() - 50.0).abs() < 1e-9);
        assert!(parse("requests=1").is_err());
    }
}
