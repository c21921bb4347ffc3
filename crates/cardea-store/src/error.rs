//! The errors of a store.

use std::error::Error as StdError;

/// An error of a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The database can't be opened. The operator must correct it.
    #[error("database {path}: {problem}")]
    Unusable {
        /// The path of the database.
        path: String,
        /// The problem and its remedy.
        problem: String,
    },
    /// The database existed before and is missing. It must not be replaced by a new one silently.
    #[error(
        "database {path} is {what}, but there was one: {trace} was written for it. Restore the database from a backup; \
         to start anew, without clients and keys, remove {trace} (nothing was changed)"
    )]
    Lost {
        /// The path of the database.
        path: String,
        /// Missing or empty.
        what: &'static str,
        /// The file that shows that it existed.
        trace: String,
    },
    /// The file of the database, its log or its shared memory was removed or replaced while it was in use.
    #[error(
        "{path} was removed or replaced while the database was in use, and nothing more can be stored; put it back, or \
         restart to use what is there now"
    )]
    Replaced {
        /// The path of that file.
        path: String,
    },
    /// The file is damaged or no database. It must be restored.
    #[error(
        "database {path} is damaged or not a database ({detail}); restore it from a backup (nothing was changed)"
    )]
    Corrupt {
        /// The path of the database.
        path: String,
        /// The message of the database.
        detail: String,
    },
    /// The database was written by a newer version of Cardea.
    #[error(
        "database {path} has schema version {found}, this program knows up to {known}; \
         run the newer Cardea (nothing was changed)"
    )]
    NewerSchema {
        /// The path of the database.
        path: String,
        /// The version of its schema.
        found: i64,
        /// The newest version that this program supports.
        known: i64,
    },
    /// A client with that id already exists.
    #[error("the client already exists")]
    AlreadyExists,
    /// Clients with some of these ids exist already.
    #[error("the clients already exist")]
    AlreadyExistAt {
        /// Their indices from 0, in order: the first thousand.
        indices: Vec<usize>,
    },
    /// The record changed since it was read.
    #[error("the record was changed concurrently")]
    Changed,
    /// Another process holds the database for too long. A retry may succeed.
    #[error("the database is busy")]
    Busy,
    /// A stored value is not one that this program writes.
    #[error("stored {what} is not valid")]
    Invalid {
        /// The table and column.
        what: &'static str,
    },
    /// The database did not confirm a change. The change may or may not be in effect, now or after a restart.
    #[error(
        "the database did not confirm the change; check whether it is in effect before you repeat it: {0}"
    )]
    Unconfirmed(#[source] Box<dyn StdError + Send + Sync>),
    /// Any other error, such as a full or failing disk.
    #[error("the database failed: {0}")]
    Failed(#[source] Box<dyn StdError + Send + Sync>),
}
