//! What an exchange holds of an endpoint while it lasts.

use cardea_clock::Mono;
use cardea_upstream::{ConnectionPermit, Endpoint, Hold, InFlight, PoolPlace};

use crate::{
    transport::{Idle, Transport},
    workers,
};

/// A connection with what must be given up together with it.
#[derive(Debug)]
pub struct Pooled {
    pub(crate) transport: Transport,
    /// The place among the endpoint's connections.
    pub(crate) permit: ConnectionPermit,
}

impl Pooled {
    /// Whether the connection can be used. `surplus` is told of bytes that belong to no response.
    pub(crate) fn is_quiet(&mut self, surplus: impl FnOnce()) -> bool {
        let idle = self.transport.look();
        if idle == Idle::Surplus {
            surplus();
        }
        idle == Idle::Quiet
    }
}

/// The place of an exchange at an endpoint: counted in flight, and holding a connection's permit.
#[derive(Debug)]
pub(crate) struct Lease {
    _in_flight: InFlight,
    pool: PoolPlace<Pooled>,
    permit: Option<ConnectionPermit>,
}

impl Lease {
    pub(crate) fn new(endpoint: &Endpoint<Pooled>, in_flight: InFlight, permit: ConnectionPermit) -> Self {
        Self { _in_flight: in_flight, pool: endpoint.pool().place(workers::current()), permit: Some(permit) }
    }

    /// Keeps the connection for a later exchange, at once or, where `hold` says so, after it has been quiet for a while.
    pub(crate) fn give_back(&mut self, transport: Transport, now: Mono, hold: Option<Hold>) {
        if let Some(permit) = self.permit.take() {
            let pooled = Pooled { transport, permit };
            drop(match hold {
                None => self.pool.put(pooled, now),
                Some(hold) => {
                    self.pool.hold(pooled, now, hold, |held| held.is_quiet(|| self.pool.note_surplus()))
                }
            });
        }
    }

    /// Notes that the endpoint sent bytes that belong to no response.
    pub(crate) fn note_surplus(&self) {
        self.pool.note_surplus();
    }
}
