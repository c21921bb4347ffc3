//! The access log's writer: the thread that swaps the buffers and owns the sink.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use cardea_clock::{Clock, Mono};

use super::{Shared, lock, open};

/// A failing sink is reported no more often than this.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// What lines are written to: each call of `write` is one system call.
pub(super) type Output = Box<dyn Write + Send>;

/// So many datagrams in a row that are refused are taken for a server that is gone: what is queued with them is lost.
const REFUSED_IN_A_ROW_MAX: u32 = 3;

/// What an output is.
pub(super) enum Kind {
    /// Octets without an end.
    Stream,
    /// The same in a file, which can be opened again.
    File(PathBuf),
    /// Each call of `write` sends a line, whole or not at all.
    Datagrams,
}

pub(super) struct Writer {
    shared: Arc<Shared>,
    output: Output,
    kind: Kind,
    flush_interval: Duration,
    /// Takes the place of the buffer that is being written; empty in between.
    spare: Vec<u8>,
    /// Whether the sink ends in the middle of a line, because a write failed there.
    torn: bool,
    reports: Reports,
}

/// What a turn was asked to do.
struct Turn {
    reopen: bool,
    stop: bool,
    flush_wanted: u64,
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        output: Output,
        kind: Kind,
        flush_interval: Duration,
        clock: Clock,
    ) -> Self {
        let spare = Vec::with_capacity(shared.shard_bytes);
        let reports = Reports { clock, error_at: None, dropped_at: None, dropped: 0 };
        Self { shared, output, kind, flush_interval, spare, torn: false, reports }
    }

    /// Writes until told to stop; then once more, so that nothing that was queued before is left.
    pub(super) fn run(mut self) {
        // Whatever ends this thread, nobody may wait for it in vain.
        let ended = Ended(Arc::clone(&self.shared));
        loop {
            let turn = self.wait();
            self.drain();
            if turn.reopen {
                self.reopen();
            }
            self.reports.dropped(self.shared.dropped.load(Ordering::Relaxed));
            let mut control = lock(&self.shared.control);
            control.flush_done = control.flush_done.max(turn.flush_wanted);
            drop(control);
            self.shared.done.notify_all();
            if turn.stop {
                break;
            }
        }
        drop(ended);
    }

    /// Waits for the interval's end or for something to do before it.
    fn wait(&self) -> Turn {
        let idle = |control: &mut super::Control| {
            !(control.reopen
                || control.stop
                || control.flush_wanted > control.flush_done
                || self.shared.urgent.load(Ordering::Acquire))
        };
        let control = lock(&self.shared.control);
        let waited = self.shared.wake.wait_timeout_while(control, self.flush_interval, idle);
        let mut control = waited.unwrap_or_else(PoisonError::into_inner).0;
        // Before the buffers are looked at: whoever presses later wants another look.
        self.shared.urgent.store(false, Ordering::Release);
        Turn {
            reopen: std::mem::take(&mut control.reopen),
            stop: control.stop,
            flush_wanted: control.flush_wanted,
        }
    }

    fn drain(&mut self) {
        let shared = Arc::clone(&self.shared);
        for shard in &shared.shards {
            let mut lines = lock(&shard.lines);
            if lines.is_empty() {
                continue;
            }
            std::mem::swap(&mut *lines, &mut self.spare);
            drop(lines);
            let lines = std::mem::take(&mut self.spare);
            self.write(&lines);
            self.spare = lines;
            self.spare.clear();
        }
    }

    /// Writes whole lines. What the sink does not take is lost: it is counted, and the next line begins afresh.
    fn write(&mut self, lines: &[u8]) {
        if matches!(self.kind, Kind::Datagrams) {
            return self.send(lines);
        }
        if self.torn {
            match write_all(&mut *self.output, b"\n") {
                Ok(()) => self.torn = false,
                Err((_, error)) => return self.lose(lines, &error),
            }
        }
        if let Err((written, error)) = write_all(&mut *self.output, lines) {
            let (written, lost) = lines.split_at(written);
            self.torn = written.last().is_some_and(|last| *last != b'\n');
            self.lose(lost, &error);
        }
    }

    /// Sends lines one by one. One that is refused is lost alone.
    fn send(&mut self, mut lines: &[u8]) {
        let mut refused = 0;
        while !lines.is_empty() {
            match write_all(&mut *self.output, lines) {
                Ok(()) => return,
                Err((written, error)) => {
                    refused = if written > 0 { 1 } else { refused + 1 };
                    let rest = lines.get(written..).unwrap_or_default();
                    let line = memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
                    let lost = if refused < REFUSED_IN_A_ROW_MAX { line } else { rest.len() };
                    let (lost, left) = rest.split_at(lost);
                    self.lose(lost, &error);
                    lines = left;
                }
            }
        }
    }

    fn lose(&mut self, lines: &[u8], error: &io::Error) {
        let lost = memchr::memchr_iter(b'\n', lines).count() as u64;
        self.shared.write_errors.fetch_add(1, Ordering::Relaxed);
        let dropped = self.shared.dropped.fetch_add(lost, Ordering::Relaxed) + lost;
        self.reports.failed(error, dropped);
    }

    fn reopen(&mut self) {
        let Kind::File(path) = &self.kind else { return };
        match open(path) {
            Ok(file) => {
                self.output = Box::new(file);
                self.torn = false;
                tracing::info!(path = %path.display(), "access log reopened");
            }
            Err(error) => {
                self.shared.write_errors.fetch_add(1, Ordering::Relaxed);
                tracing::error!(path = %path.display(), %error, "the access log can't be reopened; the old file stays in use");
            }
        }
    }
}

/// Tells those who wait that the writer is gone.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        lock(&self.0.control).ended = true;
        self.0.done.notify_all();
    }
}

/// Says what goes wrong, but not all the time.
struct Reports {
    clock: Clock,
    error_at: Option<Mono>,
    dropped_at: Option<Mono>,
    /// How many lost lines have been accounted for.
    dropped: u64,
}

impl Reports {
    fn failed(&mut self, error: &io::Error, dropped: u64) {
        self.dropped = dropped;
        if due(&mut self.error_at, self.clock.now().mono) {
            tracing::error!(%error, dropped, "the access log can't be written; lines are dropped");
        }
    }

    fn dropped(&mut self, dropped: u64) {
        if dropped > self.dropped && due(&mut self.dropped_at, self.clock.now().mono) {
            self.dropped = dropped;
            tracing::warn!(dropped, "the access log is slower than requests arrive; lines are dropped");
        }
    }
}

/// Whether it is time for another report; if so, it counts as made.
pub(super) fn due(last: &mut Option<Mono>, now: Mono) -> bool {
    let due = last.is_none_or(|last| now.saturating_since(last) >= REPORT_INTERVAL);
    if due {
        *last = Some(now);
    }
    due
}

/// Like `Write::write_all`, but an error comes with how much was written before it.
fn write_all(output: &mut dyn Write, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while written < bytes.len() {
        match output.write(&bytes[written..]) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}
