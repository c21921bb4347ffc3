//! What is in use of the descriptors and the memory that the process may have, as a part of it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

/// Where control groups of version 2 are found.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Where the figures come from.
#[derive(Debug)]
pub(super) struct Usage {
    /// The control groups that bound the memory of the process, from its own one on; none where there is no version 2.
    groups: Vec<PathBuf>,
}

impl Default for Usage {
    fn default() -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self { groups: groups(Path::new(CGROUPS), &own) }
    }
}

impl Usage {
    /// How many descriptors are open, and may be. None where that is not known.
    pub(super) fn descriptors(&self) -> Option<(u64, u64)> {
        let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
        if limit == 0 || limit == RLIM_INFINITY {
            return None;
        }
        Some((open_descriptors()?, limit))
    }

    /// What is in use of the memory, by the narrowest of its limits. None without a limit.
    pub(super) fn memory(&self) -> Option<f64> {
        let groups = self.groups.iter().filter_map(|group| group_memory(group));
        groups.chain(address_space()).reduce(f64::max)
    }
}

/// How many descriptors are open. Linux tells it as the size of the folder since 6.2; before, the folder is counted.
fn open_descriptors() -> Option<u64> {
    match fs::metadata("/proc/self/fd").ok()?.len() {
        // Without the one that reads the folder.
        0 => Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as u64),
        count => Some(count),
    }
}

/// The folders of the groups, of `/proc/self/cgroup` (cgroups(7)).
fn groups(root: &Path, own: &str) -> Vec<PathBuf> {
    let Some(path) = own.lines().find_map(|line| line.strip_prefix("0::/")) else { return Vec::new() };
    // Above the root of a container's name space there is nothing to be read.
    if path.split('/').any(|part| part == "..") {
        return vec![root.to_owned()];
    }
    root.join(path).ancestors().take_while(|group| group.starts_with(root)).map(Path::to_owned).collect()
}

/// What is in use of a group's memory. The cache of files that nobody has used for a while is not counted: the kernel takes it back.
fn group_memory(group: &Path) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    // The root has no limit, and `max` is none.
    let limit =
        number("memory.max").into_iter().chain(number("memory.high")).min().filter(|limit| *limit > 0)?;
    let current = number("memory.current")?;
    let cache = read("memory.stat").as_deref().and_then(inactive_file).unwrap_or(0);
    Some(current.saturating_sub(cache) as f64 / limit as f64)
}

fn inactive_file(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("inactive_file "))?.trim().parse().ok()
}

/// What is in use of the address space, where that is limited.
fn address_space() -> Option<f64> {
    let (limit, _) = getrlimit(Resource::RLIMIT_AS).ok()?;
    if limit == 0 || limit == RLIM_INFINITY {
        return None;
    }
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().next()?.parse().ok()?;
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok()??;
    Some(pages as f64 * page as f64 / limit as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_above_the_process() {
        let root = Path::new("/sys/fs/cgroup");
        let of = |own: &str| groups(root, own);
        assert_eq!(of("0::/\n"), [root]);
        assert_eq!(of("9:name=systemd:/\n0::/a/b\n"), [root.join("a/b"), root.join("a"), root.to_owned()]);
        assert_eq!(of("0::/../other\n"), [root]);
        assert!(of("4:memory:/x\n").is_empty());
        assert!(of("").is_empty());
    }

    #[test]
    fn memory_is_that_of_the_narrowest_group() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("a/b")).unwrap();
        let write = |name: &str, text: &str| fs::write(root.join(name), text).unwrap();
        let usage = Usage { groups: groups(root, "0::/a/b") };
        let of_groups = || usage.groups.iter().filter_map(|group| group_memory(group)).reduce(f64::max);
        assert_eq!(of_groups(), None, "no group has a limit");
        write("a/b/memory.max", "max\n");
        write("a/b/memory.high", "max\n");
        write("a/b/memory.current", "900\n");
        assert_eq!(of_groups(), None);
        write("a/memory.max", "2000\n");
        write("a/memory.current", "1000\n");
        assert_eq!(of_groups(), Some(0.5));
        write("a/b/memory.high", "1000\n");
        assert_eq!(of_groups(), Some(0.9));
        write("a/b/memory.stat", "anon 100\nfile 800\ninactive_file 700\nactive_file 100\n");
        assert_eq!(of_groups(), Some(0.5));
        write("a/b/memory.high", "what is this\n");
        assert_eq!(of_groups(), Some(0.5), "the other group's");
    }

    #[test]
    fn descriptors_are_counted() {
        let usage = Usage { groups: Vec::new() };
        let count = || usage.descriptors().unwrap().0;
        let before = count();
        let files: Vec<_> = (0..200).map(|_| fs::File::open("/proc/self/stat").unwrap()).collect();
        let with = count();
        // Other tests open and close some meanwhile.
        assert!(with.abs_diff(before + files.len() as u64) < 100, "{before} {with}");
    }
}
