//! Clients of which nothing but a hash lets anybody in, so that an attempt on them that would find no place is refused
//! before the store is read.
//!
//! Who guesses makes work by each attempt that is refused too. Reading the client is saved where it was read a moment ago and had no secret that we generated, which needs no hash and would get in though the queue
//! is full. A client that doesn't exist is known by what stands in for its secrets, as one that does.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use cardea_clock::Mono;
use cardea_guard::Bounded;

use super::keyed::Keyed;

/// How long it is known. A secret that another process generates meanwhile for a client that had none is answered 503 for so
/// long at the most, and only while there is no place in the queue for whoever presents it.
const KNOWN_FOR: Duration = Duration::from_secs(10);
/// The most clients. One takes 60 bytes.
const ENTRIES_MAX: usize = 65_536;

/// Clients by a keyed hash of their ids, with until when it is known.
pub(super) struct HashNeeded {
    keyed: Keyed,
    until: Mutex<Bounded<[u8; 16], Mono>>,
}

impl HashNeeded {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self { keyed: Keyed::new(key), until: Mutex::new(Bounded::new(ENTRIES_MAX)) }
    }

    /// Whether the client was read within the time and had nothing but secrets that are hashed.
    pub(super) fn holds(&self, id: &str, now: Mono) -> bool {
        let key = self.keyed.short(&[id.as_bytes()]);
        self.until().value(&key).is_some_and(|until| now < *until)
    }

    /// The client was read just now and had nothing else.
    pub(super) fn learn(&self, id: &str, now: Mono) {
        let key = self.keyed.short(&[id.as_bytes()]);
        self.until().insert(key, now.saturating_add(KNOWN_FOR));
    }

    /// Clients have changed.
    pub(super) fn forget(&self) {
        self.until().clear();
    }

    fn until(&self) -> MutexGuard<'_, Bounded<[u8; 16], Mono>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for HashNeeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashNeeded").field("len", &self.until().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_of_a_client_for_a_while_or_until_something_changes() {
        let known = HashNeeded::new(&[1; 32]);
        let at = |seconds: u64| Mono::from_nanos(seconds * 1_000_000_000);
        assert!(!known.holds("a", at(1)));
        known.learn("a", at(1));
        assert!(known.holds("a", at(10)) && !known.holds("b", at(10)));
        assert!(!known.holds("a", at(11)));
        known.learn("a", at(11));
        assert!(known.holds("a", at(12)));
        known.forget();
        assert!(!known.holds("a", at(12)));
    }
}
