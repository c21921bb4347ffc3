//! Connections to endpoints that carry one exchange after the other.

use cardea_clock::Mono;
use cardea_http::h1::KeepAlive;
use cardea_upstream::{ConnectionPermit, Endpoint, Hold, PoolPlace, Usage};

use crate::{
    transport::{Idle, Transport},
    upstream::Pooled,
    workers,
};

/// A connection without an exchange, with what must be given up together with it.
#[derive(Debug)]
pub(crate) struct Kept {
    transport: Transport,
    /// The place among the endpoint's connections.
    permit: ConnectionPermit,
}

impl Kept {
    /// Whether the connection can be used. `surplus` is told of bytes that belong to no response.
    pub(in crate::upstream) fn is_quiet(&mut self, surplus: impl FnOnce()) -> bool {
        let idle = self.transport.look();
        if idle == Idle::Surplus {
            surplus();
        }
        idle == Idle::Quiet
    }
}

/// A connection that carries an exchange, and its place in the pool of its endpoint.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) transport: Transport,
    permit: ConnectionPermit,
    pool: PoolPlace<Pooled>,
}

impl Connection {
    /// One that was made now.
    pub(crate) fn new(
        endpoint: &Endpoint<Pooled>,
        transport: Transport,
        permit: ConnectionPermit,
        now: Mono,
    ) -> Self {
        Self { transport, permit, pool: endpoint.pool().place(workers::current(), Usage::new(now)) }
    }

    /// One that was kept, by another worker if it is `foreign`.
    pub(in crate::upstream) fn resume(
        endpoint: &Endpoint<Pooled>,
        kept: Kept,
        usage: Usage,
        is_foreign: bool,
    ) -> Option<Self> {
        let Kept { transport, permit } = kept;
        // One that can't be moved is as good as none.
        let transport = if is_foreign { transport.moved_here().ok()? } else { transport };
        Some(Self { transport, permit, pool: endpoint.pool().place(workers::current(), usage) })
    }

    /// Keeps the connection for a later exchange, at once or, where `hold` says so, after it has been quiet for a while. With
    /// its last response, the endpoint made this `offer`.
    pub(super) fn give_back(self, now: Mono, hold: Option<Hold>, offer: KeepAlive) {
        let Self { transport, permit, mut pool } = self;
        pool.count(offer);
        let pooled = Pooled::http1(Kept { transport, permit });
        drop(match hold {
            None => pool.put(pooled, now),
            Some(hold) => pool.hold(pooled, now, hold, |held| held.is_usable(|| pool.note_surplus())),
        });
    }

    /// Notes that the endpoint sent bytes that belong to no response.
    pub(super) fn note_surplus(&self) {
        self.pool.note_surplus();
    }

    /// The connection for something else than exchanges.
    pub(super) fn into_parts(self) -> (Transport, ConnectionPermit) {
        (self.transport, self.permit)
    }
}
