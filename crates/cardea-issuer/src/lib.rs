//! The authorization server as a library: client registry, client authentication, access tokens, signing keys.
//!
//! [`AuthorizationServer`] answers token requests (RFC 6749 §4.4) with JWT access tokens (RFC 9068), serves its
//! metadata (RFC 8414) and its key set (RFC 7517), and rotates its keys. It contains no HTTP code: the gateway passes
//! requests in and sends each [`Reply`]. Persistent data is behind [`cardea_store::IssuerStore`].
//!
//! Time is passed in; this crate reads no clock. Generated secrets need one SHA-256, and signing with elliptic curves
//! takes some twenty microseconds, so both run in place. Slow hashes, RSA and disk access have their own threads.

mod admin;
mod client;
mod client_auth;
mod config;
mod error;
mod form;
mod grant;
mod import;
mod jwt;
mod key_ring;
mod metadata;
mod reply;
mod revocation;
mod rotation;
mod secret;
mod server;
mod signing;
mod verification;
mod wrapping;

pub use cardea_store::{BasicEncoding, GrantType, SigningAlgorithm};
pub use client::{Client, ClientSecret, Created, NewClient, Page};
pub use config::{
    ACCESS_TOKEN_LIFETIME_DEFAULT, AuthorizationServerConfig, CLOCK_SKEW_MAX, KEY_LIFETIME_DEFAULT,
    KEY_OVERLAP_DEFAULT, KEY_PUBLISH_AHEAD_DEFAULT, SecretConfig, TOKEN_LIFETIME_MAX,
};
pub use error::{IssuerError, RefusedClient};
pub use grant::TokenRequest;
pub use import::ImportedClient;
pub use key_ring::Key;
pub use metadata::Endpoints;
pub use reply::{Reply, error_reply};
pub use revocation::{REVOCATION_RETENTION, RevocationSink};
pub use rotation::RotateWhen;
pub use secret::Secret;
pub use server::{AuthorizationServer, Maintained, PendingRevocations};
pub use verification::{RequestContext, SecretStats};
pub use wrapping::{WrappingKey, WrappingKeyError};
