//! Definitions of metrics: constants whose names, labels and buckets are checked when they are compiled.

use std::time::Duration;

use super::{super::shard, MetricKind};

/// What a metric is, for its documentation. Made from the same constant that it is counted and shown by.
#[derive(Debug, Clone, Copy)]
pub struct Definition {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: MetricKind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it counts.
    pub help: &'static str,
}

impl Definition {
    /// The unit that the name ends in; `None` for plain numbers.
    #[must_use]
    pub fn unit(&self) -> Option<&'static str> {
        let name = self.name.strip_suffix("_total").unwrap_or(self.name);
        let units = ["timestamp_seconds", "seconds", "bytes"];
        units.into_iter().find(|unit| name.strip_suffix(unit).is_some_and(|rest| rest.ends_with('_')))
    }
}

/// Bounds for the time of a request. OpenTelemetry advises 5 ms to 10 s; a gateway on a local network answers
/// most requests in less than its first bucket, so there are three more before it, and two after for timeouts.
pub const LATENCY_BOUNDS: &[Duration] = &[
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(75),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_millis(750),
    Duration::from_secs(1),
    Duration::from_millis(2_500),
    Duration::from_secs(5),
    Duration::from_millis(7_500),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
];

/// The most bounds of a histogram.
const BOUNDS_MAX: usize = 32;

/// A metric that only grows.
#[derive(Debug)]
pub struct CounterDef<const N: usize> {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) labels: [&'static str; N],
    sharded: bool,
}

impl<const N: usize> CounterDef<N> {
    /// A counter; for use in a `static`, where what is wrong does not compile: the name must be one that
    /// Prometheus takes and end in `_total`, labels must be names too, and the help is one line.
    #[must_use]
    pub const fn new(name: &'static str, help: &'static str, labels: [&'static str; N]) -> Self {
        assert!(ends_with(name, "_total"), "a counter's name ends in _total");
        check(name, help, &labels);
        Self { name, help, labels, sharded: false }
    }

    /// What it is, for its documentation.
    #[must_use]
    pub const fn definition(&'static self) -> Definition {
        Definition { name: self.name, kind: MetricKind::Counter, labels: &self.labels, help: self.help }
    }

    /// Gives each processor a cell of its own; for what each request counts.
    #[must_use]
    pub const fn sharded(mut self) -> Self {
        self.sharded = true;
        self
    }

    pub(super) fn shards(&self) -> usize {
        if self.sharded { shard::count() } else { 1 }
    }
}

/// A metric that goes up and down.
#[derive(Debug)]
pub struct GaugeDef<const N: usize> {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) labels: [&'static str; N],
}

impl<const N: usize> GaugeDef<N> {
    /// A gauge; for use in a `static`, where what is wrong does not compile. Its name does not end in `_total`.
    #[must_use]
    pub const fn new(name: &'static str, help: &'static str, labels: [&'static str; N]) -> Self {
        assert!(!ends_with(name, "_total"), "only a counter's name ends in _total");
        check(name, help, &labels);
        Self { name, help, labels }
    }

    /// What it is, for its documentation.
    #[must_use]
    pub const fn definition(&'static self) -> Definition {
        Definition { name: self.name, kind: MetricKind::Gauge, labels: &self.labels, help: self.help }
    }
}

/// A metric that sorts durations into buckets. Always sharded: it is made for what each request does.
#[derive(Debug)]
pub struct HistogramDef<const N: usize> {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) labels: [&'static str; N],
    pub(super) bounds: &'static [Duration],
}

impl<const N: usize> HistogramDef<N> {
    /// A histogram; for use in a `static`, where what is wrong does not compile: the name must end in
    /// `_seconds`, and the buckets' upper bounds (inclusive, at most 32) rise.
    #[must_use]
    pub const fn new(
        name: &'static str,
        help: &'static str,
        labels: [&'static str; N],
        bounds: &'static [Duration],
    ) -> Self {
        assert!(ends_with(name, "_seconds"), "a histogram of durations ends in _seconds");
        check(name, help, &labels);
        assert!(bounds.len() <= BOUNDS_MAX, "too many bounds");
        let mut index = 1;
        while index < bounds.len() {
            assert!(bounds[index - 1].as_nanos() < bounds[index].as_nanos(), "bounds rise");
            index += 1;
        }
        let mut index = 0;
        while index < N {
            assert!(!equal(labels[index].as_bytes(), b"le"), "`le` names a histogram's bounds");
            index += 1;
        }
        Self { name, help, labels, bounds }
    }

    /// What it is, for its documentation.
    #[must_use]
    pub const fn definition(&'static self) -> Definition {
        Definition {
            name: self.name,
            kind: MetricKind::Histogram(self.bounds),
            labels: &self.labels,
            help: self.help,
        }
    }
}

/// What holds for every metric.
const fn check(name: &str, help: &str, labels: &[&str]) {
    assert!(is_name(name, true), "not a metric's name");
    assert!(!help.is_empty(), "no help");
    let mut index = 0;
    while index < labels.len() {
        let label = labels[index];
        assert!(is_name(label, false), "not a label's name");
        assert!(!starts_with(label, "__"), "labels with two underscores are Prometheus's own");
        let mut earlier = 0;
        while earlier < index {
            assert!(!equal(labels[earlier].as_bytes(), label.as_bytes()), "a label is there twice");
            earlier += 1;
        }
        index += 1;
    }
}

/// `[a-zA-Z_][a-zA-Z0-9_]*`, and colons for metrics.
const fn is_name(name: &str, colons: bool) -> bool {
    let bytes = name.as_bytes();
    let mut index = 0;
    while index < bytes.len() {
        let byte = bytes[index];
        let letter = byte.is_ascii_alphabetic() || byte == b'_' || (colons && byte == b':');
        if !letter && (index == 0 || !byte.is_ascii_digit()) {
            return false;
        }
        index += 1;
    }
    !bytes.is_empty()
}

const fn ends_with(text: &str, end: &str) -> bool {
    match text.as_bytes().split_at_checked(text.len().saturating_sub(end.len())) {
        Some((_, tail)) => equal(tail, end.as_bytes()),
        None => false,
    }
}

const fn starts_with(text: &str, start: &str) -> bool {
    match text.as_bytes().split_at_checked(start.len()) {
        Some((head, _)) => equal(head, start.as_bytes()),
        None => false,
    }
}

const fn equal(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut index = 0;
    while index < one.len() {
        if one[index] != other[index] {
            return false;
        }
        index += 1;
    }
    true
}
