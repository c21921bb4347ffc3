//! Clients that show certificates: who vouches for them, which hosts ask them in the handshake, what is known of them.
//!
//! A host's policy is part of its trust domain, and sessions never leave it: a connection that was not asked is never
//! used for a host that asks. What the handshake has verified is verified again where it matters: when a session is
//! resumed, when the lists of an authority change, and once a minute while a connection lasts.

mod authority;
mod certificate;
mod coverage;
mod demand;
mod distinguished_name;
mod name;
mod verifier;

use std::sync::Arc;

pub(crate) use authority::unix_time;
pub use authority::{ClientAuthority, ClientAuthorityConfig};
pub use certificate::ClientCertificate;
pub use coverage::{AuthorityFault, AuthorityProblem, RevocationListInfo};
pub use demand::{ClientDemand, ClientMismatch};
pub use name::{ClientName, ClientNameError};
pub(crate) use verifier::PolicyVerifier;

/// What a handshake does about the client's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientAuthMode {
    /// Asks for one. A client without one is let in, one with one that does not hold is refused.
    Request,
    /// Demands one.
    Require,
}

/// How the handshake for a host treats client certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientAuthConfig {
    /// Whether one must be shown.
    pub mode: ClientAuthMode,
    /// Who may vouch for a client; at least one.
    pub authorities: Vec<Arc<ClientAuthority>>,
}

#[cfg(test)]
mod tests;
