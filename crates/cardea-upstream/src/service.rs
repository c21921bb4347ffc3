//! A service's state: its endpoints, what became of attempts at them, and its retries.

mod choice;
mod explain;
mod trace;

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cardea_clock::Mono;
use foldhash::{HashMap, HashMapExt, HashSet};

use crate::affinity::{Affinity, mix};
use crate::attempts::EndpointIndex;
use crate::breaker::BreakerConfig;
use crate::check::CheckConfig;
use crate::config::{
    Balance, ConfigError, EndpointConfig, HealthConfig, PoolConfig, ServiceConfig, SpillConfig,
};
use crate::endpoint::{self, Endpoint, FailureKind, Override};
use crate::health::Failure;
use crate::locality::Locality;
use crate::region::{Region, scale};
use crate::retry::{RetryBudget, RetryCause, RetryConfig};
use crate::spread::{Observed, Spread};
use crate::stats::{EndpointStats, RegionStats, ServiceStats};

pub use choice::{Choice, ReachedLimit, Selection};
pub use explain::{ChoiceExplanation, ChoiceStep, EndpointExplanation, RegionExplanation};
pub use trace::Obstacle;

/// The endpoints of a service and what is known of them. What is configured never changes: a reload or a change of the
/// endpoints makes another state ([`ServiceState::reconcile`]) that shares what stays.
#[derive(Debug)]
pub struct ServiceState<C> {
    name: String,
    pool: PoolConfig,
    balance: Balance,
    breaker: BreakerConfig,
    health: HealthConfig,
    check: CheckConfig,
    retry: RetryConfig,
    spill: SpillConfig,
    locality: Arc<Locality>,
    slots: Vec<Slot<C>>,
    /// In the order in which they first appear in the configuration.
    regions: Vec<Region>,
    /// How requests are divided among them.
    spread: Spread,
    survey: Survey,
    budget: Arc<RetryBudget>,
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
    /// The endpoint's health and load, one step closer: a choice looks at them alone.
    shared: Arc<endpoint::Shared>,
    region: usize,
    weight: u32,
    capacity: Option<NonZeroU32>,
    /// That of its label.
    affinity: Affinity,
}

/// What the last look at all endpoints has found.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Survey {
    /// In nanoseconds of [`Mono`]; 0: never.
    at: AtomicU64,
    /// So few endpoints are healthy that all are used.
    panicking: AtomicBool,
    /// When requests were last divided among regions, in nanoseconds of [`Mono`].
    divided: AtomicU64,
}

/// What survives every reload beside the endpoints.
#[derive(Debug)]
struct Shared {
    /// Draws made by each worker: with a hash over it, the source of randomness.
    draws: Box<[Draws]>,
    /// In the order of [`RetryCause::ALL`]: those that the budget allowed, and those that it refused.
    retries: [[AtomicU64; 2]; RetryCause::ALL.len()],
    panics: AtomicU64,
    /// How often no endpoint was chosen because those that could be had reached their limits.
    limited: AtomicU64,
    /// Held from the look at how many endpoints are ejected to the ejection of one more.
    ejecting: Mutex<()>,
    /// What the operator says of names, as they are configured.
    overridden: Mutex<HashMap<String, Override>>,
}

/// A counter on cache lines of its own: two, as processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Draws {
    /// How often the worker has drawn at random.
    random: AtomicU64,
    /// How often it has chosen in turn. Apart from the other: were the two one, a failure, which draws at random, would make
    /// the turn come again to the endpoint that failed.
    turns: AtomicU64,
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
            known.insert((slot.endpoint.address(), slot.endpoint.name()), &slot.endpoint);
        }
        let shared = match previous {
            Some(previous) => Arc::clone(&previous.shared),
            None => Arc::new(Shared::new(config.pool.workers)),
        };
        let mut slots = Vec::with_capacity(config.endpoints.len());
        let mut regions: Vec<Region> = Vec::new();
        for wanted in &config.endpoints {
            let endpoint = match known.get(&(&wanted.address, wanted.name.as_ref())) {
                Some(endpoint)
                    if connections == Connections::Kept
                        && endpoint.overridden() != Some(Override::Disabled) =>
                {
                    Arc::clone(endpoint)
                }
                Some(endpoint) => Arc::new(endpoint.with_new_pool(&config.pool)),
                None => Arc::new(shared.endpoint(wanted, &config.pool)),
            };
            let is_there =
                |region: &Region| region.name == wanted.region && region.priority == wanted.priority;
            let region = regions.iter().position(is_there).unwrap_or_else(|| {
                let known = wanted.region.as_deref().and_then(|name| config.locality.region(name));
                regions.push(Region::new(wanted.region.clone(), wanted.priority, known.cloned()));
                regions.len() - 1
            });
            let is_used = wanted.weight > 0 && !endpoint.shared.is_taken_out();
            // Validated: there are at most ENDPOINTS_MAX, far below what a u16 holds.
            if let (Ok(index), true) = (u16::try_from(slots.len()), is_used) {
                regions[region].add(index, wanted.weight);
            }
            let affinity = Affinity::of(endpoint.label().as_bytes());
            let shared = Arc::clone(&endpoint.shared);
            let EndpointConfig { weight, capacity, .. } = *wanted;
            slots.push(Slot { endpoint, shared, region, weight, capacity, affinity });
        }
        regions.iter_mut().for_each(Region::settle);
        let spread =
            Spread::new(regions.iter().map(|region| place(region, &regions, &config.locality)).collect());
        let budget = match previous {
            Some(previous) if *previous.budget.config() == config.retry.budget => {
                Arc::clone(&previous.budget)
            }
            _ => Arc::new(RetryBudget::new(config.retry.budget)),
        };
        Ok(Arc::new(Self {
            name: config.name.clone(),
            pool: config.pool,
            balance: config.balance,
            breaker: config.breaker,
            health: config.health,
            check: config.check.clone(),
            retry: config.retry,
            spill: config.spill,
            locality: Arc::clone(&config.locality),
            slots,
            regions,
            spread,
            survey: Survey::default(),
            budget,
            shared,
        }))
    }

    /// The configuration that made this state.
    #[must_use]
    pub fn config(&self) -> ServiceConfig {
        let endpoint = |slot: &Slot<C>| EndpointConfig {
            address: slot.endpoint.address().clone(),
            name: slot.endpoint.name().cloned(),
            priority: self.regions.get(slot.region).map_or(0, |region| region.priority),
            region: self.regions.get(slot.region).and_then(|region| region.name.clone()),
            weight: slot.weight,
            capacity: slot.capacity,
        };
        ServiceConfig {
            name: self.name.clone(),
            endpoints: self.slots.iter().map(endpoint).collect(),
            pool: self.pool,
            balance: self.balance,
            breaker: self.breaker,
            health: self.health,
            check: self.check.clone(),
            retry: self.retry,
            spill: self.spill,
            locality: Arc::clone(&self.locality),
        }
    }

    /// Makes the limits of this state those of its endpoints' pools, closes the pools that only `previous` has, so that
    /// connections that are still used there are dropped when they are put back, and begins the slow start of endpoints
    /// that `previous` has not.
    ///
    /// To be called once, after the model with this state has become the current one.
    pub fn activate(&self, previous: Option<&Self>, now: Mono) {
        let key = |slot: &Slot<C>| (Arc::as_ptr(&slot.endpoint), Arc::as_ptr(&slot.shared));
        let had: HashSet<_> = previous.iter().flat_map(|previous| &previous.slots).map(key).collect();
        let had_shared: HashSet<_> = had.iter().map(|(_, shared)| *shared).collect();
        for slot in &self.slots {
            slot.endpoint.configure(&self.pool, &self.check, now);
            // The first endpoints of a service have no others beside them that could serve the rest.
            if !had.is_empty() && !had_shared.contains(&Arc::as_ptr(&slot.shared)) {
                slot.endpoint.shared.health.start_slowly(now);
            }
        }
        let has: HashSet<_> = self.slots.iter().map(key).collect();
        for old in previous.iter().flat_map(|previous| &previous.slots) {
            if !has.contains(&key(old)) {
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

    /// What the operator says of a name holds for the addresses that it will have.
    pub(crate) fn override_name(&self, name: &str, overridden: Option<Override>) {
        let mut names = self.shared.overridden.lock().unwrap_or_else(PoisonError::into_inner);
        match overridden {
            Some(overridden) => names.insert(name.to_owned(), overridden),
            None => names.remove(name),
        };
    }

    /// How endpoints are checked.
    #[must_use]
    pub fn check_config(&self) -> &CheckConfig {
        &self.check
    }

    /// How many workers count apart.
    pub(crate) fn workers(&self) -> usize {
        self.pool.workers.max(1)
    }

    /// The region of the endpoint at `index`.
    #[must_use]
    pub fn region_of(&self, index: EndpointIndex) -> Option<&str> {
        self.regions.get(self.slots.get(index.get())?.region)?.name.as_deref()
    }

    /// What is tried again, and how often.
    #[must_use]
    pub fn retry_config(&self) -> &RetryConfig {
        &self.retry
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
        self.budget.request();
    }

    /// Whether the budget allows one more attempt for a request; takes from it if so.
    pub fn retry(&self, cause: RetryCause, now: Mono) -> bool {
        let allowed = self.budget.try_retry(now);
        let counters = self.shared.retries.iter().zip(RetryCause::ALL);
        if let Some(([granted, refused], _)) = counters.into_iter().find(|(_, other)| *other == cause) {
            let counter = if allowed { granted } else { refused };
            counter.fetch_add(1, Ordering::Relaxed);
        }
        allowed
    }

    /// What a request waits after so many attempts, before the next.
    pub fn retry_wait(&self, worker: usize, attempts: u32) -> Duration {
        self.retry.wait(attempts, self.shared.random(worker))
    }

    /// A connection was made for an attempt, its TLS handshake included.
    pub fn connected(&self, choice: Choice, now: Mono) {
        if let Some(endpoint) = self.endpoint(choice.endpoint) {
            endpoint.connected(choice.at, now);
        }
    }

    /// A connection to an endpoint was made in one round trip that took so long.
    pub fn round_trip(&self, endpoint: EndpointIndex, now: Mono, took: Duration) {
        let known = self
            .slots
            .get(endpoint.get())
            .and_then(|slot| self.regions.get(slot.region))
            .and_then(|region| region.known.as_ref());
        if let Some(known) = known {
            known.sample(now, took);
        }
    }

    /// The endpoints to measure the round trip to now: one in each region to which no connection was made for a while.
    pub fn round_trips_due(&self, now: Mono) -> Vec<EndpointIndex> {
        let random = self.shared.random(0);
        let of = |region: &Region| {
            let known = region.known.as_ref()?;
            let count = region.members.len();
            let first = usize::try_from(scale(random, count as u64)).unwrap_or(0);
            let healthy = |at: &u16| self.slot(*at).is_some_and(|slot| slot.shared.health.is_available());
            let members = region.members.iter().cycle().skip(first).take(count).copied();
            let found = members.into_iter().find(healthy)?;
            known.claim_probe(now, mix(random)).then_some(EndpointIndex(found))
        };
        self.regions.iter().filter_map(of).collect()
    }

    /// The head of a response came, `latency` after the request was sent; none where it came before that. Statuses that
    /// the configuration names count as failures.
    pub fn responded(&self, choice: Choice, now: Mono, status: u16, latency: Option<Duration>) {
        if self.health.statuses.contains(status) {
            self.failed(choice, now, FailureKind::Status, latency.unwrap_or_default());
            return;
        }
        let Some(endpoint) = self.endpoint(choice.endpoint) else { return };
        let load = &endpoint.shared.load;
        load.ended(choice.worker, now, self.health.window);
        if let Some(latency) = latency {
            load.sample(choice.worker, now, latency, false);
        }
        endpoint.succeeded(choice.at, now);
    }

    /// An attempt failed after so long. Shortages of the gateway's own are no failures, nor is what a client does.
    ///
    /// A reset of a reused connection is none either: the endpoint may close an idle one at any time.
    pub fn failed(&self, choice: Choice, now: Mono, kind: FailureKind, latency: Duration) {
        let Some(endpoint) = self.endpoint(choice.endpoint) else { return };
        let load = &endpoint.shared.load;
        load.ended(choice.worker, now, self.health.window);
        load.sample(choice.worker, now, latency, true);
        let random = self.shared.random(choice.worker);
        let failure = Failure { kind, chosen: choice.at, now, random };
        let _one_at_a_time = self.shared.ejecting.lock().unwrap_or_else(PoisonError::into_inner);
        endpoint.failed(failure, &self.health, || self.may_eject());
    }

    /// The client left after so long without a response: no failure, but the endpoint took at least that long.
    pub fn abandoned(&self, choice: Choice, now: Mono, waited: Duration) {
        let Some(endpoint) = self.endpoint(choice.endpoint) else { return };
        let load = &endpoint.shared.load;
        if load.latency().is_none_or(|latency| latency < waited) {
            load.sample(choice.worker, now, waited, false);
        }
    }

    /// The endpoint asks for fewer requests for so long (`Retry-After`, RFC 9110 §10.2.3).
    pub fn eased(&self, choice: Choice, now: Mono, lasts: Duration) {
        if let Some(endpoint) = self.endpoint(choice.endpoint) {
            endpoint.shared.health.ease(now, lasts);
        }
    }

    /// Whether one more endpoint may be ejected for what a request can cause.
    fn may_eject(&self) -> bool {
        let used = self.slots.iter().filter(|slot| slot.weight > 0 && !slot.shared.is_taken_out());
        let (all, ejected) = used.fold((0, 0), |(all, ejected), slot| {
            (all + 1, ejected + usize::from(!slot.endpoint.is_available()))
        });
        let percent = usize::try_from(self.health.ejected_percent_max).unwrap_or(usize::MAX);
        let most = if percent == 0 { 0 } else { (all * percent / 100).max(1) };
        ejected < most && ejected + 1 < all
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
        let mut retries = RetryCause::ALL.map(|cause| (cause, [0; 2]));
        for ((_, counts), counters) in retries.iter_mut().zip(&self.shared.retries) {
            *counts = counters.each_ref().map(|counter| counter.load(Ordering::Relaxed));
        }
        let shares = self.spread.shares();
        let order: Vec<usize> = self.spread.order().collect();
        let region = |at: usize| {
            let region = self.regions.get(at)?;
            Some(RegionStats {
                name: region.name.clone(),
                is_home: is_home(region, &self.locality),
                round_trip: round_trip(region, &self.locality),
                is_measured: region.known.as_ref().is_some_and(|known| known.measured().is_some()),
                share: shares.get(at).copied().unwrap_or(0.0),
                endpoints: region.members.len(),
                healthy: region.healthy(),
            })
        };
        let mut regions: Vec<RegionStats> = Vec::new();
        for region in order.into_iter().filter_map(region) {
            match regions.iter_mut().find(|known| known.name == region.name) {
                Some(known) => known.add(&region),
                None => regions.push(region),
            }
        }
        ServiceStats {
            regions,
            name: self.name.clone(),
            endpoints: self.slots.iter().map(endpoint).collect(),
            panics: self.shared.panics.load(Ordering::Relaxed),
            limited: self.shared.limited.load(Ordering::Relaxed),
            panicking: self.survey.panicking.load(Ordering::Relaxed),
            retries,
            retry_balance: self.budget.balance(),
        }
    }
}

/// Where a region is, and its place among those of the same name.
fn place(region: &Region, regions: &[Region], locality: &Locality) -> Observed {
    let group = regions.iter().position(|first| first.name == region.name);
    Observed {
        is_home: is_home(region, locality),
        round_trip: round_trip(region, locality),
        group: group.and_then(|group| u16::try_from(group).ok()).unwrap_or(u16::MAX),
        tier: region.priority,
        ..Observed::default()
    }
}

fn is_home(region: &Region, locality: &Locality) -> bool {
    locality.home().is_some() && region.name.as_deref() == locality.home()
}

/// To a region, where it is known.
fn round_trip(region: &Region, locality: &Locality) -> Option<Duration> {
    locality.round_trip(region.known.as_ref()?)
}

impl Shared {
    fn new(workers: usize) -> Self {
        // Far apart, so that no two workers draw the same.
        let draws = (0..workers.max(1) as u64)
            .map(|worker| {
                let start = || AtomicU64::new(worker << 48);
                Draws { random: start(), turns: start() }
            })
            .collect();
        Self {
            draws,
            retries: Default::default(),
            panics: AtomicU64::new(0),
            limited: AtomicU64::new(0),
            ejecting: Mutex::new(()),
            overridden: Mutex::new(HashMap::new()),
        }
    }

    /// A new endpoint. What the operator says of its name holds for it too.
    fn endpoint<C>(&self, wanted: &EndpointConfig, pool: &PoolConfig) -> Endpoint<C> {
        let endpoint = Endpoint::new(wanted, pool);
        let names = self.overridden.lock().unwrap_or_else(PoisonError::into_inner);
        let overridden = wanted.name.as_ref().and_then(|name| names.get(&name.to_string()));
        endpoint.shared.set_override(overridden.copied());
        endpoint
    }

    fn draws(&self, worker: usize) -> &Draws {
        // There is at least one.
        &self.draws[worker % self.draws.len()]
    }

    /// The next turn of a worker.
    fn turn(&self, worker: usize) -> u64 {
        self.draws(worker).turns.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// SplitMix64 over a counter: well spread, cheap. It need not be unpredictable.
    fn random(&self, worker: usize) -> u64 {
        let drawn = self.draws(worker).random.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        mix(drawn.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }
}

#[cfg(test)]
mod tests;
