//! Secrets that were right before, from where they were right: they have a budget of failures of their own.
//!
//! The budget of a pair of client and address prefix is shared by all who share the address. Without this, a neighbour
//! who guesses would lock out whoever has the right secret, as soon as that is no longer remembered. What is kept lets
//! nobody in: the secret is hashed again, and its client read again.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use cardea_clock::Mono;
use cardea_guard::Bounded;

use super::remembered::Fingerprint;

/// How long it is known after it was last right: longer than any token lives, so that who asks for a token whenever the
/// last one expires is known all the time.
const KNOWN_FOR: Duration = Duration::from_secs(25 * 3_600);
/// The most clients. One takes up to 1.5 KB.
const CLIENTS_MAX: usize = 16_384;
/// The most places of one client, so that one that is used from everywhere makes no other one forgotten.
const PLACES_MAX: usize = 16;

type Key = [u8; 16];

/// Nothing gets in here but what was right.
pub(super) struct Proven {
    clients: Mutex<Bounded<Key, Vec<Place>>>,
}

/// Where a secret was right.
struct Place {
    pair: Key,
    fingerprint: Fingerprint,
    until: Mono,
}

impl Proven {
    pub(super) fn new() -> Self {
        Self { clients: Mutex::new(Bounded::new(CLIENTS_MAX)) }
    }

    /// Whether this secret of the client was right from there within the time.
    pub(super) fn holds(&self, client: &Key, pair: &Key, fingerprint: &Fingerprint, now: Mono) -> bool {
        let clients = self.clients();
        let same =
            |place: &Place| place.pair == *pair && place.fingerprint == *fingerprint && now < place.until;
        clients.value(client).is_some_and(|places| places.iter().any(same))
    }

    /// It was right just now.
    pub(super) fn learn(&self, client: Key, pair: Key, fingerprint: Fingerprint, now: Mono) {
        let place = Place { pair, fingerprint, until: now.saturating_add(KNOWN_FOR) };
        let mut clients = self.clients();
        let Some(places) = clients.value_mut(&client) else {
            clients.insert(client, vec![place]);
            return;
        };
        // The oldest goes first, which is the first one: what was right again moves to the end.
        places.retain(|known| now < known.until && (known.pair != pair || known.fingerprint != fingerprint));
        if places.len() >= PLACES_MAX {
            places.remove(0);
        }
        places.push(place);
    }

    /// It is right no more.
    pub(super) fn forget(&self, client: &Key, fingerprint: &Fingerprint) {
        if let Some(places) = self.clients().value_mut(client) {
            places.retain(|known| known.fingerprint != *fingerprint);
        }
    }

    /// How many clients.
    pub(super) fn len(&self) -> usize {
        self.clients().len()
    }

    fn clients(&self) -> MutexGuard<'_, Bounded<Key, Vec<Place>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Proven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proven").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::remembered::Remembered, *};

    fn at(seconds: u64) -> Mono {
        Mono::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_secret_is_known_where_it_was_right_for_a_day() {
        let memory = Remembered::new(&[1; 32], Duration::ZERO, 0);
        let (right, wrong) = (memory.fingerprint("a", b"right"), memory.fingerprint("a", b"wrong"));
        let proven = Proven::new();
        proven.learn([1; 16], [2; 16], right, at(0));
        for (client, pair, fingerprint, second, expected) in [
            ([1; 16], [2; 16], right, 0, true),
            ([1; 16], [2; 16], right, 24 * 3_600, true),
            ([1; 16], [2; 16], right, 25 * 3_600, false),
            ([1; 16], [2; 16], wrong, 0, false),
            ([1; 16], [3; 16], right, 0, false),
            ([4; 16], [2; 16], right, 0, false),
        ] {
            assert_eq!(proven.holds(&client, &pair, &fingerprint, at(second)), expected, "{second}");
        }
        proven.forget(&[1; 16], &wrong);
        assert!(proven.holds(&[1; 16], &[2; 16], &right, at(1)));
        proven.forget(&[1; 16], &right);
        assert!(!proven.holds(&[1; 16], &[2; 16], &right, at(1)));
    }

    #[test]
    fn a_client_that_is_used_from_everywhere_makes_no_other_one_forgotten() {
        let memory = Remembered::new(&[1; 32], Duration::ZERO, 0);
        let fingerprint = memory.fingerprint("a", b"right");
        let proven = Proven::new();
        proven.learn([1; 16], [0; 16], fingerprint, at(0));
        for place in 0..=255 {
            proven.learn([2; 16], [place; 16], fingerprint, at(1));
            proven.learn([2; 16], [0; 16], fingerprint, at(1));
        }
        assert!(proven.holds(&[1; 16], &[0; 16], &fingerprint, at(2)));
        assert!(proven.holds(&[2; 16], &[0; 16], &fingerprint, at(2)), "what is used most stays");
        assert!(proven.holds(&[2; 16], &[255; 16], &fingerprint, at(2)));
        assert!(!proven.holds(&[2; 16], &[100; 16], &fingerprint, at(2)));
        assert_eq!(proven.len(), 2);
    }
}
