//! The requirements of the tasks: Debian packages, which are installed if permitted.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::Once;

use anyhow::{Result, bail};
use nix::unistd::geteuid;

use crate::process::pass;

/// A requirement of a step.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Need {
    /// Its name in messages.
    pub(crate) name: &'static str,
    /// A command that succeeds only if it is installed.
    pub(crate) probe: &'static [&'static str],
    /// The Debian packages that contain it.
    pub(crate) packages: &'static [&'static str],
}

/// The linker and the C compiler of two dependencies (the cryptography library, SQLite).
pub(crate) const C_COMPILER: Need =
    Need { name: "a C compiler", probe: &["cc", "--version"], packages: &["build-essential"] };
/// For the client programs.
pub(crate) const CURL: Need = Need { name: "curl", probe: &["curl", "--version"], packages: &["curl"] };
/// With `venv` and `ensurepip`, which Debian packs apart.
pub(crate) const PYTHON: Need = Need {
    name: "Python 3 with venv",
    probe: &["python3", "-c", "import ensurepip, venv"],
    packages: &["python3", "python3-venv"],
};
/// 1.21 is the first that fetches the toolchain which a module asks for.
pub(crate) const GO: Need = Need {
    name: "Go 1.21 or later (go.dev/dl)",
    probe: &["sh", "-c", "test \"$(go env GOTOOLCHAIN)\""],
    packages: &["golang-go"],
};
/// 18 or later.
pub(crate) const NODE: Need = Need {
    name: "Node with npm",
    probe: &["sh", "-c", "node --version && npm --version"],
    packages: &["nodejs", "npm"],
};
/// 17 or later.
pub(crate) const JAVA: Need = Need {
    name: "a Java compiler and Maven",
    probe: &["sh", "-c", "javac -version && mvn --version"],
    packages: &["default-jdk-headless", "maven"],
};
/// An origin that folds the names of fields, for the attacks on the program. Debian puts it where only root looks.
pub(crate) const LIGHTTPD: Need = Need {
    name: "lighttpd",
    probe: &["sh", "-c", "PATH=$PATH:/usr/sbin lighttpd -v"],
    packages: &["lighttpd"],
};

/// The package lists are refreshed once per run.
static LISTS: Once = Once::new();

/// Installs everything in `needs` that is missing.
///
/// # Errors
///
/// If something can't be installed: what is missing and how to get it.
pub(crate) fn provide(needs: &[Need]) -> Result<()> {
    let missing: BTreeSet<Need> = needs.iter().copied().filter(|need| !is_there(need)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: BTreeSet<&str> = missing.iter().flat_map(|need| need.packages).copied().collect();
    let packages: Vec<&str> = packages.into_iter().collect();
    let names: Vec<&str> = missing.iter().map(|need| need.name).collect();
    let debian = is_there(&Need { name: "apt-get", probe: &["apt-get", "--version"], packages: &[] });
    if !debian || !geteuid().is_root() {
        bail!("missing: {}; on Debian: apt-get install {}", names.join(", "), packages.join(" "));
    }
    println!("installing {}", packages.join(" "));
    LISTS.call_once(|| {
        // Old lists may be good enough, so only the installation must succeed.
        let _ = pass(&mut apt(&["update", "--quiet"]));
    });
    let mut install = vec!["install", "--quiet", "--yes", "--no-install-recommends"];
    install.extend(&packages);
    let installed = pass(&mut apt(&install))?;
    let still: Vec<&str> = missing.iter().filter(|need| !is_there(need)).map(|need| need.name).collect();
    if !installed || !still.is_empty() {
        bail!("missing after apt-get install {}: {}", packages.join(" "), still.join(", "));
    }
    Ok(())
}

fn is_there(need: &Need) -> bool {
    let [program, arguments @ ..] = need.probe else { return false };
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn apt(arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_need_is_there_exactly_when_its_probe_succeeds() {
        let need = |probe| Need { name: "", probe, packages: &[] };
        assert!(is_there(&need(&["true"])));
        assert!(!is_there(&need(&["false"])));
        assert!(!is_there(&need(&["no-such-program-here"])));
        assert!(!is_there(&need(&[])));
    }
}
