//! Secrets as others stored them: read from text, described as jobs, verified.

mod base64;
mod digest;
mod django;
mod dotnet;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod keycloak;
mod modular;
mod scheme;
mod target;

#[cfg(test)]
mod tests;

use std::{fmt, num::NonZeroU32};

use crate::Prf;

#[cfg(any(test, feature = "fuzzing"))]
pub use self::fuzzing::fuzz_stored_secret;
use self::{error::wrong, scheme::Scheme};
pub use self::{
    error::{FormatError, SecretError},
    scheme::Algorithm,
    target::Target,
};

/// The longest text of a stored secret, in bytes. Keycloak's JSON, the wordiest, has about 500.
pub const TEXT_BYTES_MAX: usize = 4_096;
/// The longest secret that is hashed, in bytes.
pub const SECRET_BYTES_MAX: usize = 1_024;

/// What verifies a secret: an algorithm, its cost, a salt, and what must come out.
///
/// All of it is bounded: a stored secret that would take more than some seconds, or more than 256 MiB, is refused when
/// it is read. `Debug` shows the algorithm and its cost alone.
#[derive(Clone)]
pub struct StoredSecret(Scheme);

/// A PBKDF2 job, for the lanes of an engine.
#[derive(Clone, Copy)]
pub struct LaneJob<'a> {
    /// The pseudorandom function.
    pub prf: Prf,
    /// The salt.
    pub salt: &'a [u8],
    /// The iteration count.
    pub iterations: NonZeroU32,
    /// What must come out; to be compared in constant time.
    pub expected: &'a [u8],
}

impl StoredSecret {
    /// Reads a stored secret in the format that its text shows:
    ///
    /// | begins with | format |
    /// |---|---|
    /// | `$pbkdf2…$`, `$argon2id$`, `$argon2i$`, `$scrypt$` | PHC strings; passlib's; Ory Hydra's, whose `sha224` and `sha384` are SHA-3 |
    /// | `$2a$`, `$2b$`, `$2y$`, `$bcrypt-sha256$` | bcrypt; passlib's over a SHA-256 or its HMAC |
    /// | `pbkdf2_sha256$`, `pbkdf2_sha1$`, `argon2$`, `bcrypt_sha256$`, `bcrypt$`, `scrypt$` | Django |
    /// | `{` | Keycloak's credential, JSON |
    /// | else base64 | of 32 or 64 bytes an unsalted SHA-256 or SHA-512 (Duende); else ASP.NET Core Identity V2 or V3, which OpenIddict writes too |
    ///
    /// # Errors
    /// Which field is wrong, and what would be right. It never repeats the text.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(wrong("hash", "longer than 4096 bytes"));
        }
        let scheme = match text.as_bytes().first() {
            None => return Err(wrong("hash", "empty")),
            Some(b'{') => keycloak::parse(text)?,
            Some(b'$') => modular::parse(text)?,
            Some(_) => match text.split_once('$') {
                Some((name, rest)) => django::parse(name, rest)?,
                None => dotnet::parse(text)?,
            },
        };
        scheme.check()?;
        Ok(Self(scheme))
    }

    /// One of the algorithm and cost that a [`StoredSecret::profile`] names, which no secret matches: what stands in
    /// for a secret that does not exist, at its price.
    ///
    /// # Errors
    /// Where `profile` is none, or beyond the limits.
    pub fn dummy(profile: &str) -> Result<Self, FormatError> {
        let scheme = Scheme::of_profile(profile)?;
        scheme.check()?;
        Ok(Self(scheme))
    }

    /// Algorithm and cost as a short text without white space, the same for secrets that cost the same:
    /// `pbkdf2-sha512;i=210000;l=64`.
    #[must_use]
    pub fn profile(&self) -> String {
        self.0.profile()
    }

    /// The algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.0.algorithm()
    }

    /// The job for an engine's lanes; `None` where only [`StoredSecret::verify`] can do it.
    #[must_use]
    pub fn lane_job(&self) -> Option<LaneJob<'_>> {
        match &self.0 {
            Scheme::Pbkdf2 { prf, iterations, salt, expected } => {
                Some(LaneJob { prf: *prf, salt, iterations: *iterations, expected })
            }
            _ => None,
        }
    }

    /// Whether `secret` is the one. It takes what the algorithm takes, with any secret; the comparison takes constant
    /// time. A secret that [`check_secret`] refuses is none.
    #[must_use]
    pub fn verify(&self, secret: &[u8]) -> bool {
        check_secret(secret).is_ok() && self.0.verify(secret)
    }

    /// Whether hashing anew by `target` would make guessing dearer. Never for what needs memory (Argon2, scrypt) nor
    /// for bcrypt: PBKDF2 is no better at any cost that a server bears.
    #[must_use]
    pub fn needs_rehash(&self, target: &Target) -> bool {
        self.0.strength().is_some_and(|strength| strength < target.strength())
    }
}

impl fmt::Debug for StoredSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoredSecret").field(&self.profile()).finish()
    }
}

/// Whether these bytes may be a secret at all: 1 to 1,024 bytes without NUL, at which C's libraries end a secret.
///
/// # Errors
/// Which of these is wrong.
pub fn check_secret(secret: &[u8]) -> Result<(), SecretError> {
    if secret.is_empty() {
        return Err(SecretError::Empty);
    }
    if secret.len() > SECRET_BYTES_MAX {
        return Err(SecretError::TooLong);
    }
    if secret.contains(&0) {
        return Err(SecretError::Nul);
    }
    Ok(())
}
