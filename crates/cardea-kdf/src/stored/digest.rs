//! Single-pass hashes, for high-entropy secrets and for secrets that were stored that way.

use pbkdf2::hmac::{KeyInit as _, Mac as _, SimpleHmac};
use sha2::{Digest as _, Sha256, Sha512};
use zeroize::{Zeroize as _, Zeroizing};

/// SHA-256 in lower-case hexadecimal, as Django feeds it to bcrypt.
pub(super) fn sha256_hex(bytes: &[u8]) -> Zeroizing<Vec<u8>> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hex = Zeroizing::new(Vec::with_capacity(64));
    for byte in sha256(bytes).iter() {
        hex.push(DIGITS[usize::from(byte >> 4)]);
        hex.push(DIGITS[usize::from(byte & 0xF)]);
    }
    hex
}

pub(super) fn sha256(bytes: &[u8]) -> Zeroizing<Vec<u8>> {
    taken(Sha256::digest(bytes))
}

pub(super) fn sha512(bytes: &[u8]) -> Zeroizing<Vec<u8>> {
    taken(Sha512::digest(bytes))
}

/// HMAC takes keys of any length.
pub(super) fn hmac_sha256(key: &[u8], bytes: &[u8]) -> Zeroizing<Vec<u8>> {
    let code =
        SimpleHmac::<Sha256>::new_from_slice(key).map(|mac| mac.chain_update(bytes).finalize().into_bytes());
    code.map(taken).unwrap_or_default()
}

/// The bytes of a digest, which is wiped.
fn taken(mut digest: impl AsMut<[u8]>) -> Zeroizing<Vec<u8>> {
    let digest = digest.as_mut();
    let bytes = Zeroizing::new(digest.to_vec());
    digest.zeroize();
    bytes
}
