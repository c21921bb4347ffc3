//! The arguments of commands for tokens, hashes and measurements.

use std::path::PathBuf;

use cardea_kdf::stored::Target;
use clap::{Args, Subcommand};

use super::super::{
    ConfigArgs,
    values::{self, DurationArgument, TokenArgument},
};

/// Look into access tokens.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea token decode < token          read a token from standard input, so that it is in no process list
  cardea token verify --route orders < token")]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

/// What can be done with tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Print what a token says, without believing any of it.
    Decode(TokenDecodeArgs),
    /// Verify a token as the gateway would, and name the check that fails.
    ///
    /// Each check is printed with what was expected and what was found.
    Verify(TokenVerifyArgs),
}

/// A token to decode.
#[derive(Debug, Args)]
pub(crate) struct TokenDecodeArgs {
    /// The token; `-` or nothing reads it from standard input, which keeps it out of process lists and histories.
    #[arg(value_name = "TOKEN", default_value = "-")]
    pub(crate) token: TokenArgument,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A token to verify.
#[derive(Debug, Args)]
pub(crate) struct TokenVerifyArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Also check what this route demands: issuer, audience, scopes and roles.
    #[arg(long, value_name = "NAME")]
    pub(crate) route: Option<String>,
    /// The token; `-` or nothing reads it from standard input, which keeps it out of process lists and histories.
    #[arg(value_name = "TOKEN", default_value = "-")]
    pub(crate) token: TokenArgument,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Read a secret from standard input, and print what would be stored of it.
///
/// A line end is not counted. What is printed is a PHC string, which `cardea client import` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea hash < secret
  cardea hash --iterations 600000 < secret")]
pub(crate) struct HashArgs {
    /// The iterations of PBKDF2-HMAC-SHA-512: 10000 to 10000000. Left out, OWASP's 210000.
    #[arg(long, value_name = "COUNT", value_parser = values::target)]
    pub(crate) iterations: Option<Target>,
}

/// Measure what this machine can do.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

/// What can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// What a hash of a client secret costs, and how many iterations fit into a wanted time.
    Kdf(BenchKdfArgs),
}

/// A measurement of hashes. It takes some seconds of a machine that should do nothing else.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea bench kdf --config /etc/cardea/cardea.toml
  cardea bench kdf --target 100ms --json | jq .target.iterations")]
pub(crate) struct BenchKdfArgs {
    /// A configuration, whose iterations and hash threads are measured. Left out, the defaults.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The iterations to measure, whatever the configuration says.
    #[arg(long, value_name = "COUNT", value_parser = values::target)]
    pub(crate) iterations: Option<Target>,
    /// What a lone hash may take.
    #[arg(long, value_name = "DURATION", default_value = "50ms")]
    pub(crate) target: DurationArgument,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
