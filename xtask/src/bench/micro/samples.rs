//! What criterion has measured, read from the files that it leaves.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::super::report::median;

/// Folders below that of criterion: group, function, parameter, and what is in them.
const DEPTH_MAX: usize = 5;

/// The figure of one subject in one case.
#[derive(Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) case: String,
    pub(super) subject: String,
    /// Of one operation: of an element, where the bench says how many an iteration has.
    pub(super) nanoseconds: f64,
}

/// `benchmark.json`.
#[derive(Deserialize)]
struct Benchmark {
    group_id: String,
    function_id: Option<String>,
    value_str: Option<String>,
    throughput: Option<serde_json::Value>,
}

/// `sample.json`.
#[derive(Deserialize)]
struct Times {
    iters: Vec<f64>,
    times: Vec<f64>,
}

/// The case and the subject of a name: `group/subject` or `group/subject/parameter`.
pub(super) fn case_of(id: &str) -> (String, String) {
    let mut parts = id.splitn(3, '/');
    name(parts.next().unwrap_or_default(), parts.next(), parts.next())
}

/// A parameter is a part of the case. What has no subject is Cardea's.
fn name(group: &str, subject: Option<&str>, parameter: Option<&str>) -> (String, String) {
    let case = parameter.map_or_else(|| group.to_owned(), |parameter| format!("{group}-{parameter}"));
    (case, subject.unwrap_or("cardea").to_owned())
}

/// All that was measured into `folder`, in the order of names.
pub(super) fn read(folder: &Path) -> Result<Vec<Sample>> {
    let mut found = Vec::new();
    visit(folder, DEPTH_MAX, &mut found)?;
    Ok(found)
}

fn visit(folder: &Path, depth: usize, found: &mut Vec<Sample>) -> Result<()> {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .with_context(|| format!("{}", folder.display()))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    entries.sort();
    for path in entries.into_iter().filter(|path| path.is_dir()) {
        if path.ends_with("new") && path.join("benchmark.json").exists() {
            let text = |file: &str| fs::read_to_string(path.join(file)).with_context(|| file.to_owned());
            found.extend(sample(&text("benchmark.json")?, &text("sample.json")?)?);
        } else if depth > 0 {
            visit(&path, depth - 1, found)?;
        }
    }
    Ok(())
}

/// `None` where nothing was sampled.
#[expect(clippy::cast_precision_loss, reason = "the number of operations of an iteration is small")]
fn sample(benchmark: &str, times: &str) -> Result<Option<Sample>> {
    let benchmark: Benchmark = serde_json::from_str(benchmark).context("benchmark.json")?;
    let times: Times = serde_json::from_str(times).context("sample.json")?;
    let each: Vec<f64> = times.times.iter().zip(&times.iters).map(|(time, count)| time / count).collect();
    let elements = benchmark.throughput.as_ref().and_then(|throughput| {
        throughput["Elements"].as_u64().or_else(|| throughput["ElementsAndBytes"]["elements"].as_u64())
    });
    let Some(iteration) = median(&each) else { return Ok(None) };
    let (case, subject) =
        name(&benchmark.group_id, benchmark.function_id.as_deref(), benchmark.value_str.as_deref());
    Ok(Some(Sample { case, subject, nanoseconds: iteration / elements.unwrap_or(1).max(1) as f64 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_case_and_a_subject() {
        let pair = |case: &str, subject: &str| (case.to_owned(), subject.to_owned());
        assert_eq!(case_of("read/cardea"), pair("read", "cardea"));
        assert_eq!(case_of("read/nginx/t2"), pair("read-t2", "nginx"));
        assert_eq!(case_of("read"), pair("read", "cardea"));
    }

    #[test]
    fn the_figure_is_the_median_of_an_element() {
        let benchmark = r#"{"group_id": "read", "function_id": "cardea", "value_str": "t1", "throughput": {"Elements": 4}}"#;
        let times = r#"{"iters": [10.0, 20.0, 30.0], "times": [400.0, 1600.0, 1200.0]}"#;
        let expected = Sample { case: "read-t1".to_owned(), subject: "cardea".to_owned(), nanoseconds: 10.0 };
        assert_eq!(sample(benchmark, times).unwrap(), Some(expected));
        let bytes = benchmark.replace("Elements", "Bytes");
        assert_eq!(sample(&bytes, times).unwrap().unwrap().nanoseconds, 40.0);
        assert_eq!(sample(benchmark, r#"{"iters": [], "times": []}"#).unwrap(), None);
        assert!(sample("{}", times).is_err());
    }

    #[test]
    fn what_criterion_leaves_is_found_at_any_depth_but_not_twice() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["read/cardea", "read/nginx/t2"] {
            for kind in ["new", "base"] {
                let place = folder.path().join(path).join(kind);
                fs::create_dir_all(&place).unwrap();
                let function = path.split('/').nth(1).unwrap();
                let benchmark = format!(r#"{{"group_id": "read", "function_id": "{function}"}}"#);
                fs::write(place.join("benchmark.json"), benchmark).unwrap();
                fs::write(place.join("sample.json"), r#"{"iters": [1.0], "times": [2.0]}"#).unwrap();
            }
        }
        let subjects: Vec<String> =
            read(folder.path()).unwrap().into_iter().map(|sample| sample.subject).collect();
        assert_eq!(subjects, ["cardea", "nginx"]);
    }
}
