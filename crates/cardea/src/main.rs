//! The program.

#[allow(dead_code, unused_imports, reason = "wired in by the commands that run the gateway")]
mod cli;
#[allow(dead_code, unused_imports, reason = "wired in by the commands that run the gateway")]
mod config;

use std::process::ExitCode;

fn main() -> ExitCode {
    let command = match cli::parse() {
        Ok(command) => command,
        Err(exit) => return exit.into(),
    };
    let mut output = cli::Output::standard();
    match cli::run_offline(&command, &mut output) {
        Some(exit) => exit.into(),
        None => {
            output.error("this build has no gateway in it");
            cli::Exit::Failure.into()
        }
    }
}
