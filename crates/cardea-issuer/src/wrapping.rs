//! The wrapping key, which encrypts private keys at rest: AES-256-GCM-SIV under 32 bytes that the operator stores
//! elsewhere.

use std::fmt;

use aws_lc_rs::{
    aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand,
};
use base64::{
    Engine as _,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::URL_SAFE_NO_PAD},
};
use zeroize::Zeroizing;

use cardea_store::{KeyRecord, SigningAlgorithm};

use crate::secret::sha256;

const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 16;

const LENIENT_PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::STANDARD, LENIENT_PADDING);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::URL_SAFE, LENIENT_PADDING);

/// The 32-byte key that encrypts stored private keys. `Debug` redacts it; the bytes are wiped on drop.
#[derive(Clone)]
pub struct WrappingKey {
    bytes: Zeroizing<[u8; KEY_BYTES]>,
    id: String,
}

/// Why a wrapping key can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WrappingKeyError {
    /// The text is not a key.
    #[error(
        "wrapping key: expected 32 bytes in base64 or hex{found}; make one with: openssl rand -base64 32"
    )]
    Malformed {
        /// What was found instead, without showing it.
        found: String,
    },
    /// The stored keys were encrypted with another key.
    #[error(
        "signing key {kid} was wrapped with key {stored}, but the configured wrapping key is {configured}; \
         configure the key it was wrapped with (nothing was changed)"
    )]
    Mismatch {
        /// The signing key's id.
        kid: String,
        /// The id of the wrapping key in the record.
        stored: String,
        /// The id of the configured wrapping key.
        configured: String,
    },
    /// The wrapping key is the right one, but the encrypted bytes or their record were changed.
    #[error("signing key {kid} can't be unwrapped: its record is damaged (nothing was changed)")]
    Damaged {
        /// The signing key's id.
        kid: String,
    },
}

impl WrappingKey {
    /// Generates a key, for a server without persistent data (the demo) and for tests.
    ///
    /// # Errors
    /// [`crate::IssuerError::Crypto`] if the operating system provides no randomness.
    pub fn generate() -> Result<Self, crate::IssuerError> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        rand::fill(bytes.as_mut_slice()).map_err(|_| crate::IssuerError::Crypto("no randomness"))?;
        Ok(Self::from_bytes(&bytes))
    }

    /// The key with these 32 bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; KEY_BYTES]) -> Self {
        let id = key_id(bytes);
        Self { bytes: Zeroizing::new(*bytes), id }
    }

    /// Parses a key from a file or an environment variable: 64 hex digits, or base64 (either alphabet, with or without
    /// padding), with surrounding white space ignored; or a file's 32 raw bytes, unless they look typed: a pass phrase
    /// is no key.
    ///
    /// # Errors
    /// [`WrappingKeyError::Malformed`], which never shows the input.
    pub fn parse(text: &[u8]) -> Result<Self, WrappingKeyError> {
        let trimmed = text.trim_ascii();
        let decoded = if trimmed.len() == 2 * KEY_BYTES && trimmed.iter().all(u8::is_ascii_hexdigit) {
            hex(trimmed)
        } else if let Ok(bytes) = STANDARD.decode(trimmed).or_else(|_| URL_SAFE.decode(trimmed)) {
            Zeroizing::new(bytes)
        } else if text.len() == KEY_BYTES && !text.iter().all(is_typed) {
            Zeroizing::new(text.to_vec())
        } else {
            let found = if trimmed.is_empty() { ", found nothing".into() } else { String::new() };
            return Err(WrappingKeyError::Malformed { found });
        };
        let Ok(bytes) = <&[u8; KEY_BYTES]>::try_from(decoded.as_slice()) else {
            let found = match decoded.len() {
                0 => ", found nothing".into(),
                found => format!(", found {found} bytes"),
            };
            return Err(WrappingKeyError::Malformed { found });
        };
        Ok(Self::from_bytes(bytes))
    }

    /// A short id of the key, which may be shown. It identifies the key of a record and reveals nothing about the key.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Encrypts a private key: a random nonce, then the ciphertext with its tag, bound to the key's id and algorithm.
    pub(crate) fn wrap(&self, kid: &str, algorithm: SigningAlgorithm, private: &[u8]) -> Option<Vec<u8>> {
        self.seal_for(associated_data(kid, algorithm), private)
    }

    /// Encrypts a private key that signs no tokens. It can be opened only with the same `context`, which names its
    /// owner.
    ///
    /// # Errors
    /// [`crate::IssuerError::Crypto`] if the operating system provides no randomness.
    pub fn seal(&self, context: &str, private: &[u8]) -> Result<Vec<u8>, crate::IssuerError> {
        let sealed = self.seal_for(other_data(context), private);
        sealed.ok_or(crate::IssuerError::Crypto("no randomness"))
    }

    /// Decrypts the result of [`Self::seal`].
    ///
    /// # Errors
    /// [`WrappingKeyError::Mismatch`] if `stored_id` is the id of another wrapping key, [`WrappingKeyError::Damaged`]
    /// if it is the id of this one and the bytes don't authenticate. Both name the key by its context.
    pub fn open(
        &self,
        context: &str,
        stored_id: &str,
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, WrappingKeyError> {
        self.open_for(context, other_data(context), stored_id, sealed)
    }

    /// Checks that this key opens a stored signing key.
    ///
    /// # Errors
    /// [`WrappingKeyError::Mismatch`], [`WrappingKeyError::Damaged`].
    pub fn check(&self, record: &KeyRecord) -> Result<(), WrappingKeyError> {
        self.unwrap(&record.kid, record.algorithm, &record.wrapping_key_id, &record.wrapped).map(drop)
    }

    /// Checks that a record, which messages call `name`, was encrypted with this key.
    ///
    /// # Errors
    /// [`WrappingKeyError::Mismatch`].
    pub fn check_id(&self, name: &str, stored_id: &str) -> Result<(), WrappingKeyError> {
        if stored_id == self.id {
            return Ok(());
        }
        Err(WrappingKeyError::Mismatch {
            kid: name.into(),
            stored: stored_id.into(),
            configured: self.id.clone(),
        })
    }

    fn seal_for(&self, associated: Vec<u8>, private: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut out = Vec::with_capacity(NONCE_LEN + private.len() + TAG_BYTES);
        // The plaintext is encrypted in place, so no copy of it remains.
        let mut sealed = Zeroizing::new(Vec::with_capacity(private.len() + TAG_BYTES));
        sealed.extend_from_slice(private);
        self.cipher()?
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(associated),
                &mut *sealed,
            )
            .ok()?;
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&sealed);
        Some(out)
    }

    /// Decrypts the result of [`Self::wrap`].
    ///
    /// # Errors
    /// [`WrappingKeyError::Mismatch`] if `stored_id` is the id of another wrapping key, [`WrappingKeyError::Damaged`]
    /// if it is the id of this one and the bytes don't authenticate.
    pub(crate) fn unwrap(
        &self,
        kid: &str,
        algorithm: SigningAlgorithm,
        stored_id: &str,
        wrapped: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, WrappingKeyError> {
        self.open_for(kid, associated_data(kid, algorithm), stored_id, wrapped)
    }

    fn open_for(
        &self,
        kid: &str,
        associated: Vec<u8>,
        stored_id: &str,
        wrapped: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, WrappingKeyError> {
        self.check_id(kid, stored_id)?;
        let damaged = || WrappingKeyError::Damaged { kid: kid.into() };
        let (nonce, sealed) = wrapped.split_first_chunk::<NONCE_LEN>().ok_or_else(damaged)?;
        let mut opened = Zeroizing::new(sealed.to_vec());
        let length = self
            .cipher()
            .ok_or_else(damaged)?
            .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(associated), opened.as_mut_slice())
            .map_err(|_| damaged())?
            .len();
        opened.truncate(length);
        Ok(opened)
    }

    fn cipher(&self) -> Option<LessSafeKey> {
        UnboundKey::new(&AES_256_GCM_SIV, self.bytes.as_slice()).ok().map(LessSafeKey::new)
    }
}

impl fmt::Debug for WrappingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WrappingKey(redacted, id {})", self.id)
    }
}

/// 64 bits of a hash under its own label: enough to distinguish keys, useless for finding one.
fn key_id(bytes: &[u8; KEY_BYTES]) -> String {
    let mut labelled = Zeroizing::new(b"cardea wrapping key id\0".to_vec());
    labelled.extend_from_slice(bytes);
    URL_SAFE_NO_PAD.encode(&sha256(&labelled)[..8])
}

/// Binds the ciphertext to its record, so that records can't be exchanged.
fn associated_data(kid: &str, algorithm: SigningAlgorithm) -> Vec<u8> {
    format!("cardea signing key v1\0{}\0{kid}", algorithm.as_str()).into_bytes()
}

/// The same for keys that sign no tokens. No context yields the data of a signing key.
fn other_data(context: &str) -> Vec<u8> {
    format!("cardea private key v1\0{context}").into_bytes()
}

fn is_typed(byte: &u8) -> bool {
    byte.is_ascii_graphic() || byte.is_ascii_whitespace()
}

fn hex(digits: &[u8]) -> Zeroizing<Vec<u8>> {
    let value =
        |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok()).unwrap_or(0);
    let mut out = Zeroizing::new(Vec::with_capacity(digits.len() / 2));
    for pair in digits.chunks_exact(2) {
        if let [high, low] = pair {
            out.push(value(*high) << 4 | value(*low));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const ES256: SigningAlgorithm = SigningAlgorithm::Es256;

    #[test]
    fn every_spelling_gives_the_same_key() {
        let bytes: [u8; 32] = std::array::from_fn(|index| 0xF8 ^ index as u8);
        let key = WrappingKey::from_bytes(&bytes);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let standard = base64::engine::general_purpose::STANDARD.encode(bytes);
        for text in [
            hex.clone(),
            hex.to_uppercase(),
            format!("  {hex}\n"),
            standard.clone(),
            format!("{standard}\r\n"),
            standard.trim_end_matches('=').to_owned(),
            URL_SAFE_NO_PAD.encode(bytes),
        ] {
            assert_eq!(WrappingKey::parse(text.as_bytes()).unwrap().bytes, key.bytes, "{text}");
        }
        assert_eq!(WrappingKey::parse(&bytes).unwrap().bytes, key.bytes, "raw bytes");
    }

    #[test]
    fn a_malformed_key_is_reported_with_a_remedy_and_without_its_value() {
        for (text, hint) in [
            ("", "found nothing"),
            ("c2VjcmV0", "found 6 bytes"),
            ("not a key at all!", "openssl rand -base64 32"),
            ("a pass phrase of 32 characters!!", "openssl rand -base64 32"),
            ("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde", "openssl"),
        ] {
            let message = WrappingKey::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(message.contains(hint), "{message}");
            assert!(text.is_empty() || !message.contains(text), "{message}");
        }
    }

    #[test]
    fn what_was_wrapped_unwraps_only_under_its_own_key_id_and_algorithm() {
        let key = WrappingKey::generate().unwrap();
        let wrapped = key.wrap("kid-1", ES256, b"private").unwrap();
        assert_eq!(key.unwrap("kid-1", ES256, key.id(), &wrapped).unwrap().as_slice(), b"private");

        let damaged = Err(WrappingKeyError::Damaged { kid: "kid-2".into() });
        assert_eq!(key.unwrap("kid-2", ES256, key.id(), &wrapped).map(|_| ()), damaged);
        assert!(key.unwrap("kid-1", SigningAlgorithm::EdDsa, key.id(), &wrapped).is_err());
        let other = WrappingKey::generate().unwrap();
        assert!(matches!(
            other.unwrap("kid-1", ES256, key.id(), &wrapped),
            Err(WrappingKeyError::Mismatch { .. })
        ));
        assert!(matches!(
            other.unwrap("kid-1", ES256, other.id(), &wrapped),
            Err(WrappingKeyError::Damaged { .. })
        ));
    }

    #[test]
    fn what_was_sealed_opens_only_for_its_context() {
        let key = WrappingKey::generate().unwrap();
        let sealed = key.seal("acme account a", b"private").unwrap();
        assert_eq!(key.open("acme account a", key.id(), &sealed).unwrap().as_slice(), b"private");
        assert!(key.open("acme account b", key.id(), &sealed).is_err());
        assert!(key.open("acme account a", "another", &sealed).is_err());
        assert!(key.unwrap("acme account a", ES256, key.id(), &sealed).is_err(), "it is no signing key");
    }

    #[test]
    fn every_changed_or_missing_byte_is_noticed() {
        let key = WrappingKey::generate().unwrap();
        let wrapped = key.wrap("kid", ES256, b"private").unwrap();
        for index in 0..wrapped.len() {
            let mut changed = wrapped.clone();
            changed[index] ^= 1;
            assert!(key.unwrap("kid", ES256, key.id(), &changed).is_err(), "changed at {index}");
            assert!(key.unwrap("kid", ES256, key.id(), &wrapped[..index]).is_err(), "cut at {index}");
        }
    }

    #[test]
    fn wrapping_twice_gives_different_bytes_and_debug_shows_no_key() {
        let key = WrappingKey::from_bytes(&[7; 32]);
        assert_ne!(key.wrap("kid", ES256, b"private"), key.wrap("kid", ES256, b"private"));
        assert!(format!("{key:?}").starts_with("WrappingKey(redacted"));
    }
}
