//! The arguments of commands that run a gateway, or use a running one.

use clap::{Args, Subcommand};

use super::super::{ConfigArgs, ManagementArgs};

/// Run the gateway.
///
/// `cardea reload` and SIGHUP reload the configuration: an invalid one changes nothing and its errors are reported.
/// SIGTERM drains: readiness fails, new connections are accepted for `drain.delay`, and running requests have until
/// `drain.deadline`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea run --config /etc/cardea/cardea.toml
  cardea reload --config /etc/cardea/cardea.toml")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// Run a demo: a gateway with TLS, three origins in two regions and an authorization server, on loopback.
///
/// Prints curl commands to try, each with its response, then runs until Ctrl-C. Nothing is stored.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea demo
  cardea demo --port 0 --admin-port 0  on any free ports
  cardea demo --check                  run all steps once; exits with 0 only if all succeed")]
pub(crate) struct DemoArgs {
    /// The gateway's port on 127.0.0.1; 0 selects a free one.
    #[arg(long, default_value_t = 8443)]
    pub(crate) port: u16,
    /// The admin listener's port on 127.0.0.1; 0 selects a free one.
    #[arg(long, default_value_t = 9443)]
    pub(crate) admin_port: u16,
    /// Run all steps once, print each with its result, and exit.
    #[arg(long)]
    pub(crate) check: bool,
    /// Print the data for scripts (URLs, the authority's certificate, a client) as one JSON object on the first line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Reload the configuration of the running gateway, and wait until it is in effect.
///
/// Prints the changes. An invalid configuration changes nothing. The configuration reference documents for each key
/// when a change takes effect.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea reload --config /etc/cardea/cardea.toml
  cardea reload --json | jq -r '.changes[] | .happened + \" \" + .kind + \" \" + .name'

Exit codes: 0 in effect, 1 no gateway responds, 2 the configuration is invalid and the previous one stays in effect,
3 in effect except for keys that need a restart.")]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    pub(crate) common: ManagementArgs,
}

/// Show the state of the running gateway: version, configuration, last reload, readiness, listeners, services, keys and
/// certificates.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea status
  cardea status --json | jq .reasons

Exit codes: 0 ready, 1 no gateway responds, 3 not ready.")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) common: ManagementArgs,
}

/// Show the certificates of the running gateway: from files, and from an ACME authority.
///
/// For ACME certificates it shows when the next one is ordered, and why the last attempt failed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea certificates
  cardea certificates --json | jq '.[] | select(.failures > 0)'
  cardea certificates renew www.example.com    order one now, after the cause of a failure was fixed")]
pub(crate) struct CertificatesArgs {
    #[command(subcommand)]
    pub(crate) command: Option<CertificatesCommand>,
    #[command(flatten)]
    pub(crate) common: ManagementArgs,
}

/// Show the services of the running gateway with their endpoints, or override the health of one.
///
/// An override is in effect when the command returns. It is kept across reloads as long as the endpoint's address is in the
/// service, and ends at a restart.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea upstream list
  cardea upstream explain orders                 the endpoint that a request would get, and why
  cardea upstream drain orders 10.0.0.1:8080     no new requests; those under way end
  cardea upstream disable orders 10.0.0.1:8080   also no checks, and idle connections are closed
  cardea upstream enable orders 10.0.0.1:8080    its health decides again

Exit codes: 0 in effect, 1 no gateway answers, 3 there is no such service or endpoint.")]
pub(crate) struct UpstreamArgs {
    #[command(subcommand)]
    pub(crate) command: UpstreamCommand,
    #[command(flatten)]
    pub(crate) common: ManagementArgs,
}

/// The operations on endpoints.
#[derive(Debug, Subcommand)]
pub(crate) enum UpstreamCommand {
    /// Show all endpoints with their state and its cause, requests in flight and response time.
    List,
    /// Show which endpoint of a service a request would get now, and why.
    ///
    /// It is chosen as for a request, from the state of the running gateway: by regions with their round trips, bands and
    /// shares, by health and limits, and by load. Nothing is sent or counted. As endpoints are drawn at random, another request
    /// may get another one.
    Explain(ExplainChoiceArgs),
    /// Send an endpoint no new requests. Those under way end, and its checks go on.
    Drain(EndpointArgs),
    /// Send an endpoint no new requests, close its idle connections and do not check it.
    Disable(EndpointArgs),
    /// End the override of an endpoint.
    Enable(EndpointArgs),
}

/// A request to a service.
#[derive(Debug, Args)]
pub(crate) struct ExplainChoiceArgs {
    /// The name of the service.
    #[arg(value_name = "SERVICE")]
    pub(crate) service: String,
    /// What the service's hash_policy yields for the request. Default: nothing, so that any endpoint may be chosen.
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
}

/// An endpoint of a service.
#[derive(Debug, Args)]
pub(crate) struct EndpointArgs {
    /// The name of the service.
    #[arg(value_name = "SERVICE")]
    pub(crate) service: String,
    /// The address of the endpoint, as the list shows it.
    #[arg(value_name = "ENDPOINT")]
    pub(crate) endpoint: String,
}

/// Show whose requests are held in the tarpit of the running gateway, or release them.
///
/// Requests that are released get their answer now, and the offences of their sender are forgotten.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cardea tarpit list
  cardea tarpit release --address 192.0.2.1
  cardea tarpit release --issuer https://login.example --subject alice
  cardea tarpit release --all

Exit codes: 0 done, 1 no gateway answers.")]
pub(crate) struct TarpitArgs {
    #[command(subcommand)]
    pub(crate) command: TarpitCommand,
    #[command(flatten)]
    pub(crate) common: ManagementArgs,
}

/// The operations on the tarpit.
#[derive(Debug, Subcommand)]
pub(crate) enum TarpitCommand {
    /// Show whose requests are held, how many and for how long.
    List,
    /// Answer held requests now, and forget the offences of their sender.
    Release(TarpitReleaseArgs),
}

/// Whom to release.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct TarpitReleaseArgs {
    /// Everybody.
    #[arg(long, conflicts_with_all = ["address", "issuer", "subject"])]
    pub(crate) all: bool,
    /// An IPv4 address or an IPv6 prefix, as the list shows it.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["issuer", "subject"])]
    pub(crate) address: Option<String>,
    /// The issuer of an identity.
    #[arg(long, value_name = "ISSUER", requires = "subject")]
    pub(crate) issuer: Option<String>,
    /// The subject of an identity.
    #[arg(long, value_name = "SUBJECT", requires = "issuer")]
    pub(crate) subject: Option<String>,
}

/// The operations on certificates.
#[derive(Debug, Subcommand)]
pub(crate) enum CertificatesCommand {
    /// Order the certificate of a host now, ignoring the delay after a failure.
    Renew(CertificatesRenewArgs),
}

/// A certificate to order.
#[derive(Debug, Args)]
pub(crate) struct CertificatesRenewArgs {
    /// One of its hosts.
    #[arg(value_name = "HOST")]
    pub(crate) host: String,
}
