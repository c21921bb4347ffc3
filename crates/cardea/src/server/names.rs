//! Names of endpoints: they are looked up when that is due, and services get an endpoint at each address.

mod resolver;

use std::{
    collections::BTreeSet,
    hash::{BuildHasher as _, RandomState},
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use cardea_clock::Clock;
use cardea_gateway::{
    record::{
        Registry,
        metrics::{CounterDef, Definition, GaugeDef, Samples},
    },
    workers,
};
use cardea_upstream::{
    Answer, AnswerKind, Connections, ENDPOINTS_MAX, NameStats, Query, Resolutions, ResolvedNames,
    ServiceConfig, ServiceState,
};
use tokio::{sync::Notify, time::timeout};

use self::resolver::Resolver;
use super::run::{Current, Server};
use crate::config::{Config, Dns};

/// Look-ups that are begun in one step, between which other tasks run. The resolver bounds the questions that are open.
const BEGUN_AT_ONCE: usize = 256;

/// How long a start or a reload waits for names that were never looked up.
const PREPARE_MAX: Duration = Duration::from_secs(3);

static LOOKUPS: CounterDef<3> = CounterDef::new(
    "cardea_dns_lookups_total",
    "Look-ups of a name of endpoints, by result: `resolved`, `partial` (for some records, no name server has answered), \
     `missing` (the name has no addresses), `failed` (no name server has answered).",
    ["name", "records", "result"],
);
static ADDRESSES: GaugeDef<2> = GaugeDef::new(
    "cardea_dns_addresses",
    "Addresses of a name that are used. Each is an endpoint.",
    ["name", "records"],
);
static AGE: GaugeDef<2> = GaugeDef::new(
    "cardea_dns_age_seconds",
    "Time since a name was last resolved. Absent before the first answer with addresses.",
    ["name", "records"],
);

/// The metrics of names.
pub(super) static DEFINITIONS: &[Definition] =
    &[LOOKUPS.definition(), ADDRESSES.definition(), AGE.definition()];

/// The names of all services' endpoints.
pub(crate) struct Names {
    clock: Clock,
    resolutions: Resolutions,
    resolver: Resolver,
    settings: Mutex<Settings>,
    /// The names that have other addresses than services know.
    changed: Mutex<BTreeSet<Query>>,
    change: Notify,
    reschedule: Notify,
    random: (RandomState, AtomicU64),
}

#[derive(Default)]
struct Settings {
    /// Those of the configuration that is prepared or in force.
    dns: Dns,
    /// Those of the one in force.
    followed: Option<Dns>,
}

impl Names {
    /// The names of a configuration, looked up. None leads to the admin listener, which has the address `admin`.
    pub(super) async fn of(config: &Config, admin: Option<SocketAddr>, clock: Clock) -> Arc<Self> {
        let this = Arc::new(Self {
            clock,
            resolutions: Resolutions::default(),
            resolver: Resolver::new(),
            settings: Mutex::default(),
            changed: Mutex::default(),
            change: Notify::new(),
            reschedule: Notify::new(),
            random: (RandomState::new(), AtomicU64::new(0)),
        });
        if let Some(admin) = admin {
            this.resolutions.resolved().exclude(move |address| leads_to(admin, address));
        }
        this.prepare(config).await;
        this.follow(config);
        this
    }

    /// What names were resolved to.
    pub(super) fn resolved(&self) -> &Arc<ResolvedNames> {
        self.resolutions.resolved()
    }

    /// Looks up the names of a configuration that were never looked up, so that its services have endpoints from the
    /// beginning. What takes too long comes later.
    pub(super) async fn prepare(self: &Arc<Self>, config: &Config) {
        self.settings().dns = config.dns.clone();
        let begun = self.resolutions.begin_new(queries(config));
        let lookups: Vec<_> = begun.into_iter().map(|query| self.begin(query)).collect();
        let all = async {
            for lookup in lookups {
                let _ = lookup.await;
            }
        };
        let _ = timeout(PREPARE_MAX, all).await;
    }

    /// Keeps the names of the configuration in force.
    pub(super) fn follow(&self, config: &Config) {
        let (wanted, now): (BTreeSet<&Query>, _) = (queries(config).collect(), self.clock.precise_mono());
        self.resolutions.follow(wanted.iter().copied(), now);
        let mut settings = self.settings();
        settings.dns = config.dns.clone();
        let previous = settings.followed.replace(config.dns.clone());
        if previous.is_some_and(|previous| previous != config.dns) {
            self.resolutions.restart(now);
        }
        drop(settings);
        self.resolver.retain(|query| wanted.contains(query));
        self.reschedule.notify_one();
    }

    fn begin(self: &Arc<Self>, query: Query) -> tokio::task::JoinHandle<()> {
        let this = Arc::clone(self);
        workers::spawn(async move { this.look_up(&query).await })
    }

    async fn look_up(&self, query: &Query) {
        let settings = self.settings().dns.clone();
        let now = self.clock.precise_mono();
        let answer = match self.resolver.refresh(&settings, now).await {
            Ok(changed) => {
                if changed {
                    tracing::info!(
                        "the configuration of name resolution has changed; all names are looked up"
                    );
                    self.resolutions.restart(now);
                }
                self.resolver.resolve(query).await
            }
            Err(error) => Answer::Failed(error),
        };
        let now = self.clock.precise_mono();
        let random = self.random.0.hash_one(self.random.1.fetch_add(1, Relaxed));
        if self.resolutions.record(query, answer, now, settings.keep_missing, random) {
            self.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(query.clone());
            self.change.notify_one();
        }
        self.reschedule.notify_one();
    }

    /// Begins what is due, for ever.
    async fn schedule(self: Arc<Self>) {
        loop {
            let now = self.clock.precise_mono();
            for query in self.resolutions.begin_due(now, BEGUN_AT_ONCE) {
                drop(self.begin(query));
            }
            let next = self.resolutions.next_due();
            // Without a name there is nothing to do until one comes.
            let wait = next.map_or(Duration::MAX, |next| next.saturating_since(now));
            let _ = timeout(wait, self.reschedule.notified()).await;
        }
    }

    fn settings(&self) -> std::sync::MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(self: &Arc<Self>, registry: &Registry) {
        registry.collect_counter(
            &LOOKUPS,
            self.each(|_, name, samples| {
                for (kind, count) in AnswerKind::ALL.iter().zip(name.answers) {
                    let labels = [name.query.name(), name.query.records(), kind.as_str()];
                    samples.push(&labels, count as f64);
                }
            }),
        );
        registry.collect_gauge(
            &ADDRESSES,
            self.each(|_, name, samples| {
                samples.push(&[name.query.name(), name.query.records()], name.addresses as f64);
            }),
        );
        registry.collect_gauge(
            &AGE,
            self.each(|this, name, samples| {
                if let Some(at) = name.resolved_at {
                    let age = this.clock.precise_mono().saturating_since(at);
                    samples.push(&[name.query.name(), name.query.records()], age.as_secs_f64());
                }
            }),
        );
    }

    fn each(
        self: &Arc<Self>,
        read: impl Fn(&Self, &NameStats, &mut Samples<'_>) + Send + Sync + 'static,
    ) -> impl Fn(&mut Samples<'_>) + Send + Sync + 'static {
        let this = Arc::clone(self);
        move |samples| this.resolutions.stats().iter().for_each(|name| read(&this, name, samples))
    }
}

/// Whether a connection to `address` arrives at `listener`, which may listen at all addresses of this machine.
fn leads_to(listener: SocketAddr, address: SocketAddr) -> bool {
    // Only an address of this machine can be bound.
    let is_here = || UdpSocket::bind((address.ip(), 0)).is_ok();
    let leads = address.port() == listener.port()
        && (address.ip().to_canonical() == listener.ip().to_canonical()
            || listener.ip().is_unspecified() && is_here());
    if leads {
        tracing::warn!(%address, "a name of an endpoint leads to the admin listener; the address is not used");
    }
    leads
}

/// The names of a configuration's endpoints.
fn queries(config: &Config) -> impl Iterator<Item = &Query> {
    let endpoints = config.services.iter().flat_map(|service| &service.endpoints);
    endpoints.filter_map(|endpoint| endpoint.target.name()).map(|name| name.query())
}

/// Starts to look names up and to change endpoints accordingly; it ends with the runtime.
pub(super) fn start(server: &Arc<Server>) {
    server.names.register(server.admin.registry());
    workers::spawn(Arc::clone(&server.names).schedule());
    let server = Arc::clone(server);
    workers::spawn(async move {
        loop {
            server.names.change.notified().await;
            let changed =
                std::mem::take(&mut *server.names.changed.lock().unwrap_or_else(PoisonError::into_inner));
            // A reload makes its state of the present one, so that nothing may change meanwhile.
            let current = server.current.lock().await;
            server.replace_endpoints(&current, &changed);
        }
    });
}

impl Server {
    /// Gives services that have these names the endpoints that the names stand for now. Nothing else changes.
    fn replace_endpoints(&self, current: &Current, changed: &BTreeSet<Query>) {
        let now = self.gateway.clock.precise_mono();
        let mut replaced = false;
        for service in &current.config.services {
            let names = service.endpoints.iter().filter_map(|endpoint| endpoint.target.name());
            if !names.into_iter().any(|name| changed.contains(name.query())) {
                continue;
            }
            let Some(running) = current.built.services.get(&service.config.name) else { continue };
            let state = running.live.state();
            let endpoints = self.foundation.names.expand(&service.endpoints);
            let previous = state.config();
            if endpoints == previous.endpoints {
                continue;
            }
            let (service, count) = (state.name(), endpoints.len());
            if count == ENDPOINTS_MAX {
                tracing::warn!(
                    service,
                    "the names of a service have more addresses than it may have endpoints"
                );
            }
            match ServiceState::reconcile(
                &ServiceConfig { endpoints, ..previous },
                Some(&state),
                Connections::Kept,
            ) {
                Ok(next) => {
                    running.live.replace(&next, now);
                    replaced = true;
                    tracing::info!(service, endpoints = count, "the endpoints of a service have changed");
                }
                Err(error) => tracing::error!(service, %error, "resolved endpoints can't be used"),
            }
        }
        if replaced {
            self.checks.follow(&current.built.model.services);
        }
    }
}
