//! Metrics: a registry of atomics, rendered in the Prometheus text format 0.0.4.
//!
//! Metrics are `static` definitions, checked when they are compiled: name, help, names of labels, buckets. A
//! handle for one set of label values is taken when the model is built and used by each request, so that
//! counting is one addition to a cell that the thread rarely shares: no lookup, no allocation.
//!
//! Label values come from the configuration or from closed sets, never from what a client sends; beside that
//! a metric has at most [`SERIES_MAX`] series. Names are those of OpenTelemetry's semantic conventions in the form
//! that Prometheus gives them, or begin with `cardea_`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::cells::Cells;
pub use self::cells::{Counter, Gauge, Histogram, InFlight, UpDown};
pub use self::definition::{CounterDef, Definition, GaugeDef, HistogramDef, LATENCY_BOUNDS};
pub use self::instruments::{
    GrpcStatuses, LazyCounter, LazyHistogram, LazyUpDown, Reasons, StatusClasses, StatusCodes,
};
use self::text::label_text;

mod cells;
mod definition;
mod instruments;
pub mod process;
#[cfg(test)]
mod tests;
mod text;

/// The most series of one metric. What comes after them is counted in one more, whose labels all say `_other`.
pub const SERIES_MAX: usize = 10_000;

/// What the rendered text is, for the header of the answer.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Sorts durations into buckets with these upper bounds.
    Histogram(&'static [Duration]),
}

impl MetricKind {
    /// Its name in the text format.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

static SERIES: GaugeDef<1> = GaugeDef::new("cardea_metric_series", "Series of each metric.", ["metric"]);

/// The metrics that each registry has about itself.
pub static DEFINITIONS: &[Definition] = &[SERIES.definition()];

/// All metrics of a process. It outlives models: asking again for a series gives the one that is there.
#[derive(Default)]
pub struct Registry {
    metrics: Mutex<BTreeMap<&'static str, Metric>>,
    preparations: Mutex<Vec<Preparation>>,
}

/// What is done before values are read.
type Preparation = Arc<dyn Fn() + Send + Sync>;

/// Values that are read when they are asked for.
type Collector = Arc<dyn Fn(&mut Samples<'_>) + Send + Sync>;

struct Metric {
    help: &'static str,
    kind: MetricKind,
    labels: &'static [&'static str],
    source: Source,
}

enum Source {
    /// By the text of their labels, so that they are rendered in an order that stays.
    Series(BTreeMap<Arc<str>, Arc<Cells>>),
    Collector(Collector),
}

impl Registry {
    /// A registry without metrics.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The counter with these label values.
    pub fn counter<const N: usize>(&self, def: &'static CounterDef<N>, values: [&str; N]) -> Counter {
        let shards = def.shards();
        Counter(
            self.series(def.name, def.help, MetricKind::Counter, &def.labels, &values, || {
                Cells::new(1, shards)
            }),
        )
    }

    /// The gauge with these label values, for what is set.
    pub fn gauge<const N: usize>(&self, def: &'static GaugeDef<N>, values: [&str; N]) -> Gauge {
        Gauge(self.series(def.name, def.help, MetricKind::Gauge, &def.labels, &values, || Cells::new(1, 1)))
    }

    /// The gauge with these label values, for what goes up and down with each request.
    pub fn up_down<const N: usize>(&self, def: &'static GaugeDef<N>, values: [&str; N]) -> UpDown {
        let cells = || Cells::new(1, super::shard::count());
        UpDown(self.series(def.name, def.help, MetricKind::Gauge, &def.labels, &values, cells))
    }

    /// The histogram with these label values.
    pub fn histogram<const N: usize>(&self, def: &'static HistogramDef<N>, values: [&str; N]) -> Histogram {
        let kind = MetricKind::Histogram(def.bounds);
        // A cell for each bound, one for what lies above all of them, and one for the sum.
        let cells = || Cells::new(def.bounds.len() + 2, super::shard::count());
        Histogram {
            bounds: def
                .bounds
                .iter()
                .map(|bound| u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX))
                .collect(),
            cells: self.series(def.name, def.help, kind, &def.labels, &values, cells),
        }
    }

    /// Counters whose values are read when they are asked for. A later collector of the same metric takes the
    /// earlier one's place. It must not block.
    pub fn collect_counter<const N: usize>(
        &self,
        def: &'static CounterDef<N>,
        collect: impl Fn(&mut Samples<'_>) + Send + Sync + 'static,
    ) {
        self.collect(def.name, def.help, MetricKind::Counter, &def.labels, Arc::new(collect));
    }

    /// Gauges whose values are read when they are asked for; like [`Self::collect_counter`].
    pub fn collect_gauge<const N: usize>(
        &self,
        def: &'static GaugeDef<N>,
        collect: impl Fn(&mut Samples<'_>) + Send + Sync + 'static,
    ) {
        self.collect(def.name, def.help, MetricKind::Gauge, &def.labels, Arc::new(collect));
    }

    /// Enters a gauge of the series of each metric, `cardea_metric_series`, to be seen beside [`SERIES_MAX`].
    pub fn collect_series(self: &Arc<Self>) {
        let registry = Arc::downgrade(self);
        self.collect_gauge(&SERIES, move |samples| {
            let Some(registry) = registry.upgrade() else { return };
            for (name, metric) in &*registry.lock() {
                if let Source::Series(series) = &metric.source {
                    samples.push(&[name], series.len() as f64);
                }
            }
        });
    }

    /// Forgets the series that nobody holds a handle of, such as those of routes that are gone. To be called
    /// after a model has been replaced.
    pub fn prune(&self) {
        for metric in self.lock().values_mut() {
            if let Source::Series(series) = &mut metric.source {
                series.retain(|_, cells| Arc::strong_count(cells) > 1);
            }
        }
    }

    /// Has `prepare` called before values are read, for what several collectors show one snapshot of.
    pub fn before_render(&self, prepare: impl Fn() + Send + Sync + 'static) {
        self.preparations.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(prepare));
    }

    /// Appends all metrics that have values, as text, by name. Counting goes on meanwhile: each value is right at
    /// some moment, and a histogram's count is always the sum of its buckets.
    ///
    /// A worker that enters a new series waits at most while the handles of one metric's series are cloned; counting
    /// waits for nothing.
    pub fn render(&self, out: &mut String) {
        enum Snapshot {
            Series(Vec<(Arc<str>, Arc<Cells>)>),
            Collector(Collector),
        }
        let preparations = self.preparations.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for prepare in preparations {
            prepare();
        }
        let names: Vec<&'static str> = self.lock().keys().copied().collect();
        for name in names {
            // Making text takes long where there are many series, so that is not done under the lock.
            let (help, kind, labels, source) = match self.lock().get(name) {
                None => continue,
                Some(metric) => {
                    let source = match &metric.source {
                        Source::Series(series) => Snapshot::Series(
                            series
                                .iter()
                                .map(|(labels, cells)| (Arc::clone(labels), Arc::clone(cells)))
                                .collect(),
                        ),
                        Source::Collector(collector) => Snapshot::Collector(Arc::clone(collector)),
                    };
                    (metric.help, metric.kind, metric.labels, source)
                }
            };
            match source {
                Snapshot::Series(series) if series.is_empty() => {}
                Snapshot::Series(series) => {
                    text::head(out, name, help, kind);
                    for (labels, cells) in series {
                        text::series(out, name, kind, &labels, &cells);
                    }
                }
                Snapshot::Collector(collector) => {
                    // A collector may use the registry.
                    let mut samples = Samples { name, help, kind, names: labels, count: 0, out };
                    collector(&mut samples);
                }
            }
        }
    }

    /// The names of the metrics that were entered so far.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        self.lock().keys().copied().collect()
    }

    fn series(
        &self,
        name: &'static str,
        help: &'static str,
        kind: MetricKind,
        labels: &'static [&'static str],
        values: &[&str],
        cells: impl FnOnce() -> Cells,
    ) -> Arc<Cells> {
        let mut metrics = self.lock();
        let metric = metrics.entry(name).or_insert_with(|| Metric {
            help,
            kind,
            labels,
            source: Source::Series(BTreeMap::new()),
        });
        let same = metric.kind == kind && metric.labels == labels;
        let Source::Series(series) = &mut metric.source else { return conflict(name, cells()) };
        if !same {
            return conflict(name, cells());
        }
        let text = label_text(labels, values);
        if let Some(known) = series.get(text.as_str()) {
            return Arc::clone(known);
        }
        let text =
            if series.len() < SERIES_MAX { text } else { label_text(labels, &vec!["_other"; labels.len()]) };
        Arc::clone(series.entry(text.into()).or_insert_with(|| Arc::new(cells())))
    }

    fn collect(
        &self,
        name: &'static str,
        help: &'static str,
        kind: MetricKind,
        labels: &'static [&'static str],
        collector: Collector,
    ) {
        let mut metrics = self.lock();
        if let Some(Metric { source: Source::Series(_), .. }) = metrics.get(name) {
            conflict_report(name);
            return;
        }
        metrics.insert(name, Metric { help, kind, labels, source: Source::Collector(collector) });
    }

    /// Nothing that is done under this lock can leave the map half changed.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Metric>> {
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.lock().keys()).finish()
    }
}

/// Two definitions share a name. The second counts where nobody sees it, which is no reason to stop serving.
fn conflict(name: &str, cells: Cells) -> Arc<Cells> {
    conflict_report(name);
    Arc::new(cells)
}

fn conflict_report(name: &str) {
    tracing::error!(metric = name, "two metrics have the same name; the second is not shown");
}

/// Takes the values of a collector.
pub struct Samples<'r> {
    name: &'static str,
    help: &'static str,
    kind: MetricKind,
    names: &'static [&'static str],
    count: usize,
    out: &'r mut String,
}

impl Samples<'_> {
    /// One value, with the values of the labels in the definition's order; missing ones are empty, surplus ones
    /// ignored. A pair of equal labels must not come twice. After [`SERIES_MAX`] the rest is left out.
    pub fn push(&mut self, values: &[&str], value: f64) {
        if self.count == SERIES_MAX {
            return;
        }
        if self.count == 0 {
            text::head(self.out, self.name, self.help, self.kind);
        }
        self.count += 1;
        text::sample(self.out, self.name, &label_text(self.names, values), value);
    }
}
