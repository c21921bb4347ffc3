//! What is known of earlier verifications: secrets that were verified, and clients that only a slow hash can authenticate.
//!
//! Keys are HMACs under a key that exists only in this process. Without it nobody can make two inputs share an entry, and
//! the tables hold no secret.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use aws_lc_rs::hmac;
use cardea_clock::{Mono, Timestamp, Wall};
use cardea_guard::Bounded;

/// How long a client is known to need a slow hash.
///
/// A secret that another process generates meanwhile for such a client is answered 503 for this long at the most, and only
/// while the queue has no place for the attempt.
const SLOW_HASH_FOR: Duration = Duration::from_secs(10);
/// The most clients that are known to need a slow hash. An entry takes 60 bytes.
const SLOW_HASH_CLIENTS_MAX: usize = 65_536;

/// HMAC-SHA-256 under a key that exists only in this process.
pub(super) struct KeyedHash(hmac::Key);

impl KeyedHash {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// Hashes the parts in their order. Each is preceded by its length, so that two different lists never have the same
    /// encoding.
    pub(super) fn hash(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut hash = [0; 32];
        hash.copy_from_slice(context.sign().as_ref());
        hash
    }

    /// The first half of the hash, for tables with many entries.
    pub(super) fn short(&self, parts: &[&[u8]]) -> [u8; 16] {
        let mut short = [0; 16];
        short.copy_from_slice(&self.hash(parts)[..16]);
        short
    }
}

/// The keyed hash of a client id and a secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub(super) const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// A verified secret.
struct Entry {
    /// The version of the client that the secret was verified against.
    client_version: u64,
    cached_until: Mono,
    /// When the secret itself expires.
    expires_at: Option<Wall>,
}

/// Secrets that were verified recently.
///
/// A change of a client changes its version, and an entry of another version has no effect.
pub(super) struct VerificationCache {
    keyed: KeyedHash,
    lifetime: Duration,
    entries: Mutex<Bounded<Fingerprint, Entry>>,
}

impl VerificationCache {
    /// A cache whose entries last for `lifetime`; zero disables it.
    pub(super) fn new(key: &[u8; 32], lifetime: Duration, entries_max: usize) -> Self {
        let capacity = if lifetime.is_zero() { 0 } else { entries_max };
        Self { keyed: KeyedHash::new(key), lifetime, entries: Mutex::new(Bounded::new(capacity)) }
    }

    pub(super) fn is_enabled(&self) -> bool {
        !self.lifetime.is_zero()
    }

    pub(super) fn fingerprint(&self, id: &str, secret: &[u8]) -> Fingerprint {
        Fingerprint(self.keyed.hash(&[id.as_bytes(), secret]))
    }

    /// The version of the client that this secret was verified against, if the entry and the secret are still valid.
    pub(super) fn client_version(&self, fingerprint: &Fingerprint, now: Timestamp) -> Option<u64> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let is_valid = |entry: &&Entry| {
            now.mono < entry.cached_until && entry.expires_at.is_none_or(|expires_at| now.wall < expires_at)
        };
        entries.value(fingerprint).filter(is_valid).map(|entry| entry.client_version)
    }

    /// Adds a secret that was verified just now. Must never be called for a wrong one.
    pub(super) fn insert(
        &self,
        fingerprint: Fingerprint,
        client_version: u64,
        expires_at: Option<Wall>,
        now: Timestamp,
    ) {
        let entry =
            Entry { client_version, cached_until: now.mono.saturating_add(self.lifetime), expires_at };
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).insert(fingerprint, entry);
    }

    pub(super) fn len(&self) -> usize {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl fmt::Debug for VerificationCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerificationCache").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Clients that were read recently and have no generated secret, so that only a slow hash can authenticate them.
///
/// While the queue is full, an attempt on such a client is refused before the store is read: a flood of guesses causes no
/// reads. A generated secret needs no slow hash and is verified though the queue is full. A client that doesn't exist is
/// judged by its dummy secrets.
pub(super) struct SlowHashClients {
    keyed: KeyedHash,
    /// Until when each client is known, by the keyed hash of its id.
    until: Mutex<Bounded<[u8; 16], Mono>>,
}

impl SlowHashClients {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self { keyed: KeyedHash::new(key), until: Mutex::new(Bounded::new(SLOW_HASH_CLIENTS_MAX)) }
    }

    pub(super) fn contains(&self, id: &str, now: Mono) -> bool {
        let key = self.keyed.short(&[id.as_bytes()]);
        self.until().value(&key).is_some_and(|until| now < *until)
    }

    /// Adds a client that was read just now.
    pub(super) fn insert(&self, id: &str, now: Mono) {
        let key = self.keyed.short(&[id.as_bytes()]);
        self.until().insert(key, now.saturating_add(SLOW_HASH_FOR));
    }

    /// Removes all entries, because clients have changed.
    pub(super) fn clear(&self) {
        self.until().clear();
    }

    fn until(&self) -> MutexGuard<'_, Bounded<[u8; 16], Mono>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SlowHashClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlowHashClients").field("len", &self.until().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        let wall = Wall::from_unix_seconds(1_000).saturating_add(Duration::from_secs(seconds));
        Timestamp { wall, mono: Mono::from_nanos(seconds * 1_000_000_000) }
    }

    #[test]
    fn different_inputs_have_different_fingerprints() {
        let cache = VerificationCache::new(&[1; 32], Duration::from_secs(60), 8);
        let known = cache.fingerprint("ab", b"c");
        assert!(known == cache.fingerprint("ab", b"c"));
        for (id, secret) in [("a", &b"bc"[..]), ("abc", b""), ("ab", b"d"), ("ab", b"")] {
            assert!(known != cache.fingerprint(id, secret), "{id}");
        }
        let other = VerificationCache::new(&[2; 32], Duration::from_secs(60), 8);
        assert!(known != other.fingerprint("ab", b"c"), "another process, another key");
    }

    #[test]
    fn an_entry_expires_and_never_outlives_its_secret() {
        let cache = VerificationCache::new(&[1; 32], Duration::from_secs(60), 8);
        let (forever, short) = (cache.fingerprint("a", b"x"), cache.fingerprint("b", b"x"));
        cache.insert(forever, 3, None, at(0));
        cache.insert(short, 4, Some(at(10).wall), at(0));
        assert_eq!(
            (cache.client_version(&forever, at(59)), cache.client_version(&forever, at(60))),
            (Some(3), None)
        );
        assert_eq!(
            (cache.client_version(&short, at(9)), cache.client_version(&short, at(10))),
            (Some(4), None)
        );
    }

    #[test]
    fn an_entry_has_the_client_version_of_the_last_verification() {
        let cache = VerificationCache::new(&[1; 32], Duration::from_secs(60), 8);
        let fingerprint = cache.fingerprint("a", b"x");
        for version in [1, 2] {
            cache.insert(fingerprint, version, None, at(0));
            assert_eq!(cache.client_version(&fingerprint, at(1)), Some(version));
        }
        assert_eq!(cache.len(), 1);
    }

    #[test]
    fn a_lifetime_of_zero_caches_nothing() {
        let cache = VerificationCache::new(&[1; 32], Duration::ZERO, 8);
        let fingerprint = cache.fingerprint("a", b"x");
        cache.insert(fingerprint, 1, None, at(0));
        assert_eq!(cache.client_version(&fingerprint, at(0)), None);
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn a_client_is_known_to_need_a_slow_hash_until_the_entry_expires_or_clients_change() {
        let known = SlowHashClients::new(&[1; 32]);
        let at = |seconds: u64| Mono::from_nanos(seconds * 1_000_000_000);
        assert!(!known.contains("a", at(1)));
        known.insert("a", at(1));
        assert!(known.contains("a", at(10)) && !known.contains("b", at(10)));
        assert!(!known.contains("a", at(11)));
        known.insert("a", at(11));
        assert!(known.contains("a", at(12)));
        known.clear();
        assert!(!known.contains("a", at(12)));
    }
}
