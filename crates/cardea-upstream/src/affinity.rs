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

    #[test]
    fn scores_are_positive_and_finite() {
        for key in 0..1_000_u32 {
            let score = Affinity::of(&key.to_be_bytes()).score(Affinity::of(b"h:1"), 1);
            assert!(score > 0.0 && score.is_finite());
        }
    }
}
