//! What can go wrong in the authorization server, grouped by whose fault it is.

use cardea_store::StoreError;

use crate::wrapping::WrappingKeyError;

/// An error of the authorization server. What a client of the token endpoint is told is a [`crate::Reply`] instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IssuerError {
    /// The configuration is wrong: the operator's to correct.
    #[error("authorization server: {field}: {problem}")]
    InvalidConfig {
        /// The configuration field.
        field: &'static str,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// The wrapping key can't be read or doesn't fit the stored keys: the operator's to correct.
    #[error(transparent)]
    WrappingKey(#[from] WrappingKeyError),
    /// What was asked of the registry can't be: the administrator's to correct.
    #[error("client {field}: {problem}")]
    InvalidClient {
        /// The field of the client.
        field: &'static str,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// There is no client of that id.
    #[error("there is no client {id:?}")]
    UnknownClient {
        /// The id that was asked for.
        id: String,
    },
    /// A client of that id exists already.
    #[error("a client {id:?} exists already")]
    ClientExists {
        /// The id that was asked for.
        id: String,
    },
    /// The client has as many live secrets as it may.
    #[error("client {id:?} has {limit} secrets that have not expired; rotate with a shorter overlap")]
    TooManySecrets {
        /// The client.
        id: String,
        /// The limit.
        limit: usize,
    },
    /// As many signing keys are published as may be.
    #[error("{limit} signing keys are published already; wait until old ones are removed")]
    TooManyKeys {
        /// The limit.
        limit: usize,
    },
    /// Some of the clients to be imported can't be; none was.
    #[error("{}", .0.first().map_or("no client can be imported", |refused| refused.problem.as_str()))]
    ImportRefused(Vec<RefusedClient>),
    /// The hash threads have more to do than they may put off.
    #[error("the hash threads are busy; try again")]
    Busy,
    /// Somebody else kept changing the same record.
    #[error("the {what} kept changing while it was being changed; try again")]
    Contended {
        /// What was to be changed.
        what: &'static str,
    },
    /// A revocation sink was named before: the program's mistake.
    #[error("a revocation sink was named already")]
    SinkNamed,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A stored signing key is not what its record says.
    #[error("signing key {kid}: {problem}")]
    DamagedKey {
        /// The key's id.
        kid: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The cryptographic library refused; nothing a caller can correct.
    #[error("cryptography failed: {0}")]
    Crypto(&'static str),
}

/// A client that can't be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedClient {
    /// Which of them, counted from 0.
    pub index: usize,
    /// Why.
    pub problem: String,
}

impl IssuerError {
    /// Whether the caller's input was at fault, rather than the store or the machine.
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
