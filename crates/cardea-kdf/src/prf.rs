//! The supported pseudorandom functions of PBKDF2.

use std::fmt;

/// The pseudorandom function of PBKDF2: HMAC (RFC 2104) over a hash function.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Prf {
    /// HMAC-SHA-1. Only for old stored secrets.
    HmacSha1,
    /// HMAC-SHA-256.
    HmacSha256,
    /// HMAC-SHA-512.
    HmacSha512,
}

impl Prf {
    /// All of them, weakest first.
    pub const ALL: [Self; 3] = [Self::HmacSha1, Self::HmacSha256, Self::HmacSha512];

    /// The bytes of one block of output. Each further block costs the whole computation again.
    #[must_use]
    pub const fn output_len(self) -> usize {
        match self {
            Self::HmacSha1 => 20,
            Self::HmacSha256 => 32,
            Self::HmacSha512 => 64,
        }
    }
}

impl fmt::Display for Prf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HmacSha1 => "HMAC-SHA-1",
            Self::HmacSha256 => "HMAC-SHA-256",
            Self::HmacSha512 => "HMAC-SHA-512",
        })
    }
}
