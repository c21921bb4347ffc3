//! The configuration in its two forms, as written (`raw`, `sections`) and as resolved ([`Config`]), and the model that
//! the gateway runs on (`build`).
//!
//! A file is read with its included files into one tree of values with their locations (`include`). The tree is checked
//! against the JSON Schema of the written form, and invalid parts are removed (`check`). The rest is deserialised and
//! resolved (`resolve`) into the libraries' own types, from which `build` creates a
//! [`Model`](cardea_gateway::model::Model). Each step adds its problems to one list, so that a single run reports every
//! error.
//!
//! To add a key: declare it in the written form, with its documentation, form and limits; add the field with its
//! default to the settings of the library that uses it; use it there. In a `section!` the declaration names the field,
//! elsewhere one line in `resolve` sets it. A reload has the effect that its section declares (`x-reload`), unless the key
//! declares its own. The reference page and the schema are generated.
#![forbid(unsafe_code)]

mod build;
mod check;
mod deserialize;
mod document;
mod effect;
mod expand;
mod fingerprint;
mod form;
mod include;
mod lint;
mod model;
mod problem;
mod raw;
mod reference;
mod resolve;
mod schema;
mod section;
mod sections;
mod shape;
mod source;
mod suggest;
mod text;

use std::{path::Path, sync::Arc};

use serde::Deserialize;

pub use self::{
    build::{Built, Foundation, Provider, build, check},
    effect::Effect,
    fingerprint::{Difference, Fingerprint, Happened},
    model::*,
    problem::{Problem, Problems, Severity},
    reference::markdown,
    resolve::hostname,
    schema::json_schema,
    sections::*,
    source::Location,
    text::{BindAddress, display_duration, parse_duration},
};
use self::{check::Checker, document::Document, raw::RawConfig, resolve::Resolver};

/// Looks up the variables of `${NAME}` and `{ env = "NAME" }`; outside tests in the environment of the process.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A configuration that may have errors. It may only be used to find more of them.
pub struct Draft {
    /// The resolved parts. If `is_sound` is false, it contains placeholders.
    config: Option<Config>,
    problems: Problems,
}

/// Whether certificate files, key files and secrets are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFiles {
    /// They are read and checked.
    Read,
    /// They need not exist, for a machine that tests a configuration and must not have its keys.
    Skip,
}

impl Draft {
    /// Reads, checks and resolves the configuration at `path`, with its included files.
    pub fn read(path: &Path, environment: Environment<'_>, key_files: KeyFiles) -> Self {
        let mut problems = Problems::default();
        let document = include::read(path, environment, &mut problems);
        Self::of(document, problems, environment, key_files)
    }

    /// The same for a text in memory. Relative paths in it start from the folder of `path`, and messages name it by
    /// `path`.
    pub fn parse(text: String, path: &Path, environment: Environment<'_>, key_files: KeyFiles) -> Self {
        let mut problems = Problems::default();
        let document = include::parse(text, path, environment, &mut problems);
        Self::of(document, problems, environment, key_files)
    }

    fn of(
        document: Document,
        mut problems: Problems,
        environment: Environment<'_>,
        key_files: KeyFiles,
    ) -> Self {
        let Document { mut root, sources, incomplete } = document;
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
        let contents = resolver.into_contents();
        let is_sound = problems.reported() == 0;
        if is_sound {
            lint::lint(&config, &mut problems);
        }
        let fingerprint = Fingerprint::of(&root, &shape, &contents);
        let problems = problems.located(&sources);
        let config = Config { sources: Arc::new(sources), is_sound, fingerprint, ..config };
        let config = match key_files {
            KeyFiles::Read => config,
            KeyFiles::Skip => config.without_keys(),
        };
        Self { config: Some(config), problems }
    }

    /// The resolved parts, and the problems so far, sorted by file and line.
    pub fn into_parts(self) -> (Option<Config>, Problems) {
        (self.config, self.problems)
    }

    /// The configuration, if it has no error.
    ///
    /// # Errors
    /// All errors, sorted by file and line.
    pub fn into_config(self) -> Result<Config, Problems> {
        match self.into_parts() {
            (Some(config), problems) if config.is_sound => {
                Ok(Config { warnings: problems.into_warnings(), ..config })
            }
            (_, problems) => Err(problems.into_errors()),
        }
    }
}

/// Reads, checks and resolves the configuration at `path`, with its included files.
///
/// # Errors
/// All errors, sorted by file and line.
pub fn load(path: &Path, environment: Environment<'_>) -> Result<Config, Problems> {
    load_with(path, environment, KeyFiles::Read)
}

/// The same, with or without certificate and key files.
///
/// # Errors
/// All errors, sorted by file and line.
pub fn load_with(path: &Path, environment: Environment<'_>, key_files: KeyFiles) -> Result<Config, Problems> {
    Draft::read(path, environment, key_files).into_config()
}

#[cfg(test)]
mod tests;
