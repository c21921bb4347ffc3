//! Cardea, an identity-aware edge gateway: the program.
#![forbid(unsafe_code)]

mod acme;
mod admin;
mod cli;
mod commands;
mod demo;
mod fetch;
mod logging;
mod process;
mod server;

use std::process::ExitCode;

use cardea_config as config;
use cli::{Command, Exit, Output};

/// Small allocations dominate the cost of a request besides its system calls, and musl's allocator takes a lock for
/// each.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let command = match cli::parse() {
        Ok(command) => command,
        Err(exit) => return exit.into(),
    };
    let mut output = Output::standard();
    // Any command may read secrets.
    if let Err(error) = process::protect_memory() {
        output.error(&format!("{error:#}"));
        return Exit::Failure.into();
    }
    let exit = match &command {
        Command::Run(arguments) => run(arguments, &mut output),
        Command::Demo(arguments) => demo::run(arguments, &mut output),
        Command::Reload(arguments) => commands::running::reload(arguments, &mut output),
        Command::Status(arguments) => commands::running::status(arguments, &mut output),
        Command::Upstream(arguments) => commands::upstream::run(arguments, &mut output),
        Command::Tarpit(arguments) => commands::tarpit::run(arguments, &mut output),
        Command::Certificates(arguments) => commands::certificates::run(arguments, &mut output),
        Command::Client(arguments) => commands::client::run(arguments, &mut output),
        Command::Key(arguments) => commands::key::run(arguments, &mut output),
        Command::Token(arguments) => commands::token::run(arguments, &mut output),
        Command::Explain(arguments) => commands::explain::run(arguments, &mut output),
        Command::Test(arguments) => commands::explain::test::run(arguments, &mut output),
        Command::Hash(arguments) => commands::hash::run(arguments, &mut output),
        Command::Bench(arguments) => commands::bench::run(arguments, &mut output),
        offline => cli::run_offline(offline, &mut output),
    };
    exit.into()
}

fn run(arguments: &cli::RunArgs, output: &mut Output) -> Exit {
    let path = &arguments.config.config;
    let config = match config::load(path, &|name| std::env::var(name).ok()) {
        Ok(config) => config,
        Err(problems) => {
            output.error(&problems.to_string());
            return Exit::Usage;
        }
    };
    logging::start(&config.log);
    config.log_warnings();
    match server::run(config, path.clone()) {
        Ok(()) => Exit::Success,
        Err(error) => {
            output.error(&format!("{error:#}"));
            Exit::Failure
        }
    }
}
