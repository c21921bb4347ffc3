//! What survives a restart: the registry of clients, signing keys, certificates from an ACME authority.
//!
//! [`IssuerStore`] and [`AcmeStore`] are what the rest of the program uses. Each database is a module that implements
//! both: [`sqlite`], with the feature of that name. Private keys come here sealed; nothing in this crate opens them.

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

/// A future that a store gives.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
/// What every operation of a store gives.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// What all stores have in common: an open database.
pub trait Database: Send + Sync + fmt::Debug {
    /// Writes something that nobody reads, and flushes it: whether changes can be made now.
    ///
    /// # Errors
    /// Why not.
    fn probe(&self) -> StoreFuture<'_, ()>;

    /// How writing has fared.
    fn write_health(&self) -> WriteHealth;

    /// Finishes what is under way and closes the database. Nothing works afterwards.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// How a store's writes fare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteHealth {
    /// The last transaction failed: changes can't be made until one, or [`Database::probe`], succeeds.
    pub failing: bool,
    /// Transactions that failed, those not counted that were refused for what they asked.
    pub failures: u64,
    /// Connections that were closed because their state was in doubt.
    pub connections_discarded: u64,
}
