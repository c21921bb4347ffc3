//! Secrets that were right a moment ago, under a keyed hash that dies with the process.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use aws_lc_rs::hmac;
use cardea_clock::{Mono, Timestamp, Wall};

use super::bounded::Bounded;

/// What stands for a client, a version of it, and a secret. Only a process that has the key can make one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint([u8; 32]);

/// Until when a secret is remembered.
struct Entry {
    until: Mono,
    /// When the secret itself expires.
    expires_at: Option<Wall>,
}

/// Remembered secrets. A change of the client changes its version, and with it every fingerprint.
pub(super) struct Remembered {
    key: hmac::Key,
    time: Duration,
    entries: Mutex<Bounded<Fingerprint, Entry>>,
}

impl Remembered {
    pub(super) fn new(key: &[u8; 32], time: Duration, entries_max: usize) -> Self {
        let capacity = if time.is_zero() { 0 } else { entries_max };
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, key),
            time,
            entries: Mutex::new(Bounded::new(capacity)),
        }
    }

    /// Each part has its length before it, so that no two different ones read the same.
    pub(super) fn fingerprint(&self, id: &str, version: u64, secret: &[u8]) -> Fingerprint {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(b"remembered");
        for part in [id.as_bytes(), &version.to_be_bytes(), secret] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut bytes = [0; 32];
        bytes.copy_from_slice(context.sign().as_ref());
        Fingerprint(bytes)
    }

    /// Whether this secret was right within the time, and has not expired since.
    pub(super) fn holds(&self, fingerprint: &Fingerprint, now: Timestamp) -> bool {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.value(fingerprint).is_some_and(|entry| {
            now.mono < entry.until && entry.expires_at.is_none_or(|expires_at| now.wall < expires_at)
        })
    }

    /// Remembers a secret that was verified just now. Never called for a wrong one.
    pub(super) fn remember(&self, fingerprint: Fingerprint, expires_at: Option<Wall>, now: Timestamp) {
        let entry = Entry { until: now.mono.saturating_add(self.time), expires_at };
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
        let known = memory.fingerprint("ab", 1, b"c");
        assert!(known == memory.fingerprint("ab", 1, b"c"));
        for (id, version, secret) in [("a", 1, &b"bc"[..]), ("ab", 2, b"c"), ("ab", 1, b"d"), ("ab", 1, b"")]
        {
            assert!(known != memory.fingerprint(id, version, secret), "{id} {version}");
        }
        let other = Remembered::new(&[2; 32], Duration::from_secs(60), 8);
        assert!(known != other.fingerprint("ab", 1, b"c"), "another process, another key");
    }

    #[test]
    fn a_secret_is_forgotten_in_time_and_never_outlives_itself() {
        let memory = Remembered::new(&[1; 32], Duration::from_secs(60), 8);
        let (forever, short) = (memory.fingerprint("a", 1, b"x"), memory.fingerprint("b", 1, b"x"));
        memory.remember(forever, None, at(0));
        memory.remember(short, Some(at(10).wall), at(0));
        assert!(memory.holds(&forever, at(59)) && !memory.holds(&forever, at(60)));
        assert!(memory.holds(&short, at(9)) && !memory.holds(&short, at(10)));
    }

    #[test]
    fn a_time_of_nothing_remembers_nothing() {
        let memory = Remembered::new(&[1; 32], Duration::ZERO, 8);
        let fingerprint = memory.fingerprint("a", 1, b"x");
        memory.remember(fingerprint, None, at(0));
        assert!(!memory.holds(&fingerprint, at(0)));
        assert_eq!(memory.len(), 0);
    }
}
