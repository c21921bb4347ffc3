//! What is wrong with a configuration: where, what, and what to do about it.

use std::fmt;

use serde::Serialize;

use super::source::{Place, Sources};

/// One problem, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    /// The file, as it was named on the command line or found through `include`.
    pub(crate) file: String,
    /// Line, from 1.
    pub(crate) line: usize,
    /// Column in characters, from 1.
    pub(crate) column: usize,
    /// What is wrong.
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) remedy: String,
}

impl Problem {
    /// A problem found at a place of a loaded configuration, for checks that need more than the files say
    /// (templates, certificates, addresses that are taken).
    pub(crate) fn at(
        sources: &Sources,
        place: Place,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let position = sources.position(place);
        Self {
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
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "; {}", self.remedy) }
    }
}

/// Everything that is wrong with a configuration, sorted by file and line once it is complete.
#[derive(Debug, Default, thiserror::Error)]
pub(crate) struct Problems {
    found: Vec<(Place, String, String)>,
    located: Vec<Problem>,
}

impl Problems {
    /// Problems that have their positions already.
    pub(crate) fn from_located(located: Vec<Problem>) -> Self {
        Self { found: Vec::new(), located }
    }

    pub(super) fn add(&mut self, place: Place, message: impl Into<String>, remedy: impl Into<String>) {
        self.found.push((place, message.into(), remedy.into()));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty() && self.located.is_empty()
    }

    /// Gives every problem its file, line and column, sorts them and drops repetitions.
    pub(super) fn located(mut self, sources: &Sources) -> Self {
        self.found.sort();
        self.found.dedup();
        self.located.extend(
            self.found.drain(..).map(|(place, message, remedy)| Problem::at(sources, place, message, remedy)),
        );
        self
    }

    /// The problems, in order.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Problem> {
        self.located.iter()
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
