//! Peak-EWMA as Finagle's: of two servers the one with the smaller product of requests in flight and latency.

use std::time::Duration;

use cardea_clock::Mono;
use cardea_upstream::RetryCause;

use super::ejection::{Common, Peak};
use super::{Ask, Chosen, Ending, Numbered, Policy, View, draw_two};

/// Finagle's default.
const DECAY: Duration = Duration::from_secs(10);

pub(super) struct PeakEwma {
    common: Common,
    load: Vec<(usize, Peak)>,
    attempts: Numbered<usize>,
}

impl PeakEwma {
    pub(super) fn new(view: &View) -> Self {
        let load = vec![(0, Peak::default()); view.servers.len()];
        Self { common: Common::new(view), load, attempts: Numbered::new() }
    }

    fn cost(&self, server: usize) -> f64 {
        let (pending, peak) = &self.load[server];
        // One that was never measured gets one request first.
        let latency = if peak.cost() == 0.0 && *pending > 0 { 1.0 } else { peak.cost() };
        latency * (*pending + 1) as f64
    }
}

impl Policy for PeakEwma {
    fn begin(&mut self) {
        self.common.budget.request();
    }

    fn choose(&mut self, ask: Ask<'_>) -> Option<Chosen> {
        let candidates = self.common.nearest(ask.now, ask.tried);
        let (one, other) = draw_two(&mut self.common.random, &candidates)?;
        let server = if self.cost(one) > self.cost(other) { other } else { one };
        self.load[server].0 += 1;
        Some(Chosen { server, token: self.attempts.add(server) })
    }

    fn ended(&mut self, now: Mono, token: usize, ending: Ending, latency: Duration) {
        let Some(server) = self.attempts.take(token) else { return };
        let (pending, peak) = &mut self.load[server];
        *pending -= 1;
        peak.note(now, latency, DECAY);
        self.common.ended(now, server, ending);
    }

    fn may_retry(&mut self, now: Mono, _cause: RetryCause) -> bool {
        self.common.budget.try_retry(now)
    }
}
