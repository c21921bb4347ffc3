//! The configuration: what the operator wrote (`raw`), checked against its schema, and resolved into plain
//! structs (`model`, `sections`) that the rest of the program reads.
//!
//! The way of a file: [`mod@include`] reads it and what it includes into one tree of values that know where they
//! stand; [`check`] holds the tree against the [`shape`] of the JSON Schema and takes out what does not fit;
//! what is left is deserialised into [`raw`] types and [`resolve`]d. Each step adds its problems to one list, so
//! that a single run reports every error of a configuration.

mod check;
mod deserialize;
mod document;
mod effect;
mod expand;
mod fingerprint;
mod include;
mod lint;
mod model;
mod problem;
mod raw;
mod reference;
mod resolve;
mod rules;
mod schema;
mod sections;
mod shape;
mod source;
mod suggest;
mod text;

use std::{path::Path, sync::Arc};

use serde::Deserialize;

use self::{check::Checker, document::Document, raw::RawConfig, resolve::Resolver};
pub(crate) use self::{
    effect::Effect,
    fingerprint::{Difference, Fingerprint, Happened},
    model::*,
    problem::{Problem, Problems, Severity},
    reference::markdown,
    rules::*,
    schema::json_schema,
    sections::*,
    source::Place,
    text::{Address, BindAddress, IpPrefix, display_duration, parse_duration},
};

/// Where `${NAME}` and `{ env = "NAME" }` are looked up; the process's environment but in tests.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What was read of a configuration that may be wrong: for finding more that is wrong with it, and nothing else.
pub(crate) struct Draft {
    /// Whatever could be made of it. Where `is_sound` is false, values stand in for those that could not.
    config: Option<Config>,
    problems: Problems,
}

/// Whether files of certificates and keys, and secrets, are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyFiles {
    /// They are, and what is wrong with them is told.
    Read,
    /// They need not be there: for a machine that tests a configuration and must not have its keys.
    Skip,
}

impl Draft {
    /// Reads, checks and resolves the configuration at `path`, with everything that it includes.
    pub(crate) fn read(path: &Path, environment: Environment<'_>, key_files: KeyFiles) -> Self {
        let mut problems = Problems::default();
        let Document { mut root, sources, incomplete } = include::read(path, environment, &mut problems);
        problems.mute(sources.damaged());

        let shape = schema::shape();
        let dropped = Checker::new(&mut problems, incomplete).check(&mut root, &shape);
        let raw = match RawConfig::deserialize(&root) {
            Ok(raw) => raw,
            Err(unfit) => {
                problems.add(root.at, unfit.to_string(), "see the reference of the configuration");
                return Self { config: None, problems: problems.located(&sources) };
            }
        };
        let mut resolver = Resolver::new(&mut problems, &sources, &dropped, environment, key_files);
        let config = resolver.config(raw, &root);
        let is_sound = problems.reported() == 0;
        if is_sound {
            lint::lint(&config, &mut problems);
        }
        let fingerprint = Fingerprint::of(&root, &shape);
        let problems = problems.located(&sources);
        let config = Config { sources: Arc::new(sources), is_sound, fingerprint, ..config };
        let config = match key_files {
            KeyFiles::Read => config,
            KeyFiles::Skip => config.without_keys(),
        };
        Self { config: Some(config), problems }
    }

    /// What could be made of it, and the problems so far, sorted by file and line.
    pub(crate) fn into_parts(self) -> (Option<Config>, Problems) {
        (self.config, self.problems)
    }
}

/// Reads, checks and resolves the configuration at `path`, with everything that it includes.
///
/// # Errors
/// Every error that could be found, sorted by file and line.
pub(crate) fn load(path: &Path, environment: Environment<'_>) -> Result<Config, Problems> {
    load_with(path, environment, KeyFiles::Read)
}

/// The same, with or without files of certificates and keys.
///
/// # Errors
/// Every error that could be found, sorted by file and line.
pub(crate) fn load_with(
    path: &Path,
    environment: Environment<'_>,
    key_files: KeyFiles,
) -> Result<Config, Problems> {
    match Draft::read(path, environment, key_files).into_parts() {
        (Some(config), problems) if config.is_sound => {
            Ok(Config { warnings: problems.into_warnings(), ..config })
        }
        (_, problems) => Err(problems.into_errors()),
    }
}

#[cfg(test)]
mod tests;
