//! `cargo xtask bench`: Cardea beside its peers, in one run, on one machine.

mod accounting;
mod idle;
mod load;
mod machine;
mod memory;
mod origin;
mod overload;
mod peers;
mod proxy;
mod report;
mod server;
mod subject;
mod tools;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use crate::process::Stopwatch;
use report::Report;
use subject::Subject;
use tools::{Program, Tools};

/// The beginning of a page.
const INTRODUCTION: &str = "\
# Performance

What `cargo xtask bench` has measured, in its own words: this page is its output (`--page`), and claims nothing
beyond it. The command stands above each table; the configurations of all programs, for anyone to dispute, are in
[bench/peers](../bench/peers/README.md).

How to read the tables. Rounds are interleaved: each measures every subject once, then the next round does. *ratio*
compares Cardea with the best peer, *to the limit* with the bare relay ([bench/relay](../bench/relay/src/main.rs));
above 1, Cardea is better. *A/A* is the difference between Cardea and Cardea, measured under two names: a difference
between programs that is not well above it says nothing, and where others used much of the processors nothing is
precise.
";

/// What a spread can be told from.
const ROUNDS_MIN: usize = 5;
/// Of the smoke test: enough for the ticks of the kernel's accounting.
const SMOKE_WINDOW: Duration = Duration::from_millis(300);

/// What `cargo xtask bench` accepts.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Runs these alone, in this order.
    #[arg(value_enum)]
    benches: Vec<Bench>,
    /// Rounds, at least 5: each measures every subject once.
    #[arg(long, default_value_t = ROUNDS_MIN)]
    rounds: usize,
    /// Seconds of each measured window.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Writes all figures into a file, as a JSON array.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes the tables into a file as well, as a document: docs/performance.md is one.
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Proves in under a minute that the harness works: one short round of a few cases with a quick build. Its
    /// figures mean nothing.
    #[arg(long)]
    smoke: bool,
    /// Runs those cases alone whose names contain this.
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// Measures these alone: cardea, cardea-again, nginx, haproxy, envoy, caddy, pingora, relay.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    subjects: Vec<String>,
    /// Measures this build of Cardea instead of building one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Measures this other build of Cardea beside it.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Bench {
    /// CPU time, throughput and latency of requests that are carried to an origin.
    Proxy,
    /// What is left of an origin's capacity when more is asked of it.
    Overload,
    /// Resident memory of idle connections.
    Memory,
}

impl Bench {
    /// Measures, and says what was measured in words and tables.
    fn carry_out(self, tools: &Tools, plan: &Plan) -> Result<(Report, String)> {
        let report = match self {
            Self::Proxy => proxy::run(tools, plan),
            Self::Overload => overload::run(tools, plan),
            Self::Memory => memory::run(tools, plan),
        }?;
        let section = match self {
            Self::Proxy => proxy::section(&report, plan)?,
            Self::Overload => overload::section(&report, plan)?,
            Self::Memory => memory::section(&report, plan),
        };
        Ok((report, section))
    }
}

/// How much of a bench is run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Extent {
    Full,
    Smoke,
}

/// What a bench is to do.
struct Plan {
    rounds: usize,
    window: Duration,
    extent: Extent,
    subjects: Vec<Subject>,
    case: Option<String>,
    watch: Stopwatch,
}

impl Plan {
    fn of(options: &Options) -> Result<Self> {
        let (rounds, window, extent) = if options.smoke {
            (1, SMOKE_WINDOW, Extent::Smoke)
        } else {
            ensure!(
                options.rounds >= ROUNDS_MIN,
                "--rounds: at least {ROUNDS_MIN}, or there is no spread to speak of"
            );
            ensure!((0.1..=600.0).contains(&options.seconds), "--seconds: between 0.1 and 600");
            (options.rounds, Duration::from_secs_f64(options.seconds), Extent::Full)
        };
        let wanted = |subject: &Subject| match subject {
            Subject::Baseline => options.baseline.is_some(),
            costly if options.smoke && options.subjects.is_empty() => !costly.is_costly(),
            other => options.subjects.is_empty() || options.subjects.iter().any(|name| name == other.name()),
        };
        if let Some(name) = options
            .subjects
            .iter()
            .find(|name| !Subject::ALL.iter().any(|known| known.name() == name.as_str()))
        {
            bail!("--subjects: \"{name}\" is none");
        }
        let subjects = Subject::ALL.into_iter().filter(wanted).collect();
        Ok(Self { rounds, window, extent, subjects, case: options.case.clone(), watch: Stopwatch::start() })
    }

    /// Whether a case is to be run.
    fn takes(&self, case: &str) -> bool {
        self.case.as_ref().is_none_or(|wanted| case.contains(wanted.as_str()))
    }

    /// The command that measures this again.
    fn command(&self, bench: &str) -> String {
        let mut command = format!("cargo xtask bench {bench}");
        if self.extent == Extent::Smoke {
            command += " --smoke";
        } else {
            command += &format!(" --rounds {} --seconds {}", self.rounds, self.window.as_secs_f64());
        }
        if let Some(case) = &self.case {
            command += &format!(" --case {case}");
        }
        command
    }

    /// How the program was built that was measured as Cardea.
    fn describe_program(&self, options: &Options) -> &'static str {
        match (self.extent, &options.program) {
            (_, Some(_)) => "Cardea in a build that was named by `--program`",
            (Extent::Smoke, None) => "Cardea in a quick build, whose figures mean nothing",
            (Extent::Full, None) => "Cardea as it is shipped (profile `dist`)",
        }
    }

    fn progress(&self, line: &str) {
        eprintln!("{:>6.0} s  {line}", self.watch.elapsed().as_secs_f64());
    }
}

/// Runs the benches, prints a table for each and says whether Cardea was measured in every case.
///
/// # Errors
///
/// Nothing can be measured here.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let plan = Plan::of(options)?;
    let program = match (&options.program, options.smoke) {
        (Some(file), _) => Program::File(file.clone()),
        (None, true) => Program::Quick,
        (None, false) => Program::Shipped,
    };
    machine::raise_descriptor_limit()?;
    let tools = Tools::provide(root, &program, options.baseline.as_deref(), &plan)?;
    let load_at_start = machine::load_average()?;
    let all = Bench::value_variants();
    let chosen = if options.benches.is_empty() { all } else { &options.benches };
    let mut reports = Vec::new();
    let mut sections = String::new();
    for bench in chosen {
        let (report, section) = bench.carry_out(&tools, &plan)?;
        let command = plan.command(report.bench);
        sections += &format!("\n## {}\n\n```sh\n{command}\n```\n\n{section}", report.bench);
        reports.push(report);
    }
    let machine = format!(
        "Machine: {}; {}; TCP congestion control {}. Load average {load_at_start:.1} at the start, {:.1} at the end.\n\n",
        machine::describe()?,
        plan.describe_program(options),
        machine::congestion_control()?,
        machine::load_average()?
    );
    let versions = plan.subjects.iter().filter(|&&subject| subject != Subject::Again);
    let versions = versions.map(|subject| format!("- {}: {}\n", subject.name(), subject.version(&tools)));
    let page = format!("{INTRODUCTION}\n{machine}{}{sections}", versions.collect::<String>());
    println!("{page}");
    if let Some(file) = &options.page {
        fs::write(file, page).with_context(|| format!("{}", file.display()))?;
    }
    if let Some(file) = &options.json {
        let entries: Vec<_> = reports.iter().flat_map(Report::entries).collect();
        let json = serde_json::to_string_pretty(&entries)? + "\n";
        fs::write(file, json).with_context(|| format!("{}", file.display()))?;
    }
    let without_cardea = !plan.subjects.contains(&Subject::Cardea);
    // The smoke test is there to find what doesn't work; what isn't installed is something else.
    let skipped = |report: &Report| plan.extent == Extent::Smoke && report.is_skipped();
    let complete = without_cardea || reports.iter().all(|report| report.is_complete() || skipped(report));
    let flawless = reports.iter().all(Report::is_flawless) || !tools.missing.is_empty();
    Ok(complete && (flawless || plan.extent == Extent::Full))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
            benches: Vec::new(),
            rounds: 5,
            seconds: 3.0,
            json: None,
            page: None,
            smoke: false,
            case: None,
            subjects: Vec::new(),
            program: None,
            baseline: None,
        }
    }

    #[test]
    fn few_rounds_are_refused_but_for_the_smoke_test() {
        assert!(Plan::of(&Options { rounds: 4, ..options() }).is_err());
        assert_eq!(Plan::of(&options()).unwrap().rounds, 5);
        let smoke = Plan::of(&Options { rounds: 4, smoke: true, ..options() }).unwrap();
        assert_eq!((smoke.rounds, smoke.extent), (1, Extent::Smoke));
    }

    #[test]
    fn subjects_are_those_that_were_named_and_another_build_when_there_is_one() {
        let plan = Plan::of(&options()).unwrap();
        assert!(plan.subjects.contains(&Subject::Again) && !plan.subjects.contains(&Subject::Baseline));
        let named =
            Options { subjects: vec!["nginx".to_owned()], baseline: Some(PathBuf::from("old")), ..options() };
        assert_eq!(Plan::of(&named).unwrap().subjects, [Subject::Nginx, Subject::Baseline]);
        let unknown = Options { subjects: vec!["ngin".to_owned()], ..options() };
        assert!(Plan::of(&unknown).is_err());
    }

    #[test]
    fn the_command_above_a_table_repeats_it() {
        let named = Options { rounds: 7, seconds: 1.5, case: Some("tls".to_owned()), ..options() };
        let expected = "cargo xtask bench proxy --rounds 7 --seconds 1.5 --case tls";
        assert_eq!(Plan::of(&named).unwrap().command("proxy"), expected);
        let smoke = Options { smoke: true, ..options() };
        assert_eq!(Plan::of(&smoke).unwrap().command("memory"), "cargo xtask bench memory --smoke");
    }

    #[test]
    fn cases_are_chosen_by_a_part_of_their_names() {
        let plan = Plan::of(&Options { case: Some("tls".to_owned()), ..options() }).unwrap();
        assert!(plan.takes("small-tls-c32-2cpu"));
        assert!(!plan.takes("small-plain-c32-2cpu"));
    }
}
