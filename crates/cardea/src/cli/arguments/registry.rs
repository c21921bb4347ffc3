//! The arguments of commands on clients and keys of the authorization server.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::super::{
    ManagementArgs,
    values::{BasicEncoding, DurationArgument, ImportFormat},
};

/// Manage the clients of the authorization server.
///
/// Where a gateway runs, commands go through its admin socket and are in effect when they return; else they
/// work on its database.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea client create billing --scope orders.read --audience https://api.example.com
  cardea client rotate cdcli_8f3k… --overlap 1d
  cardea client import clients.jsonl
  cardea client list --json | jq -r '.[].client_id'")]
pub(crate) struct ClientArgs {
    #[command(subcommand)]
    pub(crate) command: ClientCommand,
    #[command(flatten)]
    pub(crate) common: ManagementArgs,
}

/// What can be done with clients.
#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    /// Create a client, and print its secret, which is shown this once.
    Create(ClientCreateArgs),
    /// Take over clients of another server, with the hashes of their secrets: all that a file has, or none.
    Import(ClientImportArgs),
    /// List the clients.
    List,
    /// Show a client, without its secrets.
    Show(ClientId),
    /// Give a client a new secret, and let the old ones end.
    Rotate(ClientRotateArgs),
    /// Refuse a client: no new tokens, and those already issued are refused.
    Disable(ClientId),
    /// Let a disabled client in again; tokens from before stay refused.
    Enable(ClientId),
    /// Delete a client for good; its tokens are refused.
    Delete(ClientId),
}

/// A client, by its id.
#[derive(Debug, Args)]
pub(crate) struct ClientId {
    /// The client's id.
    #[arg(value_name = "CLIENT_ID")]
    pub(crate) id: String,
}

/// A client to create.
#[derive(Debug, Args)]
pub(crate) struct ClientCreateArgs {
    /// What the client is called, for people.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Its id. Left out, one is generated.
    #[arg(long, value_name = "CLIENT_ID")]
    pub(crate) id: Option<String>,
    /// A scope that it may ask for; may be repeated, or separated by commas.
    #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',')]
    pub(crate) scopes: Vec<String>,
    /// An audience that it may ask for (`resource`, RFC 8707); may be repeated. Left out, the default audience.
    #[arg(long = "audience", value_name = "URI")]
    pub(crate) audiences: Vec<String>,
    /// How long its tokens are good for. Left out, the server's `access_token_lifetime`.
    #[arg(long, value_name = "DURATION")]
    pub(crate) token_lifetime: Option<DurationArgument>,
    /// When its secret ends. Left out, never.
    #[arg(long, value_name = "DURATION")]
    pub(crate) secret_expires_in: Option<DurationArgument>,
    /// How its id and secret are read in Basic authentication, where they were chosen and have % or + in them.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) basic_encoding: BasicEncoding,
    /// Read its secret from standard input in place of generating one: 16 to 256 characters of printable ASCII, a line
    /// end not counted. It is stored under a slow hash. A generated one is safer and costs less to verify.
    #[arg(long)]
    pub(crate) secret_stdin: bool,
    /// Hash its secret on each request, in place of remembering for a while that it was right.
    #[arg(long)]
    pub(crate) no_remember: bool,
}

/// Clients to take over.
#[derive(Debug, Args)]
#[command(after_help = "\
A line of JSON, or a row of CSV under a header with these names (lists in CSV: with spaces between):
  client_id, secret_hash      required; docs/cli.md lists the formats of hashes
  name, enabled, scopes, audiences, access_token_lifetime_seconds,
  secret_expires_in_seconds, basic_encoding, remember_secret

Examples:
  cardea client import clients.jsonl
  exporter | cardea client import - --format csv")]
pub(crate) struct ClientImportArgs {
    /// The file; `-` reads standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Its format. Left out, what the end of its name says: .jsonl, .ndjson or .csv.
    #[arg(long, value_enum)]
    pub(crate) format: Option<ImportFormat>,
}

/// A secret to replace.
#[derive(Debug, Args)]
pub(crate) struct ClientRotateArgs {
    /// The client's id.
    #[arg(value_name = "CLIENT_ID")]
    pub(crate) id: String,
    /// How long the old secrets still work, so that the new one can be rolled out.
    #[arg(long, value_name = "DURATION", default_value = "1d")]
    pub(crate) overlap: DurationArgument,
    /// When the new secret ends. Left out, never.
    #[arg(long, value_name = "DURATION")]
    pub(crate) secret_expires_in: Option<DurationArgument>,
}

/// Manage the signing keys of the authorization server.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea key list
  cardea key rotate                    publish a new key now, sign with it after key_publish_ahead
  cardea key rotate --now              sign at once with the key that is published ahead, or with a new one
  cardea key rewrap --new-key-file new-wrapping.key")]
pub(crate) struct KeyArgs {
    #[command(subcommand)]
    pub(crate) command: KeyCommand,
    #[command(flatten)]
    pub(crate) common: ManagementArgs,
}

/// What can be done with signing keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// List the keys, and what each is doing.
    List,
    /// Make a new key.
    Rotate(KeyRotateArgs),
    /// Encrypt the private keys under another wrapping key.
    Rewrap(KeyRewrapArgs),
}

/// A key to make.
#[derive(Debug, Args)]
pub(crate) struct KeyRotateArgs {
    /// Sign with the new key at once, though not everyone may have fetched it yet: for a key that leaked.
    #[arg(long)]
    pub(crate) now: bool,
}

/// A wrapping key to change to; the configuration must name it afterwards.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct KeyRewrapArgs {
    /// A file with the new wrapping key.
    #[arg(long, value_name = "FILE")]
    pub(crate) new_key_file: Option<PathBuf>,
    /// The environment variable with the new wrapping key.
    #[arg(long, value_name = "NAME")]
    pub(crate) new_key_env: Option<String>,
}
