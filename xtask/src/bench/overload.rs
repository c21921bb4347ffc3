//! The bench `overload`: what is left of an origin's capacity when more is asked of it than it can do.

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

/// What the origin can do: 400 requests per second.
const SLOTS: usize = 32;
const DELAY: Duration = Duration::from_millis(80);
const CAPACITY: f64 = 400.0;
/// What the subjects are told to let wait. One more turn of all slots.
const LIMIT: Limit = Limit { slots: SLOTS, waiting: SLOTS, wait: Duration::from_millis(200) };
/// After which a client gives up. Requests in flight can't be more than arrive during it, so with as many
/// connections the load never waits for answers.
const PATIENCE: Duration = Duration::from_secs(1);
/// Beside the window of the plan: for clients to lose their patience, and for what follows from that to show.
const BESIDE_WINDOW: Duration = Duration::from_millis(1500);
/// Of the smoke test.
const SMOKE_TIME: Duration = Duration::from_millis(500);
/// Beyond the time that the load was told to take.
const GRACE: Duration = Duration::from_secs(30);
const CONNECTIONS_MIN: usize = 64;
/// The least that the processes under test must have used for a figure: below, the unit of the accounting shows.
const TICKS_MIN: f64 = 5.0;
/// What the origin says.
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
/// What became of the requests.
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
Held equal: an origin (bench/origin) with 32 slots, each of which a request takes for 80 ms, so 400 requests per \
second; those that find no slot wait there in order, and their turn comes whether or not somebody still waits for \
them. The load is an open loop (oha): requests start at the stated rate whatever happened to those before, and their \
latency counts from when they were due. Clients give up after 1 s. Each subject limits what it sends to the origin \
as its documentation says, to 32 requests and as many that wait for them, for 200 ms where it can say so; \
[bench/peers](../bench/peers/README.md) says what each has. *goodput* is what was answered with 200 within that second, per \
second from the first request to the last answer, the start of the storm included. `failed` are connections that \
were refused or reset.";

/// Runs all loads and returns what was measured.
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

/// The tables, with what was held equal.
pub(super) fn section(report: &Report, plan: &Plan) -> Result<String> {
    let [placement, _] = Placement::all()?;
    let subjects = comparable(plan);
    let mut text = format!("{HELD_EQUAL}\n\n- {}\n", placement.describe("oha and the origin"));
    text += &format!("- {} of load per measurement, by {}\n", seconds(plan), Tool::Oha.version());
    text += &format!("\nGoodput per second, median (lowest–highest) of {} rounds:\n\n", plan.rounds);
    text += &report.table(&GOODPUT, &subjects);
    text += "\nGoodput at ten times the capacity, as a part of the same subject's highest at any load:\n\n";
    text += &report.table(&KEPT, &subjects);
    text += "\nMedians of latency, of the processor time of the gateway (of all that its processors have, and per \
             request that arrived, where that was enough to be counted), and of what became of the requests:\n\n";
    let mut details: Vec<&'static Metric> =
        vec![&SERVED_P99, &REJECTED_P50, &REJECTED_P99, &CPU, &COST, &SERVED];
    details.extend(STATUSES.map(|(_, metric)| metric));
    details.extend([&OTHER_STATUS, &GAVE_UP, &FAILED]);
    text += &report.details(&details, &subjects);
    Ok(text + &report.missing())
}

/// The relay is left out: it knows no limit, and nothing of what it carries.
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

/// Of each round, what was left at the highest load of the highest goodput.
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
    ensure!(answer.ends_with(ANSWER), "it does not bring the origin's answer: {:?}", answer.lines().next());
    let under_test = tree(server.id()?)?;
    let (start_us, watch) = (cpu_us(&under_test)?, Stopwatch::start());
    let outcome = generate(oha, placement, server.address, CAPACITY * load, time(plan))?;
    let used_us = cpu_us(&under_test)? - start_us;
    let available_us = watch.elapsed().as_secs_f64() * 1e6 * exact(placement.gateway.len() as u64);
    let served = served_by(&origin)?;
    let figures = outcome.figures(used_us, available_us)?;
    // One was ours. What the subject makes up by itself is no goodput.
    ensure!(
        outcome.count("200") < served,
        "the origin served {served} in all, fewer than were answered with 200"
    );
    Ok(figures)
}

fn start_origin(tools: &Tools, processors: &[usize]) -> Result<Server> {
    let address = free_address()?;
    let mut command = on(processors, &tools.slow_origin);
    command.args([address.to_string(), SLOTS.to_string(), DELAY.as_millis().to_string()]);
    let log = tools.folder("slow-origin")?.join("output.log");
    Server::start(&mut command, address, &log).context("starting the origin")
}

/// How many requests it has served.
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
        // Latency counts from when a request was due; what has begun is waited for.
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

/// What oha counted.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    summary: Summary,
    /// In seconds, of answers below 400; absent where there were none, as all that follow.
    latency_percentiles_successful: BTreeMap<String, Option<f64>>,
    latency_percentiles_not_successful: BTreeMap<String, Option<f64>>,
    status_code_distribution: BTreeMap<String, u64>,
    error_distribution: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
struct Summary {
    /// Seconds from the first request to the last answer.
    total: f64,
}

/// What is said of one measurement.
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
    fn every_request_has_one_fate() {
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
    fn processor_time_below_the_unit_of_the_accounting_is_no_figure() {
        let outcome: Outcome = serde_json::from_str(RESULTS).unwrap();
        assert_eq!(value(&outcome.figures(40_000.0, 1_000_000.0).unwrap(), &COST), None);
    }

    #[test]
    fn the_capacity_is_that_of_the_slots() {
        assert!((exact(SLOTS as u64) / DELAY.as_secs_f64() - CAPACITY).abs() < 1e-9);
    }
}
