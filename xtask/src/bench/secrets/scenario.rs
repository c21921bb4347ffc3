//! 140 grants per second on half a core.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::super::machine::{Placement, on};
use super::super::report::{Better, Metric, Report};
use super::super::server::{Server, free_address};
use super::super::subject::Subject;
use super::super::tools::Tools;
use super::super::window::{COST, OTHERS, P50, P99, Window};
use super::super::{Extent, Plan};
use super::open_loop::{Generator, Kind, OpenLoop, Outcome};
use super::quota::Quota;
use super::registry::{Registry, Settings};

pub(super) const CASE: &str = "half-core-140-per-second";
const RATE: f64 = 140.0;
const ITERATIONS: u32 = 10_000;
const CLIENTS: usize = 16;
/// More connections than there can be requests in progress, because none waits longer than 2 s.
const CONNECTIONS: usize = 320;
/// The warm-up before each window.
const WARM_UP: Duration = Duration::from_secs(1);
/// The same in the smoke test.
const WARM_UP_SMOKE: Duration = Duration::from_millis(100);

static SERVED: Metric = Metric { name: "served", unit: "%", better: Better::Higher };
static CPU: Metric = Metric { name: "cpu", unit: "% of a core", better: Better::Lower };

/// Measures all rounds.
pub(super) fn add(report: &mut Report, tools: &Tools, plan: &Plan) -> Result<()> {
    let [placement, _] = Placement::all()?;
    let remembered = vec![true; CLIENTS];
    let scenario = Scenario {
        tools,
        plan,
        generator: Generator::provide(tools, &placement.load)?,
        registry: Registry::make(tools, "hashed", ITERATIONS, &remembered)?,
        placement: &placement,
    };
    let subject = Subject::Cardea;
    for round in 1..=plan.rounds {
        let said = match plan.attempt(|| scenario.measure()) {
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
    Ok(())
}

/// The tables.
pub(super) fn section(report: &Report, plan: &Plan) -> Result<String> {
    let [placement, _] = Placement::all()?;
    let quota = Quota::half_a_core();
    let mut text = format!(
        "`{CASE}`: 140 client-credentials grants per second, an open loop over kept connections, for 16 clients whose \
         secrets are stored as PBKDF2-HMAC-SHA-512 with 10,000 iterations; the verification cache is off, so that \
         each grant takes a hash. The process is limited to half a core by {}. Latencies are those of served grants, \
         from the time at which they were due. The others were refused because they had waited too long (503).\n\n- {}\n",
        quota.describe(),
        placement.describe("the load")
    );
    text += &format!("\nLatency (p99) in µs, median (lowest–highest) of {} rounds:\n\n", plan.rounds);
    let subjects = [Subject::Cardea];
    text += &report.table(&P99, &subjects);
    text += "\nMedians, with processor time:\n\n";
    text += &report.details(&[&P50, &P99, &SERVED, &CPU, &COST, &OTHERS], &subjects);
    Ok(text + "\n")
}

struct Scenario<'a> {
    tools: &'a Tools,
    plan: &'a Plan,
    generator: Generator<'a>,
    registry: Registry,
    placement: &'a Placement,
}

impl Scenario<'_> {
    fn measure(&self) -> Result<[(&'static Metric, f64); 6]> {
        let quota = Quota::half_a_core();
        let registry = &self.registry;
        let server = self.start(&quota)?;
        let holding = quota.hold(server.id()?)?;
        let warm_up = if self.plan.extent == Extent::Smoke { WARM_UP_SMOKE } else { WARM_UP };
        // A request that is refused here is also refused in the window, and counted there.
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

    fn start(&self, quota: &Quota) -> Result<Server> {
        let (registry, name) = (&self.registry, Subject::Cardea.name());
        let folder = self.tools.folder(name)?;
        let (listen, admin) = (free_address()?, free_address()?);
        let origin = admin;
        let settings = Settings { listen, admin, origin, registry, iterations: ITERATIONS, remember: "0s" };
        let config = settings.write(self.tools, &folder)?;
        let mut command = on(&self.placement.gateway, &self.tools.cardea);
        command.arg("run").arg("--config").arg(config);
        let mut command = quota.around(&command);
        command.current_dir(&folder);
        Server::start(&mut command, listen, &folder.join("output.log"))
            .with_context(|| format!("starting {name}"))
    }
}
