//! What the authorization server keeps, and the trait behind which it keeps it.
//!
//! The trait speaks of whole records, and every change names the version that it was made from. So the rules are
//! written once, above it, and a database needs nothing but atomic writes. `tests/it/conformance.rs` is what every
//! implementation must pass.

use std::{error::Error as StdError, fmt, future::Future, pin::Pin};

use cardea_clock::Wall;

use crate::{BasicEncoding, GrantType, SigningAlgorithm};

pub mod acme;
mod sqlite_store;
/// The embedded store.
pub mod sqlite {
    pub use super::sqlite_store::{InspectError, PrivateKeys, SqliteStore, inspect};
}

/// A future that the store gives.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
/// What every operation of a store gives.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// A durable registry of clients and signing keys, shared by any number of tasks and, where the database
/// allows it, of processes. What a write acknowledged survives the loss of power.
pub trait Store: Send + Sync + fmt::Debug {
    /// The client of that id, with its secrets, as of one moment.
    fn client<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<ClientRecord>>;

    /// At most `limit` clients in the byte order of their ids, those after `after`.
    fn clients<'a>(&'a self, after: Option<&'a str>, limit: u32) -> StoreFuture<'a, Vec<ClientRecord>>;

    /// Adds a client as version 1 and gives the record as it was stored. Where a client of that id was
    /// deleted before, its tombstone goes, the record's `tokens_revoked_through` becomes its `created_at`, and its version
    /// is the one after the deleted client's last, in the same transaction: a version of an id never comes back, as long
    /// as anything may be bound to it.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`].
    fn insert_client<'a>(&'a self, record: &'a ClientRecord) -> StoreFuture<'a, ClientRecord>;

    /// Adds clients as [`Store::insert_client`] does, all of them or none, and says after each thousand how many it has
    /// added.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExistAt`].
    fn insert_clients<'a>(
        &'a self,
        records: &'a [ClientRecord],
        progress: &'a (dyn Fn(usize) + Sync),
    ) -> StoreFuture<'a, ()>;

    /// Replaces the client whose version is `record.version`, and counts the version up.
    ///
    /// # Errors
    /// [`StoreError::Changed`] where the stored version is another one, or the client is gone.
    fn update_client<'a>(&'a self, record: &'a ClientRecord) -> StoreFuture<'a, ()>;

    /// Deletes a client with its secrets and leaves a tombstone. Gives whether there was one.
    fn delete_client<'a>(&'a self, id: &'a str, deleted_at: Wall) -> StoreFuture<'a, bool>;

    /// Everything that was disabled, enabled again or deleted at or after `since`, as it stands now.
    fn revocations(&self, since: Wall) -> StoreFuture<'_, Vec<Revocation>>;

    /// Forgets the tombstones of clients that were deleted before `before`.
    fn forget_tombstones(&self, before: Wall) -> StoreFuture<'_, ()>;

    /// What clients have for secrets that are live at `now`: at most 1,000 combinations of formats, the most frequent
    /// ones.
    fn secret_mix(&self, now: Wall) -> StoreFuture<'_, Vec<SecretMix>>;

    /// The key by which stand-ins are chosen for clients that don't exist: `candidate` where there was none yet. It never
    /// changes.
    fn stand_in_key(&self, candidate: [u8; 32]) -> StoreFuture<'_, [u8; 32]>;

    /// All signing keys; version 0 and none where there have never been any.
    fn keys(&self) -> StoreFuture<'_, KeySetRecord>;

    /// Replaces all signing keys where their version is still `version`, and counts it up.
    ///
    /// # Errors
    /// [`StoreError::Changed`] where it is not.
    fn replace_keys<'a>(&'a self, version: u64, keys: &'a [KeyRecord]) -> StoreFuture<'a, ()>;

    /// Until when the keys are known to have been published; `None` where that was never written down.
    fn published_through(&self) -> StoreFuture<'_, Option<Wall>>;

    /// Writes down that the keys are published at `now`.
    fn mark_published(&self, now: Wall) -> StoreFuture<'_, ()>;

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
    /// The last transaction failed: changes can't be made until one, or [`Store::probe`], succeeds.
    pub failing: bool,
    /// Transactions that failed, those not counted that were refused for what they asked.
    pub failures: u64,
    /// Connections that were closed because their state was in doubt.
    pub connections_discarded: u64,
}

/// A client as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRecord {
    /// The client id.
    pub id: String,
    /// Counts the changes, from 1; of a client whose id a deleted one had, from that one's last version.
    pub version: u64,
    /// A name for people.
    pub name: String,
    /// Whether it may have tokens.
    pub enabled: bool,
    /// The grants it may use.
    pub grant_types: Vec<GrantType>,
    /// The scopes it may ask for, and is given when it asks for none.
    pub scopes: Vec<String>,
    /// The audiences it may ask for; empty: all.
    pub audiences: Vec<String>,
    /// How long its tokens live, in seconds; `None`: as configured.
    pub token_lifetime_seconds: Option<u32>,
    /// How its Basic credentials are read.
    pub basic_encoding: BasicEncoding,
    /// Whether a right secret of it may be remembered for a while.
    pub remember_secret: bool,
    /// When it was created.
    pub created_at: Wall,
    /// When it was last changed.
    pub updated_at: Wall,
    /// Since when it has been disabled.
    pub disabled_at: Option<Wall>,
    /// Tokens issued in this second or before are refused.
    pub tokens_revoked_through: Option<Wall>,
    /// Its secrets, oldest first.
    pub secrets: Vec<SecretRecord>,
}

/// A client secret as it is stored: never the secret itself.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretRecord {
    /// Names the secret within its client.
    pub id: String,
    /// How `verifier` was made: `sha256`, for generated secrets of 256 random bits; else algorithm and cost, as
    /// [`cardea_kdf::stored::StoredSecret::profile`] says them. An unknown format matches nothing.
    pub format: String,
    /// Where the secret came from: `generated` by us, `chosen` by somebody, or `imported` as a hash.
    pub provenance: String,
    /// What a presented secret is compared with: SHA-256, or the text of a stored secret in its own format.
    pub verifier: Vec<u8>,
    /// When it was made.
    pub created_at: Wall,
    /// From when it is refused.
    pub expires_at: Option<Wall>,
}

impl fmt::Debug for SecretRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretRecord")
            .field("id", &self.id)
            .field("format", &self.format)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// How many clients have secrets of the same formats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretMix {
    /// How many clients.
    pub clients: u64,
    /// The formats of their secrets, as often as there are secrets of them.
    pub formats: Vec<String>,
}

/// A client whose tokens, or some of them, are no longer good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// The client.
    pub client_id: String,
    /// What became of it.
    pub state: RevocationState,
}

/// What became of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevocationState {
    /// Disabled at that time, and disabled still.
    Disabled(Wall),
    /// In use; its tokens issued in the second of that time or before are refused.
    IssuedThrough(Wall),
    /// Deleted at that time.
    Deleted(Wall),
}

/// All signing keys and the version of their set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySetRecord {
    /// Counts the changes of the set.
    pub version: u64,
    /// The keys, in the order in which they take over.
    pub keys: Vec<KeyRecord>,
}

/// A signing key as it is stored.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// The key's id: its RFC 7638 thumbprint.
    pub kid: String,
    /// How it signs.
    pub algorithm: SigningAlgorithm,
    /// PKCS #8 under the wrapping key.
    pub wrapped: Vec<u8>,
    /// Which wrapping key.
    pub wrapping_key_id: String,
    /// When it was made; published since.
    pub created_at: Wall,
    /// From when it signs.
    pub activates_at: Wall,
    /// From when it is no longer published; known once its successor is.
    pub remove_at: Option<Wall>,
}

impl fmt::Debug for KeyRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRecord")
            .field("kid", &self.kid)
            .field("algorithm", &self.algorithm)
            .field("activates_at", &self.activates_at)
            .field("remove_at", &self.remove_at)
            .finish_non_exhaustive()
    }
}

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
