//! What a server and everybody else used of the processors during a stretch of time.

use std::collections::BTreeMap;

use anyhow::Result;

use super::accounting::{TICK_US, busy_us, cpu_us, cpu_us_of_each, tree};
use super::machine::Placement;
use super::report::{Better, Metric};
use super::server::Server;
use crate::process::Stopwatch;

/// The least that a server must have used for a figure.
const TICKS_MIN: f64 = 5.0;

pub(super) static COST: Metric = Metric { name: "cpu_us_per_unit", unit: "µs", better: Better::Lower };
pub(super) static P50: Metric = Metric { name: "latency_p50", unit: "µs", better: Better::Lower };
pub(super) static P99: Metric = Metric { name: "latency_p99", unit: "µs", better: Better::Lower };
pub(super) static P999: Metric = Metric { name: "latency_p99.9", unit: "µs", better: Better::Lower };
pub(super) static OTHERS: Metric = Metric { name: "others_cpu", unit: "%", better: Better::Neither };

/// A stretch of time that has begun.
pub(super) struct Window<'a> {
    placement: &'a Placement,
    under_test: Vec<u32>,
    ours: Vec<u32>,
    start: Look,
    watch: Stopwatch,
}

/// What was used during it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    /// By the server under test, with all its processes and threads, in µs.
    pub(super) cpu_us: f64,
    pub(super) elapsed_us: f64,
    /// By processes that the harness did not start, in percent of the processors.
    pub(super) others_percent: f64,
}

impl Used {
    /// Whether it is more than what shows the unit of the accounting.
    pub(super) fn is_enough(&self) -> bool {
        self.cpu_us >= TICKS_MIN * TICK_US
    }
}

struct Look {
    under_test_us: f64,
    ours_us: BTreeMap<u32, f64>,
    busy_us: f64,
}

impl<'a> Window<'a> {
    /// Begins one.
    ///
    /// # Errors
    ///
    /// The server runs no more.
    pub(super) fn begin(placement: &'a Placement, server: &Server) -> Result<Self> {
        let (under_test, ours) = (tree(server.id()?)?, tree(std::process::id())?);
        let start = Look::take(placement, &under_test, &ours)?;
        Ok(Self { placement, under_test, ours, start, watch: Stopwatch::start() })
    }

    /// Ends it.
    ///
    /// # Errors
    ///
    /// One of the server's processes has ended.
    pub(super) fn end(self) -> Result<Used> {
        let end = Look::take(self.placement, &self.under_test, &self.ours)?;
        let elapsed_us = self.watch.elapsed().as_secs_f64() * 1e6;
        let cpu_us = end.under_test_us - self.start.under_test_us;
        let of_one = |(id, end_us): (&u32, &f64)| Some(end_us - self.start.ours_us.get(id)?);
        let ours: f64 = end.ours_us.iter().filter_map(of_one).sum();
        let others = (end.busy_us - self.start.busy_us - ours).max(0.0);
        let processors = exact(self.placement.processors().len() as u64);
        Ok(Used { cpu_us, elapsed_us, others_percent: others * 100.0 / (elapsed_us * processors) })
    }
}

/// A count as a figure.
#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
pub(super) fn exact(count: u64) -> f64 {
    count as f64
}

impl Look {
    fn take(placement: &Placement, under_test: &[u32], ours: &[u32]) -> Result<Self> {
        let under_test_us = cpu_us(under_test)?;
        Ok(Self { under_test_us, ours_us: cpu_us_of_each(ours), busy_us: busy_us(&placement.processors())? })
    }
}
