//! The connection that writes, and its handling after errors.
//!
//! After some errors (a full or failing disk) SQLite has ended the transaction by itself; after others it is still
//! open. So a connection is kept only while its state is certain: it is taken out of its slot for a transaction and put
//! back after a successful COMMIT or ROLLBACK. In every other case, including a caller that is dropped midway, it is
//! closed, which ends any open transaction. The next transaction opens another connection.

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::Duration,
};

use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    time::timeout,
};

use super::{failed, file::Identity};
use crate::{StoreError, WriteHealth};

/// How long a transaction waits for earlier ones.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// How often the log is written back after a change, at most, while others read.
const WRITE_BACK_TRIES: usize = 5;
/// How long between two tries.
const WRITE_BACK_PAUSE: Duration = Duration::from_millis(10);

/// Runs write transactions, one after the other.
#[derive(Clone)]
pub(super) struct Writer(Arc<Shared>);

struct Shared {
    options: SqliteConnectOptions,
    /// `None` in memory, where no file can be replaced.
    identity: Option<Identity>,
    place: Arc<Mutex<ConnectionSlot>>,
    health: Arc<Health>,
}

enum ConnectionSlot {
    Free(SqliteConnection),
    /// The next transaction opens a connection.
    Vacant,
    Closed,
}

#[derive(Default)]
struct Health {
    failing: AtomicBool,
    failures: AtomicU64,
    discarded: AtomicU64,
}

impl Health {
    fn failed(&self) {
        self.failures.fetch_add(1, Relaxed);
        self.failing.store(true, Release);
    }
}

/// A transaction that holds the write lock from its start, so that it can't fail midway to get it. Dropping it rolls it
/// back and closes the connection.
pub(super) struct Write {
    place: OwnedMutexGuard<ConnectionSlot>,
    connection: Option<SqliteConnection>,
    identity: Option<Identity>,
    health: Arc<Health>,
    /// Whether its outcome was counted.
    settled: bool,
}

impl Writer {
    pub(super) async fn open(
        options: SqliteConnectOptions,
        identity: Option<Identity>,
    ) -> Result<Self, sqlx::Error> {
        let place = ConnectionSlot::Free(options.connect().await?);
        let (place, health) = (Arc::new(Mutex::new(place)), Arc::default());
        Ok(Self(Arc::new(Shared { options, identity, place, health })))
    }

    /// Begins a transaction.
    pub(super) async fn begin(&self) -> Result<Write, StoreError> {
        let Ok(mut place) = timeout(ACQUIRE_TIMEOUT, Arc::clone(&self.0.place).lock_owned()).await else {
            self.0.health.failed();
            return Err(StoreError::Busy);
        };
        let connection = match std::mem::replace(&mut *place, ConnectionSlot::Vacant) {
            ConnectionSlot::Free(connection) => Some(connection),
            ConnectionSlot::Vacant => None,
            ConnectionSlot::Closed => {
                *place = ConnectionSlot::Closed;
                return Err(failed(sqlx::Error::PoolClosed));
            }
        };
        let health = Arc::clone(&self.0.health);
        let identity = self.0.identity.clone();
        let mut write = Write { place, connection, identity, health, settled: false };
        // A file that replaced ours is never written, and neither is one of ours that has no name any more.
        write.check_identity().await?;
        if write.connection.is_none() {
            write.connection = Some(self.0.options.connect().await.map_err(failed)?);
        }
        sqlx::query("BEGIN IMMEDIATE").execute(write.connection()?).await.map_err(failed)?;
        Ok(write)
    }

    pub(super) fn health(&self) -> WriteHealth {
        let health = &self.0.health;
        WriteHealth {
            failing: health.failing.load(Acquire),
            failures: health.failures.load(Relaxed),
            connections_discarded: health.discarded.load(Relaxed),
        }
    }

    /// Waits for the running transaction and closes the connection. Later writes fail.
    pub(super) async fn close(&self) {
        let mut place = self.0.place.lock().await;
        if let ConnectionSlot::Free(connection) = std::mem::replace(&mut *place, ConnectionSlot::Closed) {
            let _ = connection.close().await;
        }
    }
}

impl Write {
    /// The connection of the transaction.
    ///
    /// # Errors
    /// The transaction has ended, which can't happen to a caller that holds one.
    pub(super) fn connection(&mut self) -> Result<&mut SqliteConnection, StoreError> {
        self.connection.as_mut().ok_or_else(|| failed(sqlx::Error::WorkerCrashed))
    }

    /// Commits the transaction, or rolls it back if `done` is an error.
    ///
    /// # Errors
    /// The error of `done` or of the commit.
    pub(super) async fn end<T>(self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        match done {
            Ok(value) => {
                self.commit().await?;
                Ok(value)
            }
            // The database works and rejected the request.
            Err(
                refused @ (StoreError::AlreadyExists
                | StoreError::AlreadyExistAt { .. }
                | StoreError::Changed
                | StoreError::Invalid { .. }),
            ) => {
                self.undo().await;
                Err(refused)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes the transaction durable. It may be acknowledged only then.
    ///
    /// # Errors
    /// [`StoreError::Unconfirmed`] if the database did not confirm it; [`StoreError::Replaced`].
    async fn commit(mut self) -> Result<(), StoreError> {
        let committed = sqlx::query("COMMIT").execute(self.connection()?).await;
        committed.map_err(|error| StoreError::Unconfirmed(Box::new(error)))?;
        // The files may have been removed since the transaction began. Data in a file without a name is lost when this
        // process ends.
        self.check_identity().await?;
        self.health.failing.store(false, Release);
        self.write_back().await;
        self.settle();
        Ok(())
    }

    /// Writes the log back, so that a change survives the loss of the log too: who copies the database or clears up after a
    /// process that was killed may not know of it. The change is durable before. Readers delay this, but only for a moment:
    /// what is left then is written back with the next change.
    async fn write_back(&mut self) {
        for _ in 0..WRITE_BACK_TRIES {
            let Ok(connection) = self.connection() else { return };
            let written = sqlx::query_as("PRAGMA wal_checkpoint(PASSIVE)").fetch_one(connection).await;
            let (busy, in_log, in_database): (i64, i64, i64) = match written {
                Ok(frames) => frames,
                Err(error) => {
                    tracing::warn!(%error, "the database's log can't be written back; changes stay in the log");
                    return;
                }
            };
            if busy == 0 && in_log == in_database {
                return;
            }
            tokio::time::sleep(WRITE_BACK_PAUSE).await;
        }
    }

    async fn undo(mut self) {
        let undone = match self.connection() {
            Ok(connection) => sqlx::query("ROLLBACK").execute(connection).await.map_err(failed),
            Err(error) => Err(error),
        };
        match undone {
            Ok(_) => self.settle(),
            Err(error) => {
                tracing::warn!(%error, "a transaction could not be rolled back; its connection is closed");
            }
        }
    }

    /// Marks the state of the connection as certain, so that it is used again.
    fn settle(&mut self) {
        self.settled = true;
        if let Some(connection) = self.connection.take() {
            *self.place = ConnectionSlot::Free(connection);
        }
    }

    async fn check_identity(&self) -> Result<(), StoreError> {
        match &self.identity {
            Some(identity) => identity.check().await,
            None => Ok(()),
        }
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        self.health.failed();
        if self.connection.take().is_some() {
            // Its thread closes it, which rolls back the open transaction.
            self.health.discarded.fetch_add(1, Relaxed);
        }
    }
}
