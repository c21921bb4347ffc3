//! `cargo xtask test`: all checks that a change must pass, step by step.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

use crate::process::{Stopwatch, cargo, pass, pass_lines, target_directory};
use crate::{authority, bench, clients, needs, tidy};

/// What `cargo xtask test` accepts.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The steps to run, in this order. Default: all.
    steps: Vec<Step>,
    /// Skips the documentation, the benches, the clients and the authority.
    #[arg(long, conflicts_with = "steps")]
    fast: bool,
    /// Continues after a failed step.
    #[arg(long)]
    keep_going: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Step {
    /// The format of the sources.
    Fmt,
    /// The lints, with warnings as errors.
    Clippy,
    /// All tests, including the replay of the fuzzers' corpus.
    Tests,
    /// The documentation of the crates, with warnings as errors.
    Docs,
    /// `cargo xtask tidy`.
    Tidy,
    /// Whether the fuzz targets compile.
    Fuzz,
    /// `cargo xtask bench --smoke`.
    Bench,
    /// `cargo xtask clients`.
    Clients,
    /// Certificates by ACME, from a real authority.
    Authority,
    /// The Miri tests of `cardea-kdf`, under Miri. It runs only if named, because it needs a nightly compiler.
    Miri,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Fmt => "fmt",
            Self::Clippy => "clippy",
            Self::Tests => "tests",
            Self::Docs => "docs",
            Self::Tidy => "tidy",
            Self::Fuzz => "fuzz",
            Self::Bench => "bench",
            Self::Clients => "clients",
            Self::Authority => "authority",
            Self::Miri => "miri",
        }
    }
}

/// The numbers of passed and failed checks of a step, and a note.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Counts {
    passed: usize,
    failed: usize,
    note: String,
}

impl Counts {
    /// A step that is one check.
    fn one(success: bool) -> Self {
        Self { passed: usize::from(success), failed: usize::from(!success), note: String::new() }
    }
}

/// Runs the steps. The last line is the sum: each test and each client counts, and every other step counts as one.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let steps = choose(options);
    let mut table: Vec<(Step, Counts, Duration)> = Vec::new();
    for &step in &steps {
        println!("── {} ──", step.name());
        let watch = Stopwatch::start();
        let counts = carry_out(step, root).unwrap_or_else(|error| {
            eprintln!("error: {error:#}");
            Counts::one(false)
        });
        let failed = counts.failed > 0;
        table.push((step, counts, watch.elapsed()));
        if failed && !options.keep_going {
            break;
        }
    }
    print_summary(&steps, &table);
    Ok(table.len() == steps.len() && table.iter().all(|(_, counts, _)| counts.failed == 0))
}

fn choose(options: &Options) -> Vec<Step> {
    let all = Step::value_variants();
    match (options.steps.as_slice(), options.fast) {
        ([], false) => all.iter().copied().filter(|step| *step != Step::Miri).collect(),
        ([], true) => {
            let slow = |step: &Step| {
                matches!(
                    step,
                    Step::Docs | Step::Fuzz | Step::Bench | Step::Clients | Step::Authority | Step::Miri
                )
            };
            all.iter().copied().filter(|step| !slow(step)).collect()
        }
        (chosen, _) => chosen.to_vec(),
    }
}

fn carry_out(step: Step, root: &Path) -> Result<Counts> {
    match step {
        Step::Fmt => {
            component(root, "rustfmt", "fmt")?;
            let workspace = pass(cargo(root).args(["fmt", "--all", "--check"]))?;
            // Separate workspaces: the fuzzers need another compiler, and the benches other dependencies.
            let mut apart = true;
            for manifest in ["fuzz/Cargo.toml", "bench/Cargo.toml"].map(|file| root.join(file)) {
                let check = ["fmt", "--all", "--check", "--manifest-path"];
                apart &= !manifest.exists() || pass(cargo(root).args(check).arg(manifest))?;
            }
            Ok(Counts::one(workspace && apart))
        }
        Step::Clippy => {
            component(root, "clippy", "clippy")?;
            needs::provide(&[needs::C_COMPILER])?;
            let mut command = cargo(root);
            command.args(["clippy", "--workspace", "--all-targets", "--", "--deny=warnings"]);
            Ok(Counts::one(pass(&mut command)?))
        }
        Step::Tests => tests(root),
        Step::Docs => {
            let mut command = cargo(root);
            command.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-Dwarnings");
            Ok(Counts::one(pass(&mut command)?))
        }
        Step::Tidy => Ok(Counts::one(tidy::run(root)? == 0)),
        Step::Fuzz => {
            needs::provide(&[needs::C_COMPILER])?;
            // With the workspace's compiler and target folder: only running them needs another compiler.
            let mut command = cargo(root);
            command
                .args(["check", "--locked", "--bins", "--manifest-path"])
                .arg(root.join("fuzz/Cargo.toml"));
            command.arg("--target-dir").arg(target_directory(root)?.join("fuzz"));
            Ok(Counts::one(pass(&mut command)?))
        }
        Step::Bench => Ok(Counts::one(bench::run(root, &bench::Options::smoke())?)),
        Step::Clients => real_clients(root),
        Step::Authority => real_authority(root),
        Step::Miri => miri(root),
    }
}

fn tests(root: &Path) -> Result<Counts> {
    needs::provide(&[needs::C_COMPILER])?;
    // Without it, one test is skipped with a message; in CI it fails.
    if let Err(missing) = needs::provide(&[needs::LIGHTTPD]) {
        println!("{missing:#}");
    }
    let mut sum = TestSum::default();
    let mut command = cargo(root);
    command.args(["test", "--workspace", "--no-fail-fast"]);
    let success = pass_lines(&mut command, |line| sum.read(line))?;
    Ok(sum.counts(success))
}

/// Miri has no vector instructions, so this tests the portable implementation.
fn miri(root: &Path) -> Result<Counts> {
    let installed =
        crate::process::catch(rustup(root).args(["cargo", "miri", "--version"]), Duration::from_secs(60))?;
    anyhow::ensure!(
        installed.success,
        "missing: Miri; try: rustup toolchain install nightly --component miri,rust-src"
    );
    let mut sum = TestSum::default();
    let mut command = rustup(root);
    command.args(["cargo", "miri", "test", "--package", "cardea-kdf", "--lib", "--", "miri"]);
    // A separate folder, because the two compilers would invalidate each other's builds.
    command.env("CARGO_TARGET_DIR", target_directory(root)?.join("miri"));
    let success = pass_lines(&mut command, |line| sum.read(line))?;
    Ok(sum.counts(success))
}

/// A nightly compiler's tools, whatever toolchain runs this task.
fn rustup(root: &Path) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly"]).current_dir(root);
    for variable in ["CARGO", "RUSTUP_TOOLCHAIN", "RUSTC"] {
        command.env_remove(variable);
    }
    command
}

fn real_clients(root: &Path) -> Result<Counts> {
    let skip = is_set("CARDEA_SKIP_CLIENTS");
    let in_ci = is_set("CI");
    if skip {
        println!("skipped: CARDEA_SKIP_CLIENTS is set");
        let note = if in_ci { "skipped, which is an error in CI" } else { "CARDEA_SKIP_CLIENTS is set" };
        return Ok(Counts { passed: 0, failed: usize::from(in_ci), note: note.to_owned() });
    }
    let tally = clients::run(root, &clients::Options::default())?;
    Ok(Counts { passed: tally.passed, failed: tally.failed, note: String::new() })
}

/// The tests that need an authority; other steps ignore them.
fn real_authority(root: &Path) -> Result<Counts> {
    needs::provide(&[needs::C_COMPILER])?;
    let mut sum = TestSum::default();
    let mut command = cargo(root);
    command.env("CARDEA_PEBBLE", authority::build(root)?);
    command.args(["test", "--package=cardea", "--test=it", "--", "--ignored", "authority::"]);
    let success = pass_lines(&mut command, |line| sum.read(line))?;
    Ok(sum.counts(success))
}

/// Whether a variable is set to yes: `CI=true` and `CI=1` are, `CI=false`, `CI=0` and an empty one are not.
fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}

/// Installs a component of the toolchain that a minimal installation lacks.
fn component(root: &Path, name: &str, subcommand: &str) -> Result<()> {
    if crate::process::catch(cargo(root).args([subcommand, "--version"]), Duration::from_secs(60))?.success {
        return Ok(());
    }
    let mut command = Command::new("rustup");
    command.args(["component", "add", name]).current_dir(root);
    anyhow::ensure!(pass(&mut command)?, "missing: {name}; try: rustup component add {name}");
    Ok(())
}

/// Adds up what `cargo test` reports for each binary.
#[derive(Default)]
struct TestSum {
    passed: usize,
    failed: usize,
    ignored: usize,
    binaries: usize,
}

impl TestSum {
    /// Reads one line of output; lines without a result are skipped.
    fn read(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test result: ") else { return };
        self.binaries += 1;
        let counts = rest.split_once(". ").map_or("", |(_, counts)| counts);
        for part in counts.split(';') {
            let mut words = part.split_whitespace();
            let (Some(Ok(count)), Some(what)) = (words.next().map(str::parse::<usize>), words.next()) else {
                continue;
            };
            match what {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.ignored += count,
                _ => {}
            }
        }
    }

    /// A run that failed without a failed test (a compile error, a crash) counts as one failure, and so does one that
    /// ran no test.
    fn counts(&self, success: bool) -> Counts {
        let silent_failure = (!success || self.passed == 0) && self.failed == 0;
        let note = match self.ignored {
            0 => format!("{} binaries", self.binaries),
            ignored => format!("{} binaries, {ignored} ignored", self.binaries),
        };
        Counts { passed: self.passed, failed: self.failed + usize::from(silent_failure), note }
    }
}

fn print_summary(steps: &[Step], table: &[(Step, Counts, Duration)]) {
    println!("── summary ──");
    for (step, counts, time) in table {
        let result = match counts {
            Counts { failed: 1.., .. } => "FAILED",
            Counts { passed: 0, .. } => "skipped",
            Counts { .. } => "ok",
        };
        let Counts { passed, failed, note } = counts;
        let line = format!(
            "  {:<8} {result:<7} {passed:>5} passed {failed:>4} failed {:>7.1} s  {note}",
            step.name(),
            time.as_secs_f64()
        );
        println!("{}", line.trim_end());
    }
    for step in &steps[table.len()..] {
        println!("  {:<8} not run", step.name());
    }
    let passed: usize = table.iter().map(|(_, counts, _)| counts.passed).sum();
    let failed: usize = table.iter().map(|(_, counts, _)| counts.failed).sum();
    println!("{passed} passed, {failed} failed");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(lines: &[&str]) -> TestSum {
        let mut sum = TestSum::default();
        lines.iter().for_each(|line| sum.read(line));
        sum
    }

    const OK: &str =
        "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s";
    const BAD: &str =
        "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s";

    #[test]
    fn results_of_all_binaries_are_added_up() {
        let counts = sum(&["running 13 tests", OK, "noise", BAD]).counts(false);
        assert_eq!(counts, Counts { passed: 15, failed: 2, note: "2 binaries, 1 ignored".to_owned() });
    }

    #[test]
    fn a_run_that_fails_without_a_failed_test_is_a_failure() {
        assert_eq!(sum(&[OK]).counts(true).failed, 0);
        assert_eq!(sum(&[OK]).counts(false).failed, 1);
        assert_eq!(sum(&[]).counts(true).failed, 1);
    }

    #[test]
    fn fast_leaves_out_documentation_benches_and_clients() {
        let options = |fast, steps: &[Step]| Options { steps: steps.to_vec(), fast, keep_going: false };
        let all = choose(&options(false, &[]));
        assert!(all.len() == 9 && !all.contains(&Step::Miri), "{all:?}");
        assert_eq!(choose(&options(true, &[])), [Step::Fmt, Step::Clippy, Step::Tests, Step::Tidy]);
        assert_eq!(choose(&options(false, &[Step::Docs])), [Step::Docs]);
    }
}
