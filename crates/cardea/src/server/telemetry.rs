//! Metrics of other crates' statistics, which are read at a scrape.

use std::sync::{Arc, Weak};

use cardea_clock::{Clock, Wall};
use cardea_gateway::{
    gateway::Gateway,
    model::Model,
    pressure::Resource,
    record::{
        Registry,
        metrics::{CounterDef, Definition, GaugeDef, Samples},
    },
};
use cardea_issuer::{AuthorizationServer, SecretStats};
use cardea_tls::SessionStats;

use crate::acme::{Acme, Status};

mod admission;
mod catalogue;
mod key_sets;
mod mirrors;
mod tarpit;
mod throttles;
mod upstream;

pub(crate) use self::catalogue::markdown;

/// The source revision of the build, if it was given.
pub(crate) const REVISION: &str = match option_env!("CARDEA_REVISION") {
    Some(revision) => revision,
    None => "",
};

static BUILD_INFO: GaugeDef<2> = GaugeDef::new(
    "cardea_build_info",
    "The running build; always 1. The revision is empty if the build was not given one.",
    ["version", "revision"],
);

static VERDICTS: GaugeDef<0> =
    GaugeDef::new("cardea_token_verdicts", "Verdicts in the verdict caches of all issuers.", []);
static VERIFICATIONS: CounterDef<0> = CounterDef::new(
    "cardea_token_verifications_total",
    "Tokens that were verified because no verdict was cached.",
    [],
);
static LATE_REFRESHES: CounterDef<0> = CounterDef::new(
    "cardea_clock_late_refreshes_total",
    "Refreshes of the coarse clock by a worker because its own thread was late.",
    [],
);
static STREAMS: GaugeDef<0> = GaugeDef::new(
    "cardea_streams",
    "Streams: WebSockets, and requests and responses that had to wait. Each ends when its caller's access ends.",
    [],
);
static BUFFERED: GaugeDef<0> = GaugeDef::new(
    "cardea_buffered_bytes",
    "Memory for messages in progress: data that one side has sent and the other has not yet received, and incomplete \
     heads. Bounded by limits.buffered_bytes_max. Each thread reports in steps of 256 KiB, or less with a small bound, so the \
     value is inexact by up to a step for each worker, also without any connection.",
    [],
);
static REPLAY: GaugeDef<0> = GaugeDef::new(
    "cardea_replay_buffered_bytes",
    "Parts of request bodies that are kept to be sent again, in bytes. Bounded by limits.replay_total_bytes_max.",
    [],
);
static RESOURCES: GaugeDef<1> = GaugeDef::new(
    "cardea_resource_usage_ratio",
    "The part of a resource that is in use: file descriptors, or memory by the narrowest limit of the control groups and of the \
     process. Absent without a limit.",
    ["resource"],
);
static PRESSURE: GaugeDef<1> = GaugeDef::new(
    "cardea_resource_pressure",
    "What is given up for a resource that is nearly exhausted: 0 nothing, 1 idle connections, 2 the tarpit, 3 stalled streams, 4 \
     further connections of a client, 5 new connections of clients.",
    ["resource"],
);
static SESSIONS: GaugeDef<1> =
    GaugeDef::new("cardea_tls_sessions", "TLS sessions in the session cache.", ["listener"]);
static SESSION_BYTES: GaugeDef<1> =
    GaugeDef::new("cardea_tls_session_bytes", "The size of the sessions in the session cache.", ["listener"]);
static SESSION_LOOKUPS: CounterDef<2> = CounterDef::new(
    "cardea_tls_session_lookups_total",
    "Lookups in the session cache, by whether the session was found.",
    ["listener", "found"],
);
static SESSION_EVICTIONS: CounterDef<1> = CounterDef::new(
    "cardea_tls_session_evictions_total",
    "Unexpired TLS sessions that were evicted because the session cache was full.",
    ["listener"],
);

static SECRET_QUEUE: GaugeDef<0> =
    GaugeDef::new("cardea_secret_queue", "Slow hashes of client secrets in the queue of the hash pool.", []);
static SECRET_QUEUE_AGE: GaugeDef<0> =
    GaugeDef::new("cardea_secret_queue_age_seconds", "How long the oldest hash in the queue has waited.", []);
static SECRET_HASHES: CounterDef<1> = CounterDef::new(
    "cardea_secret_hashes_total",
    "Hashes computed to verify client secrets, including those for clients that don't exist.",
    ["algorithm"],
);
static SECRET_HASHES_STORED: CounterDef<0> =
    CounterDef::new("cardea_secret_hashes_stored_total", "Hashes computed to store client secrets.", []);
static SECRET_LANE_RUNS: CounterDef<0> = CounterDef::new(
    "cardea_secret_lane_runs_total",
    "Runs of the SIMD lanes in which hashes are computed.",
    [],
);
static SECRET_LANE_HASHES: CounterDef<0> = CounterDef::new(
    "cardea_secret_lane_hashes_total",
    "Hashes computed in lanes; divided by the runs, the average number of hashes in a run.",
    [],
);
static SECRET_LANES: CounterDef<1> = CounterDef::new(
    "cardea_secret_lanes_total",
    "Lanes of all steps of a run, by whether a hash filled them.",
    ["filled"],
);
static SECRETS_REMEMBERED: GaugeDef<0> = GaugeDef::new(
    "cardea_secret_remembered",
    "Entries of the verification cache, including expired ones.",
    [],
);
static SECRET_REMEMBERED_HITS: CounterDef<0> = CounterDef::new(
    "cardea_secret_remembered_hits_total",
    "Client secrets that were found in the verification cache, so that no hash was computed.",
    [],
);
static SECRET_FAILURES: GaugeDef<0> = GaugeDef::new(
    "cardea_secret_failures",
    "Clients and address prefixes whose failed authentications are counted.",
    [],
);
static SECRET_REJECTIONS: CounterDef<1> = CounterDef::new(
    "cardea_secret_rejections_total",
    "Client secrets that were refused without verification, by reason.",
    ["reason"],
);

/// The metrics of the build.
static BUILD: &[Definition] = &[BUILD_INFO.definition()];

/// The metrics of long-running work.
static RUNNING: &[Definition] = &[
    STREAMS.definition(),
    BUFFERED.definition(),
    REPLAY.definition(),
    RESOURCES.definition(),
    PRESSURE.definition(),
    LATE_REFRESHES.definition(),
];

/// The metrics of tokens.
static TOKENS: &[Definition] = &[VERIFICATIONS.definition(), VERDICTS.definition()];

/// The metrics of TLS sessions.
static TLS_SESSIONS: &[Definition] = &[
    SESSIONS.definition(),
    SESSION_BYTES.definition(),
    SESSION_LOOKUPS.definition(),
    SESSION_EVICTIONS.definition(),
];

/// The metrics of the authorization server's client secrets.
static SECRETS: &[Definition] = &[
    SECRET_QUEUE.definition(),
    SECRET_QUEUE_AGE.definition(),
    SECRET_HASHES.definition(),
    SECRET_HASHES_STORED.definition(),
    SECRET_LANE_RUNS.definition(),
    SECRET_LANE_HASHES.definition(),
    SECRET_LANES.definition(),
    SECRETS_REMEMBERED.definition(),
    SECRET_REMEMBERED_HITS.definition(),
    SECRET_FAILURES.definition(),
    SECRET_REJECTIONS.definition(),
];

/// The metrics of certificates from an authority.
static ACME: &[Definition] = &[
    CERTIFICATE_END.definition(),
    CERTIFICATE_ISSUED.definition(),
    CERTIFICATE_ATTEMPT.definition(),
    CERTIFICATES_ISSUED.definition(),
    CERTIFICATE_FAILURES.definition(),
];

/// Registers the metrics. They are read from the current model.
pub(super) fn register(
    registry: &Registry,
    gateway: &Arc<Gateway>,
    issuer: Option<&Arc<AuthorizationServer>>,
) {
    let clock = gateway.clock.clone();
    registry
        .collect_counter(&LATE_REFRESHES, move |samples| samples.push(&[], clock.late_refreshes() as f64));
    let streaming = Arc::downgrade(gateway);
    registry.collect_gauge(&STREAMS, move |samples| {
        samples.push(&[], streaming.upgrade().map_or(0, |gateway| gateway.streams()) as f64);
    });
    let buffering = Arc::downgrade(gateway);
    registry.collect_gauge(&BUFFERED, move |samples| {
        samples.push(&[], buffering.upgrade().map_or(0, |gateway| gateway.buffered_bytes()) as f64);
    });
    let watched = Arc::downgrade(gateway);
    registry.collect_gauge(&RESOURCES, move |samples| {
        let Some(gateway) = watched.upgrade() else { return };
        for resource in Resource::ALL {
            if let Some(used) = gateway.pressure.used(resource) {
                samples.push(&[resource.as_str()], used);
            }
        }
    });
    let watched = Arc::downgrade(gateway);
    registry.collect_gauge(&PRESSURE, move |samples| {
        let Some(gateway) = watched.upgrade() else { return };
        for resource in Resource::ALL {
            samples.push(&[resource.as_str()], f64::from(gateway.pressure.stage(resource) as u8));
        }
    });
    let replay = Arc::clone(&gateway.replay_budget);
    registry.collect_gauge(&REPLAY, move |samples| samples.push(&[], replay.used() as f64));
    registry.collect_gauge(
        &VERDICTS,
        of(gateway, |model, samples| samples.push(&[], model.authenticator.verdicts() as f64)),
    );
    registry.collect_counter(
        &VERIFICATIONS,
        of(gateway, |model, samples| samples.push(&[], model.authenticator.verifications() as f64)),
    );
    registry.collect_gauge(
        &SESSIONS,
        of_listeners(gateway, |listener, stats, samples| samples.push(&[listener], stats.sessions as f64)),
    );
    registry.collect_gauge(
        &SESSION_BYTES,
        of_listeners(gateway, |listener, stats, samples| samples.push(&[listener], stats.bytes as f64)),
    );
    registry.collect_counter(
        &SESSION_LOOKUPS,
        of_listeners(gateway, |listener, stats, samples| {
            samples.push(&[listener, "true"], stats.hits as f64);
            samples.push(&[listener, "false"], stats.misses as f64);
        }),
    );
    registry.collect_counter(
        &SESSION_EVICTIONS,
        of_listeners(gateway, |listener, stats, samples| samples.push(&[listener], stats.evicted as f64)),
    );
    register_secrets(registry, &gateway.clock, issuer);
    key_sets::register(registry, gateway);
    throttles::register(registry, gateway);
    admission::register(registry, gateway);
    mirrors::register(registry, gateway);
    tarpit::register(registry, gateway);
    upstream::register(registry, gateway);
    registry.collect_gauge(&BUILD_INFO, |samples| samples.push(&[env!("CARGO_PKG_VERSION"), REVISION], 1.0));
    super::panics::register(registry);
}

static CERTIFICATE_END: GaugeDef<1> = GaugeDef::new(
    "cardea_acme_certificate_expiry_timestamp_seconds",
    "When the ACME certificate expires, in Unix time; 0 if there is none yet.",
    ["hosts"],
);
static CERTIFICATE_ISSUED: GaugeDef<1> = GaugeDef::new(
    "cardea_acme_certificate_issued_timestamp_seconds",
    "When the ACME certificate was issued, in Unix time; 0 if there is none yet.",
    ["hosts"],
);
static CERTIFICATE_ATTEMPT: GaugeDef<1> = GaugeDef::new(
    "cardea_acme_next_attempt_timestamp_seconds",
    "When the next ACME certificate is ordered, in Unix time; 0 for now.",
    ["hosts"],
);
static CERTIFICATES_ISSUED: CounterDef<0> =
    CounterDef::new("cardea_acme_issued_total", "ACME certificates that were issued to this process.", []);
static CERTIFICATE_FAILURES: CounterDef<1> = CounterDef::new(
    "cardea_acme_failures_total",
    "Failed attempts of this process to get an ACME certificate, by reason.",
    ["reason"],
);

/// Registers the metrics of ACME certificates.
pub(super) fn register_acme(registry: &Registry, acme: &Arc<Acme>) {
    let gauge = |def: &'static GaugeDef<1>, read: fn(&Status) -> Option<Wall>| {
        let acme = Arc::clone(acme);
        registry.collect_gauge(def, move |samples| {
            for status in acme.status() {
                let seconds = read(&status).map_or(0, Wall::unix_seconds);
                samples.push(&[&status.hosts.join(",")], seconds as f64);
            }
        });
    };
    gauge(&CERTIFICATE_END, |status| status.not_after);
    gauge(&CERTIFICATE_ISSUED, |status| status.issued_at);
    gauge(&CERTIFICATE_ATTEMPT, |status| Some(status.next_attempt_at));
    let issued = Arc::clone(acme);
    registry.collect_counter(&CERTIFICATES_ISSUED, move |samples| samples.push(&[], issued.issued() as f64));
    let failed = Arc::clone(acme);
    registry.collect_counter(&CERTIFICATE_FAILURES, move |samples| {
        for (reason, count) in failed.failed() {
            samples.push(&[reason], count as f64);
        }
    });
}

/// Registers the metrics of client secret verification.
fn register_secrets(registry: &Registry, clock: &Clock, issuer: Option<&Arc<AuthorizationServer>>) {
    // The authorization server refers to the gateway for revocations, and the gateway holds the registry.
    let secrets = (clock.clone(), issuer.map_or_else(Weak::new, Arc::downgrade));
    let gauge = |def: &'static GaugeDef<0>, read: fn(&SecretStats) -> f64| {
        registry
            .collect_gauge(def, of_secrets(&secrets, move |stats, samples| samples.push(&[], read(stats))));
    };
    gauge(&SECRET_QUEUE, |stats| stats.queue_size as f64);
    gauge(&SECRET_QUEUE_AGE, |stats| stats.queue_age.as_secs_f64());
    gauge(&SECRETS_REMEMBERED, |stats| stats.cache_size as f64);
    gauge(&SECRET_FAILURES, |stats| stats.failures_size as f64);
    let counter = |def: &'static CounterDef<0>, read: fn(&SecretStats) -> u64| {
        registry.collect_counter(
            def,
            of_secrets(&secrets, move |stats, samples| samples.push(&[], read(stats) as f64)),
        );
    };
    counter(&SECRET_HASHES_STORED, |stats| stats.hashes_made);
    counter(&SECRET_LANE_RUNS, |stats| stats.lane_runs);
    counter(&SECRET_LANE_HASHES, |stats| stats.lane_jobs);
    counter(&SECRET_REMEMBERED_HITS, |stats| stats.cache_hits);
    registry.collect_counter(
        &SECRET_LANES,
        of_secrets(&secrets, |stats, samples| {
            samples.push(&["true"], stats.lanes_filled as f64);
            samples.push(&["false"], stats.lanes_run.saturating_sub(stats.lanes_filled) as f64);
        }),
    );
    let labelled = |def: &'static CounterDef<1>, read: fn(&SecretStats) -> &[(&'static str, u64)]| {
        registry.collect_counter(
            def,
            of_secrets(&secrets, move |stats, samples| {
                for (label, count) in read(stats) {
                    samples.push(&[label], *count as f64);
                }
            }),
        );
    };
    labelled(&SECRET_HASHES, |stats| &stats.hashes);
    labelled(&SECRET_REJECTIONS, |stats| &stats.rejected);
}

/// Reads the current model. The gateway holds the registry, so this must not hold the gateway.
fn of(
    gateway: &Arc<Gateway>,
    read: impl Fn(&Model, &mut Samples<'_>) + Send + Sync + 'static,
) -> impl Fn(&mut Samples<'_>) + Send + Sync + 'static {
    let gateway = Arc::downgrade(gateway);
    move |samples| {
        if let Some(gateway) = gateway.upgrade() {
            read(&gateway.model(), samples);
        }
    }
}

/// Reads the sessions of each TLS listener.
fn of_listeners(
    gateway: &Arc<Gateway>,
    read: impl Fn(&str, &SessionStats, &mut Samples<'_>) + Send + Sync + 'static,
) -> impl Fn(&mut Samples<'_>) + Send + Sync + 'static {
    of(gateway, move |model, samples| {
        for (name, listener) in &model.listeners {
            if let Some(tls) = &listener.tls {
                read(name, &tls.session_stats(), samples);
            }
        }
    })
}

/// Reads the statistics of client secret verification, if there is an authorization server.
fn of_secrets(
    (clock, issuer): &(Clock, Weak<AuthorizationServer>),
    read: impl Fn(&SecretStats, &mut Samples<'_>) + Send + Sync + 'static,
) -> impl Fn(&mut Samples<'_>) + Send + Sync + 'static {
    let (clock, issuer) = (clock.clone(), issuer.clone());
    move |samples| {
        if let Some(issuer) = issuer.upgrade() {
            read(&issuer.secret_stats(clock.precise()), samples);
        }
    }
}
