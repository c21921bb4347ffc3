//! Metrics of the key sets that tokens are verified with.

use std::sync::Arc;

use cardea_gateway::{
    gateway::Gateway,
    record::{
        Registry,
        metrics::{CounterDef, Definition, GaugeDef, Samples},
    },
};
use cardea_identity::KeySetStatus;

static KEYS: GaugeDef<1> =
    GaugeDef::new("cardea_key_set_keys", "Keys of an issuer with which tokens can be verified.", ["issuer"]);
static USABLE: GaugeDef<1> = GaugeDef::new(
    "cardea_key_set_usable",
    "1 while tokens of an issuer can be verified, 0 while its keys are missing or too old.",
    ["issuer"],
);
static AGE: GaugeDef<1> = GaugeDef::new(
    "cardea_key_set_age_seconds",
    "Time since the keys of an issuer were fetched. Absent for other sources of keys, and before the first fetch.",
    ["issuer"],
);
static FETCHES: CounterDef<2> = CounterDef::new(
    "cardea_key_set_fetches_total",
    "Completed fetches of an issuer's keys, by success. Absent for other sources of keys.",
    ["issuer", "succeeded"],
);

/// The metrics of key sets.
pub(super) static DEFINITIONS: &[Definition] =
    &[KEYS.definition(), USABLE.definition(), AGE.definition(), FETCHES.definition()];

/// Registers the metrics. They are read from the current model.
pub(super) fn register(registry: &Registry, gateway: &Arc<Gateway>) {
    registry
        .collect_gauge(&KEYS, each(gateway, |set, samples| samples.push(&[&set.issuer], set.keys as f64)));
    registry.collect_gauge(
        &USABLE,
        each(gateway, |set, samples| samples.push(&[&set.issuer], f64::from(u8::from(set.usable)))),
    );
    registry.collect_gauge(
        &AGE,
        each(gateway, |set, samples| {
            if let Some(age) = set.age {
                samples.push(&[&set.issuer], age.as_secs_f64());
            }
        }),
    );
    registry.collect_counter(
        &FETCHES,
        each(gateway, |set, samples| {
            if let Some(fetches) = set.fetches {
                samples.push(&[&set.issuer, "true"], fetches.succeeded as f64);
                samples.push(&[&set.issuer, "false"], fetches.failed as f64);
            }
        }),
    );
}

fn each(
    gateway: &Arc<Gateway>,
    read: impl Fn(&KeySetStatus, &mut Samples<'_>) + Send + Sync + 'static,
) -> impl Fn(&mut Samples<'_>) + Send + Sync + 'static {
    let clock = gateway.clock.clone();
    super::of(gateway, move |model, samples| {
        model.authenticator.key_sets(clock.precise()).iter().for_each(|set| read(set, samples));
    })
}
