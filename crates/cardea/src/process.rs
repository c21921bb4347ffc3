//! Process settings: descriptor limits, memory protection and privileges.

use anyhow::{Context as _, Result, bail};
use nix::{
    sys::{
        prctl::set_dumpable,
        resource::{Resource, getrlimit, setrlimit},
    },
    unistd::{Gid, Group, Uid, User, setgid, setgroups, setuid},
};

use cardea_upstream::CheckProtocol;

use crate::config::{Config, Located, Process, Service};

/// Descriptors that are needed besides connections: standard streams, the database, logs, the admin listener and its
/// socket, files that are reloaded.
const DESCRIPTORS_BESIDE: u64 = 64;
/// Descriptors of each worker: those of its runtime, and a socket of each listener.
const DESCRIPTORS_PER_WORKER: u64 = 4;

/// The descriptors that the program opens before it serves, besides those of its workers.
const DESCRIPTORS_LEAST: u64 = 24;

/// Refuses to start if the limit of open descriptors is too low even for a start with this many workers.
pub(crate) fn check_descriptor_limit(workers: usize) -> Result<()> {
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).context("reading the limit of open descriptors")?;
    let least = DESCRIPTORS_LEAST + DESCRIPTORS_PER_WORKER * workers as u64;
    if limit < least {
        bail!(
            "the limit of open descriptors is {limit}, and the program needs at least {least} to start; raise it: \
             LimitNOFILE= in the systemd unit, `ulimit -n` before the start, or --ulimit nofile= of the container"
        );
    }
    Ok(())
}

/// Raises the limit of open descriptors as far as allowed, and warns if that is less than `needed`.
pub(crate) fn raise_descriptor_limit(needed: u64) {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    let raised = soft >= hard || setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    let limit = if raised { hard } else { soft };
    if limit < needed {
        tracing::warn!(
            limit,
            needed,
            "the limit of open descriptors is lower than this configuration may need; set LimitNOFILE={needed} in the \
             systemd unit, `ulimit -n {needed}` before the start, or --ulimit nofile={needed} of the container, or \
             lower limits.connections_max and idle_max of services"
        );
    }
}

/// The number of descriptors that `config` may need with this many workers: a client's connection, one to a service for
/// each HTTP/1.1 request, the pools' idle connections, one for the checks of each endpoint, and the others.
pub(crate) fn descriptors_needed(config: &Config, workers: usize) -> u64 {
    let connections = config.general.limits.connections_max as u64;
    let idle = |service: &Located<Service>| {
        let pool = &service.config.pool;
        let of_endpoint = pool.connections_max.unwrap_or(usize::MAX).min(pool.idle_max);
        (of_endpoint as u64).saturating_mul(service.endpoints.len() as u64)
    };
    let idle = config.services.iter().map(idle).fold(0, u64::saturating_add);
    let checked =
        config.services.iter().filter(|service| service.config.check.protocol == CheckProtocol::Http);
    let checked = checked.map(|service| service.endpoints.len() as u64).fold(0, u64::saturating_add);
    let per_worker = DESCRIPTORS_PER_WORKER + config.listeners.len() as u64;
    // At most as many are idle as were in use.
    (connections * 2)
        .saturating_add(idle.min(connections))
        .saturating_add(checked)
        .saturating_add(per_worker * workers as u64)
        .saturating_add(DESCRIPTORS_BESIDE)
}

/// Prevents other processes of the same user from reading this one's memory, and the kernel from writing it to a core
/// dump (prctl(2), `PR_SET_DUMPABLE`). To be called before a secret is read.
pub(crate) fn protect_memory() -> Result<()> {
    set_dumpable(false).context("making the process non-dumpable")?;
    let (_, hard) = getrlimit(Resource::RLIMIT_CORE).context("reading the limit of core dumps")?;
    setrlimit(Resource::RLIMIT_CORE, 0, hard).context("limiting core dumps")
}

/// Restores the protection, or removes it if that is configured. A change of the user resets it.
pub(crate) fn settle_dumpable(process: &Process) -> Result<()> {
    set_dumpable(process.danger_dumpable).context("process.danger_dumpable")?;
    if process.danger_dumpable {
        let (_, hard) = getrlimit(Resource::RLIMIT_CORE).context("reading the limit of core dumps")?;
        setrlimit(Resource::RLIMIT_CORE, hard, hard).context("process.danger_dumpable")?;
        tracing::warn!(
            "process.danger_dumpable is on: private keys and secrets can be read from this process"
        );
    }
    Ok(())
}

/// Switches permanently to the configured user and group.
///
/// To be called while there is only one thread.
pub(crate) fn drop_privileges(process: &Process) -> Result<()> {
    let user = match &process.user {
        Some(name) => Some(
            User::from_name(name)
                .with_context(|| format!("looking up process.user \"{name}\""))?
                .with_context(|| format!("process.user: there is no user \"{name}\""))?,
        ),
        None => None,
    };
    let group = match &process.group {
        Some(name) => Some(
            Group::from_name(name)
                .with_context(|| format!("looking up process.group \"{name}\""))?
                .with_context(|| format!("process.group: there is no group \"{name}\""))?
                .gid,
        ),
        None => user.as_ref().map(|user| user.gid),
    };
    let same = user.as_ref().is_none_or(|user| user.uid == Uid::effective())
        && group.is_none_or(|group| group == Gid::effective());
    if same {
        return Ok(());
    }
    if !Uid::effective().is_root() {
        bail!(
            "only root can switch to process.user and process.group; start as that user, or remove the keys"
        );
    }
    if let Some(group) = group {
        setgroups(&[group]).context("dropping supplementary groups")?;
        setgid(group).context("changing the group")?;
    }
    if let Some(user) = user {
        setuid(user.uid).context("changing the user")?;
        if setuid(Uid::from_raw(0)).is_ok() {
            bail!("privileges were not dropped permanently");
        }
    }
    Ok(())
}
