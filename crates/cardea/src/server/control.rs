//! The operations of the server that the admin socket uses.

use std::{collections::BTreeMap, io, os::fd::BorrowedFd, sync::Arc, time::Duration};

use anyhow::Result;
use cardea_clock::{Mono, Timestamp, Wall};
use cardea_gateway::{
    accepting::Failed,
    gateway::Phase,
    model::{LimitModel, Model},
};
use cardea_guard::Offender;
use cardea_identity::KeySetStatus;
use cardea_issuer::AuthorizationServer;

use super::{certificates, issuer::publish_keys, run::Server, telemetry, upstreams};
use crate::{
    acme::SOURCE_PREFIX,
    admin::{
        Control, ControlFuture, Ready, choice,
        protocol::{
            AdminError, Certificate, CertificateState, Expiry, ExplainedChoice, Held, KeySet, LimitStatus,
            ListenerStatus, Overridden, OverrideTo, Reloaded, Status, Upstream,
        },
        tarpit,
    },
};

impl Server {
    async fn listener_status(&self) -> Vec<ListenerStatus> {
        let model = self.gateway.model();
        let mut found: Vec<_> = self
            .current
            .lock()
            .await
            .listeners
            .iter()
            .map(|(name, listening)| ListenerStatus {
                name: name.clone(),
                address: listening.shown.clone(),
                connections: model.listeners.get(name).map_or(0, |listener| listener.metrics.connections()),
            })
            .collect();
        found.sort_by(|one, other| one.name.cmp(&other.name));
        found
    }

    fn key_sets(&self) -> Vec<KeySet> {
        let sets = self.gateway.model().authenticator.key_sets(self.gateway.clock.precise()).into_iter();
        let key_set = |set: KeySetStatus| KeySet {
            issuer: set.issuer.to_string(),
            keys: set.keys,
            usable: set.usable,
            age_seconds: set.age.map(|age| age.as_secs()),
            problem: set.last_error,
        };
        sets.map(key_set).collect()
    }
}

impl Control for Server {
    fn now(&self) -> Timestamp {
        self.gateway.clock.precise()
    }

    fn issuer(&self) -> Option<Arc<AuthorizationServer>> {
        self.provided.issuer.clone()
    }

    fn failed_to_accept(&self, socket: BorrowedFd<'_>, error: &io::Error) -> Failed {
        self.gateway.failed_to_accept("admin", socket, error)
    }

    fn status(&self) -> ControlFuture<'_, Status> {
        Box::pin(async move {
            let (reloads, model) = (self.reloads.state(), self.gateway.model());
            let last_error = reloads.last.and_then(|last| last.error);
            let path = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
            let Ready { reasons, degraded } = self.admin.readiness();
            let states: Vec<_> = model.services.iter().map(|service| service.live.state()).collect();
            let endpoints = states.iter().flat_map(|state| state.endpoints());
            let (endpoints, ejected) = endpoints.fold((0, 0), |(all, ejected), (_, endpoint)| {
                (all + 1, ejected + usize::from(!endpoint.is_available()))
            });
            let expiry = |certificate: Certificate| {
                Some(Expiry { not_after: certificate.not_after?, hosts: certificate.hosts })
            };
            Status {
                revision: telemetry::REVISION.to_owned(),
                configuration: path.display().to_string(),
                loaded_at: reloads.loaded_at.unix_seconds(),
                last_reload_failed_at: reloads
                    .failed_at
                    .filter(|_| last_error.is_some())
                    .map(Wall::unix_seconds),
                last_reload_error: last_error,
                needs_restart: self.needs_restart().await,
                ready: reasons.is_empty(),
                reasons,
                degraded,
                listeners: self.listener_status().await,
                admission: limits(&model, self.gateway.clock.precise_mono()),
                routes: self.current.lock().await.config.routes.len(),
                services: model.services.len(),
                endpoints,
                endpoints_healthy: endpoints - ejected,
                key_sets: self.key_sets(),
                next_certificate_expiry: self
                    .certificates()
                    .into_iter()
                    .filter_map(expiry)
                    .min_by_key(|one| one.not_after),
                process_id: std::process::id(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                uptime_seconds: self.uptime().as_secs(),
                phase: match self.gateway.phase() {
                    Phase::Running => "running",
                    Phase::Draining => "draining",
                    Phase::Stopping | Phase::Ending => "stopping",
                }
                .to_owned(),
                connections: self.gateway.connections() as u64,
                generation: reloads.generation,
            }
        })
    }

    fn reload(&self) -> ControlFuture<'_, Result<Reloaded>> {
        Box::pin(Self::reload(self))
    }

    fn settle_streams(&self) -> ControlFuture<'_, ()> {
        Box::pin(self.gateway.settle_streams())
    }

    fn drain(&self) -> ControlFuture<'_, ()> {
        Box::pin(async move { self.request_drain() })
    }

    fn upstreams(&self) -> Vec<Upstream> {
        let now = self.gateway.clock.precise().mono;
        let services = self.gateway.model().services.clone();
        services.iter().map(|service| upstreams::shown(&service.live.state().stats(), now)).collect()
    }

    fn explain_choice(&self, service: &str, key: Option<&str>) -> Result<ExplainedChoice, AdminError> {
        choice::explain(&self.gateway, service, key)
    }

    fn override_endpoint<'a>(
        &'a self,
        service: &'a str,
        endpoint: &'a str,
        to: OverrideTo,
    ) -> ControlFuture<'a, Result<Overridden, AdminError>> {
        Box::pin(self.set_override(service, endpoint, to))
    }

    fn held(&self) -> Vec<Held> {
        let now = self.gateway.clock.precise().mono;
        self.gateway.tarpit.list().into_iter().map(|held| tarpit::shown(held, now)).collect()
    }

    fn release(&self, which: Option<&Offender>) -> usize {
        self.gateway.tarpit.release(which)
    }

    fn certificates(&self) -> Vec<Certificate> {
        let now = self.gateway.clock.wall();
        let mut found: BTreeMap<(String, Vec<String>), Certificate> = BTreeMap::new();
        for listener in self.gateway.model().listeners.values() {
            for state in listener.tls.iter().flat_map(|tls| tls.certificate_states().to_vec()) {
                let shown = certificates::state_of(&state, now);
                let mut hosts = state.hosts;
                hosts.sort_unstable();
                let source = state.path.display().to_string();
                let source = if source.starts_with(SOURCE_PREFIX) { "acme".to_owned() } else { source };
                let entry = found.entry((source.clone(), hosts.clone())).or_insert_with(|| Certificate {
                    hosts,
                    source,
                    listeners: Vec::new(),
                    not_after: state.served.as_ref().map(|served| served.not_after.unix_seconds()),
                    next_attempt_at: None,
                    failures: 0,
                    problem: None,
                    state: CertificateState::Served,
                });
                entry.listeners.push(listener.name.clone());
                entry.listeners.sort_unstable();
                if shown != CertificateState::Served {
                    entry.state = shown;
                }
                if !state.problems.is_empty() {
                    entry.problem = Some(state.problems.join("; "));
                }
            }
        }
        for status in self.provided.acme.iter().flat_map(|acme| acme.status()) {
            let entry =
                found.entry(("acme".to_owned(), status.hosts.clone())).or_insert_with(|| Certificate {
                    hosts: status.hosts,
                    source: "acme".to_owned(),
                    listeners: Vec::new(),
                    not_after: None,
                    next_attempt_at: None,
                    failures: 0,
                    problem: None,
                    state: CertificateState::Awaited,
                });
            entry.next_attempt_at = Some(status.next_attempt_at.unix_seconds());
            entry.failures = status.failures;
            entry.problem = status.problem.or(entry.problem.take());
        }
        found.into_values().collect()
    }

    fn renew_certificate<'a>(&'a self, host: &'a str) -> ControlFuture<'a, Result<bool>> {
        Box::pin(async move {
            match &self.provided.acme {
                Some(acme) => Ok(acme.renew(host).await?),
                None => Ok(false),
            }
        })
    }

    fn keys_changed(&self) -> Result<()> {
        match &self.provided.issuer {
            Some(issuer) => publish_keys(issuer, &self.foundation.local_keys),
            None => Ok(()),
        }
    }
}

/// The limits on requests in flight.
fn limits(model: &Model, now: Mono) -> Vec<LimitStatus> {
    let status = |limit: &Arc<LimitModel>| {
        let figures = limit.limit.figures();
        let waited = figures.oldest.map_or(Duration::ZERO, |oldest| now.saturating_since(oldest));
        LimitStatus {
            limit: limit.label.clone(),
            max_in_flight: figures.max_in_flight,
            in_flight: figures.in_flight,
            queued: figures.waiting,
            refused: figures.threshold.to_string(),
            oldest_milliseconds: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
        }
    };
    model.admission.limits.iter().map(status).collect()
}
