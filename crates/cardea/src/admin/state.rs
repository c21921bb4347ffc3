//! What the admin listener shows, and whether the server is ready.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use cardea_gateway::{
    gateway::{Gateway, Phase},
    record::Registry,
};

/// What the admin listener reads.
pub(crate) struct AdminState {
    gateway: Arc<Gateway>,
    registry: Arc<Registry>,
    issuer_usable: AtomicBool,
}

impl AdminState {
    /// Of a gateway whose authorization server works.
    pub(crate) fn new(gateway: Arc<Gateway>, registry: Arc<Registry>) -> Self {
        Self { gateway, registry, issuer_usable: AtomicBool::new(true) }
    }

    /// The metrics.
    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Notes whether the authorization server could reach its store when it was last looked after.
    pub(crate) fn set_issuer_usable(&self, usable: bool) {
        self.issuer_usable.store(usable, Relaxed);
    }

    /// Why the server should be sent no new connections; empty where it should.
    ///
    /// Key sets that were never loaded count, ones that went stale don't: an instance that starts without an
    /// issuer's keys must not take over from those that have them, but an issuer's outage, which every instance
    /// meets at once, must not take all of them out of service, public routes included.
    pub(crate) fn readiness(&self) -> Vec<&'static str> {
        let mut reasons = Vec::new();
        if self.gateway.phase() != Phase::Running {
            reasons.push("draining");
        }
        if !self.gateway.clock.is_refreshed() {
            reasons.push("clock_stale");
        }
        let model = self.gateway.model();
        if model.issuer.is_some() && !self.issuer_usable.load(Relaxed) {
            reasons.push("authorization_server_unusable");
        }
        let key_sets = model.authenticator.key_sets(self.gateway.clock.now());
        if key_sets.iter().any(|set| !set.usable && set.keys == 0) {
            reasons.push("key_sets_missing");
        }
        reasons
    }
}
