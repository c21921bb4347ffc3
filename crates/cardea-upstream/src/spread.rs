//! How requests are divided among the regions of a service.
//!
//! The gateway's own region gets all as long as it is healthy and within its band. What it can't take is spread over
//! the regions whose round trip exceeds that of the nearest one by no more than the sensitivity, then over those farther
//! away. Each gateway computes this from its own requests alone, so it sends no more than a part of a region's capacity to
//! a region that isn't its own, and less where responses take longer than elsewhere.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cardea_clock::Mono;

use crate::config::SpillConfig;

/// How often shares are computed.
pub(crate) const UPDATE_EVERY: Duration = Duration::from_millis(100);

/// In which time a measured load loses all but a third of its weight.
const SMOOTHING: Duration = Duration::from_millis(500);

/// By how much the spilled share grows or shrinks at most within [`UPDATE_EVERY`], as long as the own region is healthy.
const RAMP: f32 = 0.05;
/// Lesser changes of the spilled share are not followed, unless it returns to 0.
const HYSTERESIS: f32 = 0.02;
/// How fast the division among other regions follows.
const FOLLOW: f32 = 0.3;

/// The part of a region's capacity that a gateway of another region uses: others may spill there too.
const FOREIGN: f32 = 0.25;

/// A region where responses take so many times as long as where they take least is queueing.
const QUEUEING: f32 = 2.0;
/// Below so many requests within [`SMOOTHING`], their mean response time says little.
const REQUESTS_MIN: f32 = 5.0;
/// How a region that is queueing is given less, and then more again.
const CLOSE: f32 = 0.9;
const OPEN: f32 = 0.02;
const OPENNESS_MIN: f32 = 0.05;

/// The own region stays the nearest of several without one until another is nearer by this share.
const NEARER: f32 = 0.9;

/// What is known of a region now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Observed {
    /// It is the gateway's own.
    pub(crate) is_home: bool,
    /// The same for all that have the same name.
    pub(crate) group: u16,
    /// Of a group, the one with the lowest number that is healthy gets all that the group gets.
    pub(crate) tier: u16,
    /// To the region; none if it isn't known.
    pub(crate) round_trip: Option<Duration>,
    /// The weight of healthy endpoints.
    pub(crate) weight: f32,
    /// The greatest share that the slow start of a healthy endpoint allows.
    pub(crate) readiness: f32,
    /// The requests that healthy endpoints serve at a time, by the share that their slow start allows; none if the capacity
    /// of some isn't known.
    pub(crate) capacity: Option<f32>,
    /// Requests at healthy endpoints, and those sent there so far.
    pub(crate) in_flight: f32,
    pub(crate) requests: u64,
}

/// What a region's requests were lately.
#[derive(Clone, Debug)]
struct Track {
    in_flight: f32,
    /// Per second.
    rate: f32,
    requests: u64,
    openness: f32,
    share: f32,
    target: f32,
}

/// The state between two updates.
#[derive(Debug)]
struct Control {
    updated: Option<Mono>,
    tracks: Vec<Track>,
    order: Vec<u16>,
    /// What was seen last.
    observed: Vec<Observed>,
    /// The mean response time of the region where it is shortest, in seconds, without the network; infinite if no region
    /// has enough requests.
    response: f32,
}

/// The shares of all regions, for requests to draw from.
#[derive(Debug)]
pub(crate) struct Spread {
    control: Mutex<Control>,
    /// By preference: the region in the low half, and in the high half the point up to which its share reaches; shares are
    /// parts of 65,535.
    places: Box<[AtomicU32]>,
}

/// All requests.
const WHOLE: u32 = 0xFFFF;

impl Spread {
    /// All requests go to the gateway's own region, or else to the first.
    pub(crate) fn new(observed: Vec<Observed>) -> Self {
        let track = Track { in_flight: 0.0, rate: 0.0, requests: 0, openness: 1.0, share: 0.0, target: 0.0 };
        let mut control = Control {
            updated: None,
            tracks: vec![track; observed.len()],
            order: (0..).take(observed.len()).collect(),
            observed: Vec::new(),
            response: f32::INFINITY,
        };
        control.sort(&observed);
        if let Some(first) = control.order.first() {
            control.tracks[usize::from(*first)].share = 1.0;
        }
        let places = observed.iter().map(|_| AtomicU32::new(0)).collect();
        control.observed = observed;
        let spread = Self { places, control: Mutex::new(control) };
        spread.publish(&spread.lock());
        spread
    }

    /// The places of the regions by preference.
    pub(crate) fn order(&self) -> impl Iterator<Item = usize> {
        self.places.iter().map(|place| region_of(place.load(Relaxed)))
    }

    /// The region in whose share a random number falls, and its rank.
    pub(crate) fn draw(&self, random: impl FnOnce() -> u64) -> Option<(usize, usize)> {
        let first = self.places.first()?.load(Relaxed);
        if first >> 16 == WHOLE {
            return Some((0, region_of(first)));
        }
        let point = (random() >> 48) as u32;
        let places = self.places.iter().map(|place| place.load(Relaxed)).enumerate();
        let mut reached = places.filter(|(_, place)| place >> 16 >= point && place >> 16 > 0);
        reached.next().map(|(rank, place)| (rank, region_of(place)))
    }

    /// The share of each region.
    pub(crate) fn shares(&self) -> Vec<f32> {
        self.lock().tracks.iter().map(|track| track.share).collect()
    }

    /// Computes the shares anew from what there is to see of each region, by its place in the configuration.
    pub(crate) fn update(&self, now: Mono, config: &SpillConfig, observe: impl Fn(usize) -> Observed) {
        let mut control = self.lock();
        let mut observed = std::mem::take(&mut control.observed);
        observed.iter_mut().enumerate().for_each(|(region, seen)| *seen = observe(region));
        rest_lower_tiers(&mut observed);
        control.update(now, &observed, config);
        control.observed = observed;
        self.publish(&control);
    }

    fn publish(&self, control: &Control) {
        let mut sum = 0.0;
        for (place, region) in self.places.iter().zip(&control.order) {
            sum += control.tracks[usize::from(*region)].share;
            let until = if sum > 0.999_99 { WHOLE } else { (sum * WHOLE as f32) as u32 };
            place.store(until << 16 | u32::from(*region), Relaxed);
        }
    }

    /// The state is sound at every moment: nothing under the lock can panic.
    fn lock(&self) -> std::sync::MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leaves one tier of each group: the others have no part in it.
fn rest_lower_tiers(observed: &mut [Observed]) {
    for at in 0..observed.len() {
        let Observed { group, tier, .. } = observed[at];
        let is_over = |other: &Observed| other.group == group && other.tier < tier && other.weight > 0.0;
        if observed.iter().any(is_over) {
            observed[at] = Observed { weight: 0.0, readiness: 0.0, capacity: Some(0.0), ..observed[at] };
        }
    }
}

fn region_of(place: u32) -> usize {
    (place & WHOLE) as usize
}

fn seconds(round_trip: Option<Duration>) -> f32 {
    round_trip.map_or(f32::INFINITY, |round_trip| round_trip.as_secs_f32())
}

impl Control {
    fn update(&mut self, now: Mono, observed: &[Observed], config: &SpillConfig) {
        let elapsed = self.updated.map_or(Duration::ZERO, |updated| now.saturating_since(updated));
        self.measure(now, observed);
        self.sort(observed);
        let Some((rank, primary)) = self.primary(observed) else { return };
        self.aim((rank, primary), observed, config);
        let steps = elapsed.as_secs_f32() / UPDATE_EVERY.as_secs_f32();
        self.move_on(primary, observed, RAMP * steps.max(1.0));
    }

    /// Requests in flight, and how many begin, smoothed.
    fn measure(&mut self, now: Mono, observed: &[Observed]) {
        let since = self.updated.map_or(Duration::ZERO, |updated| now.saturating_since(updated));
        let is_first = self.updated.is_none();
        self.updated = Some(now);
        let elapsed = since.as_secs_f32().max(1e-3);
        let kept = (-elapsed / SMOOTHING.as_secs_f32()).exp();
        for (track, seen) in self.tracks.iter_mut().zip(observed) {
            let begun = seen.requests.saturating_sub(track.requests) as f32;
            track.requests = seen.requests;
            if !is_first {
                track.in_flight = track.in_flight * kept + seen.in_flight * (1.0 - kept);
                track.rate = track.rate * kept + begun / elapsed * (1.0 - kept);
            }
        }
        self.notice_queues(observed);
    }

    /// By Little's law the mean response time is that of the requests in flight divided by the rate.
    fn notice_queues(&mut self, observed: &[Observed]) {
        let response = |(track, seen): (&Track, &Observed)| {
            (track.rate * SMOOTHING.as_secs_f32() >= REQUESTS_MIN)
                .then(|| (at_servers(track, seen) / track.rate).max(1e-4))
        };
        let least = self.tracks.iter().zip(observed).filter_map(response).fold(f32::INFINITY, f32::min);
        self.response = least;
        for (track, seen) in self.tracks.iter_mut().zip(observed) {
            track.openness = match response((&*track, seen)) {
                Some(taken) if taken > QUEUEING * least => (track.openness * CLOSE).max(OPENNESS_MIN),
                _ => (track.openness + OPEN).min(1.0),
            };
        }
    }

    /// The own region first, then by round trip; those without one as configured. The tiers of a region stay together.
    fn sort(&mut self, observed: &[Observed]) {
        let seen = |region: u16| observed.get(usize::from(region)).copied().unwrap_or_default();
        let last = self.order.first().filter(|_| self.updated.is_some()).map(|first| seen(*first).group);
        let near =
            |seen: &Observed| seconds(seen.round_trip) * if last == Some(seen.group) { NEARER } else { 1.0 };
        self.order.sort_unstable_by(|one, other| {
            let (a, b) = (seen(*one), seen(*other));
            let by_distance = b.is_home.cmp(&a.is_home).then(near(&a).total_cmp(&near(&b)));
            by_distance.then((a.group, a.tier, *one).cmp(&(b.group, b.tier, *other)))
        });
    }

    /// The first region: the tier of it that is in use, and its rank.
    fn primary(&self, observed: &[Observed]) -> Option<(usize, usize)> {
        let first = usize::from(*self.order.first()?);
        let group = observed.get(first)?.group;
        let tiers = self.order.iter().map(|region| usize::from(*region)).enumerate();
        let mut tiers = tiers.take_while(|(_, region)| observed[*region].group == group);
        Some(tiers.find(|(_, region)| observed[*region].weight > 0.0).unwrap_or((0, first)))
    }

    /// What each region should get: the waterfall.
    fn aim(&mut self, (rank, primary): (usize, usize), observed: &[Observed], config: &SpillConfig) {
        let load: f32 = self.tracks.iter().zip(observed).map(|(track, seen)| at_servers(track, seen)).sum();
        // Of nothing, everything has room.
        let load = load.max(1e-3);
        // What other regions would have to serve at a time: there, requests don't wait in the queue of this one.
        let rate: f32 = self.tracks.iter().map(|track| track.rate).sum();
        let elsewhere = load.min((rate * self.response).max(1e-3));
        let band = config.band_percent as f32 / 100.0;
        self.tracks.iter_mut().for_each(|track| track.target = 0.0);
        let seen = &observed[primary];
        let own = match seen.capacity {
            _ if seen.weight <= 0.0 => 0.0,
            Some(capacity) => capacity * band / load,
            None => seen.readiness,
        };
        let own = own.min(1.0);
        self.tracks[primary].target = own;
        let mut left = 1.0 - own;
        let mut rank = rank + 1;
        while left > 1e-6 && rank < self.order.len() {
            rank = self.fill(rank, &mut left, observed, config, band * FOREIGN / elsewhere);
        }
        if left > 1e-6 {
            self.exceed(primary, left, observed);
        }
    }

    /// Gives regions of about the same distance, from `rank` on, what they have room for: `room` for each request that they
    /// serve at a time. Returns the rank of the next.
    fn fill(
        &mut self,
        rank: usize,
        left: &mut f32,
        observed: &[Observed],
        config: &SpillConfig,
        room: f32,
    ) -> usize {
        let healthy = |region: &&u16| observed[usize::from(**region)].weight > 0.0;
        let distance = |region: u16| seconds(observed[usize::from(region)].round_trip);
        let Some(nearest) = self.order[rank..].iter().find(healthy).map(|region| distance(*region)) else {
            return self.order.len();
        };
        let limit = nearest + config.sensitivity.as_secs_f32();
        let mut next = rank;
        while next < self.order.len() {
            let region = self.order[next];
            let unknown = distance(region).is_infinite();
            // Without a round trip one comes after the other.
            let is_alone = unknown && (rank..next).any(|other| healthy(&&self.order[other]));
            if (distance(region) > limit && observed[usize::from(region)].weight > 0.0) || is_alone {
                break;
            }
            next += 1;
        }
        // Regions without a capacity have room for everything.
        let (mut endless, mut bounded) = (0.0, 0.0);
        for region in self.order[rank..next].iter().map(|region| usize::from(*region)) {
            match room_of(&self.tracks[region], &observed[region], room) {
                Room::Endless(weight) => endless += weight,
                Room::Share(share) => bounded += share,
            }
        }
        let all = if endless > 0.0 { *left } else { left.min(bounded) };
        for region in self.order[rank..next].iter().map(|region| usize::from(*region)) {
            let track = &mut self.tracks[region];
            track.target = match room_of(track, &observed[region], room) {
                Room::Endless(weight) if endless > 0.0 => all * weight / endless,
                Room::Share(share) if endless == 0.0 && bounded > 0.0 => all * share / bounded,
                Room::Endless(_) | Room::Share(_) => 0.0,
            };
        }
        *left -= all;
        next
    }

    /// All are beyond their bands: the rest stays where it is at home, or else goes to all in proportion.
    fn exceed(&mut self, primary: usize, left: f32, observed: &[Observed]) {
        if observed[primary].weight > 0.0 {
            self.tracks[primary].target += left;
            return;
        }
        let size = |seen: &Observed| seen.capacity.unwrap_or(seen.weight).max(0.0);
        let all: f32 = observed.iter().map(size).sum();
        if all > 0.0 {
            for (track, seen) in self.tracks.iter_mut().zip(observed) {
                track.target += left * size(seen) / all;
            }
        }
    }

    /// Moves the shares towards their targets, the spilled one by no more than `ramp`.
    fn move_on(&mut self, primary: usize, observed: &[Observed], ramp: f32) {
        let wanted = 1.0 - self.tracks[primary].target;
        let spilled = 1.0 - self.tracks[primary].share;
        let is_dead = observed[primary].weight <= 0.0;
        let next = if is_dead {
            1.0
        } else if wanted > 0.0 && (wanted - spilled).abs() < HYSTERESIS {
            spilled
        } else {
            wanted.clamp(spilled - ramp, spilled + ramp)
        };
        let others = |tracks: &[Track], of: fn(&Track) -> f32| {
            tracks
                .iter()
                .enumerate()
                .filter(|(at, _)| *at != primary)
                .map(|(_, track)| of(track))
                .sum::<f32>()
        };
        let (targets, shares) =
            (others(&self.tracks, |track| track.target), others(&self.tracks, |track| track.share));
        for (at, (track, seen)) in self.tracks.iter_mut().zip(observed).enumerate() {
            if at == primary {
                continue;
            }
            let wanted = if targets > 0.0 { Some(track.target / targets) } else { None };
            let had = if shares > 0.0 { Some(track.share / shares) } else { None };
            let part = match (wanted, had) {
                // One that has become unhealthy gets nothing at once.
                _ if seen.weight <= 0.0 => 0.0,
                (Some(wanted), Some(had)) => had + (wanted - had) * FOLLOW,
                (Some(only), None) | (None, Some(only)) => only,
                (None, None) => 0.0,
            };
            track.share = next * part;
        }
        // What was taken from unhealthy ones goes to the others.
        let given = others(&self.tracks, |track| track.share);
        let scale = if given > 0.0 { next / given } else { 1.0 };
        let mut sum = 0.0;
        for (at, track) in self.tracks.iter_mut().enumerate() {
            if at != primary {
                track.share *= scale;
                sum += track.share;
            }
        }
        self.tracks[primary].share = (1.0 - sum).max(0.0);
    }
}

/// What a region has room for.
enum Room {
    /// For everything; the weight tells it from others.
    Endless(f32),
    /// For this share of the requests.
    Share(f32),
}

fn room_of(track: &Track, seen: &Observed, room: f32) -> Room {
    match seen.capacity {
        _ if seen.weight <= 0.0 => Room::Share(0.0),
        Some(capacity) => Room::Share(capacity * room * track.openness),
        None => Room::Endless(seen.weight * track.openness),
    }
}

/// Requests that are at servers, and not under way in the network.
fn at_servers(track: &Track, seen: &Observed) -> f32 {
    let under_way = seen.round_trip.map_or(0.0, |round_trip| round_trip.as_secs_f32() * track.rate);
    (track.in_flight - under_way).max(0.0)
}

#[cfg(test)]
mod tests;
