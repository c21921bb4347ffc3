//! Development tasks: `cargo xtask test`, `cargo xtask tidy`, `cargo xtask clients`, `cargo xtask bench`,
//! `cargo xtask pgo`, `cargo xtask sim`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool of the command line: its output is its purpose"
)]

mod authority;
mod bench;
mod clients;
mod needs;
mod pgo;
mod process;
mod sim;
mod test;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

/// Development tasks.
#[derive(Parser)]
#[command(name = "xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Checks everything: format, lints, tests, documentation, tidy rules, real clients.
    Test(test::Options),
    /// Checks rules that the compiler and clippy can't: layers, sizes, banned calls, links, commands in documents.
    Tidy,
    /// Runs real OAuth clients of several languages against the demo.
    Clients(clients::Options),
    /// Compares Cardea with its peers: CPU time, throughput, latency, memory.
    Bench(bench::Options),
    /// Builds Cardea with profile-guided optimisation, and measures the gain.
    Pgo(pgo::Options),
    /// Compares how endpoints are chosen: gateways, servers and a network in virtual time.
    Sim(sim::Options),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = root().and_then(|root| match &arguments.task {
        Task::Test(options) => test::run(&root, options),
        Task::Tidy => tidy::run(&root).map(|failures| failures == 0),
        Task::Clients(options) => clients::run(&root, options).map(|tally| tally.failed == 0),
        Task::Bench(options) => bench::run(&root, options),
        Task::Pgo(options) => pgo::run(&root, options),
        Task::Sim(options) => sim::run(&root, options),
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the repository: the parent of this crate.
fn root() -> Result<PathBuf> {
    let parent = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    parent.canonicalize().with_context(|| format!("{}", parent.display()))
}
