//! Certificate requests for ACME (RFC 8555), and the certificate that answers TLS-ALPN-01 (RFC 8737).

use std::sync::Arc;

use aws_lc_rs::digest;
use rcgen::{
    CertificateParams, CustomExtension, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256, RsaKeySize,
};
use rustls::ServerConfig;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::config::MinVersion;
use crate::provider;

/// The protocol in which an authority requests the answer to TLS-ALPN-01 (RFC 8737 §6.2).
pub const ALPN: &[u8] = b"acme-tls/1";

/// Why a key, a request or an answer could not be created: an invalid host name, or no randomness.
#[derive(Debug, Error)]
pub enum AcmeCryptoError {
    /// Generating a key, a request or a certificate failed.
    #[error("can't make a key or a request: {0}")]
    Make(#[from] rcgen::Error),
    /// The TLS stack refused the certificate.
    #[error("can't use the answer to a challenge: {0}")]
    Use(#[from] rustls::Error),
}

/// The key type of a requested certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RequestedKey {
    /// ECDSA over P-256.
    #[default]
    EcdsaP256,
    /// ECDSA over P-384.
    EcdsaP384,
    /// RSA with 2048 bits. It takes up to a second to generate.
    Rsa2048,
}

impl RequestedKey {
    /// The name in configuration and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EcdsaP256 => "ecdsa-p256",
            Self::EcdsaP384 => "ecdsa-p384",
            Self::Rsa2048 => "rsa-2048",
        }
    }
}

/// A certificate request (RFC 2986), with its new key.
pub struct CertificateRequest {
    /// The request in DER.
    pub request: Vec<u8>,
    /// The private key: PKCS #8, unencrypted; wiped when dropped.
    pub key: Zeroizing<Vec<u8>>,
}

/// Generates a key, and a certificate request for the DNS names `hosts`.
///
/// # Errors
/// [`AcmeCryptoError::Make`].
pub fn request(hosts: &[String], key: RequestedKey) -> Result<CertificateRequest, AcmeCryptoError> {
    let mut params = CertificateParams::new(hosts.to_vec())?;
    // Only the alternative names identify the host (RFC 9525 §2), and authorities ignore or refuse other fields.
    params.distinguished_name = DistinguishedName::new();
    let key = match key {
        RequestedKey::EcdsaP256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?,
        RequestedKey::EcdsaP384 => KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384)?,
        RequestedKey::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?,
    };
    let request = params.serialize_request(&key)?.der().to_vec();
    Ok(CertificateRequest { request, key: Zeroizing::new(key.serialize_der()) })
}

/// The configuration of handshakes that answer TLS-ALPN-01 for `host`: an untrusted certificate that contains the
/// digest of the key authorization (RFC 8737 §3). It is only for clients that offer nothing but [`ALPN`], and no
/// application data may follow. Sessions are not resumed: no session of ours may begin here.
///
/// # Errors
/// [`AcmeCryptoError`].
pub fn challenge_config(host: &str, key_authorization: &str) -> Result<Arc<ServerConfig>, AcmeCryptoError> {
    let mut params = CertificateParams::new(vec![host.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    let digest = digest::digest(&digest::SHA256, key_authorization.as_bytes());
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest.as_ref())];
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let certificate = params.self_signed(&key)?;
    let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let signing = provider().key_provider.load_private_key(private)?;
    let certified = CertifiedKey::new(vec![certificate.der().clone()], signing);
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(MinVersion::Tls12.versions())?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Answer { host: host.to_owned(), certified: Arc::new(certified) }));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Whether a client requests the answer to a challenge: it offers [`ALPN`] and nothing else (RFC 8737 §3).
#[must_use]
pub fn asks_for_challenge(hello: &ClientHello<'_>) -> bool {
    let Some(mut offered) = hello.alpn() else { return false };
    offered.next() == Some(ALPN) && offered.next().is_none()
}

#[derive(Debug)]
struct Answer {
    host: String,
    certified: Arc<CertifiedKey>,
}

impl ResolvesServerCert for Answer {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let same = hello.server_name().is_some_and(|name| name.eq_ignore_ascii_case(&self.host));
        (same && asks_for_challenge(&hello)).then(|| Arc::clone(&self.certified))
    }
}

#[cfg(test)]
mod tests;
