//! Benches that print what they have measured, since criterion has no room for how they measure.
//!
//! `--list` prints a line for each figure, `case/subject: figure`, or one for a table of any other kind, `name: table`. A
//! run prints `case/subject 12.3 ns` for each figure whose name is an argument, or the table. `--large` is the set that
//! takes minutes; then each figure is printed as often as `--rounds` says.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, Result};

use super::samples::{Sample, case_of};
use super::targets::Target;
use crate::needs::{self, Need};

/// In a case that is asked for: the set that takes minutes.
const LARGE: &str = "large";
/// Whoever measures this package's cache measures that of the JDK beside it.
pub(super) const JDK_BESIDE: &str = "cardea-cache";

/// Without it there is one peer less.
const JAVA: Need = Need { name: "a JDK", probe: &["javac", "-version"], packages: &["default-jdk-headless"] };
const JDK_ARGUMENTS: [&str; 3] =
    ["--add-exports=java.base/sun.security.util=ALL-UNNAMED", "-Xmx12g", "SessionCacheBench.java"];

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

/// The figures among the lines that a bench has printed.
pub(super) fn samples(output: &str) -> Vec<Sample> {
    let parse = |line: &str| {
        let mut words = line.split(' ');
        let (name, figure, unit) = (words.next()?, words.next()?, words.next()?);
        let nanoseconds = figure.parse().ok().filter(|_| unit == "ns" && name.contains('/'))?;
        let (case, subject) = case_of(name);
        Some(Sample { case, subject, nanoseconds })
    };
    output.lines().filter_map(parse).collect()
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
    needs::provide(&[JAVA]).context("there is no JDK")?;
    let target = Target::beside(JDK_BESIDE, "jdk", root.join("bench/jdk-session-cache"));
    Ok((target, JDK_ARGUMENTS.map(OsString::from).to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bench_says_what_it_has_in_its_own_style() {
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
        let output = "get-10/cardea 12.50 ns\nwarning: get-10/cardea 1 ns\nget/x 3 us\nget 3 ns\n";
        let sample = Sample { case: "get-10".to_owned(), subject: "cardea".to_owned(), nanoseconds: 12.5 };
        assert_eq!(samples(output), [sample]);
    }

    #[test]
    fn the_large_set_is_measured_only_where_it_is_named() {
        assert!(arguments(None, 5).is_empty() && arguments(Some("session-cache"), 5).is_empty());
        assert_eq!(arguments(Some("session-cache-large-get"), 5), ["--large", "--rounds", "5"]);
    }
}
