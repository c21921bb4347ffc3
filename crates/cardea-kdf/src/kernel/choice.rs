//! Which kernel runs how many jobs: by what was measured, not by what is widest.

use std::fmt;

use super::calibration::{self, Picoseconds};
use super::{Chain, Kernels};
use crate::hash::{Sha1, Sha256, Sha512};
use crate::prf::Prf;
use crate::schedule::Key;

/// The instructions that a kernel is made of.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Backend {
    /// Plain Rust, on any processor.
    Portable,
    /// BMI1 and BMI2 of x86-64.
    Bmi2,
    /// The SHA instructions of x86-64; not for SHA-512.
    ShaNi,
    /// AVX2.
    Avx2,
    /// AVX-512F.
    Avx512,
}

impl Backend {
    /// All of them; each may be absent here.
    pub const ALL: [Self; 5] = [Self::Portable, Self::Bmi2, Self::ShaNi, Self::Avx2, Self::Avx512];

    /// Whether this processor has the instructions.
    #[must_use]
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            match self {
                Self::Portable => true,
                Self::Bmi2 => is_x86_feature_detected!("bmi1") && is_x86_feature_detected!("bmi2"),
                Self::ShaNi => {
                    is_x86_feature_detected!("sha")
                        && is_x86_feature_detected!("ssse3")
                        && is_x86_feature_detected!("sse4.1")
                }
                Self::Avx2 => is_x86_feature_detected!("avx2"),
                Self::Avx512 => is_x86_feature_detected!("avx512f"),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Self::Portable
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Portable => "portable",
            Self::Bmi2 => "bmi2",
            Self::ShaNi => "sha-ni",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        })
    }
}

/// A loop over a number of lanes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Kernel {
    /// Its instructions.
    pub backend: Backend,
    /// Jobs, or blocks of output, that run at once.
    pub lanes: usize,
    /// Cycles of one iteration of all lanes together, whether they are filled or not, as measured on a Zen 5 core when
    /// the table of kernels was written. Only the ratios matter, and only until [`calibrate()`](crate::calibrate) finds
    /// others.
    pub iteration_cycles: u32,
}

impl Kernel {
    /// The kernels for `prf`, of which those of absent back-ends don't run here.
    #[must_use]
    pub const fn all(prf: Prf) -> &'static [Self] {
        match prf {
            Prf::HmacSha1 => &SHA1,
            Prf::HmacSha256 => &SHA256,
            Prf::HmacSha512 => &SHA512,
        }
    }

    /// The one with which `waiting` jobs are done first, among those that run here; by one back-end alone where
    /// `forced` names it. Nothing where that one is absent, or has no kernel for `prf`.
    ///
    /// By the table; once [`calibrate()`](crate::calibrate) was called, by what it measured where that says otherwise.
    /// Whichever it is, the result is the same.
    #[must_use]
    pub fn choose(prf: Prf, waiting: usize, forced: Option<Backend>) -> Option<&'static Self> {
        let kernels = Self::all(prf);
        let runs = |kernel: &Self| {
            forced.is_none_or(|backend| backend == kernel.backend) && kernel.backend.is_available()
        };
        choose_among(kernels, runs, calibration::measured(prf), waiting).map(|index| &kernels[index])
    }
}

/// So much faster than the kernel of the table another one must have been measured, as a fraction: less is noise, and
/// costs less than to choose by noise would.
const FASTER: [u64; 2] = [9, 8];

/// The place of the kernel with which `waiting` jobs are done first, of those that run: the table's, unless the figures
/// that were measured, one for each kernel, show that another one is faster by more than noise.
fn choose_among(
    kernels: &[Kernel],
    runs: impl Fn(&Kernel) -> bool,
    measured: Option<&[Picoseconds]>,
    waiting: usize,
) -> Option<usize> {
    let places = || (0..kernels.len()).filter(|index| runs(&kernels[*index]));
    let cost = |index: usize, of_iteration: u64| {
        // Jobs beyond the lanes go after each other.
        let rounds = waiting.div_ceil(kernels[index].lanes) as u64;
        rounds.saturating_mul(of_iteration)
    };
    let expected = places().min_by_key(|index| cost(*index, kernels[*index].iteration_cycles.into()))?;
    let Some(measured) = measured else { return Some(expected) };
    let figure = |index: usize| cost(index, measured[index]);
    let fastest = places().min_by_key(|index| figure(*index))?;
    let (this, that) =
        (figure(fastest).saturating_mul(FASTER[0]), figure(expected).saturating_mul(FASTER[1]));
    Some(if this < that { fastest } else { expected })
}

impl Kernel {
    /// Runs `iterations` in all lanes, over jobs of no meaning: for measurements. Does nothing where the kernel is none
    /// for `prf`.
    pub fn exercise(&self, prf: Prf, iterations: u32) {
        if Self::all(prf).contains(self) {
            match prf {
                Prf::HmacSha1 => exercise::<Sha1>(self, iterations),
                Prf::HmacSha256 => exercise::<Sha256>(self, iterations),
                Prf::HmacSha512 => exercise::<Sha512>(self, iterations),
            }
        }
    }
}

fn exercise<H: Kernels>(kernel: &Kernel, iterations: u32) {
    let key = Key::new(b"password");
    let mut chains: Vec<Chain<H>> = (1..=kernel.lanes as u32).map(|n| Chain::new(&key, b"salt", n)).collect();
    H::run(kernel, std::hint::black_box(&mut chains), iterations);
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.backend, self.lanes)
    }
}

const fn kernel(backend: Backend, lanes: usize, iteration_cycles: u32) -> Kernel {
    Kernel { backend, lanes, iteration_cycles }
}

// Measured on a Zen 5 core: the `cycles` of
// `perf stat -e cycles:u target/release/examples/kernel sha512 avx512-8 100000` divided by 100,000, best of three;
// `cargo build --release -p cardea-kdf --example kernel` builds it. Cycles don't depend on how busy a machine is.
const SHA1: [Kernel; 8] = [
    kernel(Backend::Portable, 1, 496),
    kernel(Backend::Bmi2, 1, 490),
    kernel(Backend::ShaNi, 1, 253),
    kernel(Backend::ShaNi, 2, 282),
    kernel(Backend::ShaNi, 4, 503),
    kernel(Backend::Avx2, 8, 1057),
    kernel(Backend::Avx512, 16, 854),
    kernel(Backend::Avx512, 32, 1080),
];
const SHA256: [Kernel; 7] = [
    kernel(Backend::Portable, 1, 997),
    kernel(Backend::Bmi2, 1, 990),
    kernel(Backend::ShaNi, 1, 281),
    kernel(Backend::ShaNi, 2, 349),
    kernel(Backend::ShaNi, 4, 591),
    kernel(Backend::Avx2, 8, 2001),
    kernel(Backend::Avx512, 16, 1187),
];
const SHA512: [Kernel; 5] = [
    kernel(Backend::Portable, 1, 1735),
    kernel(Backend::Bmi2, 1, 1349),
    kernel(Backend::Avx2, 1, 1212),
    kernel(Backend::Avx2, 4, 2568),
    kernel(Backend::Avx512, 8, 1477),
];

#[cfg(test)]
mod tests;
