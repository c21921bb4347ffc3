//! Affinity: requests that have a key in common go to the same endpoint, by weighted rendezvous hashing.
//!
//! Each endpoint has a score for each key, made of both and its weight, and the one with the highest serves it. So an
//! endpoint that comes or goes moves only the keys that it serves, all gateways of a fleet agree without talking to each
//! other, and while an endpoint is unavailable its keys are shared out among all others. Thaler and Ravishankar, "Using
//! name-based mappings to increase hit rates" (1998); the weights as in Schindelhauer and Schomaker, "Weighted distributed
//! hash tables" (2005).

/// What requests have in common that go to the same endpoint: the hash of a key.
///
/// It is the same in every process, so that gateways agree. Who chooses keys can therefore choose endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Affinity(u64);

impl Affinity {
    /// That of a key: FNV-1a of 64 bits, mixed.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        const BASIS: u64 = 0xCBF2_9CE4_8422_2325;
        const PRIME: u64 = 0x0000_0100_0000_01B3;
        let hash = key.iter().fold(BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
        Self(mix(hash))
    }

    /// The one of several that serves this key, each by its affinity and its weight, by its place; none where no weight is above
    /// 0. A change of weights moves keys only from those whose part of the sum shrinks to those whose part grows.
    pub fn choose(self, among: impl IntoIterator<Item = (Self, u32)>) -> Option<usize> {
        let weighted = among.into_iter().enumerate().filter(|(_, (_, weight))| *weight > 0);
        let scored = weighted.map(|(place, (one, weight))| (place, self.score(one, weight)));
        let best = scored.reduce(|best, other| if other.1 > best.1 { other } else { best });
        best.map(|(place, _)| place)
    }

    /// The score of an endpoint for this key, of which the highest counts: with scores `-weight / ln(random)`, each is the
    /// highest as often as its weight says.
    pub(crate) fn score(self, endpoint: Affinity, weight: u32) -> f64 {
        let random = mix(self.0 ^ endpoint.0) >> 12;
        // Between 0 and 1, and neither: 52 bits and a half are exact.
        let random = (random as f64 + 0.5) / (1_u64 << 52) as f64;
        -f64::from(weight) / random.ln()
    }
}

/// The last step of SplitMix64, which spreads what differs in few bits over all of them.
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_the_same_in_every_process() {
        // FNV-1a of "" and "foobar" is 0xcbf29ce484222325 and 0x85944171f73967e8.
        assert_eq!(Affinity::of(b""), Affinity(mix(0xCBF2_9CE4_8422_2325)));
        assert_eq!(Affinity::of(b"foobar"), Affinity(mix(0x8594_4171_F739_67E8)));
        assert_eq!(mix(0), 0);
        assert_eq!(mix(0x9E37_79B9_7F4A_7C15), 0xE220_A839_7B1D_CDAF, "SplitMix64 of the seed 0");
    }

    fn choices(weights: [u32; 3]) -> Vec<usize> {
        let names = ["orders", "orders-next", "orders-old"].map(|name| Affinity::of(name.as_bytes()));
        let among = || names.into_iter().zip(weights);
        (0..20_000_u32).map(|key| Affinity::of(&key.to_be_bytes()).choose(among()).unwrap()).collect()
    }

    #[test]
    fn keys_are_chosen_for_by_weight() {
        for weights in [[95, 5, 0], [1, 1, 1], [0, 3, 1], [0, 0, 7]] {
            let chosen = choices(weights);
            let sum: u32 = weights.iter().sum();
            for (place, weight) in weights.into_iter().enumerate() {
                let part = chosen.iter().filter(|one| **one == place).count() as f64 / chosen.len() as f64;
                let expected = f64::from(weight) / f64::from(sum);
                assert!((part - expected).abs() < 0.01, "{weights:?}: {place} has {part}");
                assert!(weight > 0 || part == 0.0);
            }
        }
        assert_eq!(Affinity::of(b"key").choose([(Affinity::of(b"a"), 0)]), None);
        assert_eq!(Affinity::of(b"key").choose([]), None);
    }

    #[test]
    fn a_change_of_weights_moves_only_what_it_has_to() {
        for (before, after, grows) in
            [([95, 5, 0], [90, 10, 0], 1), ([50, 50, 0], [50, 50, 10], 2), ([1, 1, 1], [1, 1, 0], 9)]
        {
            let moves = choices(before).into_iter().zip(choices(after)).filter(|(old, new)| old != new);
            let moves: Vec<_> = moves.collect();
            assert!(!moves.is_empty());
            for (old, new) in moves {
                assert!(new == grows || (grows == 9 && old == 2), "{before:?} {after:?}: {old} to {new}");
            }
        }
    }

    #[test]
    fn scores_are_positive_and_finite() {
        for key in 0..1_000_u32 {
            let score = Affinity::of(&key.to_be_bytes()).score(Affinity::of(b"h:1"), 1);
            assert!(score > 0.0 && score.is_finite());
        }
    }
}
