//! SHA-1 and SHA-256 with the processor's SHA instructions: one job, or several interleaved, because their latency
//! exceeds their throughput.
#![allow(unsafe_code, reason = "instructions that not every processor has; each entry takes a proof")]

use std::arch::x86_64::*;
use std::array::from_fn;

use super::lanes::Chain;
use crate::hash::{Hash, K256, Sha1, Sha256, State, sixteen};

/// Proves that this processor has the SHA instructions, SSSE3 and SSE4.1.
#[derive(Clone, Copy)]
pub(super) struct ShaNi(());

impl ShaNi {
    /// Detects the instructions.
    pub(super) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("sha")
            && is_x86_feature_detected!("ssse3")
            && is_x86_feature_detected!("sse4.1"))
        .then_some(Self(()))
    }

    /// Iterates chains, `WAYS` at a time.
    pub(super) fn sha256<const WAYS: usize>(self, chains: &mut [Chain<Sha256>], iterations: u32) {
        for group in in_groups::<_, WAYS>(chains) {
            match group {
                // SAFETY: `self` proves that the processor has the instructions.
                Group::Whole(chains) => unsafe { sha256_chains(chains, iterations) },
                // SAFETY: as above.
                Group::One(chain) => unsafe { sha256_chains(chain, iterations) },
            }
        }
    }

    /// Iterates chains, `WAYS` at a time.
    pub(super) fn sha1<const WAYS: usize>(self, chains: &mut [Chain<Sha1>], iterations: u32) {
        for group in in_groups::<_, WAYS>(chains) {
            match group {
                // SAFETY: `self` proves that the processor has the instructions.
                Group::Whole(chains) => unsafe { sha1_chains(chains, iterations) },
                // SAFETY: as above.
                Group::One(chain) => unsafe { sha1_chains(chain, iterations) },
            }
        }
    }
}

/// Chains that run interleaved, or a remaining one.
enum Group<'a, H: Hash, const WAYS: usize> {
    Whole(&'a mut [Chain<H>; WAYS]),
    One(&'a mut [Chain<H>; 1]),
}

fn in_groups<H: Hash, const WAYS: usize>(
    chains: &mut [Chain<H>],
) -> impl Iterator<Item = Group<'_, H, WAYS>> {
    let (whole, rest) = chains.as_chunks_mut::<WAYS>();
    let (single, _) = rest.as_chunks_mut::<1>();
    whole.iter_mut().map(Group::Whole).chain(single.iter_mut().map(Group::One))
}

/// Loads words into a register, the first into the lowest lane.
#[target_feature(enable = "sse2")]
fn register(words: [u32; 4]) -> __m128i {
    let [a, b, c, d] = words.map(u32::cast_signed);
    _mm_setr_epi32(a, b, c, d)
}

/// The reverse of [`register`].
#[target_feature(enable = "sse2")]
fn words(register: __m128i) -> [u32; 4] {
    let mut words = [0_u32; 4];
    // SAFETY: writes sixteen bytes, aligned or not, which the array has.
    unsafe { _mm_storeu_si128(words.as_mut_ptr().cast(), register) };
    words
}

/// The chaining value of SHA-256 in the order of its instructions: F E B A and H G D C, from the lowest lane.
type Pair256 = [__m128i; 2];

#[target_feature(enable = "sse2")]
fn pair_256(s: &State<u32>) -> Pair256 {
    [register([s[5], s[4], s[1], s[0]]), register([s[7], s[6], s[3], s[2]])]
}

#[target_feature(enable = "sse2")]
fn state_256(pair: Pair256) -> State<u32> {
    let ([f, e, b, a], [h, g, d, c]) = (words(pair[0]), words(pair[1]));
    [a, b, c, d, e, f, g, h]
}

#[target_feature(enable = "sha,ssse3,sse4.1")]
fn sha256_chains<const WAYS: usize>(chains: &mut [Chain<Sha256>; WAYS], iterations: u32) {
    let keys: [[Pair256; WAYS]; 2] =
        [from_fn(|way| pair_256(&chains[way].inner)), from_fn(|way| pair_256(&chains[way].outer))];
    let mut digest: [Pair256; WAYS] = from_fn(|way| pair_256(&chains[way].digest));
    let mut sum: [Pair256; WAYS] = from_fn(|way| pair_256(&chains[way].sum));
    for _ in 0..iterations {
        for key in &keys {
            digest = sha256_digests(key, &digest);
        }
        for (sum, digest) in sum.iter_mut().zip(&digest) {
            *sum = [_mm_xor_si128(sum[0], digest[0]), _mm_xor_si128(sum[1], digest[1])];
        }
    }
    for (way, chain) in chains.iter_mut().enumerate() {
        chain.digest = state_256(digest[way]);
        chain.sum = state_256(sum[way]);
    }
}

/// [`Hash::compress_digest`], interleaved.
#[inline]
#[target_feature(enable = "sha,ssse3,sse4.1")]
fn sha256_digests<const WAYS: usize>(keys: &[Pair256; WAYS], digests: &[Pair256; WAYS]) -> [Pair256; WAYS] {
    let ending = register([0x8000_0000, 0, 0, 0]);
    let length = register([0, 0, 0, (64 + 32) * 8]);
    // The words of the message, from the lowest lane: A B C D, E F G H, and the constant ones.
    let mut m: [[__m128i; 4]; WAYS] = from_fn(|way| {
        let [feba, hgdc] = digests[way].map(|register| _mm_castsi128_ps(register));
        let abcd = _mm_castps_si128(_mm_shuffle_ps::<0b10_11_10_11>(feba, hgdc));
        let efgh = _mm_castps_si128(_mm_shuffle_ps::<0b00_01_00_01>(feba, hgdc));
        [abcd, efgh, ending, length]
    });
    let mut s = *keys;
    macro_rules! four_rounds {
        ($i:expr) => {
            let k = register([K256[4 * $i], K256[4 * $i + 1], K256[4 * $i + 2], K256[4 * $i + 3]]);
            for way in 0..WAYS {
                let (m, s) = (&mut m[way], &mut s[way]);
                let input = _mm_add_epi32(m[$i % 4], k);
                s[1] = _mm_sha256rnds2_epu32(s[1], s[0], input);
                s[0] = _mm_sha256rnds2_epu32(s[0], s[1], _mm_shuffle_epi32::<0b1110>(input));
                if $i < 12 {
                    let sevenths = _mm_alignr_epi8::<4>(m[($i + 3) % 4], m[($i + 2) % 4]);
                    let partial = _mm_add_epi32(_mm_sha256msg1_epu32(m[$i % 4], m[($i + 1) % 4]), sevenths);
                    m[$i % 4] = _mm_sha256msg2_epu32(partial, m[($i + 3) % 4]);
                }
            }
        };
    }
    sixteen!(four_rounds);
    from_fn(|way| [_mm_add_epi32(s[way][0], keys[way][0]), _mm_add_epi32(s[way][1], keys[way][1])])
}

/// The chaining value of SHA-1 in the order of its instructions: D C B A and 0 0 0 E, from the lowest lane.
type Pair1 = [__m128i; 2];

#[target_feature(enable = "sse2")]
fn pair_1(s: &State<u32>) -> Pair1 {
    [register([s[3], s[2], s[1], s[0]]), register([0, 0, 0, s[4]])]
}

#[target_feature(enable = "sse2")]
fn state_1(pair: Pair1) -> State<u32> {
    let ([d, c, b, a], [.., e]) = (words(pair[0]), words(pair[1]));
    [a, b, c, d, e, 0, 0, 0]
}

#[target_feature(enable = "sha,ssse3,sse4.1")]
fn sha1_chains<const WAYS: usize>(chains: &mut [Chain<Sha1>; WAYS], iterations: u32) {
    let keys: [[Pair1; WAYS]; 2] =
        [from_fn(|way| pair_1(&chains[way].inner)), from_fn(|way| pair_1(&chains[way].outer))];
    let mut digest: [Pair1; WAYS] = from_fn(|way| pair_1(&chains[way].digest));
    let mut sum: [Pair1; WAYS] = from_fn(|way| pair_1(&chains[way].sum));
    for _ in 0..iterations {
        for key in &keys {
            digest = sha1_digests(key, &digest);
        }
        for (sum, digest) in sum.iter_mut().zip(&digest) {
            *sum = [_mm_xor_si128(sum[0], digest[0]), _mm_xor_si128(sum[1], digest[1])];
        }
    }
    for (way, chain) in chains.iter_mut().enumerate() {
        chain.digest = state_1(digest[way]);
        chain.sum = state_1(sum[way]);
    }
}

/// [`Hash::compress_digest`], interleaved.
#[inline]
#[target_feature(enable = "sha,ssse3,sse4.1")]
fn sha1_digests<const WAYS: usize>(keys: &[Pair1; WAYS], digests: &[Pair1; WAYS]) -> [Pair1; WAYS] {
    // The words of the message, the first in the highest lane. The lanes below that of E are zero by construction:
    // keys have zeros there, and so have the digests made from them once they are masked.
    let ending = register([0, 0, 0x8000_0000, 0]);
    let high = register([0, 0, 0, u32::MAX]);
    let length = register([(64 + 20) * 8, 0, 0, 0]);
    let mut m: [[__m128i; 4]; WAYS] = from_fn(|way| {
        let [abcd, e] = digests[way];
        [abcd, _mm_or_si128(_mm_and_si128(e, high), ending), _mm_setzero_si128(), length]
    });
    let mut abcd: [__m128i; WAYS] = from_fn(|way| keys[way][0]);
    // A of the previous group, from which E of this one is computed.
    let mut before = abcd;
    macro_rules! four_rounds {
        ($i:expr, $f:literal) => {
            for way in 0..WAYS {
                let m = &mut m[way];
                let e = if $i == 0 {
                    _mm_add_epi32(keys[way][1], m[0])
                } else {
                    _mm_sha1nexte_epu32(before[way], m[$i % 4])
                };
                before[way] = abcd[way];
                abcd[way] = _mm_sha1rnds4_epu32::<$f>(abcd[way], e);
                if $i < 16 {
                    let partial = _mm_sha1msg1_epu32(m[$i % 4], m[($i + 1) % 4]);
                    let partial = _mm_xor_si128(partial, m[($i + 2) % 4]);
                    m[$i % 4] = _mm_sha1msg2_epu32(partial, m[($i + 3) % 4]);
                }
            }
        };
    }
    four_rounds!(0, 0);
    four_rounds!(1, 0);
    four_rounds!(2, 0);
    four_rounds!(3, 0);
    four_rounds!(4, 0);
    four_rounds!(5, 1);
    four_rounds!(6, 1);
    four_rounds!(7, 1);
    four_rounds!(8, 1);
    four_rounds!(9, 1);
    four_rounds!(10, 2);
    four_rounds!(11, 2);
    four_rounds!(12, 2);
    four_rounds!(13, 2);
    four_rounds!(14, 2);
    four_rounds!(15, 3);
    four_rounds!(16, 3);
    four_rounds!(17, 3);
    four_rounds!(18, 3);
    four_rounds!(19, 3);
    from_fn(|way| [_mm_add_epi32(abcd[way], keys[way][0]), _mm_sha1nexte_epu32(before[way], keys[way][1])])
}
