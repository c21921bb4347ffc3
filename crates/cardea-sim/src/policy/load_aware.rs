//! Localities by their load, as Envoy's `load_aware_locality`: the local one as long as its utilisation exceeds the mean of
//! the others by little, else each by its headroom; least requests within.

use std::time::Duration;

use cardea_clock::Mono;
use cardea_upstream::RetryCause;

use super::ejection::Common;
use super::{Ask, Chosen, Ending, Numbered, Policy, View, draw_two};

/// How often weights are computed.
const UPDATE_EVERY: u64 = 1_000_000_000;
/// By how much the local utilisation may exceed that of the others.
const THRESHOLD: f64 = 0.1;
/// The share of requests that goes to other localities in any case, so that they report.
const PROBE_SHARE: f64 = 0.03;
/// How much of a report enters the moving average.
const SMOOTHING: f64 = 0.1;

pub(super) struct LoadAware {
    common: Common,
    region_of: Vec<usize>,
    home: usize,
    in_flight: Vec<usize>,
    utilisation: Vec<Option<f64>>,
    hosts: Vec<usize>,
    /// Sums of the shares up to each region.
    shares: Vec<f64>,
    updated: u64,
    attempts: Numbered<usize>,
}

impl LoadAware {
    pub(super) fn new(view: &View) -> Self {
        let region_of: Vec<usize> = view.servers.iter().map(|server| server.region).collect();
        let hosts = (0..view.regions.len())
            .map(|region| region_of.iter().filter(|other| **other == region).count())
            .collect();
        Self {
            common: Common::new(view),
            home: view.home,
            in_flight: vec![0; region_of.len()],
            region_of,
            utilisation: vec![None; view.regions.len()],
            hosts,
            shares: vec![0.0; view.regions.len()],
            updated: 0,
            attempts: Numbered::new(),
        }
    }

    fn update(&mut self, now: Mono) {
        if now.nanos() < self.updated + UPDATE_EVERY && self.updated != 0 {
            return;
        }
        self.updated = now.nanos();
        let usable = |server: &usize| self.common.is_usable(now, *server, &[]);
        let mut hosts = vec![0; self.hosts.len()];
        (0..self.region_of.len()).filter(usable).for_each(|server| hosts[self.region_of[server]] += 1);
        let used = |region: usize| self.utilisation[region].unwrap_or(0.0);
        let others: Vec<usize> =
            (0..hosts.len()).filter(|region| *region != self.home && hosts[*region] > 0).collect();
        let mean = others.iter().map(|region| used(*region)).sum::<f64>() / others.len().max(1) as f64;
        let headroom = |region: usize| hosts[region] as f64 * (1.0 - used(region)).max(0.0);
        let rest: f64 = others.iter().map(|region| headroom(*region)).sum();
        let local = if hosts[self.home] == 0 {
            0.0
        } else if used(self.home) <= mean + THRESHOLD {
            1.0 - PROBE_SHARE
        } else {
            headroom(self.home) / (headroom(self.home) + rest).max(1e-9)
        };
        let local = if rest > 0.0 { local.min(1.0 - PROBE_SHARE) } else { 1.0 };
        let mut sum = 0.0;
        for (region, hosts) in hosts.iter().enumerate() {
            sum += if region == self.home {
                local
            } else if *hosts > 0 && rest > 0.0 {
                (1.0 - local) * headroom(region) / rest
            } else {
                0.0
            };
            self.shares[region] = sum;
        }
    }
}

impl Policy for LoadAware {
    fn begin(&mut self) {
        self.common.budget.request();
    }

    fn choose(&mut self, ask: Ask<'_>) -> Option<Chosen> {
        self.update(ask.now);
        let drawn = self.common.random.uniform() * self.shares.last().copied().unwrap_or(0.0);
        let region = self.shares.partition_point(|sum| *sum <= drawn);
        let usable = |server: &usize| {
            self.region_of[*server] == region && self.common.is_usable(ask.now, *server, ask.tried)
        };
        let mut candidates: Vec<usize> = (0..self.region_of.len()).filter(usable).collect();
        if candidates.is_empty() {
            candidates = self.common.nearest(ask.now, ask.tried);
        }
        let (one, other) = draw_two(&mut self.common.random, &candidates)?;
        let server = if self.in_flight[one] > self.in_flight[other] { other } else { one };
        self.in_flight[server] += 1;
        Some(Chosen { server, token: self.attempts.add(server) })
    }

    fn ended(&mut self, now: Mono, token: usize, ending: Ending, _latency: Duration) {
        let Some(server) = self.attempts.take(token) else { return };
        self.in_flight[server] -= 1;
        if let Ending::Response { utilisation, .. } = ending {
            let known = self.utilisation[self.region_of[server]].get_or_insert(utilisation);
            *known += (utilisation - *known) * SMOOTHING;
        }
        self.common.ended(now, server, ending);
    }

    fn may_retry(&mut self, now: Mono, _cause: RetryCause) -> bool {
        self.common.budget.try_retry(now)
    }
}
