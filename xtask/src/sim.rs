//! `cargo xtask sim`: compares how endpoints are chosen and how requests are limited, in virtual time.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use cardea_sim::engine;
use cardea_sim::outcome::Outcome;
use cardea_sim::overload_scenarios as overload;
use cardea_sim::policy::Kind;
use cardea_sim::report::{self, Compared};
use cardea_sim::scenarios::{self, Scenario};

/// The chart beside the page.
const CHART: &str = "docs/simulation.svg";
/// The page with the tables.
const PAGE: &str = "docs/simulation.md";
/// What the tables on the page stand between: those of the choice of endpoints, and those of overload.
const MARKS: [[&str; 2]; 2] = [
    ["<!-- tables -->\n", "<!-- end of tables -->\n"],
    ["<!-- tables of overload -->\n", "<!-- end of tables of overload -->\n"],
];

/// What `cargo xtask sim` accepts.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Runs only scenarios whose name contains this.
    #[arg(long, default_value = "")]
    scenario: String,
    /// Runs only policies whose name contains this, and nothing about overload.
    #[arg(long, default_value = "")]
    policy: String,
    /// The source of all chance: the same seed gives the same figures.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Prints JSON, with the load of each region.
    #[arg(long)]
    json: bool,
    /// Writes the page and the chart in `docs/`.
    #[arg(long, conflicts_with_all = ["json", "scenario", "policy", "seed"])]
    write: bool,
}

/// Runs the scenarios and prints the tables.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let scenarios: Vec<Scenario> = scenarios::all(options.seed)
        .into_iter()
        .filter(|scenario| scenario.name.contains(&options.scenario))
        .collect();
    let kinds: Vec<Kind> =
        Kind::ALL.into_iter().filter(|kind| kind.as_str().contains(&options.policy)).collect();
    let overloads = overload::all(options.seed).into_iter();
    let overloads: Vec<_> = overloads
        .filter(|scenario| options.policy.is_empty() && scenario.name.contains(&options.scenario))
        .collect();
    let is_any = !scenarios.is_empty() || !overloads.is_empty();
    ensure!(is_any, "no scenario has a name that contains {:?}", options.scenario);
    ensure!(!kinds.is_empty(), "no policy has a name that contains {:?}", options.policy);
    let compared = compare(scenarios, &kinds);
    let overloads: Vec<_> =
        overloads.into_iter().map(|scenario| (scenario.clone(), scenario.run())).collect();
    if options.json {
        let mut all = report::json(&compared, options.seed);
        all["overload"] = overload::json(&overloads);
        println!("{all:#}");
    } else if options.write {
        std::fs::write(root.join(CHART), report::chart(&compared)).context(CHART)?;
        write(root, [report::markdown(&compared), overload::markdown(&overloads)])?;
    } else {
        print!("{}{}", report::markdown(&compared), overload::markdown(&overloads));
    }
    Ok(true)
}

/// Each scenario with each policy, on all processors.
fn compare(scenarios: Vec<Scenario>, kinds: &[Kind]) -> Vec<Compared> {
    let runs: Vec<(usize, Kind)> =
        (0..scenarios.len()).flat_map(|scenario| kinds.iter().map(move |kind| (scenario, *kind))).collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::<(usize, Outcome)>::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(|| {
                while let Some((scenario, kind)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = engine::run(&scenarios[*scenario].world, *kind);
                    if let Ok(mut done) = done.lock() {
                        done.push((*scenario, outcome));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    let place = |kind: Kind| kinds.iter().position(|other| *other == kind);
    done.sort_by_key(|(scenario, outcome)| (*scenario, place(outcome.kind)));
    let mut compared: Vec<Compared> =
        scenarios.into_iter().map(|scenario| Compared { scenario, outcomes: Vec::new() }).collect();
    for (scenario, outcome) in done {
        compared[scenario].outcomes.push(outcome);
    }
    compared
}

/// Puts the tables into the page.
fn write(root: &Path, tables: [String; 2]) -> Result<()> {
    let path = root.join(PAGE);
    let mut page = std::fs::read_to_string(&path).context(PAGE)?;
    for ([begin, end], tables) in MARKS.into_iter().zip(tables) {
        let (before, rest) = page.split_once(begin).with_context(|| format!("{PAGE} lacks {begin:?}"))?;
        let (_, after) = rest.split_once(end).with_context(|| format!("{PAGE} lacks {end:?}"))?;
        page = format!("{before}{begin}\n{tables}{end}{after}");
    }
    std::fs::write(path, page).context(PAGE)
}
