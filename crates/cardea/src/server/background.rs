//! Periodic tasks outside of requests.

use std::{sync::Arc, time::Duration};

use cardea_gateway::{measure_round_trip, workers};
use cardea_issuer::Maintained;
use tokio::time::{MissedTickBehavior, interval};

use super::{
    certificates::{Warned, refresh_staples, warn_of_expiry},
    issuer::publish_keys,
    names,
    run::Server,
};

/// The interval of key maintenance: far below the shortest lifetime of a key or revocation.
const KEYS_EVERY: Duration = Duration::from_secs(2);

/// The interval of checks of certificate files and of idle connections.
const FILES_EVERY: Duration = Duration::from_secs(10);

/// The interval of looks at which round trips are to be measured.
const ROUND_TRIPS_EVERY: Duration = Duration::from_secs(1);

/// Starts all tasks; they end with the runtime.
pub(super) fn start(server: &Arc<Server>) {
    server.workers.watch_clock(&server.gateway.clock);
    names::start(server);

    let keys = Arc::clone(server);
    workers::spawn(async move {
        let mut every = interval(KEYS_EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = LastMaintenance::default();
        loop {
            every.tick().await;
            maintain_keys(&keys, &mut last).await;
        }
    });

    let staples = Arc::clone(server);
    workers::spawn(async move {
        let mut every = interval(FILES_EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            every.tick().await;
            refresh_staples(&staples).await;
        }
    });

    let distances = Arc::clone(server);
    workers::spawn(async move {
        let mut every = interval(ROUND_TRIPS_EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            every.tick().await;
            measure_round_trips(&distances);
        }
    });

    let files = Arc::clone(server);
    workers::spawn(async move {
        let mut every = interval(FILES_EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut warned = Warned::new();
        loop {
            every.tick().await;
            maintain_files(&files, &mut warned).await;
        }
    });
}

/// The result of the last key maintenance.
#[derive(Default)]
struct LastMaintenance {
    /// The published keys.
    published: Option<Arc<str>>,
    /// The reported error.
    problem: Option<(&'static str, String)>,
}

async fn maintain_keys(server: &Server, last: &mut LastMaintenance) {
    let now = server.gateway.clock.precise();
    if let Some(issuer) = &server.provided.issuer {
        let maintained = issuer.maintain(now).await;
        if server.is_store_closed() {
            return;
        }
        server.admin.set_issuer_usable(maintained.is_ok());
        let problem = match maintained {
            Ok(Maintained { writes: Ok(()) }) => None,
            Ok(Maintained { writes: Err(error) }) => Some(("clients and keys can't be changed", error)),
            Err(error) => Some(("the authorization server could not be maintained", error)),
        };
        let problem = problem.map(|(what, error)| (what, error.to_string()));
        if problem != last.problem {
            // Reported once, not every two seconds.
            if let Some((what, error)) = &problem {
                tracing::error!(%error, "{what}");
            }
            last.problem = problem;
        }
        // The same text until a key is added or removed.
        let keys = issuer.key_set();
        if !last.published.as_ref().is_some_and(|published| Arc::ptr_eq(published, &keys)) {
            match publish_keys(issuer, &server.foundation.local_keys) {
                Ok(()) => last.published = Some(keys),
                Err(error) => {
                    tracing::error!(error = %error, "the authorization server's keys could not be published")
                }
            }
        }
    }
    let authenticator = Arc::clone(&server.gateway.model().authenticator);
    if authenticator.refresh_due(now) {
        authenticator.maintain(now).await;
    }
    let (cache, keys) = (Arc::clone(&server.key_cache), Arc::clone(&authenticator));
    let _ = tokio::task::spawn_blocking(move || cache.save(&keys, now)).await;
    authenticator.revocations().purge(now.wall);
    authenticator.reclaim(now);
}

/// Runs before the listeners' reload, which removes sessions if the authorities have changed.
async fn reload_client_authorities(server: &Server) {
    for authority in server.client_authorities().await {
        let read = Arc::clone(&authority);
        let name = &authority.config().name;
        match tokio::task::spawn_blocking(move || read.reload_if_changed()).await {
            Ok(Ok(true)) => tracing::info!(client_authority = %name, "certificate authorities reloaded"),
            Ok(Ok(false)) | Err(_) => {}
            Ok(Err(error)) => {
                tracing::error!(client_authority = %name, %error, "changed certificate authorities can't be loaded; \
                     the previous ones stay in use");
            }
        }
    }
}

/// Measures the round trips to regions to which no request has made a connection for a while.
fn measure_round_trips(server: &Arc<Server>) {
    let now = server.gateway.clock.precise().mono;
    for service in &server.gateway.model().services {
        let state = service.live.state();
        for index in state.round_trips_due(now) {
            let (state, server) = (Arc::clone(&state), Arc::clone(server));
            workers::spawn(async move {
                let Some(endpoint) = state.endpoint(index) else { return };
                if let Some(round_trip) = measure_round_trip(endpoint.address()).await {
                    state.round_trip(index, server.gateway.clock.precise().mono, round_trip);
                }
            });
        }
    }
}

async fn maintain_files(server: &Server, warned: &mut Warned) {
    let now = server.gateway.clock.precise();
    let gateway = Arc::clone(&server.gateway);
    let _ = tokio::task::spawn_blocking(move || gateway.close_retired_logs()).await;
    reload_client_authorities(server).await;
    let model = server.gateway.model();
    for listener in model.listeners.values() {
        let Some(tls) = listener.tls.clone() else { continue };
        // Reading files may be slow, and must not block a worker.
        let reloaded = tokio::task::spawn_blocking(move || tls.reload_if_changed(now.wall)).await;
        match reloaded {
            Ok(Ok(true)) => tracing::info!(listener = %listener.name, "certificates reloaded"),
            Ok(Ok(false)) | Err(_) => {}
            Ok(Err(error)) => {
                tracing::error!(listener = %listener.name, %error, "changed certificates can't be loaded; the \
                     previous ones are served");
            }
        }
    }
    let served = model.listeners.values().filter_map(|listener| listener.tls.as_ref());
    warn_of_expiry(served.flat_map(|tls| tls.certificates()), warned, now.wall);
    server.client_authority_faults.report(&server.gateway, false);
    server.sweep(now.mono).await;
    // Removes the series of removed objects after the last request that used them.
    server.admin.registry().prune();
}
