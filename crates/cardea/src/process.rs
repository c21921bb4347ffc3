//! What the process asks of the operating system: descriptors, and to be nobody in particular.

use anyhow::{Context as _, Result, bail};
use nix::{
    sys::resource::{Resource, getrlimit, setrlimit},
    unistd::{Gid, Group, Uid, User, setgid, setgroups, setuid},
};

use crate::config::Process;

/// Raises the limit of open descriptors to what is allowed: each connection needs one or two.
pub(crate) fn raise_descriptor_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::warn!(soft, hard, %error, "the limit of open descriptors stays as it is");
    }
}

/// Becomes the configured user and group, for good.
///
/// To be called while there is one thread.
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
            "process.user and process.group can only be changed to by root; start as that user, or leave them out"
        );
    }
    if let Some(group) = group {
        setgroups(&[group]).context("giving up supplementary groups")?;
        setgid(group).context("changing the group")?;
    }
    if let Some(user) = user {
        setuid(user.uid).context("changing the user")?;
        if setuid(Uid::from_raw(0)).is_ok() {
            bail!("privileges were not dropped for good");
        }
    }
    Ok(())
}
