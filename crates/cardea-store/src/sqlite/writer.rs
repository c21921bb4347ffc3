//! The one connection that writes, and what becomes of it when something fails.
//!
//! After some errors (a full disk, a failing one) SQLite has ended the transaction by itself; after others it is still
//! open. A connection is therefore kept only while its state is certain: it is taken out of its place for a transaction
//! and put back once COMMIT or ROLLBACK succeeded. In every other case, including a caller that gives up half-way, it is
//! closed, which ends whatever it had begun, and the next transaction opens another one.

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

/// How long a transaction waits for those before it.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// Writes, one transaction after the other.
#[derive(Clone)]
pub(super) struct Writer(Arc<Shared>);

struct Shared {
    options: SqliteConnectOptions,
    /// `None` in memory, where there is no file that could be replaced.
    identity: Option<Identity>,
    place: Arc<Mutex<Place>>,
    health: Arc<Health>,
}

enum Place {
    Free(SqliteConnection),
    /// There is none: the next transaction opens one.
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

/// A transaction that holds the write lock from its start, so that it never fails half-way for want of it. Dropping it
/// undoes it and closes the connection.
pub(super) struct Write {
    place: OwnedMutexGuard<Place>,
    connection: Option<SqliteConnection>,
    identity: Option<Identity>,
    health: Arc<Health>,
    /// How it ended is counted.
    settled: bool,
}

impl Writer {
    pub(super) async fn open(
        options: SqliteConnectOptions,
        identity: Option<Identity>,
    ) -> Result<Self, sqlx::Error> {
        let place = Place::Free(options.connect().await?);
        let (place, health) = (Arc::new(Mutex::new(place)), Arc::default());
        Ok(Self(Arc::new(Shared { options, identity, place, health })))
    }

    /// Begins a transaction.
    pub(super) async fn begin(&self) -> Result<Write, StoreError> {
        let Ok(mut place) = timeout(ACQUIRE_TIMEOUT, Arc::clone(&self.0.place).lock_owned()).await else {
            self.0.health.failed();
            return Err(StoreError::Busy);
        };
        let connection = match std::mem::replace(&mut *place, Place::Vacant) {
            Place::Free(connection) => Some(connection),
            Place::Vacant => None,
            Place::Closed => {
                *place = Place::Closed;
                return Err(failed(sqlx::Error::PoolClosed));
            }
        };
        let health = Arc::clone(&self.0.health);
        let identity = self.0.identity.clone();
        let mut write = Write { place, connection, identity, health, settled: false };
        if write.connection.is_none() {
            // A file that took the place of ours is never written to: the readers have ours.
            write.check_identity().await?;
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

    /// Waits for the transaction under way and closes. Nothing can be written afterwards.
    pub(super) async fn close(&self) {
        let mut place = self.0.place.lock().await;
        if let Place::Free(connection) = std::mem::replace(&mut *place, Place::Closed) {
            let _ = connection.close().await;
        }
    }
}

impl Write {
    /// Where statements of the transaction are executed.
    ///
    /// # Errors
    /// The transaction has ended, which those that hold one never meet.
    pub(super) fn connection(&mut self) -> Result<&mut SqliteConnection, StoreError> {
        self.connection.as_mut().ok_or_else(|| failed(sqlx::Error::WorkerCrashed))
    }

    /// Commits what was done, or undoes it where it was refused.
    ///
    /// # Errors
    /// That of `done`, or of the commit.
    pub(super) async fn end<T>(self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        match done {
            Ok(value) => {
                self.commit().await?;
                Ok(value)
            }
            // The database works, and did what it was asked to.
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

    /// Makes the transaction durable. Only then may anybody be told that it happened.
    ///
    /// # Errors
    /// [`StoreError::Unconfirmed`] where the database did not confirm it; [`StoreError::Replaced`].
    async fn commit(mut self) -> Result<(), StoreError> {
        let committed = sqlx::query("COMMIT").execute(self.connection()?).await;
        committed.map_err(|error| StoreError::Unconfirmed(Box::new(error)))?;
        // What was written to a file that nobody finds again is lost with this process.
        self.check_identity().await?;
        self.health.failing.store(false, Release);
        self.settle();
        Ok(())
    }

    async fn undo(mut self) {
        let undone = match self.connection() {
            Ok(connection) => sqlx::query("ROLLBACK").execute(connection).await.map_err(failed),
            Err(error) => Err(error),
        };
        match undone {
            Ok(_) => self.settle(),
            Err(error) => {
                tracing::warn!(%error, "a transaction could not be undone; its connection is closed");
            }
        }
    }

    /// The state of the connection is certain: it may be used again.
    fn settle(&mut self) {
        self.settled = true;
        if let Some(connection) = self.connection.take() {
            *self.place = Place::Free(connection);
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
            // Its thread closes it, which undoes what it had begun.
            self.health.discarded.fetch_add(1, Relaxed);
        }
    }
}
