//! What was measured of the crates, as tables for people and as JSON for programs.

use std::fmt::Write;

use super::super::report::{Entry, Metric, figure, markdown, median, rounded};
use super::{ALLOCATIONS, BYTES, INSTRUCTIONS, NAME, NANOSECONDS};

/// The one that is compared with all others.
const CARDEA: &str = "cardea";
/// The beginning of the names of its variants, which are no peers of it.
const VARIANT: &str = "cardea-";
/// The end of the names of those that do a part of the work.
const PART: &str = "-alone";

/// The figures of one subject in one case of one crate.
#[derive(Debug)]
struct Series {
    package: String,
    case: String,
    subject: String,
    metric: &'static Metric,
    values: Vec<f64>,
}

/// All figures.
#[derive(Debug, Default)]
pub(in super::super) struct Figures {
    series: Vec<Series>,
    /// What could not be measured, and why.
    missing: Vec<String>,
    /// What has figures that are none of ours.
    others: Vec<String>,
    /// By the package that they are of: what prints them, and what it has printed.
    tables: Vec<(String, String, String)>,
}

impl Figures {
    /// Adds one more figure. The same case may stand in several crates, of which the first gets it: peers that need
    /// other libraries have crates of their own.
    pub(super) fn add(
        &mut self,
        package: &str,
        case: &str,
        subject: &str,
        metric: &'static Metric,
        value: f64,
    ) {
        let same = |series: &&mut Series| {
            series.case == case && series.subject == subject && series.metric.name == metric.name
        };
        if let Some(series) = self.series.iter_mut().find(same) {
            series.values.push(value);
            return;
        }
        let package =
            self.series.iter().find(|series| series.case == case).map_or(package, |series| &series.package);
        self.series.push(Series {
            package: package.to_owned(),
            case: case.to_owned(),
            subject: subject.to_owned(),
            metric,
            values: vec![value],
        });
    }

    pub(super) fn add_missing(&mut self, reason: String) {
        if !self.missing.contains(&reason) {
            self.missing.push(reason);
        }
    }

    /// Notes a bench that has figures of another kind.
    pub(super) fn add_other(&mut self, line: String) {
        self.others.push(line);
    }

    /// Notes what a bench has printed that is no figure of a subject in a case.
    pub(super) fn add_table(&mut self, package: &str, command: &str, printed: &str) {
        self.tables.push((package.to_owned(), command.to_owned(), printed.trim_end().to_owned()));
    }

    /// Whether something was measured.
    pub(in super::super) fn is_complete(&self) -> bool {
        self.series.iter().any(|series| series.subject == CARDEA) || !self.tables.is_empty()
    }

    /// Whether nothing is missing.
    pub(in super::super) fn is_flawless(&self) -> bool {
        self.missing.is_empty()
    }

    pub(in super::super) fn entries(&self) -> Vec<Entry> {
        let entry = |series: &Series| {
            let median = median(&series.values);
            let best = self.best_peer(&series.case, series.metric);
            let ratio = match (best, median) {
                // Nothing at all is better than any number, by no number of times.
                (Some((_, theirs)), Some(ours)) if series.subject == CARDEA && ours > 0.0 => {
                    Some(rounded(theirs / ours))
                }
                _ => None,
            };
            Entry {
                bench: NAME,
                case: series.case.clone(),
                subject: series.subject.clone(),
                metric: series.metric.name,
                unit: series.metric.unit,
                median: median.map(rounded),
                min: series.values.iter().copied().reduce(f64::min).map(rounded),
                max: series.values.iter().copied().reduce(f64::max).map(rounded),
                rounds: series.values.len(),
                best_peer: best.map(|(subject, _)| subject.to_owned()),
                ratio_to_best_peer: ratio,
            }
        };
        self.series.iter().map(entry).collect()
    }

    /// One table per crate: a row for each case and subject, Cardea first.
    pub(super) fn tables(&self) -> String {
        let mut packages: Vec<&str> = Vec::new();
        let tables = self.tables.iter().map(|(package, ..)| package);
        for package in self.series.iter().map(|series| &series.package).chain(tables) {
            if !packages.contains(&package.as_str()) {
                packages.push(package);
            }
        }
        let mut text = String::new();
        for package in packages {
            // Writing into a string can't fail.
            let _ = write!(text, "\n### {package}\n");
            if self.series.iter().any(|series| series.package == package) {
                let _ = write!(text, "\n{}", self.table(package));
            }
            for (_, command, printed) in self.tables.iter().filter(|(of, ..)| of == package) {
                let _ = write!(text, "\n```text\n$ {command}\n{printed}\n```\n");
            }
        }
        text
    }

    /// A list of what is not in the tables, with an empty line before it; empty where all is.
    pub(super) fn missing(&self) -> String {
        let others = self.others.iter().map(|line| format!("- {line}\n"));
        let missing = self.missing.iter().map(|line| format!("- not measured: {line}\n"));
        let lines: String = others.chain(missing).collect();
        if lines.is_empty() { lines } else { format!("\n{lines}") }
    }

    fn table(&self, package: &str) -> String {
        let counted = self
            .series
            .iter()
            .any(|series| series.package == package && series.metric.name == INSTRUCTIONS.name);
        let mut head = vec!["case", "subject", "ns per operation", "ratio"];
        if counted {
            head.extend(["instructions", "allocations", "bytes"]);
        }
        let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
        for (case, subject) in self.rows(package) {
            let of = |metric: &'static Metric, case, subject| median(self.values(case, subject, metric));
            let time = of(&NANOSECONDS, case, subject);
            let ratio = match (of(&NANOSECONDS, case, CARDEA), time) {
                (Some(ours), Some(theirs)) if subject != CARDEA && ours > 0.0 => {
                    format!("{:.2}", theirs / ours)
                }
                _ => "–".to_owned(),
            };
            let mut row = vec![case.to_owned(), subject.to_owned(), self.cell(case, subject), ratio];
            if counted {
                let count = |metric| of(metric, case, subject).map_or("–".to_owned(), figure);
                row.extend([count(&INSTRUCTIONS), count(&ALLOCATIONS), count(&BYTES)]);
            }
            rows.push(row);
        }
        markdown(&rows)
    }

    /// Cases and subjects of a crate.
    fn rows(&self, package: &str) -> Vec<(&str, &str)> {
        let mut rows: Vec<(&str, &str)> = Vec::new();
        for series in self.series.iter().filter(|series| series.package == package) {
            let row = (series.case.as_str(), series.subject.as_str());
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        rows.sort_by_key(|&(case, subject)| (case, subject != CARDEA, subject));
        rows
    }

    fn cell(&self, case: &str, subject: &str) -> String {
        let values = self.values(case, subject, &NANOSECONDS);
        let range = |pick: fn(f64, f64) -> f64| values.iter().copied().reduce(pick);
        match (median(values), range(f64::min), range(f64::max)) {
            (Some(median), Some(min), Some(max)) => {
                format!("{} ({}–{})", figure(median), figure(min), figure(max))
            }
            _ => "not measured".to_owned(),
        }
    }

    fn values(&self, case: &str, subject: &str, metric: &'static Metric) -> &[f64] {
        let wanted = |series: &&Series| {
            series.case == case && series.subject == subject && series.metric.name == metric.name
        };
        self.series.iter().find(wanted).map_or(&[], |series| &series.values)
    }

    fn best_peer(&self, case: &str, metric: &'static Metric) -> Option<(&str, f64)> {
        let here =
            self.series.iter().filter(|series| series.case == case && series.metric.name == metric.name);
        let peers = here.filter(|series| is_peer(&series.subject));
        let medians = peers.filter_map(|series| Some((series.subject.as_str(), median(&series.values)?)));
        medians.min_by(|one, other| one.1.total_cmp(&other.1))
    }
}

fn is_peer(subject: &str) -> bool {
    subject != CARDEA && !subject.starts_with(VARIANT) && !subject.ends_with(PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Figures {
        let mut figures = Figures::default();
        for (subject, values) in [
            ("zlow", [30.0, 50.0, 40.0]),
            ("cardea", [10.0, 12.0, 11.0]),
            ("peer", [22.0, 22.0, 22.0]),
            ("cardea-wide", [1.0, 1.0, 1.0]),
            ("tokens-alone", [2.0, 2.0, 2.0]),
        ] {
            for value in values {
                figures.add("cardea-x", "read-t2", subject, &NANOSECONDS, value);
            }
        }
        figures
    }

    #[test]
    fn the_ratio_is_to_the_best_peer_and_to_no_variant_and_no_part() {
        let entries = sample().entries();
        let ours = entries.iter().find(|entry| entry.subject == "cardea").unwrap();
        assert_eq!(
            (
                ours.median,
                ours.min,
                ours.max,
                ours.rounds,
                ours.best_peer.as_deref(),
                ours.ratio_to_best_peer
            ),
            (Some(11.0), Some(10.0), Some(12.0), 3, Some("peer"), Some(2.0))
        );
        let theirs = entries.iter().find(|entry| entry.subject == "peer").unwrap();
        assert_eq!(theirs.ratio_to_best_peer, None);
    }

    #[test]
    fn a_table_has_cardea_first_and_counts_where_there_are_some() {
        let mut figures = sample();
        let table = figures.table("cardea-x");
        let rows: Vec<&str> = table.lines().collect();
        assert!(rows[2].starts_with("| read-t2 | cardea       | 11.0 (10.0–12.0) | –     |"), "{}", rows[2]);
        assert!(rows[4].starts_with("| read-t2 | peer         | 22.0 (22.0–22.0) | 2.00  |"), "{}", rows[4]);
        assert!(!table.contains("instructions"));
        figures.add("cardea-x", "read-t2", "cardea", &INSTRUCTIONS, 1.5);
        figures.add("cardea-x", "read-t2", "cardea", &ALLOCATIONS, 0.0);
        assert!(figures.table("cardea-x").contains("| –     | 1.50         | 0.00        |"));
        assert_eq!(figures.table("cardea-y").lines().count(), 2);
    }

    #[test]
    fn what_a_bench_prints_stands_below_the_table_of_its_crate() {
        let mut figures = sample();
        figures.add_table("cardea-x", "cargo bench x", "hits\n1 2\n\n");
        figures.add_table("cardea-y", "cargo bench y", "3");
        let text = figures.tables();
        assert!(text.ends_with("|\n\n```text\n$ cargo bench x\nhits\n1 2\n```\n\n### cardea-y\n\n```text\n$ cargo bench y\n3\n```\n"), "{text}");
    }

    #[test]
    fn no_allocation_has_no_ratio() {
        let mut figures = Figures::default();
        figures.add("x", "c", "cardea", &ALLOCATIONS, 0.0);
        figures.add("x", "c", "peer", &ALLOCATIONS, 3.0);
        assert_eq!(figures.entries()[0].ratio_to_best_peer, None);
    }

    #[test]
    fn a_peer_in_another_crate_joins_the_table_of_the_case() {
        let mut figures = sample();
        figures.add("bench-x", "read-t2", "openssl", &NANOSECONDS, 5.0);
        assert!(figures.table("cardea-x").contains("openssl"));
        assert_eq!(figures.entries().last().unwrap().best_peer.as_deref(), Some("openssl"));
        figures.add_missing("x: none".to_owned());
        figures.add_missing("x: none".to_owned());
        assert_eq!(figures.missing(), "\n- not measured: x: none\n");
    }
}
