//! What an exchange holds of an endpoint while it lasts.

use std::sync::Arc;

use cardea_clock::Mono;
use cardea_upstream::{ConnectionPermit, Endpoint, InFlight};

use crate::{transport::Transport, workers};

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
    in_flight: InFlight<Pooled>,
    permit: Option<ConnectionPermit>,
}

impl Lease {
    pub(crate) fn new(endpoint: &Arc<Endpoint<Pooled>>, permit: ConnectionPermit) -> Self {
        Self { in_flight: endpoint.begin(workers::current()), permit: Some(permit) }
    }

    /// Keeps the connection for a later exchange.
    pub(crate) fn give_back(&mut self, transport: Transport, now: Mono) {
        if let Some(permit) = self.permit.take() {
            let pool = self.in_flight.endpoint().pool();
            drop(pool.put(workers::current(), Pooled { transport, permit }, now));
        }
    }
}
