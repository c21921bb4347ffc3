//! The bench `micro`: the criterion benches of the crates, gathered into one table each, with counts of instructions
//! and allocations where a bench offers them.

mod figures;
mod printed;
mod samples;
mod targets;
mod valgrind;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::report::{Better, Metric};
use super::server::fresh_folder;
use super::{Extent, Plan};
use crate::needs::{self, Need};
use crate::process::{catch, target_directory};
pub(super) use figures::Figures;
use printed::Style;
use samples::Sample;
use targets::Target;

pub(super) const NAME: &str = "micro";

/// Longer windows gain nothing: what a round can't tell, another one can.
const WINDOW_MAX: Duration = Duration::from_millis(300);
/// Of the smoke test, whose figures mean nothing.
const WINDOW_SMOKE: Duration = Duration::from_millis(20);
/// Before each window, for caches and for the number of iterations.
const WARM_UP: Duration = Duration::from_millis(100);
/// The fewest that criterion takes; the spread that counts is that between rounds.
const SAMPLES: usize = 10;
/// The fewest that criterion does without a complaint: its own statistics are not used.
const RESAMPLES: usize = 1001;
/// For one round of one program, and for all rounds of one that measures what is large.
const ROUND_LIMIT: Duration = Duration::from_secs(900);
const LARGE_LIMIT: Duration = Duration::from_secs(3600);
/// For the names of its cases; a program in Java is compiled first.
const LIST_LIMIT: Duration = Duration::from_secs(60);
/// What the smoke test runs: it builds quickly.
const SMOKE: (&str, &str) = ("cardea-clock", "clock-wall");

const VALGRIND: Need =
    Need { name: "valgrind", probe: &["valgrind", "--version"], packages: &["valgrind", "libc6-dbg"] };
/// A peer; beside the programs in `bench/`, nothing needs it.
const OPENSSL: Need = Need {
    name: "OpenSSL's headers",
    probe: &["pkg-config", "--exists", "openssl"],
    packages: &["libssl-dev", "pkg-config"],
};

const HELD_EQUAL: &str = "\
Equal for all subjects: the subjects of a case are in one program, or in programs with the same profile (`dist`, or \
the same settings in [bench/](../bench/Cargo.toml)). They use the system's allocator. They run one after another in \
each round, each for at most 0.3 s unless its bench says otherwise, on any processor. Caches are filled once for all \
cases of a size. Sizes beyond the processor's caches are in the cases `session-cache-large`, which are measured only \
by that name, and whose rounds use one filling. The range over the rounds shows how much a subject varies. Suffixes \
of names: `t1` and `t2` are the number of threads, each of which does the work (the figure is one thread's time for \
an operation; threads of caches start together, each on its own processor). A subject `…-alone` does a part of the \
work, and is a limit, not a peer. *ratio*: above 1, Cardea is better. Instructions (callgrind), allocations and their \
bytes (dhat) are the difference between two runs of different length, so they are those of one operation and its \
loop.";

pub(super) static NANOSECONDS: Metric =
    Metric { name: "ns_per_operation", unit: "ns", better: Better::Lower };
pub(super) static INSTRUCTIONS: Metric =
    Metric { name: "instructions_per_operation", unit: "instructions", better: Better::Lower };
pub(super) static ALLOCATIONS: Metric =
    Metric { name: "allocations_per_operation", unit: "allocations", better: Better::Lower };

pub(super) static BYTES: Metric =
    Metric { name: "allocated_bytes_per_operation", unit: "bytes", better: Better::Lower };

/// Runs all cases and returns what was measured. What can't be built or run is noted among the figures.
///
/// # Errors
///
/// There is no bench, or nowhere to put files.
pub(super) fn run(root: &Path, plan: &Plan) -> Result<Figures> {
    let mut figures = Figures::default();
    let smoke = plan.extent == Extent::Smoke;
    if !smoke && let Err(error) = needs::provide(&[needs::C_COMPILER, OPENSSL]) {
        figures.add_missing(format!("the peers of the system: {error:#}"));
    }
    let folder = fresh_folder(target_directory(root)?.join("bench/micro"))?;
    let mut targets = targets::discover(root)?;
    if smoke {
        targets.retain(|target| target.package == SMOKE.0);
    }
    if printed::is_large(plan.case.as_deref()) {
        targets.retain(|target| target.package == printed::CACHES);
    }
    ensure!(!targets.is_empty(), "no crate has a bench");
    let mut programs = Vec::new();
    for target in targets {
        plan.progress(&format!("micro: building {}", target.name()));
        let name = target.name();
        let built = targets::build(root, &target, smoke);
        match built.and_then(|file| Program::of(target, (file, Vec::new()), plan, &mut figures)) {
            Ok(program) => programs.extend(program),
            Err(error) => figures.add_missing(format!("{name}: {error:#}")),
        }
    }
    let has_peer =
        |program: &Program| program.style == Style::Figures && program.target.package == printed::CACHES;
    if programs.iter().any(has_peer) {
        let program = printed::jdk(root).and_then(|(target, arguments)| {
            Program::of(target, (PathBuf::from("java"), arguments), plan, &mut figures)
        });
        match program {
            Ok(program) => programs.extend(program),
            Err(error) => figures.add_missing(format!("the session cache of the JDK: {error:#}")),
        }
    }
    for round in 1..=plan.rounds {
        // Nor does what is told change from round to round, where it is no time.
        let again = |program: &&Program| {
            round == 1 || program.style != Style::Table && !printed::is_large(plan.case.as_deref())
        };
        for program in programs.iter().filter(again) {
            plan.progress(&format!("micro {round}/{} {}", plan.rounds, program.target.name()));
            if let Err(error) = program.time(&folder, plan, &mut figures) {
                figures.add_missing(format!("{}: {error:#}", program.target.name()));
            }
        }
    }
    let counted = if smoke { Ok(()) } else { needs::provide(&[VALGRIND]) };
    match counted {
        Ok(()) if valgrind::is_there() => {
            for program in programs.iter().filter(|program| program.target.counts) {
                plan.progress(&format!("micro, counting {}", program.target.name()));
                if let Err(error) = program.count(plan, &mut figures) {
                    figures.add_missing(format!("counts of {}: {error:#}", program.target.name()));
                }
            }
        }
        Ok(()) => figures.add_missing("counts: valgrind is not installed".to_owned()),
        Err(error) => figures.add_missing(format!("counts: {error:#}")),
    }
    Ok(figures)
}

/// The tables, with what was held equal.
pub(super) fn section(figures: &Figures, plan: &Plan) -> String {
    format!(
        "{HELD_EQUAL}\n\nNanoseconds per operation, median (lowest–highest) of {} rounds:\n{}{}",
        plan.rounds,
        figures.tables(),
        figures.missing()
    )
}

/// A bench that is built.
struct Program {
    target: Target,
    file: PathBuf,
    /// Before all others.
    arguments: Vec<OsString>,
    style: Style,
    /// Of all that it has, those that are wanted; `None` where all are.
    wanted: Option<Vec<String>>,
}

impl Program {
    /// `None` where the plan takes nothing of it, or where it prints nothing that is known.
    fn of(
        target: Target,
        (file, arguments): (PathBuf, Vec<OsString>),
        plan: &Plan,
        figures: &mut Figures,
    ) -> Result<Option<Self>> {
        let of_plan = printed::arguments(plan.case.as_deref(), plan.rounds);
        let mut command = Command::new(&file);
        command.args(&arguments).args(["--list", "--format=terse"]).args(&of_plan);
        // What cargo tells a bench from a test by, which no other program knows.
        if arguments.is_empty() {
            command.arg("--bench");
        }
        let listed = catch(command.current_dir(&target.folder), LIST_LIMIT)?;
        let Some((style, ids)) = printed::listed(&listed.output).filter(|_| listed.success) else {
            figures.add_other(format!("{} prints its own figures: `{}`", target.name(), target.command()));
            return Ok(None);
        };
        let everything = plan.case.is_none() && plan.extent == Extent::Full;
        let takes = |id: &String| {
            let (case, _) = samples::case_of(id);
            plan.takes(&case) && (plan.extent == Extent::Full || case == SMOKE.1)
        };
        let wanted: Vec<String> = ids.into_iter().filter(takes).collect();
        let some = !wanted.is_empty();
        let wanted = (!everything).then_some(wanted);
        Ok(some.then_some(Self { target, file, arguments, style, wanted }))
    }

    /// One round.
    fn time(&self, folder: &Path, plan: &Plan, figures: &mut Figures) -> Result<()> {
        let package = &self.target.package;
        let mut add = |sample: Sample| {
            figures.add(package, &sample.case, &sample.subject, &NANOSECONDS, sample.nanoseconds);
        };
        match self.style {
            Style::Criterion => self.by_criterion(folder, plan)?.into_iter().for_each(add),
            Style::Figures => {
                let mut last = String::new();
                self.printed(plan, |line| {
                    let Some(sample) = printed::sample(line) else { return };
                    let name = format!("{}/{}", sample.case, sample.subject);
                    if name != last && printed::is_large(plan.case.as_deref()) {
                        plan.progress(&format!("micro {name}"));
                        last = name;
                    }
                    add(sample);
                })?;
            }
            Style::Table => {
                let mut table = String::new();
                self.printed(plan, |line| table.extend([line, "\n"]))?;
                figures.add_table(package, &self.target.command(), &table);
            }
        }
        Ok(())
    }

    fn printed(&self, plan: &Plan, each: impl FnMut(&str)) -> Result<()> {
        let mut command = Command::new(&self.file);
        command
            .args(&self.arguments)
            .args(printed::arguments(plan.case.as_deref(), plan.rounds))
            .args(self.wanted.iter().flatten())
            .current_dir(&self.target.folder);
        let limit = if printed::is_large(plan.case.as_deref()) { LARGE_LIMIT } else { ROUND_LIMIT };
        printed::run(&mut command, limit, each)
    }

    fn by_criterion(&self, folder: &Path, plan: &Plan) -> Result<Vec<Sample>> {
        let folder = fresh_folder(folder.join("criterion"))?;
        let window = if plan.extent == Extent::Smoke { WINDOW_SMOKE } else { plan.window.min(WINDOW_MAX) };
        let warm_up = if plan.extent == Extent::Smoke { WINDOW_SMOKE } else { WARM_UP };
        let mut command = Command::new(&self.file);
        command
            .args(["--bench", "--quiet", "--noplot"])
            .args(["--warm-up-time", &warm_up.as_secs_f64().to_string()])
            .args(["--measurement-time", &window.as_secs_f64().to_string()])
            .args(["--sample-size", &SAMPLES.to_string()])
            .args(["--nresamples", &RESAMPLES.to_string()])
            .args(self.wanted.iter().map(|ids| exactly(ids)))
            .env("CRITERION_HOME", &folder)
            .current_dir(&self.target.folder);
        let ran = catch(&mut command, ROUND_LIMIT)?;
        ensure!(ran.success, "{}", ran.last_line());
        let samples = samples::read(&folder)?;
        fs::remove_dir_all(&folder)?;
        Ok(samples)
    }

    fn count(&self, plan: &Plan, figures: &mut Figures) -> Result<()> {
        for counted in valgrind::list(&self.file, &self.target.folder)? {
            let wanted = self.wanted.as_ref().is_none_or(|ids| ids.contains(&counted.id));
            if !wanted {
                continue;
            }
            plan.progress(&format!("micro, counting {}", counted.id));
            let (case, subject) = samples::case_of(&counted.id);
            let counts = valgrind::count(&self.file, &self.target.folder, &counted)?;
            let package = &self.target.package;
            figures.add(package, &case, &subject, &INSTRUCTIONS, counts.instructions);
            figures.add(package, &case, &subject, &ALLOCATIONS, counts.allocations);
            figures.add(package, &case, &subject, &BYTES, counts.bytes);
        }
        Ok(())
    }
}

/// The filter that takes these names and no others.
fn exactly(ids: &[String]) -> OsString {
    let escape = |id: &String| {
        let escaped = id.chars().flat_map(|character| {
            let plain =
                character.is_ascii_alphanumeric() || "-_/ ".contains(character) || !character.is_ascii();
            (!plain).then_some('\\').into_iter().chain([character])
        });
        escaped.collect::<String>()
    };
    format!("^({})$", ids.iter().map(escape).collect::<Vec<_>>().join("|")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_matches_names_literally() {
        let ids = ["a-1/cardea".to_owned(), "b.c+d/x (y)".to_owned()];
        assert_eq!(exactly(&ids), r"^(a-1/cardea|b\.c\+d/x \(y\))$");
    }
}
