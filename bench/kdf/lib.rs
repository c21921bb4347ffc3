//! The method of fastpbkdf2 over the compression functions of the RustCrypto libraries: the chaining values after the
//! padded key are kept, the blocks of digests are padded once, and nothing else remains in the loop than two
//! compressions and a sum.

use std::num::NonZeroU32;

use cardea_kdf::Prf;

/// Most bytes of a block.
const BLOCK_MAX: usize = 128;

macro_rules! method {
    ($name:ident, $word:ty, $words:literal, $bytes:literal, $block:literal, $initial:expr, $compress:path) => {
        /// Derives one block of output; password and salt are short.
        fn $name(password: &[u8], salt: &[u8], iterations: NonZeroU32, out: &mut [u8]) {
            type Word = $word;
            let write = |state: &[Word; $words], block: &mut [u8; $block]| {
                for (out, word) in block.chunks_exact_mut($bytes).zip(state) {
                    out.copy_from_slice(&word.to_be_bytes());
                }
            };
            let pad = |block: &mut [u8; $block], length: usize| {
                block[length] = 0x80;
                block[$block - 8..].copy_from_slice(&((($block + length) as u64) * 8).to_be_bytes());
            };
            let key = |byte: u8| {
                let mut block = [byte; $block];
                block.iter_mut().zip(password).for_each(|(b, p)| *b ^= p);
                let mut state: [Word; $words] = $initial;
                $compress(&mut state, &[block]);
                state
            };
            let (inner, outer) = (key(0x36), key(0x5c));
            let mut first = [0; $block];
            first[..salt.len()].copy_from_slice(salt);
            first[salt.len()..salt.len() + 4].copy_from_slice(&1_u32.to_be_bytes());
            pad(&mut first, salt.len() + 4);
            let mut block = [0; $block];
            pad(&mut block, $words * $bytes);
            let mut digest = inner;
            $compress(&mut digest, &[first]);
            write(&digest, &mut block);
            digest = outer;
            $compress(&mut digest, &[block]);
            let mut sum = digest;
            for _ in 1..iterations.get() {
                write(&digest, &mut block);
                digest = inner;
                $compress(&mut digest, &[block]);
                write(&digest, &mut block);
                digest = outer;
                $compress(&mut digest, &[block]);
                sum.iter_mut().zip(digest).for_each(|(sum, word)| *sum ^= word);
            }
            let mut last = [0; $block];
            write(&sum, &mut last);
            let length = out.len();
            out.copy_from_slice(&last[..length]);
        }
    };
}

method!(
    sha1,
    u32,
    5,
    4,
    64,
    [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0],
    sha1::block_api::compress
);
method!(
    sha256,
    u32,
    8,
    4,
    64,
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19],
    sha2::block_api::compress256
);
method!(
    sha512,
    u64,
    8,
    8,
    128,
    [
        0x6a09_e667_f3bc_c908,
        0xbb67_ae85_84ca_a73b,
        0x3c6e_f372_fe94_f82b,
        0xa54f_f53a_5f1d_36f1,
        0x510e_527f_ade6_82d1,
        0x9b05_688c_2b3e_6c1f,
        0x1f83_d9ab_fb41_bd6b,
        0x5be0_cd19_137e_2179
    ],
    sha2::block_api::compress512
);

/// Derives one block of output.
///
/// # Panics
///
/// When the password is longer than a block, the salt longer than fits beside its padding, or the output longer than
/// one block: benches use neither.
pub fn fastpbkdf2(prf: Prf, password: &[u8], salt: &[u8], iterations: NonZeroU32, out: &mut [u8]) {
    assert!(password.len() <= BLOCK_MAX / 2 && salt.len() <= 32 && out.len() <= prf.output_len());
    match prf {
        Prf::HmacSha1 => sha1(password, salt, iterations, out),
        Prf::HmacSha256 => sha256(password, salt, iterations, out),
        _ => sha512(password, salt, iterations, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_method_derives_what_the_crate_does() {
        for prf in Prf::ALL {
            let (mut one, mut other) = (vec![0; prf.output_len()], vec![0; prf.output_len()]);
            let iterations = NonZeroU32::new(9).unwrap();
            fastpbkdf2(prf, b"password", b"salt", iterations, &mut one);
            cardea_kdf::derive(prf, b"password", b"salt", iterations, &mut other).unwrap();
            assert_eq!(one, other);
        }
    }
}
