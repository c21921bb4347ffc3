//! Vectors of AVX-512 and AVX2, and the functions that are compiled for these and BMI2.
#![allow(unsafe_code, reason = "instructions that not every processor has; each type is made from a proof")]

use std::arch::asm;
use std::arch::x86_64::*;

use super::lanes::{Chain, iterate};
use crate::hash::Hash;
use crate::vector::Vector;

/// Declares a proof that instructions exist here.
macro_rules! proof {
    ($(#[$doc:meta])* $name:ident: $($feature:tt),+) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $name(());

        impl $name {
            /// Detects the instructions.
            pub(super) fn detect() -> Option<Self> {
                ($(is_x86_feature_detected!($feature))&&+).then_some(Self(()))
            }
        }
    };
}

proof! {
    /// AVX-512F.
    Avx512: "avx512f"
}
proof! {
    /// AVX2.
    Avx2: "avx2"
}
proof! {
    /// BMI1 and BMI2: rotation into another register, and-not.
    Bmi2: "bmi1", "bmi2"
}

impl Avx512 {
    /// Iterates chains in lanes.
    pub(super) fn run<H: Hash, V: Vector<Word = H::Word, Proof = Self>, const LANES: usize>(
        self,
        chains: &mut [Chain<H>],
        iterations: u32,
    ) {
        #[target_feature(enable = "avx512f")]
        fn inner<H: Hash, V: Vector<Word = H::Word, Proof = Avx512>, const LANES: usize>(
            proof: Avx512,
            chains: &mut [Chain<H>],
            iterations: u32,
        ) {
            iterate::<H, V, LANES>(proof, chains, iterations);
        }
        // SAFETY: `self` proves that the processor has AVX-512F.
        unsafe { inner::<H, V, LANES>(self, chains, iterations) }
    }
}

impl Avx2 {
    /// Iterates chains in lanes.
    pub(super) fn run<H: Hash, V: Vector<Word = H::Word, Proof = Self>, const LANES: usize>(
        self,
        chains: &mut [Chain<H>],
        iterations: u32,
    ) {
        #[target_feature(enable = "avx2")]
        fn inner<H: Hash, V: Vector<Word = H::Word, Proof = Avx2>, const LANES: usize>(
            proof: Avx2,
            chains: &mut [Chain<H>],
            iterations: u32,
        ) {
            iterate::<H, V, LANES>(proof, chains, iterations);
        }
        // SAFETY: `self` proves that the processor has AVX2.
        unsafe { inner::<H, V, LANES>(self, chains, iterations) }
    }
}

impl Bmi2 {
    /// Iterates chains one after the other.
    pub(super) fn run<H: Hash>(self, chains: &mut [Chain<H>], iterations: u32) {
        #[target_feature(enable = "bmi1,bmi2")]
        fn inner<H: Hash>(chain: &mut Chain<H>, iterations: u32) {
            iterate::<H, H::Word, 1>((), std::slice::from_mut(chain), iterations);
        }
        for chain in chains {
            // SAFETY: `self` proves that the processor has BMI1 and BMI2.
            unsafe { inner(chain, iterations) }
        }
    }
}

/// [`Vector::pin`] of a register.
#[inline]
#[target_feature(enable = "avx512f")]
fn pin_512(register: __m512i) -> __m512i {
    let same;
    // SAFETY: it contains no instruction.
    unsafe {
        asm!("/* {0} */", inout(zmm_reg) register => same, options(pure, nomem, nostack, preserves_flags))
    };
    same
}

/// [`Vector::pin`] of a register.
#[inline]
#[target_feature(enable = "avx2")]
fn pin_256(register: __m256i) -> __m256i {
    let same;
    // SAFETY: it contains no instruction.
    unsafe {
        asm!("/* {0} */", inout(ymm_reg) register => same, options(pure, nomem, nostack, preserves_flags))
    };
    same
}

/// The truth table of `a ? b : c`, indexed by the three arguments.
const CHOOSE: i32 = 0xCA;
/// The truth table of the majority.
const MAJORITY: i32 = 0xE8;

/// Declares a vector: its register, its proof, and its instructions.
macro_rules! vector {
    (
        $(#[$doc:meta])*
        $name:ident, [$word:ty; $lanes:literal], $register:ty, $proof:ty,
        $splat:ident, $load:ident, $store:ident, $add:ident, $sub:ident, $pin:ident, $xor:ident,
        |$a:ident, $b:ident, $c:ident|
        rotate $rotate:expr, shift $shift:expr, choose $choose:expr, majority $majority:expr
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $name($register);

        impl Vector for $name {
            type Word = $word;
            type Proof = $proof;
            const LANES: usize = $lanes;

            #[inline(always)]
            fn splat(_: $proof, word: $word) -> Self {
                // SAFETY: the proof shows that the processor has the instruction.
                Self(unsafe { $splat(word.cast_signed()) })
            }

            #[inline(always)]
            fn load(_: $proof, words: &[$word]) -> Self {
                let words = &words[..$lanes];
                // SAFETY: the proof shows that the processor has the instruction; it reads `$lanes` words, aligned or
                // not, which the slice has.
                Self(unsafe { $load(words.as_ptr().cast()) })
            }

            #[inline(always)]
            fn store(self, words: &mut [$word]) {
                let words = &mut words[..$lanes];
                // SAFETY: `self` was made from a proof; the instruction writes `$lanes` words, aligned or not, which
                // the slice has.
                unsafe { $store(words.as_mut_ptr().cast(), self.0) }
            }

            #[inline(always)]
            fn add(self, other: Self) -> Self {
                // SAFETY: `self` was created with a proof that the processor has the instruction.
                Self(unsafe { $add(self.0, other.0) })
            }

            #[inline(always)]
            fn pin(self) -> Self {
                // SAFETY: as for `add`.
                Self(unsafe { $pin(self.0) })
            }

            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                // SAFETY: as for `add`.
                Self(unsafe { $sub(self.0, other.0) })
            }

            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                // SAFETY: as for `add`.
                Self(unsafe { $xor(self.0, other.0) })
            }

            #[inline(always)]
            fn rotate<const RIGHT: i32, const LEFT: i32>(self) -> Self {
                const { assert!((RIGHT + LEFT).cast_unsigned() == <$word>::BITS) };
                let $a = self.0;
                // SAFETY: as for `add`.
                Self(unsafe { $rotate })
            }

            #[inline(always)]
            fn shift_right<const BITS: u32>(self) -> Self {
                let $a = self.0;
                // SAFETY: as for `add`.
                Self(unsafe { $shift })
            }

            #[inline(always)]
            fn choose(self, yes: Self, no: Self) -> Self {
                let ($a, $b, $c) = (self.0, yes.0, no.0);
                // SAFETY: as for `add`.
                Self(unsafe { $choose })
            }

            #[inline(always)]
            fn majority(self, second: Self, third: Self) -> Self {
                let ($a, $b, $c) = (self.0, second.0, third.0);
                // SAFETY: as for `add`.
                Self(unsafe { $majority })
            }
        }
    };
}

vector! {
    /// Sixteen words of 32 bits.
    Zmm32, [u32; 16], __m512i, Avx512,
    _mm512_set1_epi32, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_add_epi32, _mm512_sub_epi32, pin_512, _mm512_xor_si512,
    |a, b, c|
    rotate _mm512_ror_epi32::<RIGHT>(a),
    shift _mm512_srli_epi32::<BITS>(a),
    choose _mm512_ternarylogic_epi32::<CHOOSE>(a, b, c),
    majority _mm512_ternarylogic_epi32::<MAJORITY>(a, b, c)
}

vector! {
    /// Eight words of 64 bits.
    Zmm64, [u64; 8], __m512i, Avx512,
    _mm512_set1_epi64, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_add_epi64, _mm512_sub_epi64, pin_512, _mm512_xor_si512,
    |a, b, c|
    rotate _mm512_ror_epi64::<RIGHT>(a),
    shift _mm512_srli_epi64::<BITS>(a),
    choose _mm512_ternarylogic_epi64::<CHOOSE>(a, b, c),
    majority _mm512_ternarylogic_epi64::<MAJORITY>(a, b, c)
}

vector! {
    /// Eight words of 32 bits.
    Ymm32, [u32; 8], __m256i, Avx2,
    _mm256_set1_epi32, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_add_epi32, _mm256_sub_epi32, pin_256, _mm256_xor_si256,
    |a, b, c|
    rotate _mm256_or_si256(_mm256_srli_epi32::<RIGHT>(a), _mm256_slli_epi32::<LEFT>(a)),
    shift _mm256_srlv_epi32(a, _mm256_set1_epi32(BITS.cast_signed())),
    choose _mm256_xor_si256(_mm256_and_si256(a, _mm256_xor_si256(b, c)), c),
    majority _mm256_xor_si256(_mm256_and_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(b, c)), b)
}

vector! {
    /// Four words of 64 bits.
    Ymm64, [u64; 4], __m256i, Avx2,
    _mm256_set1_epi64x, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_add_epi64, _mm256_sub_epi64, pin_256, _mm256_xor_si256,
    |a, b, c|
    rotate _mm256_or_si256(_mm256_srli_epi64::<RIGHT>(a), _mm256_slli_epi64::<LEFT>(a)),
    shift _mm256_srlv_epi64(a, _mm256_set1_epi64x(i64::from(BITS))),
    choose _mm256_xor_si256(_mm256_and_si256(a, _mm256_xor_si256(b, c)), c),
    majority _mm256_xor_si256(_mm256_and_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(b, c)), b)
}
