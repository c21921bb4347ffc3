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

/// When an administrator wants the next key to sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotateWhen {
    /// After it has been published for `key_publish_ahead`, so that every verifier knows it.
    Scheduled,
    /// At once, for a key that may have leaked. The key that is published ahead signs, if there is one: verifiers know
    /// it already. Otherwise a new key signs, and verifiers that cache the key set must fetch it again.
    Now,
}

/// The changes to the stored keys.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The keys that stay, with their removal times.
    pub(crate) keys: Vec<KeyRecord>,
    /// Whether the keys differ from the stored ones.
    pub(crate) changed: bool,
    /// When a new key is to be activated, if one must be created.
    pub(crate) create: Option<Wall>,
}

/// The index of the key that signs at `now`: the last that is active, or the first if the clock was set back to before
/// all of them. `None` only if there are no keys.
pub(crate) fn signing_index(activations: impl Iterator<Item = Wall>, now: Wall) -> Option<usize> {
    let mut signing = None;
    for (index, activates_at) in activations.enumerate() {
        if index == 0 || activates_at <= now {
            signing = Some(index);
        }
    }
    signing
}

/// The changes that the configuration requires at `now`, given keys in the order of activation. A key that is created
/// now is activated at `takes_over_at`, unless it is the first. Keys are removed by the time that is `confirmed`: a clock that is
/// ahead for a moment must not invalidate tokens.
pub(crate) fn plan(
    stored: &[KeyRecord],
    config: &AuthorizationServerConfig,
    takes_over_at: Wall,
    now: Wall,
    confirmed: Wall,
) -> Plan {
    let mut keys = stored.to_vec();
    let Some(signing) = signing_index(keys.iter().map(|key| key.activates_at), now) else {
        return Plan { keys, changed: false, create: Some(now) };
    };
    set_removals(&mut keys, config);
    // A key is removed only when it no longer signs and every token it signed has expired.
    let mut index = 0;
    keys.retain(|key| {
        index += 1;
        index > signing || key.remove_at.is_none_or(|remove_at| confirmed < remove_at)
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

/// Sets the removal time of each key that has a successor. An earlier removal time is never brought forward, so that a
/// shorter overlap doesn't invalidate tokens that were signed under a longer one.
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

/// When no key that exists at `now` is published any more: each has a successor by then, which has signed for the overlap.
pub(crate) fn keys_gone_at(config: &AuthorizationServerConfig, takes_over_at: Wall) -> Wall {
    takes_over_at.saturating_add(config.key_lifetime).saturating_add(config.key_overlap)
}

/// How long the keys may go unpublished before activations are delayed. Below it, the rest of `key_publish_ahead` still
/// exceeds the caching time of the key set.
pub(crate) fn unpublished_max(config: &AuthorizationServerConfig) -> Duration {
    config.key_publish_ahead / 8
}

/// Whether a key waits for longer than one that is created now. Then the clock was ahead when its activation was set, or
/// is behind now.
pub(crate) fn is_misdated(
    keys: &[KeyRecord],
    config: &AuthorizationServerConfig,
    takes_over_at: Wall,
) -> bool {
    let latest = takes_over_at.saturating_add(unpublished_max(config));
    keys.iter().any(|key| key.activates_at > latest)
}

/// Corrects the times of misdated keys as if they were created now, and those of their predecessors' removal. Verifiers
/// that cache the key set know them by then: see `takes_over_at`. Returns the corrected keys.
pub(crate) fn redate(
    keys: &mut [KeyRecord],
    config: &AuthorizationServerConfig,
    takes_over_at: Wall,
    now: Wall,
) -> Vec<KeyRecord> {
    let mut corrected = vec![];
    for index in 0..keys.len() {
        if !is_misdated(&keys[index..=index], config, takes_over_at) {
            continue;
        }
        let (earlier, later) = keys.split_at_mut(index);
        let (Some(key), previous) = (later.first_mut(), earlier.last_mut()) else { continue };
        let given = key.activates_at;
        // The first key signs in any case, and one that was created to sign at once has signed.
        if previous.is_none() || key.activates_at == key.created_at {
            (key.created_at, key.activates_at) = (now, now);
        } else {
            (key.created_at, key.activates_at) = (key.created_at.min(now), takes_over_at);
        }
        if let Some(previous) = previous {
            key.activates_at = key.activates_at.max(previous.activates_at);
            let sooner = given.saturating_since(key.activates_at);
            previous.remove_at = previous.remove_at.map(|remove_at| remove_at.saturating_sub(sooner));
        }
        corrected.push(key.clone());
    }
    set_removals(keys, config);
    corrected
}

/// Delays the activation of keys that were not published between `published_through` and `now`, so that each is
/// published for `key_publish_ahead` before it signs. Returns whether any was delayed.
///
/// A key that was created to sign at once is not delayed.
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

/// Whether the publication of the keys must be recorded: periodically while a key waits, and once when it signs, so
/// that it is never withheld again.
pub(crate) fn is_mark_due(
    keys: &[KeyRecord],
    marked: Option<Wall>,
    config: &AuthorizationServerConfig,
    now: Wall,
) -> bool {
    let Some(marked) = marked else { return keys.iter().any(|key| key.activates_at > key.created_at) };
    let is_late = now.saturating_since(marked) >= unpublished_max(config) / 4 || now < marked;
    keys.iter().any(|key| {
        let waits = key.activates_at > key.created_at && key.activates_at > marked.min(now);
        waits && (is_late || key.activates_at <= now)
    })
}

#[cfg(test)]
mod tests;
