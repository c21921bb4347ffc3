//! One job, with the least latency.

use std::num::NonZeroU32;

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

use crate::error::Error;
use crate::hash::Hash;
use crate::prf::Prf;
use crate::schedule::{Key, Keyed, Schedule};
use crate::vector::Vector;

/// Fills `out` with PBKDF2 (RFC 8018 §5.2).
///
/// Computes `iterations` times for each [`Prf::output_len`] bytes of `out` begun.
///
/// # Errors
///
/// When `out` is empty, or longer than 2³² − 1 blocks.
pub fn derive(
    prf: Prf,
    password: &[u8],
    salt: &[u8],
    iterations: NonZeroU32,
    out: &mut [u8],
) -> Result<(), Error> {
    Schedule::new(prf, password).derive(salt, iterations, out)
}

/// Whether `expected` is what [`derive()`] computes, compared in a time that depends on its length alone.
///
/// # Errors
///
/// When `expected` is empty, which would match any password, or longer than 2³² − 1 blocks.
pub fn verify(
    prf: Prf,
    password: &[u8],
    salt: &[u8],
    iterations: NonZeroU32,
    expected: &[u8],
) -> Result<bool, Error> {
    Schedule::new(prf, password).verify(salt, iterations, expected)
}

impl Schedule {
    /// [`derive()`] with this password.
    ///
    /// # Errors
    ///
    /// Those of [`derive()`].
    pub fn derive(&self, salt: &[u8], iterations: NonZeroU32, out: &mut [u8]) -> Result<(), Error> {
        match &self.0 {
            Keyed::Sha1(key) => fill(key, salt, iterations, out),
            Keyed::Sha256(key) => fill(key, salt, iterations, out),
            Keyed::Sha512(key) => fill(key, salt, iterations, out),
        }
    }

    /// [`verify()`] with this password.
    ///
    /// # Errors
    ///
    /// Those of [`verify()`].
    pub fn verify(&self, salt: &[u8], iterations: NonZeroU32, expected: &[u8]) -> Result<bool, Error> {
        let mut derived = Zeroizing::new(vec![0; expected.len()]);
        self.derive(salt, iterations, &mut derived)?;
        Ok(derived.ct_eq(expected).into())
    }
}

fn fill<H: Hash>(key: &Key<H>, salt: &[u8], iterations: NonZeroU32, out: &mut [u8]) -> Result<(), Error> {
    if out.is_empty() {
        return Err(Error::OutputEmpty);
    }
    let proof = <H::Word as Vector>::Proof::default();
    for (index, block) in out.chunks_mut(H::OUTPUT).enumerate() {
        let number = u32::try_from(index + 1).map_err(|_| Error::OutputTooLong)?;
        let mut digest = key.first(salt, number);
        let mut sum = digest;
        for _ in 1..iterations.get() {
            digest = H::compress_digest(proof, &key.inner, &digest);
            digest = H::compress_digest(proof, &key.outer, &digest);
            for (sum, digest) in sum.iter_mut().zip(digest) {
                *sum = sum.xor(digest);
            }
        }
        H::write(&sum, block);
        digest.zeroize();
        sum.zeroize();
    }
    Ok(())
}

#[cfg(test)]
mod tests;
