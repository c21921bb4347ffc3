//! Wrong secrets, ten times as many as can be hashed: what everybody else notices of them.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

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
use super::open_loop::{Generator, Kind, OpenLoop, Outcome};
use super::registry::{Costs, Registry, Settings, Stored};

pub(super) const CASE: &str = "flood";
/// What is stored by default.
const ITERATIONS: u32 = 210_000;
/// In capacities of the hash threads.
const FLOOD: f64 = 10.0;
/// Who guesses: no address often enough to be refused for it at once.
const SOURCES: usize = 509;
/// Of guesses, which are sent in turn: more than are sent in the time that a measurement takes by default, so that no
/// client that doesn't exist is asked for twice.
const GUESSES: usize = 65_536;
/// Clients of the load that are remembered, and such that never are.
const REMEMBERED: usize = 15;
const NOT_REMEMBERED: usize = 1;
/// The flood before the window: until each of the addresses has had a hash and failed, so that it is under way. Of some
/// hundred hashes per second, a quarter goes to those that have failed already.
const BEFORE: Duration = Duration::from_secs(10);
/// The attacked client comes after such a part of it.
const LATE: u32 = 6;
/// And after it, so that it doesn't end within it.
const AFTER: Duration = Duration::from_millis(1_500);
/// Both, of the smoke test.
const BESIDE_SMOKE: Duration = Duration::from_millis(200);
/// May differ without being a difference.
const ALLOWED: f64 = 0.2;
/// Of its attempts the attacked client must get in with so many.
const SERVED_PERCENT_MIN: f64 = 95.0;
/// What the load may take of the processors without a flood.
const LOAD_PERCENT_MAX: f64 = 30.0;
const ARMS: [Subject; 3] = [Subject::Sink, Subject::Cardea, Subject::SinkAgain];

/// What is asked for beside the flood.
#[derive(Clone, Copy, Debug)]
struct Part {
    case: &'static str,
    rate: f64,
    connections: usize,
}

const PROXIED: Part = Part { case: "flood-proxied", rate: 1_000.0, connections: 16 };
const FROM_MEMORY: Part = Part { case: "flood-remembered", rate: 100.0, connections: 8 };
const HASHED: Part = Part { case: "flood-attacked-not-remembered", rate: 5.0, connections: 8 };
/// Those whose latency must stay.
const KEPT: [Part; 2] = [PROXIED, FROM_MEMORY];

/// In the time before the window.
static AT_FIRST: Metric = Metric { name: "served_at_first", unit: "%", better: Better::Higher };
static CPU: Metric = Metric { name: "gateway_cpu", unit: "% of all processors", better: Better::Neither };
static HASHES: Metric = Metric { name: "hashes", unit: "1/s", better: Better::Neither };
static GUESSED: Metric = Metric { name: "guesses", unit: "1/s", better: Better::Neither };
static WRONG: Metric = Metric { name: "status_401", unit: "%", better: Better::Neither };
static CLOSED: Metric = Metric { name: "closed", unit: "%", better: Better::Neither };
static CAPACITY: Metric = Metric { name: "capacity", unit: "1/s", better: Better::Neither };

/// Measures all rounds.
pub(super) fn add(report: &mut Report, tools: &Tools, plan: &Plan) -> Result<()> {
    let [placement, _] = Placement::all()?;
    let remembered: Vec<bool> = (0..REMEMBERED + NOT_REMEMBERED).map(|number| number < REMEMBERED).collect();
    let registry = Registry::make(tools, "flooded", Stored::Pbkdf2(ITERATIONS), &remembered)?;
    let costs = Costs::measure(tools, ITERATIONS)?;
    let (known, hashed) = registry.clients.split_at(REMEMBERED);
    let flood = Flood {
        tools,
        plan,
        placement: &placement,
        generator: Generator::provide(tools, &placement.load)?,
        remembered: registry.some("remembered", known)?,
        hashed: registry.some("hashed", hashed)?,
        guesses: registry.some("guesses", &guesses(&registry.clients))?,
        registry: &registry,
        rate: FLOOD * costs.hashes_per_second,
    };
    report.add(CASE, Subject::Cardea, &CAPACITY, costs.hashes_per_second);
    for round in 1..=plan.rounds {
        for subject in ARMS {
            let said = match plan.attempt(|| flood.measure(subject)) {
                Ok(figures) => {
                    let value = |part: &Part, metric: &Metric| {
                        let of_part =
                            figures.iter().find(|(case, of, _)| *case == part.case && of.name == metric.name);
                        of_part.map_or(0.0, |(_, _, value)| *value)
                    };
                    let said = format!(
                        "p99 proxied {:.0} µs, remembered {:.0} µs; attacked and not remembered {:.0} % served",
                        value(&PROXIED, &P99),
                        value(&FROM_MEMORY, &P99),
                        value(&HASHED, &SERVED)
                    );
                    for (case, metric, value) in figures {
                        report.add(case, subject, metric, value);
                    }
                    said
                }
                Err(error) => {
                    report.add_missing(PROXIED.case, subject, &P99, format!("{error:#}"));
                    format!("not measured: {error:#}")
                }
            };
            plan.progress(&format!("{CASE} {round}/{} {}: {said}", plan.rounds, subject.name()));
        }
    }
    Ok(())
}

/// The tables, and whether what must hold does.
pub(super) fn section(report: &Report, plan: &Plan) -> Result<String> {
    let [placement, _] = Placement::all()?;
    let capacity = report.values(CASE, Subject::Cardea, &CAPACITY).first().copied().unwrap_or_default();
    let mut text = format!(
        "`{CASE}`: wrong secrets, an open loop at ten times the {capacity:.0} hashes per second that the hash threads can \
         do (PBKDF2-HMAC-SHA-512, 210,000 iterations, the default; `cardea bench kdf`), each over a new connection and from \
         {SOURCES} addresses in turn. Of three guesses one is about a client of the load that is remembered, one about a \
         client that never is, and one about a client that doesn't exist, each time another. Beside it: {:.0} requests per second that \
         are proxied, {:.0} grants per second for {REMEMBERED} clients whose secrets are remembered, and {:.0} per second \
         for the attacked client that never is, all from another address than any guess, all open loops over kept \
         connections. `cardea` is under the flood; for `sink` and `sink-again` the same flood goes to a program that accepts \
         connections and closes them. Each measurement starts the gateway anew; the flood begins {} s before the window, the \
         attacked client in the first fifth of these (`served_at_first`), in which each address that guesses has failed once, and the flood ends after it.\n\n- {}\n\n",
        PROXIED.rate,
        FROM_MEMORY.rate,
        HASHED.rate,
        BEFORE.as_secs(),
        placement.describe("the load, the flood and the origin")
    );
    text += &format!("What others notice (p99 in µs, medians of {} rounds):\n\n", plan.rounds);
    text += "| what | flood at a sink | A/A | flood at Cardea | difference | allowed | |\n|---|---|---|---|---|---|---|\n";
    for part in KEPT {
        text +=
            &verdict(report, part).unwrap_or_else(|| format!("| {} | not measured | | | | | |\n", part.case));
    }
    text += "\nThe attacked client that is never remembered, from an address that nobody guesses from (medians):\n\n";
    text += "| what | served, flood at a sink | served, flood at Cardea | at least | latency_p50 (ms) | |\n";
    text += "|---|---|---|---|---|---|\n";
    text += &entry(report).unwrap_or_else(|| format!("| {} | not measured | | | | |\n", HASHED.case));
    if let Some(load) = median(report.values(CASE, Subject::Sink, &CPU)) {
        let relation = if load <= LOAD_PERCENT_MAX { "within" } else { "beyond" };
        text += &format!(
            "\nWithout a flood the load takes {load:.0} % of the processors, {relation} the {LOAD_PERCENT_MAX:.0} % that it may.\n"
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

/// A row: the flood at Cardea against the flood at the sink, and what may differ.
fn verdict(report: &Report, part: Part) -> Option<String> {
    let values = |subject| report.values(part.case, subject, &P99);
    let (sink, again) = (values(Subject::Sink), values(Subject::SinkAgain));
    let quiet = median(&[sink, again].concat())?;
    let flooded = median(values(Subject::Cardea))?;
    // By how much the two floods at the sink differ, of a round in the middle.
    let differences: Vec<f64> =
        sink.iter().zip(again).map(|(one, other)| (one - other).abs() / one.min(*other).max(1.0)).collect();
    let noise = median(&differences)?;
    let (difference, allowed) = (flooded / quiet - 1.0, noise.max(ALLOWED));
    Some(format!(
        "| {} | {quiet:.0} | {:.0} % | {flooded:.0} | {:+.0} % | {:.0} % | {} |\n",
        part.case,
        noise * 100.0,
        difference * 100.0,
        allowed * 100.0,
        if difference <= allowed { "holds" } else { "does not hold" }
    ))
}

/// A row: how often the attacked client gets in.
fn entry(report: &Report) -> Option<String> {
    let of = |subject, metric| median(report.values(HASHED.case, subject, metric));
    let (quiet, flooded) = (of(Subject::Sink, &SERVED)?, of(Subject::Cardea, &SERVED)?);
    let latency = of(Subject::Cardea, &P50)? / 1e3;
    Some(format!(
        "| {} | {quiet:.0} % | {flooded:.0} % | {SERVED_PERCENT_MIN:.0} % | {latency:.0} | {} |\n",
        HASHED.case,
        if flooded >= SERVED_PERCENT_MIN { "holds" } else { "does not hold" }
    ))
}

/// Wrong secrets for the first client, which is remembered, for the last one, which is not, and for nobody.
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
    remembered: std::path::PathBuf,
    hashed: std::path::PathBuf,
    guesses: std::path::PathBuf,
    rate: f64,
}

/// Of one case, one figure.
type Figure = (&'static str, &'static Metric, f64);

impl Flood<'_> {
    fn measure(&self, subject: Subject) -> Result<Vec<Figure>> {
        let smoke = self.plan.extent == Extent::Smoke;
        let (before, after) = if smoke { (BESIDE_SMOKE, BESIDE_SMOKE) } else { (BEFORE, AFTER) };
        let time = before + self.plan.window + after;
        let origin = Origin::start(self.tools, &self.placement.load)?;
        let (server, admin) = self.start(subject, origin.address())?;
        let sink =
            (subject != Subject::Cardea).then(|| self.generator.sink(&self.registry.folder)).transpose()?;
        self.remember(server.address)?;
        let flooded = sink.as_ref().map_or(server.address, |sink| sink.address);
        let flood = self.generator.start(&OpenLoop {
            address: flooded,
            rate: self.rate,
            time,
            connections: 0,
            kind: Kind::Guesses { file: &self.guesses, sources: SOURCES },
        });
        // The attacked client comes when the queue is full already, and most addresses that guess are still new.
        pause(before / LATE);
        let time_at_first = before - before / LATE;
        let (Part { rate, connections, .. }, kind) = (HASHED, Kind::Grants(&self.hashed));
        let address = server.address;
        let at_first =
            self.generator.start(&OpenLoop { address, rate, time: time_at_first, connections, kind });
        pause(time_at_first);
        let (hashes, window) = (hashes(admin)?, Window::begin(self.placement, &server)?);
        let outcomes = self.others(server.address)?;
        let (used, hashed) = (window.end()?, self::hashes(admin)? - hashes);
        let (guessed, at_first) = (flood.finish()?, at_first.finish()?);
        ensure!(guessed.requests > 0.0, "nobody guessed");
        let part = |count: f64| count * 100.0 / guessed.requests;
        let processors = exact(self.placement.gateway.len() as u64);
        let mut figures = vec![
            (CASE, &CPU, used.cpu_us * 100.0 / (used.elapsed_us * processors)),
            (CASE, &HASHES, hashed * 1e6 / used.elapsed_us),
            (CASE, &GUESSED, guessed.requests / time.as_secs_f64()),
            (CASE, &WRONG, part(guessed.wrong)),
            (CASE, &TOO_MANY, part(guessed.too_often)),
            (CASE, &UNAVAILABLE, part(guessed.busy)),
            (CASE, &CLOSED, part(guessed.closed)),
            (CASE, &OTHERS, used.others_percent),
            (HASHED.case, &AT_FIRST, at_first.served_percent()),
        ];
        for (case, outcome) in outcomes {
            figures.extend([
                (case, &P50, outcome.p50_us),
                (case, &P99, outcome.p99_us),
                (case, &SERVED, outcome.served_percent()),
            ]);
        }
        // A right secret was wrong for nobody, flood or not.
        ensure!(outcomes.iter().all(|(_, outcome)| outcome.wrong + outcome.too_often < 1.0), "{outcomes:?}");
        let memory = outcomes.iter().filter(|(case, _)| *case != HASHED.case);
        ensure!(memory.clone().all(|(_, outcome)| outcome.served >= outcome.requests), "{outcomes:?}");
        Ok(figures)
    }

    /// All that is asked for beside the flood, during the window.
    fn others(&self, address: SocketAddr) -> Result<[(&'static str, Outcome); 3]> {
        let kinds = [Kind::Get("/small"), Kind::Grants(&self.remembered), Kind::Grants(&self.hashed)];
        let parts = [PROXIED, FROM_MEMORY, HASHED];
        let running: Vec<_> = parts
            .iter()
            .zip(kinds)
            .map(|(&Part { rate, connections, .. }, kind)| {
                let time = self.plan.window;
                self.generator.start(&OpenLoop { address, rate, time, connections, kind })
            })
            .collect();
        let mut outcomes = [PROXIED, FROM_MEMORY, HASHED].map(|part| (part.case, Outcome::default()));
        for (place, running) in outcomes.iter_mut().zip(running) {
            place.1 = running.finish().context(place.0)?;
        }
        Ok(outcomes)
    }

    /// Each client that may be remembered gets in once, before there is a flood.
    fn remember(&self, address: SocketAddr) -> Result<()> {
        let clients = self.registry.clients.get(..REMEMBERED).unwrap_or_default();
        for client in clients {
            let file = self.registry.some("one", std::slice::from_ref(client))?;
            let (time, kind) = (Duration::from_millis(1), Kind::Grants(&file));
            let load = OpenLoop { address, rate: 1_000.0, time, connections: 1, kind };
            let outcome = self.generator.start(&load).finish()?;
            ensure!(
                outcome.served >= 1.0,
                "{} does not get in: {outcome:?}",
                lines(&[Client { secret: String::new(), ..client.clone() }])
            );
        }
        Ok(())
    }

    fn start(&self, subject: Subject, origin: SocketAddr) -> Result<(Server, SocketAddr)> {
        let folder = self.tools.folder(subject.name())?;
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

/// How many secrets it has hashed, by its metrics.
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
    fn guesses_are_about_two_clients_and_nobody_and_never_right() {
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
    fn the_attacked_client_gets_in_nearly_always_or_it_does_not_hold() {
        for (flooded, verdict) in [(95.0, "| holds |\n"), (94.0, "| does not hold |\n")] {
            let mut report = Report::new("secrets");
            assert_eq!(entry(&report), None);
            for (subject, served) in [(Subject::Sink, 100.0), (Subject::Cardea, flooded)] {
                report.add(HASHED.case, subject, &SERVED, served);
                report.add(HASHED.case, subject, &P50, 120_000.0);
            }
            assert!(entry(&report).unwrap().ends_with(verdict));
        }
    }

    #[test]
    fn a_difference_within_noise_or_a_fifth_holds() {
        let mut report = Report::new("secrets");
        for (subject, values) in [
            (Subject::Sink, [100.0, 100.0, 100.0]),
            (Subject::SinkAgain, [100.0, 130.0, 170.0]),
            (Subject::Cardea, [125.0, 128.0, 127.0]),
        ] {
            for value in values {
                report.add(PROXIED.case, subject, &P99, value);
                report.add(
                    FROM_MEMORY.case,
                    subject,
                    &P99,
                    if subject == Subject::Cardea { value } else { 100.0 },
                );
            }
        }
        assert!(verdict(&report, PROXIED).unwrap().ends_with("| holds |\n"));
        assert!(verdict(&report, FROM_MEMORY).unwrap().ends_with("| does not hold |\n"));
        assert_eq!(verdict(&report, HASHED), None);
    }
}
