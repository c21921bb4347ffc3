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
    "Keys in use: those that have not yet earned back what they used.",
    ["throttle"],
);
static EVICTIONS: CounterDef<1> = CounterDef::new(
    "cardea_throttle_evictions_total",
    "Keys in use that lost their place to other keys. Where this grows, keys may be refused early: raise keys_max.",
    ["throttle"],
);

/// The metrics of the keys of throttles.
pub(super) static DEFINITIONS: &[Definition] = &[KEYS.definition(), EVICTIONS.definition()];

/// Enters them.
pub(super) fn register(registry: &Registry, gateway: &Arc<Gateway>) {
    let clock = gateway.clock.clone();
    registry.collect_gauge(
        &KEYS,
        of(gateway, move |model, samples| {
            for throttle in &model.throttles {
                samples.push(&[&throttle.name], throttle.table.keys(clock.mono()) as f64);
            }
        }),
    );
    registry.collect_counter(
        &EVICTIONS,
        of(gateway, |model, samples| {
            for throttle in &model.throttles {
                samples.push(&[&throttle.name], throttle.table.evictions() as f64);
            }
        }),
    );
}
