//! The program as a process: its output by lines, its signals, its end.

use std::{
    io::{BufRead as _, BufReader, Read, Seek as _, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Condvar, Mutex, PoisonError},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::WAIT_MAX;

/// `cardea` with arguments, run in `folder`, in an environment that says nothing to it.
pub(crate) fn cardea(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cardea"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    for name in ["RUST_LOG", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"] {
        command.env_remove(name);
    }
    command
}

/// What a process that has ended leaves behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Its standard output as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs `cardea` to its end.
pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Ran {
    end(&mut cardea(folder, arguments))
}

/// The same with something on its standard input.
pub(crate) fn run_with(folder: &Path, arguments: &[&str], input: &str) -> Ran {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(input.as_bytes()).unwrap();
    file.rewind().unwrap();
    end(cardea(folder, arguments).stdin(file))
}

/// Runs a command to its end.
pub(crate) fn end(command: &mut Command) -> Ran {
    let mut program = Program::start(command);
    let code = program.wait();
    Ran { code, stdout: program.stdout.text(), stderr: program.stderr.text() }
}

/// A running process. It is killed when this is dropped.
pub(crate) struct Program {
    child: Child,
    pub(crate) stdout: Lines,
    pub(crate) stderr: Lines,
}

impl Program {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = Lines::read(child.stdout.take().unwrap());
        let stderr = Lines::read(child.stderr.take().unwrap());
        Self { child, stdout, stderr }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// Waits for the end; the exit code, `None` where a signal ended it.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        // Both pipes end with the process.
        self.stdout.wait_for_end();
        self.stderr.wait_for_end();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Program {
    #[expect(clippy::print_stderr, reason = "the runner shows it beside the failure that it explains")]
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("---- standard error of the process:\n{}", self.stderr.text());
        }
    }
}

/// What a process writes, while it writes it.
#[derive(Clone)]
pub(crate) struct Lines(Arc<(Mutex<Written>, Condvar)>);

#[derive(Default)]
struct Written {
    lines: Vec<String>,
    ended: bool,
}

impl Lines {
    fn read(stream: impl Read + Send + 'static) -> Self {
        let this = Self(Arc::default());
        let shared = Arc::clone(&this.0);
        std::thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n') {
                let Ok(line) = line else { break };
                shared.0.lock().unwrap().lines.push(String::from_utf8_lossy(&line).into_owned());
                shared.1.notify_all();
            }
            shared.0.lock().unwrap().ended = true;
            shared.1.notify_all();
        });
        this
    }

    /// How many lines there are.
    pub(crate) fn len(&self) -> usize {
        self.0.0.lock().unwrap().lines.len()
    }

    pub(crate) fn text(&self) -> String {
        // Asked for when something failed, perhaps while the lock was held.
        let written = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        written.lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
    }

    /// The first line from number `from` on of which `found` makes something.
    pub(crate) fn find<T>(&self, what: &str, from: usize, mut found: impl FnMut(&str) -> Option<T>) -> T {
        let (written, changed) = &*self.0;
        let (mut next, mut written) = (from, written.lock().unwrap());
        loop {
            while let Some(line) = written.lines.get(next) {
                if let Some(found) = found(line) {
                    return found;
                }
                next += 1;
            }
            assert!(!written.ended, "the process ended without {what}");
            let (guard, timeout) = changed.wait_timeout(written, WAIT_MAX).unwrap();
            assert!(!timeout.timed_out(), "waited in vain for {what}");
            written = guard;
        }
    }

    /// The first line with `text` from number `from` on.
    pub(crate) fn wait_for(&self, text: &str, from: usize) -> String {
        self.find(text, from, |line| line.contains(text).then(|| line.to_owned()))
    }

    fn wait_for_end(&self) {
        let (written, changed) = &*self.0;
        let guard = written.lock().unwrap();
        let (guard, timeout) = changed.wait_timeout_while(guard, WAIT_MAX, |written| !written.ended).unwrap();
        assert!(!timeout.timed_out(), "the process does not end:\n{}", guard.lines.join("\n"));
    }
}
