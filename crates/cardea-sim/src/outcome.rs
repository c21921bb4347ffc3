//! What came of a run, and whether it keeps the rules.

use std::time::Duration;

use crate::bound;
use crate::policy::Kind;
use crate::world::World;

/// After a fault begins, so long until requests are judged by their region: the first probe interval, with what is added
/// to it at random.
const SETTLE: Duration = Duration::from_millis(1_200);
/// So many samples make a moving mean of a region's load.
const SMOOTH: usize = 10;
/// A change of the spilled share within a second that counts as a swing.
const SWING: f64 = 0.1;

/// A request that has ended. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// When.
    pub arrived: u64,
    /// Until the response.
    pub latency: u64,
    /// With the nearest server that serves, idle and at nominal speed.
    pub best_latency: u64,
    /// To the region that served.
    pub round_trip: u64,
    /// The gateway's region.
    pub home: usize,
    /// Where it was served.
    pub region: usize,
    /// Attempts.
    pub attempts: u32,
    /// Whether it succeeded.
    pub served: bool,
}

/// Collects what happens.
#[derive(Debug)]
pub struct Recorder {
    requests: Vec<Request>,
    /// By sample, by region: busy slots, and slots of servers that serve.
    samples: Vec<Vec<(f64, f64)>>,
}

/// The figures of one run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Who chose.
    pub kind: Kind,
    /// Requests that are judged.
    pub requests: usize,
    /// The share of them that succeeded.
    pub availability: f64,
    /// The same of those that arrived after the first probe interval of the fault.
    pub availability_settled: f64,
    /// Times of requests that succeeded, in milliseconds.
    pub p50_ms: f64,
    /// The slowest hundredth.
    pub p99_ms: f64,
    /// The best that physics allows.
    pub best_p50_ms: f64,
    /// The same of the slowest hundredth.
    pub best_p99_ms: f64,
    /// The round trip between gateway and server, of the farthest hundredth, after the first probe interval.
    pub round_trip_p99_ms: f64,
    /// The best that physics and capacity allow.
    pub best_round_trip_p99_ms: f64,
    /// The share of requests that was served outside the gateway's region.
    pub spilled: f64,
    /// Attempts beyond the first, per request.
    pub retries: f64,
    /// The greatest mean load of a region over a second.
    pub region_load_max: f64,
    /// The mean load of each region.
    pub region_loads: Vec<f64>,
    /// How many seconds some region was beyond the band while another had room.
    pub beyond_band_s: f64,
    /// How often the spilled share went up and down again after the fault.
    pub swings: usize,
    /// The share of requests that were spilled in the last seconds, and before the fault.
    pub spilled_end: f64,
    /// Before the fault.
    pub spilled_before: f64,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self { requests: Vec::new(), samples: Vec::new() }
    }

    pub(crate) fn finished(&mut self, request: Request) {
        self.requests.push(request);
    }

    pub(crate) fn sample(&mut self, busy: &[f64], slots: &[f64]) {
        self.samples.push(busy.iter().copied().zip(slots.iter().copied()).collect());
    }

    pub(crate) fn finish(self, world: &World, kind: Kind) -> Outcome {
        let from = world.warm_up.as_nanos() as u64;
        let judged: Vec<&Request> = self.requests.iter().filter(|one| one.arrived >= from).collect();
        let settled_from = world.fault.map_or(world.warm_up, |(begins, _)| begins + SETTLE);
        let settled_until = world.fault.map_or(world.lasts, |(_, ends)| ends);
        let within = |one: &&Request| {
            (settled_from.as_nanos()..settled_until.as_nanos()).contains(&u128::from(one.arrived))
        };
        let settled: Vec<&Request> = judged.iter().copied().filter(within).collect();
        let served = |among: &[&Request]| share(among, |one| one.served);
        let times =
            |of: fn(&Request) -> u64| quantiles(judged.iter().filter(|one| one.served).map(|one| of(one)));
        let (latency, best) = (times(|one| one.latency), times(|one| one.best_latency));
        let far =
            |of: fn(&Request) -> u64| quantiles(settled.iter().filter(|one| one.served).map(|one| of(one)));
        let spill = self.spilled_by_second(world);
        let fault_ends = world.fault.map_or(world.warm_up, |(_, ends)| ends).as_secs() as usize;
        let fault_begins = world.fault.map_or(world.lasts, |(begins, _)| begins).as_secs() as usize;
        let before =
            spill.get(world.warm_up.as_secs() as usize..fault_begins.min(spill.len())).unwrap_or(&[]);
        let (region_load_max, beyond_band_s) = self.loads(world);
        Outcome {
            kind,
            requests: judged.len(),
            availability: served(&judged),
            availability_settled: served(&settled),
            p50_ms: latency.0,
            p99_ms: latency.1,
            best_p50_ms: best.0,
            best_p99_ms: best.1,
            round_trip_p99_ms: far(|one| one.round_trip).1,
            best_round_trip_p99_ms: bound::round_trip_p99_ms(world),
            spilled: share(&judged, |one| one.region != one.home),
            retries: judged.iter().map(|one| f64::from(one.attempts - 1)).sum::<f64>()
                / judged.len().max(1) as f64,
            region_load_max,
            region_loads: self.mean_loads(world),
            beyond_band_s,
            swings: swings(spill.get(fault_ends.min(spill.len())..).unwrap_or(&[])),
            spilled_end: mean(spill.get(spill.len().saturating_sub(3)..).unwrap_or(&[])),
            spilled_before: mean(before),
        }
    }

    fn spilled_by_second(&self, world: &World) -> Vec<f64> {
        let mut counts = vec![(0_u32, 0_u32); world.lasts.as_secs() as usize + 1];
        for one in &self.requests {
            if let Some((all, away)) = counts.get_mut((one.arrived / 1_000_000_000) as usize) {
                *all += 1;
                *away += u32::from(one.region != one.home);
            }
        }
        counts.pop();
        counts.iter().map(|(all, away)| f64::from(*away) / f64::from((*all).max(1))).collect()
    }

    /// The greatest load of a region, and for how long one was beyond the band while another had room.
    fn loads(&self, world: &World) -> (f64, f64) {
        let (mut most, mut beyond) = (0.0_f64, 0_usize);
        let warm = (world.warm_up.as_millis() / 100) as usize;
        for window in self.samples.windows(SMOOTH).skip(warm) {
            let load = |region: usize| {
                let (busy, slots) = window.iter().fold((0.0, 0.0), |(busy, slots), sample| {
                    (busy + sample[region].0, slots + sample[region].1)
                });
                if slots > 0.0 { Some(busy / slots) } else { None }
            };
            let loads: Vec<f64> = (0..world.places.len()).filter_map(load).collect();
            most = loads.iter().copied().fold(most, f64::max);
            // What chance adds for a second is not the choice's.
            let is_beyond = loads.iter().any(|load| *load > world.band + 0.1);
            let has_room = loads.iter().any(|load| *load < world.band - 0.1);
            beyond += usize::from(is_beyond && has_room);
        }
        (most, beyond as f64 / SMOOTH as f64)
    }

    fn mean_loads(&self, world: &World) -> Vec<f64> {
        (0..world.places.len())
            .map(|region| {
                let sum = |part: fn(&(f64, f64)) -> f64| {
                    self.samples.iter().map(|sample| part(&sample[region])).sum::<f64>()
                };
                sum(|sample| sample.0) / sum(|sample| sample.1).max(1.0)
            })
            .collect()
    }
}

fn share(among: &[&Request], which: impl Fn(&Request) -> bool) -> f64 {
    among.iter().filter(|one| which(one)).count() as f64 / among.len().max(1) as f64
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The median and the slowest hundredth, in milliseconds.
fn quantiles(nanos: impl Iterator<Item = u64>) -> (f64, f64) {
    let mut sorted: Vec<u64> = nanos.collect();
    sorted.sort_unstable();
    let at = |share: f64| {
        sorted.get((sorted.len() as f64 * share) as usize).map_or(0.0, |nanos| *nanos as f64 / 1e6)
    };
    (at(0.5), at(0.99))
}

/// How often a series turns, by steps of [`SWING`] at least.
fn swings(series: &[f64]) -> usize {
    let Some(first) = series.first() else { return 0 };
    let (mut turns, mut extreme, mut direction) = (0, *first, 0.0_f64);
    for value in series {
        let step = value - extreme;
        if direction == 0.0 {
            if step.abs() >= SWING {
                (direction, extreme) = (step.signum(), *value);
            }
        } else if step * direction > 0.0 {
            extreme = *value;
        } else if step.abs() >= SWING {
            (direction, extreme) = (-direction, *value);
            turns += 1;
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_is_no_swing_and_noise_is_none() {
        assert_eq!(swings(&[0.5, 0.3, 0.1, 0.0, 0.0]), 0);
        assert_eq!(swings(&[0.5, 0.0, 0.5, 0.0]), 2);
        assert_eq!(swings(&[0.50, 0.52, 0.49, 0.51]), 0);
        assert_eq!(swings(&[]), 0);
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_times() {
        let (half, hundredth) = quantiles((1..=1_000).rev().map(|ms| ms * 1_000_000));
        assert!((half - 501.0).abs() < 1e-9 && (hundredth - 991.0).abs() < 1e-9);
    }
}
