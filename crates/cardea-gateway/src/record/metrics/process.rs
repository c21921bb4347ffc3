//! What the kernel says of this process, under the names that Prometheus's clients use.

use std::fs;

use super::{CounterDef, Definition, GaugeDef, Registry};

static CPU: CounterDef<0> =
    CounterDef::new("process_cpu_seconds_total", "User and system CPU time, in seconds.", []);
static RESIDENT: GaugeDef<0> =
    GaugeDef::new("process_resident_memory_bytes", "Resident memory, in bytes.", []);
static THREADS: GaugeDef<0> = GaugeDef::new("process_threads", "Threads of the process.", []);
static OPEN_FDS: GaugeDef<0> = GaugeDef::new("process_open_fds", "Open file descriptors.", []);
static MAX_FDS: GaugeDef<0> = GaugeDef::new("process_max_fds", "The limit of open file descriptors.", []);

static STARTED: GaugeDef<0> =
    GaugeDef::new("process_start_time_seconds", "When the process started, in Unix time.", []);

/// The metrics of the process.
pub static DEFINITIONS: &[Definition] = &[
    STARTED.definition(),
    CPU.definition(),
    RESIDENT.definition(),
    THREADS.definition(),
    OPEN_FDS.definition(),
    MAX_FDS.definition(),
];

/// Enters them into a registry; each is read from `/proc/self` when it is asked for, and left out where there
/// is no such thing.
pub fn register(registry: &Registry) {
    registry.collect_counter(&CPU, |samples| {
        if let Some(seconds) = read("/proc/self/stat").as_deref().and_then(cpu_seconds) {
            samples.push(&[], seconds);
        }
    });
    registry.collect_gauge(&STARTED, |samples| {
        let booted = read("/proc/stat").as_deref().and_then(|text| number_after(text, "btime"));
        let after = read("/proc/self/stat").as_deref().and_then(started_after_boot);
        if let (Some(booted), Some(after)) = (booted, after) {
            samples.push(&[], booted + after);
        }
    });
    registry.collect_gauge(&RESIDENT, |samples| {
        let kilobytes = read("/proc/self/status").as_deref().and_then(|text| number_after(text, "VmRSS:"));
        if let Some(kilobytes) = kilobytes {
            samples.push(&[], kilobytes * 1024.0);
        }
    });
    registry.collect_gauge(&THREADS, |samples| {
        let threads = read("/proc/self/status").as_deref().and_then(|text| number_after(text, "Threads:"));
        if let Some(threads) = threads {
            samples.push(&[], threads);
        }
    });
    registry.collect_gauge(&OPEN_FDS, |samples| {
        if let Ok(entries) = fs::read_dir("/proc/self/fd") {
            // Without the one that reads the folder.
            samples.push(&[], (entries.count().saturating_sub(1)) as f64);
        }
    });
    registry.collect_gauge(&MAX_FDS, |samples| {
        let limit =
            read("/proc/self/limits").as_deref().and_then(|text| number_after(text, "Max open files"));
        if let Some(limit) = limit {
            samples.push(&[], limit);
        }
    });
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// `USER_HZ` is 100 on all that Linux runs on today.
const TICKS_PER_SECOND: f64 = 100.0;

/// Field 22 of `/proc/pid/stat` (proc(5)), in seconds.
fn started_after_boot(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: f64 = fields.split_ascii_whitespace().nth(19)?.parse().ok()?;
    Some(ticks / TICKS_PER_SECOND)
}

/// Fields 14 and 15 of `/proc/pid/stat` (proc(5)), in ticks. The second field is a name in parentheses, which may hold anything.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

/// The number behind a line's title.
fn number_after(text: &str, title: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(title))?.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_any_name() {
        let stat = "1 (a) b (c)) S 1 1 1 0 -1 4194560 1 2 3 4 250 50 7 8 20 0 1 0 5";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(started_after_boot(stat), Some(0.05));
        assert_eq!(cpu_seconds("1 (a"), None);
        assert_eq!(cpu_seconds("1 (a) S 1"), None);
    }

    #[test]
    fn numbers_are_found_behind_titles() {
        let text = "Name:\tx\nVmRSS:\t  1234 kB\nMax open files   1024   4096 files\nMax x  unlimited\n";
        assert_eq!(number_after(text, "VmRSS:"), Some(1234.0));
        assert_eq!(number_after(text, "Max open files"), Some(1024.0));
        assert_eq!(number_after(text, "Max x"), None);
        assert_eq!(number_after(text, "None"), None);
    }

    #[test]
    fn this_process_has_them() {
        let registry = Registry::new();
        register(&registry);
        let mut text = String::new();
        registry.render(&mut text);
        for name in
            ["start_time_seconds", "cpu_seconds_total", "resident_memory_bytes", "threads", "open_fds"]
        {
            let value = number_after(&text, &format!("process_{name}"));
            assert!(value.is_some_and(|value| value >= 0.0), "{name} in {text}");
        }
    }
}
