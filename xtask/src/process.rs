//! Runs other programs: with their output passed on, or captured under a time limit.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The most captured output of a program; the rest is discarded.
const CAUGHT_BYTES_MAX: usize = 256 * 1024;

/// The result of a captured program.
#[derive(Debug)]
pub(crate) struct Caught {
    /// Whether it ended in time and with status 0.
    pub(crate) success: bool,
    /// Standard output and standard error, in that order.
    pub(crate) output: String,
}

impl Caught {
    /// The last line that is not empty, where most programs state their error.
    pub(crate) fn last_line(&self) -> &str {
        self.output.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no output")
    }
}

/// Measures how long a step takes.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(
        clippy::disallowed_methods,
        reason = "times the tasks themselves; nothing here is tested with time"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Cargo, in the repository: the one that runs this task.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(root);
    command
}

/// Runs `command` with its output passed on, and returns whether it exited with status 0.
pub(crate) fn pass(command: &mut Command) -> Result<bool> {
    let status = command.status().with_context(|| describe(command))?;
    Ok(status.success())
}

/// Runs `command` with its output passed on, showing each line of standard output to `each` as well.
pub(crate) fn pass_lines(command: &mut Command, mut each: impl FnMut(&str)) -> Result<bool> {
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| describe(command))?;
    let stdout = child.stdout.take().context("standard output is piped")?;
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        each(&line);
    }
    Ok(child.wait()?.success())
}

/// Runs `command` and keeps what it prints. After `limit` it is killed, and has failed.
pub(crate) fn catch(command: &mut Command, limit: Duration) -> Result<Caught> {
    catch_running(start_caught(command.stdin(Stdio::null()))?, limit)
}

/// Starts `command` for [`catch_running`].
pub(crate) fn start_caught(command: &mut Command) -> Result<Child> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().with_context(|| describe(command))
}

/// As [`catch`], for a started program.
pub(crate) fn catch_running(mut child: Child, limit: Duration) -> Result<Caught> {
    let watch = Stopwatch::start();
    let (sender, receiver) = mpsc::sync_channel(2);
    let streams: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>),
        child.stderr.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>),
    ];
    for (index, stream) in streams.into_iter().enumerate() {
        let stream = stream.context("both streams are piped")?;
        let sender = sender.clone();
        thread::spawn(move || {
            // The receiver is gone once the limit has passed; then the text is not needed.
            let _ = sender.send((index, read_bounded(stream)));
        });
    }
    drop(sender);
    let mut texts = [String::new(), String::new()];
    for _ in 0..2 {
        if let Ok((index, text)) = receiver.recv_timeout(limit.saturating_sub(watch.elapsed())) {
            texts[index] = text;
            continue;
        }
        child.kill()?;
        child.wait()?;
        let output = format!("{}{}\nstill running after {} s: killed", texts[0], texts[1], limit.as_secs());
        return Ok(Caught { success: false, output });
    }
    let success = child.wait()?.success();
    Ok(Caught { success, output: texts.concat() })
}

/// Cargo's target folder, which the user's settings may place outside the checkout.
pub(crate) fn target_directory(root: &Path) -> Result<PathBuf> {
    let caught = catch(
        cargo(root).args(["metadata", "--format-version=1", "--no-deps", "--offline"]),
        Duration::from_secs(60),
    )?;
    let json = caught.output.lines().find(|line| line.starts_with('{')).unwrap_or_default();
    let metadata: serde_json::Value =
        serde_json::from_str(json).with_context(|| format!("cargo metadata: {}", caught.last_line()))?;
    let directory =
        metadata["target_directory"].as_str().context("cargo metadata names no target directory")?;
    Ok(PathBuf::from(directory))
}

/// Builds the program and returns where it is.
pub(crate) fn build_cardea(root: &Path) -> Result<PathBuf> {
    let mut executable = None;
    let mut command = cargo(root);
    command.args(["build", "--quiet", "--package=cardea", "--message-format=json-render-diagnostics"]);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| describe(&command))?;
    let stdout = child.stdout.take().context("standard output is piped")?;
    for line in BufReader::new(stdout).lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(&line?) else { continue };
        if message["reason"] == "compiler-artifact" && message["target"]["name"] == "cardea" {
            executable = message["executable"].as_str().map(PathBuf::from).or(executable);
        }
    }
    if !child.wait()?.success() {
        bail!("the build of the program failed");
    }
    executable.context("cargo names no executable of the package cardea")
}

/// Sends SIGTERM to a program, and kills it after `limit`. Returns whether it exited by itself with status 0.
pub(crate) fn terminate(mut child: Child, limit: Duration) -> Result<bool> {
    let id = i32::try_from(child.id()).context("a process id is a positive 32-bit number")?;
    let (sender, receiver) = mpsc::sync_channel(1);
    kill(Pid::from_raw(id), Signal::SIGTERM)?;
    let waiter = thread::spawn(move || {
        let _ = sender.send(child.wait());
    });
    let Ok(status) = receiver.recv_timeout(limit) else {
        kill(Pid::from_raw(id), Signal::SIGKILL)?;
        let _ = waiter.join();
        return Ok(false);
    };
    Ok(status?.success())
}

fn read_bounded(mut stream: impl Read) -> String {
    let mut kept = Vec::new();
    let mut chunk = [0; 8192];
    // An error of reading is the end of the stream: the status of the program decides.
    while let Ok(length @ 1..) = stream.read(&mut chunk) {
        let room = CAUGHT_BYTES_MAX.saturating_sub(kept.len());
        kept.extend_from_slice(&chunk[..length.min(room)]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

fn describe(command: &Command) -> String {
    format!("cannot run `{}`", command.get_program().to_string_lossy())
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
    fn both_streams_are_caught_and_the_last_line_is_the_reason() {
        let caught = catch(&mut shell("echo out; echo reason >&2; exit 3"), Duration::from_secs(20)).unwrap();
        assert!(!caught.success);
        assert_eq!(caught.output, "out\nreason\n");
        assert_eq!(caught.last_line(), "reason");
    }

    #[test]
    fn output_beyond_the_bound_is_dropped_and_does_not_block() {
        let caught = catch(&mut shell("yes | head -c 1000000"), Duration::from_secs(20)).unwrap();
        assert!(caught.success);
        assert_eq!(caught.output.len(), CAUGHT_BYTES_MAX);
    }

    #[test]
    fn a_program_over_its_limit_is_killed_and_has_failed() {
        let caught = catch(&mut shell("exec sleep 600"), Duration::from_millis(50)).unwrap();
        assert!(!caught.success);
        assert!(caught.last_line().contains("killed"), "{}", caught.output);
    }

    #[test]
    fn termination_is_asked_for_first() {
        let mut child = shell("trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        assert!(terminate(child, Duration::from_secs(20)).unwrap());
    }

    #[test]
    fn lines_are_passed_on_one_by_one() {
        let mut lines = Vec::new();
        let success =
            pass_lines(&mut shell("echo a; echo b; false"), |line| lines.push(line.to_owned())).unwrap();
        assert!(!success);
        assert_eq!(lines, ["a", "b"]);
    }
}
