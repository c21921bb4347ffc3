//! The arguments of commands that write, check and test configurations.

use std::path::PathBuf;

use clap::Args;

use super::super::{ConfigArgs, values::TokenArgument};

/// Write a commented starter configuration.
///
/// The file passes `cardea check` unchanged. An existing file is never overwritten.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea init                          writes cardea.toml
  cardea init /etc/cardea/cardea.toml")]
pub(crate) struct InitArgs {
    /// The file to write.
    #[arg(value_name = "PATH", default_value = "cardea.toml")]
    pub(crate) path: PathBuf,
}

/// Check a configuration, and report every error and warning.
///
/// Each one has its file, line and column, and a remedy. Files that the configuration names are read too, so run it as
/// the gateway's user. Nothing is changed, listened on or fetched.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea check --config /etc/cardea/cardea.toml
  cardea check --deny-warnings --without-keys    for continuous integration
  cardea check --json | jq -r '.[] | select(.severity == \"error\") | .message'

Exit codes: 0 the configuration is valid, 2 it has errors (or warnings, with --deny-warnings).")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Print errors and warnings as a JSON array of {severity, file, line, column, message, remedy}, where severity is
    /// "error" or "warning"; empty if there are none.
    #[arg(long)]
    pub(crate) json: bool,
    /// Fail on warnings too.
    #[arg(long)]
    pub(crate) deny_warnings: bool,
    /// Skip certificates, keys, secrets and databases, for a machine that checks a configuration and must not have its
    /// keys.
    #[arg(long)]
    pub(crate) without_keys: bool,
}

/// Explain what the gateway would do with a request, without sending one.
///
/// Shows the route, the caller, each policy rule with its value, the custom attributes, and what would be forwarded
/// where. Nothing is listened on. Certificates, keys and key sets are read or fetched only with --token.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea explain GET https://api.example.com/orders/1 --source 203.0.113.7
  cardea explain POST https://api.example.com/orders --issuer own --claims '{\"sub\":\"a\",\"scope\":\"orders.write\"}'
  cardea explain GET https://api.example.com/orders --token - --json < token

Exit codes: 0 the request would be allowed, 3 it would be refused.")]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// The method.
    #[arg(value_name = "METHOD")]
    pub(crate) method: String,
    /// The URL. Its scheme decides whether the request uses TLS. Host, path and query are sent as written.
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// A header, such as "x-team: red"; may be repeated. "host: NAME" replaces the URL's host, "host:" sends no Host, and
    /// "host;" an empty one.
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    pub(crate) headers: Vec<String>,
    /// The request target, instead of the URL's path and query: "*" with OPTIONS.
    #[arg(long, value_name = "TARGET")]
    pub(crate) request_target: Option<String>,
    /// Send the request as HTTP/1.0. Default: HTTP/1.1.
    #[arg(long = "http1.0")]
    pub(crate) http10: bool,
    /// The address of the client. Default: 127.0.0.1.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) source: Option<std::net::IpAddr>,
    /// The listener. Default: the first one with the URL's scheme.
    #[arg(long, value_name = "NAME")]
    pub(crate) listener: Option<String>,
    /// Claims of a token that is treated as verified, as a JSON object. Mandatory claims are added.
    #[arg(long, value_name = "JSON", conflicts_with = "token")]
    pub(crate) claims: Option<String>,
    /// The name of the issuer of the claims. Default: the one that their iss names, or the only one.
    #[arg(long, value_name = "NAME", requires = "claims")]
    pub(crate) issuer: Option<String>,
    /// A token, which is verified with its issuer's keys; - reads it from standard input.
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<TokenArgument>,
    /// An additional attribute to show; may be repeated.
    #[arg(long = "attribute", value_name = "NAME")]
    pub(crate) attributes: Vec<String>,
    /// The time of the request, such as 2026-11-21T09:00:00Z. Default: now.
    #[arg(long, value_name = "TIME")]
    pub(crate) time: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Test a configuration with a table of requests and expectations.
///
/// Nothing is sent, listened on or fetched, and no certificate, key or database is needed. docs/testing.md describes
/// the file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea test --config cardea.toml tests.toml
  cardea test --config cardea.toml tests.toml --json | jq '.[] | select(.passed | not)'

Exit codes: 0 all tests pass, 2 a file is invalid, 3 a test fails.")]
pub(crate) struct TestArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// The file of tests.
    #[arg(value_name = "TESTS")]
    pub(crate) tests: PathBuf,
    /// The time of all requests, such as 2026-11-21T09:00:00Z. Default: now.
    #[arg(long, value_name = "TIME")]
    pub(crate) time: Option<String>,
    /// Print an array of {name, passed, differences: [{what, expected, found}]}.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print the JSON Schema of the configuration, for editors.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea schema > cardea.schema.json   then start cardea.toml with: #:schema ./cardea.schema.json")]
pub(crate) struct SchemaArgs {
    /// Print the reference page in Markdown instead.
    #[arg(long)]
    pub(crate) markdown: bool,
    /// Print the page of attributes in Markdown instead: the attributes for templates and the access log.
    #[arg(long, conflicts_with = "markdown")]
    pub(crate) attributes: bool,
    /// Print the page of metrics in Markdown instead: name, type, labels and meaning of each.
    #[arg(long, conflicts_with_all = ["markdown", "attributes"])]
    pub(crate) metrics: bool,
    /// Print the page of functions in Markdown instead: the functions of expressions.
    #[arg(long, conflicts_with_all = ["markdown", "attributes"])]
    pub(crate) functions: bool,
}

/// Print completions for a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea completions bash > /etc/bash_completion.d/cardea
  cardea completions zsh > \"${fpath[1]}/_cardea\"")]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}
