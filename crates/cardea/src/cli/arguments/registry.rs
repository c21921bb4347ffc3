//! The arguments of commands for clients and keys of the authorization server.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::super::{
    ManagementArgs,
    values::{BasicEncoding, DurationArgument, ImportFormat},
};

/// Manage the clients of the authorization server.
///
/// If a gateway runs, commands use its admin socket and are in effect when they return. Otherwise they use its
/// database.
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

/// The operations on clients.
#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    /// Create a client, and print its secret, which is shown only once.
    Create(ClientCreateArgs),
    /// Import clients of another server, with the hashes of their secrets: all clients of a file, or none.
    Import(ClientImportArgs),
    /// List the clients.
    List,
    /// Show a client, without its secrets.
    Show(ClientId),
    /// Give a client a new secret, and let the old ones expire.
    Rotate(ClientRotateArgs),
    /// Disable a client: it gets no new tokens, and issued ones are refused.
    Disable(ClientId),
    /// Enable a disabled client; earlier tokens stay refused.
    Enable(ClientId),
    /// Delete a client permanently; its tokens are refused.
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
    /// The display name of the client.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The client id. Default: a generated one.
    #[arg(long, value_name = "CLIENT_ID")]
    pub(crate) id: Option<String>,
    /// A scope that it may request; may be repeated, or separated by commas.
    #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',')]
    pub(crate) scopes: Vec<String>,
    /// An audience that it may request (`resource`, RFC 8707); may be repeated. Default: only the server's
    /// `default_audience`.
    #[arg(long = "audience", value_name = "URI")]
    pub(crate) audiences: Vec<String>,
    /// The lifetime of its tokens. Default: the server's `access_token_lifetime`.
    #[arg(long, value_name = "DURATION")]
    pub(crate) token_lifetime: Option<DurationArgument>,
    /// The lifetime of its secret. Default: no limit.
    #[arg(long, value_name = "DURATION")]
    pub(crate) secret_expires_in: Option<DurationArgument>,
    /// The encoding of its id and secret in Basic authentication, if they were chosen and contain % or +.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) basic_encoding: BasicEncoding,
    /// Read the secret from standard input instead of generating one: 16 to 256 characters of printable ASCII, without
    /// the line end. It is stored under a slow hash. A generated secret is safer and cheaper to verify.
    #[arg(long)]
    pub(crate) secret_stdin: bool,
    /// Hash the secret on each request, instead of caching a verified one for a while.
    #[arg(long)]
    pub(crate) no_remember: bool,
}

/// The clients to import.
#[derive(Debug, Args)]
#[command(after_help = "\
Each client is a line of JSON, or a row of CSV under a header, with these names (CSV separates the items of a list by \
spaces):
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
    /// The format. Default: by the file name extension: .jsonl, .ndjson or .csv.
    #[arg(long, value_enum)]
    pub(crate) format: Option<ImportFormat>,
}

/// A secret to replace.
#[derive(Debug, Args)]
pub(crate) struct ClientRotateArgs {
    /// The client's id.
    #[arg(value_name = "CLIENT_ID")]
    pub(crate) id: String,
    /// How long the old secrets stay valid, so that the new one can be rolled out.
    #[arg(long, value_name = "DURATION", default_value = "1d")]
    pub(crate) overlap: DurationArgument,
    /// The lifetime of the new secret. Default: no limit.
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

/// The operations on signing keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// List the keys with their states.
    List,
    /// Create a new key.
    Rotate(KeyRotateArgs),
    /// Encrypt the private keys with another wrapping key.
    Rewrap(KeyRewrapArgs),
}

/// A key to create.
#[derive(Debug, Args)]
pub(crate) struct KeyRotateArgs {
    /// Sign with the new key at once, although not every verifier may have fetched it: for a leaked key.
    #[arg(long)]
    pub(crate) now: bool,
}

/// A new wrapping key, which must be configured afterwards.
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
