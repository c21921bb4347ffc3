//! What was measured, as tables for people and as JSON for programs.

use std::fmt::Write;

use serde::Serialize;

use super::subject::{Role, Subject};

/// A kind of figure.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) better: Better,
}

/// Which of two figures is the better one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Better {
    Lower,
    Higher,
    /// It says what happened, and has no best.
    Neither,
}

/// The figures of one subject in one case, a round each.
#[derive(Clone, Debug)]
struct Series {
    case: String,
    subject: Subject,
    metric: &'static Metric,
    values: Vec<f64>,
    /// Whether the subject has what the case asks for.
    offered: bool,
}

/// All figures of a bench.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) bench: &'static str,
    series: Vec<Series>,
    /// What could not be measured, and why.
    missing: Vec<String>,
    /// What a subject does not have, and how that was found.
    not_offered: Vec<String>,
    /// Why nothing was measured at all.
    skipped: Option<String>,
}

/// The JSON form of a series.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Entry {
    pub(super) bench: &'static str,
    pub(super) case: String,
    pub(super) subject: String,
    pub(super) metric: &'static str,
    pub(super) unit: &'static str,
    /// Absent, like both that follow, where nothing was measured.
    pub(super) median: Option<f64>,
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
    pub(super) rounds: usize,
    pub(super) best_peer: Option<String>,
    /// Of Cardea alone; above 1, Cardea is better.
    pub(super) ratio_to_best_peer: Option<f64>,
}

impl Metric {
    /// How many times better `ours` is than `theirs`.
    fn ratio(&self, ours: f64, theirs: f64) -> f64 {
        match self.better {
            Better::Lower | Better::Neither => theirs / ours,
            Better::Higher => ours / theirs,
        }
    }
}

impl Report {
    pub(super) fn new(bench: &'static str) -> Self {
        Self { bench, series: Vec::new(), missing: Vec::new(), not_offered: Vec::new(), skipped: None }
    }

    /// The figures of those cases alone.
    pub(super) fn only(&self, takes: impl Fn(&str) -> bool) -> Self {
        let series = self.series.iter().filter(|series| takes(&series.case)).cloned().collect();
        Self { series, ..Self::new(self.bench) }
    }

    /// Adds the figure of one more round.
    pub(super) fn add(&mut self, case: &str, subject: Subject, metric: &'static Metric, value: f64) {
        self.series_mut(case, subject, metric).values.push(value);
    }

    /// Notes that a round gave no figure.
    pub(super) fn add_missing(
        &mut self,
        case: &str,
        subject: Subject,
        metric: &'static Metric,
        reason: impl std::fmt::Display,
    ) {
        self.series_mut(case, subject, metric);
        let line = format!("{case}, {}: {reason}", subject.name());
        if !self.missing.contains(&line) {
            self.missing.push(line);
        }
    }

    /// Notes that a subject has nothing of the kind that a case is about: that is an answer, and no failure.
    pub(super) fn add_not_offered(
        &mut self,
        case: &str,
        subject: Subject,
        metric: &'static Metric,
        reason: impl std::fmt::Display,
    ) {
        self.series_mut(case, subject, metric).offered = false;
        let line = format!("{case}, {}: {reason}", subject.name());
        if !self.not_offered.contains(&line) {
            self.not_offered.push(line);
        }
    }

    /// Notes that nothing of it can be measured.
    pub(super) fn skip(&mut self, reason: impl std::fmt::Display) {
        self.skipped = Some(reason.to_string());
    }

    pub(super) fn is_skipped(&self) -> bool {
        self.skipped.is_some()
    }

    /// Whether Cardea was measured in every case, but for those that it has nothing for.
    pub(super) fn is_complete(&self) -> bool {
        let mut ours = self.series.iter().filter(|series| series.subject == Subject::Cardea).peekable();
        ours.peek().is_some() && ours.all(|series| !series.values.is_empty() || !series.offered)
    }

    /// Whether every round of every subject gave its figures.
    pub(super) fn is_flawless(&self) -> bool {
        self.missing.is_empty()
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        let entry = |series: &Series| {
            let best = self.best(&series.case, series.metric, Role::Peer);
            let median = median(&series.values);
            let ratio = match (best, median, series.subject.role()) {
                (Some((_, theirs)), Some(ours), Role::Cardea) => Some(series.metric.ratio(ours, theirs)),
                _ => None,
            };
            Entry {
                bench: self.bench,
                case: series.case.clone(),
                subject: series.subject.name().to_owned(),
                metric: series.metric.name,
                unit: series.metric.unit,
                median: median.map(rounded),
                min: series.values.iter().copied().reduce(f64::min).map(rounded),
                max: series.values.iter().copied().reduce(f64::max).map(rounded),
                rounds: series.values.len(),
                best_peer: best.map(|(subject, _)| subject.name().to_owned()),
                ratio_to_best_peer: ratio.map(rounded),
            }
        };
        self.series.iter().map(entry).collect()
    }

    /// The table of the main figure: a row for each case, with the median and the range of each subject, Cardea's
    /// ratio to the best peer and to the limit, and the noise.
    pub(super) fn table(&self, metric: &'static Metric, subjects: &[Subject]) -> String {
        let shown: Vec<Subject> =
            subjects.iter().copied().filter(|&subject| subject != Subject::Again).collect();
        let limit = shown.iter().any(|subject| subject.role() == Role::Limit);
        let mut head = vec!["case".to_owned()];
        head.extend(shown.iter().map(|subject| subject.name().to_owned()));
        head.extend(["best peer", "ratio"].map(str::to_owned));
        if limit {
            head.push("to the limit".to_owned());
        }
        head.push("A/A".to_owned());
        let mut rows = vec![head];
        let has = |case: &&str| shown.iter().any(|&subject| self.series(case, subject, metric).is_some());
        for case in self.cases().into_iter().filter(has) {
            let ours = self.median_of(case, Subject::Cardea, metric);
            let ratio = |theirs: Option<f64>| match (ours, theirs) {
                (Some(ours), Some(theirs)) => format!("{:.2}", metric.ratio(ours, theirs)),
                _ => "–".to_owned(),
            };
            let mut row = vec![case.to_owned()];
            row.extend(shown.iter().map(|&subject| self.cell(case, subject, metric)));
            let best = self.best(case, metric, Role::Peer);
            row.push(best.map_or("–", |(subject, _)| subject.name()).to_owned());
            row.push(ratio(best.map(|(_, median)| median)));
            if limit {
                row.push(ratio(self.best(case, metric, Role::Limit).map(|(_, median)| median)));
            }
            row.push(self.noise(case, metric));
            rows.push(row);
        }
        markdown(&rows)
    }

    /// A table of further figures: a row for each case and subject, with medians.
    pub(super) fn details(&self, metrics: &[&'static Metric], subjects: &[Subject]) -> String {
        let mut head = vec!["case".to_owned(), "subject".to_owned()];
        head.extend(metrics.iter().map(|metric| format!("{} ({})", metric.name, metric.unit)));
        let mut rows = vec![head];
        for case in self.cases() {
            for &subject in subjects {
                let medians: Vec<_> =
                    metrics.iter().map(|metric| self.median_of(case, subject, metric)).collect();
                if medians.iter().all(Option::is_none) {
                    continue;
                }
                let mut row = vec![case.to_owned(), subject.name().to_owned()];
                row.extend(medians.iter().map(|median| median.map_or("–".to_owned(), figure)));
                rows.push(row);
            }
        }
        markdown(&rows)
    }

    /// The figures of all rounds.
    pub(super) fn values(&self, case: &str, subject: Subject, metric: &'static Metric) -> &[f64] {
        self.series(case, subject, metric).map_or(&[], |series| &series.values)
    }

    /// A list of what could not be measured, with an empty line before it; empty where all could.
    pub(super) fn missing(&self) -> String {
        let mut text = String::new();
        if let Some(reason) = &self.skipped {
            let _ = writeln!(text, "- not measured, none of it: {reason}");
        }
        for (what, lines) in [("not offered", &self.not_offered), ("not measured", &self.missing)] {
            for line in lines {
                // Writing into a string can't fail.
                let _ = writeln!(text, "- {what}: {line}");
            }
        }
        if text.is_empty() { text } else { format!("\n{text}") }
    }

    /// The largest A/A deviation of all cases, as a part of one.
    pub(super) fn largest_noise(&self, metric: &'static Metric) -> Option<f64> {
        let deviations = self.cases().into_iter().filter_map(|case| self.deviation(case, metric));
        deviations.map(f64::abs).reduce(f64::max)
    }

    fn cell(&self, case: &str, subject: Subject, metric: &'static Metric) -> String {
        let Some(series) = self.series(case, subject, metric) else { return "–".to_owned() };
        let range = |pick: fn(f64, f64) -> f64| series.values.iter().copied().reduce(pick);
        match (median(&series.values), range(f64::min), range(f64::max)) {
            (Some(median), Some(min), Some(max)) => {
                format!("{} ({}–{})", figure(median), figure(min), figure(max))
            }
            _ if !series.offered => "not offered".to_owned(),
            _ => "not measured".to_owned(),
        }
    }

    fn noise(&self, case: &str, metric: &'static Metric) -> String {
        self.deviation(case, metric)
            .map_or("–".to_owned(), |deviation| format!("{:+.1} %", deviation * 100.0))
    }

    /// By how much the same program differs from itself.
    fn deviation(&self, case: &str, metric: &'static Metric) -> Option<f64> {
        let ours = self.median_of(case, Subject::Cardea, metric)?;
        let again = self.median_of(case, Subject::Again, metric)?;
        Some(again / ours - 1.0)
    }

    fn best(&self, case: &str, metric: &'static Metric, role: Role) -> Option<(Subject, f64)> {
        if metric.better == Better::Neither {
            return None;
        }
        let of_role = self.series.iter().filter(|series| series.subject.role() == role);
        let here = of_role.filter(|series| series.case == case && series.metric.name == metric.name);
        let medians = here.filter_map(|series| Some((series.subject, median(&series.values)?)));
        medians.reduce(|best, other| if metric.ratio(other.1, best.1) > 1.0 { other } else { best })
    }

    fn cases(&self) -> Vec<&str> {
        let mut cases: Vec<&str> = Vec::new();
        for series in &self.series {
            if !cases.contains(&series.case.as_str()) {
                cases.push(&series.case);
            }
        }
        cases
    }

    fn median_of(&self, case: &str, subject: Subject, metric: &'static Metric) -> Option<f64> {
        median(&self.series(case, subject, metric)?.values)
    }

    fn series(&self, case: &str, subject: Subject, metric: &'static Metric) -> Option<&Series> {
        let wanted = |series: &&Series| {
            series.case == case && series.subject == subject && series.metric.name == metric.name
        };
        self.series.iter().find(wanted)
    }

    fn series_mut(&mut self, case: &str, subject: Subject, metric: &'static Metric) -> &mut Series {
        let wanted = |series: &Series| {
            series.case == case && series.subject == subject && series.metric.name == metric.name
        };
        let index = self.series.iter().position(wanted).unwrap_or_else(|| {
            self.series.push(Series {
                case: case.to_owned(),
                subject,
                metric,
                values: Vec::new(),
                offered: true,
            });
            self.series.len() - 1
        });
        &mut self.series[index]
    }
}

/// The middle one; of an even number, the mean of the two in the middle.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.len() % 2, sorted.get(middle)) {
        (_, None) => None,
        (1, Some(&value)) => Some(value),
        (_, Some(&value)) => Some(f64::midpoint(sorted[middle - 1], value)),
    }
}

/// To four digits behind the point: more is noise.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

/// With three digits that count, or all before the point.
pub(super) fn figure(value: f64) -> String {
    match value.abs() {
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A table whose first row is its head.
pub(super) fn markdown(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let _ = writeln!(text, "| {} |", cells.collect::<Vec<_>>().join(" | "));
        if index == 0 {
            let rules = widths.iter().map(|width| "-".repeat(width + 2));
            let _ = writeln!(text, "|{}|", rules.collect::<Vec<_>>().join("|"));
        }
    }
    text
}

#[cfg(test)]
mod tests;
