//! The bench `proxy`: what it costs to carry a request to the origin and its response back.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::idle::Clients;
use super::load::Load;
use super::machine::Placement;
use super::origin::Origin;
use super::report::{Better, Metric, Report};
use super::server::{Server, request};
use super::subject::{Role, Setup, Subject};
use super::tools::Tools;
use super::window::{COST, OTHERS, P50, P99, P999, Window, exact};
use super::{Extent, Plan};

/// From the start of the load to the start of the window: connections and handshakes are done by then.
const WARM_UP: Duration = Duration::from_millis(500);
/// The same for each connection with TLS: both sides of a handshake share two processors.
const WARM_UP_TLS: Duration = Duration::from_millis(1);
/// Of the smoke test, where nothing depends on it.
const WARM_UP_SMOKE: Duration = Duration::from_millis(200);
/// How long wrk runs after the end of the window.
const TAIL: Duration = Duration::from_millis(200);

/// The conditions, above the table.
const HELD_EQUAL: &str = "\
Equal for all subjects: connections are kept alive on both sides, there is a worker per processor and no access log, \
and the origin (nginx), the load (wrk, a closed loop) and the certificate (P-256, TLS 1.3) are the same. All subjects \
except the relay pass Host on and set X-Forwarded-For, X-Forwarded-Proto, X-Forwarded-Host and Via; in `bare` cases \
the peers set none of these. Only Cardea sets X-Request-Id, and Via in `bare` cases. No subject authenticates the \
caller. Before each measurement, a request checks that the subject returns the origin's response. Envoy, Caddy and \
Pingora are measured only in the main cases, so that the bench takes at most half an hour. Each measurement starts \
the subject again. The figure is utime + stime of all processes and threads of the subject during the window, per \
request that reached the origin during it. The relay parses only the end of each message. It is the lower limit, not \
a peer.";

pub(super) static RATE: Metric = Metric { name: "requests_per_second", unit: "1/s", better: Better::Higher };
const DETAILS: [&Metric; 5] = [&RATE, &P50, &P99, &P999, &OTHERS];

/// A kind of request, the number of connections, and their protocol.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    path: &'static str,
    body_bytes: usize,
    response_bytes: u64,
    connections: usize,
    tls: bool,
    bare: bool,
    /// Whether it is measured in both placements for all peers. Otherwise it is measured in the first placement for
    /// Debian's peers.
    thorough: bool,
}

impl Case {
    const SMALL: Self = Self {
        name: "small-plain-c32",
        path: "/small",
        body_bytes: 0,
        response_bytes: 100,
        connections: 32,
        tls: false,
        bare: false,
        thorough: true,
    };
    const SMALL_TLS: Self = Self { name: "small-tls-c32", tls: true, ..Self::SMALL };
    const POST: Self = Self {
        name: "post-64k-plain-c32",
        path: "/post",
        body_bytes: 64 * 1024,
        response_bytes: 5,
        ..Self::SMALL
    };
    const RESPONSE_16K: Self =
        Self { name: "response-16k-plain-c32", path: "/16k", response_bytes: 16 * 1024, ..Self::SMALL };
    const RESPONSE_1M: Self =
        Self { name: "response-1m-plain-c32", path: "/1m", response_bytes: 1024 * 1024, ..Self::SMALL };

    const ALL: [Self; 12] = [
        Self::SMALL,
        Self { name: "small-plain-c256", connections: 256, thorough: false, ..Self::SMALL },
        Self { name: "small-plain-c2000", connections: 2000, thorough: false, ..Self::SMALL },
        Self { name: "small-bare-plain-c32", bare: true, thorough: false, ..Self::SMALL },
        Self::SMALL_TLS,
        Self { name: "small-tls-c256", connections: 256, thorough: false, ..Self::SMALL_TLS },
        Self { name: "small-tls-c2000", connections: 2000, thorough: false, ..Self::SMALL_TLS },
        Self::RESPONSE_16K,
        Self { name: "response-16k-tls-c32", tls: true, thorough: false, ..Self::RESPONSE_16K },
        Self { name: "response-1m-plain-c32", thorough: false, ..Self::RESPONSE_1M },
        Self { name: "response-1m-tls-c32", tls: true, thorough: false, ..Self::RESPONSE_1M },
        Self::POST,
    ];

    fn warm_up(&self, extent: Extent) -> Duration {
        let handshakes = if self.tls { u32::try_from(self.connections).unwrap_or(u32::MAX) } else { 0 };
        let whole = if extent == Extent::Smoke { WARM_UP_SMOKE } else { WARM_UP };
        whole + WARM_UP_TLS * handshakes
    }

    /// The smoke test takes one case of each kind, and one of them in both placements.
    fn is_in(&self, extent: Extent, placement: &Placement) -> bool {
        let kinds = ["small-plain-c32", "small-tls-c32", "post-64k-plain-c32"];
        match extent {
            Extent::Full => self.thorough || placement.gateway == placement.load,
            Extent::Smoke if placement.gateway == placement.load => kinds.contains(&self.name),
            Extent::Smoke => self.name == kinds[0],
        }
    }
}

/// Runs all cases and returns what was measured.
pub(super) fn run(tools: &Tools, plan: &Plan) -> Result<Report> {
    let mut report = Report::new("proxy");
    for placement in Placement::all()? {
        let origin = Origin::start(tools, &placement.load)?;
        for case in Case::ALL.iter().filter(|case| case.is_in(plan.extent, &placement)) {
            let name = format!("{}-{}", case.name, placement.name);
            if !plan.takes(&name) {
                continue;
            }
            for round in 1..=plan.rounds {
                for &subject in &plan.subjects {
                    if subject.is_costly() && !case.thorough {
                        continue;
                    }
                    let measured = plan.attempt(|| measure(tools, plan, &placement, &origin, *case, subject));
                    let progress = match measured {
                        Ok(figures) => {
                            for (metric, value) in figures {
                                report.add(&name, subject, metric, value);
                            }
                            format!("{:.2} µs, others {:.0} %", figures[0].1, figures[5].1)
                        }
                        Err(error) => {
                            report.add_missing(&name, subject, &COST, format!("{error:#}"));
                            format!("not measured: {error:#}")
                        }
                    };
                    plan.progress(&format!("{name} {round}/{} {}: {progress}", plan.rounds, subject.name()));
                }
            }
        }
    }
    Ok(report)
}

/// The tables, after the conditions of the measurement.
pub(super) fn section(report: &Report, plan: &Plan) -> Result<String> {
    let mut text = format!("{HELD_EQUAL}\n\n");
    for placement in Placement::all()? {
        let load = format!("wrk and the origin, with {} each", placement.load_threads());
        text += &format!("- {}\n", placement.describe(&load));
    }
    text += &format!("\nCPU time per request in µs, median (lowest–highest) of {} rounds:\n\n", plan.rounds);
    text += &report.table(&COST, &plan.subjects);
    text += "\nMedians of throughput, of latency in a closed loop (from the first connection to the last response), \
         and of the processor time of other processes:\n\n";
    text += &report.details(&DETAILS, &plan.subjects);
    if let Some(noise) = report.largest_noise(&COST) {
        text += &format!("\nThe largest A/A difference: {:.1} %.\n", noise * 100.0);
    }
    Ok(text + &report.missing())
}

/// The figures of one subject in one round.
fn measure(
    tools: &Tools,
    plan: &Plan,
    placement: &Placement,
    origin: &Origin,
    case: Case,
    subject: Subject,
) -> Result<[(&'static Metric, f64); 6]> {
    let setup = Setup { tls: case.tls, bare: case.bare, ..Setup::new(&placement.gateway, origin.address()) };
    let server = subject.start(tools, &setup)?;
    drop(Clients::open(tools, &setup, &server, 1, &placement.load)?);
    if !case.tls && subject.role() != Role::Limit {
        answers(&server, case)?;
    }
    let warm_up = case.warm_up(plan.extent);
    let load = Load {
        address: server.address,
        tls: case.tls,
        path: case.path,
        body_bytes: case.body_bytes,
        connections: case.connections,
        processors: &placement.load,
        time: warm_up + plan.window + TAIL,
        caller: &[],
    };
    let running = load.start(&tools.sources);
    running.go_on_for(warm_up)?;
    // The origin is queried last at both ends of the window, so that the time of the query cancels out. The last
    // query is counted.
    let window = Window::begin(placement, &server)?;
    let requests_before = origin.requests()?;
    running.go_on_for(plan.window)?;
    let used = window.end()?;
    let requests = origin.requests()?.saturating_sub(requests_before).saturating_sub(1);
    let outcome = running.finish()?;

    ensure!(requests > 0, "no request reached the origin during the window");
    let enough = plan.extent == Extent::Smoke || used.is_enough();
    ensure!(enough, "the subject used only {:.0} µs during the window", used.cpu_us);
    let per_request = outcome.bytes.checked_div(outcome.requests).context("wrk got no response")?;
    ensure!(
        per_request >= case.response_bytes,
        "responses have {per_request} bytes, {} were expected",
        case.response_bytes
    );
    Ok([
        (&COST, used.cpu_us / exact(requests)),
        (&RATE, exact(requests) * 1e6 / used.elapsed_us),
        (&P50, outcome.p50_us),
        (&P99, outcome.p99_us),
        (&P999, outcome.p999_us),
        (&OTHERS, used.others_percent),
    ])
}

/// Checks the subject: one request must be answered with 200.
fn answers(server: &Server, case: Case) -> Result<()> {
    // The origin accepts a GET of the path for uploads too.
    let response = request(server.address, case.path)?;
    ensure!(
        response.starts_with("HTTP/1.1 200 "),
        "{} is answered with {:?}",
        case.path,
        response.lines().next().unwrap_or_default()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_have_names_of_their_own() {
        let mut names: Vec<&str> = Case::ALL.iter().map(|case| case.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Case::ALL.len());
    }

    #[test]
    fn the_smoke_test_takes_every_kind_once_and_both_placements() {
        let shared = Placement { name: "2cpu", gateway: vec![0, 1], load: vec![0, 1] };
        let apart = Placement { name: "pinned", gateway: vec![0], load: vec![1] };
        let count = |extent, placement| Case::ALL.iter().filter(|case| case.is_in(extent, placement)).count();
        assert_eq!((count(Extent::Smoke, &shared), count(Extent::Smoke, &apart)), (3, 1));
        assert_eq!((count(Extent::Full, &shared), count(Extent::Full, &apart)), (12, 4));
    }
}
