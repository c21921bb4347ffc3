//! The bench `overload`: how much of an origin's capacity remains under overload.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::accounting::{TICK_US, cpu_us, tree};
use super::machine::{Placement, on};
use super::peers::Tool;
use super::report::{Better, Metric, Report};
use super::server::{Server, free_address, request};
use super::subject::{Limit, Role, Setup, Subject};
use super::tools::Tools;
use super::window::{COST, exact};
use super::{Extent, Plan};
use crate::process::{Stopwatch, catch};

/// The origin's capacity: 400 requests per second.
const SLOTS: usize = 32;
const DELAY: Duration = Duration::from_millis(80);
const CAPACITY: f64 = 400.0;
/// The configured queue of the subjects: as many requests as there are slots.
const LIMIT: Limit = Limit { slots: SLOTS, waiting: SLOTS, wait: Duration::from_millis(200) };
/// The timeout of clients. At most as many requests are in flight as arrive in this time, so with that many
/// connections the load never waits for responses.
const PATIENCE: Duration = Duration::from_secs(1);
/// Added to the window of the plan, so that clients time out and the effects show.
const BESIDE_WINDOW: Duration = Duration::from_millis(1500);
/// The load of the smoke test.
const SMOKE_TIME: Duration = Duration::from_millis(500);
/// The limit beyond the configured time of the load.
const GRACE: Duration = Duration::from_secs(30);
const CONNECTIONS_MIN: usize = 64;
/// The least processor time for a figure. Below it, the resolution of the accounting shows.
const TICKS_MIN: f64 = 5.0;
/// The origin's response.
const ANSWER: &str = "served";

/// The load, in capacities of the origin.
static LOADS: [(&str, f64); 5] =
    [("load-0.5x", 0.5), ("load-1x", 1.0), ("load-1.5x", 1.5), ("load-3x", 3.0), ("load-10x", 10.0)];

static GOODPUT: Metric = Metric { name: "goodput", unit: "1/s", better: Better::Higher };
static KEPT: Metric = Metric { name: "goodput_of_peak", unit: "%", better: Better::Higher };
static SERVED_P99: Metric = Metric { name: "served_p99", unit: "ms", better: Better::Lower };
static REJECTED_P50: Metric = Metric { name: "rejected_p50", unit: "ms", better: Better::Lower };
static REJECTED_P99: Metric = Metric { name: "rejected_p99", unit: "ms", better: Better::Lower };
static CPU: Metric = Metric { name: "gateway_cpu", unit: "%", better: Better::Lower };
/// The results of requests.
pub(super) static SERVED: Metric = Metric { name: "served", unit: "%", better: Better::Higher };
pub(super) static TOO_MANY: Metric = Metric { name: "status_429", unit: "%", better: Better::Neither };
static BAD_GATEWAY: Metric = Metric { name: "status_502", unit: "%", better: Better::Neither };
pub(super) static UNAVAILABLE: Metric = Metric { name: "status_503", unit: "%", better: Better::Neither };
static TIMED_OUT: Metric = Metric { name: "status_504", unit: "%", better: Better::Neither };
static STATUSES: [(&str, &Metric); 4] =
    [("429", &TOO_MANY), ("502", &BAD_GATEWAY), ("503", &UNAVAILABLE), ("504", &TIMED_OUT)];
static OTHER_STATUS: Metric = Metric { name: "status_other", unit: "%", better: Better::Neither };
static GAVE_UP: Metric = Metric { name: "gave_up", unit: "%", better: Better::Lower };
static FAILED: Metric = Metric { name: "failed", unit: "%", better: Better::Lower };

const HELD_EQUAL: &str = "\
Equal for all subjects: an origin (bench/origin) with 32 slots, in each of which a request takes 80 ms, so 400 \
requests per second. Requests without a slot wait in order, and are processed even if their client has given up. The \
load is an open loop (oha): requests start at the stated rate whatever happened to earlier ones, and latency counts \
from the time at which they were due. Clients give up after 1 s. Each subject limits its requests to the origin as \
its documentation describes: to 32, and as many that wait, for at most 200 ms if that can be configured. \
[bench/peers](../bench/peers/README.md) lists the settings. *goodput* is the number of 200 responses within that \
second, per second from the first request to the last response, including the start of the overload. `failed` counts \
connections that were refused or reset.";

/// Runs all loads and returns the results.
pub(super) fn run(tools: &Tools, plan: &Plan) -> Result<Report> {
    let mut report = Report::new("overload");
    let oha = match tools.tool(Tool::Oha) {
        Ok(oha) => oha,
        Err(error) => {
            report.skip(format!("{error:#}"));
            return Ok(report);
        }
    };
    let [placement, _] = Placement::all()?;
    for &(name, load) in LOADS.iter().filter(|(name, load)| plan.takes(name) && is_in(plan.extent, *load)) {
        for round in 1..=plan.rounds {
            for subject in comparable(plan) {
                let measured = plan.attempt(|| measure(tools, plan, &placement, &oha, load, subject));
                let progress = match measured {
                    Ok(figures) => {
                        let line = format!("{:.0} of {:.0}/s", figures.goodput, CAPACITY * load);
                        figures.add_to(&mut report, name, subject);
                        line
                    }
                    Err(error) => {
                        report.add_missing(name, subject, &GOODPUT, format!("{error:#}"));
                        format!("not measured: {error:#}")
                    }
                };
                plan.progress(&format!("{name} {round}/{} {}: {progress}", plan.rounds, subject.name()));
            }
        }
    }
    add_kept(&mut report, plan);
    Ok(report)
}

/// The tables, after the conditions of the measurement.
pub(super) fn section(report: &Report, plan: &Plan) -> Result<String> {
    let [placement, _] = Placement::all()?;
    let subjects = comparable(plan);
    let mut text = format!("{HELD_EQUAL}\n\n- {}\n", placement.describe("oha and the origin"));
    text += &format!("- {} of load per measurement, by {}\n", seconds(plan), Tool::Oha.version());
    text += &format!("\nGoodput per second, median (lowest–highest) of {} rounds:\n\n", plan.rounds);
    text += &report.table(&GOODPUT, &subjects);
    text += "\nGoodput at ten times the capacity, as a percentage of the same subject's highest goodput at any load:\n\n";
    text += &report.table(&KEPT, &subjects);
    text += "\nMedians of latency, of the gateway's processor time (as a percentage of its processors, and per \
         request if enough was used for a figure), and of the results of requests:\n\n";
    let mut details: Vec<&'static Metric> =
        vec![&SERVED_P99, &REJECTED_P50, &REJECTED_P99, &CPU, &COST, &SERVED];
    details.extend(STATUSES.map(|(_, metric)| metric));
    details.extend([&OTHER_STATUS, &GAVE_UP, &FAILED]);
    text += &report.details(&details, &subjects);
    Ok(text + &report.missing())
}

/// The relay is left out, because it has no limits and does not parse requests.
fn comparable(plan: &Plan) -> Vec<Subject> {
    plan.subjects.iter().copied().filter(|subject| subject.role() != Role::Limit).collect()
}

fn is_in(extent: Extent, load: f64) -> bool {
    extent == Extent::Full || load > 5.0
}

fn time(plan: &Plan) -> Duration {
    if plan.extent == Extent::Smoke { SMOKE_TIME } else { BESIDE_WINDOW + plan.window }
}

fn seconds(plan: &Plan) -> String {
    format!("{} s", time(plan).as_secs_f64())
}

/// Adds for each round the goodput at the highest load, relative to the highest goodput.
fn add_kept(report: &mut Report, plan: &Plan) {
    let [.., (highest, _)] = LOADS;
    for subject in comparable(plan) {
        let of_load = |(name, _): &(&str, f64)| report.values(name, subject, &GOODPUT).to_vec();
        let all: Vec<Vec<f64>> = LOADS.iter().map(of_load).collect();
        if all.iter().any(|values| values.len() != plan.rounds) {
            continue;
        }
        for round in 0..plan.rounds {
            let of_round = all.iter().map(|values| values[round]);
            if let (Some(last), Some(peak)) = (of_round.clone().next_back(), of_round.reduce(f64::max)) {
                report.add(highest, subject, &KEPT, last * 100.0 / peak);
            }
        }
    }
}

fn measure(
    tools: &Tools,
    plan: &Plan,
    placement: &Placement,
    oha: &Path,
    load: f64,
    subject: Subject,
) -> Result<Figures> {
    let origin = start_origin(tools, &placement.load)?;
    let setup = Setup { limit: Some(LIMIT), ..Setup::new(&placement.gateway, origin.address) };
    let server = subject.start(tools, &setup)?;
    let answer = request(server.address, "/")?;
    ensure!(answer.ends_with(ANSWER), "the response is not the origin's: {:?}", answer.lines().next());
    let under_test = tree(server.id()?)?;
    let (start_us, watch) = (cpu_us(&under_test)?, Stopwatch::start());
    let outcome = generate(oha, placement, server.address, CAPACITY * load, time(plan))?;
    let used_us = cpu_us(&under_test)? - start_us;
    let available_us = watch.elapsed().as_secs_f64() * 1e6 * exact(placement.gateway.len() as u64);
    let served = served_by(&origin)?;
    let figures = outcome.figures(used_us, available_us)?;
    // One request was the harness's. Responses that the subject generates itself are not goodput.
    ensure!(outcome.count("200") < served, "the origin served {served} requests, fewer than got 200");
    Ok(figures)
}

fn start_origin(tools: &Tools, processors: &[usize]) -> Result<Server> {
    let address = free_address()?;
    let mut command = on(processors, &tools.slow_origin);
    command.args([address.to_string(), SLOTS.to_string(), DELAY.as_millis().to_string()]);
    let log = tools.folder("slow-origin")?.join("output.log");
    Server::start(&mut command, address, &log).context("starting the origin")
}

/// The number of requests that the origin has served.
fn served_by(origin: &Server) -> Result<u64> {
    let response = request(origin.address, "/served")?;
    let (_, count) = response.split_once("\r\n\r\n").context("the origin's count")?;
    count.parse().context("the origin's count")
}

/// Runs the load.
fn generate(
    oha: &Path,
    placement: &Placement,
    address: SocketAddr,
    rate: f64,
    time: Duration,
) -> Result<Outcome> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few thousand")]
    let connections = ((rate * PATIENCE.as_secs_f64()) as usize).max(CONNECTIONS_MIN);
    let mut command: Command = on(&placement.load, oha);
    command
        .args(["--no-tui", "--no-color", "--output-format", "json", "--stats-success-breakdown"])
        // Latency counts from the time at which a request was due. Requests in progress are awaited.
        .args(["--latency-correction", "--wait-ongoing-requests-after-deadline"])
        .args(["-z", &format!("{}ms", time.as_millis()), "-q", &format!("{rate:.0}")])
        .args(["-c", &connections.to_string(), "-t", &format!("{}ms", PATIENCE.as_millis())])
        .arg(format!("http://{address}/"));
    let caught = catch(&mut command, time + GRACE)?;
    ensure!(caught.success, "oha: {}", caught.last_line());
    let json = caught.output.get(caught.output.find('{').unwrap_or_default()..).unwrap_or_default();
    let mut values = serde_json::Deserializer::from_str(json).into_iter();
    values.next().context("oha printed no results")?.context("oha's results")
}

/// The results of oha.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    summary: Summary,
    /// In seconds, for responses below 400. This and the following fields are absent if there were none.
    latency_percentiles_successful: BTreeMap<String, Option<f64>>,
    latency_percentiles_not_successful: BTreeMap<String, Option<f64>>,
    status_code_distribution: BTreeMap<String, u64>,
    error_distribution: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
struct Summary {
    /// Seconds from the first request to the last response.
    total: f64,
}

/// The figures of one measurement.
#[derive(Debug)]
struct Figures {
    goodput: f64,
    others: Vec<(&'static Metric, f64)>,
}

impl Outcome {
    fn count(&self, status: &str) -> u64 {
        self.status_code_distribution.get(status).copied().unwrap_or_default()
    }

    fn figures(&self, used_us: f64, available_us: f64) -> Result<Figures> {
        let answered: u64 = self.status_code_distribution.values().sum();
        let gave_up = self.error_distribution.get("timeout").copied().unwrap_or_default();
        let failed = self.error_distribution.values().sum::<u64>() - gave_up;
        let arrived = exact(answered + gave_up + failed);
        ensure!(arrived > 0.0, "oha sent nothing");
        let part = |count: u64| exact(count) * 100.0 / arrived;
        let mut others = vec![(&CPU, used_us * 100.0 / available_us), (&SERVED, part(self.count("200")))];
        if used_us >= TICKS_MIN * TICK_US {
            others.push((&COST, used_us / arrived));
        }
        let percentile = |of: &BTreeMap<String, Option<f64>>, name| of.get(name).copied().flatten();
        let latencies = [
            (&SERVED_P99, percentile(&self.latency_percentiles_successful, "p99")),
            (&REJECTED_P50, percentile(&self.latency_percentiles_not_successful, "p50")),
            (&REJECTED_P99, percentile(&self.latency_percentiles_not_successful, "p99")),
        ];
        others.extend(latencies.into_iter().filter_map(|(metric, seconds)| Some((metric, seconds? * 1e3))));
        let known = STATUSES.iter().map(|(status, metric)| (*metric, self.count(status)));
        let unknown = answered - self.count("200") - known.clone().map(|(_, count)| count).sum::<u64>();
        let fates = known.chain([(&OTHER_STATUS, unknown), (&GAVE_UP, gave_up), (&FAILED, failed)]);
        others.extend(fates.map(|(metric, count)| (metric, part(count))));
        Ok(Figures { goodput: exact(self.count("200")) / self.summary.total, others })
    }
}

impl Figures {
    fn add_to(self, report: &mut Report, case: &str, subject: Subject) {
        report.add(case, subject, &GOODPUT, self.goodput);
        for (metric, value) in self.others {
            report.add(case, subject, metric, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULTS: &str = r#"{
        "summary": {"successRate": 0.5, "total": 2.5},
        "latencyPercentilesSuccessful": {"p50": 0.08, "p99": 0.25},
        "latencyPercentilesNotSuccessful": {"p50": 0.002, "p99": null},
        "statusCodeDistribution": {"200": 500, "503": 300, "500": 50},
        "errorDistribution": {"timeout": 100, "connection refused": 50}
    }"#;

    fn value(figures: &Figures, metric: &Metric) -> Option<f64> {
        figures.others.iter().find(|(other, _)| other.name == metric.name).map(|(_, value)| *value)
    }

    #[test]
    fn every_request_has_one_result() {
        let outcome: Outcome = serde_json::from_str(RESULTS).unwrap();
        let figures = outcome.figures(100_000.0, 1_000_000.0).unwrap();
        assert!((figures.goodput - 200.0).abs() < 1e-9);
        let fates =
            [(&SERVED, 50.0), (&UNAVAILABLE, 30.0), (&OTHER_STATUS, 5.0), (&GAVE_UP, 10.0), (&FAILED, 5.0)];
        let sum: f64 = fates
            .iter()
            .map(|(metric, expected)| {
                let part = value(&figures, metric).unwrap();
                assert!((part - expected).abs() < 1e-9, "{}: {part}", metric.name);
                part
            })
            .sum();
        assert!((sum - 100.0).abs() < 1e-9);
        assert_eq!(value(&figures, &COST), Some(100.0));
        assert_eq!(value(&figures, &REJECTED_P50), Some(2.0));
        assert_eq!(value(&figures, &REJECTED_P99), None);
    }

    #[test]
    fn processor_time_below_the_resolution_of_the_accounting_is_not_reported() {
        let outcome: Outcome = serde_json::from_str(RESULTS).unwrap();
        assert_eq!(value(&outcome.figures(40_000.0, 1_000_000.0).unwrap(), &COST), None);
    }

    #[test]
    fn the_capacity_is_that_of_the_slots() {
        assert!((exact(SLOTS as u64) / DELAY.as_secs_f64() - CAPACITY).abs() < 1e-9);
    }
}
