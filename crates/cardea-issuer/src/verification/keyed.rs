//! A keyed hash of texts, so that nobody who lacks the key makes two of them share an entry.

use aws_lc_rs::hmac;

/// HMAC-SHA-256 under a key that dies with the process.
pub(super) struct Keyed(hmac::Key);

impl Keyed {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// Of the parts in their order. Each has its length before it, so that no two different lists read the same.
    pub(super) fn hash(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut hash = [0; 32];
        hash.copy_from_slice(context.sign().as_ref());
        hash
    }

    /// Half of it, for tables of which many entries are kept.
    pub(super) fn short(&self, parts: &[&[u8]]) -> [u8; 16] {
        let mut short = [0; 16];
        short.copy_from_slice(&self.hash(parts)[..16]);
        short
    }
}
