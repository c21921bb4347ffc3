//! Hashes of one pass, for what needs no more or was stored with no more.

use pbkdf2::hmac::{KeyInit as _, Mac as _, SimpleHmac};
use sha2::{Digest as _, Sha256, Sha512};
use zeroize::{Zeroize as _, Zeroizing};

/// SHA-256 in lower-case hexadecimal, as Django feeds it to bcrypt.
pub(super) fn sha256_hex(bytes: &[u8]) -> Zeroizing<Vec<u8>> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digest = Sha256::digest(bytes);
    let mut hex = Zeroizing::new(Vec::with_capacity(64));
    for byte in digest.iter() {
        hex.push(DIGITS[usize::from(byte >> 4)]);
        hex.push(DIGITS[usize::from(byte & 0xF)]);
    }
    digest.as_mut_slice().zeroize();
    hex
}

pub(super) fn sha256(bytes: &[u8]) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(Sha256::digest(bytes).to_vec())
}

pub(super) fn sha512(bytes: &[u8]) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(Sha512::digest(bytes).to_vec())
}

/// HMAC takes keys of any length.
pub(super) fn hmac_sha256(key: &[u8], bytes: &[u8]) -> Zeroizing<Vec<u8>> {
    let code =
        SimpleHmac::<Sha256>::new_from_slice(key).map(|mac| mac.chain_update(bytes).finalize().into_bytes());
    Zeroizing::new(code.map(|code| code.to_vec()).unwrap_or_default())
}
