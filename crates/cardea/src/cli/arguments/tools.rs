//! The arguments of commands for tokens, hashes and measurements.

use std::path::PathBuf;

use cardea_kdf::stored::Target;
use clap::{Args, Subcommand};

use super::super::{
    ConfigArgs,
    values::{self, DurationArgument, TokenArgument},
};

/// Inspect access tokens.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea token decode < token          read the token from standard input, which keeps it out of process lists
  cardea token verify --route orders < token")]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

/// The operations on tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Print the content of a token without verifying it.
    Decode(TokenDecodeArgs),
    /// Verify a token as the gateway would, and name the check that fails.
    ///
    /// Each check is printed with the expected and the found value.
    Verify(TokenVerifyArgs),
}

/// A token to decode.
#[derive(Debug, Args)]
pub(crate) struct TokenDecodeArgs {
    /// The token; `-` or nothing reads it from standard input, which keeps it out of process lists and shell histories.
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
    /// Also check the requirements of this route: issuer, audience, scopes and roles.
    #[arg(long, value_name = "NAME")]
    pub(crate) route: Option<String>,
    /// The token; `-` or nothing reads it from standard input, which keeps it out of process lists and shell histories.
    #[arg(value_name = "TOKEN", default_value = "-")]
    pub(crate) token: TokenArgument,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Read a secret from standard input, and print its stored form.
///
/// A line end is ignored. The output is a PHC string, which `cardea client import` accepts.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea hash < secret
  cardea hash --iterations 600000 < secret")]
pub(crate) struct HashArgs {
    /// The iterations of PBKDF2-HMAC-SHA-512: 10000 to 10000000. Default: OWASP's 210000.
    #[arg(long, value_name = "COUNT", value_parser = values::target)]
    pub(crate) iterations: Option<Target>,
}

/// Measure the performance of this machine.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

/// The measurements.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure the cost of a client secret's hash, and how many iterations fit into a given time.
    Kdf(BenchKdfArgs),
}

/// A measurement of hashes. It takes some seconds on an otherwise idle machine.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea bench kdf --config /etc/cardea/cardea.toml
  cardea bench kdf --target 100ms --json | jq .target.iterations")]
pub(crate) struct BenchKdfArgs {
    /// A configuration whose iterations and hash threads are measured. Default: the default settings.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The iterations to measure, instead of the configured ones.
    #[arg(long, value_name = "COUNT", value_parser = values::target)]
    pub(crate) iterations: Option<Target>,
    /// The desired time of a single hash.
    #[arg(long, value_name = "DURATION", default_value = "50ms")]
    pub(crate) target: DurationArgument,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
