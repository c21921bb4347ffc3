//! The bench `memory`: the resident memory of an idle kept-alive connection.

use std::time::Duration;

use anyhow::Result;

use super::accounting::{resident_kib, tree};
use super::idle::Clients;
use super::machine::Placement;
use super::origin::Origin;
use super::report::{Better, Metric, Report};
use super::server::{Server, pause};
use super::subject::{Role, Setup, Subject};
use super::tools::Tools;
use super::{Extent, Plan};

/// Connections that are opened and closed before the first reading, so that one-time allocations don't count.
const WARM_UP_CONNECTIONS: usize = 64;
/// The interval between readings until the memory no longer changes.
const LOOK: Duration = Duration::from_millis(100);
/// The number of equal readings after which it no longer changes.
const LOOKS_EQUAL: usize = 5;
/// The number of connections in the smoke test.
const LOOKS_EQUAL_SMOKE: usize = 1;
const LOOKS_MAX: usize = 50;

const HELD_EQUAL: &str = "\
Equal for all subjects: one small GET on each connection, then nothing; idle timeouts longer than the bench; TLS 1.3 \
with the same certificate, and a session cache of the default size; HTTP/2 is over that TLS. The figure is the \
difference of VmRSS (of all processes of the subject) before and after, once it no longer changes, per connection. \
Afterwards, one more request on each connection must be answered, which shows that all were still open.";

static RESIDENT: Metric = Metric { name: "rss_kib_per_connection", unit: "KiB", better: Better::Lower };

/// Runs all cases and returns the results.
pub(super) fn run(tools: &Tools, plan: &Plan) -> Result<Report> {
    let mut report = Report::new("memory");
    let connections = connections(plan);
    let [placement, _] = Placement::all()?;
    let origin = Origin::start(tools, &placement.load)?;
    for (kind, tls, http2) in [("plain", false, false), ("tls", true, false), ("h2", true, true)] {
        let name = format!("idle-{kind}-c{connections}");
        if !plan.takes(&name) {
            continue;
        }
        let setup = Setup { tls, http2, ..Setup::new(&placement.gateway, origin.address()) };
        for round in 1..=plan.rounds {
            for subject in comparable(plan) {
                let measured = plan.attempt(|| measure(tools, plan, &setup, subject, &placement));
                let progress = match measured {
                    Ok(value) => {
                        report.add(&name, subject, &RESIDENT, value);
                        format!("{value:.1} KiB")
                    }
                    Err(error) => {
                        report.add_missing(&name, subject, &RESIDENT, format!("{error:#}"));
                        format!("not measured: {error:#}")
                    }
                };
                plan.progress(&format!("{name} {round}/{} {}: {progress}", plan.rounds, subject.name()));
            }
        }
    }
    Ok(report)
}

/// The table, after the conditions of the measurement.
pub(super) fn section(report: &Report, plan: &Plan) -> Result<String> {
    let [placement, _] = Placement::all()?;
    Ok(format!(
        "{HELD_EQUAL}\n\n- {}\n\nResident KiB per idle connection, median (lowest–highest) of {} rounds:\n\n{}{}",
        placement.describe("bench-idle and the origin"),
        plan.rounds,
        report.table(&RESIDENT, &comparable(plan)),
        report.missing()
    ))
}

/// The relay is left out, because it holds a connection to the origin for each client connection, unlike a gateway.
fn comparable(plan: &Plan) -> Vec<Subject> {
    plan.subjects.iter().copied().filter(|subject| subject.role() != Role::Limit).collect()
}

fn connections(plan: &Plan) -> usize {
    match plan.extent {
        Extent::Full => 10_000,
        Extent::Smoke => 200,
    }
}

#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
fn measure(
    tools: &Tools,
    plan: &Plan,
    setup: &Setup<'_>,
    subject: Subject,
    placement: &Placement,
) -> Result<f64> {
    let connections = connections(plan);
    let server = subject.start(tools, setup)?;
    drop(Clients::open(tools, setup, &server, WARM_UP_CONNECTIONS, &placement.load)?);
    let before = at_rest(&server, plan.extent)?;
    let mut clients = Clients::open(tools, setup, &server, connections, &placement.load)?;
    let after = at_rest(&server, plan.extent)?;
    clients.ask_again()?;
    Ok((after as f64 - before as f64) / connections as f64)
}

/// The resident memory of a server once it no longer changes.
fn at_rest(server: &Server, extent: Extent) -> Result<u64> {
    let enough = if extent == Extent::Smoke { LOOKS_EQUAL_SMOKE } else { LOOKS_EQUAL };
    let processes = tree(server.id()?)?;
    let mut last = resident_kib(&processes)?;
    let mut equal = 0;
    for _ in 0..LOOKS_MAX {
        pause(LOOK);
        let now = resident_kib(&processes)?;
        equal = if now == last { equal + 1 } else { 0 };
        last = now;
        if equal >= enough {
            break;
        }
    }
    Ok(last)
}
