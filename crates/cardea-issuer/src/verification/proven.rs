//! Proven secrets: secrets that were verified before from the same address prefix. Each has a failure budget of its own.
//!
//! The budget of a client and an address prefix is shared by everybody behind the prefix. Without this table, guesses from
//! a shared address would lock out the rightful client as soon as its secret leaves the verification cache. An entry grants
//! no access: the secret is hashed again, and the client is read again.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use cardea_clock::Mono;
use cardea_guard::Bounded;

use super::cache::Fingerprint;

/// The lifetime of an entry. It is longer than that of any token, so that a client that asks for a token whenever the last
/// one expires keeps its entry.
const KNOWN_FOR: Duration = Duration::from_secs(25 * 3_600);
/// The most clients. An entry takes up to 1.5 KB.
const CLIENTS_MAX: usize = 16_384;
/// The most entries of one client, so that a client that is used from many addresses evicts no other client.
const ADDRESSES_PER_CLIENT_MAX: usize = 16;

type Key = [u8; 16];

/// The proven secrets of all clients. Only verified secrets are inserted.
pub(super) struct ProvenSecrets {
    clients: Mutex<Bounded<Key, Vec<ProvenEntry>>>,
}

/// A secret that was verified from an address prefix.
struct ProvenEntry {
    pair: Key,
    fingerprint: Fingerprint,
    until: Mono,
}

impl ProvenSecrets {
    pub(super) fn new() -> Self {
        Self { clients: Mutex::new(Bounded::new(CLIENTS_MAX)) }
    }

    /// Whether this secret was verified for the pair of client and prefix recently.
    pub(super) fn contains(&self, client: &Key, pair: &Key, fingerprint: &Fingerprint, now: Mono) -> bool {
        let clients = self.clients();
        let same = |entry: &ProvenEntry| {
            entry.pair == *pair && entry.fingerprint == *fingerprint && now < entry.until
        };
        clients.value(client).is_some_and(|entries| entries.iter().any(same))
    }

    /// Adds a secret that was verified just now.
    pub(super) fn insert(&self, client: Key, pair: Key, fingerprint: Fingerprint, now: Mono) {
        let entry = ProvenEntry { pair, fingerprint, until: now.saturating_add(KNOWN_FOR) };
        let mut clients = self.clients();
        let Some(entries) = clients.value_mut(&client) else {
            clients.insert(client, vec![entry]);
            return;
        };
        // The first entry is the oldest: a secret that is verified again moves to the end.
        entries.retain(|known| now < known.until && (known.pair != pair || known.fingerprint != fingerprint));
        if entries.len() >= ADDRESSES_PER_CLIENT_MAX {
            entries.remove(0);
        }
        entries.push(entry);
    }

    /// Removes a secret that is no longer right.
    pub(super) fn remove(&self, client: &Key, fingerprint: &Fingerprint) {
        if let Some(entries) = self.clients().value_mut(client) {
            entries.retain(|known| known.fingerprint != *fingerprint);
        }
    }

    /// The number of clients.
    pub(super) fn len(&self) -> usize {
        self.clients().len()
    }

    fn clients(&self) -> MutexGuard<'_, Bounded<Key, Vec<ProvenEntry>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ProvenSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProvenSecrets").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::cache::VerificationCache, *};

    fn at(seconds: u64) -> Mono {
        Mono::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_proven_secret_is_known_for_a_day() {
        let cache = VerificationCache::new(&[1; 32], Duration::ZERO, 0);
        let (right, wrong) = (cache.fingerprint("a", b"right"), cache.fingerprint("a", b"wrong"));
        let proven = ProvenSecrets::new();
        proven.insert([1; 16], [2; 16], right, at(0));
        for (client, pair, fingerprint, second, expected) in [
            ([1; 16], [2; 16], right, 0, true),
            ([1; 16], [2; 16], right, 24 * 3_600, true),
            ([1; 16], [2; 16], right, 25 * 3_600, false),
            ([1; 16], [2; 16], wrong, 0, false),
            ([1; 16], [3; 16], right, 0, false),
            ([4; 16], [2; 16], right, 0, false),
        ] {
            assert_eq!(proven.contains(&client, &pair, &fingerprint, at(second)), expected, "{second}");
        }
        proven.remove(&[1; 16], &wrong);
        assert!(proven.contains(&[1; 16], &[2; 16], &right, at(1)));
        proven.remove(&[1; 16], &right);
        assert!(!proven.contains(&[1; 16], &[2; 16], &right, at(1)));
    }

    #[test]
    fn a_client_that_is_used_from_many_addresses_evicts_no_other_client() {
        let cache = VerificationCache::new(&[1; 32], Duration::ZERO, 0);
        let fingerprint = cache.fingerprint("a", b"right");
        let proven = ProvenSecrets::new();
        proven.insert([1; 16], [0; 16], fingerprint, at(0));
        for octet in 0..=255 {
            proven.insert([2; 16], [octet; 16], fingerprint, at(1));
            proven.insert([2; 16], [0; 16], fingerprint, at(1));
        }
        assert!(proven.contains(&[1; 16], &[0; 16], &fingerprint, at(2)));
        assert!(proven.contains(&[2; 16], &[0; 16], &fingerprint, at(2)), "what is used most stays");
        assert!(proven.contains(&[2; 16], &[255; 16], &fingerprint, at(2)));
        assert!(!proven.contains(&[2; 16], &[100; 16], &fingerprint, at(2)));
        assert_eq!(proven.len(), 2);
    }
}
