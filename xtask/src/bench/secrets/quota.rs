//! Half a core for a process: by a control group of the kernel, or where there is none to be had, by stopping it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::super::server::pause;

const PERIOD: Duration = Duration::from_millis(10);
const SHARE: Duration = Duration::from_millis(5);

/// What holds a process to its share.
#[derive(Debug)]
pub(super) enum Quota {
    /// A control group, and which version of them.
    Group { folder: PathBuf, version: u8 },
    /// Nothing of the kernel's: it is stopped for half of each period.
    Stopping,
}

impl Quota {
    /// Half a core, in periods of 10 ms.
    pub(super) fn half_a_core() -> Self {
        let groups = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let made = mounts(&groups).find_map(|(mount, version)| Self::group(Path::new(mount), version).ok());
        made.unwrap_or(Self::Stopping)
    }

    fn group(mount: &Path, version: u8) -> Result<Self> {
        let folder = mount.join(format!("cardea-bench-{}", std::process::id()));
        if version == 2 {
            let controllers = fs::read_to_string(mount.join("cgroup.subtree_control"))?;
            if !controllers.split_whitespace().any(|name| name == "cpu") {
                fs::write(mount.join("cgroup.subtree_control"), "+cpu")?;
            }
        }
        fs::create_dir(&folder)?;
        // Dropped where what follows fails, so that nothing is left behind.
        let group = Self::Group { folder: folder.clone(), version };
        let (period, share) = (PERIOD.as_micros().to_string(), SHARE.as_micros().to_string());
        if version == 2 {
            fs::write(folder.join("cpu.max"), format!("{share} {period}"))?;
        } else {
            fs::write(folder.join("cpu.cfs_period_us"), &period)?;
            fs::write(folder.join("cpu.cfs_quota_us"), &share)?;
        }
        ensure!(folder.join("cgroup.procs").exists(), "{} takes no processes", folder.display());
        Ok(group)
    }

    /// How it is done, for the reader.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Group { version, .. } => {
                format!("a control group (version {version}) with 5 ms of processor time in each 10 ms")
            }
            Self::Stopping => "SIGSTOP after 5 ms and SIGCONT after 5 more, by the harness, because no control group \
                 with a quota can be created here; so the process may use more than one processor in its half of the time"
                .to_owned(),
        }
    }

    /// `command` within it from its first instruction on.
    pub(super) fn around(&self, command: &Command) -> Command {
        let Self::Group { folder, .. } = self else { return copy(command.get_program().as_ref(), command) };
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(folder.join("cgroup.procs"));
        shell.arg(command.get_program()).args(command.get_args());
        shell
    }

    /// Begins to stop the process where that is how it is done.
    pub(super) fn hold(&self, process: u32) -> Result<Option<Holding>> {
        match self {
            Self::Group { .. } => Ok(None),
            Self::Stopping => Holding::begin(process).map(Some),
        }
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        if let Self::Group { folder, .. } = self {
            // It is empty once its processes have ended; what is left of it then limits nobody.
            let _ = fs::remove_dir(folder);
        }
    }
}

fn copy(program: &Path, command: &Command) -> Command {
    let mut copy = Command::new(program);
    copy.args(command.get_args());
    copy
}

/// Where groups with a quota may be made, those of version 2 first.
fn mounts(text: &str) -> impl Iterator<Item = (&str, u8)> {
    let of = |wanted: u8| {
        text.lines().filter_map(move |line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [_, mount, kind, options, ..] = words[..] else { return None };
            let found = match kind {
                "cgroup2" => wanted == 2,
                "cgroup" => wanted == 1 && options.split(',').any(|option| option == "cpu"),
                _ => false,
            };
            found.then_some((mount, wanted))
        })
    };
    of(2).chain(of(1))
}

/// Stops a process for half of the time, until it is dropped.
pub(super) struct Holding {
    process: Pid,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Holding {
    fn begin(process: u32) -> Result<Self> {
        let process = Pid::from_raw(i32::try_from(process).context("a process id")?);
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            while !told.load(Relaxed) {
                for (signal, time) in [(Signal::SIGSTOP, PERIOD - SHARE), (Signal::SIGCONT, SHARE)] {
                    // It may have ended; then there is nothing to hold.
                    let _ = kill(process, signal);
                    pause(time);
                }
            }
        });
        Ok(Self { process, ends, thread: Some(thread) })
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked leaves the signal below to be sent all the same.
            let _ = thread.join();
        }
        let _ = kill(self.process, Signal::SIGCONT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_version_2_are_tried_first_and_those_without_processors_not_at_all() {
        let text = "cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
                    cgroup /sys/fs/cgroup/pids cgroup rw,relatime,pids 0 0\n\
                    cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n\
                    tmpfs /run tmpfs rw 0 0\n";
        let found: Vec<_> = mounts(text).collect();
        assert_eq!(found, [("/sys/fs/cgroup/unified", 2), ("/sys/fs/cgroup/cpu", 1)]);
    }

    #[test]
    fn a_folder_without_a_control_group_is_refused_and_left_empty() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Quota::group(folder.path(), 2).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_stopped_process_continues_after_release() {
        let mut child =
            Command::new("sh").args(["-c", "read line"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let holding = Quota::Stopping.hold(child.id()).unwrap().unwrap();
        drop(child.stdin.take());
        drop(holding);
        // It would wait for ever for a process that is stopped.
        child.wait().unwrap();
    }
}
