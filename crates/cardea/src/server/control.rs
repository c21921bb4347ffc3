//! What the admin socket may ask of the server.

use std::sync::Arc;

use anyhow::Result;
use cardea_clock::Timestamp;
use cardea_gateway::gateway::Phase;
use cardea_issuer::AuthorizationServer;

use super::{issuer::publish_keys, run::Server};
use crate::admin::{Control, ControlFuture, protocol::Status};

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
                generation: self.generation().await,
            }
        })
    }

    fn reload(&self) -> ControlFuture<'_, Result<()>> {
        Box::pin(Self::reload(self))
    }

    fn drain(&self) -> ControlFuture<'_, ()> {
        Box::pin(async move { self.ask_to_drain() })
    }

    fn keys_changed(&self) -> Result<()> {
        match &self.foundation.issuer {
            Some(issuer) => publish_keys(issuer, &self.foundation.local_keys),
            None => Ok(()),
        }
    }
}
