//! Metrics of the tarpit.

use std::sync::Arc;

use cardea_gateway::{
    gateway::Gateway,
    record::{
        Registry,
        metrics::{Definition, GaugeDef},
    },
};

static HELD: GaugeDef<0> = GaugeDef::new("cardea_tarpit_held", "Refusals that are held or dripped.", []);
static OFFENDERS: GaugeDef<0> = GaugeDef::new(
    "cardea_tarpit_offenders",
    "Offenders that are known, at most 65,536. Those that are forgiven stay until others need their place.",
    [],
);

/// The metrics of the tarpit.
pub(super) static DEFINITIONS: &[Definition] = &[HELD.definition(), OFFENDERS.definition()];

/// Enters them.
pub(super) fn register(registry: &Registry, gateway: &Arc<Gateway>) {
    let tarpit = Arc::clone(&gateway.tarpit);
    registry.collect_gauge(&HELD, move |samples| samples.push(&[], tarpit.held() as f64));
    let tarpit = Arc::clone(&gateway.tarpit);
    registry.collect_gauge(&OFFENDERS, move |samples| samples.push(&[], tarpit.offenders() as f64));
}
