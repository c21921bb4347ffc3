//! Requirements of routes on client certificates.

use cardea_tls::CertificateRequirement;

/// What a route makes of the client's certificate. A certificate that came must always fit.
#[derive(Debug, Clone)]
pub struct ClientCertificateRule {
    /// Whether there must be one.
    pub required: bool,
    /// Whose it may be.
    pub requirement: CertificateRequirement,
    /// The authority, in its normal form, to which a client without one is sent: there the handshake asks.
    pub step_up: Option<String>,
    /// What the service is told.
    pub forward: ClientCertificateForward,
}

/// What a service is told of the client's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientCertificateForward {
    /// Nothing.
    Nothing,
    /// The client's own in `Client-Cert`.
    #[default]
    Leaf,
    /// And what the client sent behind it, in `Client-Cert-Chain`. Nobody has looked at what leads to no root.
    Chain,
}
