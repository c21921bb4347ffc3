//! Which kernel runs how many jobs: by what was measured, not by what is widest.

use std::fmt;

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
    /// the table of kernels was written. Only the ratios matter; other processors have others.
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
    #[must_use]
    pub fn choose(prf: Prf, waiting: usize, forced: Option<Backend>) -> Option<&'static Self> {
        Self::all(prf)
            .iter()
            .filter(|kernel| forced.is_none_or(|backend| backend == kernel.backend))
            .filter(|kernel| kernel.backend.is_available())
            .min_by_key(|kernel| {
                waiting.div_ceil(kernel.lanes).saturating_mul(kernel.iteration_cycles as usize)
            })
    }
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
mod tests {
    use super::*;

    #[test]
    fn something_runs_any_number_of_jobs_everywhere() {
        for prf in Prf::ALL {
            for waiting in 0..40 {
                let chosen = Kernel::choose(prf, waiting, None).unwrap();
                assert!(chosen.backend.is_available());
                let portable = Kernel::choose(prf, waiting, Some(Backend::Portable)).unwrap();
                assert_eq!((portable.backend, portable.lanes), (Backend::Portable, 1));
            }
        }
    }

    #[test]
    fn a_lone_job_takes_the_kernel_of_least_latency_and_many_take_that_of_most_throughput() {
        for prf in Prf::ALL {
            let here = || Kernel::all(prf).iter().filter(|kernel| kernel.backend.is_available());
            let lone = Kernel::choose(prf, 1, None).unwrap();
            assert!(here().all(|kernel| lone.iteration_cycles <= kernel.iteration_cycles));
            let many = Kernel::choose(prf, 1 << 20, None).unwrap();
            let per_lane = |kernel: &Kernel| f64::from(kernel.iteration_cycles) / kernel.lanes as f64;
            assert!(here().all(|kernel| per_lane(many) <= per_lane(kernel)));
        }
    }

    #[test]
    fn with_all_instructions_the_crossovers_are_those_that_were_measured() {
        if !Backend::ALL.iter().all(|backend| backend.is_available()) {
            println!("SKIPPED: instructions are missing here");
            return;
        }
        let chosen =
            |prf| [1, 2, 4, 8, 16].map(|waiting| Kernel::choose(prf, waiting, None).unwrap().to_string());
        assert_eq!(
            chosen(Prf::HmacSha1),
            ["sha-ni-1", "sha-ni-2", "sha-ni-4", "avx512-16", "avx512-16"].map(String::from)
        );
        assert_eq!(
            chosen(Prf::HmacSha256),
            ["sha-ni-1", "sha-ni-2", "sha-ni-4", "sha-ni-4", "avx512-16"].map(String::from)
        );
        assert_eq!(
            chosen(Prf::HmacSha512),
            ["avx2-1", "avx512-8", "avx512-8", "avx512-8", "avx512-8"].map(String::from)
        );
    }

    #[test]
    fn there_is_no_kernel_of_sha_instructions_for_sha_512() {
        assert_eq!(Kernel::choose(Prf::HmacSha512, 1, Some(Backend::ShaNi)), None);
    }
}
