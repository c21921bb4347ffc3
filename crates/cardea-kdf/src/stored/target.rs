//! The hash of newly stored secrets.

use std::num::NonZeroU32;

use base64::Engine as _;
use zeroize::Zeroizing;

use super::{
    StoredSecret,
    base64::PHC,
    check_secret,
    error::{FormatError, SecretError},
    scheme::{Scheme, strength},
};
use crate::{Job, Password, Prf, derive};

/// PBKDF2-HMAC-SHA-512 with 32 bytes of output, half a block. A whole block would cost the same without more security.
const PRF: Prf = Prf::HmacSha512;
const OUTPUT_BYTES: usize = 32;

/// The parameters of new hashes: PBKDF2-HMAC-SHA-512 with an iteration count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Target {
    iterations: NonZeroU32,
}

impl Target {
    /// The function of new hashes.
    pub const PRF: Prf = PRF;
    /// OWASP's count for PBKDF2-HMAC-SHA-512 (password storage cheat sheet, 2023).
    pub const ITERATIONS_DEFAULT: u32 = 210_000;
    /// The fewest iterations of new hashes.
    pub const ITERATIONS_MIN: u32 = 10_000;

    /// A target with that many iterations: 10,000 to 10,000,000.
    ///
    /// # Errors
    /// If the number is out of range.
    pub fn new(iterations: u32) -> Result<Self, FormatError> {
        let target = NonZeroU32::new(iterations).filter(|count| count.get() >= Self::ITERATIONS_MIN);
        let Some(iterations) = target else {
            return Err(super::error::wrong("iterations", "expected at least 10000"));
        };
        Scheme::Pbkdf2 { prf: PRF, iterations, salt: vec![0; 16], expected: vec![0; OUTPUT_BYTES] }
            .check()?;
        Ok(Self { iterations })
    }

    /// The iteration count.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        self.iterations.get()
    }

    /// Hashes a secret with a unique salt. Returns a PHC string that [`StoredSecret::parse`] accepts.
    ///
    /// # Errors
    /// If `secret` is not allowed.
    pub fn hash(&self, secret: &[u8], salt: &[u8; 16]) -> Result<String, SecretError> {
        check_secret(secret)?;
        let mut out = Zeroizing::new([0; OUTPUT_BYTES]);
        // Half a block of output is always derivable.
        derive(PRF, secret, salt, self.iterations, out.as_mut_slice()).map_err(|_| SecretError::TooLong)?;
        Ok(self.text(salt, out.as_slice()))
    }

    /// The same as a job for an [`Engine`](crate::Engine) of [`Target::PRF`]: [`Target::text`] converts its output to a
    /// PHC string.
    ///
    /// # Errors
    /// If `secret` is not allowed.
    pub fn job<T>(&self, secret: &Password, salt: &[u8; 16], tag: T) -> Result<Job<T>, SecretError> {
        check_secret(secret.as_bytes())?;
        Ok(Job {
            schedule: secret.schedule(PRF),
            salt: Box::from(&salt[..]),
            iterations: self.iterations,
            output_len: OUTPUT_BYTES,
            tag,
        })
    }

    /// The PHC string of the derived output for `salt`.
    #[must_use]
    pub fn text(&self, salt: &[u8; 16], derived: &[u8]) -> String {
        let (salt, hash) = (PHC.encode(salt), PHC.encode(derived));
        format!("$pbkdf2-sha512$i={},l={}${salt}${hash}", self.iterations, derived.len())
    }

    /// The [`StoredSecret::profile`] of the results of [`Target::hash`].
    #[must_use]
    pub fn profile(&self) -> String {
        StoredSecret(Scheme::Pbkdf2 {
            prf: PRF,
            iterations: self.iterations,
            salt: Vec::new(),
            expected: vec![0; OUTPUT_BYTES],
        })
        .profile()
    }

    pub(super) fn strength(&self) -> u64 {
        strength(PRF, self.iterations)
    }
}
