//! `cardea check`: reports every error and warning of a configuration.

use std::sync::Arc;

use super::{CheckArgs, Exit, Output};
use crate::{
    config::{self, Config, Draft, KeyFiles, Problem, Problems, Severity},
    server,
};

/// Checks a configuration.
pub(super) fn run(arguments: &CheckArgs, environment: config::Environment<'_>, output: &mut Output) -> Exit {
    let (config, problems) = checked(arguments, environment);
    let (errors, warnings) = (problems.count(Severity::Error), problems.count(Severity::Warning));
    let is_valid = errors == 0 && !(arguments.deny_warnings && warnings > 0);
    let written = if arguments.json {
        output.json(&problems.iter().collect::<Vec<&Problem>>())
    } else {
        report(arguments, config.as_ref(), &problems, is_valid, output)
    };
    match written {
        Ok(()) if is_valid => Exit::Success,
        Ok(()) => Exit::Usage,
        Err(error) => {
            output.error(&format!("cannot write the result: {error}"));
            Exit::Failure
        }
    }
}

/// The resolved configuration and all of its problems. Problems that only building shows (certificates, expressions,
/// conflicting routes) are found even if there are others.
fn checked(arguments: &CheckArgs, environment: config::Environment<'_>) -> (Option<Config>, Problems) {
    let key_files = if arguments.without_keys { KeyFiles::Skip } else { KeyFiles::Read };
    let (config, mut problems) = Draft::read(&arguments.config.config, environment, key_files).into_parts();
    if let Some(config) = &config {
        problems
            .extend(config::check(config, Arc::new(server::Provided::default())).err().into_iter().flatten());
        problems.extend(server::check_databases(config));
    }
    (config, problems)
}

fn report(
    arguments: &CheckArgs,
    config: Option<&Config>,
    problems: &Problems,
    is_valid: bool,
    output: &mut Output,
) -> std::io::Result<()> {
    for problem in problems.iter() {
        output.error(&problem.to_string());
    }
    let path = arguments.config.config.display();
    let counted = |count: usize, what: &str| match count {
        0 => None,
        1 => Some(format!("1 {what}")),
        count => Some(format!("{count} {what}s")),
    };
    let errors = counted(problems.count(Severity::Error), "error");
    let warnings = counted(problems.count(Severity::Warning), "warning");
    let found: Vec<String> = errors.into_iter().chain(warnings).collect();
    if !found.is_empty() {
        output.error(&format!("{path}: {}", found.join(", ")));
    }
    match config {
        Some(config) if is_valid => output.line(&format!("{path}: valid; {}", summary(config))),
        _ => Ok(()),
    }
}

fn summary(config: &Config) -> String {
    format!(
        "listeners: {}, issuers: {}, services: {}, routes: {}",
        config.listeners.len(),
        config.issuers.len(),
        config.services.len(),
        config.routes.len()
    )
}
