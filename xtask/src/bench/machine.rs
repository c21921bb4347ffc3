//! The machine: what it is, which processors a bench uses, and who runs on which.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;

/// Two sides of ten thousand connections in one process, and room beside.
const DESCRIPTORS_WANTED: u64 = 65_536;

/// Who runs on which processors.
#[derive(Clone, Debug)]
pub(super) struct Placement {
    /// The end of the names of its cases.
    pub(super) name: &'static str,
    /// Those of the process under test, which has as many workers.
    pub(super) gateway: Vec<usize>,
    /// Those of the load and of the origin, which have as many threads.
    pub(super) load: Vec<usize>,
}

impl Placement {
    /// Everything on the same two processors; and the gateway alone on one of them.
    ///
    /// # Errors
    ///
    /// There is only one processor: the load's share of it could not be told from the gateway's.
    pub(super) fn all() -> Result<[Self; 2]> {
        let allowed = allowed_processors()?;
        ensure!(allowed.len() >= 2, "two processors are needed, and this process may use {}", allowed.len());
        let (first, second) = (allowed[0], allowed[1]);
        Ok([
            Self { name: "2cpu", gateway: vec![first, second], load: vec![first, second] },
            Self { name: "pinned", gateway: vec![first], load: vec![second] },
        ])
    }

    /// All that are used, each once.
    pub(super) fn processors(&self) -> Vec<usize> {
        let mut all = [self.gateway.as_slice(), &self.load].concat();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Who runs where, `load` being what there is beside the gateway.
    pub(super) fn describe(&self, load: &str) -> String {
        let (gateway, places) = (list(&self.gateway), list(&self.load));
        let workers = plural(self.gateway.len(), "worker");
        format!("`{}`: the gateway, with {workers}, on processor {gateway}; {load}, on {places}", self.name)
    }

    /// How many threads the load has.
    pub(super) fn load_threads(&self) -> String {
        plural(self.load.len(), "thread")
    }
}

fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn allowed_processors() -> Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0)).context("asking for the processors of this process")?;
    Ok((0..CpuSet::count()).filter(|&processor| set.is_set(processor).unwrap_or(false)).collect())
}

fn list(processors: &[usize]) -> String {
    processors.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// `program`, to be run on these processors. It keeps the process id: `taskset` becomes it.
pub(super) fn on(processors: &[usize], program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("taskset");
    command.arg("--cpu-list").arg(list(processors)).arg(program);
    command
}

/// Raises the limit of open descriptors, for this process and those that it starts, as far as it may.
pub(super) fn raise_descriptor_limit() -> Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let wanted = DESCRIPTORS_WANTED.max(soft);
    if setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted.max(hard)).is_err() {
        setrlimit(Resource::RLIMIT_NOFILE, hard.min(wanted), hard)?;
    }
    Ok(getrlimit(Resource::RLIMIT_NOFILE)?.0)
}

/// The kind of processor, how many there are, and the version of the kernel.
pub(super) fn describe() -> Result<String> {
    let information = fs::read_to_string("/proc/cpuinfo")?;
    let model = information
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("a processor without a name", |(_, model)| model.trim());
    let virtual_machine = information
        .lines()
        .any(|line| line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor"));
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    // Without what a distribution or a host adds to it.
    let kernel = release.trim().split(['-', '+']).next().unwrap_or_default();
    Ok(format!(
        "{model}, {} processors{}, Linux {kernel}",
        allowed_processors()?.len(),
        if virtual_machine { " of a virtual machine" } else { "" }
    ))
}

/// What paces the connections: it is the kernel's part of each request, the same for all.
pub(super) fn congestion_control() -> Result<String> {
    let name = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")?;
    Ok(name.trim().to_owned())
}

/// The load of the last minute: how many others want the processors.
pub(super) fn load_average() -> Result<f64> {
    let text = fs::read_to_string("/proc/loadavg")?;
    text.split_whitespace().next().and_then(|first| first.parse().ok()).context("/proc/loadavg")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_on_a_processor_keeps_the_id_that_was_spawned() {
        let processor = allowed_processors().unwrap()[0];
        let mut command = on(&[processor], "sh");
        let child = command.args(["-c", "echo $$"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let id = child.id();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), id.to_string());
    }

    #[test]
    fn a_placement_describes_its_processors() {
        let placement = Placement { name: "pinned", gateway: vec![0], load: vec![2, 3] };
        let expected = "`pinned`: the gateway, with 1 worker, on processor 0; wrk and the origin, with 2 \
                        threads each, on 2,3";
        assert_eq!(placement.describe("wrk and the origin, with 2 threads each"), expected);
    }
}
