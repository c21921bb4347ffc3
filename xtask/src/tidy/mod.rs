//! `cargo xtask tidy`: rules that neither the compiler nor clippy can check.
//!
//! A line is excused by a comment on it or on the line above, which names the rule and gives the reason:
//! `tidy: <rule>: <reason>`.

mod crates;
mod documents;
mod files;
mod glossary;
mod rust;
mod sources;
mod text;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::process::{Stopwatch, build_cardea};
use documents::CommandLine;
use files::File;

/// Something that breaks a rule.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Finding {
    path: String,
    /// From 1.
    line: usize,
    /// The name of the rule, by which a comment may excuse a line.
    rule: &'static str,
    what: String,
    remedy: String,
    /// Printed, but no failure.
    warning: bool,
}

impl Finding {
    fn new(
        file: &File,
        line: usize,
        rule: &'static str,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { path: file.path.clone(), line, rule, what: what.into(), remedy: remedy.into(), warning: false }
    }

    fn into_warning(mut self) -> Self {
        self.warning = true;
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, what, remedy, warning } = self;
        let kind = if *warning { "warning: " } else { "" };
        write!(f, "{path}:{line}: {kind}{what}; {remedy} [{rule}]")
    }
}

/// Checks the repository, prints what breaks a rule and returns how many failures there are.
pub(crate) fn run(root: &Path) -> Result<usize> {
    let watch = Stopwatch::start();
    let files = files::read(root)?;
    let tasks = CommandLine::of_xtask();
    let program = build_cardea(root).and_then(|program| CommandLine::of_program(&program, "cardea"));
    let mut findings = check(&files, root, &tasks, program.as_ref().ok());
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    let mut failures = findings.iter().filter(|finding| !finding.warning).count();
    if let Err(error) = program {
        println!("the commands of the program can't be checked: {error:#}");
        failures += 1;
    }
    let warnings = findings.len() - findings.iter().filter(|finding| !finding.warning).count();
    let time = Duration::as_secs_f64(&watch.elapsed());
    println!("tidy: {} files, {failures} failures, {warnings} warnings, {time:.1} s", files.len());
    Ok(failures)
}

/// Everything but the output; `program` is absent where it doesn't build.
fn check(files: &[File], root: &Path, tasks: &CommandLine, program: Option<&CommandLine>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        findings.extend(text::check(file));
        if file.has_extension("rs") {
            findings.extend(sources::check(file));
        }
        if file.has_extension("md") {
            findings.extend(documents::check(file, files, root, tasks, program));
        }
    }
    findings.extend(crates::check(files));
    findings.extend(glossary::check(files));
    findings.retain(|finding| !is_excused(finding, files));
    findings
}

fn is_excused(finding: &Finding, files: &[File]) -> bool {
    let Some(file) = files.iter().find(|file| file.path == finding.path) else { return false };
    let marker = format!("tidy: {}: ", finding.rule);
    let lines: Vec<&str> = file.text.lines().skip(finding.line.saturating_sub(2)).take(2).collect();
    let lines = if finding.line < 2 { &lines[..lines.len().min(1)] } else { &lines[..] };
    lines.iter().any(|line| line.split_once(&marker).is_some_and(|(_, reason)| reason.trim().len() >= 10))
}

#[cfg(test)]
mod tests;
