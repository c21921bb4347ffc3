//! `cargo xtask pgo`: builds Cardea with profile-guided optimisation, with its benches as training, and measures the
//! gain.

mod bolt;
mod llvm;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::bench::{self, builds};
use crate::process::{Stopwatch, cargo, pass, target_directory};
use llvm::Llvm;

/// The reported gain of the same method with another runtime, for comparison.
const REPORTED: &str = "For comparison, the gateway of a large cloud directory reported 8 to 13 % more requests per \
     CPU-second from profile-guided optimisation in a runtime with just-in-time compilation";

/// What `cargo xtask pgo` accepts.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Also optimises the layout of the program with BOLT.
    #[arg(long)]
    bolt: bool,
    /// Rounds of the comparison with the shipped build, at least 5.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The length of each window in seconds.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

/// Builds, trains, builds again and compares. Returns whether everything was measured.
///
/// # Errors
///
/// A tool is missing, a build fails, or the trained program leaves no profile.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    // Checked first, because the builds take ten minutes.
    let llvm = Llvm::find(root)?;
    let profdata = llvm.tool("llvm-profdata")?;
    let bolt = options.bolt.then(|| bolt::Tools::find(&llvm)).transpose()?;
    let build =
        Build { root, llvm: &llvm, target: target_directory(root)?.join("pgo"), watch: Stopwatch::start() };

    let baseline = build.shipped()?;
    let profiles = build.target.join("profiles");
    fresh(&profiles)?;
    let generate = flag("-Cprofile-generate=", &profiles);
    let instrumented = build.with("instrumented", &[generate])?;
    let profile = build.target.join("cardea.profdata");
    build.train(&instrumented)?;
    build.merge(&profdata, &profiles, &profile)?;

    let mut flags = vec![flag("-Cprofile-use=", &profile)];
    if bolt.is_some() {
        flags.push(bolt::RELOCATIONS.into());
    }
    let mut program = build.with("optimised", &flags)?;
    if let Some(bolt) = bolt {
        program = build.rearrange(&bolt, &program)?;
    }
    let complete = build.compare(&program, &baseline, options)?;
    println!("The program: {}", program.display());
    Ok(complete)
}

/// Builds in separate folders, so that ordinary builds are not invalidated.
struct Build<'a> {
    root: &'a Path,
    llvm: &'a Llvm,
    target: PathBuf,
    watch: Stopwatch,
}

impl Build<'_> {
    /// The shipped build, for comparison.
    fn shipped(&self) -> Result<PathBuf> {
        self.progress("building Cardea as it is shipped (profile dist)");
        let done = pass(cargo(self.root).args(["build", "--quiet", "--profile=dist", "--package=cardea"]))?;
        ensure!(done, "the program does not build");
        // A copy: another build may replace it before it is compared with.
        let (built, copy) =
            (target_directory(self.root)?.join("dist/cardea"), self.target.join("cardea.shipped"));
        fs::create_dir_all(&self.target)?;
        fs::copy(&built, &copy).with_context(|| format!("{}", built.display()))?;
        Ok(copy)
    }

    /// The same with other flags for the compiler.
    fn with(&self, name: &str, flags: &[OsString]) -> Result<PathBuf> {
        self.progress(&format!("building Cardea {name}"));
        let folder = self.target.join(name);
        let mut all = std::env::var_os("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
        for flag in flags {
            if !all.is_empty() {
                all.push("\x1f");
            }
            all.push(flag);
        }
        let mut command = cargo(self.root);
        // A target that is named keeps the flags from build scripts and macros.
        command
            .args(["build", "--quiet", "--profile=dist", "--package=cardea", "--target", &self.llvm.host])
            .arg("--target-dir")
            .arg(&folder)
            .env("CARGO_ENCODED_RUSTFLAGS", all);
        ensure!(pass(&mut command)?, "the program does not build");
        Ok(folder.join(&self.llvm.host).join("dist/cardea"))
    }

    /// Uses a program as the benches do. It writes its profile when it ends.
    fn train(&self, program: &Path) -> Result<()> {
        for run in builds::training(program) {
            self.progress("training; the following figures mean nothing");
            bench::run(self.root, &run)?;
        }
        Ok(())
    }

    fn merge(&self, profdata: &Path, profiles: &Path, into: &Path) -> Result<()> {
        let files = files_of(profiles, OsStr::new("profraw"))?;
        let mut command = Command::new(profdata);
        command.args(["merge", "--output"]).arg(into).args(files);
        ensure!(pass(&mut command)?, "llvm-profdata fails");
        Ok(())
    }

    fn compare(&self, program: &Path, baseline: &Path, options: &Options) -> Result<bool> {
        self.progress("comparing with the shipped build");
        let json = self.target.join("gain.json");
        let run = builds::comparison(program, baseline, &json, (options.rounds, options.seconds));
        let complete = bench::run(self.root, &run)?;
        let gains = builds::gains(&json)?;
        ensure!(!gains.is_empty(), "there are no figures to compare");
        for gain in &gains {
            println!("{}: {} requests per CPU-second", gain.case, percent(gain.ratio));
        }
        println!("The mean of these cases: {}. {REPORTED}.", percent(mean(&gains)));
        Ok(complete)
    }

    fn progress(&self, line: &str) {
        eprintln!("pgo, {:.0} s: {line}", self.watch.elapsed().as_secs_f64());
    }
}

/// The geometric mean: a gain and the loss that undoes it cancel out.
#[expect(clippy::cast_precision_loss, reason = "a handful")]
fn mean(gains: &[builds::Gain]) -> f64 {
    let sum: f64 = gains.iter().map(|gain| gain.ratio.ln()).sum();
    (sum / gains.len().max(1) as f64).exp()
}

fn percent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

fn flag(name: &str, path: &Path) -> OsString {
    let mut flag = OsString::from(name);
    flag.push(path);
    flag
}

/// What the runs of a program have left.
fn files_of(folder: &Path, extension: &OsStr) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("{}", folder.display()))? {
        let path = entry?.path();
        if path.extension() == Some(extension) {
            files.push(path);
        }
    }
    ensure!(!files.is_empty(), "the trained program wrote no profile to {}", folder.display());
    Ok(files)
}

/// Empties a folder: profiles of another build would only be refused.
fn fresh(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_and_its_inverse_have_a_mean_of_one() {
        let gain = |ratio| builds::Gain { case: String::new(), ratio };
        assert_eq!(percent(mean(&[gain(1.25), gain(0.8)])), "+0.0 %");
        assert_eq!(percent(mean(&[gain(1.1)])), "+10.0 %");
        assert_eq!(percent(0.95), "-5.0 %");
    }
}
