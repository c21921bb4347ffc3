//! The command line: what can be asked of the program, and the commands that need no running gateway.

mod check;
mod completions;
mod init;
mod output;
mod schema;
mod values;

use std::path::PathBuf;

use cardea_kdf::stored::Target;
use clap::{Args, Parser, Subcommand};

pub(crate) use self::{
    output::Output,
    values::{BasicEncoding, DurationArgument, ImportFormat, TokenArgument},
};

/// How the program ends. Scripts rely on these numbers; `docs/cli.md` lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// What was asked for is done, or holds.
    Success = 0,
    /// Something failed on the way: a file, the network, a database, a server.
    Failure = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// It was done, and the answer is no: a token that does not verify, a check that does not hold, a client that
    /// does not exist.
    Refused = 3,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An identity-aware edge gateway.
///
/// Cardea terminates TLS, knows who is calling, decides whether they may, and carries the request to a healthy
/// service. It also issues the tokens that machines call with.
#[derive(Debug, Parser)]
#[command(name = "cardea", version, max_term_width = 100, after_help = MAIN_EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const MAIN_EXAMPLES: &str = "\
Examples:
  cardea demo                      see it work: gateway, origins and authorization server on this machine
  cardea init && cardea check      write a first configuration, and check it
  cardea run --config cardea.toml  run the gateway

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 the answer is no.";

/// What can be asked of the program.
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
    Client(ClientArgs),
    Key(KeyArgs),
    Token(TokenArgs),
    Hash(HashArgs),
    Bench(BenchArgs),
    Schema(SchemaArgs),
    Completions(CompletionsArgs),
}

/// The configuration that a command works with.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConfigArgs {
    /// The configuration file.
    #[arg(short, long, value_name = "FILE", default_value = "cardea.toml")]
    pub(crate) config: PathBuf,
}

/// Write a commented starter configuration.
///
/// The file passes `cardea check` as it is. A file that exists is never overwritten.
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

/// Run the gateway.
///
/// `cardea reload` and SIGHUP reload the configuration: a bad one changes nothing and says why. SIGTERM drains: readiness fails,
/// new connections are accepted for `drain.delay`, and what is in flight has until `drain.deadline`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea run --config /etc/cardea/cardea.toml
  cardea reload --config /etc/cardea/cardea.toml")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// Check a configuration, and report every error and warning at once.
///
/// Each one has its file, line and column, and says what to do. Files that the configuration names are read
/// too, so run it as the user that runs the gateway. Nothing is changed, listened on or fetched.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea check --config /etc/cardea/cardea.toml
  cardea check --deny-warnings --without-keys    for continuous integration
  cardea check --json | jq -r '.[] | select(.severity == \"error\") | .message'

Exit codes: 0 the configuration is good, 2 it has errors (or warnings, with --deny-warnings).")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Print errors and warnings as a JSON array of {severity, file, line, column, message, remedy}, where severity is
    /// "error" or "warning"; empty where there is none.
    #[arg(long)]
    pub(crate) json: bool,
    /// Fail where there are warnings, too.
    #[arg(long)]
    pub(crate) deny_warnings: bool,
    /// Leave out certificates, keys, secrets and databases: for a machine that checks a configuration and must not have
    /// its keys.
    #[arg(long)]
    pub(crate) without_keys: bool,
}

/// Tell what the gateway would do with a request, without sending any.
///
/// Shows the route, who is calling, each rule of the policies with its value, the attributes that the configuration
/// adds, and what would be sent where. Nothing is listened on. Only with --token are certificates and keys needed and
/// key sets fetched, as the gateway would.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea explain GET https://api.example.com/orders/1 --source 203.0.113.7
  cardea explain POST https://api.example.com/orders --issuer own --claims '{\"sub\":\"a\",\"scope\":\"orders.write\"}'
  cardea explain GET https://api.example.com/orders --token - --json < token

Exit codes: 0 the request would be let in, 3 it would be refused.")]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// The method.
    #[arg(value_name = "METHOD")]
    pub(crate) method: String,
    /// The URL, whose scheme says whether the request comes over TLS.
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// A header, as in "x-team: red"; may be repeated.
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    pub(crate) headers: Vec<String>,
    /// The address that connects. Left out, 127.0.0.1.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) source: Option<std::net::IpAddr>,
    /// The listener. Left out, the first that serves the URL's scheme.
    #[arg(long, value_name = "NAME")]
    pub(crate) listener: Option<String>,
    /// Claims of a token that is taken for verified, as a JSON object; what every token has is filled in.
    #[arg(long, value_name = "JSON", conflicts_with = "token")]
    pub(crate) claims: Option<String>,
    /// The issuer that the claims are of, by its name. Left out, the one that their iss names, or the only one.
    #[arg(long, value_name = "NAME", requires = "claims")]
    pub(crate) issuer: Option<String>,
    /// A token, which is verified with its issuer's keys; - reads it from standard input.
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<TokenArgument>,
    /// An attribute to show beside those that the configuration adds; may be repeated.
    #[arg(long = "attribute", value_name = "NAME")]
    pub(crate) attributes: Vec<String>,
    /// The time of the request, as in 2026-11-21T09:00:00Z. Left out, now.
    #[arg(long, value_name = "TIME")]
    pub(crate) time: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Hold a table of requests and expectations against a configuration.
///
/// Nothing is sent, listened on or fetched, and no certificate, key or database is needed. docs/testing.md describes the
/// file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea test --config cardea.toml tests.toml
  cardea test --config cardea.toml tests.toml --json | jq '.[] | select(.passed | not)'

Exit codes: 0 all tests pass, 2 a file is wrong, 3 a test fails.")]
pub(crate) struct TestArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// The file of tests.
    #[arg(value_name = "TESTS")]
    pub(crate) tests: PathBuf,
    /// The time of all requests, as in 2026-11-21T09:00:00Z. Left out, now.
    #[arg(long, value_name = "TIME")]
    pub(crate) time: Option<String>,
    /// Print an array of {name, passed, differences: [{what, expected, found}]}.
    #[arg(long)]
    pub(crate) json: bool,
}

/// See it work: a gateway with TLS, three origins in two regions and an authorization server, on loopback.
///
/// Prints curl lines to try, each with the answer as it came back, then runs until Ctrl-C. Nothing is kept.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea demo
  cardea demo --port 0 --admin-port 0  on any free ports
  cardea demo --check                  make the whole trip once; 0 only if all of it held")]
pub(crate) struct DemoArgs {
    /// The gateway's port on 127.0.0.1; 0 takes any free one.
    #[arg(long, default_value_t = 8443)]
    pub(crate) port: u16,
    /// The admin listener's port on 127.0.0.1; 0 takes any free one.
    #[arg(long, default_value_t = 9443)]
    pub(crate) admin_port: u16,
    /// Make the whole trip once, print each step with its result, and end.
    #[arg(long)]
    pub(crate) check: bool,
    /// Print what a script needs (URLs, the authority's certificate, a client) as one JSON object on the first
    /// line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Have the running gateway read its configuration again, and wait until it is in force.
///
/// Prints what has changed. A configuration that is wrong changes nothing. The configuration reference says of each key
/// when a change takes effect.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea reload --config /etc/cardea/cardea.toml
  cardea reload --json | jq -r '.changes[] | .happened + \" \" + .kind + \" \" + .name'

Exit codes: 0 in force, 1 no gateway answers, 2 the configuration is wrong and the one before stays in force,
3 in force but for keys that need a restart.")]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    pub(crate) common: ManagementArgs,
}

/// Show what is running: version, configuration, last reload, readiness, listeners, services, keys and certificates.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea status
  cardea status --json | jq .reasons

Exit codes: 0 ready, 1 no gateway answers, 3 not ready.")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) common: ManagementArgs,
}

/// Show the certificates of the running gateway: from files, and from an authority by ACME.
///
/// Of those by ACME it says when the next one is ordered, and why the last attempt failed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea certificates
  cardea certificates --json | jq '.[] | select(.failures > 0)'
  cardea certificates renew www.example.com    order one now: after what hindered it was put right")]
pub(crate) struct CertificatesArgs {
    #[command(subcommand)]
    pub(crate) command: Option<CertificatesCommand>,
    #[command(flatten)]
    pub(crate) common: ManagementArgs,
}

/// What can be done with certificates.
#[derive(Debug, Subcommand)]
pub(crate) enum CertificatesCommand {
    /// Order the certificate that a host belongs to now, without waiting as after a failure.
    Renew(CertificatesRenewArgs),
}

/// A certificate to order.
#[derive(Debug, Args)]
pub(crate) struct CertificatesRenewArgs {
    /// One of its hosts.
    #[arg(value_name = "HOST")]
    pub(crate) host: String,
}

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

/// What commands on clients and keys share.
#[derive(Debug, Clone, Args)]
pub(crate) struct ManagementArgs {
    /// The configuration file.
    #[arg(short, long, global = true, value_name = "FILE", default_value = "cardea.toml")]
    pub(crate) config: PathBuf,
    /// Print JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
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

/// Print the JSON Schema of the configuration, for editors.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea schema > cardea.schema.json   then begin cardea.toml with: #:schema ./cardea.schema.json")]
pub(crate) struct SchemaArgs {
    /// Print the reference page in Markdown instead.
    #[arg(long)]
    pub(crate) markdown: bool,
    /// Print the page of attributes in Markdown instead: what templates and the access log can read.
    #[arg(long, conflicts_with = "markdown")]
    pub(crate) attributes: bool,
    /// Print the page of metrics in Markdown instead: name, type, labels and meaning of each.
    #[arg(long, conflicts_with_all = ["markdown", "attributes"])]
    pub(crate) metrics: bool,
    /// Print the page of functions in Markdown instead: what expressions can call.
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

/// Reads the command line. Where it asks for help or is wrong, that has been printed and the program should end
/// as the error says.
///
/// # Errors
/// How to end.
pub(crate) fn parse() -> Result<Command, Exit> {
    match Cli::try_parse() {
        Ok(cli) => Ok(cli.command),
        Err(error) => {
            // A closed pipe must not turn `cardea --help | head` into a failure.
            let _ = error.print();
            Err(if error.use_stderr() { Exit::Usage } else { Exit::Success })
        }
    }
}

/// Runs a command of the configuration alone. The others belong to other parts of the program, and fail here.
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
        | Command::Client(_)
        | Command::Key(_)
        | Command::Token(_)
        | Command::Hash(_)
        | Command::Bench(_) => {
            output.error("this command needs more than a configuration");
            Exit::Failure
        }
    }
}

#[cfg(test)]
mod tests;
