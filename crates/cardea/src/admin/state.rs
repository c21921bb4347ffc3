//! What the admin listener shows, and whether the server is ready.

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
    record::Registry,
};
use cardea_identity::KeySetStatus;
use cardea_issuer::AuthorizationServer;
use cardea_store::WriteHealth;

use super::protocol::CertificateState;
use crate::{
    config::{Need, Readiness},
    server::{certificate_standing, client_authority_faults},
};

/// What the admin listener reads.
pub(crate) struct AdminState {
    gateway: Arc<Gateway>,
    registry: Arc<Registry>,
    issuer: Option<Arc<AuthorizationServer>>,
    issuer_usable: AtomicBool,
    wanted: ArcSwap<Readiness>,
    /// Names by which the listener may be asked, in lower case.
    hosts: RwLock<Vec<String>>,
}

/// Whether the server should be sent new connections.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ready {
    /// Why not; empty where it should. What a reason is about follows it after a colon.
    pub(crate) reasons: Vec<String>,
    /// What doesn't work otherwise.
    pub(crate) degraded: Vec<String>,
}

impl Ready {
    fn note(&mut self, need: Need, what: impl Into<String>) {
        match need {
            Need::Required => self.reasons.push(what.into()),
            Need::Reported => self.degraded.push(what.into()),
        }
    }
}

impl AdminState {
    /// Of a gateway whose authorization server works.
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

    /// Names by which the listener may be asked from now on, in lower case, beside `localhost` and addresses.
    pub(crate) fn set_hosts(&self, hosts: &[String]) {
        hosts.clone_into(&mut self.hosts.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether the listener may be asked by this name.
    pub(super) fn is_host(&self, name: &str) -> bool {
        let hosts = self.hosts.read().unwrap_or_else(PoisonError::into_inner);
        hosts.iter().any(|host| host.eq_ignore_ascii_case(name))
    }

    /// The metrics.
    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Goes on by the settings of another configuration.
    pub(crate) fn follow(&self, readiness: &Readiness) {
        self.wanted.store(Arc::new(readiness.clone()));
    }

    /// Notes whether the authorization server could read its store when it was last looked after.
    pub(crate) fn set_issuer_usable(&self, usable: bool) {
        self.issuer_usable.store(usable, Relaxed);
    }

    /// How the authorization server's database takes changes; nothing where there is none.
    pub(crate) fn issuer_write_health(&self) -> Option<WriteHealth> {
        self.issuer.as_ref().map(|issuer| issuer.write_health())
    }

    /// Whether the server should be sent new connections, and what doesn't work.
    ///
    /// Unless the configuration says otherwise, key sets that were never known count, ones that went stale don't: an
    /// instance that starts without an issuer's keys must not take over from those that have them, but an issuer's
    /// outage, which every instance meets at once, must not take all of them out of service, public routes included.
    pub(crate) fn readiness(&self) -> Ready {
        let wanted = self.wanted.load();
        let mut ready = Ready::default();
        if self.gateway.phase() != Phase::Running {
            ready.note(Need::Required, "draining");
        }
        if !self.gateway.clock.is_refreshed() {
            ready.note(Need::Required, "clock_stale");
        }
        let model = self.gateway.model();
        if let Some(issuer) = &self.issuer {
            if !self.issuer_usable.load(Relaxed) {
                ready.note(Need::Required, "authorization_server_unusable");
            }
            if issuer.write_health().failing {
                ready.note(wanted.administration, "administration_failing");
            }
        }
        let now = self.gateway.clock.wall();
        let mut listeners: Vec<_> = model.listeners.iter().collect();
        listeners.sort_unstable_by_key(|(name, _)| *name);
        for (name, listener) in listeners {
            for state in listener.tls.iter().flat_map(|tls| tls.certificate_states().to_vec()) {
                let standing = certificate_standing(&state, now);
                if standing != CertificateState::Served {
                    let what = format!("certificate_{}:{name}:{}", standing.as_str(), state.path.display());
                    ready.note(wanted.certificates, what);
                }
            }
        }
        // A file may have several faults.
        let faulty: BTreeSet<_> = client_authority_faults(&self.gateway)
            .into_iter()
            .map(|(name, fault)| format!("client_authority_refuses:{name}:{}", fault.path.display()))
            .collect();
        faulty.into_iter().for_each(|what| ready.note(Need::Reported, what));
        for set in model.authenticator.key_sets(self.gateway.clock.now()) {
            if !set.usable {
                let what = if set.keys == 0 { "key_set_missing" } else { "key_set_stale" };
                ready.note(need_of(&set, wanted.issuers.as_deref()), format!("{what}:{}", set.issuer));
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
