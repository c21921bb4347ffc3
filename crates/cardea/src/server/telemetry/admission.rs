//! Metrics of the limits on requests in flight.

use std::sync::Arc;

use cardea_gateway::{
    gateway::Gateway,
    model::LimitModel,
    record::{
        Registry,
        metrics::{Definition, GaugeDef},
    },
};

use super::of;

static LIMIT: GaugeDef<1> =
    GaugeDef::new("cardea_admission_limit", "The limit in force on requests in flight.", ["limit"]);
static IN_FLIGHT: GaugeDef<1> =
    GaugeDef::new("cardea_admission_in_flight", "Requests in flight that a limit counts.", ["limit"]);
static QUEUE: GaugeDef<1> = GaugeDef::new(
    "cardea_admission_queue_size",
    "Requests that wait to be admitted, by each limit that they need.",
    ["limit"],
);
static AGE: GaugeDef<1> = GaugeDef::new(
    "cardea_admission_queue_age_seconds",
    "How long the oldest of them has waited; 0 if none waits.",
    ["limit"],
);

static THRESHOLD: GaugeDef<1> = GaugeDef::new(
    "cardea_admission_threshold",
    "The priorities that a limit admits: 4 for all, 3.25 for all but three quarters of the callers of the lowest.",
    ["limit"],
);

static RESERVED: GaugeDef<1> = GaugeDef::new(
    "cardea_admission_reserved",
    "Permits of an adaptive limit that are reserved for clients that have less than their share of it.",
    ["limit"],
);

/// The metrics of the limits on requests in flight.
pub(super) static DEFINITIONS: &[Definition] = &[
    LIMIT.definition(),
    IN_FLIGHT.definition(),
    QUEUE.definition(),
    AGE.definition(),
    THRESHOLD.definition(),
    RESERVED.definition(),
];

/// Enters them.
pub(super) fn register(registry: &Registry, gateway: &Arc<Gateway>) {
    let gauge = |def, read: Box<dyn Fn(&LimitModel) -> f64 + Send + Sync>| {
        registry.collect_gauge(
            def,
            of(gateway, move |model, samples| {
                for limit in &model.admission.limits {
                    samples.push(&[&limit.label], read(limit));
                }
            }),
        );
    };
    gauge(&LIMIT, Box::new(|limit| limit.limit.figures().max_in_flight.into()));
    gauge(&IN_FLIGHT, Box::new(|limit| limit.limit.figures().in_flight.into()));
    gauge(&QUEUE, Box::new(|limit| limit.limit.figures().waiting.into()));
    gauge(&THRESHOLD, Box::new(|limit| limit.limit.figures().threshold.priorities()));
    gauge(&RESERVED, Box::new(|limit| limit.limit.figures().reserved.into()));
    let clock = gateway.clock.clone();
    gauge(
        &AGE,
        Box::new(move |limit| {
            let oldest = limit.limit.figures().oldest;
            oldest.map_or(0.0, |oldest| clock.precise_mono().saturating_since(oldest).as_secs_f64())
        }),
    );
}
