//! Which crates have benches, and building them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::process::{cargo, target_directory};

/// A dependency on it says that a bench can be counted.
const MEASURE: &str = "bench-measure";
/// What is measured has the settings of what is shipped, but for `panic`, which cargo decides for benches.
const PROFILE: &str = "dist";

/// A bench, not built.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Target {
    pub(super) package: String,
    bench: String,
    /// Of the package: where a bench expects to be run.
    pub(super) folder: PathBuf,
    /// Whether its instructions and allocations can be counted.
    pub(super) counts: bool,
    workspace: Workspace,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Workspace {
    Cardea,
    /// `bench/`: what needs libraries that Cardea itself doesn't.
    Bench,
}

impl Target {
    /// What is measured beside a crate's own benches, and needs nothing built.
    pub(super) fn beside(package: &str, name: &str, folder: PathBuf) -> Self {
        let (package, bench) = (package.to_owned(), name.to_owned());
        Self { package, bench, folder, counts: false, workspace: Workspace::Bench }
    }

    pub(super) fn name(&self) -> String {
        format!("{} {}", self.package, self.bench)
    }

    /// What runs it alone.
    pub(super) fn command(&self) -> String {
        let workspace = match self.workspace {
            Workspace::Cardea => "",
            Workspace::Bench => " --manifest-path bench/Cargo.toml",
        };
        format!("cargo bench{workspace} --package {} --bench {}", self.package, self.bench)
    }
}

/// All benches of both workspaces.
pub(super) fn discover(root: &Path) -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    for workspace in [Workspace::Cardea, Workspace::Bench] {
        let mut command = at(root, workspace, "metadata");
        command.args(["--format-version=1", "--no-deps"]).stderr(Stdio::null());
        let metadata = read(&mut command)?;
        targets.extend(of(&metadata, workspace));
    }
    Ok(targets)
}

/// Builds a bench and returns its program.
pub(super) fn build(root: &Path, target: &Target, quickly: bool) -> Result<PathBuf> {
    let mut command = at(root, target.workspace, "bench");
    command.args(["--quiet", "--no-run", "--message-format=json-render-diagnostics"]);
    command.args(["--package", &target.package, "--bench", &target.bench]);
    match (target.workspace, quickly) {
        (Workspace::Cardea, false) => command.arg("--profile").arg(PROFILE),
        (Workspace::Cardea, true) => command.args(["--profile", "dev"]),
        (Workspace::Bench, _) => command.arg("--target-dir").arg(target_directory(root)?.join("bench")),
    };
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot run cargo")?;
    let stdout = child.stdout.take().context("standard output is piped")?;
    let mut program = None;
    for line in BufReader::new(stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line?) else { continue };
        if message["reason"] == "compiler-artifact" && message["target"]["name"] == *target.bench {
            program = message["executable"].as_str().map(PathBuf::from).or(program);
        }
    }
    ensure!(child.wait()?.success(), "it does not build");
    program.context("cargo names no program")
}

fn at(root: &Path, workspace: Workspace, task: &str) -> Command {
    let mut command = cargo(root);
    command.arg(task);
    if workspace == Workspace::Bench {
        command.arg("--manifest-path").arg(root.join("bench/Cargo.toml"));
    }
    command
}

fn read(command: &mut Command) -> Result<Value> {
    let output = command.output().context("cannot run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata fails");
    serde_json::from_slice(&output.stdout).context("cargo metadata")
}

fn of(metadata: &Value, workspace: Workspace) -> Vec<Target> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut targets = Vec::new();
    for package in list(&metadata["packages"]) {
        let (Some(name), Some(manifest)) = (package["name"].as_str(), package["manifest_path"].as_str())
        else {
            continue;
        };
        let counts = list(&package["dependencies"]).iter().any(|dependency| dependency["name"] == MEASURE);
        for target in list(&package["targets"]) {
            let is_bench = list(&target["kind"]).iter().any(|kind| kind == "bench");
            if let Some(bench) = target["name"].as_str().filter(|_| is_bench) {
                targets.push(Target {
                    package: name.to_owned(),
                    bench: bench.to_owned(),
                    folder: Path::new(manifest).parent().unwrap_or(Path::new(".")).to_owned(),
                    counts,
                    workspace,
                });
            }
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benches_are_found_and_whether_they_can_be_counted() {
        let metadata = serde_json::json!({"packages": [
            {
                "name": "a", "manifest_path": "/r/a/Cargo.toml",
                "dependencies": [{"name": "serde"}, {"name": MEASURE}],
                "targets": [{"name": "a", "kind": ["lib"]}, {"name": "speed", "kind": ["bench"]}]
            },
            {
                "name": "b", "manifest_path": "/r/b/Cargo.toml", "dependencies": [],
                "targets": [{"name": "b", "kind": ["lib"]}, {"name": "x", "kind": ["bench"]}]
            }
        ]});
        let found = of(&metadata, Workspace::Cardea);
        let names: Vec<String> = found.iter().map(Target::name).collect();
        assert_eq!(names, ["a speed", "b x"]);
        assert_eq!(found.iter().map(|target| target.counts).collect::<Vec<_>>(), [true, false]);
        assert_eq!(found[0].folder, Path::new("/r/a"));
        assert_eq!(found[0].command(), "cargo bench --package a --bench speed");
    }

    #[test]
    fn this_repository_has_benches_that_can_be_counted() {
        let root = crate::root().unwrap();
        let found = discover(&root).unwrap();
        let clock = found.iter().find(|target| target.package == "cardea-clock").unwrap();
        assert!(clock.counts);
    }
}
