//! Metrics of the keys of throttles.

use std::sync::Arc;

use cardea_gateway::{
    gateway::Gateway,
    record::{
        Registry,
        metrics::{CounterDef, Definition, GaugeDef},
    },
};

use super::of;

static KEYS: GaugeDef<1> = GaugeDef::new(
    "cardea_throttle_keys",
    "Keys in use: those whose limit is not yet fully restored.",
    ["throttle"],
);
static EVICTIONS: CounterDef<1> = CounterDef::new(
    "cardea_throttle_evictions_total",
    "Keys in use that were evicted by other keys. The new key takes over the usage of the evicted one and may be \
     limited early; if this grows, raise keys_max.",
    ["throttle"],
);

static KEYS_IN_FLIGHT: GaugeDef<1> = GaugeDef::new(
    "cardea_throttle_keys_in_flight",
    "Keys with requests in flight, of a throttle with max_in_flight.",
    ["throttle"],
);
static SHARED: CounterDef<1> = CounterDef::new(
    "cardea_throttle_shared_total",
    "Requests in flight that were counted together with those of other keys, which may be limited early; if this grows, \
     raise keys_max.",
    ["throttle"],
);

/// The metrics of the keys of throttles.
pub(super) static DEFINITIONS: &[Definition] =
    &[KEYS.definition(), EVICTIONS.definition(), KEYS_IN_FLIGHT.definition(), SHARED.definition()];

/// Registers the metrics.
pub(super) fn register(registry: &Registry, gateway: &Arc<Gateway>) {
    let clock = gateway.clock.clone();
    registry.collect_gauge(
        &KEYS,
        of(gateway, move |model, samples| {
            for throttle in &model.throttles {
                if let Some(rate) = &throttle.rate {
                    samples.push(&[&throttle.name], rate.table.keys(clock.mono()) as f64);
                }
            }
        }),
    );
    registry.collect_counter(
        &EVICTIONS,
        of(gateway, |model, samples| {
            for throttle in &model.throttles {
                if let Some(rate) = &throttle.rate {
                    samples.push(&[&throttle.name], rate.table.evictions() as f64);
                }
            }
        }),
    );
    registry.collect_gauge(
        &KEYS_IN_FLIGHT,
        of(gateway, |model, samples| {
            for throttle in &model.throttles {
                if let Some(limit) = &throttle.in_flight {
                    samples.push(&[&throttle.name], limit.table.keys() as f64);
                }
            }
        }),
    );
    registry.collect_counter(
        &SHARED,
        of(gateway, |model, samples| {
            for throttle in &model.throttles {
                if let Some(limit) = &throttle.in_flight {
                    samples.push(&[&throttle.name], limit.table.shared() as f64);
                }
            }
        }),
    );
}
