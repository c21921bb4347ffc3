//! What can go wrong in a store.

use std::error::Error as StdError;

/// What can go wrong in a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The database can't be opened where it is said to be: the operator's to correct.
    #[error("database {path}: {problem}")]
    Unusable {
        /// Where it is.
        path: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// There was a database, and it is gone: a new one must not take its place unseen.
    #[error(
        "database {path} is {what}, but there was one: {trace} was written for it. Restore the database from a backup; \
         to start anew, without clients and keys, remove {trace} (nothing was changed)"
    )]
    Lost {
        /// Where it was.
        path: String,
        /// Missing or empty.
        what: &'static str,
        /// What shows that there was one.
        trace: String,
    },
    /// The file was removed or replaced while it was in use.
    #[error(
        "database {path} was removed or replaced while it was in use, and nothing more can be stored; put it back, or \
         restart to use the one that is there now"
    )]
    Replaced {
        /// Where it was.
        path: String,
    },
    /// The file is damaged, or no database: restore it.
    #[error(
        "database {path} is damaged or not a database ({detail}); restore it from a backup (nothing was changed)"
    )]
    Corrupt {
        /// Where it is.
        path: String,
        /// What the database said.
        detail: String,
    },
    /// The database belongs to a newer Cardea.
    #[error(
        "database {path} has schema version {found}, this program knows up to {known}; \
         run the newer Cardea (nothing was changed)"
    )]
    NewerSchema {
        /// Where it is.
        path: String,
        /// Its version.
        found: i64,
        /// The newest version this program knows.
        known: i64,
    },
    /// There is such a client already.
    #[error("there is such a client already")]
    AlreadyExists,
    /// There are clients already of the ids of some of many.
    #[error("there are such clients already")]
    AlreadyExistAt {
        /// Which of them, counted from 0; in their order, the first thousand of them.
        indices: Vec<usize>,
    },
    /// The record changed since it was read.
    #[error("the record was changed by somebody else")]
    Changed,
    /// Somebody else holds the database for too long; trying again may help.
    #[error("the database is busy")]
    Busy,
    /// A stored value is not one that this program writes.
    #[error("stored {what} is not valid")]
    Invalid {
        /// The table and column.
        what: &'static str,
    },
    /// The database did not confirm a change. It may be in effect, now or after a restart, or not.
    #[error(
        "the database did not confirm the change; look whether it is in effect before making it again: {0}"
    )]
    Unconfirmed(#[source] Box<dyn StdError + Send + Sync>),
    /// Anything else: the disk is full, the disk fails.
    #[error("the database failed: {0}")]
    Failed(#[source] Box<dyn StdError + Send + Sync>),
}
