//! The arguments of commands that run a gateway, or talk to one that runs.

use clap::{Args, Subcommand};

use super::super::{ConfigArgs, ManagementArgs};

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
