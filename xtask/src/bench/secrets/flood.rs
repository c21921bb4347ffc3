//! Wrong secrets at ten times the hash rate: their effect on all other requests.
//!
//! One gateway is measured at a time, and the flood is sent to it and to a sink in turns of seconds, because a shared
//! machine has periods in which everything takes twice as long. The gateway is measured on processors that it shares
//! with the load and the flood, and on a processor of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::super::jvm::{Client, lines};
use super::super::machine::{Placement, on};
use super::super::origin::Origin;
use super::super::overload::{SERVED, TOO_MANY, UNAVAILABLE};
use super::super::report::{Better, Metric, Report, median};
use super::super::server::{Server, free_address, pause, request};
use super::super::subject::Subject;
use super::super::tools::{Tools, check_configuration};
use super::super::window::{OTHERS, P50, P99, Window, exact};
use super::super::{Extent, Plan};
use super::open_loop::{Generator, Kind, OpenLoop, Outcome, Running};
use super::registry::{Registry, Settings, hashes_per_second};

pub(super) const CASE: &str = "flood";
/// The default of the authorization server.
const ITERATIONS: u32 = 210_000;
/// The rate of the flood, in multiples of the capacity of the hash threads.
const FLOOD: f64 = 10.0;
/// Addresses of the flood: so many that none guesses often enough to be refused at once.
const SOURCES: usize = 509;
/// Different guesses: more than are sent during a measurement by default, so that no nonexistent client is used
/// twice.
const GUESSES: usize = 131_072;
/// Clients of the load whose secrets are cached, and those whose secrets are not.
const REMEMBERED: usize = 15;
const NOT_REMEMBERED: usize = 1;
/// How long the flood runs before the turns: until each address has failed once. Of about a hundred hashes per
/// second, a quarter goes to addresses that have already failed.
const BEFORE: Duration = Duration::from_secs(10);
/// The part of that time after which the attacked client starts.
const LATE: u32 = 6;
/// The length of a turn.
const TURN: Duration = Duration::from_secs(2);
/// The time until the gateway's queue is full.
const FILL: Duration = Duration::from_millis(600);
/// The time until the queue is empty after the flood has moved.
const DRAIN: Duration = Duration::from_millis(2_500);
/// Each of these in the smoke test.
const SMOKE: Duration = Duration::from_millis(200);
/// The time for announcing turns to all programs, for all turns of one gateway.
const TELLING: Duration = Duration::from_millis(1_500);
/// The least part of the due requests that a valid turn must have sent.
const REQUESTS_PERCENT_MIN: f64 = 80.0;
/// The allowed difference.
const ALLOWED: f64 = 0.2;
/// The least part of the attacked client's attempts that must succeed.
const SERVED_PERCENT_MIN: f64 = 95.0;
/// The most processor time of the load without a flood.
const LOAD_PERCENT_MAX: f64 = 30.0;
const ARMS: [Subject; 3] = [Subject::Sink, Subject::Cardea, Subject::SinkAgain];

/// The turns, in the order of the parts of all loads. A turn that is not measured has no subject.
const TURNS: [Turn; 5] = [
    Turn { subject: None, at_sink: false, time: FILL },
    Turn { subject: Some(Subject::Cardea), at_sink: false, time: TURN },
    Turn { subject: None, at_sink: true, time: DRAIN },
    Turn { subject: Some(Subject::Sink), at_sink: true, time: TURN },
    Turn { subject: Some(Subject::SinkAgain), at_sink: true, time: TURN },
];

/// The part for everything after the last turn.
const AFTER: usize = 2;
const _: () = assert!(TURNS[AFTER].subject.is_none() && TURNS[AFTER].at_sink, "what comes after is measured");

/// A period in which the flood is sent to one target.
#[derive(Clone, Copy, Debug)]
struct Turn {
    subject: Option<Subject>,
    at_sink: bool,
    time: Duration,
}

/// A load beside the flood.
#[derive(Clone, Copy, Debug)]
struct Part {
    case: &'static str,
    /// Requests per second for each processor of the gateway.
    rate: f64,
    connections: usize,
}

const PROXIED: Part = Part { case: "flood-proxied", rate: 500.0, connections: 16 };
const FROM_MEMORY: Part = Part { case: "flood-remembered", rate: 50.0, connections: 8 };
const HASHED: Part = Part { case: "flood-attacked-not-remembered", rate: 2.5, connections: 8 };
/// The loads whose latency must not change.
const KEPT: [Part; 2] = [PROXIED, FROM_MEMORY];
const BESIDE: [Part; 3] = [PROXIED, FROM_MEMORY, HASHED];

impl Part {
    /// Its name in a placement.
    fn name(&self, placement: &Placement) -> String {
        format!("{}-{}", self.case, placement.name)
    }

    fn rate(&self, placement: &Placement) -> f64 {
        self.rate * exact(placement.gateway.len() as u64)
    }
}

/// The name of the gateway's own figures in a placement.
fn whole(placement: &Placement) -> String {
    format!("{CASE}-{}", placement.name)
}

/// Before the turns.
static AT_FIRST: Metric = Metric { name: "served_at_first", unit: "%", better: Better::Higher };
static CPU: Metric = Metric { name: "gateway_cpu", unit: "% of its processors", better: Better::Neither };
static HASHES: Metric = Metric { name: "hashes", unit: "1/s", better: Better::Neither };
static GUESSED: Metric = Metric { name: "guesses", unit: "1/s", better: Better::Neither };
static WRONG: Metric = Metric { name: "status_401", unit: "%", better: Better::Neither };
static CLOSED: Metric = Metric { name: "closed", unit: "%", better: Better::Neither };
static CAPACITY: Metric = Metric { name: "capacity", unit: "1/s", better: Better::Neither };

/// Measures all rounds.
pub(super) fn add(report: &mut Report, tools: &Tools, plan: &Plan) -> Result<()> {
    let remembered: Vec<bool> = (0..REMEMBERED + NOT_REMEMBERED).map(|number| number < REMEMBERED).collect();
    let registry = Registry::make(tools, CASE, ITERATIONS, &remembered)?;
    let capacity = hashes_per_second(tools, ITERATIONS)?;
    report.add(CASE, Subject::Cardea, &CAPACITY, capacity);
    let (known, hashed) = registry.clients.split_at(REMEMBERED);
    let (remembered, hashed) = (registry.some("remembered", known)?, registry.some("hashed", hashed)?);
    let guesses = registry.some("guesses", &guesses(&registry.clients))?;
    for placement in &placements(plan)? {
        let flood = Flood {
            tools,
            plan,
            placement,
            generator: Generator::provide(tools, &placement.load)?,
            remembered: &remembered,
            hashed: &hashed,
            guesses: &guesses,
            registry: &registry,
            rate: FLOOD * capacity,
        };
        let name = whole(placement);
        for round in 1..=plan.rounds {
            let said = match plan.attempt(|| flood.measure()) {
                Ok(figures) => {
                    let said = KEPT.map(|part| said(part, &figures));
                    for Figure { case, subject, metric, value } in figures {
                        report.add(&format!("{case}-{}", placement.name), subject, metric, value);
                    }
                    format!("p99 in µs: {}", said.join("; "))
                }
                Err(error) => {
                    report.add_missing(&PROXIED.name(placement), Subject::Cardea, &P99, format!("{error:#}"));
                    format!("not measured: {error:#}")
                }
            };
            plan.progress(&format!("{name} {round}/{}: {said}", plan.rounds));
        }
    }
    Ok(())
}

/// The placements of the gateway; none if this bench is not selected.
pub(super) fn placements(plan: &Plan) -> Result<Vec<Placement>> {
    Ok(Placement::all()?.into_iter().filter(|placement| plan.takes(&whole(placement))).collect())
}

/// The summary of a load in a round.
fn said(part: Part, figures: &[Figure]) -> String {
    let [sink, cardea, again] = ARMS.map(|subject| {
        let is_p99 = |figure: &&Figure| {
            figure.case == part.case && figure.subject == subject && figure.metric.name == P99.name
        };
        figures.iter().find(is_p99).map_or(0.0, |figure| figure.value)
    });
    format!("{} {sink:.0}, again {again:.0}, flooded {cardea:.0}", part.case)
}

/// The tables, and whether the criteria are met.
pub(super) fn section(report: &Report, plan: &Plan) -> Result<String> {
    let placements = placements(plan)?;
    let capacity = report.values(CASE, Subject::Cardea, &CAPACITY).first().copied().unwrap_or_default();
    let mut text = format!(
        "`{CASE}`: wrong secrets, in an open loop at ten times the {capacity:.0} hashes per second that the hash \
         threads can compute (PBKDF2-HMAC-SHA-512, 210,000 iterations, the default; `cardea bench kdf`), each over a \
         new connection, from {SOURCES} addresses in turn. Of three guesses, one is for a client of the load whose \
         secret is in the verification cache, one for a client whose secret is never cached (the attacked client), \
         and one for a client that doesn't exist, each time another. Beside the flood, per second and processor of \
         the gateway: {:.0} proxied requests, {:.0} grants for {REMEMBERED} clients with cached secrets, and {} for \
         the attacked client. They come from another address than any guess, in open loops over kept-alive \
         connections. One gateway is measured at a time. The flood is sent to it (`cardea`) and to a program that \
         accepts connections and closes them (`sink`, and again `sink-again`) in turns of {} s, until each has had \
         the seconds above. So turns differ only by the flood, and a shared machine is equally fast in all of them. \
         The {} s until the queue is full, and the {} s until it has drained, belong to no turn. Each round starts \
         the gateway again. Before its turns, the flood runs for {} s, in which each guessing address fails once. The \
         attacked client starts after the first sixth of this time (`served_at_first`).\n\n",
        PROXIED.rate,
        FROM_MEMORY.rate,
        HASHED.rate,
        TURN.as_secs(),
        FILL.as_secs_f64(),
        DRAIN.as_secs_f64(),
        BEFORE.as_secs(),
    );
    for placement in &placements {
        text += &format!("- {}\n", placement.describe("the load, the flood and the origin"));
    }
    text += &format!(
        "\nThe effect on other requests (p99 in µs, medians of {} rounds; the difference is that of the median round):\n\n",
        plan.rounds
    );
    text += "| what | flood at a sink | A/A | flood at Cardea | difference | allowed | |\n|---|---|---|---|---|---|---|\n";
    for name in placements.iter().flat_map(|placement| KEPT.map(|part| part.name(placement))) {
        let row = verdict(report, &name);
        text += &row.unwrap_or_else(|| format!("| {name} | not measured | | | | | |\n"));
    }
    text += "\nThe attacked client, from an address without guesses (medians):\n\n";
    text += "| what | served, flood at a sink | served, flood at Cardea | at least | latency_p50 (ms) | |\n";
    text += "|---|---|---|---|---|---|\n";
    for name in placements.iter().map(|placement| HASHED.name(placement)) {
        let row = entry(report, &name);
        text += &row.unwrap_or_else(|| format!("| {name} | not measured | | | | |\n"));
    }
    text += "\n";
    for placement in &placements {
        let Some(load) = median(report.values(&whole(placement), Subject::Sink, &CPU)) else { continue };
        let relation = if load <= LOAD_PERCENT_MAX { "within" } else { "beyond" };
        text += &format!(
            "- `{}`: without a flood the load takes {load:.0} % of the gateway's processors, {relation} the allowed \
             {LOAD_PERCENT_MAX:.0} %.\n",
            placement.name
        );
    }
    text += "\nMedians:\n\n";
    let details = [
        &P50,
        &P99,
        &SERVED,
        &AT_FIRST,
        &CPU,
        &HASHES,
        &GUESSED,
        &WRONG,
        &TOO_MANY,
        &UNAVAILABLE,
        &CLOSED,
        &OTHERS,
    ];
    text += &report.details(&details, &ARMS);
    Ok(text)
}

/// A row: the flood at Cardea, the flood at the sink, and the allowed difference.
fn verdict(report: &Report, name: &str) -> Option<String> {
    let values = |subject| report.values(name, subject, &P99);
    let (sink, again, flooded) = (values(Subject::Sink), values(Subject::SinkAgain), values(Subject::Cardea));
    let rounds = || sink.iter().zip(again).zip(flooded);
    // Compared by round, because the machine's speed may differ in the next one.
    let quiet = median(&rounds().map(|((one, other), _)| (one + other) / 2.0).collect::<Vec<_>>())?;
    let noise: Vec<f64> =
        rounds().map(|((one, other), _)| (one - other).abs() / one.min(*other).max(1.0)).collect();
    let differences: Vec<f64> =
        rounds().map(|((one, other), flooded)| flooded / ((one + other) / 2.0).max(1.0) - 1.0).collect();
    let (noise, difference) = (median(&noise)?, median(&differences)?);
    let allowed = noise.max(ALLOWED);
    Some(format!(
        "| {name} | {quiet:.0} | {:.0} % | {:.0} | {:+.0} % | {:.0} % | {} |\n",
        noise * 100.0,
        median(flooded)?,
        difference * 100.0,
        allowed * 100.0,
        if difference <= allowed { "met" } else { "not met" }
    ))
}

/// A row: how often the attacked client succeeds.
fn entry(report: &Report, name: &str) -> Option<String> {
    let of = |subject, metric| median(report.values(name, subject, metric));
    let (quiet, flooded) = (of(Subject::Sink, &SERVED)?, of(Subject::Cardea, &SERVED)?);
    let latency = of(Subject::Cardea, &P50)? / 1e3;
    Some(format!(
        "| {name} | {quiet:.0} % | {flooded:.0} % | {SERVED_PERCENT_MIN:.0} % | {latency:.0} | {} |\n",
        if flooded >= SERVED_PERCENT_MIN { "met" } else { "not met" }
    ))
}

/// Wrong secrets for the first client, which is cached, for the last one, which is not, and for a nonexistent one.
fn guesses(clients: &[Client]) -> Vec<Client> {
    let ids = [clients.first(), clients.last()].map(|client| client.map_or("", |client| client.id.as_str()));
    let guess = |number: usize| {
        let id = ids.get(number % 3).map_or_else(|| format!("nobody-{number}"), |id| (*id).to_owned());
        Client { id, secret: format!("guess-{number}") }
    };
    (0..GUESSES).map(guess).collect()
}

struct Flood<'a> {
    tools: &'a Tools,
    plan: &'a Plan,
    placement: &'a Placement,
    generator: Generator<'a>,
    registry: &'a Registry,
    remembered: &'a Path,
    hashed: &'a Path,
    guesses: &'a Path,
    rate: f64,
}

/// One figure of one case.
struct Figure {
    case: &'static str,
    subject: Subject,
    metric: &'static Metric,
    value: f64,
}

/// The processor time of all turns of one kind.
#[derive(Clone, Debug, Default)]
struct Sum {
    cpu_us: f64,
    elapsed_us: f64,
    /// Other processes, in percent of the processors times µs.
    others: f64,
    hashes: f64,
}

impl Flood<'_> {
    /// Starts a gateway, and measures while the flood is sent to it and to a sink in turn.
    fn measure(&self) -> Result<Vec<Figure>> {
        let smoke = self.plan.extent == Extent::Smoke;
        let length = |time: Duration| if smoke { time.min(SMOKE) } else { time };
        let times = self.plan.window.div_duration_f64(TURN).round().max(1.0) as u32;
        let (before, turns) = (length(BEFORE), TURNS.map(|turn| Turn { time: length(turn.time), ..turn }));
        let in_turn: Duration = turns.iter().map(|turn| turn.time).sum::<Duration>() * times + TELLING;
        let origin = Origin::start(self.tools, &self.placement.load)?;
        let (server, admin) = self.start(origin.address())?;
        let sink = self.generator.sink(&self.registry.folder)?;
        self.remember(server.address)?;
        let addresses = turns.map(|turn| if turn.at_sink { sink.address } else { server.address });
        let flood = self.generator.start(&OpenLoop {
            addresses: &addresses,
            rate: self.rate,
            time: before + in_turn,
            connections: 0,
            kind: Kind::Guesses { file: self.guesses, sources: SOURCES },
        })?;
        // The attacked client starts when the queue is full and most guessing addresses are still new.
        pause(before / LATE);
        let time_at_first = before - before / LATE;
        let (rate, connections, kind) =
            (HASHED.rate(self.placement), HASHED.connections, Kind::Grants(self.hashed));
        let addresses = &[server.address];
        let at_first =
            self.generator.start(&OpenLoop { addresses, rate, time: time_at_first, connections, kind })?;
        pause(time_at_first);
        let mut loads = vec![flood];
        loads.extend(self.others(server.address, in_turn)?);
        let mut sums = turns.map(|_| Sum::default());
        for _ in 0..times {
            for (part, (turn, sum)) in turns.iter().zip(&mut sums).enumerate() {
                loads.iter_mut().try_for_each(|load| load.begin(part))?;
                if turn.subject.is_none() {
                    pause(turn.time);
                    continue;
                }
                let (hashes, window) = (hashes(admin)?, Window::begin(self.placement, &server)?);
                pause(turn.time);
                let used = window.end()?;
                sum.cpu_us += used.cpu_us;
                sum.elapsed_us += used.elapsed_us;
                sum.others += used.others_percent * used.elapsed_us;
                sum.hashes += self::hashes(admin)? - hashes;
            }
        }
        // Requests after the last turn don't belong to it.
        loads.iter_mut().try_for_each(|load| load.begin(AFTER))?;
        let outcomes = loads.into_iter().map(Running::finish_parts).collect::<Result<Vec<_>>>()?;
        let at_first = at_first.finish()?;
        let mut figures = vec![Figure {
            case: HASHED.case,
            subject: Subject::Cardea,
            metric: &AT_FIRST,
            value: at_first.served_percent(),
        }];
        for (part, (turn, sum)) in turns.iter().zip(&sums).enumerate() {
            let Some(subject) = turn.subject else { continue };
            let outcomes: Vec<Outcome> =
                outcomes.iter().map(|parts| parts.get(part).copied().unwrap_or_default()).collect();
            self.figures(subject, sum, &outcomes, &mut figures)?;
        }
        Ok(figures)
    }

    /// The figures of one kind of turn, from the results of the guesses and of all loads.
    fn figures(
        &self,
        subject: Subject,
        sum: &Sum,
        outcomes: &[Outcome],
        figures: &mut Vec<Figure>,
    ) -> Result<()> {
        let [guessed, others @ ..] = outcomes else { bail!("there was no flood") };
        let mut add = |case, metric, value| figures.push(Figure { case, subject, metric, value });
        let seconds = sum.elapsed_us / 1e6;
        let enough = |what: &str, outcome: &Outcome, rate: f64| {
            let percent = outcome.requests * 100.0 / (rate * seconds);
            let few = percent < REQUESTS_PERCENT_MIN && self.plan.extent != Extent::Smoke;
            ensure!(!few, "{what}: {percent:.0} % of the due requests were sent");
            Ok(())
        };
        enough(CASE, guessed, self.rate)?;
        let part = |count: f64| count * 100.0 / guessed.requests;
        let processors = exact(self.placement.gateway.len() as u64);
        add(CASE, &CPU, sum.cpu_us * 100.0 / (sum.elapsed_us * processors));
        add(CASE, &HASHES, sum.hashes / seconds);
        add(CASE, &GUESSED, guessed.requests / seconds);
        add(CASE, &WRONG, part(guessed.wrong));
        add(CASE, &TOO_MANY, part(guessed.too_often));
        add(CASE, &UNAVAILABLE, part(guessed.busy));
        add(CASE, &CLOSED, part(guessed.closed));
        add(CASE, &OTHERS, sum.others / sum.elapsed_us);
        for (part, outcome) in BESIDE.iter().zip(others) {
            let case = part.case;
            enough(case, outcome, part.rate(self.placement))?;
            // The correct secret is never refused as wrong.
            ensure!(outcome.wrong + outcome.too_often < 1.0, "{case}: {outcome:?}");
            ensure!(case == HASHED.case || outcome.served >= outcome.requests, "{case}: {outcome:?}");
            add(case, &P50, outcome.p50_us);
            add(case, &P99, outcome.p99_us);
            add(case, &SERVED, outcome.served_percent());
        }
        Ok(())
    }

    /// Starts the loads beside the flood.
    fn others(&self, address: SocketAddr, time: Duration) -> Result<Vec<Running>> {
        let kinds = [Kind::Get("/small"), Kind::Grants(self.remembered), Kind::Grants(self.hashed)];
        let start = |(part, kind): (&Part, _)| {
            let (rate, connections) = (part.rate(self.placement), part.connections);
            self.generator.start(&OpenLoop { addresses: &[address], rate, time, connections, kind })
        };
        BESIDE.iter().zip(kinds).map(start).collect()
    }

    /// Authenticates each client whose secret may be cached, before the flood.
    fn remember(&self, address: SocketAddr) -> Result<()> {
        let clients = self.registry.clients.get(..REMEMBERED).unwrap_or_default();
        for client in clients {
            let file = self.registry.some("one", std::slice::from_ref(client))?;
            let (time, kind) = (Duration::from_millis(1), Kind::Grants(&file));
            let load = OpenLoop { addresses: &[address], rate: 1_000.0, time, connections: 1, kind };
            let outcome = self.generator.start(&load)?.finish()?;
            ensure!(
                outcome.served >= 1.0,
                "{} is refused: {outcome:?}",
                lines(&[Client { secret: String::new(), ..client.clone() }])
            );
        }
        Ok(())
    }

    fn start(&self, origin: SocketAddr) -> Result<(Server, SocketAddr)> {
        let folder = self.tools.folder(Subject::Cardea.name())?;
        let (listen, admin) = (free_address()?, free_address()?);
        let (registry, iterations) = (self.registry, ITERATIONS);
        let settings = Settings { listen, admin, origin, registry, iterations, remember: "10m" };
        let config = settings.write(self.tools, &folder)?;
        check_configuration(&self.tools.cardea, &config)?;
        let mut command = on(&self.placement.gateway, &self.tools.cardea);
        command.arg("run").arg("--config").arg(config).current_dir(&folder);
        let server =
            Server::start(&mut command, listen, &folder.join("output.log")).context("starting cardea")?;
        Ok((server, admin))
    }
}

/// The number of computed hashes, from its metrics.
fn hashes(admin: SocketAddr) -> Result<f64> {
    sum(&request(admin, "/metrics")?, "cardea_secret_hashes_total{").context("the metric of hashes")
}

fn sum(metrics: &str, name: &str) -> Option<f64> {
    let values = metrics.lines().filter(|line| line.starts_with(name));
    values
        .map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .try_fold(0.0, |sum, value| Some(sum + value?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_are_for_two_clients_and_a_nonexistent_one_and_always_wrong() {
        let client = |id: &str| Client { id: id.to_owned(), secret: "right".to_owned() };
        let guesses = guesses(&[client("first"), client("other"), client("last")]);
        let ids: Vec<&str> = guesses.iter().take(3).map(|guess| guess.id.as_str()).collect();
        assert_eq!(ids, ["first", "last", "nobody-2"]);
        assert!(guesses.iter().all(|guess| guess.secret != "right"));
    }

    #[test]
    fn a_metric_is_the_sum_of_its_series() {
        let metrics = "# HELP a b\na{x=\"1\"} 2\na{x=\"2\"} 3\nab{x=\"1\"} 9\n";
        assert_eq!(sum(metrics, "a{"), Some(5.0));
        assert_eq!(sum("a{x=\"1\"} z\n", "a{"), None);
    }

    #[test]
    fn the_criterion_needs_nearly_all_attempts_of_the_attacked_client() {
        for (flooded, verdict) in [(95.0, "| met |\n"), (94.0, "| not met |\n")] {
            let mut report = Report::new("secrets");
            assert_eq!(entry(&report, "attacked"), None);
            for (subject, served) in [(Subject::Sink, 100.0), (Subject::Cardea, flooded)] {
                report.add("attacked", subject, &SERVED, served);
                report.add("attacked", subject, &P50, 120_000.0);
            }
            assert!(entry(&report, "attacked").unwrap().ends_with(verdict));
        }
    }

    #[test]
    fn a_difference_within_noise_or_a_fifth_is_allowed() {
        let row = |rounds: &[[f64; 3]]| {
            let mut report = Report::new("secrets");
            for round in rounds {
                for (subject, value) in ARMS.into_iter().zip(round) {
                    report.add("others", subject, &P99, *value);
                }
            }
            verdict(&report, "others")
        };
        let noisy = row(&[[100.0, 149.0, 130.0], [100.0, 120.0, 100.0], [100.0, 145.0, 130.0]]);
        assert_eq!(noisy.unwrap(), "| others | 115 | 30 % | 145 | +26 % | 30 % | met |\n");
        let quiet = row(&[[100.0, 126.0, 100.0], [100.0, 125.0, 100.0], [100.0, 127.0, 100.0]]);
        assert_eq!(quiet.unwrap(), "| others | 100 | 0 % | 126 | +26 % | 20 % | not met |\n");
        // A round at half the speed is compared only with itself.
        let two_speeds = row(&[
            [200.0, 220.0, 200.0],
            [100.0, 110.0, 100.0],
            [200.0, 220.0, 200.0],
            [100.0, 110.0, 100.0],
            [100.0, 110.0, 100.0],
        ]);
        assert_eq!(two_speeds.unwrap(), "| others | 100 | 0 % | 110 | +10 % | 20 % | met |\n");
        assert_eq!(row(&[]), None);
    }
}
