//! What processes have used, by the kernel's own accounting.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};

/// Of `utime` and `stime` in `/proc`: the interface to programs counts hundredths of a second (`USER_HZ`). The
/// kernel scales both to the precise run time, so their sum is as precise as this unit.
pub(super) const TICK_US: f64 = 10_000.0;

/// The fields of `/proc/PID/stat` that we use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Stat {
    parent: u32,
    ticks: u64,
}

/// `root` and all processes below it: the workers of a master, for one.
///
/// # Errors
///
/// There is no `/proc`.
pub(super) fn tree(root: u32) -> Result<Vec<u32>> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").context("/proc")? {
        let Some(id) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // It may have ended since it was listed.
        if let Ok(stat) = stat(id) {
            children.entry(stat.parent).or_default().push(id);
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&process) = found.get(next) {
        found.extend(children.get(&process).into_iter().flatten());
        next += 1;
    }
    Ok(found)
}

/// Microseconds of processor time that these processes have used, with all their threads, those that have ended
/// too.
///
/// # Errors
///
/// One of them has ended.
pub(super) fn cpu_us(processes: &[u32]) -> Result<f64> {
    let ticks = processes.iter().map(|&id| Ok(stat(id)?.ticks)).sum::<Result<u64>>()?;
    Ok(to_us(ticks))
}

/// The same of each that still runs.
pub(super) fn cpu_us_of_each(processes: &[u32]) -> BTreeMap<u32, f64> {
    processes.iter().filter_map(|&id| Some((id, to_us(stat(id).ok()?.ticks)))).collect()
}

/// What is resident of these processes, in KiB. What they share counts for each of them, so this is for differences.
///
/// # Errors
///
/// One of them has ended.
pub(super) fn resident_kib(processes: &[u32]) -> Result<u64> {
    processes
        .iter()
        .map(|id| {
            let text = fs::read_to_string(format!("/proc/{id}/status"))?;
            let field = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
            let number = field.split_whitespace().next().context("no VmRSS")?;
            number.parse::<u64>().context("VmRSS")
        })
        .sum()
}

/// Microseconds during which these processors were busy with anything, what a hypervisor took from them included.
///
/// # Errors
///
/// `/proc/stat` can't be read.
pub(super) fn busy_us(processors: &[usize]) -> Result<f64> {
    Ok(to_us(busy_ticks(&fs::read_to_string("/proc/stat")?, processors)))
}

#[expect(clippy::cast_precision_loss, reason = "exact below 2^53 ticks")]
fn to_us(ticks: u64) -> f64 {
    ticks as f64 * TICK_US
}

fn busy_ticks(text: &str, processors: &[usize]) -> u64 {
    let of_one = |line: &str| -> Option<u64> {
        let (name, rest) = line.split_once(' ')?;
        let number: usize = name.strip_prefix("cpu")?.parse().ok()?;
        if !processors.contains(&number) {
            return None;
        }
        // user nice system idle iowait irq softirq steal; guest time is part of user time.
        let fields = rest.split_whitespace().take(8).enumerate();
        Some(
            fields
                .filter(|(index, _)| !matches!(index, 3 | 4))
                .filter_map(|(_, n)| n.parse::<u64>().ok())
                .sum(),
        )
    };
    text.lines().filter_map(of_one).sum()
}

fn stat(id: u32) -> Result<Stat> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).with_context(|| format!("process {id}"))?;
    parse_stat(&text).with_context(|| format!("/proc/{id}/stat"))
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name stands in parentheses and may hold any of them, and spaces.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat { parent: u32::try_from(number(1)?).ok()?, ticks: number(11)? + number(12)? })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn fields_are_found_behind_a_name_with_spaces_and_parentheses() {
        let text = "42 (a) b (c)) S 7 42 42 0 -1 4194560 1 2 3 4 150 25 9 9 20 0 1 0 1 1 1 1";
        assert_eq!(parse_stat(text), Some(Stat { parent: 7, ticks: 175 }));
        assert_eq!(parse_stat("42 (a) S 7"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn busy_is_all_but_idle_and_waiting_on_the_processors_asked_for() {
        let text = "cpu  1 1 1 1 1 1 1 1 1 1\ncpu0 10 20 30 1000 1000 1 2 3 500 500\ncpu1 1 0 0 0 0 0 0 0\n\
                    cpu10 100 0 0 0 0 0 0 0\nintr 5\n";
        assert_eq!(busy_ticks(text, &[0]), 66);
        assert_eq!(busy_ticks(text, &[0, 1]), 67);
        assert_eq!(busy_ticks(text, &[10]), 100);
    }

    #[test]
    fn a_tree_has_the_children_and_their_children() {
        let mut shell = Command::new("sh")
            .args(["-c", "sh -c 'read x' & read y; wait"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        // The shell's child exists once the shell waits for its line: ask until it does.
        let found = loop {
            let found = tree(shell.id()).unwrap();
            if found.len() > 1 {
                break found;
            }
            assert!(shell.try_wait().unwrap().is_none(), "the shell ended early");
        };
        assert_eq!(found[0], shell.id());
        assert!(tree(std::process::id()).unwrap().contains(&shell.id()));
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }

    #[test]
    fn this_process_uses_memory_and_time() {
        let me = [std::process::id()];
        assert!(resident_kib(&me).unwrap() > 100);
        let start = cpu_us(&me).unwrap();
        let mut sum = 0_u64;
        while cpu_us(&me).unwrap() <= start {
            sum = (0..100_000).fold(sum, |sum, number| std::hint::black_box(sum ^ number));
        }
        // A process id that is never given out.
        assert!(cpu_us(&[u32::MAX]).is_err());
        assert_eq!(cpu_us_of_each(&[me[0], u32::MAX]).into_keys().collect::<Vec<_>>(), me);
        assert!(resident_kib(&[u32::MAX]).is_err());
    }
}
