//! Dummy secrets, which are hashed for a client that doesn't exist or has no secret, so that its absence can't be timed.
//!
//! They depend only on a keyed hash of the client id, so an id has the same cost each time. They are chosen with the
//! distribution of the stored secrets, so an unknown id costs what a client of the registry would.

use std::fmt;

use arc_swap::ArcSwap;
use aws_lc_rs::hmac;
use cardea_kdf::stored::StoredSecret;
use cardea_store::SecretMix;

use crate::client_auth::FORMAT_SHA256;

/// The dummy secrets of all client ids.
pub(super) struct DummySecrets {
    key: hmac::Key,
    mix: ArcSwap<Vec<Share>>,
}

/// The number of clients whose secrets have the same formats.
struct Share {
    clients: u64,
    secrets: DummySecret,
}

/// The dummy secret of one client id.
#[derive(Clone, Default)]
pub(super) struct DummySecret {
    /// The secrets to be hashed, which nothing matches.
    pub(super) hashed: Vec<StoredSecret>,
    /// Whether the client would also have a generated secret.
    pub(super) has_generated: bool,
}

impl DummySecrets {
    /// `key` belongs to the registry and is the same after a restart.
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key), mix: ArcSwap::default() }
    }

    /// Sets the distribution of the stored secrets.
    pub(super) fn set_mix(&self, mix: &[SecretMix]) {
        let mut shares: Vec<(Vec<&str>, &SecretMix)> = mix
            .iter()
            .map(|share| {
                let mut formats: Vec<&str> = share.formats.iter().map(String::as_str).collect();
                formats.sort_unstable();
                (formats, share)
            })
            .collect();
        // Sorted, so that a new share moves few ids to another one.
        shares.sort_by(|one, other| one.0.cmp(&other.0));
        let share = |(formats, share): (Vec<&str>, &SecretMix)| {
            let has_generated = formats.contains(&FORMAT_SHA256);
            let slow = formats.into_iter().filter(|format| *format != FORMAT_SHA256);
            // An unknown format matches nothing and costs nothing.
            let hashed = slow.filter_map(|slow| StoredSecret::dummy(slow).ok()).collect();
            Share { clients: share.clients, secrets: DummySecret { hashed, has_generated } }
        };
        self.mix.store(std::sync::Arc::new(shares.into_iter().map(share).collect()));
    }

    /// The dummy secret of that client id.
    pub(super) fn of(&self, id: &str) -> DummySecret {
        let mix = self.mix.load();
        let total: u64 = mix.iter().map(|share| share.clients).sum();
        let tag = hmac::sign(&self.key, id.as_bytes());
        let mut word = [0; 8];
        word.copy_from_slice(&tag.as_ref()[..8]);
        // The product is below `total` · 2⁶⁴.
        let mut place = (u128::from(u64::from_be_bytes(word)) * u128::from(total)) >> 64;
        for share in mix.iter() {
            let clients = u128::from(share.clients);
            if place < clients {
                return share.secrets.clone();
            }
            place -= clients;
        }
        DummySecret::default()
    }
}

impl fmt::Debug for DummySecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DummySecrets").field("shares", &self.mix.load().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(clients: u64, formats: &[&str]) -> SecretMix {
        SecretMix { clients, formats: formats.iter().map(|format| (*format).to_owned()).collect() }
    }

    fn cost(dummies: &DummySecrets, id: &str) -> String {
        let DummySecret { hashed, has_generated } = dummies.of(id);
        let hashed = hashed.iter().map(StoredSecret::profile);
        has_generated
            .then(|| FORMAT_SHA256.to_owned())
            .into_iter()
            .chain(hashed)
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn unknown_ids_have_the_distribution_of_stored_secrets() {
        let dummies = DummySecrets::new(&[5; 32]);
        assert_eq!(cost(&dummies, "nobody"), "", "an empty registry has nothing to hide behind");
        dummies.set_mix(&[
            share(700, &["sha256"]),
            share(200, &["pbkdf2-sha512;i=1000;l=64"]),
            share(100, &["bcrypt;c=4", "pbkdf2-sha512;i=1000;l=64"]),
        ]);
        let mut counts = std::collections::BTreeMap::new();
        for number in 0..1_000 {
            *counts.entry(cost(&dummies, &format!("client-{number}"))).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 3);
        for (formats, expected) in [
            ("sha256", 700),
            ("pbkdf2-sha512;i=1000;l=64", 200),
            ("bcrypt;c=4 pbkdf2-sha512;i=1000;l=64", 100),
        ] {
            let count: i32 = counts[formats];
            assert!((count - expected).abs() < 60, "{formats}: {count}");
        }
    }

    #[test]
    fn an_id_costs_the_same_each_time_and_after_a_restart() {
        let mix = [share(1, &["sha256"]), share(1, &["pbkdf2-sha256;i=1000;l=32"])];
        let (one, other, foreign) =
            (DummySecrets::new(&[5; 32]), DummySecrets::new(&[5; 32]), DummySecrets::new(&[6; 32]));
        for dummies in [&one, &other, &foreign] {
            dummies.set_mix(&mix);
        }
        let costs = |dummies| (0..64).map(|number| cost(dummies, &number.to_string())).collect::<Vec<_>>();
        assert_eq!(costs(&one), costs(&one));
        assert_eq!(costs(&one), costs(&other));
        assert_ne!(costs(&one), costs(&foreign), "without the key nobody can tell");
    }
}
