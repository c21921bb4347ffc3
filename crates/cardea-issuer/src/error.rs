//! The errors of the authorization server, grouped by who must correct them.

use cardea_store::StoreError;

use crate::wrapping::WrappingKeyError;

/// An error of the authorization server. Clients of the token endpoint get a [`crate::Reply`] instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IssuerError {
    /// The configuration is wrong. The operator must correct it.
    #[error("authorization server: {field}: {problem}")]
    InvalidConfig {
        /// The configuration field.
        field: &'static str,
        /// The problem and what is expected.
        problem: String,
    },
    /// The wrapping key can't be read or doesn't fit the stored keys. The operator must correct it.
    #[error(transparent)]
    WrappingKey(#[from] WrappingKeyError),
    /// A request to the client registry is invalid. The administrator must correct it.
    #[error("client {field}: {problem}")]
    InvalidClient {
        /// The field of the client.
        field: &'static str,
        /// The problem and what is expected.
        problem: String,
    },
    /// No client has that id.
    #[error("there is no client {id:?}")]
    UnknownClient {
        /// The requested id.
        id: String,
    },
    /// A client with that id already exists.
    #[error("a client {id:?} already exists")]
    ClientExists {
        /// The requested id.
        id: String,
    },
    /// The client has the most secrets allowed.
    #[error("client {id:?} has {limit} secrets that have not expired; rotate with a shorter overlap")]
    TooManySecrets {
        /// The client.
        id: String,
        /// The limit.
        limit: usize,
    },
    /// The most signing keys allowed are published.
    #[error("{limit} signing keys are already published; wait until old ones are removed")]
    TooManyKeys {
        /// The limit.
        limit: usize,
    },
    /// Some clients can't be imported. None was imported.
    #[error("{}", .0.first().map_or("the import was refused", |refused| refused.problem.as_str()))]
    ImportRefused(Vec<RefusedClient>),
    /// The queue of the hash threads is full.
    #[error("the hash threads are busy; try again")]
    Busy,
    /// Concurrent changes to the same record kept preventing this one.
    #[error("the {what} was changed concurrently; try again")]
    Contended {
        /// The record to be changed.
        what: &'static str,
    },
    /// A revocation sink was set before. This is an error of the program.
    #[error("a revocation sink is already set")]
    SinkNamed,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A stored signing key doesn't match its record.
    #[error("signing key {kid}: {problem}")]
    DamagedKey {
        /// The key's id.
        kid: String,
        /// The problem of the key.
        problem: &'static str,
    },
    /// The cryptographic library failed. The caller can't correct it.
    #[error("cryptography failed: {0}")]
    Crypto(&'static str),
}

/// A client that can't be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedClient {
    /// The index in the import, from 0.
    pub index: usize,
    /// The reason.
    pub problem: String,
}

impl IssuerError {
    /// Whether the caller's input was wrong, rather than the store or the machine.
    #[must_use]
    pub fn is_callers_fault(&self) -> bool {
        matches!(
            self,
            Self::InvalidConfig { .. }
                | Self::WrappingKey(_)
                | Self::InvalidClient { .. }
                | Self::UnknownClient { .. }
                | Self::ClientExists { .. }
                | Self::ImportRefused(_)
                | Self::TooManySecrets { .. }
                | Self::TooManyKeys { .. }
        )
    }
}
