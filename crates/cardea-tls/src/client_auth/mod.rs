//! Client certificates: the authorities that verify them, the hosts that request them, and their data.
//!
//! The policy of a host belongs to its trust domain, and sessions never leave it: a connection whose handshake
//! requested no certificate is never used for a host that does. A certificate is verified in the handshake and again
//! when a session is resumed, when an authority's files change, and once a minute while a connection lasts.

mod authority;
mod certificate;
mod coverage;
mod distinguished_name;
mod list_kind;
mod name;
mod requirement;
mod revocation;
mod verifier;

use std::sync::Arc;

pub(crate) use authority::unix_time;
pub use authority::{ClientAuthority, ClientAuthorityConfig};
pub use certificate::ClientCertificate;
pub use coverage::{AuthorityFault, AuthorityProblem, RevocationListInfo};
pub use list_kind::UnsupportedList;
pub use name::{ClientName, ClientNameError};
pub use requirement::{CertificateRequirement, ClientMismatch};
pub(crate) use verifier::PolicyVerifier;

/// How a handshake treats client certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientAuthMode {
    /// Requests one. A client without one is accepted; a client with an invalid one is refused.
    Request,
    /// Requests one and refuses clients without one.
    Require,
}

/// The client certificate policy of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientAuthConfig {
    /// Whether a certificate is required.
    pub mode: ClientAuthMode,
    /// The authorities that may have issued it; at least one.
    pub authorities: Vec<Arc<ClientAuthority>>,
}

#[cfg(test)]
mod tests;
