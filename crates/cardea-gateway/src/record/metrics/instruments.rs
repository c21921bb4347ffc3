//! Instruments for what HTTP needs again and again: values by status, whose series appear when first used.

use std::sync::OnceLock;
use std::time::Duration;

use cardea_http::grpc::GrpcStatus;

use super::{Counter, CounterDef, GaugeDef, Histogram, HistogramDef, InFlight, Registry, UpDown};

/// Durations of one route or one service, by class of status: the second label is `1xx` to `5xx`, or `none`
/// where there was no response.
///
/// Ten thousand routes have ten thousand of these; a series exists only for what has happened.
pub struct StatusClasses {
    def: &'static HistogramDef<2>,
    /// The value of the first label.
    subject: Box<str>,
    classes: [OnceLock<Histogram>; CLASSES.len()],
}

const CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

impl StatusClasses {
    /// Durations of `subject`, which comes from the configuration.
    #[must_use]
    pub fn new(def: &'static HistogramDef<2>, subject: &str) -> Self {
        Self { def, subject: subject.into(), classes: [const { OnceLock::new() }; CLASSES.len()] }
    }

    /// Counts one. A status outside 100 to 599 counts as `none`. The first of a class enters it into the registry.
    #[inline]
    pub fn observe(&self, registry: &Registry, status: u16, duration: Duration) {
        let class = match status / 100 {
            class @ 1..=5 => usize::from(class),
            _ => 0,
        };
        self.classes[class]
            .get_or_init(|| registry.histogram(self.def, [&self.subject, CLASSES[class]]))
            .observe(duration);
    }
}

/// Counters of one route by exact status code, at most [`StatusCodes::CODES_MAX`] of them: a service chooses its
/// codes, and must not be able to make series without end. What comes after them counts as `_other`.
pub struct StatusCodes {
    def: &'static CounterDef<2>,
    /// The value of the first label.
    subject: Box<str>,
    /// A table with open addressing: each code is at its remainder, or at the first free place after it.
    codes: [OnceLock<(u16, Counter)>; Self::CODES_MAX],
    other: OnceLock<Counter>,
}

impl StatusCodes {
    /// The most codes that are told apart.
    pub const CODES_MAX: usize = 16;

    /// Counters of `subject`, which comes from the configuration. The second label of `def` is the code, or `none` for
    /// what is no code of RFC 9110.
    #[must_use]
    pub fn new(def: &'static CounterDef<2>, subject: &str) -> Self {
        Self {
            def,
            subject: subject.into(),
            codes: [const { OnceLock::new() }; Self::CODES_MAX],
            other: OnceLock::new(),
        }
    }

    /// Counts one. The first of a code enters it into the registry.
    #[inline]
    pub fn increment(&self, registry: &Registry, status: u16) {
        // 0 is for what is no code.
        let status = if matches!(status, 100..=599) { status } else { 0 };
        let (before, from) = self.codes.split_at(usize::from(status) % Self::CODES_MAX);
        for place in from.iter().chain(before) {
            let (code, counter) = place.get_or_init(|| {
                let text = if status == 0 { "none".to_owned() } else { status.to_string() };
                (status, registry.counter(self.def, [&self.subject, &text]))
            });
            if *code == status {
                return counter.increment();
            }
        }
        self.other.get_or_init(|| registry.counter(self.def, [&self.subject, "_other"])).increment();
    }
}

/// Counters of one route by the status of gRPC calls.
pub struct GrpcStatuses {
    def: &'static CounterDef<2>,
    /// The value of the first label.
    subject: Box<str>,
    /// By the code. Most routes have no gRPC calls, so their counters take no memory.
    statuses: OnceLock<Box<[OnceLock<Counter>; GrpcStatus::ALL.len()]>>,
}

impl GrpcStatuses {
    /// Counters of `subject`, which comes from the configuration. The second label of `def` is the code.
    #[must_use]
    pub fn new(def: &'static CounterDef<2>, subject: &str) -> Self {
        Self { def, subject: subject.into(), statuses: OnceLock::new() }
    }

    /// Counts one. The first of a status enters it into the registry.
    pub fn increment(&self, registry: &Registry, status: GrpcStatus) {
        let statuses = self.statuses.get_or_init(Box::default);
        statuses[usize::from(status.code())]
            .get_or_init(|| registry.counter(self.def, [&self.subject, status.as_str()]))
            .increment();
    }
}

/// Counters by reason code and status: a table without locks, since a flood of refusals is when it is used most.
///
/// Reasons are texts of the program, so their number is bounded; the table has room for several times as many.
pub struct Reasons {
    def: &'static CounterDef<2>,
    counters: Box<[OnceLock<Reason>]>,
    other: OnceLock<Counter>,
}

/// A reason code, a status, and how often both came together.
type Reason = (&'static str, u16, Counter);

impl Reasons {
    pub(super) const ROOM: usize = 1_024;
    /// After so many places a pair counts as `_other`, so that looking for it stays cheap.
    const STEPS_MAX: usize = 32;

    /// Counters of `def`, whose labels are the reason and the status.
    #[must_use]
    pub fn new(def: &'static CounterDef<2>) -> Self {
        let counters = std::iter::repeat_with(OnceLock::new).take(Self::ROOM).collect();
        Self { def, counters, other: OnceLock::new() }
    }

    /// Counts one. The first of a pair enters it into the registry.
    pub fn increment(&self, registry: &Registry, reason: &'static str, status: u16) {
        // FNV-1a over the text: the same one may be in the program twice.
        let hash = reason.bytes().fold(u64::from(status) ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let start = usize::try_from(hash >> 32).unwrap_or(0);
        for step in 0..Self::STEPS_MAX {
            let place = &self.counters[(start + step) % Self::ROOM];
            let (known, code, counter) = place.get_or_init(|| {
                let text = if status == 0 { "none".to_owned() } else { status.to_string() };
                (reason, status, registry.counter(self.def, [reason, &text]))
            });
            if *code == status && *known == reason {
                return counter.increment();
            }
        }
        self.other.get_or_init(|| registry.counter(self.def, ["_other", "_other"])).increment();
    }

    /// What was counted for a reason, whatever the status.
    #[must_use]
    pub fn value(&self, reason: &str) -> u64 {
        let counters = self.counters.iter().filter_map(OnceLock::get);
        counters.filter(|(known, ..)| *known == reason).map(|(.., counter)| counter.value()).sum()
    }
}

/// A counter that appears when it is first used.
pub struct LazyCounter {
    def: &'static CounterDef<2>,
    subject: Box<str>,
    kind: &'static str,
    counter: OnceLock<Counter>,
}

impl LazyCounter {
    /// What happens to `subject`, which comes from the configuration, of one `kind`.
    #[must_use]
    pub fn new(def: &'static CounterDef<2>, subject: &str, kind: &'static str) -> Self {
        Self { def, subject: subject.into(), kind, counter: OnceLock::new() }
    }

    /// Counts one.
    #[inline]
    pub fn increment(&self, registry: &Registry) {
        self.counter.get_or_init(|| registry.counter(self.def, [&self.subject, self.kind])).increment();
    }
}

/// A histogram that appears when it is first used.
pub struct LazyHistogram {
    def: &'static HistogramDef<1>,
    subject: Box<str>,
    histogram: OnceLock<Histogram>,
}

impl LazyHistogram {
    /// Durations of `subject`, which comes from the configuration.
    #[must_use]
    pub fn new(def: &'static HistogramDef<1>, subject: &str) -> Self {
        Self { def, subject: subject.into(), histogram: OnceLock::new() }
    }

    /// Counts one.
    #[inline]
    pub fn observe(&self, registry: &Registry, duration: Duration) {
        self.histogram.get_or_init(|| registry.histogram(self.def, [&self.subject])).observe(duration);
    }
}

/// A gauge of what is going on that appears when it is first used.
pub struct LazyUpDown {
    def: &'static GaugeDef<2>,
    subject: Box<str>,
    kind: &'static str,
    gauge: OnceLock<UpDown>,
}

impl LazyUpDown {
    /// What is going on at `subject`, which comes from the configuration, of one `kind`.
    #[must_use]
    pub fn new(def: &'static GaugeDef<2>, subject: &str, kind: &'static str) -> Self {
        Self { def, subject: subject.into(), kind, gauge: OnceLock::new() }
    }

    /// Counts as one for as long as what it returns lives.
    pub fn enter(&self, registry: &Registry) -> InFlight<'_> {
        self.gauge.get_or_init(|| registry.up_down(self.def, [&self.subject, self.kind])).enter()
    }

    /// How many there are.
    #[must_use]
    pub fn value(&self) -> i64 {
        self.gauge.get().map_or(0, UpDown::value)
    }
}
