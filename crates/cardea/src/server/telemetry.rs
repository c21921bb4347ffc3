//! Metrics of what others count: read when somebody asks for them.

use std::sync::Arc;

use cardea_gateway::{
    gateway::Gateway,
    model::Model,
    record::{
        Registry,
        metrics::{CounterDef, GaugeDef, Samples},
    },
};
use cardea_tls::SessionStats;

static VERDICTS: GaugeDef<0> =
    GaugeDef::new("cardea_token_verdicts", "Verdicts on tokens that are remembered, of all issuers.", []);
static VERIFICATIONS: CounterDef<0> = CounterDef::new(
    "cardea_token_verifications_total",
    "Tokens that had to be verified, because nothing was remembered of them.",
    [],
);
static SESSIONS: GaugeDef<1> =
    GaugeDef::new("cardea_tls_sessions", "TLS sessions that are kept for resumption.", ["listener"]);
static SESSION_BYTES: GaugeDef<1> =
    GaugeDef::new("cardea_tls_session_bytes", "What those sessions take.", ["listener"]);
static SESSION_LOOKUPS: CounterDef<2> = CounterDef::new(
    "cardea_tls_session_lookups_total",
    "TLS sessions that a client asked for, by whether there was one.",
    ["listener", "found"],
);
static SESSION_EVICTIONS: CounterDef<1> = CounterDef::new(
    "cardea_tls_session_evictions_total",
    "TLS sessions that went for newer ones before their time: there is no room for all.",
    ["listener"],
);

/// Enters all of it. What is read is that of the model in force.
pub(super) fn register(registry: &Registry, gateway: &Arc<Gateway>) {
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
}

/// Reads the model in force. The gateway holds the registry, so this must not hold the gateway.
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

/// Reads the sessions of each listener that speaks TLS.
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
