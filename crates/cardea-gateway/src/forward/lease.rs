//! What an exchange holds of an endpoint while it lasts.

use std::sync::Arc;

use cardea_clock::Mono;
use cardea_upstream::{ConnectionPermit, Endpoint, InFlight};

use crate::transport::Transport;

/// A connection with what must be given up together with it.
#[derive(Debug)]
pub struct Pooled {
    pub(crate) transport: Transport,
    /// The place among the endpoint's connections.
    pub(crate) permit: ConnectionPermit,
}

/// The place of an exchange at an endpoint: counted in flight, and holding a connection's permit.
#[derive(Debug)]
pub(crate) struct Lease {
    endpoint: Arc<Endpoint<Pooled>>,
    permit: Option<ConnectionPermit>,
    _in_flight: InFlight,
}

impl Lease {
    pub(crate) fn new(endpoint: Arc<Endpoint<Pooled>>, permit: ConnectionPermit) -> Self {
        let in_flight = endpoint.begin();
        Self { endpoint, permit: Some(permit), _in_flight: in_flight }
    }

    /// Keeps the connection for a later exchange.
    pub(crate) fn give_back(&mut self, transport: Transport, now: Mono) {
        if let Some(permit) = self.permit.take() {
            drop(self.endpoint.pool().put(Pooled { transport, permit }, now));
        }
    }
}
