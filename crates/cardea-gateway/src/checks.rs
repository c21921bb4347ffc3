//! Active checks of endpoints: a task for each, which asks it in regular intervals whether it is healthy.
//!
//! What an answer means is decided by `cardea_upstream`. The tasks run on the runtime that follows the model, apart from
//! the workers.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use cardea_upstream::{Address, CheckConfig, CheckProtocol, CheckResult, Endpoint, FailureKind, Override};
use rustls::pki_types::ServerName;
use tokio::{sync::Semaphore, task::JoinHandle};

use crate::{
    gateway::Gateway,
    model::{Service, ServiceTls},
    timer::Timer,
    upstream::{self, ConnectError, Connected, Pooled},
    workers,
};

/// How many checks there are at a time. Each holds a descriptor.
const CHECKS_MAX: usize = 256;

/// Within which time endpoints are checked for the first time.
const FIRST_WITHIN: Duration = Duration::from_millis(500);

/// The checks of all services. They end when this is dropped.
#[derive(Debug)]
pub struct Checks {
    gateway: Weak<Gateway>,
    permits: Arc<Semaphore>,
    random: Arc<Random>,
    /// By the names of service and endpoint.
    running: Mutex<HashMap<(String, String), Running>>,
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

/// How the endpoints of a service are checked.
#[derive(Debug)]
struct Settings {
    config: CheckConfig,
    tls: Option<ServiceTls>,
}

impl Settings {
    fn is_same(&self, other: &Self) -> bool {
        let tls = match (&self.tls, &other.tls) {
            (Some(one), Some(other)) => {
                Arc::ptr_eq(&one.config, &other.config) && one.server_name == other.server_name
            }
            (None, None) => true,
            _ => false,
        };
        tls && self.config == other.config
    }

    /// The `Host` of a request.
    fn host(&self, endpoint: &Endpoint<Pooled>) -> String {
        let certificate = self.tls.as_ref().and_then(|tls| tls.server_name.as_ref());
        match (&self.config.host, certificate, endpoint.name(), endpoint.address()) {
            (Some(host), ..) => host.clone(),
            (None, Some(ServerName::DnsName(name)), ..) => name.as_ref().to_owned(),
            (None, _, Some(name), _) => match name.port() {
                Some(port) => format!("{}:{port}", name.verified()),
                None => name.verified().to_owned(),
            },
            (None, _, None, Address::Unix(_)) => "localhost".to_owned(),
            (None, _, None, address) => address.to_string(),
        }
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
            permits: Arc::new(Semaphore::new(CHECKS_MAX)),
            random: Arc::new(Random { state: RandomState::new(), drawn: AtomicU64::new(0) }),
            running: Mutex::default(),
        }
    }

    /// Checks the endpoints that these services have now, and no others. A check whose endpoint and settings stay goes on.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn follow(&self, services: &[Arc<Service>]) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut previous = std::mem::take(&mut *running);
        for service in services {
            let state = service.live.state();
            if !state.check_config().is_on() {
                continue;
            }
            let settings =
                Arc::new(Settings { config: state.check_config().clone(), tls: service.tls.clone() });
            let checked = state.endpoints().filter(|(_, one)| one.overridden() != Some(Override::Disabled));
            for (_, endpoint) in checked {
                let key = (service.name.clone(), endpoint.label().to_owned());
                let kept = previous
                    .remove(&key)
                    .filter(|old| Arc::ptr_eq(&old.endpoint, endpoint) && old.settings.is_same(&settings));
                running.insert(key, kept.unwrap_or_else(|| self.begin(endpoint, &settings)));
            }
        }
    }

    /// How many endpoints are checked.
    #[must_use]
    pub fn count(&self) -> usize {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn begin(&self, endpoint: &Arc<Endpoint<Pooled>>, settings: &Arc<Settings>) -> Running {
        let first = self.random.up_to(settings.config.interval.min(FIRST_WITHIN));
        let task = Task {
            endpoint: Arc::clone(endpoint),
            settings: Arc::clone(settings),
            gateway: self.gateway.clone(),
            permits: Arc::clone(&self.permits),
            random: Arc::clone(&self.random),
        };
        Running {
            endpoint: Arc::clone(endpoint),
            settings: Arc::clone(settings),
            task: workers::spawn(task.run(first)),
        }
    }
}

/// What a task needs.
struct Task {
    endpoint: Arc<Endpoint<Pooled>>,
    settings: Arc<Settings>,
    gateway: Weak<Gateway>,
    permits: Arc<Semaphore>,
    random: Arc<Random>,
}

impl Task {
    async fn run(self, first: Duration) {
        let mut wait = first;
        loop {
            tokio::time::sleep(wait).await;
            // Closed by nobody.
            let Ok(_permit) = self.permits.acquire().await else { return };
            let Some(gateway) = self.gateway.upgrade() else { return };
            // Boxed, as it is idle nearly all the time.
            let result = Box::pin(self.check(&gateway)).await;
            let (config, now) = (&self.settings.config, gateway.clock.precise_mono());
            wait = self.endpoint.checked(result, config, now, self.random.draw());
        }
    }

    async fn check(&self, gateway: &Gateway) -> CheckResult {
        let config = &self.settings.config;
        let mut timer = Timer::new(gateway.clock.clone());
        let deadline = timer.now().saturating_add(config.timeout);
        let endpoint = &*self.endpoint;
        let connected = upstream::connect(endpoint, self.settings.tls.as_ref(), &mut timer, deadline).await;
        let mut transport = match connected {
            Ok(Connected { transport, .. }) => transport,
            Err(ConnectError::Endpoint(kind)) => return CheckResult::Failed(kind),
            Err(ConnectError::Own(shortage)) => {
                // Nothing makes room for a check: requests need it more.
                gateway.note_shortage(shortage, "health check");
                return CheckResult::Shortage;
            }
        };
        if config.protocol != CheckProtocol::Http {
            return CheckResult::Passed;
        }
        let host = self.settings.host(endpoint);
        let exchange = upstream::check::exchange(&mut transport, &host, config);
        timer.until(deadline, exchange).await.unwrap_or(CheckResult::Failed(FailureKind::ResponseTimeout))
    }
}
