//! The content of the admin listener, and the readiness of the server.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use arc_swap::ArcSwap;
use cardea_gateway::{
    gateway::{Gateway, Phase},
    pressure::{Resource, Stage},
    record::Registry,
};
use cardea_identity::KeySetStatus;
use cardea_issuer::AuthorizationServer;
use cardea_store::WriteHealth;

use super::protocol::CertificateState;
use crate::{
    config::{Need, Readiness},
    server::{certificate_state, client_authority_faults},
};

/// The state that the admin listener reads.
pub(crate) struct AdminState {
    gateway: Arc<Gateway>,
    registry: Arc<Registry>,
    issuer: Option<Arc<AuthorizationServer>>,
    issuer_usable: AtomicBool,
    wanted: ArcSwap<Readiness>,
    /// The accepted host names, in lower case.
    hosts: RwLock<Vec<String>>,
}

/// The readiness of the server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ready {
    /// The reasons against readiness; empty if it is ready. Details follow a reason after a colon.
    pub(crate) reasons: Vec<String>,
    /// Other failures.
    pub(crate) degraded: Vec<String>,
}

impl Ready {
    fn add(&mut self, need: Need, what: impl Into<String>) {
        match need {
            Need::Required => self.reasons.push(what.into()),
            Need::Reported => self.degraded.push(what.into()),
        }
    }
}

impl AdminState {
    /// The state of a gateway whose authorization server works.
    pub(crate) fn new(
        gateway: Arc<Gateway>,
        registry: Arc<Registry>,
        issuer: Option<Arc<AuthorizationServer>>,
    ) -> Self {
        Self {
            gateway,
            registry,
            issuer,
            issuer_usable: AtomicBool::new(true),
            wanted: ArcSwap::default(),
            hosts: RwLock::default(),
        }
    }

    /// Sets the accepted host names besides `localhost` and addresses, in lower case.
    pub(crate) fn set_hosts(&self, hosts: &[String]) {
        hosts.clone_into(&mut self.hosts.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether this host name is accepted.
    pub(super) fn is_host(&self, name: &str) -> bool {
        let hosts = self.hosts.read().unwrap_or_else(PoisonError::into_inner);
        hosts.iter().any(|host| host.eq_ignore_ascii_case(name))
    }

    /// The gateway.
    pub(crate) fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// The registry of metrics.
    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Takes over the settings of another configuration.
    pub(crate) fn follow(&self, readiness: &Readiness) {
        self.wanted.store(Arc::new(readiness.clone()));
    }

    /// Records whether the authorization server could read its store at the last maintenance.
    pub(crate) fn set_issuer_usable(&self, usable: bool) {
        self.issuer_usable.store(usable, Relaxed);
    }

    /// The state of writes to the authorization server's database; `None` without one.
    pub(crate) fn issuer_write_health(&self) -> Option<WriteHealth> {
        self.issuer.as_ref().map(|issuer| issuer.write_health())
    }

    /// The readiness of the server, and other failures.
    ///
    /// By default, key sets that were never fetched count, and stale ones don't. An instance that starts without an
    /// issuer's keys must not replace instances that have them; but an outage of an issuer, which affects all instances
    /// at once, must not make all of them unready, including for public routes.
    pub(crate) fn readiness(&self) -> Ready {
        let wanted = self.wanted.load();
        let mut ready = Ready::default();
        if self.gateway.phase() != Phase::Running {
            ready.add(Need::Required, "draining");
        }
        if !self.gateway.clock.is_refreshed() {
            ready.add(Need::Required, "clock_stale");
        }
        for resource in Resource::ALL {
            if self.gateway.pressure.stage(resource) > Stage::None {
                ready.add(Need::Reported, format!("resource_pressure:{}", resource.as_str()));
            }
        }
        let model = self.gateway.model();
        if let Some(issuer) = &self.issuer {
            if !self.issuer_usable.load(Relaxed) {
                ready.add(Need::Required, "authorization_server_unusable");
            }
            if issuer.clock_has_stepped() {
                ready.add(Need::Reported, "clock_unconfirmed");
            }
            if issuer.write_health().failing {
                ready.add(wanted.administration, "administration_failing");
            }
        }
        let now = self.gateway.clock.wall();
        let mut listeners: Vec<_> = model.listeners.iter().collect();
        listeners.sort_unstable_by_key(|(name, _)| *name);
        for (name, listener) in listeners {
            for state in listener.tls.iter().flat_map(|tls| tls.certificate_states().to_vec()) {
                let shown = certificate_state(&state, now);
                if shown != CertificateState::Served {
                    let what = format!("certificate_{}:{name}:{}", shown.as_str(), state.path.display());
                    ready.add(wanted.certificates, what);
                }
            }
        }
        // A file may have several faults.
        let faulty: BTreeSet<_> = client_authority_faults(&self.gateway)
            .into_iter()
            .map(|(name, fault)| {
                let refuses = fault.problem.refuses_clients();
                let what = if refuses { "client_authority_refuses" } else { "client_authority_suspect" };
                format!("{what}:{name}:{}", fault.path.display())
            })
            .collect();
        faulty.into_iter().for_each(|what| ready.add(Need::Reported, what));
        for set in model.authenticator.key_sets(self.gateway.clock.now()) {
            if !set.usable {
                let what = if set.keys == 0 { "key_set_missing" } else { "key_set_stale" };
                ready.add(need_of(&set, wanted.issuers.as_deref()), format!("{what}:{}", set.issuer));
            }
        }
        ready
    }
}

fn need_of(set: &KeySetStatus, wanted: Option<&[String]>) -> Need {
    let required = match wanted {
        None => set.keys == 0,
        Some(names) => names.iter().any(|name| **name == *set.issuer),
    };
    if required { Need::Required } else { Need::Reported }
}
