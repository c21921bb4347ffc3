//! Metrics of services and their endpoints, from the statistics of `cardea-upstream`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cardea_gateway::{
    gateway::Gateway,
    record::{
        Registry,
        metrics::{CounterDef, Definition, GaugeDef, Samples},
    },
};
use cardea_upstream::{EndpointStats, RegionStats, ServiceStats};

static REQUESTS: CounterDef<2> = CounterDef::new(
    "cardea_upstream_requests_total",
    "Requests sent to an endpoint. Each attempt counts.",
    ["service", "endpoint"],
);
static ACTIVE: GaugeDef<2> = GaugeDef::new(
    "http_client_active_requests",
    "Active requests to an endpoint, including WebSockets and requests that wait for a connection to it.",
    ["service", "endpoint"],
);
static FAILURES: CounterDef<3> = CounterDef::new(
    "cardea_upstream_failures_total",
    "Failures of an endpoint, by kind. One `connect`, `connect_timeout` or `handshake` ejects it. Several of the \
     others do: `closed` (before the response head was complete), `malformed` (not HTTP, or ambiguous), \
     `response_timeout` and `status` (one that is configured as a failure).",
    ["service", "endpoint", "kind"],
);
static LIMITED: CounterDef<1> = CounterDef::new(
    "cardea_upstream_limited_total",
    "Attempts for which there was no endpoint because those that could be chosen had reached a limit of the service's \
     `circuit_breaker`, or its `pool.connections_max`.",
    ["service"],
);
static HEALTHY: GaugeDef<2> = GaugeDef::new(
    "cardea_upstream_healthy",
    "1 while an endpoint receives requests, 0 while it is ejected, its checks fail or the operator has taken it out.",
    ["service", "endpoint"],
);
static EJECTIONS: CounterDef<3> = CounterDef::new(
    "cardea_upstream_ejections_total",
    "Ejections of an endpoint, by cause: `connect`, `consecutive_failures`, `failure_ratio`, or `probe` (the probe \
     after an ejection failed).",
    ["service", "endpoint", "cause"],
);
static EJECTED: GaugeDef<1> =
    GaugeDef::new("cardea_upstream_ejected_endpoints", "Ejected endpoints of a service.", ["service"]);
static CHECKS: CounterDef<3> = CounterDef::new(
    "cardea_upstream_checks_total",
    "Active checks of an endpoint, by result: `passed`, the kinds of `cardea_upstream_failures_total`, `body` (the expected \
     text is not in it) and `shortage` (the gateway had no descriptors or ports, which does not count).",
    ["service", "endpoint", "result"],
);
static CHECK_UP: GaugeDef<2> = GaugeDef::new(
    "cardea_upstream_check_up",
    "1 while an endpoint is up by its active checks, 0 while it is down. Absent before the first check and without checks.",
    ["service", "endpoint"],
);
static CHECKS_LATE: GaugeDef<1> = GaugeDef::new(
    "cardea_upstream_checks_late",
    "Endpoints of a service whose check is due, but waits for others of the service to end. Above 0 for longer, their health is \
     known too late.",
    ["service"],
);
static OVERRIDDEN: GaugeDef<3> = GaugeDef::new(
    "cardea_upstream_overridden",
    "1 for an endpoint that the operator has taken out: `drained` or `disabled`. Absent for others.",
    ["service", "endpoint", "override"],
);
static PENDING: GaugeDef<2> = GaugeDef::new(
    "cardea_upstream_pending_connects",
    "Connections to an endpoint that are being established.",
    ["service", "endpoint"],
);
static LATENCY: GaugeDef<2> = GaugeDef::new(
    "cardea_upstream_latency_ewma_seconds",
    "The response time by which endpoints are compared: a moving average that follows peaks at once and counts errors \
     as slow responses. Absent before the first response.",
    ["service", "endpoint"],
);
static WEIGHT: GaugeDef<3> = GaugeDef::new(
    "cardea_upstream_weight",
    "The configured weight of an endpoint, with its region.",
    ["service", "endpoint", "region"],
);
static REGION_ROUND_TRIP: GaugeDef<3> = GaugeDef::new(
    "cardea_upstream_region_round_trip_seconds",
    "The round trip to a region: `measured` is `true`, or `false` if it follows from the distance so far. Absent if neither \
     is known.",
    ["service", "region", "measured"],
);
static REGION_SHARE: GaugeDef<3> = GaugeDef::new(
    "cardea_upstream_region_share",
    "The share of the requests that a region gets, from 0 to 1; `home` is `true` for the gateway's own region. What the \
     others get is spilled.",
    ["service", "region", "home"],
);
static REGION_REQUESTS: CounterDef<2> = CounterDef::new(
    "cardea_upstream_region_requests_total",
    "Requests sent to the endpoints of a region. Each attempt counts.",
    ["service", "region"],
);
static CONNECTIONS: GaugeDef<3> = GaugeDef::new(
    "http_client_open_connections",
    "Connections to an endpoint: `active` (with a request, or being established), `idle` (in the pool) or `check` (kept for the \
     next active check).",
    ["service", "endpoint", "http_connection_state"],
);
static CONNECTS: CounterDef<2> = CounterDef::new(
    "cardea_upstream_connects_total",
    "Connections established to an endpoint.",
    ["service", "endpoint"],
);
static POOL_HITS: CounterDef<2> = CounterDef::new(
    "cardea_upstream_pool_hits_total",
    "Requests that used a pooled connection.",
    ["service", "endpoint"],
);
static POOL_MISSES: CounterDef<2> = CounterDef::new(
    "cardea_upstream_pool_misses_total",
    "Requests that needed a new connection, whether or not it was established.",
    ["service", "endpoint"],
);
static POOL_DISCARDS: CounterDef<3> = CounterDef::new(
    "cardea_upstream_pool_discards_total",
    "Pooled connections that were closed, by reason: `expired` (idle for `idle_timeout`, or nearly for what the endpoint \
     offered), `aged` (older than `age_max`), `used_up` (after `requests_max`, or what the endpoint allows), `dead` (found closed \
     when needed), `surplus` (above `idle_max`, or replaced by a newer one).",
    ["service", "endpoint", "reason"],
);
static SURPLUS: CounterDef<2> = CounterDef::new(
    "cardea_upstream_surplus_total",
    "Connections that were closed because the endpoint sent bytes that belong to no response.",
    ["service", "endpoint"],
);
static RETRIES: CounterDef<3> = CounterDef::new(
    "cardea_upstream_retries_total",
    "Requested retries, by cause and by whether the retry budget allowed them. Causes: `connect`, `stale` (a pooled \
     connection was closed before a response), `closed`, `timeout`, `status`.",
    ["service", "cause", "allowed"],
);
static RETRY_BUDGET: GaugeDef<1> = GaugeDef::new(
    "cardea_upstream_retry_budget",
    "Available retries in the budget of a service, without those earned since its last use.",
    ["service"],
);
static PANICS: CounterDef<1> = CounterDef::new(
    "cardea_upstream_panics_total",
    "Requests that were sent to an ejected endpoint because too few endpoints were healthy, or because a retry had no \
     other.",
    ["service"],
);
static PANICKING: GaugeDef<1> = GaugeDef::new(
    "cardea_upstream_panicking",
    "1 while so few endpoints of a service are healthy that all are used.",
    ["service"],
);

/// The metrics of services.
pub(super) static DEFINITIONS: &[Definition] = &[
    REQUESTS.definition(),
    ACTIVE.definition(),
    FAILURES.definition(),
    RETRIES.definition(),
    RETRY_BUDGET.definition(),
    PANICS.definition(),
    LIMITED.definition(),
    PANICKING.definition(),
    HEALTHY.definition(),
    EJECTIONS.definition(),
    EJECTED.definition(),
    CHECKS.definition(),
    CHECK_UP.definition(),
    CHECKS_LATE.definition(),
    OVERRIDDEN.definition(),
    LATENCY.definition(),
    WEIGHT.definition(),
    REGION_SHARE.definition(),
    REGION_ROUND_TRIP.definition(),
    REGION_REQUESTS.definition(),
    CONNECTIONS.definition(),
    PENDING.definition(),
    CONNECTS.definition(),
    POOL_HITS.definition(),
    POOL_MISSES.definition(),
    POOL_DISCARDS.definition(),
    SURPLUS.definition(),
];

/// The snapshot that all collectors of one scrape share.
#[derive(Clone, Default)]
struct Snapshot(Arc<Mutex<Vec<ServiceStats>>>);

impl Snapshot {
    fn lock(&self) -> MutexGuard<'_, Vec<ServiceStats>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn services(
        &self,
        read: impl Fn(&ServiceStats, &mut Samples<'_>) + Send + Sync + 'static,
    ) -> impl Fn(&mut Samples<'_>) + Send + Sync + 'static {
        let this = self.clone();
        move |samples| this.lock().iter().for_each(|service| read(service, samples))
    }

    fn endpoints(
        &self,
        read: impl Fn(&str, &str, &EndpointStats, &mut Samples<'_>) + Send + Sync + 'static,
    ) -> impl Fn(&mut Samples<'_>) + Send + Sync + 'static {
        self.services(move |service, samples| {
            for endpoint in &service.endpoints {
                read(&service.name, &endpoint.label, endpoint, samples);
            }
        })
    }
}

/// Registers the metrics. Nothing is read before a scrape.
pub(super) fn register(registry: &Registry, gateway: &Arc<Gateway>) {
    let snapshot = Snapshot::default();
    // The gateway holds the registry, so this must not hold the gateway.
    let (taken, gateway) = (snapshot.clone(), Arc::downgrade(gateway));
    registry.before_render(move || {
        let services = gateway.upgrade().map_or_else(Vec::new, |gateway| {
            gateway.model().services.iter().map(|service| service.live.state().stats()).collect()
        });
        *taken.lock() = services;
    });
    register_endpoints(registry, &snapshot);
    register_services(registry, &snapshot);
    register_regions(registry, &snapshot);
}

/// Takes the value of a region, with its labels.
type Push<'p> = dyn FnMut(&[&str; 3], f64) + 'p;

fn register_regions(registry: &Registry, snapshot: &Snapshot) {
    let regions = |read: fn(&str, &RegionStats, &mut Push<'_>)| {
        snapshot.services(move |service, samples| {
            for region in &service.regions {
                read(&service.name, region, &mut |labels, value| samples.push(labels, value));
            }
        })
    };
    registry.collect_gauge(
        &REGION_SHARE,
        regions(|service, region, push| {
            let home = if region.is_home { "true" } else { "false" };
            push(&[service, region.name.as_deref().unwrap_or_default(), home], f64::from(region.share));
        }),
    );
    registry.collect_gauge(
        &REGION_ROUND_TRIP,
        regions(|service, region, push| {
            let measured = if region.is_measured { "true" } else { "false" };
            if let Some(round_trip) = region.round_trip {
                let name = region.name.as_deref().unwrap_or_default();
                push(&[service, name, measured], round_trip.as_secs_f64());
            }
        }),
    );
    registry.collect_counter(
        &REGION_REQUESTS,
        snapshot.services(|service, samples| {
            for region in &service.regions {
                let of = service.endpoints.iter().filter(|endpoint| endpoint.region == region.name);
                let requests: u64 = of.map(|endpoint| endpoint.requests).sum();
                samples.push(&[&service.name, region.name.as_deref().unwrap_or_default()], requests as f64);
            }
        }),
    );
}

fn register_endpoints(registry: &Registry, snapshot: &Snapshot) {
    let counter = |def: &'static CounterDef<2>, read: fn(&EndpointStats) -> u64| {
        let collect = snapshot.endpoints(move |service, endpoint, stats, samples| {
            samples.push(&[service, endpoint], read(stats) as f64);
        });
        registry.collect_counter(def, collect);
    };
    counter(&REQUESTS, |stats| stats.requests);
    counter(&CONNECTS, |stats| stats.connects);
    counter(&SURPLUS, |stats| stats.surplus);
    counter(&POOL_HITS, |stats| stats.pool.reused);
    counter(&POOL_MISSES, |stats| stats.connects + stats.connect_failures());
    let gauge = |def: &'static GaugeDef<2>, read: fn(&EndpointStats) -> usize| {
        let collect = snapshot.endpoints(move |service, endpoint, stats, samples| {
            samples.push(&[service, endpoint], read(stats) as f64);
        });
        registry.collect_gauge(def, collect);
    };
    gauge(&ACTIVE, |stats| stats.in_flight);
    gauge(&PENDING, |stats| stats.connects_pending);
    gauge(&HEALTHY, |stats| usize::from(stats.available));
    registry.collect_counter(
        &FAILURES,
        snapshot.endpoints(|service, endpoint, stats, samples| {
            for (kind, count) in stats.failures {
                samples.push(&[service, endpoint, kind.as_str()], count as f64);
            }
        }),
    );
    registry.collect_counter(
        &EJECTIONS,
        snapshot.endpoints(|service, endpoint, stats, samples| {
            for (cause, count) in stats.ejections {
                samples.push(&[service, endpoint, cause.as_str()], count as f64);
            }
        }),
    );
    registry.collect_counter(
        &CHECKS,
        snapshot.endpoints(|service, endpoint, stats, samples| {
            for (result, count) in stats.checks.into_iter().filter(|(_, count)| *count > 0) {
                samples.push(&[service, endpoint, result.as_str()], count as f64);
            }
        }),
    );
    registry.collect_gauge(
        &CHECK_UP,
        snapshot.endpoints(|service, endpoint, stats, samples| {
            if let Some(up) = stats.check.up {
                samples.push(&[service, endpoint], f64::from(u8::from(up)));
            }
        }),
    );
    registry.collect_gauge(
        &OVERRIDDEN,
        snapshot.endpoints(|service, endpoint, stats, samples| {
            if let Some(overridden) = stats.overridden {
                samples.push(&[service, endpoint, overridden.as_str()], 1.0);
            }
        }),
    );
    registry.collect_gauge(
        &LATENCY,
        snapshot.endpoints(|service, endpoint, stats, samples| {
            if let Some(latency) = stats.latency {
                samples.push(&[service, endpoint], latency.as_secs_f64());
            }
        }),
    );
    registry.collect_counter(
        &POOL_DISCARDS,
        snapshot.endpoints(|service, endpoint, stats, samples| {
            let pool = stats.pool;
            for (reason, count) in [
                ("expired", pool.expired),
                ("aged", pool.aged),
                ("used_up", pool.used_up),
                ("dead", pool.dead),
                ("surplus", pool.surplus),
            ] {
                samples.push(&[service, endpoint, reason], count as f64);
            }
        }),
    );
    registry.collect_gauge(
        &CONNECTIONS,
        snapshot.endpoints(|service, endpoint, stats, samples| {
            // The counters are read one after the other, so the difference could be negative.
            let active = stats.connections.saturating_sub(stats.pool.idle);
            samples.push(&[service, endpoint, "active"], active as f64);
            samples.push(&[service, endpoint, "idle"], stats.pool.idle as f64);
            samples.push(&[service, endpoint, "check"], stats.check_connections as f64);
        }),
    );
    registry.collect_gauge(
        &WEIGHT,
        snapshot.endpoints(|service, endpoint, stats, samples| {
            let region = stats.region.as_deref().unwrap_or_default();
            samples.push(&[service, endpoint, region], f64::from(stats.weight));
        }),
    );
}

fn register_services(registry: &Registry, snapshot: &Snapshot) {
    registry.collect_counter(
        &RETRIES,
        snapshot.services(|service, samples| {
            for (cause, [allowed, refused]) in service.retries {
                samples.push(&[&service.name, cause.as_str(), "true"], allowed as f64);
                samples.push(&[&service.name, cause.as_str(), "false"], refused as f64);
            }
        }),
    );
    registry.collect_gauge(
        &RETRY_BUDGET,
        snapshot.services(|service, samples| samples.push(&[&service.name], service.retry_balance as f64)),
    );
    registry.collect_gauge(
        &EJECTED,
        snapshot.services(|service, samples| {
            let ejected = service.endpoints.iter().filter(|endpoint| endpoint.ejected).count();
            samples.push(&[&service.name], ejected as f64);
        }),
    );
    registry.collect_gauge(
        &CHECKS_LATE,
        snapshot.services(|service, samples| {
            let late = service.endpoints.iter().filter(|endpoint| endpoint.check_waits_since.is_some());
            samples.push(&[&service.name], late.count() as f64);
        }),
    );
    registry.collect_gauge(
        &PANICKING,
        snapshot.services(|service, samples| {
            samples.push(&[&service.name], f64::from(u8::from(service.panicking)));
        }),
    );
    registry.collect_counter(
        &LIMITED,
        snapshot.services(|service, samples| samples.push(&[&service.name], service.limited as f64)),
    );
    registry.collect_counter(
        &PANICS,
        snapshot.services(|service, samples| samples.push(&[&service.name], service.panics as f64)),
    );
}
