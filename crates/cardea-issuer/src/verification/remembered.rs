//! Secrets that were right a moment ago, under a keyed hash that dies with the process.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use cardea_clock::{Mono, Timestamp, Wall};
use cardea_guard::Bounded;

use super::keyed::Keyed;

/// What stands for a client and a secret. Only a process that has the key can make one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub(super) const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Of which version of its client a secret was right, and until when that is remembered.
struct Entry {
    version: u64,
    until: Mono,
    /// When the secret itself expires.
    expires_at: Option<Wall>,
}

/// Remembered secrets. A change of the client changes its version, and what is remembered of another one counts for
/// nothing.
pub(super) struct Remembered {
    keyed: Keyed,
    time: Duration,
    entries: Mutex<Bounded<Fingerprint, Entry>>,
}

impl Remembered {
    pub(super) fn new(key: &[u8; 32], time: Duration, entries_max: usize) -> Self {
        let capacity = if time.is_zero() { 0 } else { entries_max };
        Self { keyed: Keyed::new(key), time, entries: Mutex::new(Bounded::new(capacity)) }
    }

    /// Whether anything is remembered at all.
    pub(super) fn is_on(&self) -> bool {
        !self.time.is_zero()
    }

    pub(super) fn fingerprint(&self, id: &str, secret: &[u8]) -> Fingerprint {
        Fingerprint(self.keyed.hash(&[id.as_bytes(), secret]))
    }

    /// Of which version of its client this secret was right within the time, where it has not expired since.
    pub(super) fn version(&self, fingerprint: &Fingerprint, now: Timestamp) -> Option<u64> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = |entry: &&Entry| {
            now.mono < entry.until && entry.expires_at.is_none_or(|expires_at| now.wall < expires_at)
        };
        entries.value(fingerprint).filter(holds).map(|entry| entry.version)
    }

    /// Remembers a secret that was verified just now. Never called for a wrong one.
    pub(super) fn remember(
        &self,
        fingerprint: Fingerprint,
        version: u64,
        expires_at: Option<Wall>,
        now: Timestamp,
    ) {
        let entry = Entry { version, until: now.mono.saturating_add(self.time), expires_at };
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).insert(fingerprint, entry);
    }

    pub(super) fn len(&self) -> usize {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl fmt::Debug for Remembered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remembered").field("len", &self.len()).finish_non_exhaustive()
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
    fn no_two_different_inputs_have_one_fingerprint() {
        let memory = Remembered::new(&[1; 32], Duration::from_secs(60), 8);
        let known = memory.fingerprint("ab", b"c");
        assert!(known == memory.fingerprint("ab", b"c"));
        for (id, secret) in [("a", &b"bc"[..]), ("abc", b""), ("ab", b"d"), ("ab", b"")] {
            assert!(known != memory.fingerprint(id, secret), "{id}");
        }
        let other = Remembered::new(&[2; 32], Duration::from_secs(60), 8);
        assert!(known != other.fingerprint("ab", b"c"), "another process, another key");
    }

    #[test]
    fn a_secret_is_forgotten_in_time_and_never_outlives_itself() {
        let memory = Remembered::new(&[1; 32], Duration::from_secs(60), 8);
        let (forever, short) = (memory.fingerprint("a", b"x"), memory.fingerprint("b", b"x"));
        memory.remember(forever, 3, None, at(0));
        memory.remember(short, 4, Some(at(10).wall), at(0));
        assert_eq!((memory.version(&forever, at(59)), memory.version(&forever, at(60))), (Some(3), None));
        assert_eq!((memory.version(&short, at(9)), memory.version(&short, at(10))), (Some(4), None));
    }

    #[test]
    fn a_secret_is_remembered_of_the_version_of_its_client_that_it_was_right_for_last() {
        let memory = Remembered::new(&[1; 32], Duration::from_secs(60), 8);
        let fingerprint = memory.fingerprint("a", b"x");
        for version in [1, 2] {
            memory.remember(fingerprint, version, None, at(0));
            assert_eq!(memory.version(&fingerprint, at(1)), Some(version));
        }
        assert_eq!(memory.len(), 1);
    }

    #[test]
    fn a_time_of_nothing_remembers_nothing() {
        let memory = Remembered::new(&[1; 32], Duration::ZERO, 8);
        let fingerprint = memory.fingerprint("a", b"x");
        memory.remember(fingerprint, 1, None, at(0));
        assert_eq!(memory.version(&fingerprint, at(0)), None);
        assert_eq!(memory.len(), 0);
    }
}
