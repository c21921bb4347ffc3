//! The access log: whole lines from many threads, written by a thread of its own.
//!
//! Producers append to a buffer under a short lock; the writer swaps the buffer for an empty one and writes
//! what it got in one system call. A disk that is slow or full, or a pipe that nobody reads, costs lines,
//! which are counted; it never costs a request time.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cardea_clock::Clock;

use self::syslog::Syslog;
pub use self::syslog::{SyslogConfig, SyslogServer};
use self::writer::{Kind, Output, Writer};
use super::metrics::{CounterDef, Definition, GaugeDef, Registry};
use super::shard;

mod syslog;
#[cfg(test)]
mod tests;
mod writer;

/// How long a dropped log waits for what is queued to be written. A pipe that nobody reads must not keep the
/// process from ending.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(5);

/// A thread keeps the buffer in which it makes its lines, unless a line has made it larger than this.
const SCRATCH_BYTES_MAX: usize = 64 * 1024;

static DROPPED: CounterDef<0> = CounterDef::new(
    "cardea_access_log_dropped_lines_total",
    "Lines of the access log that were dropped.",
    [],
);
static WRITE_ERRORS: CounterDef<0> =
    CounterDef::new("cardea_access_log_write_errors_total", "Failed writes of the access log.", []);
static QUEUED: GaugeDef<0> =
    GaugeDef::new("cardea_access_log_queued_bytes", "Bytes of the access log that wait to be written.", []);

/// The metrics of the access log.
pub static DEFINITIONS: &[Definition] =
    &[DROPPED.definition(), WRITE_ERRORS.definition(), QUEUED.definition()];

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sink {
    /// The standard output.
    Stdout,
    /// The end of a file, which is created with mode 0640 if it is not there.
    File(PathBuf),
    /// A syslog server, one datagram per line.
    Syslog(SyslogConfig),
}

/// How an access log is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogConfig {
    /// Where lines go.
    pub sink: Sink,
    /// The most memory of all buffers together, in bytes; default 8 MiB, at least [`Self::QUEUE_BYTES_MIN`].
    pub queue_bytes_max: usize,
    /// The longest that a line waits before it is written, if the sink keeps up; default 200 ms. Buffers that
    /// are half full are written at once.
    pub flush_interval: Duration,
}

impl AccessLogConfig {
    /// The least that `queue_bytes_max` can be: 1 MiB. However many processors there are, a line of 31 KiB fits.
    pub const QUEUE_BYTES_MIN: usize = 1024 * 1024;
}

impl Default for AccessLogConfig {
    fn default() -> Self {
        Self {
            sink: Sink::Stdout,
            queue_bytes_max: 8 * 1024 * 1024,
            flush_interval: Duration::from_millis(200),
        }
    }
}

/// An access log that is open. Dropping it writes what is queued, and waits for that up to five seconds.
pub struct AccessLog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl AccessLog {
    /// Opens the sink and starts the writer's thread. `clock` only spaces reports of failures.
    ///
    /// # Errors
    ///
    /// If the file can't be opened, the thread can't be started, or `queue_bytes_max` is too small.
    pub fn start(config: AccessLogConfig, clock: Clock) -> io::Result<Self> {
        let (output, kind): (Output, _) = match config.sink {
            // Not by way of `io::stdout`, whose buffer would hold back the end of what is written.
            Sink::Stdout => (Box::new(File::from(io::stdout().as_fd().try_clone_to_owned()?)), Kind::Stream),
            Sink::File(path) => (Box::new(open(&path)?), Kind::File(path)),
            Sink::Syslog(config) => (Box::new(Syslog::open(&config, clock.clone())?), Kind::Datagrams),
        };
        Self::start_with(output, kind, config.queue_bytes_max, config.flush_interval, clock)
    }

    fn start_with(
        output: Output,
        kind: Kind,
        queue_bytes_max: usize,
        flush_interval: Duration,
        clock: Clock,
    ) -> io::Result<Self> {
        if queue_bytes_max < AccessLogConfig::QUEUE_BYTES_MIN {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the queue of the access log must have at least 1 MiB",
            ));
        }
        let shards = shard::count();
        // One buffer for each shard, and the one that is being written.
        let shard_bytes = queue_bytes_max / (shards + 1);
        let shared = Arc::new(Shared {
            shards: (0..shards)
                .map(|_| Shard { lines: Mutex::new(Vec::with_capacity(shard_bytes)) })
                .collect(),
            shard_bytes,
            urgent: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            write_errors: AtomicU64::new(0),
            control: Mutex::new(Control::default()),
            wake: Condvar::new(),
            done: Condvar::new(),
        });
        let writer = Writer::new(Arc::clone(&shared), output, kind, flush_interval, clock);
        let thread = thread::Builder::new().name("access-log".into()).spawn(move || writer.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Appends one line, its line feed included, or drops it where there is no room. Never waits for the sink.
    /// Lines of different threads may change places within a flush interval.
    pub fn append(&self, line: &[u8]) {
        self.shared.append(line);
    }

    /// Appends the line that `fill` makes in an empty buffer of this thread, so that nothing is allocated.
    pub fn append_with(&self, fill: impl FnOnce(&mut Vec<u8>)) {
        thread_local! {
            static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
            Ok(mut line) => {
                line.clear();
                fill(&mut line);
                self.append(&line);
                line.shrink_to(SCRATCH_BYTES_MAX);
            }
            // `fill` itself logs: its line gets a buffer of its own.
            Err(_) => {
                let mut line = Vec::new();
                fill(&mut line);
                self.append(&line);
            }
        });
    }

    /// How many lines were lost, since the start: the queue was full, or the sink refused them.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// How many writes have failed, since the start.
    #[must_use]
    pub fn write_errors(&self) -> u64 {
        self.shared.write_errors.load(Ordering::Relaxed)
    }

    /// How many bytes wait to be written.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.shared.queued_bytes()
    }

    /// Enters the three figures above into a registry.
    pub fn register(&self, registry: &Registry) {
        let shared = Arc::clone(&self.shared);
        registry.collect_counter(&DROPPED, move |samples| {
            samples.push(&[], shared.dropped.load(Ordering::Relaxed) as f64);
        });
        let shared = Arc::clone(&self.shared);
        registry.collect_counter(&WRITE_ERRORS, move |samples| {
            samples.push(&[], shared.write_errors.load(Ordering::Relaxed) as f64);
        });
        let shared = Arc::clone(&self.shared);
        registry.collect_gauge(&QUEUED, move |samples| samples.push(&[], shared.queued_bytes() as f64));
    }

    /// Opens the file again, once what is queued now has been written to the old one; for rotation, after the
    /// file was renamed. If that fails, the old one stays. Returns at once.
    pub fn reopen(&self) {
        lock(&self.shared.control).reopen = true;
        self.shared.wake.notify_one();
    }

    /// Waits until what was appended before has been written, or lost, and what [`Self::reopen`] asked for
    /// before is done; at most for `timeout`. Says whether it was. Blocks: not for the runtime's threads.
    #[must_use]
    pub fn flush(&self, timeout: Duration) -> bool {
        let mut control = lock(&self.shared.control);
        control.flush_wanted += 1;
        let wanted = control.flush_wanted;
        self.shared.wake.notify_one();
        let pending = |control: &mut Control| control.flush_done < wanted && !control.ended;
        let waited = self.shared.done.wait_timeout_while(control, timeout, pending);
        waited.unwrap_or_else(PoisonError::into_inner).0.flush_done >= wanted
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        let mut control = lock(&self.shared.control);
        control.stop = true;
        self.shared.wake.notify_one();
        let waited = self.shared.done.wait_timeout_while(control, CLOSE_WAIT_MAX, |control| !control.ended);
        let ended = waited.unwrap_or_else(PoisonError::into_inner).0.ended;
        if ended && let Some(thread) = self.thread.take() {
            // It has nothing left to do but return.
            let _ = thread.join();
        }
    }
}

struct Shared {
    shards: Box<[Shard]>,
    /// The most bytes of one shard.
    shard_bytes: usize,
    /// Whether the writer has been told not to wait for the interval's end.
    urgent: AtomicBool,
    dropped: AtomicU64,
    write_errors: AtomicU64,
    control: Mutex<Control>,
    /// For the writer: `urgent` or `control` has changed.
    wake: Condvar,
    /// For those who wait for the writer: it has flushed or ended.
    done: Condvar,
}

/// Aligned so that no two share a cache line, nor the pair of lines that processors fetch together.
#[repr(align(128))]
struct Shard {
    lines: Mutex<Vec<u8>>,
}

#[derive(Default)]
struct Control {
    reopen: bool,
    stop: bool,
    ended: bool,
    flush_wanted: u64,
    flush_done: u64,
}

impl Shared {
    fn queued_bytes(&self) -> usize {
        self.shards.iter().map(|shard| lock(&shard.lines).len()).sum()
    }

    fn append(&self, line: &[u8]) {
        let slot = shard::slot();
        let half = self.shard_bytes / 2;
        for offset in 0..self.shards.len() {
            // The other shards only get a line when the thread's own is full.
            let shard = &self.shards[(slot + offset) & (self.shards.len() - 1)];
            let mut lines = lock(&shard.lines);
            let before = lines.len();
            if line.len() > self.shard_bytes - before {
                continue;
            }
            lines.extend_from_slice(line);
            let after = lines.len();
            drop(lines);
            if before < half && after >= half {
                self.press();
            }
            return;
        }
        self.dropped.fetch_add(1, Ordering::Relaxed);
        self.press();
    }

    /// Wakes the writer before the interval's end. Only the first call since the writer last began takes a lock.
    fn press(&self) {
        if !self.urgent.swap(true, Ordering::AcqRel) {
            // Under the lock the writer is either not yet at its check of `urgent` or already waiting.
            drop(lock(&self.control));
            self.wake.notify_one();
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    // Who called what is personal data: not for everyone on the machine.
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

/// Nothing that is done under these locks leaves them half changed, so a poisoned one is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
