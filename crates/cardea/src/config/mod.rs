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
mod expand;
mod include;
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
    model::*,
    problem::{Problem, Problems},
    reference::markdown,
    rules::*,
    schema::json_schema,
    sections::*,
    source::Place,
    text::{Address, BindAddress, IpPrefix, display_duration, parse_duration},
};

/// Where `${NAME}` and `{ env = "NAME" }` are looked up; the process's environment but in tests.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads, checks and resolves the configuration at `path`, with everything that it includes.
///
/// # Errors
/// Every problem that could be found, sorted by file and line.
pub(crate) fn load(path: &Path, environment: Environment<'_>) -> Result<Config, Problems> {
    let mut problems = Problems::default();
    let Document { mut root, sources, damaged, incomplete } = include::read(path, environment, &mut problems);

    let shape = schema::shape();
    let dropped = Checker::new(&mut problems, &damaged).check(&mut root, &shape);
    if incomplete || !damaged.is_empty() {
        // What an unread or broken file would have said could only lead to errors that follow from it.
        return Err(problems.located(&sources));
    }

    let raw = match RawConfig::deserialize(&root) {
        Ok(raw) => raw,
        Err(unfit) => {
            problems.add(root.at, unfit.to_string(), "see the reference of the configuration");
            return Err(problems.located(&sources));
        }
    };
    let mut resolver = Resolver::new(&mut problems, &sources, &dropped, environment);
    let config = resolver.config(raw, &root);
    if problems.is_empty() {
        Ok(Config { sources: Arc::new(sources), ..config })
    } else {
        Err(problems.located(&sources))
    }
}

#[cfg(test)]
mod tests;
