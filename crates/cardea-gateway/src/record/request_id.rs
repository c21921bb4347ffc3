//! Identifiers of requests, made here: what a client sends as one is not taken over.
//!
//! The form is that of a ULID in lower case: 48 bits of Unix milliseconds and 80 others, as 26 letters of
//! Crockford's base 32. They sort by time and hold no letter that is mistaken for another.

use std::cell::RefCell;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use cardea_clock::Wall;

#[cfg(test)]
mod tests;

/// The identifier of one request.
///
/// It does not repeat, not between threads, processes and machines either, but is no secret: knowing one must
/// not give anyone anything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// Written once: heads and logs contain it several times.
    text: [u8; Self::LENGTH],
}

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The value of each letter.
static VALUES: [u8; 256] = {
    let mut values = [0; 256];
    let mut value = 0;
    while value < ALPHABET.len() {
        values[ALPHABET[value] as usize] = value as u8;
        value += 1;
    }
    values
};

impl RequestId {
    /// The bytes of its text.
    pub const LENGTH: usize = 26;

    /// A new identifier. `now` may be coarse: it says when, uniqueness does not depend on it.
    ///
    /// Each thread counts, and a keyed hash (SipHash, under a key that the standard library draws for each
    /// thread) makes 64 bits of the count; the count's own low 16 bits keep those of one thread apart even
    /// where the hash does not.
    #[must_use]
    pub fn generate(now: Wall) -> Self {
        thread_local! {
            static SOURCE: RefCell<Source> = RefCell::new(Source { key: RandomState::new(), count: 0 });
        }
        // Before 1970 is 0; the latest `Wall`, in 2262, has 44 bits of milliseconds.
        let millis = u128::try_from(now.unix_millis()).unwrap_or(0);
        let rest = SOURCE.with_borrow_mut(Source::next);
        Self::from_bits(millis << 80 | rest)
    }

    fn from_bits(bits: u128) -> Self {
        let mut text = [0; Self::LENGTH];
        // Twelve letters of each half-word at a time: shifts of 128 bits cost twice as much.
        let mut rest = bits;
        for letters in text.rchunks_mut(12) {
            let mut bits = rest as u64;
            rest >>= 60;
            for letter in letters.iter_mut().rev() {
                *letter = ALPHABET[(bits & 31) as usize];
                bits >>= 5;
            }
        }
        Self { text }
    }

    fn bits(self) -> u128 {
        self.text.iter().fold(0, |bits, letter| bits << 5 | u128::from(VALUES[usize::from(*letter)]))
    }

    /// A number that is evenly spread, for sampling: the hashed bits.
    #[must_use]
    pub(crate) fn sample(self) -> u64 {
        (self.bits() >> 16) as u64
    }

    /// Its text: 26 of `0123456789abcdefghjkmnpqrstvwxyz`.
    #[must_use]
    pub fn to_ascii(self) -> [u8; Self::LENGTH] {
        self.text
    }
}

impl Default for RequestId {
    fn default() -> Self {
        Self { text: [ALPHABET[0]; Self::LENGTH] }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_ascii().iter().try_for_each(|letter| fmt::Write::write_char(f, char::from(*letter)))
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

struct Source {
    key: RandomState,
    count: u64,
}

impl Source {
    /// 80 bits: 64 hashed, 16 counted. The counted ones stand last, where they do not disturb the order.
    fn next(&mut self) -> u128 {
        self.count = self.count.wrapping_add(1);
        let hashed = self.key.hash_one(self.count);
        u128::from(hashed) << 16 | u128::from(self.count as u16)
    }
}
