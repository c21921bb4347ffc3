//! Metrics of mirrors.

use std::sync::Arc;

use cardea_gateway::{
    gateway::Gateway,
    record::{
        Registry,
        metrics::{CounterDef, Definition, GaugeDef},
    },
};

use super::of;

static REQUESTS: CounterDef<3> = CounterDef::new(
    "cardea_mirror_requests_total",
    "Copies of requests for the mirror of a route, by what became of them: the class of the status (`2xx` to `5xx`), `failed` (no \
     connection or no valid response), `timeout`; or why there was none: `body_too_large` (above `replay_bytes_max`), \
     `incomplete` (the request did not arrive whole), `limited` (`in_flight_max` or `mirror_total_bytes_max` was reached).",
    ["http_route", "service", "outcome"],
);
static ACTIVE: GaugeDef<2> = GaugeDef::new(
    "cardea_mirror_active_requests",
    "Copies that are being made or are under way to the mirror of a route.",
    ["http_route", "service"],
);
static BYTES: GaugeDef<0> =
    GaugeDef::new("cardea_mirror_buffered_bytes", "The memory that copies of requests hold, in bytes.", []);

/// The metrics of mirrors.
pub(super) static DEFINITIONS: &[Definition] =
    &[REQUESTS.definition(), ACTIVE.definition(), BYTES.definition()];

/// Enters them.
pub(super) fn register(registry: &Registry, gateway: &Arc<Gateway>) {
    registry.collect_counter(
        &REQUESTS,
        of(gateway, |model, samples| {
            for (route, mirror) in model.mirrors() {
                for (outcome, count) in mirror.stats.outcomes() {
                    samples.push(&[route, &mirror.service.name, outcome.as_str()], count as f64);
                }
            }
        }),
    );
    registry.collect_gauge(
        &ACTIVE,
        of(gateway, |model, samples| {
            for (route, mirror) in model.mirrors() {
                samples.push(&[route, &mirror.service.name], mirror.stats.in_flight().into());
            }
        }),
    );
    let budget = Arc::clone(&gateway.mirror_budget);
    registry.collect_gauge(&BYTES, move |samples| samples.push(&[], budget.used() as f64));
}
