//! A single derivation with minimal latency.

use std::num::NonZeroU32;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::error::Error;
use crate::kernel::{Chain, Kernels};
use crate::prf::Prf;
use crate::schedule::{Key, Keyed, Schedule};

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

fn fill<H: Kernels>(key: &Key<H>, salt: &[u8], iterations: NonZeroU32, out: &mut [u8]) -> Result<(), Error> {
    if out.is_empty() {
        return Err(Error::OutputEmpty);
    }
    if out.len().div_ceil(H::OUTPUT) > u32::MAX as usize {
        return Err(Error::OutputTooLong);
    }
    let mut numbers = 1..=u32::MAX;
    let mut out = out;
    // As many blocks at a time as run with the highest throughput.
    while !out.is_empty() {
        let kernel = H::choose(out.len().div_ceil(H::OUTPUT), None);
        let (now, later) = out.split_at_mut(out.len().min(kernel.lanes * H::OUTPUT));
        out = later;
        let blocks = now.chunks_mut(H::OUTPUT).zip(numbers.by_ref());
        let (parts, mut chains): (Vec<_>, Vec<_>) =
            blocks.map(|(part, number)| (part, Chain::new(key, salt, number))).unzip();
        H::run(kernel, &mut chains, iterations.get() - 1);
        for (part, chain) in parts.into_iter().zip(&chains) {
            H::write(&chain.sum, part);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
