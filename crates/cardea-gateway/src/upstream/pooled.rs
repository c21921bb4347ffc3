//! Connections without an exchange, in the pools of endpoints.

use std::sync::Arc;

use cardea_clock::Mono;
use cardea_upstream::Endpoint;

use super::{Connection, h1, h2};
use crate::workers;

/// A connection with what must be given up together with it.
#[derive(Debug)]
pub struct Pooled(Kept);

#[derive(Debug)]
enum Kept {
    Http1(h1::Kept),
    Http2(h2::Kept),
}

impl Pooled {
    pub(super) const fn http1(kept: h1::Kept) -> Self {
        Self(Kept::Http1(kept))
    }

    pub(super) const fn http2(kept: h2::Kept) -> Self {
        Self(Kept::Http2(kept))
    }

    /// Whether the connection can be used. `surplus` is told of bytes that belong to no response.
    pub(super) fn is_usable(&mut self, surplus: impl FnOnce()) -> bool {
        match &mut self.0 {
            Kept::Http1(kept) => kept.is_quiet(surplus),
            Kept::Http2(kept) => kept.is_usable(),
        }
    }
}

/// The connection that is best used again.
pub(super) fn take(endpoint: &Arc<Endpoint<Pooled>>, now: Mono) -> Option<Connection> {
    let pool = endpoint.pool();
    let found = pool.take(workers::current(), now, |pooled| pooled.is_usable(|| pool.note_surplus()))?;
    match found.connection.0 {
        Kept::Http1(kept) => {
            h1::Connection::resume(endpoint, kept, found.usage, found.foreign).map(Connection::Http1)
        }
        Kept::Http2(kept) => h2::Connection::resume(kept).map(Connection::Http2),
    }
}
