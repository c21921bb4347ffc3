//! SHA-1, SHA-256 and SHA-512 (FIPS 180-4), each written once over a vector of lanes.

mod sha1;
mod sha2;

pub(crate) use sha1::Sha1;
#[cfg(target_arch = "x86_64")]
pub(crate) use sha2::K256;
pub(crate) use sha2::{Sha256, Sha512};

use zeroize::Zeroize;

use crate::vector::{Vector, Word};

/// The chaining value. SHA-1 uses the first five words of it.
pub(crate) type State<V> = [V; 8];

/// A block-oriented hash function.
pub(crate) trait Hash: 'static {
    type Word: Word;
    /// The initial chaining value.
    const INITIAL: State<Self::Word>;
    /// The words of the chaining value, all of which are output.
    const WORDS: usize;

    /// Bytes of a block.
    const BLOCK: usize = 16 * Self::Word::BYTES;
    /// Bytes of output.
    const OUTPUT: usize = Self::WORDS * Self::Word::BYTES;

    /// Compresses one block into the chaining value.
    fn compress<V: Vector<Word = Self::Word>>(proof: V::Proof, state: &State<V>, block: [V; 16]) -> State<V>;

    /// Compresses a digest that ends the second block of a message, as in both halves of an HMAC. All other words are
    /// constants, which the compiler folds into the message schedule.
    #[inline(always)]
    fn compress_digest<V: Vector<Word = Self::Word>>(
        proof: V::Proof,
        state: &State<V>,
        digest: &State<V>,
    ) -> State<V> {
        let mut block = [V::splat(proof, Self::Word::default()); 16];
        block[..Self::WORDS].copy_from_slice(&digest[..Self::WORDS]);
        block[Self::WORDS] = V::splat(proof, Self::Word::from_be(&[0x80, 0, 0, 0, 0, 0, 0, 0]));
        block[15] = V::splat(proof, Self::Word::from_length((Self::BLOCK + Self::OUTPUT) as u64 * 8));
        Self::compress(proof, state, block)
    }

    /// Finishes a message whose whole blocks (`before` bytes) are already in `state`.
    fn finish(state: &State<Self::Word>, before: usize, parts: &[&[u8]]) -> State<Self::Word> {
        let mut state = *state;
        let mut block = [0_u8; 128];
        let mut filled = 0;
        let mut total = before as u64;
        for part in parts {
            let mut rest = *part;
            total += rest.len() as u64;
            while !rest.is_empty() {
                let (taken, left) = rest.split_at(rest.len().min(Self::BLOCK - filled));
                block[filled..filled + taken.len()].copy_from_slice(taken);
                filled += taken.len();
                rest = left;
                if filled == Self::BLOCK {
                    state = Self::compress_bytes(&state, &block[..Self::BLOCK]);
                    filled = 0;
                }
            }
        }
        block[filled] = 0x80;
        block[filled + 1..Self::BLOCK].fill(0);
        // The length takes two words.
        if filled + 1 + 2 * Self::Word::BYTES > Self::BLOCK {
            state = Self::compress_bytes(&state, &block[..Self::BLOCK]);
            block.fill(0);
        }
        block[Self::BLOCK - 8..Self::BLOCK].copy_from_slice(&(total * 8).to_be_bytes());
        state = Self::compress_bytes(&state, &block[..Self::BLOCK]);
        block.zeroize();
        state
    }

    /// [`Self::compress`] of one block in bytes.
    fn compress_bytes(state: &State<Self::Word>, block: &[u8]) -> State<Self::Word> {
        let mut words = [Self::Word::default(); 16];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(Self::Word::BYTES)) {
            *word = Self::Word::from_be(bytes);
        }
        let next = Self::compress((), state, words);
        words.zeroize();
        #[cfg(test)]
        COMPRESSIONS.set(COMPRESSIONS.get() + 1);
        next
    }

    /// The bytes of a chaining value, as many as fit.
    fn write(state: &State<Self::Word>, out: &mut [u8]) {
        for (word, out) in state[..Self::WORDS].iter().zip(out.chunks_mut(Self::Word::BYTES)) {
            word.write_be(out);
        }
    }
}

/// Repeats a step sixteen times with a constant index: the compiler must know the index into a rotated state, and
/// doesn't unroll loops of this size by itself.
macro_rules! sixteen {
    ($step:ident) => {
        $step!(0);
        $step!(1);
        $step!(2);
        $step!(3);
        $step!(4);
        $step!(5);
        $step!(6);
        $step!(7);
        $step!(8);
        $step!(9);
        $step!(10);
        $step!(11);
        $step!(12);
        $step!(13);
        $step!(14);
        $step!(15);
    };
}
pub(crate) use sixteen;

#[cfg(test)]
std::thread_local! {
    static COMPRESSIONS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The number of byte blocks that this thread has compressed: those of passwords and salts.
#[cfg(test)]
pub(crate) fn compressions() -> u64 {
    COMPRESSIONS.get()
}

#[cfg(test)]
mod tests;
