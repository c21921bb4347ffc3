//! What concerns the certificates that listeners serve: until when they hold, and what their authorities say of them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use cardea_gateway::{
    gateway::Gateway,
    record::{
        Registry,
        metrics::{CounterDef, GaugeDef, Samples},
    },
};
use cardea_tls::{CertificateInfo, ServerTls};

use super::run::Server;
use crate::fetch::ocsp;

static EXPIRY: GaugeDef<3> = GaugeDef::new(
    "cardea_tls_certificate_expiry_timestamp_seconds",
    "When a certificate that is served expires, in Unix time.",
    ["listener", "certificate", "key_type"],
);
static STAPLE_EXPIRY: GaugeDef<2> = GaugeDef::new(
    "cardea_tls_ocsp_staple_expiry_timestamp_seconds",
    "Until when the response about a certificate holds that is sent along, in Unix time.",
    ["listener", "certificate"],
);
static STAPLE_FAILURES: CounterDef<0> = CounterDef::new(
    "cardea_tls_ocsp_fetch_failures_total",
    "Responses about certificates that could not be fetched, or not be served.",
    [],
);

static HANDSHAKES: GaugeDef<0> =
    GaugeDef::new("cardea_tls_handshakes_under_way", "TLS handshakes that are under way.", []);

/// As counted by [`refresh_staples`].
static FAILURES: AtomicU64 = AtomicU64::new(0);

/// Enters all of it.
pub(super) fn register(registry: &Registry, gateway: &Arc<Gateway>) {
    registry.collect_gauge(
        &EXPIRY,
        of_certificates(gateway, |listener, path, one, samples| {
            let at = one.not_after.unix_seconds() as f64;
            samples.push(&[listener, path, one.key_type.as_str()], at);
        }),
    );
    registry.collect_gauge(
        &STAPLE_EXPIRY,
        of_certificates(gateway, |listener, path, one, samples| {
            if let Some(until) = one.staple_until {
                samples.push(&[listener, path], until.unix_seconds() as f64);
            }
        }),
    );
    let weak = Arc::downgrade(gateway);
    registry.collect_gauge(&HANDSHAKES, move |samples: &mut Samples<'_>| {
        if let Some(gateway) = weak.upgrade() {
            samples.push(&[], gateway.handshakes_under_way() as f64);
        }
    });
    registry.collect_counter(&STAPLE_FAILURES, |samples: &mut Samples<'_>| {
        samples.push(&[], FAILURES.load(Relaxed) as f64);
    });
}

/// The gateway holds the registry, so this must not hold the gateway.
fn of_certificates(
    gateway: &Arc<Gateway>,
    read: impl Fn(&str, &str, &CertificateInfo, &mut Samples<'_>) + Send + Sync + 'static,
) -> impl Fn(&mut Samples<'_>) + Send + Sync + 'static {
    let gateway = Arc::downgrade(gateway);
    move |samples| {
        let Some(gateway) = gateway.upgrade() else { return };
        for (name, listener) in &gateway.model().listeners {
            for one in listener.tls.iter().flat_map(|tls| tls.certificates()) {
                read(name, &one.path.to_string_lossy(), &one, samples);
            }
        }
    }
}

/// Asks responders where it is time, one after another.
pub(super) async fn refresh_staples(server: &Server) {
    let model = server.gateway.model();
    for listener in model.listeners.values() {
        if let Some(tls) = &listener.tls {
            refresh(&listener.name, tls, server).await;
        }
    }
}

async fn refresh(listener: &str, tls: &Arc<ServerTls>, server: &Server) {
    let (asked, now) = (Arc::clone(tls), server.gateway.clock.wall());
    // It may wait for one who reads files.
    let Ok((due, errors)) = tokio::task::spawn_blocking(move || asked.staples_due(now)).await else { return };
    for error in errors {
        FAILURES.fetch_add(1, Relaxed);
        tracing::warn!(%listener, %error, "a certificate is served without a response of its authority");
    }
    for request in due {
        let path = request.path.display().to_string();
        let response = ocsp::ask(&request).await.map_err(|error| error.to_string());
        let taken = match response {
            Ok(response) => {
                let (tls, now) = (Arc::clone(tls), server.gateway.clock.wall());
                // Verifying signatures is not for the runtime's threads.
                let set = move || tls.set_staple(&request, response, now).map_err(|error| error.to_string());
                tokio::task::spawn_blocking(set).await.unwrap_or_else(|error| Err(error.to_string()))
            }
            Err(error) => Err(error),
        };
        match taken {
            Ok(()) => {
                tracing::info!(%listener, certificate = %path, "a response about a certificate was taken")
            }
            Err(error) => {
                FAILURES.fetch_add(1, Relaxed);
                tracing::warn!(%listener, certificate = %path, %error, "no response about a certificate; the last one is served until it runs out");
            }
        }
    }
}
