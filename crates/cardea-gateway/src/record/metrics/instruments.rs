//! Instruments for what HTTP needs again and again: values by status, whose series appear when first used.

use std::sync::OnceLock;
use std::time::Duration;

use super::{Counter, CounterDef, Histogram, HistogramDef, Registry};

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

/// A counter for each status code, of the whole process: at most 501 series.
pub struct StatusCodes {
    def: &'static CounterDef<1>,
    codes: Box<[OnceLock<Counter>]>,
}

impl StatusCodes {
    const FIRST: u16 = 100;
    const LAST: u16 = 599;

    /// Counters of `def`, whose label is the code, or `none` for what is no code.
    #[must_use]
    pub fn new(def: &'static CounterDef<1>) -> Self {
        let count = usize::from(Self::LAST - Self::FIRST) + 2;
        Self { def, codes: std::iter::repeat_with(OnceLock::new).take(count).collect() }
    }

    /// Counts one. The first of a code enters it into the registry.
    #[inline]
    pub fn increment(&self, registry: &Registry, status: u16) {
        let known = (Self::FIRST..=Self::LAST).contains(&status);
        // 0 is for what is no code.
        let index = if known { usize::from(status - Self::FIRST) + 1 } else { 0 };
        self.codes[index]
            .get_or_init(|| {
                let code = if known { status.to_string() } else { "none".to_owned() };
                registry.counter(self.def, [&code])
            })
            .increment();
    }
}
