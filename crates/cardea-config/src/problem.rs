//! Problems of a configuration: severity, location, message and remedy.

use std::{collections::BTreeSet, fmt};

use serde::Serialize;

use super::source::{Location, Sources};

/// The severity of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// The configuration is usable, but probably does not do what its author wants.
    Warning,
}

/// One problem, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Error or warning.
    pub severity: Severity,
    /// The file, as named on the command line or found through `include`.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The description of the problem.
    pub message: String,
    /// The action that solves it.
    pub remedy: String,
}

impl Problem {
    /// An error at a location of a loaded configuration, for checks that need more than the files (templates,
    /// certificates, addresses in use).
    pub fn at(
        sources: &Sources,
        location: Location,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let position = sources.position(location);
        Self {
            severity: Severity::Error,
            file: position.file.display().to_string(),
            line: position.line,
            column: position.column,
            message: message.into(),
            remedy: remedy.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?;
        if self.severity == Severity::Warning {
            f.write_str("warning: ")?;
        }
        f.write_str(&self.message)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "; {}", self.remedy) }
    }
}

/// All problems of a configuration; sorted by file and line once complete.
#[derive(Debug, Default, thiserror::Error)]
pub struct Problems {
    found: Vec<(Location, Severity, String, String)>,
    /// The number of reported errors, including those that follow from others and are not shown.
    reported: usize,
    /// Files whose further problems may follow from a syntax error, and are not shown.
    muted: BTreeSet<u32>,
    located: Vec<Problem>,
}

impl Problems {
    /// Problems with their positions.
    pub fn from_located(located: Vec<Problem>) -> Self {
        Self { located, ..Self::default() }
    }

    /// Hides further problems of these files.
    pub(super) fn mute(&mut self, files: &BTreeSet<u32>) {
        self.muted.clone_from(files);
    }

    fn is_shown(&self, location: Location) -> bool {
        location != Location::NOWHERE && !self.muted.contains(&location.file)
    }

    /// Adds an error.
    pub(super) fn add(&mut self, location: Location, message: impl Into<String>, remedy: impl Into<String>) {
        self.reported += 1;
        if self.is_shown(location) {
            self.found.push((location, Severity::Error, message.into(), remedy.into()));
        }
    }

    /// Adds a warning.
    pub(super) fn warn(&mut self, location: Location, message: impl Into<String>, remedy: impl Into<String>) {
        if self.is_shown(location) {
            self.found.push((location, Severity::Warning, message.into(), remedy.into()));
        }
    }

    /// The number of errors reported so far, shown or not.
    pub(super) fn reported(&self) -> usize {
        self.reported
    }

    /// Adds problems with their positions.
    pub fn extend(&mut self, located: impl IntoIterator<Item = Problem>) {
        self.located.extend(located);
        self.sort();
    }

    /// Determines file, line and column of every problem, sorts the problems and removes duplicates.
    pub(super) fn located(mut self, sources: &Sources) -> Self {
        self.found.sort();
        self.found.dedup();
        self.located.extend(self.found.drain(..).map(|(location, severity, message, remedy)| Problem {
            severity,
            ..Problem::at(sources, location, message, remedy)
        }));
        self
    }

    fn sort(&mut self) {
        let key = |problem: &Problem| (problem.file.clone(), problem.line, problem.column, problem.severity);
        self.located.sort_by_cached_key(key);
        self.located.dedup();
    }

    /// The problems in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Problem> {
        self.located.iter()
    }

    /// The number of problems with this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.located.iter().filter(|problem| problem.severity == severity).count()
    }

    /// Only the warnings.
    pub fn into_warnings(self) -> Vec<Problem> {
        self.located.into_iter().filter(|problem| problem.severity == Severity::Warning).collect()
    }

    /// Only the errors.
    pub fn into_errors(mut self) -> Self {
        self.located.retain(|problem| problem.severity == Severity::Error);
        self
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.located.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}
