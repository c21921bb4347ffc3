//! The cryptography provider: aws-lc-rs, with our order of cipher suites.

use std::sync::{Arc, OnceLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite};

/// The provider of every server and client configuration of this crate; it is never installed as the process default.
///
/// AES-128 comes first: its suite uses SHA-256, for which processors have instructions, while the SHA-384 key schedule
/// of AES-256 took a fifth of a full handshake. ChaCha20 is for clients without AES instructions that offer nothing
/// else. TLS 1.2 uses only ephemeral key exchange with AEAD suites. Key exchange prefers X25519MLKEM768, then X25519,
/// P-256, P-384.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| {
        Arc::new(CryptoProvider {
            cipher_suites: vec![
                cipher_suite::TLS13_AES_128_GCM_SHA256,
                cipher_suite::TLS13_AES_256_GCM_SHA384,
                cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
                cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
                cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
                cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
                cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
                cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
                cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
            ],
            ..aws_lc_rs::default_provider()
        })
    }))
}

#[cfg(test)]
mod tests {
    use rustls::NamedGroup;

    use super::provider;

    #[test]
    fn the_post_quantum_hybrid_is_offered_first() {
        let groups: Vec<_> = provider().kx_groups.iter().map(|group| group.name()).collect();
        assert_eq!(groups.first(), Some(&NamedGroup::X25519MLKEM768));
        assert!(groups.contains(&NamedGroup::X25519));
    }
}
