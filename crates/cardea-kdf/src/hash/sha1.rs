//! SHA-1 (FIPS 180-4 §6.1.2). It is broken for signatures, but not in HMAC and PBKDF2.

use super::{Hash, State, sixteen};
use crate::vector::Vector;

/// SHA-1.
#[derive(Debug)]
pub(crate) enum Sha1 {}

/// FIPS 180-4 §4.2.1: one for each twenty rounds.
const K: [u32; 4] = [0x5a82_7999, 0x6ed9_eba1, 0x8f1b_bcdc, 0xca62_c1d6];

impl Hash for Sha1 {
    type Word = u32;
    /// FIPS 180-4 §5.3.1.
    const INITIAL: State<u32> = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0, 0, 0, 0];
    const WORDS: usize = 5;

    #[inline(always)]
    fn compress<V: Vector<Word = u32>>(proof: V::Proof, state: &State<V>, mut w: [V; 16]) -> State<V> {
        let mut s = [state[0], state[1], state[2], state[3], state[4]];
        // The indices of the variables rotate, instead of their values.
        macro_rules! round {
            ($t:expr, $f:expr) => {
                if $t >= 16 {
                    let mixed = w[($t + 13) % 16].xor(w[($t + 8) % 16]).xor(w[($t + 2) % 16]);
                    w[$t % 16] = mixed.xor(w[$t % 16]).rotate::<31, 1>();
                }
                let (a, b, e) = (s[(80 - $t) % 5], s[(81 - $t) % 5], s[(84 - $t) % 5]);
                let (c, d) = (s[(82 - $t) % 5], s[(83 - $t) % 5]);
                let input = e.add(V::splat(proof, K[$t / 20]).add(w[$t % 16]));
                s[(84 - $t) % 5] = input.add($f(b, c, d)).add(a.rotate::<27, 5>());
                s[(81 - $t) % 5] = b.rotate::<2, 30>();
            };
        }
        let choose = |b: V, c, d| b.choose(c, d);
        let parity = |b: V, c: V, d: V| b.xor(c).xor(d);
        let majority = |b: V, c, d| b.majority(c, d);
        macro_rules! rounds_0 {
            ($i:expr) => {
                round!($i, choose);
            };
        }
        macro_rules! rounds_16 {
            ($i:expr) => {
                if $i < 4 {
                    round!($i + 16, choose);
                } else {
                    round!($i + 16, parity);
                }
            };
        }
        macro_rules! rounds_32 {
            ($i:expr) => {
                if $i < 8 {
                    round!($i + 32, parity);
                } else {
                    round!($i + 32, majority);
                }
            };
        }
        macro_rules! rounds_48 {
            ($i:expr) => {
                if $i < 12 {
                    round!($i + 48, majority);
                } else {
                    round!($i + 48, parity);
                }
            };
        }
        macro_rules! rounds_64 {
            ($i:expr) => {
                round!($i + 64, parity);
            };
        }
        sixteen!(rounds_0);
        sixteen!(rounds_16);
        sixteen!(rounds_32);
        sixteen!(rounds_48);
        sixteen!(rounds_64);
        let mut next = *state;
        for (word, s) in next.iter_mut().zip(s) {
            *word = word.add(s);
        }
        next
    }
}
