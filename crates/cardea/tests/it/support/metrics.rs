//! A strict reader of the text format 0.0.4, and Prometheus's own where it is installed.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io::Write as _,
    process::{Command, Stdio},
};

use super::{Connection, Server};

/// What was read of a gateway's metrics: values by name and labels, the labels sorted and joined by commas.
#[derive(Debug)]
pub(crate) struct Metrics {
    samples: BTreeMap<String, f64>,
    pub(crate) text: String,
}

impl Metrics {
    /// Reads those of a gateway, and panics at anything that the format does not know.
    pub(crate) fn of(server: &Server) -> Self {
        let mut admin = Connection::plain(server.admin).unwrap();
        admin.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let answer = admin.answer().unwrap().unwrap();
        assert_eq!(answer.status, 200);
        let text = answer.text();
        Self { samples: parse(&text), text }
    }

    /// The value of a series: a name and its labels in any order, as in `name{b="2",a="1"}`.
    pub(crate) fn get(&self, series: &str) -> Option<f64> {
        self.samples.get(&key(&sample(&format!("{series} 0")).0)).copied()
    }

    /// All series of a metric, by their text.
    pub(crate) fn all(&self, name: &str) -> Vec<(&str, f64)> {
        let is_of = |series: &str| series.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        self.samples
            .iter()
            .filter(|(series, _)| is_of(series))
            .map(|(series, value)| (series.as_str(), *value))
            .collect()
    }

    /// The names of the metrics that have values.
    pub(crate) fn names(&self) -> HashSet<&str> {
        self.text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect()
    }
}

/// A name and its labels.
type Series = (String, Vec<(String, String)>);

fn key((name, labels): &Series) -> String {
    let mut labels = labels.clone();
    labels.sort();
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    format!("{name}{{{}}}", labels.join(","))
}

fn parse(text: &str) -> BTreeMap<String, f64> {
    assert!(text.ends_with('\n'));
    let mut types: HashMap<&str, &str> = HashMap::new();
    let mut samples = BTreeMap::new();
    let mut current = "";
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(!help.is_empty(), "{line}");
            let kind = lines
                .next()
                .and_then(|line| line.strip_prefix("# TYPE ")?.strip_prefix(name))
                .unwrap()
                .trim();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{name} {kind}");
            assert!(types.insert(name, kind).is_none(), "{name} comes twice");
            current = name;
            continue;
        }
        let (series, value) = sample(line);
        let suffix = series.0.strip_prefix(current).unwrap_or_else(|| panic!("{line} under {current}"));
        let known: &[&str] =
            if types[current] == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(known.contains(&suffix), "{line} under {current}");
        assert!(types[current] != "counter" || value >= 0.0, "{line}");
        assert!(samples.insert(key(&series), value).is_none(), "{line} comes twice");
    }
    samples
}

fn sample(line: &str) -> (Series, f64) {
    let end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        let mut inner = inner;
        rest = loop {
            if let Some(rest) = inner.strip_prefix('}') {
                break rest;
            }
            let (label, value) = inner.trim_start_matches(',').split_once("=\"").unwrap();
            let mut letters = value.char_indices();
            let mut text = String::new();
            let end = loop {
                match letters.next().unwrap() {
                    (end, '"') => break end,
                    (_, '\\') => text.push(match letters.next().unwrap().1 {
                        'n' => '\n',
                        letter @ ('\\' | '"') => letter,
                        other => panic!("\\{other} in {line}"),
                    }),
                    (_, letter) => text.push(letter),
                }
            };
            labels.push((label.to_owned(), text));
            inner = &value[end + 1..];
        };
    }
    let value = rest.strip_prefix(' ').unwrap();
    ((name.to_owned(), labels), value.parse().unwrap())
}

/// What `promtool check metrics` finds wrong; `None` where it is not installed.
pub(crate) fn promtool(text: &str) -> Option<String> {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    Some(String::from_utf8_lossy(&said).into_owned())
}
