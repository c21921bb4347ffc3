//! Which endpoint serves a request.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cardea_clock::Mono;

use super::trace::{Obstacle, Step, Trace, Untraced};
use super::{ServiceState, Slot};
use crate::affinity::{Affinity, mix};
use crate::attempts::{AttemptedEndpoints, EndpointIndex};
use crate::config::Balance;
use crate::endpoint::{self, Endpoint};
use crate::health::Health;
use crate::load::Estimate;
use crate::region::{Region, scale};
use crate::spread::{self, Observed};

/// How often an endpoint is drawn before all are looked at. Draws beside ejected or tried endpoints are
/// made again, which keeps the shares of the rest exact and costs nothing while most are available.
const DRAWS_MAX: usize = 8;

/// How old what is known of all endpoints may be. The one request that finds it older looks at each of them, so that
/// others look at none but those that they draw.
const SURVEY_EVERY: Duration = Duration::from_millis(20);

/// Of so few endpoints each is looked at before only one is found.
const FEW: usize = 16;

/// How much response times differ by chance: by so many seconds, and by so many times.
const LATENCY_NOISE: f32 = 1e-3;
const LATENCY_RATIO: f32 = 1.5;

/// Requests in flight up to which an endpoint keeps the keys that lead to it, whatever the others have.
const KEY_LOAD_FREE: f32 = 8.0;

/// How many times its share of a region's requests in flight an endpoint may have before its keys go elsewhere.
const KEY_LOAD_FACTOR: f32 = 1.5;

/// A request for which an endpoint is to be chosen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selection {
    /// The worker that carries it.
    pub worker: usize,
    /// Now.
    pub now: Mono,
    /// What leads it to an endpoint.
    pub affinity: Option<Affinity>,
    /// If the attempt fails after it was sent, the request can't be tried again.
    pub may_be_lost: bool,
}

/// An endpoint that was chosen for an attempt: what becomes of it is reported with this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The endpoint.
    pub endpoint: EndpointIndex,
    /// The worker of the request.
    pub(super) worker: usize,
    /// When it was chosen.
    pub(super) at: Mono,
}

impl Choice {
    /// When the endpoint was chosen.
    #[must_use]
    pub fn at(&self) -> Mono {
        self.at
    }
}

/// What an endpoint has as many of as it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReachedLimit {
    /// Requests, or connections that are being made: [`BreakerConfig`](crate::BreakerConfig).
    Requests,
    /// Connections, all of them in use: [`PoolConfig::connections_max`](crate::PoolConfig::connections_max).
    Connections,
}

/// Which endpoints may be drawn, and who is told.
struct Wanted<'a, T> {
    selection: &'a Selection,
    tried: &'a AttemptedEndpoints,
    /// Ejected ones too.
    ejected_too: bool,
    trace: &'a T,
}

impl<T> Clone for Wanted<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Wanted<'_, T> {}

impl<C> ServiceState<C> {
    /// The endpoint for a request's next attempt, none of those in `tried`.
    ///
    /// The region is drawn by the shares of all: the gateway's own has all requests that it can take. Where it has no
    /// endpoint for this request, the others follow by round trip, and those without one in the order in which they first
    /// appear in the configuration. In a region, an endpoint is chosen as [`Balance`] says. An ejected endpoint that is due
    /// for a probe comes first, for one request.
    ///
    /// With an affinity the choice within a region is that of rendezvous hashing instead: the same endpoint for the
    /// same key while it is available and has no more than its share of the requests in flight. Each endpoint of the
    /// region is looked at.
    ///
    /// Where too few endpoints are healthy, and where only ejected ones are left, these are used like others:
    /// sending a request there can't be worse than refusing it. An endpoint that has reached a limit
    /// ([`ReachedLimit`]) is passed over, and ejected ones do not replace it.
    ///
    /// `None`: all that have a weight were tried or have reached a limit, or [`ATTEMPTS_MAX`](crate::ATTEMPTS_MAX) were tried.
    pub fn choose(
        &self,
        selection: &Selection,
        tried: &AttemptedEndpoints,
    ) -> Option<(Choice, &Arc<Endpoint<C>>)> {
        let found = self.find(selection, tried, &Untraced)?;
        let slot = self.slot(found)?;
        let choice = Choice { endpoint: EndpointIndex(found), worker: selection.worker, at: selection.now };
        Some((choice, &slot.endpoint))
    }

    /// The endpoint, with its steps told.
    pub(super) fn find<T: Trace>(
        &self,
        selection: &Selection,
        tried: &AttemptedEndpoints,
        trace: &T,
    ) -> Option<u16> {
        if tried.is_full() {
            return None;
        }
        self.survey(selection.now);
        let ejected_too = self.survey.panicking.load(Ordering::Relaxed);
        if ejected_too {
            trace.note(Step::Panic);
        }
        let mut wanted = Wanted { selection, tried, ejected_too, trace };
        let found = self.choose_by_region(wanted).or_else(|| {
            if self.is_limited(wanted) {
                return None;
            }
            trace.note(Step::EjectedToo);
            wanted.ejected_too = true;
            self.choose_by_region(wanted)
        });
        if !T::IS_DRY && found.is_none() && self.is_limited(wanted) {
            self.shared.limited.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// A limit that an endpoint has reached, so that this may be why none was chosen.
    pub fn reached_limit(&self) -> Option<ReachedLimit> {
        self.slots.iter().find_map(|slot| self.limit_of(slot))
    }

    /// The limit that an endpoint has reached.
    fn limit_of(&self, slot: &Slot<C>) -> Option<ReachedLimit> {
        if !self.breaker.has_room(&slot.shared.load) {
            Some(ReachedLimit::Requests)
        } else if self.pool.connections_max.is_some() && !slot.endpoint.has_connection() {
            Some(ReachedLimit::Connections)
        } else {
            None
        }
    }

    /// Whether an endpoint could serve the request, but for its limits.
    #[cold]
    fn is_limited(&self, wanted: Wanted<'_, impl Trace>) -> bool {
        let members = self.regions.iter().flat_map(|region| &*region.members);
        (self.breaker.is_set() || self.pool.connections_max.is_some())
            && members.copied().any(|at| self.is_eligible(at, wanted) && !self.is_usable(at, wanted))
    }

    /// Looks at all endpoints if nobody has lately: whether too few are healthy, and which is due for a probe.
    fn survey(&self, now: Mono) {
        let at = self.survey.at.load(Ordering::Relaxed);
        let is_old = at == 0 || now.saturating_since(Mono::from_nanos(at)) >= SURVEY_EVERY;
        let stamp = now.nanos().max(1);
        let survey = &self.survey;
        // Of several workers that notice, one looks.
        if !is_old || survey.at.compare_exchange(at, stamp, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let health = |at: u16| self.slot(at).map(|slot| &slot.shared.health);
        self.regions.iter().for_each(|region| region.survey(health));
        let sum = |count: fn(&Region) -> usize| self.regions.iter().map(count).sum::<usize>();
        let (all, healthy) = (sum(|region| region.members.len()), sum(Region::healthy));
        let percent = usize::try_from(self.health.panic_percent).unwrap_or(usize::MAX);
        survey.panicking.store(healthy == 0 || healthy * 100 < all * percent, Ordering::Relaxed);
        let divided = survey.divided.load(Ordering::Relaxed);
        if self.regions.len() > 1 && now.saturating_since(Mono::from_nanos(divided)) >= spread::UPDATE_EVERY {
            survey.divided.store(now.nanos(), Ordering::Relaxed);
            self.spread.update(now, &self.spill, |region| self.observe(region, now));
        }
    }

    /// What there is to see of a region.
    fn observe(&self, region: usize, now: Mono) -> Observed {
        let Some(region) = self.regions.get(region) else { return Observed::default() };
        let mut seen =
            Observed { capacity: Some(0.0), ..super::place(region, &self.regions, &self.locality) };
        for slot in region.members.iter().filter_map(|member| self.slot(*member)) {
            let endpoint::Shared { health, load, .. } = &*slot.shared;
            seen.requests += load.requests();
            if !health.is_available() {
                continue;
            }
            let share = health.share(now, self.health.slow_start);
            seen.weight += slot.weight as f32;
            seen.readiness = seen.readiness.max(share);
            seen.in_flight += load.in_flight() as f32;
            let capacity = slot.capacity.map(|capacity| capacity.get() as f32 * share);
            seen.capacity = seen.capacity.zip(capacity).map(|(sum, capacity)| sum + capacity);
        }
        seen
    }

    fn choose_by_region(&self, wanted: Wanted<'_, impl Trace>) -> Option<u16> {
        let random = || self.shared.random(wanted.selection.worker);
        let (rank, drawn) = if self.regions.len() == 1 { (0, 0) } else { self.spread.draw(random)? };
        // What is nearer than the region of this request is probed by it.
        let due = |at: &usize| self.probe(*at, wanted);
        if let Some(found) = self.spread.order().take(rank + 1).find_map(|at| due(&at)) {
            return Some(found);
        }
        let beyond = self.spread.order().enumerate().filter(|(_, at)| *at != drawn);
        std::iter::once((rank, drawn)).chain(beyond).find_map(|(place, at)| {
            wanted.trace.note(if at == drawn { Step::Region(at) } else { Step::NextRegion(at) });
            let probed = if place > rank { self.probe(at, wanted) } else { None };
            probed.or_else(|| self.choose_in(at, wanted))
        })
    }

    /// An endpoint that gets this request as its probe. A request whose key leads elsewhere is none.
    fn probe<T: Trace>(&self, at: usize, wanted: Wanted<'_, T>) -> Option<u16> {
        let region = self.regions.get(at)?;
        if !region.is_probe_due(wanted.selection.now) {
            return None;
        }
        let Selection { now, may_be_lost, affinity, .. } = *wanted.selection;
        let claim = |at: u16| {
            !wanted.tried.contains(EndpointIndex(at))
                && self.slot(at).is_some_and(|slot| {
                    !slot.shared.is_taken_out()
                        && self.limit_of(slot).is_none()
                        && slot.shared.health.claim_probe(now, may_be_lost, T::IS_DRY)
                })
        };
        let claimed = |found: Option<u16>| found.inspect(|found| wanted.trace.note(Step::Probe(*found)));
        let members = || region.members.iter().copied();
        if let Some(affinity) = affinity {
            let healthy = members().filter(|at| self.is_usable(*at, wanted));
            let keeps = healthy.map(|at| self.score(affinity, at)).max_by(f64::total_cmp);
            let leads = |at: &u16| keeps.is_none_or(|kept| self.score(affinity, *at) > kept);
            return claimed(members().filter(leads).find(|at| claim(*at)));
        }
        let found = members().find(|at| claim(*at));
        // What else is due is found at the next look.
        if !T::IS_DRY {
            region.no_probe_due();
        }
        claimed(found)
    }

    fn choose_in<T: Trace>(&self, at: usize, wanted: Wanted<'_, T>) -> Option<u16> {
        let found = self.choose_of(self.regions.get(at)?, wanted)?;
        if !T::IS_DRY && !self.slot(found)?.shared.health.is_available() {
            self.shared.panics.fetch_add(1, Ordering::Relaxed);
        }
        Some(found)
    }

    fn choose_of(&self, region: &Region, wanted: Wanted<'_, impl Trace>) -> Option<u16> {
        if region.healthy() == 0 && !wanted.ejected_too {
            return None;
        }
        if let [only] = *region.members {
            return self.may_take(only, wanted).then_some(only);
        }
        match (wanted.selection.affinity, self.balance) {
            (Some(affinity), _) => self.by_affinity(region, affinity, wanted),
            (None, Balance::RoundRobin) => self.in_turn(region, wanted),
            (None, Balance::PeakEwma | Balance::LeastRequests) => self.better_of_two(region, wanted),
        }
    }

    fn is_usable(&self, at: u16, wanted: Wanted<'_, impl Trace>) -> bool {
        self.obstacle(at, wanted).is_none()
    }

    /// Whether it may be chosen, if it has room.
    fn is_eligible(&self, at: u16, wanted: Wanted<'_, impl Trace>) -> bool {
        matches!(self.obstacle(at, wanted), None | Some(Obstacle::Limit(_)))
    }

    /// As [`is_usable`](Self::is_usable), of an endpoint that was drawn.
    fn may_take(&self, at: u16, wanted: Wanted<'_, impl Trace>) -> bool {
        let obstacle = self.obstacle(at, wanted);
        if let Some(obstacle) = obstacle {
            wanted.trace.note(Step::PassedOver(at, obstacle));
        }
        obstacle.is_none()
    }

    /// Why it can't be chosen.
    fn obstacle(&self, at: u16, wanted: Wanted<'_, impl Trace>) -> Option<Obstacle> {
        let Some(slot) = self.slot(at) else { return Some(Obstacle::TakenOut) };
        if !wanted.ejected_too && !slot.shared.health.is_available() {
            Some(Obstacle::Unhealthy)
        } else if slot.shared.is_taken_out() {
            Some(Obstacle::TakenOut)
        } else if wanted.tried.contains(EndpointIndex(at)) {
            Some(Obstacle::Tried)
        } else {
            self.limit_of(slot).map(Obstacle::Limit)
        }
    }

    /// Why the endpoint at a place can't be chosen for a first attempt.
    pub(super) fn obstacle_of(&self, at: u16, selection: &Selection) -> Option<Obstacle> {
        let ejected_too = self.survey.panicking.load(Ordering::Relaxed);
        let tried = &AttemptedEndpoints::default();
        self.obstacle(at, Wanted { selection, tried, ejected_too, trace: &Untraced })
    }

    /// Whether an endpoint that was drawn gets this request: one in its slow start gets a part of them.
    fn takes(&self, at: u16, wanted: Wanted<'_, impl Trace>, random: u64) -> bool {
        let share = self.share(at, wanted);
        share >= 1.0 || (mix(random ^ SHARE_SALT) >> 40) as f32 / ((1_u32 << 24) as f32) < share
    }

    /// Whether it gets all of its share.
    fn is_whole(&self, at: u16, wanted: Wanted<'_, impl Trace>) -> bool {
        self.share(at, wanted) >= 1.0
    }

    fn share(&self, at: u16, wanted: Wanted<'_, impl Trace>) -> f32 {
        let share = |health: &Health| health.share(wanted.selection.now, self.health.slow_start);
        self.slot(at).map_or(1.0, |slot| share(&slot.shared.health))
    }

    /// Draws by weight; of two that are drawn, the better one.
    fn better_of_two(&self, region: &Region, wanted: Wanted<'_, impl Trace>) -> Option<u16> {
        let worker = wanted.selection.worker;
        let (mut first, mut reluctant) = (None, None);
        for _ in 0..DRAWS_MAX {
            let random = self.shared.random(worker);
            let drawn = region.draw(random)?;
            if !self.may_take(drawn, wanted) || first == Some(drawn) {
                continue;
            }
            if !self.takes(drawn, wanted, random) {
                wanted.trace.note(Step::SlowStart(drawn));
                reluctant = Some(drawn);
                continue;
            }
            match first {
                None => first = Some(drawn),
                Some(first) => return Some(self.better(region, first, drawn, wanted)),
            }
        }
        // One of a few may have nearly all the weight, and be drawn each time.
        if let Some(first) = first
            && region.members.len() <= FEW
            && let Some(second) =
                self.draw_among(region, wanted, |at| at != first && self.is_whole(at, wanted))
        {
            return Some(self.better(region, first, second, wanted));
        }
        first.or(reluctant).or_else(|| self.draw_among(region, wanted, |_| true))
    }

    /// The next whose turn it is.
    fn in_turn(&self, region: &Region, wanted: Wanted<'_, impl Trace>) -> Option<u16> {
        let mut reluctant = None;
        for _ in 0..DRAWS_MAX {
            let turn = self.shared.turn(wanted.selection.worker);
            let next = region.turn(turn)?;
            if self.may_take(next, wanted) {
                if self.takes(next, wanted, mix(turn)) {
                    return Some(next);
                }
                wanted.trace.note(Step::SlowStart(next));
                reluctant = Some(next);
            }
        }
        reluctant.or_else(|| self.draw_among(region, wanted, |_| true))
    }

    /// Draws by weight among usable endpoints, of which it looks at each: for when most are ejected or tried.
    fn draw_among(
        &self,
        region: &Region,
        wanted: Wanted<'_, impl Trace>,
        which: impl Fn(u16) -> bool,
    ) -> Option<u16> {
        let usable = || region.members.iter().copied().filter(|at| self.is_usable(*at, wanted) && which(*at));
        let sum = usable().map(|at| self.weight(at)).sum();
        let mut left = scale(self.shared.random(wanted.selection.worker), sum);
        let mut last = None;
        for at in usable() {
            last = Some(at);
            let Some(rest) = left.checked_sub(self.weight(at)) else { break };
            left = rest;
        }
        // Where one became unusable meanwhile, the last that is left.
        last
    }

    /// The one that has less to do for its weight, and does it faster; the first if they are equal.
    fn better(&self, region: &Region, first: u16, second: u16, wanted: Wanted<'_, impl Trace>) -> u16 {
        let (Some(one), Some(other)) = (self.slot(first), self.slot(second)) else { return first };
        let mean = region.weight_mean();
        let Selection { worker, now, .. } = *wanted.selection;
        let [one, other] = [one, other].map(|slot| {
            let mut load = slot.shared.load.estimate(worker, now);
            load.in_flight = load.in_flight * mean / slot.weight as f32 + 1.0;
            load
        });
        let (latency_one, latency_other) =
            if self.balance == Balance::LeastRequests { (1.0, 1.0) } else { latencies(one, other) };
        let (cost_one, cost_other) = (one.in_flight * latency_one, other.in_flight * latency_other);
        let (taken, other, cost, other_cost) = if cost_one > cost_other {
            (second, first, cost_other, cost_one)
        } else {
            (first, second, cost_one, cost_other)
        };
        wanted.trace.note(Step::Better { taken, other, cost, other_cost });
        taken
    }

    /// The endpoint that a key leads to among those that have no more than their share of the load.
    fn by_affinity(
        &self,
        region: &Region,
        affinity: Affinity,
        wanted: Wanted<'_, impl Trace>,
    ) -> Option<u16> {
        let Selection { worker, now, .. } = *wanted.selection;
        let usable = || region.members.iter().copied().filter(|at| self.is_usable(*at, wanted));
        let load =
            |at: u16| self.slot(at).map_or(0.0, |slot| slot.shared.load.estimate(worker, now).in_flight);
        let (loads, weights) =
            usable().fold((1.0, 0), |(loads, weights), at| (loads + load(at), weights + self.weight(at)));
        let has_room = |at: u16| {
            let share = self.weight(at) as f32 / weights as f32;
            let most = (KEY_LOAD_FACTOR * loads * share).ceil().max(KEY_LOAD_FREE);
            load(at) + 1.0 <= most
        };
        let score = |at: u16| (at, self.score(affinity, at));
        let higher = |one: &(u16, f64), other: &(u16, f64)| one.1.total_cmp(&other.1);
        let first = usable().map(score).max_by(higher)?.0;
        if has_room(first) {
            wanted.trace.note(Step::Key(first));
            return Some(first);
        }
        wanted.trace.note(Step::KeyFull(first));
        let best = usable().filter(|at| has_room(*at)).map(score).max_by(higher);
        Some(best.map_or(first, |(at, _)| at))
    }

    fn score(&self, affinity: Affinity, at: u16) -> f64 {
        self.slot(at).map_or(0.0, |slot| affinity.score(slot.affinity, slot.weight))
    }
}

/// The response times by which two endpoints are compared.
fn latencies(one: Estimate, other: Estimate) -> (f32, f32) {
    // What is not known of one is taken from the other.
    let mixed = |of: Estimate, beside: Estimate| {
        of.confidence * of.latency + (1.0 - of.confidence) * beside.latency + LATENCY_NOISE
    };
    let (latency_one, latency_other) = (mixed(one, other), mixed(other, one));
    let ratio = latency_one / latency_other;
    if (1.0 / LATENCY_RATIO..=LATENCY_RATIO).contains(&ratio) {
        // Else the one that is a little faster would get all requests of a quiet service.
        (1.0, 1.0)
    } else {
        (latency_one, latency_other)
    }
}

/// Tells the second use of a random number from its first.
const SHARE_SALT: u64 = 0xA076_1D64_78BD_642F;
