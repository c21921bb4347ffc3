//! The command line, and the commands that need no running gateway.

mod arguments;
mod check;
mod completions;
mod init;
mod output;
mod schema;
mod values;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use self::{
    arguments::*,
    output::Output,
    values::{BasicEncoding, DurationArgument, ImportFormat, TokenArgument},
};

/// The exit code of the program. Scripts rely on these numbers; `docs/cli.md` lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The request was carried out, or the answer is yes.
    Success = 0,
    /// Something failed: a file, the network, a database, a server.
    Failure = 1,
    /// The command line or the configuration is invalid.
    Usage = 2,
    /// The request was carried out, and the answer is no: a token that does not verify, a check that fails, a client
    /// that does not exist.
    Refused = 3,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An identity-aware edge gateway.
///
/// Cardea terminates TLS, authenticates and authorizes callers, and forwards requests to healthy services. It also
/// issues the tokens of machine clients.
#[derive(Debug, Parser)]
#[command(name = "cardea", version, max_term_width = 100, after_help = MAIN_EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const MAIN_EXAMPLES: &str = "\
Examples:
  cardea demo                      run a demo: gateway, origins and authorization server on this machine
  cardea init && cardea check      write a first configuration, and check it
  cardea run --config cardea.toml  run the gateway

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 the answer is no.";

/// The commands of the program.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Init(InitArgs),
    Run(RunArgs),
    Check(CheckArgs),
    Explain(ExplainArgs),
    Test(TestArgs),
    Demo(DemoArgs),
    Reload(ReloadArgs),
    Status(StatusArgs),
    Certificates(CertificatesArgs),
    Upstream(UpstreamArgs),
    Tarpit(TarpitArgs),
    Client(ClientArgs),
    Key(KeyArgs),
    Token(TokenArgs),
    Hash(HashArgs),
    Bench(BenchArgs),
    Schema(SchemaArgs),
    Completions(CompletionsArgs),
}

/// The configuration of a command.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConfigArgs {
    /// The configuration file.
    #[arg(short, long, value_name = "FILE", default_value = "cardea.toml")]
    pub(crate) config: PathBuf,
}

/// Options of commands for clients and keys.
#[derive(Debug, Clone, Args)]
pub(crate) struct ManagementArgs {
    /// The configuration file.
    #[arg(short, long, global = true, value_name = "FILE", default_value = "cardea.toml")]
    pub(crate) config: PathBuf,
    /// Print JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Parses the command line. If it requests help or is invalid, that has been printed and the program should exit with
/// the error.
///
/// # Errors
/// The exit code.
pub(crate) fn parse() -> Result<Command, Exit> {
    match Cli::try_parse() {
        Ok(cli) => Ok(cli.command),
        Err(error) => {
            // A closed pipe must not make `cardea --help | head` fail.
            let _ = error.print();
            Err(if error.use_stderr() { Exit::Usage } else { Exit::Success })
        }
    }
}

/// Runs a command that needs only the configuration. Other commands are implemented elsewhere, and fail here.
pub(crate) fn run_offline(command: &Command, output: &mut Output) -> Exit {
    match command {
        Command::Init(arguments) => init::run(arguments, output),
        Command::Check(arguments) => check::run(arguments, &|name| std::env::var(name).ok(), output),
        Command::Schema(arguments) => schema::run(arguments, output),
        Command::Completions(arguments) => completions::run(arguments, output),
        Command::Run(_)
        | Command::Explain(_)
        | Command::Test(_)
        | Command::Demo(_)
        | Command::Reload(_)
        | Command::Status(_)
        | Command::Certificates(_)
        | Command::Upstream(_)
        | Command::Tarpit(_)
        | Command::Client(_)
        | Command::Key(_)
        | Command::Token(_)
        | Command::Hash(_)
        | Command::Bench(_) => {
            output.error("this command needs a running gateway or a database");
            Exit::Failure
        }
    }
}

#[cfg(test)]
mod tests;
