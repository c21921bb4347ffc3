//! `cargo xtask bench`: Cardea beside its peers, in one run, on one machine.

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

/// On a machine that is busy, a window that short may pass with nothing done.
const SMOKE_ATTEMPTS_MORE: usize = 2;

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
    /// Measures these alone: cardea, cardea-again, nginx, haproxy, envoy, caddy, pingora, relay, relay-shared.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    subjects: Vec<String>,
    /// Measures this build of Cardea instead of building one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Measures this other build of Cardea beside it.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Uses the program and means no figure: one round will do.
    #[arg(skip)]
    training: bool,
}

impl Options {
    /// Those of `cargo xtask bench --smoke`.
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
    /// CPU time, throughput and latency of requests that are carried to an origin.
    Proxy,
    /// The same over TLS, with a token that is checked on each request, and an access log.
    Authenticated,
    /// CPU time of TLS handshakes, full and resumed.
    Handshake,
    /// CPU time and latency of client-credentials grants.
    Token,
    /// What slow hashes of client secrets cost where processor time is short, and what a flood of wrong ones does.
    Secrets,
    /// What is left of an origin's capacity when more is asked of it.
    Overload,
    /// Resident memory of idle connections.
    Memory,
    /// Time, instructions and allocations of single operations of the crates.
    Micro,
}

/// What a bench has measured.
enum Measured {
    /// Programs under load.
    Programs(Report),
    /// Operations of the crates.
    Crates(micro::Figures),
}

impl Bench {
    /// Measures, and says what was measured in words and tables.
    ///
    /// # Errors
    ///
    /// Nothing of it can be measured here.
    fn carry_out(self, root: &Path, tools: Option<&Tools>, plan: &Plan) -> Result<(Measured, String)> {
        let tools = || tools.context("programs that are measured need what they are measured with");
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

    /// Whether Cardea was measured in every case that it has something for.
    fn is_complete(&self, plan: &Plan) -> bool {
        match self {
            Self::Programs(report) => {
                // The smoke test is there to find what doesn't work; what isn't installed is something else.
                let skipped = plan.extent == Extent::Smoke && report.is_skipped();
                !plan.subjects.contains(&Subject::Cardea) || report.is_complete() || skipped
            }
            Self::Crates(figures) => figures.is_complete(),
        }
    }

    /// Whether nothing failed.
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

/// What a bench is to do.
struct Plan {
    rounds: usize,
    window: Duration,
    extent: Extent,
    subjects: Vec<Subject>,
    /// Those that issue tokens.
    issuers: Vec<Subject>,
    case: Option<String>,
    /// As the user named them; empty where all are measured.
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
                "--rounds: at least {ROUNDS_MIN}, or there is no spread to speak of"
            );
            ensure!((0.1..=600.0).contains(&options.seconds), "--seconds: between 0.1 and 600");
            (options.rounds, Duration::from_secs_f64(options.seconds), Extent::Full)
        };
        let wanted = |subject: &Subject| match subject {
            Subject::Baseline => options.baseline.is_some(),
            Subject::RelayShared if options.subjects.is_empty() => false,
            // Cardea against itself is a figure, and figures mean nothing there.
            other if options.smoke && options.subjects.is_empty() => {
                !other.is_costly() && *other != Subject::Again
            }
            other => options.subjects.is_empty() || options.subjects.iter().any(|name| name == other.name()),
        };
        let known = || Subject::ALL.into_iter().chain(Subject::ISSUERS);
        if let Some(name) =
            options.subjects.iter().find(|name| !known().any(|known| known.name() == name.as_str()))
        {
            bail!("--subjects: \"{name}\" is none");
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

    /// Measures once; in the smoke test, which runs beside anything, up to three times before it counts as failed.
    fn attempt<T>(&self, measure: impl Fn() -> Result<T>) -> Result<T> {
        let more = if self.extent == Extent::Smoke { SMOKE_ATTEMPTS_MORE } else { 0 };
        (0..more).find_map(|_| measure().ok()).map_or_else(measure, Ok)
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
        if !self.named.is_empty() {
            command += &format!(" --subjects {}", self.named.join(","));
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

/// A line for each program that is measured, with what it says of its own version.
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
    fn few_rounds_are_refused_but_for_the_smoke_test() {
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
    fn the_smoke_test_leaves_out_what_takes_minutes_to_install_unless_it_is_named() {
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
