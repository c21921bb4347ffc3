//! What is wrong with a configuration: how grave it is, where, what, and what to do about it.

use std::{collections::BTreeSet, fmt};

use serde::Serialize;

use super::source::{Place, Sources};

/// What follows from a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// The configuration can be used, and probably does not do what its author wants.
    Warning,
}

/// One problem, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// What follows from it.
    pub severity: Severity,
    /// The file, as it was named on the command line or found through `include`.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

impl Problem {
    /// An error found at a place of a loaded configuration, for checks that need more than the files say
    /// (templates, certificates, addresses that are taken).
    pub fn at(
        sources: &Sources,
        place: Place,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let position = sources.position(place);
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

/// Everything that is wrong with a configuration, sorted by file and line once it is complete.
#[derive(Debug, Default, thiserror::Error)]
pub struct Problems {
    found: Vec<(Place, Severity, String, String)>,
    /// How many errors were reported, those included that follow from others and are not shown.
    reported: usize,
    /// Files whose further problems may follow from a syntax error, and are not shown.
    muted: BTreeSet<u32>,
    located: Vec<Problem>,
}

impl Problems {
    /// Problems that have their positions already.
    pub fn from_located(located: Vec<Problem>) -> Self {
        Self { located, ..Self::default() }
    }

    /// Shows nothing further of what is found in these files.
    pub(super) fn mute(&mut self, files: &BTreeSet<u32>) {
        self.muted.clone_from(files);
    }

    fn is_shown(&self, place: Place) -> bool {
        place != Place::NOWHERE && !self.muted.contains(&place.file)
    }

    /// Adds an error.
    pub(super) fn add(&mut self, place: Place, message: impl Into<String>, remedy: impl Into<String>) {
        self.reported += 1;
        if self.is_shown(place) {
            self.found.push((place, Severity::Error, message.into(), remedy.into()));
        }
    }

    /// Adds a warning.
    pub(super) fn warn(&mut self, place: Place, message: impl Into<String>, remedy: impl Into<String>) {
        if self.is_shown(place) {
            self.found.push((place, Severity::Warning, message.into(), remedy.into()));
        }
    }

    /// How many errors were reported so far, shown or not.
    pub(super) fn reported(&self) -> usize {
        self.reported
    }

    /// Adds problems that have their positions already.
    pub fn extend(&mut self, located: impl IntoIterator<Item = Problem>) {
        self.located.extend(located);
        self.sort();
    }

    /// Gives every problem its file, line and column, sorts them and drops repetitions.
    pub(super) fn located(mut self, sources: &Sources) -> Self {
        self.found.sort();
        self.found.dedup();
        self.located.extend(self.found.drain(..).map(|(place, severity, message, remedy)| Problem {
            severity,
            ..Problem::at(sources, place, message, remedy)
        }));
        self
    }

    fn sort(&mut self) {
        let key = |problem: &Problem| (problem.file.clone(), problem.line, problem.column, problem.severity);
        self.located.sort_by_cached_key(key);
        self.located.dedup();
    }

    /// The problems, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Problem> {
        self.located.iter()
    }

    /// How many of them are of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.located.iter().filter(|problem| problem.severity == severity).count()
    }

    /// The warnings alone.
    pub fn into_warnings(self) -> Vec<Problem> {
        self.located.into_iter().filter(|problem| problem.severity == Severity::Warning).collect()
    }

    /// The errors alone.
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
