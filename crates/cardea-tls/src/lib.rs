//! Certificates, TLS server and client configurations, trust domains.
//!
//! [`ServerTls`] is the TLS of a listener: certificates chosen by server name and reloaded when their files change,
//! resumption that never leaves the listener, and the trust domain of every host. [`client_config`] is the TLS of
//! upstream connections. [`HandshakeFacts`] has the negotiated parameters.
//!
//! The only TLS stack is rustls on aws-lc-rs, with the explicit [`provider`]: the process-wide default of rustls is
//! neither read nor set. TLS 1.2 and 1.3 are supported; 0-RTT must be configured, because a replayed request would pass
//! every check that the first one passed (RFC 8446 §8).

#[cfg(feature = "acme")]
pub mod acme;
#[cfg(feature = "authority")]
pub mod authority;
mod bound;
mod certificate;
mod client;
mod client_auth;
mod config;
mod der;
mod error;
mod facts;
mod files;
mod managed;
mod names;
mod provider;
mod requirements;
mod server;
mod sessions;
mod signed;
mod staple;
#[cfg(test)]
mod testing;
mod tickets;

pub use certificate::{CertificateInfo, CertificateState, KeyType};
pub use client::{client_config, server_name};
pub use client_auth::{
    AuthorityFault, AuthorityProblem, CertificateRequirement, ClientAuthConfig, ClientAuthMode,
    ClientAuthority, ClientAuthorityConfig, ClientCertificate, ClientMismatch, ClientName, ClientNameError,
    RevocationListInfo, UnsupportedList,
};
pub use config::{
    CertificateConfig, ClientTlsConfig, MinVersion, Roots, ServerTlsConfig, StatelessTickets, TicketKeys,
    TicketSecretConfig, UnknownName,
};
pub use error::{CertificateError, CertificateProblem, HandshakeRefused, TlsError};
pub use facts::HandshakeFacts;
pub use managed::{ManagedCertificate, Validity};
pub use names::{TrustDomain, wildcard_of};
pub use provider::provider;
pub use requirements::{Arrival, Contradiction, HostRequirements, RequirementUnmet};
pub use server::ServerTls;
pub use sessions::SessionStats;
#[cfg(any(test, feature = "fuzzing"))]
pub use staple::fuzzing::fuzz_staple;
pub use staple::{OcspConfig, STAPLE_BYTES_MAX, StapleError, StapleRequest};
