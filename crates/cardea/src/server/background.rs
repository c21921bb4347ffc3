//! What is done every so often, off the way of requests.

use std::{sync::Arc, time::Duration};

use cardea_gateway::workers;
use cardea_issuer::Maintained;
use tokio::time::{MissedTickBehavior, interval};

use super::{
    certificates::{Warned, refresh_staples, warn_of_expiry},
    issuer::publish_keys,
    run::Server,
};

/// How often keys are looked after: far below the shortest lifetime of anything there.
const KEYS_EVERY: Duration = Duration::from_secs(2);

/// How often files of certificates are looked at, and idle connections swept.
const FILES_EVERY: Duration = Duration::from_secs(10);

/// Begins all of it; ends with the runtime.
pub(super) fn start(server: &Arc<Server>) {
    server.workers.watch_clock(&server.gateway.clock);

    let keys = Arc::clone(server);
    workers::spawn(async move {
        let mut every = interval(KEYS_EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut known = Known::default();
        loop {
            every.tick().await;
            look_after_keys(&keys, &mut known).await;
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

    let files = Arc::clone(server);
    workers::spawn(async move {
        let mut every = interval(FILES_EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut warned = Warned::new();
        loop {
            every.tick().await;
            look_after_files(&files, &mut warned).await;
        }
    });
}

/// What the last look after keys led to.
#[derive(Default)]
struct Known {
    /// The keys that were published.
    published: Option<Arc<str>>,
    /// What was complained of.
    trouble: Option<(&'static str, String)>,
}

async fn look_after_keys(server: &Server, known: &mut Known) {
    let now = server.gateway.clock.precise();
    if let Some(issuer) = &server.provided.issuer {
        let maintained = issuer.maintain(now).await;
        if server.is_store_closed() {
            return;
        }
        server.admin.set_issuer_usable(maintained.is_ok());
        let trouble = match maintained {
            Ok(Maintained { writes: Ok(()) }) => None,
            Ok(Maintained { writes: Err(error) }) => Some(("clients and keys can't be changed", error)),
            Err(error) => Some(("the authorization server could not be maintained", error)),
        };
        let trouble = trouble.map(|(what, error)| (what, error.to_string()));
        if trouble != known.trouble {
            // Once, and not every two seconds.
            if let Some((what, error)) = &trouble {
                tracing::error!(%error, "{what}");
            }
            known.trouble = trouble;
        }
        // The same text as long as no key came or went.
        let keys = issuer.key_set();
        if !known.published.as_ref().is_some_and(|published| Arc::ptr_eq(published, &keys)) {
            match publish_keys(issuer, &server.foundation.local_keys) {
                Ok(()) => known.published = Some(keys),
                Err(error) => tracing::error!(error = %error, "our own keys could not be published"),
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

/// Before the listeners, which give up sessions where somebody else vouches for clients now.
async fn reload_client_authorities(server: &Server) {
    for authority in server.client_authorities().await {
        let read = Arc::clone(&authority);
        let name = &authority.config().name;
        match tokio::task::spawn_blocking(move || read.reload_if_changed()).await {
            Ok(Ok(true)) => tracing::info!(client_authority = %name, "certificate authorities reloaded"),
            Ok(Ok(false)) | Err(_) => {}
            Ok(Err(error)) => {
                tracing::error!(client_authority = %name, %error, "changed certificate authorities were not taken");
            }
        }
    }
}

async fn look_after_files(server: &Server, warned: &mut Warned) {
    let now = server.gateway.clock.precise();
    let gateway = Arc::clone(&server.gateway);
    let _ = tokio::task::spawn_blocking(move || gateway.close_retired_logs()).await;
    reload_client_authorities(server).await;
    let model = server.gateway.model();
    for listener in model.listeners.values() {
        let Some(tls) = listener.tls.clone() else { continue };
        // Reading files may take its time, and must not take a worker's.
        let reloaded = tokio::task::spawn_blocking(move || tls.reload_if_changed(now.wall)).await;
        match reloaded {
            Ok(Ok(true)) => tracing::info!(listener = %listener.name, "certificates reloaded"),
            Ok(Ok(false)) | Err(_) => {}
            Ok(Err(error)) => {
                tracing::error!(listener = %listener.name, %error, "changed certificates were not taken");
            }
        }
    }
    let served = model.listeners.values().filter_map(|listener| listener.tls.as_ref());
    warn_of_expiry(served.flat_map(|tls| tls.certificates()), warned, now.wall);
    server.client_authority_faults.tell(&server.gateway, false);
    server.sweep(now.mono).await;
    // Series of what has gone, once the last request has that used it.
    server.admin.registry().prune();
}
