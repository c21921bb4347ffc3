//! What an exchange holds of an endpoint while it lasts.

use cardea_clock::Mono;
use cardea_upstream::{ConnectionPermit, Endpoint, InFlight, PoolPlace};

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
    _in_flight: InFlight,
    pool: PoolPlace<Pooled>,
    permit: Option<ConnectionPermit>,
}

impl Lease {
    pub(crate) fn new(endpoint: &Endpoint<Pooled>, permit: ConnectionPermit) -> Self {
        let worker = workers::current();
        Self { _in_flight: endpoint.begin(worker), pool: endpoint.pool().place(worker), permit: Some(permit) }
    }

    /// Keeps the connection for a later exchange.
    pub(crate) fn give_back(&mut self, transport: Transport, now: Mono) {
        if let Some(permit) = self.permit.take() {
            drop(self.pool.put(Pooled { transport, permit }, now));
        }
    }
}
