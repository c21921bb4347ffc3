//! Active checks of endpoints: a task for each, which asks it in regular intervals whether it is healthy.
//!
//! What an answer means is decided by `cardea_upstream`. The tasks run on the runtime that follows the model, apart from
//! the workers.

mod settings;
mod share;
mod task;

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use cardea_upstream::{Endpoint, Override};
use tokio::{task::JoinHandle, time::Instant};

pub(crate) use self::share::Places;
use self::{
    settings::Settings,
    share::{Bounds, Share},
    task::Task,
};
use crate::{gateway::Gateway, model::Service, upstream::Pooled, workers};

/// Within which time endpoints are checked for the first time.
const FIRST_WITHIN: Duration = Duration::from_millis(500);

/// The checks of all services. They end when this is dropped.
#[derive(Debug)]
pub struct Checks {
    gateway: Weak<Gateway>,
    places: Arc<Places>,
    random: Arc<Random>,
    begun: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By the names of service and endpoint.
    running: HashMap<(String, String), Running>,
    /// By the names of services.
    shares: HashMap<String, Arc<Share>>,
}

/// The check of one endpoint.
#[derive(Debug)]
struct Running {
    endpoint: Arc<Endpoint<Pooled>>,
    settings: Arc<Settings>,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Numbers that need not be unpredictable, but differ among gateways.
#[derive(Debug)]
struct Random {
    state: RandomState,
    drawn: AtomicU64,
}

impl Random {
    fn draw(&self) -> u64 {
        self.state.hash_one(self.drawn.fetch_add(1, Relaxed))
    }

    /// A time up to this one.
    fn up_to(&self, time: Duration) -> Duration {
        time.mul_f64((self.draw() >> 40) as f64 / (1_u64 << 24) as f64)
    }
}

impl Checks {
    /// No checks yet.
    #[must_use]
    pub fn new(gateway: &Arc<Gateway>) -> Self {
        Self {
            gateway: Arc::downgrade(gateway),
            places: Arc::clone(&gateway.check_places),
            random: Arc::new(Random { state: RandomState::new(), drawn: AtomicU64::new(0) }),
            begun: Instant::now(),
            state: Mutex::default(),
        }
    }

    /// Checks the endpoints that these services have now, and no others. A check whose endpoint and settings stay goes on.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn follow(&self, services: &[Arc<Service>]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { mut running, mut shares } = std::mem::take(&mut *state);
        let checked = |service: &&Arc<Service>| service.live.state().check_config().is_on();
        let bounds = Bounds::now(services.iter().filter(checked).count());
        self.places.set_limit(bounds.kept);
        for service in services.iter().filter(checked) {
            let share = match shares.remove(&service.name) {
                Some(share) => share,
                None => Arc::new(Share::new(&service.name, bounds.running)),
            };
            share.set_limit(bounds.running);
            let live = service.live.state();
            let settings =
                Arc::new(Settings { config: live.check_config().clone(), tls: service.tls.clone() });
            let endpoints = live.endpoints().filter(|(_, one)| one.overridden() != Some(Override::Disabled));
            for (_, endpoint) in endpoints {
                let key = (service.name.clone(), endpoint.label().to_owned());
                let kept = running
                    .remove(&key)
                    .filter(|old| Arc::ptr_eq(&old.endpoint, endpoint) && old.settings.is_same(&settings));
                state.running.insert(key, kept.unwrap_or_else(|| self.begin(endpoint, &settings, &share)));
            }
            state.shares.insert(service.name.clone(), share);
        }
    }

    /// How many endpoints are checked.
    #[must_use]
    pub fn count(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).running.len()
    }

    fn begin(
        &self,
        endpoint: &Arc<Endpoint<Pooled>>,
        settings: &Arc<Settings>,
        share: &Arc<Share>,
    ) -> Running {
        let first = self.random.up_to(settings.config.interval.min(FIRST_WITHIN));
        let task = Task {
            endpoint: Arc::clone(endpoint),
            settings: Arc::clone(settings),
            share: Arc::clone(share),
            places: Arc::clone(&self.places),
            gateway: self.gateway.clone(),
            random: Arc::clone(&self.random),
            begun: self.begun,
            request: settings.request(endpoint),
        };
        Running {
            endpoint: Arc::clone(endpoint),
            settings: Arc::clone(settings),
            task: workers::spawn(task.run(first)),
        }
    }
}
