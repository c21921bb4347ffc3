//! The key schedule of HMAC, which depends only on the password.

use std::fmt;

use zeroize::{Zeroize, Zeroizing};

use crate::hash::{Hash, Sha1, Sha256, Sha512, State};
use crate::prf::Prf;

/// The HMAC key schedule of one password. To compare one password with several stored secrets, create it once, as
/// [`Password`](crate::Password) does.
///
/// It is wiped when dropped, and never copied: jobs share it.
pub struct Schedule(pub(crate) Keyed);

/// By the hash function.
pub(crate) enum Keyed {
    Sha1(Key<Sha1>),
    Sha256(Key<Sha256>),
    Sha512(Key<Sha512>),
}

impl Schedule {
    /// Computes the schedule. Passwords longer than a block are hashed first (RFC 2104 §2).
    #[must_use]
    pub fn new(prf: Prf, password: &[u8]) -> Self {
        Self(match prf {
            Prf::HmacSha1 => Keyed::Sha1(Key::new(password)),
            Prf::HmacSha256 => Keyed::Sha256(Key::new(password)),
            Prf::HmacSha512 => Keyed::Sha512(Key::new(password)),
        })
    }

    /// The function of the schedule.
    #[must_use]
    pub const fn prf(&self) -> Prf {
        match self.0 {
            Keyed::Sha1(_) => Prf::HmacSha1,
            Keyed::Sha256(_) => Prf::HmacSha256,
            Keyed::Sha512(_) => Prf::HmacSha512,
        }
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule").field("prf", &self.prf()).finish_non_exhaustive()
    }
}

/// The chaining values after the padded key: inner and outer.
pub(crate) struct Key<H: Hash> {
    pub(crate) inner: State<H::Word>,
    pub(crate) outer: State<H::Word>,
}

impl<H: Hash> Key<H> {
    pub(crate) fn new(password: &[u8]) -> Self {
        let mut block = Zeroizing::new([0_u8; 128]);
        if password.len() > H::BLOCK {
            let mut digest = H::finish(&H::INITIAL, 0, &[password]);
            H::write(&digest, &mut block[..H::OUTPUT]);
            digest.zeroize();
        } else {
            block[..password.len()].copy_from_slice(password);
        }
        let mut pad = |byte: u8| {
            block.iter_mut().for_each(|b| *b ^= byte);
            H::compress_bytes(&H::INITIAL, &block[..H::BLOCK])
        };
        let inner = pad(0x36);
        let outer = pad(0x36 ^ 0x5c);
        Self { inner, outer }
    }

    /// U₁ of RFC 8018 §5.2: HMAC over the salt and the number of the block, from 1.
    pub(crate) fn first(&self, salt: &[u8], block: u32) -> State<H::Word> {
        let mut digest = H::finish(&self.inner, H::BLOCK, &[salt, &block.to_be_bytes()]);
        let first = H::compress_digest((), &self.outer, &digest);
        digest.zeroize();
        first
    }
}

impl<H: Hash> Drop for Key<H> {
    fn drop(&mut self) {
        self.inner.zeroize();
        self.outer.zeroize();
    }
}
