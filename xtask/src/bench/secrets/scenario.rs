//! 140 grants per second at half a core: ours, with the hashes of OpenSSL, and with a delay in place of a hash.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::super::machine::{Placement, on};
use super::super::report::{Better, Metric, Report};
use super::super::server::{Server, free_address};
use super::super::subject::Subject;
use super::super::tools::{Tools, version};
use super::super::window::{COST, OTHERS, P50, P99, Window};
use super::super::{Extent, Plan};
use super::open_loop::{Generator, Kind, OpenLoop, Outcome};
use super::quota::Quota;
use super::registry::{Costs, Registry, Settings, Stored};

pub(super) const CASE: &str = "half-core-140-per-second";
const RATE: f64 = 140.0;
const ITERATIONS: u32 = 10_000;
const CLIENTS: usize = 16;
/// More than there can be under way: what waits longest waits 2 s.
const CONNECTIONS: usize = 320;
/// Before each window.
const WARM_UP: Duration = Duration::from_secs(1);
/// Of the smoke test.
const WARM_UP_SMOKE: Duration = Duration::from_millis(100);
const SUBJECTS: [Subject; 3] = [Subject::Cardea, Subject::OpenSslHash, Subject::DelayedHash];

static SERVED: Metric = Metric { name: "served", unit: "%", better: Better::Higher };
static CPU: Metric = Metric { name: "cpu", unit: "% of a core", better: Better::Lower };
static DELAY: Metric = Metric { name: "delay", unit: "µs", better: Better::Neither };

/// Measures all rounds.
pub(super) fn add(report: &mut Report, tools: &Tools, plan: &Plan) -> Result<()> {
    let [placement, _] = Placement::all()?;
    let remembered = vec![true; CLIENTS];
    let scenario = Scenario {
        tools,
        plan,
        program: tools.cardea_with_other_hashes(plan.extent == Extent::Smoke)?,
        generator: Generator::provide(tools, &placement.load)?,
        hashed: Registry::make(tools, "hashed", Stored::Pbkdf2(ITERATIONS), &remembered)?,
        trifles: Registry::make(tools, "trifles", Stored::Trifle, &remembered)?,
        lone_us: Costs::measure(tools, ITERATIONS)?.lone_us,
        placement: &placement,
    };
    report.add(CASE, Subject::DelayedHash, &DELAY, scenario.lone_us.round());
    for round in 1..=plan.rounds {
        for subject in SUBJECTS {
            let said = match plan.attempt(|| scenario.measure(subject)) {
                Ok(figures) => {
                    for (metric, value) in figures {
                        report.add(CASE, subject, metric, value);
                    }
                    format!("p99 {:.1} ms, {:.0} % of a core", figures[1].1 / 1e3, figures[3].1)
                }
                Err(error) => {
                    report.add_missing(CASE, subject, &P99, format!("{error:#}"));
                    format!("not measured: {error:#}")
                }
            };
            plan.progress(&format!("{CASE} {round}/{} {}: {said}", plan.rounds, subject.name()));
        }
    }
    Ok(())
}

/// The tables.
pub(super) fn section(report: &Report, plan: &Plan) -> Result<String> {
    let [placement, _] = Placement::all()?;
    let quota = Quota::half_a_core();
    let delay = report.values(CASE, Subject::DelayedHash, &DELAY).first().copied().unwrap_or_default();
    let mut text = format!(
        "`{CASE}`: 140 client-credentials grants per second, an open loop over kept connections, for 16 clients whose \
         secrets are stored as PBKDF2-HMAC-SHA-512 with 10,000 iterations; nothing is remembered, so that each \
         grant takes a hash. The process is held to half a core by {}. All three are one build with the feature \
         `bench-hashes`: `{}` hashes as it is shipped, `{}` by the PBKDF2 of {} on the same threads, a hash at a \
         time, and `{}` is the control: in place of the hash, a timer of the {delay:.0} µs that a lone hash of ours \
         takes (its clients' secrets are stored under a trifle of scrypt, so that a wrong secret is still wrong). \
         Latencies are those of grants that were served, from when they were due; the rest was refused for want of \
         time (503).\n\n- {}\n",
        quota.describe(),
        Subject::Cardea.name(),
        Subject::OpenSslHash.name(),
        version(Path::new("openssl"), "version"),
        Subject::DelayedHash.name(),
        placement.describe("the load")
    );
    text += &format!("\nLatency (p99) in µs, median (lowest–highest) of {} rounds:\n\n", plan.rounds);
    text += &report.table(&P99, &SUBJECTS);
    text += "\nMedians, of processor time too:\n\n";
    text += &report.details(&[&P50, &P99, &SERVED, &CPU, &COST, &OTHERS], &SUBJECTS);
    Ok(text + "\n")
}

struct Scenario<'a> {
    tools: &'a Tools,
    plan: &'a Plan,
    program: PathBuf,
    generator: Generator<'a>,
    hashed: Registry,
    trifles: Registry,
    lone_us: f64,
    placement: &'a Placement,
}

impl Scenario<'_> {
    fn measure(&self, subject: Subject) -> Result<[(&'static Metric, f64); 6]> {
        let quota = Quota::half_a_core();
        let registry = if subject == Subject::DelayedHash { &self.trifles } else { &self.hashed };
        let server = self.start(subject, registry, &quota)?;
        let holding = quota.hold(server.id()?)?;
        let warm_up = if self.plan.extent == Extent::Smoke { WARM_UP_SMOKE } else { WARM_UP };
        // What is refused now is refused in the window too, and counted there.
        let _ = self.load(server.address, &registry.file, warm_up)?;
        let window = Window::begin(self.placement, &server)?;
        let outcome = self.load(server.address, &registry.file, self.plan.window)?;
        let used = window.end()?;
        drop(holding);
        ensure!(outcome.served > 0.0, "no grant was answered with a token: {outcome:?}");
        Ok([
            (&P50, outcome.p50_us),
            (&P99, outcome.p99_us),
            (&SERVED, outcome.served_percent()),
            (&CPU, used.cpu_us * 100.0 / used.elapsed_us),
            (&COST, used.cpu_us / outcome.requests.max(1.0)),
            (&OTHERS, used.others_percent),
        ])
    }

    fn load(&self, address: SocketAddr, file: &Path, time: Duration) -> Result<Outcome> {
        let (addresses, kind) = (&[address], Kind::Grants(file));
        let load = OpenLoop { addresses, rate: RATE, time, connections: CONNECTIONS, kind };
        self.generator.start(&load)?.finish()
    }

    fn start(&self, subject: Subject, registry: &Registry, quota: &Quota) -> Result<Server> {
        let folder = self.tools.folder(subject.name())?;
        let (listen, admin) = (free_address()?, free_address()?);
        let origin = admin;
        let settings = Settings { listen, admin, origin, registry, iterations: ITERATIONS, remember: "0s" };
        let config = settings.write(self.tools, &folder)?;
        let mut command = on(&self.placement.gateway, &self.program);
        command.arg("run").arg("--config").arg(config);
        let mut command = quota.around(&command);
        command.current_dir(&folder);
        match subject {
            Subject::OpenSslHash => command.env("CARDEA_BENCH_HASH", "openssl"),
            Subject::DelayedHash => command.env("CARDEA_BENCH_HASH", format!("delay-us={:.0}", self.lone_us)),
            _ => command.env_remove("CARDEA_BENCH_HASH"),
        };
        Server::start(&mut command, listen, &folder.join("output.log"))
            .with_context(|| format!("starting {}", subject.name()))
    }
}
