//! Persistent data: the client registry, signing keys, and certificates from an ACME authority.
//!
//! The rest of the program uses the traits [`IssuerStore`] and [`AcmeStore`]. Each database is a module that implements
//! both, such as [`sqlite`], behind a feature of the same name. Private keys are encrypted before they get here;
//! nothing in this crate decrypts them.

use std::{fmt, future::Future, pin::Pin};

mod acme;
mod error;
mod issuer;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use acme::{AccountRecord, AcmeStore, CertificateRecord, ChallengeRecord, IssuedRecord};
pub use error::StoreError;
pub use issuer::{
    BasicEncoding, ClientRecord, GrantType, IssuerStore, KeyRecord, KeySetRecord, Revocation,
    RevocationState, SecretMix, SecretRecord, SigningAlgorithm,
};

/// A future that a store returns.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
/// The result of a store operation.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// An open database.
pub trait Database: Send + Sync + fmt::Debug {
    /// Writes a value that nobody reads and flushes it, to test whether changes can be made now.
    ///
    /// # Errors
    /// Why changes can't be made.
    fn probe(&self) -> StoreFuture<'_, ()>;

    /// The state of writes.
    fn write_health(&self) -> WriteHealth;

    /// Finishes running operations and closes the database. Later operations fail.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// The state of a store's writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteHealth {
    /// Whether the last transaction failed. Changes can't be made until one, or [`Database::probe`], succeeds.
    pub failing: bool,
    /// Failed transactions, not counting those whose request was invalid.
    pub failures: u64,
    /// Connections that were closed because their state was unknown.
    pub connections_discarded: u64,
}
