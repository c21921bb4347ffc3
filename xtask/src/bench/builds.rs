//! The runs that `cargo xtask pgo` asks for: training a build, and comparing two builds.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::Value;

use super::subject::Subject;
use super::window::COST;
use super::{Bench, Options, ROUNDS_MIN};

/// What programs are trained with, as far as there are such benches, and which of its cases. Of the bench `proxy` those
/// with few connections: more of them take the same way.
const TRAINING: [(&str, Option<&str>); 3] =
    [("proxy", Some("c32")), ("authenticated", None), ("token", None)];
/// Of each window of a training. What counts is which ways are taken, not how fast.
const TRAINING_SECONDS: f64 = 0.2;
/// The cases in which two builds are compared: on a processor of their own.
const COMPARED: &str = "c32-pinned";

/// One build beside another.
#[derive(Debug, PartialEq)]
pub(crate) struct Gain {
    pub(crate) case: String,
    /// Requests per time of the processor, relative to the other build: 1.1 is a tenth more.
    pub(crate) ratio: f64,
}

/// The runs that train `program`.
pub(crate) fn training(program: &Path) -> Vec<Options> {
    let known = TRAINING.iter().filter_map(|&(name, case)| {
        let bench = Bench::from_str(name, true).ok()?;
        Some(Options {
            benches: vec![bench],
            rounds: 1,
            training: true,
            seconds: TRAINING_SECONDS,
            case: case.map(str::to_owned),
            subjects: vec![Subject::Cardea.name().to_owned()],
            program: Some(program.to_owned()),
            ..Options::plain()
        })
    });
    known.collect()
}

/// The run that compares `program` with `baseline` and writes its figures into `json`.
pub(crate) fn comparison(
    program: &Path,
    baseline: &Path,
    json: &Path,
    (rounds, seconds): (usize, f64),
) -> Options {
    Options {
        benches: vec![Bench::Proxy],
        rounds,
        seconds,
        json: Some(json.to_owned()),
        case: Some(COMPARED.to_owned()),
        subjects: [Subject::Cardea, Subject::Again].map(|subject| subject.name().to_owned()).to_vec(),
        program: Some(program.to_owned()),
        baseline: Some(baseline.to_owned()),
        ..Options::plain()
    }
}

/// What such a run found.
pub(crate) fn gains(json: &Path) -> Result<Vec<Gain>> {
    let text = fs::read_to_string(json).with_context(|| format!("{}", json.display()))?;
    let entries: Vec<Value> = serde_json::from_str(&text)?;
    Ok(gains_of(&entries))
}

fn gains_of(entries: &[Value]) -> Vec<Gain> {
    let cost = |case: &str, subject: Subject| {
        let found = entries.iter().find(|entry| {
            entry["case"] == case && entry["subject"] == subject.name() && entry["metric"] == COST.name
        });
        found?["median"].as_f64().filter(|&cost| cost > 0.0)
    };
    let ours = entries
        .iter()
        .filter(|entry| entry["subject"] == Subject::Cardea.name() && entry["metric"] == COST.name);
    let gain = |entry: &Value| {
        let case = entry["case"].as_str()?;
        let ratio = cost(case, Subject::Baseline)? / cost(case, Subject::Cardea)?;
        Some(Gain { case: case.to_owned(), ratio })
    };
    ours.filter_map(gain).collect()
}

impl Options {
    /// Those of `cargo xtask bench`.
    fn plain() -> Self {
        Self {
            benches: Vec::new(),
            rounds: ROUNDS_MIN,
            seconds: 1.0,
            json: None::<PathBuf>,
            page: None,
            smoke: false,
            case: None,
            subjects: Vec::new(),
            program: None,
            baseline: None,
            training: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_build_that_needs_less_time_gains() {
        let entry = |case: &str, subject: &str, metric: &str, median: f64| json!({"case": case, "subject": subject, "metric": metric, "median": median});
        let entries = [
            entry("a", "cardea", COST.name, 10.0),
            entry("a", "cardea-again", COST.name, 7.0),
            entry("a", "cardea-baseline", COST.name, 11.0),
            entry("a", "cardea-baseline", "latency_p50", 99.0),
            // Without a figure of the other build there is nothing to compare.
            entry("b", "cardea", COST.name, 10.0),
        ];
        assert_eq!(gains_of(&entries), [Gain { case: "a".to_owned(), ratio: 1.1 }]);
    }

    #[test]
    fn training_measures_cardea_alone_and_in_that_build() {
        let runs = training(Path::new("/x/cardea"));
        assert_eq!(runs[0].benches, [Bench::Proxy]);
        assert!(runs.iter().all(|run| run.subjects == ["cardea"] && run.baseline.is_none()));
        assert!(runs.iter().all(|run| run.program.as_deref() == Some(Path::new("/x/cardea"))));
    }
}
