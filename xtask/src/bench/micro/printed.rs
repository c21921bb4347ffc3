//! Benches that print what they have measured, since criterion has no room for how they measure.
//!
//! `--list` prints a line for each figure, `case/subject: figure`, or one for a table of any other kind, `name: table`. A
//! run prints `case/subject 12.3 ns` for each figure whose name is an argument, or the table. `--large` is the set that
//! takes minutes; then each figure is printed as often as `--rounds` says.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::samples::{Sample, case_of};
use super::targets::Target;
use crate::needs::{self, Need};
use crate::process::Stopwatch;

/// In a case that is asked for: the set that takes minutes.
const LARGE: &str = "session-cache-large";
/// The package of the session cache, which alone has a large set, and beside which that of the JDK is measured.
pub(super) const CACHES: &str = "cardea-cache";

/// Without it there is one peer less.
const JAVA: Need = Need { name: "a JDK", probe: &["javac", "-version"], packages: &["default-jdk-headless"] };
const JDK_ARGUMENTS: [&str; 3] =
    ["--add-exports=java.base/sun.security.util=ALL-UNNAMED", "-Xmx10g", "SessionCacheBench.java"];

/// What a bench prints for what it is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Style {
    /// As criterion does: figures are in files.
    Criterion,
    Figures,
    Table,
}

/// The style of a bench and the names of what it measures, from what `--list` prints; `None` if it says nothing known.
pub(super) fn listed(output: &str) -> Option<(Style, Vec<String>)> {
    let names = |end: &str| -> Vec<String> {
        output.lines().filter_map(|line| line.strip_suffix(end)).map(str::to_owned).collect()
    };
    [(Style::Criterion, ": benchmark"), (Style::Figures, ": figure"), (Style::Table, ": table")]
        .into_iter()
        .map(|(style, end)| (style, names(end)))
        .find(|(_, names)| !names.is_empty())
}

/// Runs such a bench, and shows each line that it prints when it comes: the large set takes minutes, and what is measured
/// of it stays measured where the rest fails.
///
/// # Errors
///
/// It can't be run, fails, or runs for longer than `limit`, after which it is killed. It has said why by itself: standard
/// error is passed on.
pub(super) fn run(command: &mut Command, limit: Duration, mut each: impl FnMut(&str)) -> Result<()> {
    let watch = Stopwatch::start();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot be run")?;
    let stdout = child.stdout.take().context("standard output is piped")?;
    let (sender, lines) = mpsc::sync_channel(16);
    thread::spawn(move || {
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        // The receiver is gone once the limit has passed.
        while lines.next().is_some_and(|line| sender.send(line).is_ok()) {}
    });
    loop {
        match lines.recv_timeout(limit.saturating_sub(watch.elapsed())) {
            Ok(line) => each(&line),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                child.kill()?;
                child.wait()?;
                bail!("still running after {} s: killed", limit.as_secs());
            }
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "it exited with {status}");
    Ok(())
}

/// The figure in a line that a bench has printed.
pub(super) fn sample(line: &str) -> Option<Sample> {
    let mut words = line.split(' ');
    let (name, figure, unit) = (words.next()?, words.next()?, words.next()?);
    let nanoseconds = figure.parse().ok().filter(|_| unit == "ns" && name.contains('/'))?;
    let (case, subject) = case_of(name);
    Some(Sample { case, subject, nanoseconds })
}

/// What is said to such a bench, for the case that is asked for.
pub(super) fn arguments(case: Option<&str>, rounds: usize) -> Vec<OsString> {
    let large = ["--large".to_owned(), "--rounds".to_owned(), rounds.to_string()];
    let arguments = if is_large(case) { large.to_vec() } else { Vec::new() };
    arguments.into_iter().map(OsString::from).collect()
}

/// Whether all rounds are in one run.
pub(super) fn is_large(case: Option<&str>) -> bool {
    case.is_some_and(|case| case.contains(LARGE))
}

/// The JDK's session cache: what runs it, and with what before the arguments.
pub(super) fn jdk(root: &Path) -> Result<(Target, Vec<OsString>)> {
    needs::provide(&[JAVA]).context("a JDK is missing")?;
    let target = Target::beside(CACHES, "jdk", root.join("bench/jdk-session-cache"));
    Ok((target, JDK_ARGUMENTS.map(OsString::from).to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bench_lists_its_cases_in_either_format() {
        let some =
            |style, names: &[&str]| Some((style, names.iter().map(|name| (*name).to_owned()).collect()));
        assert_eq!(
            listed("a/x: benchmark\nb: benchmark\n\n2 benchmarks\n"),
            some(Style::Criterion, &["a/x", "b"])
        );
        assert_eq!(listed("a/x: figure\n"), some(Style::Figures, &["a/x"]));
        assert_eq!(listed("ratio: table\n"), some(Style::Table, &["ratio"]));
        assert_eq!(listed("nothing\n"), None);
    }

    #[test]
    fn figures_are_read_and_other_lines_are_not() {
        let expected = Sample { case: "get-10".to_owned(), subject: "cardea".to_owned(), nanoseconds: 12.5 };
        assert_eq!(sample("get-10/cardea 12.50 ns"), Some(expected));
        for other in ["warning: get-10/cardea 1 ns", "get/x 3 us", "get 3 ns", ""] {
            assert_eq!(sample(other), None, "{other}");
        }
    }

    #[test]
    fn lines_are_shown_as_they_come_also_of_what_fails_then() {
        for (script, success) in [("echo a; echo b", true), ("echo a; echo b; exit 3", false)] {
            let mut lines = Vec::new();
            let mut command = Command::new("sh");
            let limit = Duration::from_secs(20);
            let ran = run(command.args(["-c", script]), limit, |line| lines.push(line.to_owned()));
            assert_eq!((ran.is_ok(), lines.as_slice()), (success, ["a", "b"].map(str::to_owned).as_slice()));
        }
    }

    #[test]
    fn a_bench_over_its_limit_is_killed_and_has_failed() {
        let mut command = Command::new("sh");
        let ran = run(command.args(["-c", "exec sleep 600"]), Duration::from_millis(50), |_| ());
        assert!(ran.unwrap_err().to_string().contains("killed"));
    }

    #[test]
    fn the_large_set_is_measured_only_where_it_is_named() {
        assert!(arguments(None, 5).is_empty() && arguments(Some("session-cache"), 5).is_empty());
        assert_eq!(arguments(Some("session-cache-large-get"), 5), ["--large", "--rounds", "5"]);
    }
}
