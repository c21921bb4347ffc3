//! The operations of the hash functions, over a word or a vector of words.

/// Words in lanes with common operations. A vector type whose instructions are optional is created from a proof that
/// the processor has them, so its operations are safe to use.
pub(crate) trait Vector: Copy {
    /// The type of a lane.
    type Word: Word;
    /// Proves that the processor has the instructions.
    type Proof: Copy;
    /// How many words.
    const LANES: usize;

    fn splat(proof: Self::Proof, word: Self::Word) -> Self;
    /// Reads the first [`Self::LANES`] words.
    fn load(proof: Self::Proof, words: &[Self::Word]) -> Self;
    /// Writes the first [`Self::LANES`] words.
    fn store(self, words: &mut [Self::Word]);
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    /// Returns itself, but hides its value from the compiler, which would otherwise reorder a sum.
    fn pin(self) -> Self;
    fn xor(self, other: Self) -> Self;
    /// Rotates by `RIGHT` bits to the right, which equals `LEFT` bits to the left: together they are the width of a
    /// word.
    fn rotate<const RIGHT: i32, const LEFT: i32>(self) -> Self;
    fn shift_right<const BITS: u32>(self) -> Self;
    /// Bits of `yes` where `self` has ones, of `no` where it has zeros.
    fn choose(self, yes: Self, no: Self) -> Self;
    /// The bits that are set in at least two of the three.
    fn majority(self, second: Self, third: Self) -> Self;
}

/// A word of a hash function: 32 or 64 bits, kept big-endian in bytes.
pub(crate) trait Word:
    Vector<Word = Self, Proof = ()> + Default + Eq + Send + zeroize::DefaultIsZeroes + 'static
{
    const BYTES: usize;
    /// Reads [`Self::BYTES`] bytes.
    fn from_be(bytes: &[u8]) -> Self;
    /// Writes as many leading bytes as fit.
    fn write_be(self, out: &mut [u8]);
    /// The low bits of a length.
    fn from_length(bits: u64) -> Self;
}

macro_rules! word {
    ($word:ident) => {
        impl Vector for $word {
            type Word = Self;
            type Proof = ();
            const LANES: usize = 1;

            #[inline(always)]
            fn splat((): (), word: Self) -> Self {
                word
            }

            #[inline(always)]
            fn load((): (), words: &[Self]) -> Self {
                words[0]
            }

            #[inline(always)]
            fn store(self, words: &mut [Self]) {
                words[0] = self;
            }

            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn pin(self) -> Self {
                self
            }

            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }

            #[inline(always)]
            fn rotate<const RIGHT: i32, const LEFT: i32>(self) -> Self {
                const { assert!((RIGHT + LEFT).cast_unsigned() == Self::BITS) };
                self.rotate_right(RIGHT.cast_unsigned())
            }

            #[inline(always)]
            fn shift_right<const BITS: u32>(self) -> Self {
                self >> BITS
            }

            #[inline(always)]
            fn choose(self, yes: Self, no: Self) -> Self {
                (self & (yes ^ no)) ^ no
            }

            #[inline(always)]
            fn majority(self, second: Self, third: Self) -> Self {
                // The second difference is the first one of the round before, which the compiler sees.
                ((self ^ second) & (second ^ third)) ^ second
            }
        }

        impl Word for $word {
            const BYTES: usize = size_of::<Self>();

            #[inline]
            fn from_be(bytes: &[u8]) -> Self {
                bytes.iter().take(Self::BYTES).fold(0, |word, &byte| (word << 8) | Self::from(byte))
            }

            #[inline]
            fn write_be(self, out: &mut [u8]) {
                for (out, byte) in out.iter_mut().zip(self.to_be_bytes()) {
                    *out = byte;
                }
            }

            #[inline]
            fn from_length(bits: u64) -> Self {
                bits as Self
            }
        }
    };
}

word!(u32);
word!(u64);

/// Two vectors side by side: one fills the gaps in which the other waits for its results.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) struct Pair<V>(V, V);

#[cfg(target_arch = "x86_64")]
impl<V: Vector> Vector for Pair<V> {
    type Word = V::Word;
    type Proof = V::Proof;
    const LANES: usize = 2 * V::LANES;

    #[inline(always)]
    fn splat(proof: V::Proof, word: V::Word) -> Self {
        Self(V::splat(proof, word), V::splat(proof, word))
    }

    #[inline(always)]
    fn load(proof: V::Proof, words: &[V::Word]) -> Self {
        let (first, second) = words.split_at(V::LANES);
        Self(V::load(proof, first), V::load(proof, second))
    }

    #[inline(always)]
    fn store(self, words: &mut [V::Word]) {
        let (first, second) = words.split_at_mut(V::LANES);
        self.0.store(first);
        self.1.store(second);
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self(self.0.add(other.0), self.1.add(other.1))
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self(self.0.sub(other.0), self.1.sub(other.1))
    }

    #[inline(always)]
    fn pin(self) -> Self {
        Self(self.0.pin(), self.1.pin())
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        Self(self.0.xor(other.0), self.1.xor(other.1))
    }

    #[inline(always)]
    fn rotate<const RIGHT: i32, const LEFT: i32>(self) -> Self {
        Self(self.0.rotate::<RIGHT, LEFT>(), self.1.rotate::<RIGHT, LEFT>())
    }

    #[inline(always)]
    fn shift_right<const BITS: u32>(self) -> Self {
        Self(self.0.shift_right::<BITS>(), self.1.shift_right::<BITS>())
    }

    #[inline(always)]
    fn choose(self, yes: Self, no: Self) -> Self {
        Self(self.0.choose(yes.0, no.0), self.1.choose(yes.1, no.1))
    }

    #[inline(always)]
    fn majority(self, second: Self, third: Self) -> Self {
        Self(self.0.majority(second.0, third.0), self.1.majority(second.1, third.1))
    }
}
