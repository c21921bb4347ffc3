//! Generated client secrets and client ids: 256 and 128 random bits in a recognisable format.

use std::fmt;

use aws_lc_rs::{
    digest::{SHA256, digest},
    rand,
};
use zeroize::{Zeroize, Zeroizing};

use crate::IssuerError;

/// The prefix of generated secrets.
const SECRET_PREFIX: &str = "cdsec_";
/// The prefix of generated client ids.
const CLIENT_ID_PREFIX: &str = "cdcli_";
/// Base62 digits of 256 bits: 62⁴³ > 2²⁵⁶.
const SECRET_DIGITS: usize = 43;
/// Base62 digits of 128 bits: 62²² > 2¹²⁸.
const CLIENT_ID_DIGITS: usize = 22;
/// Base62 digits of a CRC-32: 62⁶ > 2³².
const CHECKSUM_DIGITS: usize = 6;
/// The fewest characters of a chosen secret. Shorter ones can be guessed, however slow the hash.
const CHOSEN_MIN: usize = 16;
/// The most characters of a chosen secret.
const CHOSEN_MAX: usize = 256;
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A client secret, shown once.
///
/// The form of a generated one is `cdsec_[0-9A-Za-z]{43}_[0-9A-Za-z]{6}`: 256 random bits in base62 of fixed width, then the CRC-32
/// (ISO-HDLC, as in zlib) of all before the last `_`, in base62 of fixed width, most significant digit first. The
/// regular expression finds leaked secrets; the checksum lets a scanner dismiss look-alikes without a network. The
/// alphabet is one that form-encoding leaves alone, so both readings of RFC 6749 §2.3.1 agree on it.
///
/// `Debug` redacts; the memory is wiped on drop.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Generates a secret.
    ///
    /// # Errors
    /// [`IssuerError::Crypto`] if the operating system provides no randomness.
    pub fn generate() -> Result<Self, IssuerError> {
        let mut bits = Zeroizing::new([0_u8; 32]);
        rand::fill(bits.as_mut_slice()).map_err(|_| IssuerError::Crypto("no randomness"))?;
        Ok(Self::from_bits(&mut bits))
    }

    /// A secret chosen by the operator: 16 to 256 characters of printable ASCII (RFC 6749 appendix A.2).
    ///
    /// # Errors
    /// [`IssuerError::InvalidClient`], without the secret.
    pub fn chosen(text: &str) -> Result<Self, IssuerError> {
        let printable = text.bytes().all(|byte| matches!(byte, 0x20..=0x7E));
        if !printable || !(CHOSEN_MIN..=CHOSEN_MAX).contains(&text.len()) {
            let problem = "expected 16 to 256 characters of printable ASCII".to_owned();
            return Err(IssuerError::InvalidClient { field: "secret", problem });
        }
        Ok(Self(Zeroizing::new(text.to_owned())))
    }

    fn from_bits(bits: &mut [u8; 32]) -> Self {
        let mut text =
            Zeroizing::new(String::with_capacity(SECRET_PREFIX.len() + SECRET_DIGITS + 1 + CHECKSUM_DIGITS));
        text.push_str(SECRET_PREFIX);
        push_base62(&mut text, bits, SECRET_DIGITS);
        let checksum = crc32(text.as_bytes());
        text.push('_');
        push_base62(&mut text, &mut checksum.to_be_bytes(), CHECKSUM_DIGITS);
        Self(text)
    }

    /// The secret itself. It may be shown only to the operator who requested it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether `text` has the format and the checksum of a generated secret, whatever client it belongs to.
    #[must_use]
    pub fn is_well_formed(text: &str) -> bool {
        let Some((body, checksum)) = text.rsplit_once('_') else { return false };
        let Some(digits) = body.strip_prefix(SECRET_PREFIX) else { return false };
        if digits.len() != SECRET_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return false;
        }
        let mut expected = String::with_capacity(CHECKSUM_DIGITS);
        push_base62(&mut expected, &mut crc32(body.as_bytes()).to_be_bytes(), CHECKSUM_DIGITS);
        checksum == expected
    }

    /// The digest that the store keeps.
    pub(crate) fn digest(&self) -> Vec<u8> {
        sha256(self.0.as_bytes()).to_vec()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

/// A new client id, `cdcli_[0-9A-Za-z]{22}`.
pub(crate) fn generate_client_id() -> Result<String, IssuerError> {
    random_base62(CLIENT_ID_PREFIX, CLIENT_ID_DIGITS)
}

/// An id for a secret within its client, which may be logged.
pub(crate) fn generate_secret_id() -> Result<String, IssuerError> {
    let mut bits = [0_u8; 8];
    rand::fill(&mut bits).map_err(|_| IssuerError::Crypto("no randomness"))?;
    let mut text = String::from("s_");
    push_base62(&mut text, &mut bits, 11);
    Ok(text)
}

fn random_base62(prefix: &str, digits: usize) -> Result<String, IssuerError> {
    let mut bits = [0_u8; 16];
    rand::fill(&mut bits).map_err(|_| IssuerError::Crypto("no randomness"))?;
    let mut text = String::from(prefix);
    push_base62(&mut text, &mut bits, digits);
    Ok(text)
}

/// SHA-256 of `bytes`. One pass suffices for secrets of 256 random bits, which can't be guessed.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, bytes).as_ref());
    out
}

/// Appends the big-endian number `bytes` as exactly `digits` base62 digits, leaving `bytes` zero.
fn push_base62(out: &mut String, bytes: &mut [u8], digits: usize) {
    let mut reversed = Zeroizing::new(Vec::with_capacity(digits));
    for _ in 0..digits {
        let mut remainder = 0_u32;
        for byte in bytes.iter_mut() {
            let value = remainder << 8 | u32::from(*byte);
            // The quotient of a value below 62·256 by 62 fits a byte.
            *byte = u8::try_from(value / 62).unwrap_or(u8::MAX);
            remainder = value % 62;
        }
        reversed.push(ALPHABET[remainder as usize]);
    }
    bytes.zeroize();
    out.extend(reversed.iter().rev().map(|digit| char::from(*digit)));
}

/// CRC-32/ISO-HDLC, bit by bit: it runs once per secret that is generated or scanned.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xEDB8_8320 * (crc & 1));
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_crc_of_zlib() {
        // The check value of the CRC catalogue, for the digits 1 to 9.
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn base62_has_a_fixed_width_and_loses_nothing() {
        let mut text = String::new();
        push_base62(&mut text, &mut [0; 32], SECRET_DIGITS);
        assert_eq!(text, "0".repeat(SECRET_DIGITS));
        for (bytes, digits, expected) in [
            (&mut [0_u8, 0, 0, 61][..], 6, "00000z"),
            (&mut [0, 0, 0, 62], 6, "000010"),
            (&mut [0xFF, 0xFF, 0xFF, 0xFF], 6, "4gfFC3"),
        ] {
            let mut text = String::new();
            push_base62(&mut text, bytes, digits);
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn a_generated_secret_is_well_formed_and_anything_changed_is_not() {
        let secret = Secret::generate().unwrap();
        let text = secret.expose();
        assert_eq!(text.len(), 6 + 43 + 1 + 6);
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
        assert!(Secret::is_well_formed(text));
        for index in 0..text.len() {
            let mut changed = text.as_bytes().to_vec();
            changed[index] = if changed[index] == b'a' { b'b' } else { b'a' };
            assert!(!Secret::is_well_formed(std::str::from_utf8(&changed).unwrap()), "changed at {index}");
        }
        for wrong in
            ["", "_", "cdsec_", "cdsec__", &text[1..], &text[..55], &format!("{text}0"), &format!(" {text}")]
        {
            assert!(!Secret::is_well_formed(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn two_secrets_differ_and_debug_shows_neither() {
        let (one, other) = (Secret::generate().unwrap(), Secret::generate().unwrap());
        assert_ne!(one.expose(), other.expose());
        assert_eq!(format!("{one:?}"), "Secret(redacted)");
    }

    #[test]
    fn a_generated_client_id_has_its_form() {
        let id = generate_client_id().unwrap();
        assert_eq!(id.len(), 28);
        assert!(id.starts_with("cdcli_"));
        assert!(id[6..].bytes().all(|byte| byte.is_ascii_alphanumeric()));
    }
}
