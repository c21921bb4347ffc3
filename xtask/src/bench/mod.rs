//! `cargo xtask bench`: compares Cardea with its peers, in one run, on one machine.

mod accounting;
mod authenticated;
pub(crate) mod builds;
mod handshake;
mod idle;
mod jvm;
mod launch;
mod load;
mod machine;
mod memory;
mod micro;
mod origin;
mod overload;
mod peers;
mod proxy;
mod report;
mod secrets;
mod server;
mod subject;
mod token;
mod tokens;
mod tools;
mod window;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use crate::process::Stopwatch;
use report::{Entry, Report};
use subject::Subject;
use tools::{Program, Tools};

/// The introduction of a page.
const INTRODUCTION: &str = "\
# Performance

This page is the output of `cargo xtask bench` (`--page`). It claims nothing else. The command is above each table; the
configurations of all programs are in [bench/peers](../bench/peers/README.md).

How to read the tables: rounds are interleaved, so each round measures every subject once. *ratio* compares Cardea with the best
peer, *to the limit* with the bare relay ([bench/relay](../bench/relay/src/main.rs)); above 1, Cardea is better. *A/A* is the
difference between two measurements of Cardea under different names. A difference between programs means nothing unless it is
clearly larger than that, and nothing is precise if other processes used much of the processors.
";

/// The fewest rounds that show a spread.
const ROUNDS_MIN: usize = 5;
/// The window of the smoke test: long enough for the resolution of the kernel's accounting.
const SMOKE_WINDOW: Duration = Duration::from_millis(300);

/// Attempts of the smoke test. On a busy machine, a short window may pass without any work.
const SMOKE_ATTEMPTS_MORE: usize = 2;

/// What `cargo xtask bench` accepts.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The benches to run, in this order. Default: all.
    #[arg(value_enum)]
    benches: Vec<Bench>,
    /// The number of rounds, at least 5. Each round measures every subject once.
    #[arg(long, default_value_t = ROUNDS_MIN)]
    rounds: usize,
    /// The length of each measured window in seconds.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Writes all figures to a file, as a JSON array.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also writes the tables to a file as a document, such as docs/performance.md.
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Checks in under a minute that the harness works, by one short round of a few cases with a quick build. Its
    /// figures mean nothing.
    #[arg(long)]
    smoke: bool,
    /// Runs only cases whose names contain this text.
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// Measures only these subjects: cardea, cardea-again, nginx, haproxy, envoy, caddy, pingora, relay, relay-shared.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    subjects: Vec<String>,
    /// Measures this build of Cardea instead of building one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Measures this other build of Cardea beside it.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Only uses the program, without figures, so one round is enough.
    #[arg(skip)]
    training: bool,
}

impl Options {
    /// The options of `cargo xtask bench --smoke`.
    pub(crate) fn smoke() -> Self {
        Self {
            benches: Vec::new(),
            rounds: ROUNDS_MIN,
            seconds: 1.0,
            json: None,
            page: None,
            smoke: true,
            case: None,
            subjects: Vec::new(),
            program: None,
            baseline: None,
            training: false,
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Bench {
    /// CPU time, throughput and latency of proxied requests.
    Proxy,
    /// The same over TLS, with a token that is checked on each request and an access log.
    Authenticated,
    /// CPU time of TLS handshakes, full and resumed.
    Handshake,
    /// CPU time and latency of client-credentials grants.
    Token,
    /// The cost of slow hashes of client secrets with limited processor time, and the effect of a flood of wrong
    /// secrets.
    Secrets,
    /// How much of an origin's capacity remains under overload.
    Overload,
    /// Resident memory of idle connections.
    Memory,
    /// Time, instructions and allocations of single operations of the crates.
    Micro,
}

/// The results of a bench.
enum Measured {
    /// Programs under load.
    Programs(Report),
    /// Operations of the crates.
    Crates(micro::Figures),
}

impl Bench {
    /// Measures, and returns the results and their tables.
    ///
    /// # Errors
    ///
    /// Nothing can be measured on this machine.
    fn carry_out(self, root: &Path, tools: Option<&Tools>, plan: &Plan) -> Result<(Measured, String)> {
        let tools = || tools.context("the tools for measuring programs are missing");
        let (report, section) = match self {
            Self::Proxy => sectioned(proxy::run(tools()?, plan)?, |report| proxy::section(report, plan)),
            Self::Authenticated => {
                sectioned(authenticated::run(tools()?, plan)?, |report| authenticated::section(report, plan))
            }
            Self::Token => sectioned(token::run(tools()?, plan)?, |report| token::section(report, plan)),
            Self::Secrets => {
                sectioned(secrets::run(tools()?, plan)?, |report| secrets::section(report, plan))
            }
            Self::Handshake => {
                sectioned(handshake::run(tools()?, plan)?, |report| handshake::section(report, plan))
            }
            Self::Overload => {
                sectioned(overload::run(tools()?, plan)?, |report| overload::section(report, plan))
            }
            Self::Memory => sectioned(memory::run(tools()?, plan)?, |report| memory::section(report, plan)),
            Self::Micro => {
                let figures = micro::run(root, plan)?;
                let section = micro::section(&figures, plan);
                return Ok((Measured::Crates(figures), section));
            }
        }?;
        Ok((Measured::Programs(report), section))
    }
}

fn sectioned(report: Report, section: impl FnOnce(&Report) -> Result<String>) -> Result<(Report, String)> {
    let section = section(&report)?;
    Ok((report, section))
}

impl Measured {
    fn bench(&self) -> &'static str {
        match self {
            Self::Programs(report) => report.bench,
            Self::Crates(_) => micro::NAME,
        }
    }

    fn entries(&self) -> Vec<Entry> {
        match self {
            Self::Programs(report) => report.entries(),
            Self::Crates(figures) => figures.entries(),
        }
    }

    /// Whether Cardea was measured in every case that it offers.
    fn is_complete(&self, plan: &Plan) -> bool {
        match self {
            Self::Programs(report) => {
                // The smoke test finds failures. A missing program is not a failure.
                let skipped = plan.extent == Extent::Smoke && report.is_skipped();
                !plan.subjects.contains(&Subject::Cardea) || report.is_complete() || skipped
            }
            Self::Crates(figures) => figures.is_complete(),
        }
    }

    /// Whether every measurement succeeded.
    fn is_flawless(&self) -> bool {
        match self {
            Self::Programs(report) => report.is_flawless(),
            Self::Crates(figures) => figures.is_flawless(),
        }
    }
}

/// How much of a bench is run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Extent {
    Full,
    Smoke,
}

/// The settings of a run.
struct Plan {
    rounds: usize,
    window: Duration,
    extent: Extent,
    subjects: Vec<Subject>,
    /// The subjects that issue tokens.
    issuers: Vec<Subject>,
    case: Option<String>,
    /// The names from the command line; empty if all are measured.
    named: Vec<String>,
    watch: Stopwatch,
}

impl Plan {
    fn of(options: &Options) -> Result<Self> {
        let (rounds, window, extent) = if options.smoke {
            (1, SMOKE_WINDOW, Extent::Smoke)
        } else {
            ensure!(
                options.rounds >= ROUNDS_MIN || options.training,
                "--rounds: at least {ROUNDS_MIN}; fewer show no spread"
            );
            ensure!((0.1..=600.0).contains(&options.seconds), "--seconds: between 0.1 and 600");
            (options.rounds, Duration::from_secs_f64(options.seconds), Extent::Full)
        };
        let wanted = |subject: &Subject| match subject {
            Subject::Baseline => options.baseline.is_some(),
            Subject::RelayShared if options.subjects.is_empty() => false,
            // The smoke test needs no A/A difference, because its figures mean nothing.
            other if options.smoke && options.subjects.is_empty() => {
                !other.is_costly() && *other != Subject::Again
            }
            other => options.subjects.is_empty() || options.subjects.iter().any(|name| name == other.name()),
        };
        let known = || Subject::ALL.into_iter().chain(Subject::ISSUERS);
        if let Some(name) =
            options.subjects.iter().find(|name| !known().any(|known| known.name() == name.as_str()))
        {
            bail!("--subjects: unknown subject \"{name}\"");
        }
        let subjects = Subject::ALL.into_iter().filter(wanted).collect();
        let issuers = Subject::ISSUERS.into_iter().filter(wanted).collect();
        let (case, named) = (options.case.clone(), options.subjects.clone());
        Ok(Self { rounds, window, extent, subjects, issuers, case, named, watch: Stopwatch::start() })
    }

    /// Whether a case is to be run.
    fn takes(&self, case: &str) -> bool {
        self.case.as_ref().is_none_or(|wanted| case.contains(wanted.as_str()))
    }

    /// Measures once. The smoke test, which may run beside other work, measures up to three times before it fails.
    fn attempt<T>(&self, measure: impl Fn() -> Result<T>) -> Result<T> {
        let more = if self.extent == Extent::Smoke { SMOKE_ATTEMPTS_MORE } else { 0 };
        (0..more).find_map(|_| measure().ok()).map_or_else(measure, Ok)
    }

    /// The command that repeats this measurement.
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
        if !self.named.is_empty() {
            command += &format!(" --subjects {}", self.named.join(","));
        }
        command
    }

    /// The build that was measured as Cardea.
    fn describe_program(&self, options: &Options) -> &'static str {
        match (self.extent, &options.program) {
            (_, Some(_)) => "Cardea as given by `--program`",
            (Extent::Smoke, None) => "Cardea in a quick build, whose figures mean nothing",
            (Extent::Full, None) => "Cardea as it is shipped (profile `dist`)",
        }
    }

    fn progress(&self, line: &str) {
        eprintln!("{:>6.0} s  {line}", self.watch.elapsed().as_secs_f64());
    }
}

/// Runs the benches, prints a table for each, and returns whether Cardea was measured in every case.
///
/// # Errors
///
/// Nothing can be measured on this machine.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let plan = Plan::of(options)?;
    let program = match (&options.program, options.smoke) {
        (Some(file), _) => Program::File(file.clone()),
        (None, true) => Program::Quick,
        (None, false) => Program::Shipped,
    };
    machine::raise_descriptor_limit()?;
    let all = Bench::value_variants();
    let chosen = if options.benches.is_empty() { all } else { &options.benches };
    let of_programs = chosen.iter().any(|&bench| bench != Bench::Micro);
    let provide = || Tools::provide(root, &program, options.baseline.as_deref(), &plan);
    let tools = of_programs.then(provide).transpose()?;
    let load_at_start = machine::load_average()?;
    let mut measured = Vec::new();
    let mut sections = String::new();
    for bench in chosen {
        let (one, section) = bench.carry_out(root, tools.as_ref(), &plan)?;
        let command = plan.command(one.bench());
        sections += &format!("\n## {}\n\n```sh\n{command}\n```\n\n{section}", one.bench());
        measured.push(one);
    }
    let machine = format!(
        "Machine: {}; {}; TCP congestion control {}. Load average {load_at_start:.1} at the start, {:.1} at the end.\n\n",
        machine::describe()?,
        plan.describe_program(options),
        machine::congestion_control()?,
        machine::load_average()?
    );
    let versions: String = tools.iter().flat_map(|tools| versions(tools, &plan)).collect();
    let page = format!("{INTRODUCTION}\n{machine}{versions}{sections}");
    println!("{page}");
    if let Some(file) = &options.page {
        fs::write(file, page).with_context(|| format!("{}", file.display()))?;
    }
    if let Some(file) = &options.json {
        let entries: Vec<_> = measured.iter().flat_map(Measured::entries).collect();
        let json = serde_json::to_string_pretty(&entries)? + "\n";
        fs::write(file, json).with_context(|| format!("{}", file.display()))?;
    }
    let complete = measured.iter().all(|one| one.is_complete(&plan));
    let missing = tools.is_some_and(|tools| !tools.missing.is_empty());
    let flawless = measured.iter().all(Measured::is_flawless) || missing;
    Ok(complete && (flawless || plan.extent == Extent::Full))
}

/// A line for each measured program, with its version.
fn versions(tools: &Tools, plan: &Plan) -> Vec<String> {
    let named = plan.subjects.iter().filter(|&&subject| subject != Subject::Again);
    named.map(|subject| format!("- {}: {}\n", subject.name(), subject.version(tools))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options { seconds: 3.0, smoke: false, ..Options::smoke() }
    }

    #[test]
    fn too_few_rounds_are_refused_except_in_the_smoke_test() {
        assert!(Plan::of(&Options { rounds: 4, ..options() }).is_err());
        assert_eq!(Plan::of(&options()).unwrap().rounds, 5);
        assert!(Plan::of(&Options { rounds: 1, training: true, ..options() }).is_ok());
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
    fn the_smoke_test_skips_subjects_that_take_minutes_to_install_unless_named() {
        let plan = Plan::of(&Options::smoke()).unwrap();
        assert!(plan.subjects.contains(&Subject::Haproxy) && !plan.subjects.contains(&Subject::Envoy));
        let named = Options { subjects: vec!["envoy".to_owned()], ..Options::smoke() };
        assert_eq!(Plan::of(&named).unwrap().subjects, [Subject::Envoy]);
    }

    #[test]
    fn only_the_smoke_test_tries_again() {
        let tries = |options: &Options, succeeds_at: usize| {
            let count = std::cell::Cell::new(0);
            let measured = Plan::of(options).unwrap().attempt(|| {
                count.set(count.get() + 1);
                ensure!(count.get() == succeeds_at, "too busy");
                Ok(())
            });
            (count.get(), measured.is_ok())
        };
        assert_eq!(tries(&options(), 1), (1, true));
        assert_eq!(tries(&options(), 2), (1, false));
        assert_eq!(tries(&Options::smoke(), 2), (2, true));
        assert_eq!(tries(&Options::smoke(), 4), (3, false));
    }

    #[test]
    fn the_command_above_a_table_repeats_it() {
        let named = Options { rounds: 7, seconds: 1.5, case: Some("tls".to_owned()), ..options() };
        let expected = "cargo xtask bench proxy --rounds 7 --seconds 1.5 --case tls";
        assert_eq!(Plan::of(&named).unwrap().command("proxy"), expected);
        let smoke = Options { subjects: vec!["nginx".to_owned(), "cardea".to_owned()], ..Options::smoke() };
        let expected = "cargo xtask bench memory --smoke --subjects nginx,cardea";
        assert_eq!(Plan::of(&smoke).unwrap().command("memory"), expected);
    }

    #[test]
    fn cases_are_chosen_by_a_part_of_their_names() {
        let plan = Plan::of(&Options { case: Some("tls".to_owned()), ..options() }).unwrap();
        assert!(plan.takes("small-tls-c32-2cpu"));
        assert!(!plan.takes("small-plain-c32-2cpu"));
    }
}
