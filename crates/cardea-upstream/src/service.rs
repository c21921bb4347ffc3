//! A service's state, and which endpoint serves a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cardea_clock::Mono;
use foldhash::{HashMap, HashMapExt};

use crate::affinity::{Affinity, mix};
use crate::config::{ConfigError, PoolConfig, ServiceConfig};
use crate::endpoint::Endpoint;
use crate::retry::RetryBudget;
use crate::stats::{EndpointStats, ServiceStats};

/// How many endpoints a request tries at most.
pub const ATTEMPTS_MAX: usize = 8;

/// How often an endpoint is drawn before all are looked at. Draws beside ejected or tried endpoints are
/// made again, which keeps the shares of the rest exact and costs nothing while most are available.
const DRAWS_MAX: usize = 6;

/// The endpoints of a service and what is known of them. What is configured never changes: a reload makes
/// another state ([`ServiceState::reconcile`]) that shares what stays.
#[derive(Debug)]
pub struct ServiceState<C> {
    name: String,
    pool: PoolConfig,
    slots: Vec<Slot<C>>,
    /// In the order in which they first appear in the configuration.
    regions: Vec<Region>,
    retries: Arc<RetryBudget>,
    shared: Arc<Shared>,
}

/// What becomes of connections that were made under the previous configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    /// They are used further.
    Kept,
    /// None is used again: what decides how connections are made, or what may travel on them, has changed (server name,
    /// trusted roots, client certificate).
    Dropped,
}

/// An endpoint as this configuration sees it.
#[derive(Debug)]
struct Slot<C> {
    endpoint: Arc<Endpoint<C>>,
    region: usize,
    weight: u32,
    /// That of its label.
    affinity: Affinity,
}

#[derive(Debug)]
struct Region {
    name: Option<String>,
    /// Endpoints whose weight isn't 0.
    members: Vec<u16>,
    /// The sum of weights up to and with each member.
    sums: Vec<u64>,
}

/// What survives every reload beside the endpoints.
#[derive(Debug)]
struct Shared {
    /// Draws made by each worker: with a hash over it, the source of randomness.
    draws: Box<[Draws]>,
    retried: AtomicU64,
    retries_refused: AtomicU64,
    panics: AtomicU64,
}

/// A counter on cache lines of its own: two, as processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Draws(AtomicU64);

/// An endpoint of one [`ServiceState`], by its place in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndpointIndex(u16);

impl EndpointIndex {
    /// The place in [`ServiceConfig::endpoints`].
    #[must_use]
    pub fn get(self) -> usize {
        usize::from(self.0)
    }
}

/// The endpoints that a request has tried, at most [`ATTEMPTS_MAX`].
#[derive(Clone, Copy, Debug, Default)]
pub struct AttemptedEndpoints {
    endpoints: [u16; ATTEMPTS_MAX],
    len: usize,
}

impl AttemptedEndpoints {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one. Once there are [`ATTEMPTS_MAX`], [`ServiceState::choose`] gives no more.
    pub fn insert(&mut self, endpoint: EndpointIndex) {
        if !self.contains(endpoint)
            && let Some(free) = self.endpoints.get_mut(self.len)
        {
            *free = endpoint.0;
            self.len += 1;
        }
    }

    /// Whether it was tried.
    #[must_use]
    pub fn contains(&self, endpoint: EndpointIndex) -> bool {
        self.endpoints.iter().take(self.len).any(|tried| *tried == endpoint.0)
    }

    /// How many were tried.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none was tried.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether no other may be tried.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len == ATTEMPTS_MAX
    }
}

impl<C> ServiceState<C> {
    /// The state of a service as configured now. Endpoints whose address `previous` has keep their pool,
    /// health and counters (the pool only with [`Connections::Kept`]); so does the retry budget while its configuration
    /// stays.
    ///
    /// `previous` goes on as it was: a reload that fails elsewhere has changed nothing. Once the new state
    /// is in use, call [`ServiceState::activate`].
    ///
    /// # Errors
    /// What [`ServiceConfig::validate`] says.
    pub fn reconcile(
        config: &ServiceConfig,
        previous: Option<&Arc<Self>>,
        connections: Connections,
    ) -> Result<Arc<Self>, ConfigError> {
        config.validate()?;
        let mut known = HashMap::new();
        for slot in previous.iter().flat_map(|previous| &previous.slots) {
            known.insert(slot.endpoint.address(), &slot.endpoint);
        }
        let mut slots = Vec::with_capacity(config.endpoints.len());
        let mut regions: Vec<Region> = Vec::new();
        for wanted in &config.endpoints {
            let endpoint = match known.get(&wanted.address) {
                Some(endpoint) if connections == Connections::Kept => Arc::clone(endpoint),
                Some(endpoint) => Arc::new(endpoint.with_new_pool(&config.pool)),
                None => Arc::new(Endpoint::new(wanted.address.clone(), &config.pool)),
            };
            let region =
                regions.iter().position(|region| region.name == wanted.region).unwrap_or_else(|| {
                    regions.push(Region {
                        name: wanted.region.clone(),
                        members: Vec::new(),
                        sums: Vec::new(),
                    });
                    regions.len() - 1
                });
            // Validated: there are at most ENDPOINTS_MAX, far below what a u16 holds.
            if let (Ok(index), true) = (u16::try_from(slots.len()), wanted.weight > 0) {
                regions[region].add(index, wanted.weight);
            }
            let affinity = Affinity::of(endpoint.label().as_bytes());
            slots.push(Slot { endpoint, region, weight: wanted.weight, affinity });
        }
        let retries = match previous {
            Some(previous) if *previous.retries.config() == config.retry => Arc::clone(&previous.retries),
            _ => Arc::new(RetryBudget::new(config.retry)),
        };
        let shared = match previous {
            Some(previous) => Arc::clone(&previous.shared),
            None => Arc::new(Shared::new(config.pool.workers)),
        };
        Ok(Arc::new(Self { name: config.name.clone(), pool: config.pool, slots, regions, retries, shared }))
    }

    /// Makes the limits of this state those of its endpoints' pools, and closes the pools that only
    /// `previous` has: connections that are still used there are dropped when they are put back.
    ///
    /// To be called once, after the model with this state has become the current one.
    pub fn activate(&self, previous: Option<&Self>) {
        for slot in &self.slots {
            slot.endpoint.configure(&self.pool);
        }
        for old in previous.iter().flat_map(|previous| &previous.slots) {
            if !self.slots.iter().any(|slot| Arc::ptr_eq(&slot.endpoint, &old.endpoint)) {
                old.endpoint.pool().close();
            }
        }
    }

    /// Closes all pools: the service has left the configuration.
    pub fn retire(&self) {
        for slot in &self.slots {
            slot.endpoint.pool().close();
        }
    }

    /// The service's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All endpoints, in the order configured.
    pub fn endpoints(&self) -> impl Iterator<Item = (EndpointIndex, &Arc<Endpoint<C>>)> {
        self.slots.iter().zip(0..).map(|(slot, index)| (EndpointIndex(index), &slot.endpoint))
    }

    /// The endpoint at `index`, which [`ServiceState::choose`] gave.
    #[must_use]
    pub fn endpoint(&self, index: EndpointIndex) -> Option<&Arc<Endpoint<C>>> {
        self.slots.get(index.get()).map(|slot| &slot.endpoint)
    }

    /// Counts a request for the retry budget: once per request, not per attempt.
    pub fn begin(&self) {
        self.retries.request();
    }

    /// Whether the budget allows one more attempt for a request; takes from it if so.
    pub fn retry(&self, now: Mono) -> bool {
        let allowed = self.retries.try_retry(now);
        let counter = if allowed { &self.shared.retried } else { &self.shared.retries_refused };
        counter.fetch_add(1, Ordering::Relaxed);
        allowed
    }

    /// The endpoint for a request's next attempt, none of those in `tried`.
    ///
    /// Regions come in order: the local one, then the others as they first appear in the configuration. In
    /// the first that has an available endpoint, two are drawn by weight, and the one with fewer requests
    /// of `worker` in flight for its weight is chosen: of what it sent itself, as all workers draw alike. An endpoint that is due for a trial takes part; being chosen is
    /// the trial, so report what came of it.
    ///
    /// With an `affinity` the choice within a region is that of rendezvous hashing instead: the same endpoint for the
    /// same key while it is available, whatever it is loaded with. Each endpoint of the region is looked at.
    ///
    /// When none is available, what is left is the one that failed least recently (*panic mode*): sending
    /// a request there can't be worse than refusing it. `None`: all that have a weight were tried, or
    /// [`ATTEMPTS_MAX`] were.
    pub fn choose(
        &self,
        worker: usize,
        now: Mono,
        local_region: Option<&str>,
        affinity: Option<Affinity>,
        tried: &AttemptedEndpoints,
    ) -> Option<(EndpointIndex, &Arc<Endpoint<C>>)> {
        if tried.is_full() {
            return None;
        }
        let local = local_region
            .and_then(|local| self.regions.iter().position(|region| region.name.as_deref() == Some(local)));
        let others = (0..self.regions.len()).filter(|at| Some(*at) != local);
        for region in local.into_iter().chain(others).filter_map(|at| self.regions.get(at)) {
            // Another request may take a trial first: then this one looks again, without that endpoint.
            for _ in 0..=region.members.len() {
                let Some(chosen) = self.choose_in(worker, region, now, affinity, tried) else { break };
                let slot = self.slot(chosen)?;
                if slot.endpoint.shared.health.claim(now) {
                    return Some((EndpointIndex(chosen), &slot.endpoint));
                }
            }
        }
        let left = self
            .slots
            .iter()
            .zip(0..)
            .filter(|(slot, at)| slot.weight > 0 && !tried.contains(EndpointIndex(*at)));
        let (slot, at) = left.min_by_key(|(slot, _)| slot.endpoint.shared.health.last_failed())?;
        self.shared.panics.fetch_add(1, Ordering::Relaxed);
        Some((EndpointIndex(at), &slot.endpoint))
    }

    /// The better of two available endpoints of a region; with an affinity, the one that it leads to.
    fn choose_in(
        &self,
        worker: usize,
        region: &Region,
        now: Mono,
        affinity: Option<Affinity>,
        tried: &AttemptedEndpoints,
    ) -> Option<u16> {
        let usable = |at: u16| {
            self.slot(at).is_some_and(|slot| {
                slot.endpoint.shared.health.is_available(now) && !tried.contains(EndpointIndex(at))
            })
        };
        if let [only] = *region.members {
            return usable(only).then_some(only);
        }
        if let Some(affinity) = affinity {
            let score =
                |at: u16| self.slot(at).map_or(0.0, |slot| affinity.score(slot.affinity, slot.weight));
            let scores = region.members.iter().filter(|at| usable(**at)).map(|at| (*at, score(*at)));
            return scores.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(at, _)| at);
        }
        let mut first = None;
        for _ in 0..DRAWS_MAX {
            let drawn = region.draw(self.shared.random(worker))?;
            match first {
                _ if !usable(drawn) => {}
                None => first = Some(drawn),
                Some(first) if first == drawn => {}
                Some(first) => return Some(self.less_loaded(worker, first, drawn)),
            }
        }
        // Most are unavailable, or one has nearly all the weight: look at each.
        let first = first.or_else(|| self.draw_among(worker, region, None, usable))?;
        let second = self.draw_among(worker, region, Some(first), usable);
        Some(second.map_or(first, |second| self.less_loaded(worker, first, second)))
    }

    /// Draws by weight among the usable endpoints of a region, `without` one of them.
    fn draw_among(
        &self,
        worker: usize,
        region: &Region,
        without: Option<u16>,
        usable: impl Fn(u16) -> bool,
    ) -> Option<u16> {
        let eligible = || region.members.iter().copied().filter(|at| Some(*at) != without && usable(*at));
        let mut left = scale(self.shared.random(worker), eligible().map(|at| self.weight(at)).sum());
        let mut last = None;
        for at in eligible() {
            last = Some(at);
            let Some(rest) = left.checked_sub(self.weight(at)) else { break };
            left = rest;
        }
        // Where one became unavailable meanwhile, the last that is left.
        last
    }

    /// The one with fewer requests in flight for its weight; the first if they are equal.
    fn less_loaded(&self, worker: usize, first: u16, second: u16) -> u16 {
        let load = |at: u16| self.slot(at).map_or(0, |slot| slot.endpoint.in_flight_of(worker) as u64);
        // load(first) / weight(first) > load(second) / weight(second), without division.
        let (one, two) = (
            load(first).saturating_mul(self.weight(second)),
            load(second).saturating_mul(self.weight(first)),
        );
        if one > two { second } else { first }
    }

    fn slot(&self, at: u16) -> Option<&Slot<C>> {
        self.slots.get(usize::from(at))
    }

    fn weight(&self, at: u16) -> u64 {
        self.slot(at).map_or(0, |slot| u64::from(slot.weight))
    }

    /// Drops connections that have been idle for too long. To be called every few seconds.
    pub fn sweep(&self, now: Mono) {
        for slot in &self.slots {
            slot.endpoint.pool().sweep(now);
        }
    }

    /// Everything that is counted, for metrics and the administrator.
    #[must_use]
    pub fn stats(&self) -> ServiceStats {
        let endpoint = |slot: &Slot<C>| {
            let region = self.regions.get(slot.region).and_then(|region| region.name.clone());
            EndpointStats::of(&slot.endpoint, region, slot.weight)
        };
        ServiceStats {
            name: self.name.clone(),
            endpoints: self.slots.iter().map(endpoint).collect(),
            panics: self.shared.panics.load(Ordering::Relaxed),
            retries: self.shared.retried.load(Ordering::Relaxed),
            retries_refused: self.shared.retries_refused.load(Ordering::Relaxed),
            retry_balance: self.retries.balance(),
        }
    }
}

impl Region {
    fn add(&mut self, endpoint: u16, weight: u32) {
        self.sums.push(self.sums.last().copied().unwrap_or(0) + u64::from(weight));
        self.members.push(endpoint);
    }

    /// A member, drawn by weight.
    fn draw(&self, random: u64) -> Option<u16> {
        let point = scale(random, *self.sums.last()?);
        self.members.get(self.sums.partition_point(|sum| *sum <= point)).copied()
    }
}

impl Shared {
    fn new(workers: usize) -> Self {
        // Far apart, so that no two workers draw the same.
        let draws = (0..workers.max(1) as u64).map(|worker| Draws(AtomicU64::new(worker << 48))).collect();
        Self {
            draws,
            retried: AtomicU64::new(0),
            retries_refused: AtomicU64::new(0),
            panics: AtomicU64::new(0),
        }
    }

    /// SplitMix64 over a counter: well spread, cheap. It need not be unpredictable.
    fn random(&self, worker: usize) -> u64 {
        // There is at least one.
        let Draws(draws) = &self.draws[worker % self.draws.len()];
        let count = draws.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        mix(count.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }
}

/// A random number below `bound`, from one of 64 bits.
fn scale(random: u64, bound: u64) -> u64 {
    let scaled = (u128::from(random) * u128::from(bound)) >> 64;
    u64::try_from(scaled).unwrap_or(0)
}

#[cfg(test)]
mod tests;
