//! How tokens that were issued already die: the server tells a sink, which the verifier asks.

use std::time::Duration;

use cardea_clock::Wall;
use cardea_store::{Revocation, RevocationState};

use crate::{config::CLOCK_SKEW_MAX, config::TOKEN_LIFETIME_MAX};

/// How long a revocation matters: until the last token that it concerns has expired for every verifier.
pub const REVOCATION_RETENTION: Duration =
    Duration::from_secs(TOKEN_LIFETIME_MAX.as_secs() + CLOCK_SKEW_MAX.as_secs());

/// Who is told which tokens of ours are no longer good. A call takes effect before it returns: the management
/// operation returns after it, and "disabled" then holds everywhere in this process.
///
/// A call says all that holds for its client and replaces what was said before; the same may be said again at any
/// time. What was said may be forgotten from `forget_after` on, because no token that it concerns is valid any more.
pub trait RevocationSink: Send + Sync {
    /// No token of this client is good, whenever it was issued.
    fn disabled(&self, client_id: &str, forget_after: Wall);

    /// The client is in use again. Its tokens with an `iat` at or before the whole second of
    /// `revoked_through` (that is, `iat <= revoked_through.unix_seconds()`) stay dead; every later one is
    /// good. The server never issues a token of that client with an `iat` in that second.
    fn enabled(&self, client_id: &str, revoked_through: Wall, forget_after: Wall);

    /// The client is gone: no token of it is good. Should a client of that id be created again, `enabled` says so.
    fn deleted(&self, client_id: &str, forget_after: Wall);
}

/// Tells a sink what became of a client.
pub(crate) fn tell(sink: &dyn RevocationSink, revocation: &Revocation) {
    let id = &revocation.client_id;
    match revocation.state {
        // Tokens whose requests were under way when the client was disabled may be a moment younger; the skew
        // covers them.
        RevocationState::Disabled(at) => sink.disabled(id, at.saturating_add(REVOCATION_RETENTION)),
        RevocationState::IssuedThrough(at) => sink.enabled(id, at, at.saturating_add(REVOCATION_RETENTION)),
        RevocationState::Deleted(at) => sink.deleted(id, at.saturating_add(REVOCATION_RETENTION)),
    }
}
