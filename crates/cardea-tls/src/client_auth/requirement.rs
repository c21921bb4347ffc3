//! The client certificate requirement of a route.

use std::sync::Arc;

use cardea_clock::Wall;
use thiserror::Error;

use super::{ClientAuthority, ClientCertificate, ClientName};

/// Which client certificates a route accepts. Names and fingerprints are alternatives; the common name doesn't count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateRequirement {
    /// Authorities, of which one must verify the certificate. If empty, the authorities of the host apply.
    pub authorities: Vec<Arc<ClientAuthority>>,
    /// Names, of which the certificate must have one.
    pub names: Vec<ClientName>,
    /// SHA-256 fingerprints of accepted certificates in DER.
    pub fingerprints: Vec<[u8; 32]>,
}

/// Why a certificate is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ClientMismatch {
    /// The certificate is expired, revoked, or not issued by an accepted authority.
    #[error("no accepted authority issued the client's certificate, or it is no longer valid")]
    NotVouchedFor,
    /// The certificate has none of the accepted names and fingerprints.
    #[error("neither a name nor the fingerprint of the client's certificate is on the list")]
    NotListed,
}

impl CertificateRequirement {
    /// Checks the certificate at `now`.
    ///
    /// # Errors
    /// [`ClientMismatch`] is the reason for a refusal.
    pub fn check(&self, certificate: &ClientCertificate, now: Wall) -> Result<(), ClientMismatch> {
        let vouched = if self.authorities.is_empty() {
            certificate.holds(now)
        } else {
            self.authorities.iter().any(|authority| certificate.is_vouched_for_by(authority, now))
        };
        if !vouched {
            return Err(ClientMismatch::NotVouchedFor);
        }
        let anyone = self.names.is_empty() && self.fingerprints.is_empty();
        let listed = anyone
            || self.fingerprints.contains(certificate.fingerprint())
            || self.names.iter().any(|name| certificate.names().contains(name));
        if listed { Ok(()) } else { Err(ClientMismatch::NotListed) }
    }
}
