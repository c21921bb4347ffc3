//! Which endpoint a request would get now, and why: told by the choice itself.

use super::choice::Selection;
use super::trace::{Obstacle, Step, Steps};
use super::{ServiceState, Slot};
use crate::attempts::AttemptedEndpoints;
use crate::region::Region;
use crate::stats::RegionStats;

/// Which endpoint a request would get now, and why.
///
/// The choice among endpoints is drawn at random, so another request may get another one.
#[derive(Clone, Debug)]
pub struct ChoiceExplanation {
    /// The regions, by preference.
    pub regions: Vec<RegionExplanation>,
    /// The endpoints, in the order configured.
    pub endpoints: Vec<EndpointExplanation>,
    /// What led to the endpoint, in its order.
    pub steps: Vec<ChoiceStep>,
    /// The endpoint; none where the request would be refused.
    pub chosen: Option<String>,
}

/// A region, with what decides about its share.
#[derive(Clone, Debug)]
pub struct RegionExplanation {
    /// Its figures.
    pub stats: RegionStats,
    /// Requests at its healthy endpoints.
    pub in_flight: u32,
    /// How many requests of this gateway it may have while others have room; none where a capacity is not known.
    pub band: Option<f32>,
}

/// An endpoint, with what decides about it.
#[derive(Clone, Debug)]
pub struct EndpointExplanation {
    /// Its name and address.
    pub endpoint: String,
    /// Its region.
    pub region: Option<String>,
    /// Its weight.
    pub weight: u32,
    /// Why it can't be chosen.
    pub obstacle: Option<Obstacle>,
    /// The part of its requests that it may get now, from 0 to 1: less than 1 in a slow start, or if it asks for fewer.
    pub share: f32,
    /// Requests there.
    pub in_flight: usize,
    /// The response time by which it is compared, in seconds; none before the first response.
    pub latency: Option<f64>,
}

/// A step of a choice.
#[derive(Clone, Debug, PartialEq)]
pub struct ChoiceStep {
    /// What was done, in a word.
    pub what: &'static str,
    /// The region that it is about.
    pub region: Option<String>,
    /// The endpoint that it is about.
    pub endpoint: Option<String>,
    /// The other of two endpoints that were compared.
    pub other: Option<String>,
    /// Why an endpoint was passed over.
    pub obstacle: Option<Obstacle>,
    /// What the two endpoints cost: their requests in flight, this one included, for their weight, times the response time in
    /// seconds where that matters.
    pub costs: Option<(f32, f32)>,
}

impl<C> ServiceState<C> {
    /// The endpoint that a request would get now, and why. Nothing is sent or counted.
    pub fn explain(&self, selection: &Selection) -> ChoiceExplanation {
        let steps = Steps::default();
        let found = self.find(selection, &AttemptedEndpoints::default(), &steps);
        let mut steps = steps.into_inner();
        // An endpoint may be drawn several times in a row.
        steps.dedup();
        let stats = self.stats().regions.into_iter();
        ChoiceExplanation {
            regions: stats.map(|stats| self.explain_region(stats, selection)).collect(),
            endpoints: (0..)
                .zip(&self.slots)
                .map(|(at, slot)| self.explain_slot(at, slot, selection))
                .collect(),
            steps: steps.into_iter().map(|step| self.explain_step(step)).collect(),
            chosen: found.and_then(|found| self.label(found)),
        }
    }

    fn explain_region(&self, stats: RegionStats, selection: &Selection) -> RegionExplanation {
        let of_name = |region: &&Region| region.name == stats.name;
        let members = self.regions.iter().filter(of_name).flat_map(|region| &*region.members);
        let healthy =
            members.filter_map(|at| self.slot(*at)).filter(|slot| slot.shared.health.is_available());
        let (mut in_flight, mut capacity) = (0, Some(0.0));
        for slot in healthy {
            let share = slot.shared.health.share(selection.now, self.health.slow_start);
            let known = slot.capacity.map(|capacity| capacity.get() as f32 * share);
            in_flight += u32::try_from(slot.shared.load.in_flight()).unwrap_or(u32::MAX);
            capacity = capacity.zip(known).map(|(sum, capacity)| sum + capacity);
        }
        let band = capacity.map(|capacity| capacity * self.spill.band_percent as f32 / 100.0);
        RegionExplanation { stats, in_flight, band }
    }

    fn explain_slot(&self, at: u16, slot: &Slot<C>, selection: &Selection) -> EndpointExplanation {
        EndpointExplanation {
            endpoint: slot.endpoint.label().to_owned(),
            region: self.regions.get(slot.region).and_then(|region| region.name.clone()),
            weight: slot.weight,
            obstacle: self.obstacle_of(at, selection),
            share: slot.shared.health.share(selection.now, self.health.slow_start),
            in_flight: slot.endpoint.in_flight(),
            latency: slot.shared.load.latency().map(|latency| latency.as_secs_f64()),
        }
    }

    fn explain_step(&self, step: Step) -> ChoiceStep {
        let (what, region, endpoint) = match step {
            Step::Panic => ("panic", None, None),
            Step::EjectedToo => ("ejected_too", None, None),
            Step::Region(at) => ("region", Some(at), None),
            Step::NextRegion(at) => ("next_region", Some(at), None),
            Step::Probe(at) => ("probe", None, Some(at)),
            Step::PassedOver(at, _) => ("passed_over", None, Some(at)),
            Step::SlowStart(at) => ("slow_start", None, Some(at)),
            Step::Better { taken, .. } => ("better_of_two", None, Some(taken)),
            Step::Key(at) => ("key", None, Some(at)),
            Step::KeyFull(at) => ("key_full", None, Some(at)),
        };
        let region = region.and_then(|at| self.regions.get(at));
        let mut told = ChoiceStep {
            what,
            region: region.map(|region| region.name.clone().unwrap_or_default()),
            endpoint: endpoint.and_then(|at| self.label(at)),
            other: None,
            obstacle: None,
            costs: None,
        };
        match step {
            Step::PassedOver(_, obstacle) => told.obstacle = Some(obstacle),
            Step::Better { other, cost, other_cost, .. } => {
                told.other = self.label(other);
                told.costs = Some((cost, other_cost));
            }
            _ => {}
        }
        told
    }

    fn label(&self, at: u16) -> Option<String> {
        self.slot(at).map(|slot| slot.endpoint.label().to_owned())
    }
}
