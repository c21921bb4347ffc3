//! The content of a lane, and the loop over lanes of any width.

use zeroize::{Zeroize, Zeroizing};

use super::Kernel;
use super::choice::Backend;
#[cfg(target_arch = "x86_64")]
use super::{sha_ni, x86};
use crate::hash::{Hash, Sha1, Sha256, Sha512, State};
use crate::prf::Prf;
use crate::schedule::Key;
#[cfg(target_arch = "x86_64")]
use crate::vector::Pair;
use crate::vector::Vector;

/// A block of output in progress: F of RFC 8018 §5.2. Wiped when dropped.
pub(crate) struct Chain<H: Hash> {
    pub(crate) inner: State<H::Word>,
    pub(crate) outer: State<H::Word>,
    /// The last Uᵢ.
    pub(crate) digest: State<H::Word>,
    /// The exclusive or of all Uᵢ so far.
    pub(crate) sum: State<H::Word>,
}

impl<H: Hash> Chain<H> {
    /// The chain after its first iteration.
    pub(crate) fn new(key: &Key<H>, salt: &[u8], block: u32) -> Self {
        let mut digest = key.first(salt, block);
        let chain = Self { inner: key.inner, outer: key.outer, digest, sum: digest };
        digest.zeroize();
        chain
    }
}

impl<H: Hash> Drop for Chain<H> {
    fn drop(&mut self) {
        for state in [&mut self.inner, &mut self.outer, &mut self.digest, &mut self.sum] {
            state.zeroize();
        }
    }
}

/// A hash function and its kernels.
pub(crate) trait Kernels: Hash + Sized {
    /// The corresponding HMAC function.
    const PRF: Prf;

    /// Like [`Kernel::choose`], with the portable kernel as fallback.
    fn choose(waiting: usize, forced: Option<Backend>) -> &'static Kernel {
        Kernel::choose(Self::PRF, waiting, forced).unwrap_or(&Kernel::all(Self::PRF)[0])
    }

    /// Runs `iterations` more on at most [`Kernel::lanes`] chains. An unsupported kernel is replaced by the portable
    /// one.
    fn run(kernel: &Kernel, chains: &mut [Chain<Self>], iterations: u32);
}

impl Kernels for Sha1 {
    const PRF: Prf = Prf::HmacSha1;

    fn run(kernel: &Kernel, chains: &mut [Chain<Self>], iterations: u32) {
        #[cfg(target_arch = "x86_64")]
        match kernel.backend {
            Backend::Avx512 => {
                if let Some(proof) = x86::Avx512::detect() {
                    return match kernel.lanes {
                        32 => proof.run::<Self, Pair<x86::Zmm32>, 32>(chains, iterations),
                        _ => proof.run::<Self, x86::Zmm32, 16>(chains, iterations),
                    };
                }
            }
            Backend::Avx2 => {
                if let Some(proof) = x86::Avx2::detect() {
                    return proof.run::<Self, x86::Ymm32, 8>(chains, iterations);
                }
            }
            Backend::ShaNi => {
                if let Some(proof) = sha_ni::ShaNi::detect() {
                    return match kernel.lanes {
                        4 => proof.sha1::<4>(chains, iterations),
                        2 => proof.sha1::<2>(chains, iterations),
                        _ => proof.sha1::<1>(chains, iterations),
                    };
                }
            }
            Backend::Bmi2 => {
                if let Some(proof) = x86::Bmi2::detect() {
                    return proof.run(chains, iterations);
                }
            }
            Backend::Portable => {}
        }
        portable(kernel, chains, iterations);
    }
}

impl Kernels for Sha256 {
    const PRF: Prf = Prf::HmacSha256;

    fn run(kernel: &Kernel, chains: &mut [Chain<Self>], iterations: u32) {
        #[cfg(target_arch = "x86_64")]
        match kernel.backend {
            Backend::Avx512 => {
                if let Some(proof) = x86::Avx512::detect() {
                    return proof.run::<Self, x86::Zmm32, 16>(chains, iterations);
                }
            }
            Backend::Avx2 => {
                if let Some(proof) = x86::Avx2::detect() {
                    return proof.run::<Self, x86::Ymm32, 8>(chains, iterations);
                }
            }
            Backend::ShaNi => {
                if let Some(proof) = sha_ni::ShaNi::detect() {
                    return match kernel.lanes {
                        4 => proof.sha256::<4>(chains, iterations),
                        2 => proof.sha256::<2>(chains, iterations),
                        _ => proof.sha256::<1>(chains, iterations),
                    };
                }
            }
            Backend::Bmi2 => {
                if let Some(proof) = x86::Bmi2::detect() {
                    return proof.run(chains, iterations);
                }
            }
            Backend::Portable => {}
        }
        portable(kernel, chains, iterations);
    }
}

impl Kernels for Sha512 {
    const PRF: Prf = Prf::HmacSha512;

    fn run(kernel: &Kernel, chains: &mut [Chain<Self>], iterations: u32) {
        #[cfg(target_arch = "x86_64")]
        match kernel.backend {
            Backend::Avx512 => {
                if let Some(proof) = x86::Avx512::detect() {
                    return proof.run::<Self, x86::Zmm64, 8>(chains, iterations);
                }
            }
            Backend::Avx2 => {
                if kernel.lanes == 1 {
                    return schedule_in_vectors(chains, iterations);
                }
                if let Some(proof) = x86::Avx2::detect() {
                    return proof.run::<Self, x86::Ymm64, 4>(chains, iterations);
                }
            }
            Backend::Bmi2 => {
                if let Some(proof) = x86::Bmi2::detect() {
                    return proof.run(chains, iterations);
                }
            }
            // There are no such instructions for 64-bit words.
            Backend::ShaNi | Backend::Portable => {}
        }
        portable(kernel, chains, iterations);
    }
}

/// Lone chains of SHA-512, by the compression of the `sha2` crate: that asks for AVX2 itself, makes the message schedule
/// with it, and so uses units of the processor that lie idle in [`Backend::Bmi2`].
#[cfg(target_arch = "x86_64")]
fn schedule_in_vectors(chains: &mut [Chain<Sha512>], iterations: u32) {
    let mut block = Zeroizing::new([0_u8; 128]);
    block[64] = 0x80;
    block[120..].copy_from_slice(&((128 + 64) * 8_u64).to_be_bytes());
    for chain in chains {
        for _ in 0..iterations {
            for key in [&chain.inner, &chain.outer] {
                Sha512::write(&chain.digest, &mut block[..64]);
                chain.digest = *key;
                sha2::block_api::compress512(&mut chain.digest, std::slice::from_ref(&*block));
            }
            for (sum, digest) in chain.sum.iter_mut().zip(chain.digest) {
                *sum ^= digest;
            }
        }
    }
}

fn portable<H: Hash>(_: &Kernel, chains: &mut [Chain<H>], iterations: u32) {
    for chain in chains {
        iterate::<H, H::Word, 1>((), std::slice::from_mut(chain), iterations);
    }
}

/// Runs the loop over up to `LANES` chains, of which each word becomes a vector before it and words again after it.
///
/// It is inlined into a function that has the vector's instructions switched on.
#[inline(always)]
pub(super) fn iterate<H: Hash, V: Vector<Word = H::Word>, const LANES: usize>(
    proof: V::Proof,
    chains: &mut [Chain<H>],
    iterations: u32,
) {
    const { assert!(LANES == V::LANES) };
    debug_assert!(chains.len() <= LANES);
    let keys = [gather::<H, LANES>(chains, |c| &c.inner), gather::<H, LANES>(chains, |c| &c.outer)];
    let digest = gather::<H, LANES>(chains, |chain| &chain.digest);
    let mut digest: State<V> = digest.rows(proof);
    let mut sum: State<V> = gather::<H, LANES>(chains, |chain| &chain.sum).rows(proof);
    for _ in 0..iterations {
        // A loop instead of two calls, so that the compression's code exists once and stays in the cache.
        for key in &keys {
            let state: State<V> = key.rows(proof);
            digest = H::compress_digest(proof, &state, &digest);
        }
        for (sum, digest) in sum.iter_mut().zip(&digest).take(H::WORDS) {
            *sum = sum.xor(*digest);
        }
    }
    scatter(&digest, chains, |chain| &mut chain.digest);
    scatter(&sum, chains, |chain| &mut chain.sum);
}

/// A chaining value of each lane: for each word a row with that of all lanes. Wiped when dropped.
#[repr(align(64))]
struct Rows<W: zeroize::DefaultIsZeroes, const LANES: usize>([[W; LANES]; 8]);

impl<W: zeroize::DefaultIsZeroes, const LANES: usize> Rows<W, LANES> {
    #[inline(always)]
    fn rows<V: Vector<Word = W>>(&self, proof: V::Proof) -> State<V> {
        std::array::from_fn(|word| V::load(proof, &self.0[word]))
    }
}

impl<W: zeroize::DefaultIsZeroes, const LANES: usize> Drop for Rows<W, LANES> {
    fn drop(&mut self) {
        self.0.as_flattened_mut().zeroize();
    }
}

#[inline(always)]
fn gather<H: Hash, const LANES: usize>(
    chains: &[Chain<H>],
    state: impl Fn(&Chain<H>) -> &State<H::Word>,
) -> Rows<H::Word, LANES> {
    let mut rows = Rows([[H::Word::default(); LANES]; 8]);
    for (lane, chain) in chains.iter().enumerate().take(LANES) {
        for (row, word) in rows.0.iter_mut().zip(state(chain)) {
            row[lane] = *word;
        }
    }
    rows
}

#[inline(always)]
fn scatter<H: Hash, V: Vector<Word = H::Word>>(
    vectors: &State<V>,
    chains: &mut [Chain<H>],
    state: impl Fn(&mut Chain<H>) -> &mut State<H::Word>,
) {
    // The maximum of lanes of all vectors.
    let mut row = Zeroizing::new([H::Word::default(); 32]);
    for (index, vector) in vectors.iter().enumerate() {
        vector.store(&mut row[..]);
        for (chain, word) in chains.iter_mut().zip(row.iter()) {
            state(chain)[index] = *word;
        }
    }
}
