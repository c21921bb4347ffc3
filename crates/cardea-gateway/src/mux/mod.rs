//! What the drivers of HTTP/2 connections have in common, whether clients or services are at the other end.
//!
//! One task, the driver, owns the socket. It passes received bytes to the codec, and what the codec makes of them to the streams.
//! Each stream is used by another task. All of them share a [`State`], which is locked for a moment at a time: they run on one
//! worker, so nobody waits for the lock.

mod content;
mod fault;
mod socket;
mod state;
mod turns;

pub(crate) use content::Content;
pub(crate) use fault::Fault;
pub(crate) use socket::{Received, poll_send, receive};
pub(crate) use state::{Closed, Entry, Locked, Side, State, StreamState};
pub(crate) use turns::OUTPUT_BYTES_MAX;

use std::time::Duration;

use cardea_clock::Mono;

/// The time of the codec.
pub(crate) const fn elapsed(now: Mono) -> Duration {
    Duration::from_nanos(now.nanos())
}

/// The time of a deadline of the codec.
pub(crate) fn deadline(elapsed: Option<Duration>) -> Mono {
    elapsed
        .map_or(Mono::MAX, |elapsed| Mono::from_nanos(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)))
}
