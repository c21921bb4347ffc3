//! What stands in for the secrets of a client that has none, so that its absence can't be timed.
//!
//! Which one it is depends on a keyed hash of the client's id alone, so an id costs the same each time. They are drawn
//! from what the clients of the registry have, in their proportions: an id that doesn't exist looks like one of them.

use std::fmt;

use arc_swap::ArcSwap;
use aws_lc_rs::hmac;
use cardea_kdf::stored::StoredSecret;
use cardea_store::SecretMix;

use crate::client_auth::FORMAT_SHA256;

pub(super) struct StandIns {
    key: hmac::Key,
    mix: ArcSwap<Vec<Share>>,
}

/// So many clients have secrets that cost the same.
struct Share {
    clients: u64,
    secrets: StandIn,
}

/// What stands in for the secrets of a client.
#[derive(Clone, Default)]
pub(super) struct StandIn {
    /// For those that must be hashed.
    pub(super) hashed: Vec<StoredSecret>,
    /// Whether there would be one that we generated too.
    pub(super) has_generated: bool,
}

impl StandIns {
    /// `key` is the registry's own, and stays the same from start to start.
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key), mix: ArcSwap::default() }
    }

    /// Takes over what the registry has now.
    pub(super) fn follow(&self, mix: &[SecretMix]) {
        let mut shares: Vec<(Vec<&str>, &SecretMix)> = mix
            .iter()
            .map(|share| {
                let mut formats: Vec<&str> = share.formats.iter().map(String::as_str).collect();
                formats.sort_unstable();
                (formats, share)
            })
            .collect();
        // In an order that a new share hardly disturbs.
        shares.sort_by(|one, other| one.0.cmp(&other.0));
        let share = |(formats, share): (Vec<&str>, &SecretMix)| {
            let has_generated = formats.contains(&FORMAT_SHA256);
            let slow = formats.into_iter().filter(|format| *format != FORMAT_SHA256);
            // An unknown format matches nothing and costs nothing.
            let hashed = slow.filter_map(|slow| StoredSecret::stand_in(slow).ok()).collect();
            Share { clients: share.clients, secrets: StandIn { hashed, has_generated } }
        };
        self.mix.store(std::sync::Arc::new(shares.into_iter().map(share).collect()));
    }

    /// What stands in for the secrets of that client.
    pub(super) fn of(&self, id: &str) -> StandIn {
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
        StandIn::default()
    }
}

impl fmt::Debug for StandIns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StandIns").field("shares", &self.mix.load().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(clients: u64, formats: &[&str]) -> SecretMix {
        SecretMix { clients, formats: formats.iter().map(|format| (*format).to_owned()).collect() }
    }

    fn cost(stand_ins: &StandIns, id: &str) -> String {
        let StandIn { hashed, has_generated } = stand_ins.of(id);
        let hashed = hashed.iter().map(StoredSecret::profile);
        has_generated
            .then(|| FORMAT_SHA256.to_owned())
            .into_iter()
            .chain(hashed)
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn ids_that_do_not_exist_are_spread_as_those_that_do() {
        let stand_ins = StandIns::new(&[5; 32]);
        assert_eq!(cost(&stand_ins, "nobody"), "", "an empty registry has nothing to hide behind");
        stand_ins.follow(&[
            share(700, &["sha256"]),
            share(200, &["pbkdf2-sha512;i=1000;l=64"]),
            share(100, &["bcrypt;c=4", "pbkdf2-sha512;i=1000;l=64"]),
        ]);
        let mut counts = std::collections::BTreeMap::new();
        for number in 0..1_000 {
            *counts.entry(cost(&stand_ins, &format!("client-{number}"))).or_insert(0) += 1;
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
            (StandIns::new(&[5; 32]), StandIns::new(&[5; 32]), StandIns::new(&[6; 32]));
        for stand_ins in [&one, &other, &foreign] {
            stand_ins.follow(&mix);
        }
        let costs =
            |stand_ins| (0..64).map(|number| cost(stand_ins, &number.to_string())).collect::<Vec<_>>();
        assert_eq!(costs(&one), costs(&one));
        assert_eq!(costs(&one), costs(&other));
        assert_ne!(costs(&one), costs(&foreign), "without the key nobody can tell");
    }
}
