//! Tests of the access log.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::sync::mpsc;

use cardea_clock::{ManualClock, Mono, Wall};

use super::*;

const SOON: Duration = Duration::from_secs(30);

fn clock() -> Clock {
    ManualClock::new(Wall::from_unix_seconds(1_000)).clock()
}

/// Writes only when asked to, unless a test says otherwise.
fn config(path: &Path) -> AccessLogConfig {
    AccessLogConfig {
        sink: Sink::File(path.to_owned()),
        queue_bytes_max: AccessLogConfig::default().queue_bytes_max,
        flush_interval: Duration::from_secs(3_600),
    }
}

fn with_output(output: impl Write + Send + 'static) -> AccessLog {
    with_kind(output, Kind::Stream)
}

fn with_kind(output: impl Write + Send + 'static, kind: Kind) -> AccessLog {
    let (queue, interval) = (AccessLogConfig::QUEUE_BYTES_MIN, Duration::from_secs(3_600));
    AccessLog::start_with(Box::new(output), kind, queue, interval, clock()).unwrap()
}

/// What was written, and how many bytes more are taken.
type Room = Mutex<(Vec<u8>, usize)>;

/// A sink that takes so many bytes, then fails, until more are allowed.
#[derive(Clone, Default)]
struct Limited(Arc<(Room, Condvar)>);

impl Limited {
    fn endless() -> Self {
        let sink = Self::default();
        sink.allow(usize::MAX);
        sink
    }

    fn allow(&self, bytes: usize) {
        self.0.0.lock().unwrap().1 = bytes;
    }

    fn written(&self) -> String {
        String::from_utf8(self.0.0.lock().unwrap().0.clone()).unwrap()
    }

    /// Waits until something has been written.
    fn arrived(&self) -> bool {
        let inner = self.0.0.lock().unwrap();
        !self.0.1.wait_timeout_while(inner, SOON, |inner| inner.0.is_empty()).unwrap().1.timed_out()
    }
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut inner = self.0.0.lock().unwrap();
        let count = bytes.len().min(inner.1);
        if count == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        inner.1 -= count;
        inner.0.extend_from_slice(&bytes[..count]);
        self.0.1.notify_all();
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A sink that waits for leave to write, as a pipe that nobody reads does.
struct Stuck {
    entered: mpsc::Sender<()>,
    leave: mpsc::Receiver<()>,
}

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.entered.send(());
        // Whoever drops the sender lets everything through.
        let _ = self.leave.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn lines_of_many_threads_arrive_whole_and_in_each_threads_order() {
    const THREADS: usize = 4;
    const EACH: usize = 2_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let log = Arc::new(AccessLog::start(config(&path), clock()).unwrap());
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                for count in 0..EACH {
                    log.append_with(|line| writeln!(line, "{thread} {count} {}", "x".repeat(20)).unwrap());
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(log.flush(SOON));
    assert_eq!(log.dropped(), 0);
    assert_eq!(log.queued_bytes(), 0);

    let mut next: HashMap<usize, usize> = HashMap::new();
    let text = fs::read_to_string(&path).unwrap();
    for line in text.lines() {
        let parts: Vec<&str> = line.split(' ').collect();
        let (thread, count): (usize, usize) = (parts[0].parse().unwrap(), parts[1].parse().unwrap());
        assert_eq!(parts[2], "x".repeat(20));
        let expected = next.entry(thread).or_default();
        assert_eq!(count, *expected);
        *expected += 1;
    }
    assert_eq!(text.lines().count(), THREADS * EACH);
}

#[test]
fn dropping_the_log_writes_what_is_queued() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    fs::write(&path, "before\n").unwrap();
    let log = AccessLog::start(config(&path), clock()).unwrap();
    log.append(b"one\n");
    log.append(b"two\n");
    drop(log);
    assert_eq!(fs::read_to_string(&path).unwrap(), "before\none\ntwo\n");
}

#[test]
fn the_interval_writes_without_being_asked() {
    let sink = Limited::endless();
    let (queue, interval) = (AccessLogConfig::QUEUE_BYTES_MIN, Duration::from_millis(1));
    let log = AccessLog::start_with(Box::new(sink.clone()), Kind::Stream, queue, interval, clock()).unwrap();
    log.append(b"one\n");
    assert!(sink.arrived());
    assert_eq!(sink.written(), "one\n");
}

#[test]
fn a_half_full_buffer_is_written_before_the_interval_ends() {
    let sink = Limited::endless();
    let log = with_output(sink.clone());
    let half = log.shared.shard_bytes / 2;
    log.append(&[vec![b'x'; half - 1], b"\n".to_vec()].concat());
    assert!(sink.arrived());
}

#[test]
fn rotation_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let log = AccessLog::start(config(&path), clock()).unwrap();
    log.append(b"one\n");
    fs::rename(&path, &old).unwrap();
    log.reopen();
    assert!(log.flush(SOON));
    log.append(b"two\n");
    assert!(log.flush(SOON));
    assert_eq!(fs::read_to_string(&old).unwrap(), "one\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
}

#[test]
fn a_failed_reopening_keeps_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let (inner, moved) = (folder.path().join("logs"), folder.path().join("moved"));
    fs::create_dir(&inner).unwrap();
    let log = AccessLog::start(config(&inner.join("access.log")), clock()).unwrap();
    fs::rename(&inner, &moved).unwrap();
    log.reopen();
    log.append(b"one\n");
    assert!(log.flush(SOON));
    assert_eq!(log.write_errors(), 1);
    log.append(b"two\n");
    assert!(log.flush(SOON));
    assert_eq!(fs::read_to_string(moved.join("access.log")).unwrap(), "one\ntwo\n");
}

#[test]
fn a_full_disk_costs_lines_and_the_next_begins_afresh() {
    let sink = Limited::default();
    let log = with_output(sink.clone());
    sink.allow(6);
    log.append(b"one\ntwo\nthree\n");
    assert!(log.flush(SOON));
    assert_eq!((log.dropped(), log.write_errors()), (2, 1));
    log.append(b"four\n");
    assert!(log.flush(SOON));
    assert_eq!((log.dropped(), log.write_errors()), (3, 2));
    sink.allow(usize::MAX);
    log.append(b"five\n");
    assert!(log.flush(SOON));
    assert_eq!((log.dropped(), log.write_errors()), (3, 2));
    log.append(b"six\n");
    assert!(log.flush(SOON));
    assert_eq!(sink.written(), "one\ntw\nfive\nsix\n");
}

#[test]
fn a_blocked_sink_drops_lines_and_blocks_no_request() {
    let (entered, has_entered) = mpsc::channel();
    let (let_go, leave) = mpsc::channel();
    let log = with_output(Stuck { entered, leave });
    log.append(b"first\n");
    assert!(!log.flush(Duration::from_millis(1)));
    has_entered.recv().unwrap();

    let line = [b'x'; 1023].iter().chain(b"\n").copied().collect::<Vec<u8>>();
    let room = log.shared.shards.len() * (log.shared.shard_bytes / line.len());
    for _ in 0..room + 10 {
        log.append(&line);
    }
    assert_eq!(log.dropped(), 10);
    assert!(log.queued_bytes() <= AccessLogConfig::QUEUE_BYTES_MIN);

    drop(let_go);
    assert!(log.flush(SOON));
    log.append(b"last\n");
    assert!(log.flush(SOON));
    assert_eq!(log.dropped(), 10);
}

#[test]
fn a_line_longer_than_the_queue_is_dropped() {
    let sink = Limited::endless();
    let log = with_output(sink.clone());
    log.append(&[b'x'; AccessLogConfig::QUEUE_BYTES_MIN]);
    log.append(b"short\n");
    assert!(log.flush(SOON));
    assert_eq!((log.dropped(), sink.written().as_str()), (1, "short\n"));
}

#[test]
fn a_line_that_logs_while_it_is_made_does_not_disturb_itself() {
    let sink = Limited::endless();
    let log = with_output(sink.clone());
    log.append_with(|outer| {
        outer.extend_from_slice(b"outer");
        log.append_with(|inner| inner.extend_from_slice(b"inner\n"));
        outer.push(b'\n');
    });
    assert!(log.flush(SOON));
    assert_eq!(sink.written(), "inner\nouter\n");
}

#[test]
fn an_unusable_configuration_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing").join("access.log");
    assert_eq!(AccessLog::start(config(&path), clock()).err().unwrap().kind(), io::ErrorKind::NotFound);
    let path = folder.path().join("access.log");
    let small = AccessLogConfig { queue_bytes_max: 1024, ..config(&path) };
    assert_eq!(AccessLog::start(small, clock()).err().unwrap().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn the_file_is_not_for_everyone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let _log = AccessLog::start(config(&path), clock()).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o007, 0);
}

#[test]
fn its_figures_are_metrics() {
    let log = with_output(Limited::default());
    let registry = Registry::new();
    log.register(&registry);
    log.append(b"lost\n");
    assert!(log.flush(SOON));
    log.append(b"queued\n");
    let mut text = String::new();
    registry.render(&mut text);
    for line in [
        "cardea_access_log_dropped_lines_total 1\n",
        "cardea_access_log_write_errors_total 1\n",
        "cardea_access_log_queued_bytes 7\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[test]
fn failures_are_reported_once_a_minute() {
    let mut last = None;
    let at = |seconds| Mono::from_nanos(seconds * 1_000_000_000);
    let reported: Vec<u64> = (0..200).filter(|second| writer::due(&mut last, at(*second))).collect();
    assert_eq!(reported, [0, 60, 120, 180]);
}

/// Takes a line at a time, and refuses those that say so.
#[derive(Clone, Default)]
struct Picky(Arc<Mutex<Vec<String>>>);

impl Write for Picky {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let line = lines.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
        if line.starts_with(b"bad") {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        self.0.lock().unwrap().push(String::from_utf8(line.to_vec()).unwrap());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_datagram_that_is_refused_costs_its_own_line_until_several_are() {
    let sink = Picky::default();
    let log = with_kind(sink.clone(), Kind::Datagrams);
    for line in ["a\n", "bad 1\n", "bad 2\n", "b\n", "bad 3\n", "bad 4\n", "bad 5\n", "c\n"] {
        log.append(line.as_bytes());
    }
    assert!(log.flush(SOON));
    assert_eq!(*sink.0.lock().unwrap(), ["a\n", "b\n"]);
    assert_eq!((log.dropped(), log.write_errors()), (6, 5));
    log.append(b"d\n");
    assert!(log.flush(SOON));
    assert_eq!(*sink.0.lock().unwrap(), ["a\n", "b\n", "d\n"]);
}
