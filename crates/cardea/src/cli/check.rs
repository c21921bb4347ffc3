//! `cardea check`: reports every error of a configuration.

use super::{CheckArgs, Exit, Output};
use crate::{
    config::{self, Config, Problem, Problems},
    server,
};

/// Checks a configuration.
pub(super) fn run(arguments: &CheckArgs, environment: config::Environment<'_>, output: &mut Output) -> Exit {
    let path = &arguments.config.config;
    let checked = config::load(path, environment).and_then(|config| {
        // What only shows when it is put together: certificates, templates, routes that are in each other's way.
        match server::check(&config) {
            Ok(()) => Ok(config),
            Err(problems) => Err(Problems::from_located(problems)),
        }
    });
    let (exit, written) = match checked {
        Ok(_) if arguments.json => (Exit::Success, output.json(&[(); 0])),
        Ok(config) => {
            (Exit::Success, output.line(&format!("{}: good; {}", path.display(), summary(&config))))
        }
        Err(problems) if arguments.json => {
            let problems: Vec<&Problem> = problems.iter().collect();
            (Exit::Usage, output.json(&problems))
        }
        Err(problems) => {
            for problem in problems.iter() {
                output.error(&problem.to_string());
            }
            let count = problems.iter().len();
            let errors = if count == 1 { "error" } else { "errors" };
            output.error(&format!("{}: {count} {errors}", path.display()));
            (Exit::Usage, Ok(()))
        }
    };
    match written {
        Ok(()) => exit,
        Err(error) => {
            output.error(&format!("cannot write the result: {error}"));
            Exit::Failure
        }
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
