//! What .NET's libraries store as base64: ASP.NET Core Identity, OpenIddict, Duende IdentityServer.
//!
//! | first byte | layout (big-endian) |
//! |---|---|
//! | `00` | V2: salt of 16, HMAC-SHA-1 × 1,000 of 32; 49 bytes in all |
//! | `01` | V3: PRF of 4 (0 SHA-1, 1 SHA-256, 2 SHA-512), iterations of 4, length of the salt of 4, salt, subkey |
//!
//! OpenIddict writes V3. Duende's `Sha256()` and `Sha512()` have no marker and no salt: they are told by their length of
//! 32 or 64 bytes, which V2 never has, nor V3 with the sizes that its writers use (61 bytes).

use super::{
    base64::{PADDED, decode},
    error::{FormatError, wrong},
    scheme::{Digest, Scheme, iterations},
};
use crate::Prf;

const V2_ITERATIONS: u32 = 1_000;
const V2_SALT: usize = 16;
const V2_BYTES: usize = 1 + V2_SALT + 32;
const V3_HEADER: usize = 13;
/// Both writers refuse to read less.
const V3_SALT_MIN: usize = 16;
const V3_SUBKEY_MIN: usize = 16;

pub(super) fn parse(text: &str) -> Result<Scheme, FormatError> {
    let bytes = decode(&PADDED, text, "hash")?;
    match (bytes.len(), bytes.first()) {
        (32, _) => Ok(Scheme::Digest { digest: Digest::Sha256, expected: bytes }),
        (64, _) => Ok(Scheme::Digest { digest: Digest::Sha512, expected: bytes }),
        (V2_BYTES, Some(0)) => Ok(Scheme::Pbkdf2 {
            prf: Prf::HmacSha1,
            iterations: iterations(V2_ITERATIONS)?,
            salt: bytes[1..=V2_SALT].to_vec(),
            expected: bytes[1 + V2_SALT..].to_vec(),
        }),
        (_, Some(0)) => Err(wrong("subkey", "expected 49 bytes in all (ASP.NET Core Identity V2)")),
        (_, Some(1)) => v3(&bytes),
        _ => Err(wrong("format marker", "unknown")),
    }
}

fn v3(bytes: &[u8]) -> Result<Scheme, FormatError> {
    let Some((header, rest)) = bytes.split_at_checked(V3_HEADER) else {
        return Err(wrong("header", "cut short"));
    };
    let word = |at: usize| {
        let mut word = [0; 4];
        word.copy_from_slice(&header[at..at + 4]);
        u32::from_be_bytes(word)
    };
    let prf = match word(1) {
        0 => Prf::HmacSha1,
        1 => Prf::HmacSha256,
        2 => Prf::HmacSha512,
        _ => return Err(wrong("prf", "expected 0, 1 or 2")),
    };
    let salt_len = usize::try_from(word(9)).unwrap_or(usize::MAX);
    if salt_len < V3_SALT_MIN {
        return Err(wrong("salt", "expected at least 16 bytes"));
    }
    let Some((salt, subkey)) = rest.split_at_checked(salt_len) else {
        return Err(wrong("salt", "cut short"));
    };
    if subkey.len() < V3_SUBKEY_MIN {
        return Err(wrong("subkey", "expected at least 16 bytes"));
    }
    Ok(Scheme::Pbkdf2 {
        prf,
        iterations: iterations(word(5))?,
        salt: salt.to_vec(),
        expected: subkey.to_vec(),
    })
}
