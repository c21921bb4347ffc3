//! Failures as metrics: the databases, and the reasons of `/ready`.

use std::sync::Arc;

use cardea_gateway::record::metrics::{CounterDef, Definition, GaugeDef, Samples};
use cardea_store::WriteHealth;

use crate::{acme::Acme, admin::AdminState};

static WRITES_FAILING: GaugeDef<1> = GaugeDef::new(
    "cardea_database_writes_failing",
    "1 while writes to the database fail, by the user of the database. Then clients and keys can't be changed.",
    ["used_by"],
);
static WRITE_FAILURES: CounterDef<1> = CounterDef::new(
    "cardea_database_write_failures_total",
    "Failed transactions, by the user of the database.",
    ["used_by"],
);
static CONNECTIONS_DISCARDED: CounterDef<1> = CounterDef::new(
    "cardea_database_connections_discarded_total",
    "Connections to the database that were closed because their state was unknown after an error.",
    ["used_by"],
);
static READY: GaugeDef<0> = GaugeDef::new("cardea_ready", "1 while /ready responds with 200, else 0.", []);
static NOT_READY: GaugeDef<1> =
    GaugeDef::new("cardea_not_ready", "1 for each reason for which /ready responds with 503.", ["reason"]);
static DEGRADED: GaugeDef<1> =
    GaugeDef::new("cardea_degraded", "1 for each failure that does not affect readiness.", ["what"]);

/// The metrics of readiness and databases.
pub(super) static DEFINITIONS: &[Definition] = &[
    READY.definition(),
    NOT_READY.definition(),
    DEGRADED.definition(),
    WRITES_FAILING.definition(),
    WRITE_FAILURES.definition(),
    CONNECTIONS_DISCARDED.definition(),
];

/// Registers the metrics. The registry must not hold its owner.
pub(super) fn register(admin: &Arc<AdminState>, acme: Option<&Arc<Acme>>) {
    let registry = admin.registry();
    let weak = Arc::downgrade(admin);
    let acme = acme.map(Arc::downgrade);
    let databases = move |each: &mut dyn FnMut(&'static str, WriteHealth)| {
        let issuer = weak.upgrade().and_then(|admin| admin.issuer_write_health());
        if let Some(health) = issuer {
            each("authorization_server", health);
        }
        if let Some(acme) = acme.as_ref().and_then(std::sync::Weak::upgrade) {
            each("acme", acme.write_health());
        }
    };
    let read = databases.clone();
    registry.collect_gauge(&WRITES_FAILING, move |samples: &mut Samples<'_>| {
        read(&mut |used_by, health| samples.push(&[used_by], f64::from(u8::from(health.failing))));
    });
    let read = databases.clone();
    registry.collect_counter(&WRITE_FAILURES, move |samples: &mut Samples<'_>| {
        read(&mut |used_by, health| samples.push(&[used_by], health.failures as f64));
    });
    registry.collect_counter(&CONNECTIONS_DISCARDED, move |samples: &mut Samples<'_>| {
        databases(&mut |used_by, health| samples.push(&[used_by], health.connections_discarded as f64));
    });
    let weak = Arc::downgrade(admin);
    registry.collect_gauge(&READY, move |samples: &mut Samples<'_>| {
        if let Some(admin) = weak.upgrade() {
            samples.push(&[], f64::from(u8::from(admin.readiness().reasons.is_empty())));
        }
    });
    let weak = Arc::downgrade(admin);
    registry.collect_gauge(&NOT_READY, move |samples: &mut Samples<'_>| {
        let ready = weak.upgrade().map(|admin| admin.readiness()).unwrap_or_default();
        ready.reasons.iter().for_each(|reason| samples.push(&[reason], 1.0));
    });
    let weak = Arc::downgrade(admin);
    registry.collect_gauge(&DEGRADED, move |samples: &mut Samples<'_>| {
        let ready = weak.upgrade().map(|admin| admin.readiness()).unwrap_or_default();
        ready.degraded.iter().for_each(|what| samples.push(&[what], 1.0));
    });
}
