//! `cardea completions`: completions for shells.

use clap::CommandFactory;

use super::{Cli, CompletionsArgs, Exit, Output};

/// Prints the completions of a shell.
pub(super) fn run(arguments: &CompletionsArgs, output: &mut Output) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "cardea", &mut script);
    match output.text(&String::from_utf8_lossy(&script)) {
        Ok(()) => Exit::Success,
        Err(error) => {
            output.error(&format!("cannot write the completions: {error}"));
            Exit::Failure
        }
    }
}
