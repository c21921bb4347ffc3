//! When a signing key comes, takes over and goes: a pure function of the stored keys, the configuration and the time.
//!
//! ```text
//! key 1  published ─ signs ───────────────────────┐ stays published for the overlap ─┐ removed
//! key 2               published ─ publish-ahead ──┘ signs ──────────────── …
//! ```

use std::time::Duration;

use cardea_clock::Wall;
use cardea_store::KeyRecord;

use crate::AuthorizationServerConfig;

/// The most keys that are published at once.
pub(crate) const KEYS_MAX: usize = 16;

/// When an administrator wants the next key to take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotateWhen {
    /// After it has been published for `key_publish_ahead`, so that no verifier meets a key it doesn't know.
    Scheduled,
    /// At once: for a key that may have leaked. It is the key that is published ahead, where there is one, which
    /// verifiers know already; else a new one, and verifiers that cache the key set must fetch it again.
    Now,
}

/// What is to be done with the stored keys.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The keys that stay, with their removal times.
    pub(crate) keys: Vec<KeyRecord>,
    /// Whether they differ from what is stored.
    pub(crate) changed: bool,
    /// When a key that is to be made takes over, where one is to be made.
    pub(crate) create: Option<Wall>,
}

/// The index of the key that signs at `now`: the last that has taken over, or the first where the clock was
/// set back to before any of them. `None` only where there are no keys.
pub(crate) fn signing_index(activations: impl Iterator<Item = Wall>, now: Wall) -> Option<usize> {
    let mut signing = None;
    for (index, activates_at) in activations.enumerate() {
        if index == 0 || activates_at <= now {
            signing = Some(index);
        }
    }
    signing
}

/// What the configuration asks for at `now`, given keys in the order in which they take over. A key that is made now takes
/// over at `takes_over_at`, where it isn't the first.
pub(crate) fn plan(
    stored: &[KeyRecord],
    config: &AuthorizationServerConfig,
    takes_over_at: Wall,
    now: Wall,
) -> Plan {
    let mut keys = stored.to_vec();
    let Some(signing) = signing_index(keys.iter().map(|key| key.activates_at), now) else {
        return Plan { keys, changed: false, create: Some(now) };
    };
    set_removals(&mut keys, config);
    // Only keys that no longer sign go, and only when every token they signed has expired.
    let mut index = 0;
    keys.retain(|key| {
        index += 1;
        index > signing || key.remove_at.is_none_or(|remove_at| now < remove_at)
    });
    let newest = keys.last();
    let due = newest.is_some_and(|newest| {
        let pending = now < newest.activates_at;
        let signs_until = newest.activates_at.saturating_add(config.key_lifetime);
        let aged = now >= signs_until.saturating_sub(config.key_publish_ahead);
        !pending && (aged || newest.algorithm != config.algorithm)
    });
    let create = (due && keys.len() < KEYS_MAX).then_some(takes_over_at);
    Plan { changed: keys != stored, keys, create }
}

/// Gives each key that has a successor the time from which it is no longer needed. A time that was given stays at the
/// least, so that a shorter overlap never cuts the tokens that were signed under a longer one.
pub(crate) fn set_removals(keys: &mut [KeyRecord], config: &AuthorizationServerConfig) {
    for index in 1..keys.len() {
        let due = keys[index].activates_at.saturating_add(config.key_overlap);
        let given = keys[index - 1].remove_at;
        keys[index - 1].remove_at = Some(given.map_or(due, |given| given.max(due)));
    }
    if let Some(newest) = keys.last_mut() {
        newest.remove_at = None;
    }
}

/// How long nobody may have published the keys before that counts. Below it, what is left of `key_publish_ahead` is far above
/// what verifiers cache the key set for.
pub(crate) fn unpublished_max(config: &AuthorizationServerConfig) -> Duration {
    config.key_publish_ahead / 8
}

/// Lets keys that were published for less than `key_publish_ahead`, since nobody was there to publish them between
/// `published_through` and `now`, sign so much later. Returns whether there are any.
///
/// A key that was made to sign at once signs at once.
pub(crate) fn withhold(
    keys: &mut [KeyRecord],
    published_through: Wall,
    config: &AuthorizationServerConfig,
    now: Wall,
) -> bool {
    let mut withheld = false;
    for key in keys {
        let seen = published_through.max(key.created_at);
        let unseen = now.saturating_since(seen);
        if key.activates_at > seen && key.activates_at > key.created_at && unseen > unpublished_max(config) {
            key.activates_at = key.activates_at.saturating_add(unseen);
            withheld = true;
        }
    }
    withheld
}

/// Whether it has to be written down that the keys are published: now and then while one waits, and once it signs, so that
/// it is never withheld again.
pub(crate) fn is_mark_due(
    keys: &[KeyRecord],
    marked: Option<Wall>,
    config: &AuthorizationServerConfig,
    now: Wall,
) -> bool {
    let Some(marked) = marked else { return keys.iter().any(|key| key.activates_at > key.created_at) };
    let is_late = now.saturating_since(marked) >= unpublished_max(config) / 4 || now < marked;
    keys.iter().any(|key| {
        let waits = key.activates_at > key.created_at && key.activates_at > marked;
        waits && (is_late || key.activates_at <= now)
    })
}

#[cfg(test)]
mod tests;
