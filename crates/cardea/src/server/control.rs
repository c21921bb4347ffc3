//! What the admin socket may ask of the server.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Result;
use cardea_clock::Timestamp;
use cardea_gateway::gateway::Phase;
use cardea_issuer::AuthorizationServer;

use super::{certificates, issuer::publish_keys, run::Server};
use crate::{
    acme::SOURCE_PREFIX,
    admin::{
        Control, ControlFuture,
        protocol::{Certificate, CertificateState, Status},
    },
};

impl Control for Server {
    fn now(&self) -> Timestamp {
        self.gateway.clock.precise()
    }

    fn issuer(&self) -> Option<Arc<AuthorizationServer>> {
        self.foundation.issuer.clone()
    }

    fn status(&self) -> ControlFuture<'_, Status> {
        Box::pin(async move {
            Status {
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
                generation: self.reloads.state().generation,
            }
        })
    }

    fn reload(&self) -> ControlFuture<'_, Result<()>> {
        Box::pin(Self::reload(self))
    }

    fn drain(&self) -> ControlFuture<'_, ()> {
        Box::pin(async move { self.ask_to_drain() })
    }

    fn certificates(&self) -> Vec<Certificate> {
        let now = self.gateway.clock.wall();
        let mut found: BTreeMap<(String, Vec<String>), Certificate> = BTreeMap::new();
        for listener in self.gateway.model().listeners.values() {
            for state in listener.tls.iter().flat_map(|tls| tls.certificate_states().to_vec()) {
                let standing = certificates::standing(&state, now);
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
                if standing != CertificateState::Served {
                    entry.state = standing;
                }
                if !state.problems.is_empty() {
                    entry.problem = Some(state.problems.join("; "));
                }
            }
        }
        for status in self.foundation.acme.iter().flat_map(|acme| acme.status()) {
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
            match &self.foundation.acme {
                Some(acme) => Ok(acme.renew(host).await?),
                None => Ok(false),
            }
        })
    }

    fn keys_changed(&self) -> Result<()> {
        match &self.foundation.issuer {
            Some(issuer) => publish_keys(issuer, &self.foundation.local_keys),
            None => Ok(()),
        }
    }
}
