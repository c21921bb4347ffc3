//! The verification of client certificates in handshakes, against the authorities of the host.

use std::sync::Arc;

use cardea_clock::Wall;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};

use super::authority::unix_time;
use super::{ClientAuthConfig, ClientAuthMode, ClientAuthority, ClientCertificate};
use crate::error::HandshakeRefused;
use crate::provider;

/// The most bytes of a client's chain and the most certificates: more than any chain has, and as much as may be
/// forwarded.
const CHAIN_BYTES_MAX: usize = 16 * 1024;
const CHAIN_LEN_MAX: usize = 10;

/// The policy of a host, in the form of rustls.
#[derive(Debug)]
pub(crate) struct PolicyVerifier {
    authorities: Vec<Arc<ClientAuthority>>,
    mode: ClientAuthMode,
    hints: Vec<DistinguishedName>,
    generations: Vec<u64>,
}

impl PolicyVerifier {
    pub(crate) fn new(config: &ClientAuthConfig) -> Arc<Self> {
        // Read before the derived data, so that a concurrent reload is noticed.
        let generations = config.authorities.iter().map(|authority| authority.generation()).collect();
        let mut hints: Vec<DistinguishedName> = Vec::new();
        for subject in config.authorities.iter().flat_map(|authority| authority.subjects()) {
            if !hints.iter().any(|known| known.as_ref() == subject.as_ref()) {
                hints.push(subject);
            }
        }
        Arc::new(Self { authorities: config.authorities.clone(), mode: config.mode, hints, generations })
    }

    /// Whether an authority's files were reloaded since.
    pub(crate) fn is_outdated(&self) -> bool {
        self.authorities
            .iter()
            .zip(&self.generations)
            .any(|(authority, known)| authority.generation() != *known)
    }

    pub(crate) const fn mode(&self) -> ClientAuthMode {
        self.mode
    }

    /// The certificate of a handshake, which has just verified it; or, if the session was `resumed`, the certificate
    /// that the session began with.
    pub(crate) fn accept(
        &self,
        chain: &[CertificateDer<'_>],
        resumed: bool,
        now: Wall,
    ) -> Result<ClientCertificate, HandshakeRefused> {
        if resumed {
            self.verify(chain, unix_time(now)).map_err(HandshakeRefused::CertificateInvalid)?;
        }
        // With several authorities it is unknown which one verified it.
        let verified = match (self.authorities.len(), self.generations.first()) {
            (1, Some(generation)) => Some((*generation, now)),
            _ => None,
        };
        ClientCertificate::new(chain, &self.authorities, verified)
            .ok_or(HandshakeRefused::CertificateUnreadable)
    }

    fn verify(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        let bytes: usize = chain.iter().map(|certificate| certificate.len()).sum();
        if chain.len() > CHAIN_LEN_MAX || bytes > CHAIN_BYTES_MAX {
            return Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure));
        }
        let mut failure = Error::InvalidCertificate(CertificateError::UnknownIssuer);
        for authority in &self.authorities {
            match authority.verify(chain, now) {
                Ok(()) => return Ok(()),
                // An authority that knows the issuer has the more precise error.
                Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {}
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

impl ClientCertVerifier for PolicyVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.mode == ClientAuthMode::Require
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let chain: Vec<CertificateDer<'_>> = std::iter::once(end_entity)
            .chain(intermediates)
            .map(|der| CertificateDer::from(&**der))
            .collect();
        self.verify(&chain, now).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
