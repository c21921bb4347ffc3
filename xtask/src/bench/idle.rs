//! `bench-idle`: clients that hold connections, and prove by requests that what they are connected to works.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::machine::on;
use super::server::Server;
use super::subject::Setup;
use super::tools::Tools;
use crate::process::Stopwatch;

/// For opening all connections, and for one more request on each.
const CLIENT_LIMIT: Duration = Duration::from_secs(180);

/// The program that holds connections. Dropped, it ends, and they with it.
pub(super) struct Clients {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    count: usize,
}

impl Clients {
    /// Opens `count` connections and makes a request on each, whose answer must be the origin's.
    ///
    /// # Errors
    ///
    /// Any of them failed.
    pub(super) fn open(
        tools: &Tools,
        setup: &Setup<'_>,
        server: &Server,
        count: usize,
        processors: &[usize],
    ) -> Result<Self> {
        let mut command = on(processors, &tools.idle);
        command.arg(server.address.to_string()).arg(count.to_string());
        if setup.tls {
            command.arg(tools.certificate()).arg(if setup.http2 { "h2" } else { "http/1.1" });
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot run bench-idle")?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("standard output is piped")?;
        let (sender, lines) = mpsc::sync_channel(1);
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut clients = Self { child, input, lines, count };
        clients.expect_line("ready")?;
        Ok(clients)
    }

    /// Makes one more request on each connection.
    pub(super) fn ask_again(&mut self) -> Result<()> {
        let input = self.input.as_mut().context("standard input is piped")?;
        input.write_all(b"again\n")?;
        input.flush()?;
        self.expect_line("alive")
    }

    fn expect_line(&mut self, word: &str) -> Result<()> {
        let watch = Stopwatch::start();
        let expected = format!("{word} {}", self.count);
        match self.lines.recv_timeout(CLIENT_LIMIT) {
            Ok(line) => ensure!(line == expected, "bench-idle printed {line:?}, expected {expected:?}"),
            Err(_) => bail!(
                "bench-idle did not hold all of {} connections after {:.0} s",
                self.count,
                watch.elapsed().as_secs_f64()
            ),
        }
        Ok(())
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // The end of its input is the end of the program; one that is busy is not waited for.
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
