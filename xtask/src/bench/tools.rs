//! What a bench needs: the programs, built or installed, and the files that they read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::peers::Tool;
use super::server::fresh_folder;
use super::subject::Subject;
use super::{Extent, Plan};
use crate::needs::{self, Need};
use crate::process::{build_cardea, cargo, catch, pass, target_directory};

/// For a program that prints its version, makes a certificate, or reads a configuration.
const QUICK_LIMIT: Duration = Duration::from_secs(30);

/// Asked for its version, it ends with status 1.
const LOAD: Need = Need { name: "wrk", probe: &["sh", "-c", "command -v wrk"], packages: &["wrk"] };
const OPENSSL: Need = Need { name: "openssl", probe: &["openssl", "version"], packages: &["openssl"] };
const TASKSET: Need = Need { name: "taskset", probe: &["taskset", "--version"], packages: &["util-linux"] };
const NGINX: Need = Need {
    name: "nginx",
    // Programs of administrators are not on everyone's path.
    probe: &["sh", "-c", "PATH=\"$PATH:/usr/sbin\" nginx -v"],
    packages: &["nginx-light"],
};
const HAPROXY: Need = Need {
    name: "haproxy",
    probe: &["sh", "-c", "PATH=\"$PATH:/usr/sbin\" haproxy -v"],
    packages: &["haproxy"],
};

/// Where everything is.
#[derive(Debug)]
pub(super) struct Tools {
    pub(super) cardea: PathBuf,
    /// Another build of Cardea, to compare with.
    pub(super) baseline: Option<PathBuf>,
    pub(super) relay: PathBuf,
    pub(super) idle: PathBuf,
    /// The origin with a fixed capacity.
    pub(super) slow_origin: PathBuf,
    /// The programs of peers that are kept below `target`.
    pub(super) peers: BTreeMap<Subject, PathBuf>,
    /// `bench/` in the repository.
    pub(super) sources: PathBuf,
    /// Where the runs keep their files.
    pub(super) work: PathBuf,
    /// Why a subject can't be measured.
    pub(super) missing: BTreeMap<Subject, String>,
    root: PathBuf,
    target: PathBuf,
    /// Whether programs that take minutes to get may be installed.
    install: bool,
}

/// Which program is measured as Cardea.
#[derive(Debug)]
pub(super) enum Program {
    /// What is shipped: the profile `dist`.
    Shipped,
    /// The quick build that tests use: for trying the harness itself.
    Quick,
    /// One that is there.
    File(PathBuf),
}

impl Tools {
    /// Builds and installs, and makes the certificate.
    ///
    /// # Errors
    ///
    /// Something is missing without which nothing can be measured. A peer that is missing is in `missing`.
    pub(super) fn provide(
        root: &Path,
        program: &Program,
        baseline: Option<&Path>,
        plan: &Plan,
    ) -> Result<Self> {
        needs::provide(&[LOAD, OPENSSL, TASKSET, needs::C_COMPILER])?;
        // The origin is an nginx too, so that without it there is nothing to measure.
        install_server(NGINX)?;
        let mut missing = BTreeMap::new();
        if let Err(error) = install_server(HAPROXY) {
            missing.insert(Subject::Haproxy, format!("{error:#}"));
        }
        let target = target_directory(root)?;
        let cardea = match program {
            Program::File(file) => absolute(file)?,
            Program::Quick => build_cardea(root)?,
            Program::Shipped => {
                println!("building Cardea as it is shipped (profile dist)");
                let arguments = ["build", "--quiet", "--profile=dist", "--package=cardea"];
                ensure!(pass(cargo(root).args(arguments))?, "the program does not build");
                target.join("dist/cardea")
            }
        };
        let built = target.join("bench");
        let [relay, idle, slow_origin] =
            own_programs(root, &built, ["bench-relay", "bench-idle", "bench-origin"])?;
        let mut tools = Self {
            cardea,
            baseline: baseline.map(absolute).transpose()?,
            relay,
            idle,
            slow_origin,
            peers: BTreeMap::new(),
            sources: root.join("bench"),
            work: run_folder(&built.join("run"))?,
            missing,
            root: root.to_owned(),
            target: built,
            install: plan.extent == Extent::Full,
        };
        tools.provide_peers(&plan.subjects);
        tools.make_certificate()?;
        Ok(tools)
    }

    /// A program of our own below `bench/`, built as the relay is.
    ///
    /// # Errors
    ///
    /// It does not build.
    pub(super) fn own_program(&self, package: &str) -> Result<PathBuf> {
        let [program] = own_programs(&self.root, &self.target, [package])?;
        Ok(program)
    }

    /// A program of one of the registries.
    ///
    /// # Errors
    ///
    /// It is not there and can't be installed, with how to get it.
    pub(super) fn tool(&self, tool: Tool) -> Result<PathBuf> {
        tool.provide(&self.root, &self.kept(), self.install)
    }

    /// Where programs of registries stay from run to run.
    pub(super) fn kept(&self) -> PathBuf {
        self.target.join("tools")
    }

    /// The peers that are to be measured; what can't be had is missing, and says why.
    fn provide_peers(&mut self, subjects: &[Subject]) {
        for &subject in subjects {
            let provided = match subject {
                Subject::Envoy => self.tool(Tool::Envoy),
                Subject::Caddy => self.tool(Tool::Caddy),
                Subject::Pingora => self.own_program("bench-pingora"),
                _ => continue,
            };
            match provided {
                Ok(program) => _ = self.peers.insert(subject, program),
                Err(error) => _ = self.missing.insert(subject, format!("{error:#}")),
            }
        }
    }

    /// The folder for the files of one server, emptied, with the certificate in it.
    pub(super) fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = fresh_folder(self.work.join(name))?;
        for file in [CERTIFICATE, KEY, CERTIFICATE_AND_KEY] {
            fs::copy(self.work.join(file), folder.join(file))?;
        }
        Ok(folder)
    }

    /// Its certificate, which is its own authority.
    pub(super) fn certificate(&self) -> PathBuf {
        self.work.join(CERTIFICATE)
    }

    fn make_certificate(&self) -> Result<()> {
        let (certificate, key) = (self.work.join(CERTIFICATE), self.work.join(KEY));
        let mut command = Command::new("openssl");
        command
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"])
            .args(["-days", "30", "-config"])
            .arg(self.sources.join("peers/certificate.cnf"))
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&certificate);
        let caught = catch(&mut command, QUICK_LIMIT)?;
        ensure!(caught.success, "openssl req: {}", caught.last_line());
        // HAProxy wants both in one file.
        let both = fs::read_to_string(certificate)? + &fs::read_to_string(key)?;
        fs::write(self.work.join(CERTIFICATE_AND_KEY), both)?;
        Ok(())
    }
}

pub(super) const CERTIFICATE: &str = "certificate.pem";
pub(super) const KEY: &str = "certificate.key";
const CERTIFICATE_AND_KEY: &str = "certificate-and-key.pem";

/// Builds packages of the workspace in `bench/`, and says where their programs are.
fn own_programs<const N: usize>(root: &Path, target: &Path, packages: [&str; N]) -> Result<[PathBuf; N]> {
    let mut build = cargo(root);
    build.args(["build", "--quiet", "--release", "--manifest-path"]);
    build.arg(root.join("bench/Cargo.toml")).arg("--target-dir").arg(target);
    for package in packages {
        build.args(["--package", package]);
    }
    ensure!(pass(&mut build)?, "{} in bench/ does not build", packages.join(" or "));
    Ok(packages.map(|package| target.join("release").join(package)))
}

/// A folder for the files of this run. Those of runs that have ended go; those of one that goes on stay.
fn run_folder(runs: &Path) -> Result<PathBuf> {
    fs::create_dir_all(runs)?;
    for entry in fs::read_dir(runs)? {
        let entry = entry?;
        let name = entry.file_name();
        let process = name.to_str().filter(|name| name.parse::<u32>().is_ok());
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    fresh_folder(runs.join(std::process::id().to_string()))
}

/// Where a program of administrators is: Debian has it in a folder that may not be on the path.
pub(super) fn administrators(name: &str) -> PathBuf {
    let place = Path::new("/usr/sbin").join(name);
    if place.exists() { place } else { PathBuf::from(name) }
}

/// The first line that a program prints about its version.
pub(super) fn version(program: &Path, argument: &str) -> String {
    catch(Command::new(program).arg(argument), QUICK_LIMIT)
        .ok()
        .filter(|caught| caught.success)
        .and_then(|caught| caught.output.lines().next().map(str::to_owned))
        .unwrap_or_else(|| "of unknown version".to_owned())
}

/// Checks a configuration by the program that reads it.
pub(super) fn check_configuration(cardea: &Path, file: &Path) -> Result<()> {
    let caught = catch(Command::new(cardea).arg("check").arg("--config").arg(file), QUICK_LIMIT)?;
    ensure!(caught.success, "cardea check: {}", caught.output.trim());
    Ok(())
}

/// Installs a server where it is missing, and stops what its package starts: it is for us to start it.
fn install_server(need: Need) -> Result<()> {
    let probe = || {
        let [program, arguments @ ..] = need.probe else { return false };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if probe() {
        return Ok(());
    }
    needs::provide(&[need])?;
    let systemd = Path::new("/run/systemd/system").exists();
    let stop: [&[&str]; 2] = [&["systemctl", "disable", "--now", need.name], &["service", need.name, "stop"]];
    let [program, arguments @ ..] = stop[usize::from(!systemd)] else { return Ok(()) };
    // Where neither way leads anywhere, nothing was started either.
    let _ = catch(Command::new(program).args(arguments), QUICK_LIMIT);
    Ok(())
}

fn absolute(file: &Path) -> Result<PathBuf> {
    file.canonicalize().with_context(|| format!("{}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_runs_go_once_these_have_ended() {
        let runs = tempfile::tempdir().unwrap();
        // A process id that is never given out, one that is always there, and what is no run.
        for name in ["4294967295", "1", "notes"] {
            fs::create_dir(runs.path().join(name)).unwrap();
        }
        let own = run_folder(runs.path()).unwrap();
        let is_there = |name: &str| runs.path().join(name).exists();
        assert_eq!(["4294967295", "1", "notes"].map(is_there), [false, true, true]);
        assert!(own.exists());
    }
}
