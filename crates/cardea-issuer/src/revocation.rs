//! Revocation of issued tokens: the server notifies a sink, which the token verifier asks.

use std::time::Duration;

use cardea_clock::Wall;
use cardea_store::{Revocation, RevocationState};

use crate::{config::CLOCK_SKEW_MAX, config::TOKEN_LIFETIME_MAX};

/// How long a revocation is kept: until the last affected token has expired for every verifier.
pub const REVOCATION_RETENTION: Duration =
    Duration::from_secs(TOKEN_LIFETIME_MAX.as_secs() + CLOCK_SKEW_MAX.as_secs());

/// Receives revocations of issued tokens. A call takes effect before it returns, and the management operation returns
/// after it: then "disabled" holds everywhere in this process.
///
/// A call states everything that holds for its client and replaces earlier calls. It may be repeated at any time. The
/// sink may forget it from `forget_after` on, because then no affected token is valid any more.
pub trait RevocationSink: Send + Sync {
    /// No token of this client is valid, whenever it was issued.
    fn disabled(&self, client_id: &str, forget_after: Wall);

    /// The client is enabled again. Its tokens with an `iat` at or before the whole second of `revoked_through` (that
    /// is, `iat <= revoked_through.unix_seconds()`) stay revoked; later ones are valid. The server never issues a token
    /// of that client with an `iat` in that second.
    fn enabled(&self, client_id: &str, revoked_through: Wall, forget_after: Wall);

    /// The client is deleted: none of its tokens is valid. If a client with that id is created again, `enabled` is
    /// called.
    fn deleted(&self, client_id: &str, forget_after: Wall);
}

/// Through when the tokens of a client are revoked that is enabled at `now`. Earlier revocations still count, which guards
/// against a clock that was set back. One beyond `keys_gone_at` was made while the clock was ahead. It can be dropped: a
/// token that was issued before it, and after `now`, becomes valid when no key that could have signed it is published.
pub(crate) fn revoked_through(
    earlier: impl IntoIterator<Item = Wall>,
    keys_gone_at: Wall,
    now: Wall,
) -> Wall {
    earlier.into_iter().filter(|earlier| *earlier <= keys_gone_at).fold(now, Wall::max)
}

/// Notifies a sink of the state of a client.
pub(crate) fn tell(sink: &dyn RevocationSink, revocation: &Revocation) {
    let id = &revocation.client_id;
    match revocation.state {
        // Tokens of requests that ran when the client was disabled may be issued a moment later; the skew covers them.
        RevocationState::Disabled(at) => sink.disabled(id, at.saturating_add(REVOCATION_RETENTION)),
        RevocationState::IssuedThrough(at) => sink.enabled(id, at, at.saturating_add(REVOCATION_RETENTION)),
        RevocationState::Deleted(at) => sink.deleted(id, at.saturating_add(REVOCATION_RETENTION)),
    }
}
