//! A server that a bench starts, waits for and stops.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::process::{Stopwatch, terminate};

/// From its start until it accepts connections.
const START_LIMIT: Duration = Duration::from_secs(20);
/// From SIGTERM to its end.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// For one request of the harness itself.
const REQUEST_LIMIT: Duration = Duration::from_secs(20);
/// Kept of a response to such a request.
const RESPONSE_BYTES_MAX: u64 = 64 * 1024;
/// Of a log that is shown.
const LINES_SHOWN: usize = 5;

/// A server while it runs. Dropped, it is stopped.
#[derive(Debug)]
pub(super) struct Server {
    child: Option<Child>,
    pub(super) address: SocketAddr,
}

impl Server {
    /// Starts it and waits until it accepts connections at `address`; its output goes to the file `log`.
    ///
    /// # Errors
    ///
    /// It can't be run, ends, or accepts nothing in time; with the end of its output.
    pub(super) fn start(command: &mut Command, address: SocketAddr, log: &Path) -> Result<Self> {
        Self::start_within(command, address, log, START_LIMIT)
    }

    /// The same, for one that may take `limit` until it accepts connections.
    ///
    /// # Errors
    ///
    /// As above.
    pub(super) fn start_within(
        command: &mut Command,
        address: SocketAddr,
        log: &Path,
        limit: Duration,
    ) -> Result<Self> {
        let output = fs::File::create(log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot run `{}`", command.get_program().to_string_lossy()))?;
        let mut server = Self { child: Some(child), address };
        let watch = Stopwatch::start();
        while TcpStream::connect(address).is_err() {
            let ended = server.child.as_mut().map(Child::try_wait).transpose()?.flatten();
            if let Some(status) = ended {
                server.child = None;
                bail!("it exited at startup ({status}): {}", last_lines(log));
            }
            ensure!(
                watch.elapsed() < limit,
                "it does not accept connections after {} s: {}",
                limit.as_secs(),
                last_lines(log)
            );
            pause(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// The process that was started; its workers are below it.
    pub(super) fn id(&self) -> Result<u32> {
        self.child.as_ref().map(Child::id).context("it is no longer running")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            // Whether it ended of itself is not what a bench measures.
            let _ = terminate(child, STOP_LIMIT);
        }
    }
}

/// An address on loopback that nobody listened at a moment ago.
pub(super) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Asks for `path` and returns the response, head and body.
///
/// # Errors
///
/// The server can't be reached, or does not answer in time.
pub(super) fn request(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(REQUEST_LIMIT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut response = Vec::new();
    stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut response)?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}

/// Waits. A bench measures over stretches of time, so it has to let them pass.
#[expect(clippy::disallowed_methods, reason = "a measurement takes the time that it takes")]
pub(super) fn pause(time: Duration) {
    thread::sleep(time);
}

fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let shown = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
    if shown.is_empty() { "no output".to_owned() } else { shown.join(" / ") }
}

/// A folder that is empty.
pub(super) fn fresh_folder(path: PathBuf) -> Result<PathBuf> {
    if path.exists() {
        fs::remove_dir_all(&path).with_context(|| format!("{}", path.display()))?;
    }
    fs::create_dir_all(&path).with_context(|| format!("{}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_server_that_ends_at_its_start_is_reported_with_its_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let error = Server::start(
            &mut shell("echo no such luck >&2; exit 3"),
            free_address().unwrap(),
            &folder.path().join("log"),
        )
        .unwrap_err();
        assert!(error.to_string().contains("no such luck"), "{error}");
    }

    #[test]
    fn a_server_is_stopped_when_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        // Somebody listens at the address, so the program counts as started.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server =
            Server::start(&mut shell("exec sleep 600"), address, &folder.path().join("log")).unwrap();
        let process = PathBuf::from(format!("/proc/{}", server.id().unwrap()));
        assert!(process.exists());
        drop(server);
        assert!(!process.exists());
    }
}
