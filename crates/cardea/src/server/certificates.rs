//! The certificates of listeners: expiry warnings, metrics, and OCSP responses.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use cardea_clock::Wall;
use cardea_gateway::{
    gateway::Gateway,
    record::{
        Registry,
        metrics::{CounterDef, Definition, GaugeDef, Samples},
    },
};
use cardea_tls::{CertificateInfo, ServerTls};

use super::run::Server;
use crate::{admin::protocol::CertificateState, fetch::ocsp};

/// A day, in seconds.
pub(super) const DAY_SECONDS: i64 = 24 * 3_600;

/// How long before its expiry a certificate or list is warned of.
const EXPIRY_WARNING: Duration = Duration::from_secs(21 * 24 * 3_600);

static EXPIRY: GaugeDef<3> = GaugeDef::new(
    "cardea_tls_certificate_expiry_timestamp_seconds",
    "When a served certificate expires, in Unix time.",
    ["listener", "certificate", "key_type"],
);
static STAPLE_EXPIRY: GaugeDef<2> = GaugeDef::new(
    "cardea_tls_ocsp_staple_expiry_timestamp_seconds",
    "When the stapled OCSP response of a certificate expires, in Unix time.",
    ["listener", "certificate"],
);
static STAPLE_FAILURES: CounterDef<0> = CounterDef::new(
    "cardea_tls_ocsp_fetch_failures_total",
    "OCSP responses that could not be fetched or could not be stapled.",
    [],
);

static STATE: GaugeDef<3> = GaugeDef::new(
    "cardea_tls_certificate_state",
    "1 for the current state of each configured certificate: `served`, `expired`, `rejected` (the present files can't \
     be used, the previous certificate is served), `unusable` (handshakes for its hosts fail) or `awaited` (not yet \
     issued by the authority).",
    ["listener", "certificate", "state"],
);

static HANDSHAKES: GaugeDef<0> =
    GaugeDef::new("cardea_tls_handshakes_under_way", "TLS handshakes in progress.", []);

/// The metrics of certificates.
pub(super) static DEFINITIONS: &[Definition] = &[
    HANDSHAKES.definition(),
    STATE.definition(),
    EXPIRY.definition(),
    STAPLE_EXPIRY.definition(),
    STAPLE_FAILURES.definition(),
];

/// The count of [`refresh_staples`].
static FAILURES: AtomicU64 = AtomicU64::new(0);

/// Registers the metrics.
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
    registry.collect_gauge(&STATE, move |samples: &mut Samples<'_>| {
        let Some(gateway) = weak.upgrade() else { return };
        let now = gateway.clock.wall();
        for (name, listener) in &gateway.model().listeners {
            for state in listener.tls.iter().flat_map(|tls| tls.certificate_states().to_vec()) {
                let shown = state_of(&state, now).as_str();
                samples.push(&[name, &state.path.to_string_lossy(), shown], 1.0);
            }
        }
    });
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

/// The state of a certificate, seen from handshakes for its hosts.
pub(crate) fn state_of(state: &cardea_tls::CertificateState, now: Wall) -> CertificateState {
    match &state.served {
        None if state.is_awaited => CertificateState::Awaited,
        None => CertificateState::Unusable,
        Some(served) if served.not_after <= now => CertificateState::Expired,
        Some(_) if !state.problems.is_empty() => CertificateState::Rejected,
        Some(_) => CertificateState::Served,
    }
}

/// Reports the certificates that are unusable at the start.
pub(super) fn report_unusable(gateway: &Gateway) {
    for (listener, model) in &gateway.model().listeners {
        for state in model.tls.iter().flat_map(|tls| tls.certificate_states().to_vec()) {
            if state.served.is_none() && !state.is_awaited {
                tracing::error!(
                    %listener, path = %state.path.display(), hosts = ?state.hosts,
                    problem = state.problems.join("; "),
                    "a certificate can't be used; handshakes for its hosts fail until it is replaced"
                );
            }
        }
    }
}

/// The day of the last warning about a certificate or revocation list, and whether it had expired then; by its file
/// and its expiry.
pub(super) type Warned = HashMap<(PathBuf, Wall), (i64, bool)>;

/// Warns of certificates that expire soon.
pub(super) fn warn_of_expiry(
    certificates: impl Iterator<Item = CertificateInfo>,
    warned: &mut Warned,
    now: Wall,
) {
    for one in ending(certificates, |one| (&one.path, one.not_before, one.not_after), warned, now) {
        tracing::warn!(
            path = %one.path.display(),
            hosts = ?one.hosts,
            not_after_unix_seconds = one.not_after.unix_seconds(),
            "{}",
            if one.not_after <= now { "a certificate has expired" } else { "a certificate expires soon" }
        );
    }
}

/// Those that expire within three weeks and have less than a quarter of their lifetime left, each once a day, and
/// again when it has expired. A lifetime may be shorter than a day.
pub(super) fn ending<T>(
    all: impl Iterator<Item = T>,
    validity: impl Fn(&T) -> (&PathBuf, Wall, Wall),
    warned: &mut Warned,
    now: Wall,
) -> Vec<T> {
    let day = now.unix_seconds() / DAY_SECONDS;
    // Those that are no longer used are removed.
    let before = std::mem::take(warned);
    let mut ending = Vec::new();
    for one in all {
        let (path, not_before, not_after) = validity(&one);
        let lifetime = not_after.saturating_since(not_before);
        if not_after >= now.saturating_add(EXPIRY_WARNING.min(lifetime / 4)) {
            continue;
        }
        let (key, said) = ((path.clone(), not_after), (day, not_after <= now));
        let again = before.get(&key) == Some(&said);
        if warned.insert(key, said).is_none() && !again {
            ending.push(one);
        }
    }
    ending
}

/// Requests the OCSP responses that are due, one after another.
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
    // It may wait for a reload that reads files.
    let Ok((due, errors)) = tokio::task::spawn_blocking(move || asked.staples_due(now)).await else { return };
    for error in errors {
        FAILURES.fetch_add(1, Relaxed);
        tracing::warn!(%listener, %error, "a certificate is served without an OCSP response");
    }
    for request in due {
        let path = request.path.display().to_string();
        let response = ocsp::ask(&request).await.map_err(|error| error.to_string());
        let taken = match response {
            Ok(response) => {
                let (tls, now) = (Arc::clone(tls), server.gateway.clock.wall());
                // Verifying signatures must not run on the runtime's threads.
                let set = move || tls.set_staple(&request, response, now).map_err(|error| error.to_string());
                tokio::task::spawn_blocking(set).await.unwrap_or_else(|error| Err(error.to_string()))
            }
            Err(error) => Err(error),
        };
        match taken {
            Ok(()) => {
                tracing::info!(%listener, certificate = %path, "the OCSP response of a certificate was updated")
            }
            Err(error) => {
                FAILURES.fetch_add(1, Relaxed);
                tracing::warn!(%listener, certificate = %path, %error, "the OCSP response of a certificate could not \
                     be updated; the previous one is stapled until it expires");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cardea_tls::KeyType;

    use super::*;

    /// Midnight.
    const NOW: Wall = Wall::from_unix_seconds(1_900_022_400);
    const HOUR: u64 = 3_600;

    fn certificate(path: &str, lived_hours: u64, left_hours: u64) -> CertificateInfo {
        CertificateInfo {
            hosts: vec!["a.test".to_owned()],
            not_before: NOW.saturating_sub(Duration::from_secs(lived_hours * HOUR)),
            not_after: NOW.saturating_add(Duration::from_secs(left_hours * HOUR)),
            key_type: KeyType::Ecdsa,
            path: path.into(),
            trust_domain: "default".to_owned(),
            staple_until: None,
        }
    }

    fn ending(
        certificates: impl Iterator<Item = CertificateInfo>,
        warned: &mut Warned,
        now: Wall,
    ) -> Vec<CertificateInfo> {
        super::ending(certificates, |one| (&one.path, one.not_before, one.not_after), warned, now)
    }

    #[test]
    fn a_certificate_is_warned_of_daily_in_its_last_quarter_but_no_earlier_than_three_weeks() {
        let all = || {
            [
                certificate("year", 344 * 24, 20 * 24),
                certificate("year-young", 342 * 24, 22 * 24),
                certificate("day", 19, 5),
                certificate("day", 19, 5),
                certificate("day-young", 17, 7),
            ]
            .into_iter()
        };
        let mut warned = Warned::new();
        let mut at = |hours: u64| {
            let now = NOW.saturating_add(Duration::from_secs(hours * HOUR));
            let paths = ending(all(), &mut warned, now);
            paths.into_iter().map(|one| one.path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(at(0), ["year", "day"]);
        assert_eq!(at(0), [""; 0]);
        assert_eq!(at(2), ["day-young"], "without waiting for the next day");
        assert_eq!(at(5), ["day"], "it has expired");
        assert_eq!(at(24), ["year", "day", "day-young"]);
        assert_eq!(ending(std::iter::empty(), &mut warned, NOW), []);
        assert!(warned.is_empty(), "what is no longer served is removed");
    }
}
