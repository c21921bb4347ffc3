//! What a route demands of a client's certificate.

use std::sync::Arc;

use cardea_clock::Wall;
use thiserror::Error;

use super::{ClientAuthority, ClientCertificate, ClientName};

/// Which clients are let in. Names and fingerprints are alternatives to each other; the common name is none of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientDemand {
    /// Who must vouch for the client, one of them. Empty: whoever may at the host.
    pub authorities: Vec<Arc<ClientAuthority>>,
    /// Names of which the client's certificate must have one.
    pub names: Vec<ClientName>,
    /// SHA-256 of the client's whole certificate in DER.
    pub fingerprints: Vec<[u8; 32]>,
}

/// Why a certificate does not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ClientMismatch {
    /// Expired, revoked, or vouched for by nobody who may.
    #[error("nobody who may vouches for the client's certificate now")]
    NotVouchedFor,
    /// It is somebody else's.
    #[error("neither a name nor the fingerprint of the client's certificate is on the list")]
    NotListed,
}

impl ClientDemand {
    /// Whether the client is let in at `now`.
    ///
    /// # Errors
    /// [`ClientMismatch`] says what is wrong.
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
