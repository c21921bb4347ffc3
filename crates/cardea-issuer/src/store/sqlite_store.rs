//! The embedded store: SQLite with a write-ahead log, every commit flushed to the disk.
//!
//! `sqlx` gives each connection a thread of its own, so no disk access ever runs on the runtime's threads.
//! One connection writes, so that writers of this process queue in order; those of another process are kept
//! apart by SQLite's lock.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use cardea_clock::Wall;
use sqlx::{
    ConnectOptions as _, Connection as _, Row as _, Sqlite, SqliteConnection, SqlitePool, Transaction,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteRow, SqliteSynchronous},
};

use super::{
    ClientRecord, KeyRecord, KeySetRecord, Revocation, RevocationState, SecretMix, Store, StoreError,
    StoreFuture,
};

mod acme;
mod file;
mod inspect;
mod rows;
mod schema;

pub use inspect::{InspectError, PrivateKeys, inspect};
use rows::{SELECT_CLIENT, SELECT_CLIENTS, bind_client, clients_of, key_of, mix_of};

/// How long a writer waits for another process to finish.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an operation waits for a free connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
const READERS: u32 = 4;
/// After how many clients of an import its progress is told.
const PROGRESS_EVERY: usize = 1_000;

/// A store in one SQLite file.
#[derive(Clone)]
pub struct SqliteStore {
    path: PathBuf,
    writer: SqlitePool,
    reader: SqlitePool,
}

impl SqliteStore {
    /// Opens the database of that file, which is created (mode 0600) where it doesn't exist, and brings its
    /// schema up to date. A file that others may read is made private.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] where the folder is missing, the file can't be opened, or holds another
    /// program's database;
    /// [`StoreError::Corrupt`] where it is damaged; [`StoreError::NewerSchema`]. In all these cases nothing
    /// was changed.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref().to_path_buf();
        on_file(&path, file::prepare).await?;
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .create_if_missing(false)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT)
            .disable_statement_logging();
        // Whose database this is comes first: the log mode is a lasting change of the file.
        let mut connection = options.connect().await.map_err(|error| opening(&path, error))?;
        let prepared = schema::prepare(&mut connection, &path).await;
        let closed = connection.close().await;
        prepared?;
        closed.map_err(|error| opening(&path, error))?;
        on_file(&path, file::make_private).await?;

        let options = options.journal_mode(SqliteJournalMode::Wal);
        let writer = connect(1, options.clone(), &path).await?;
        let reader = connect(READERS, options.pragma("query_only", "ON"), &path).await?;
        Ok(Self { path, writer, reader })
    }

    /// A store in memory, which is gone when it is dropped: for the demo and for tests.
    ///
    /// # Errors
    /// [`StoreError::Failed`].
    pub async fn in_memory() -> Result<Self, StoreError> {
        let options =
            SqliteConnectOptions::new().in_memory(true).foreign_keys(true).disable_statement_logging();
        let writer = pool(1).connect_with(options).await.map_err(failed)?;
        let path = PathBuf::from(":memory:");
        schema::prepare(&mut *writer.acquire().await.map_err(failed)?, &path).await?;
        Ok(Self { path, reader: writer.clone(), writer })
    }

    /// A transaction that holds the write lock from its start, so that it never fails half-way for want of it.
    async fn write(&self) -> Result<Transaction<'static, Sqlite>, StoreError> {
        self.writer.begin_with("BEGIN IMMEDIATE").await.map_err(failed)
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Store for SqliteStore {
    fn client<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<ClientRecord>> {
        Box::pin(async move {
            // One statement, so client and secrets are of one moment.
            let rows = sqlx::query(SELECT_CLIENT).bind(id).fetch_all(&self.reader).await.map_err(failed)?;
            Ok(clients_of(&rows)?.into_iter().next())
        })
    }

    fn clients<'a>(&'a self, after: Option<&'a str>, limit: u32) -> StoreFuture<'a, Vec<ClientRecord>> {
        Box::pin(async move {
            let rows = sqlx::query(SELECT_CLIENTS)
                .bind(after.unwrap_or(""))
                .bind(i64::from(limit))
                .fetch_all(&self.reader)
                .await
                .map_err(failed)?;
            clients_of(&rows)
        })
    }

    fn insert_client<'a>(&'a self, record: &'a ClientRecord) -> StoreFuture<'a, ClientRecord> {
        Box::pin(async move {
            let mut write = self.write().await?;
            let record = insert_client(&mut write, record).await?;
            write.commit().await.map_err(failed)?;
            Ok(record)
        })
    }

    fn insert_clients<'a>(
        &'a self,
        records: &'a [ClientRecord],
        progress: &'a (dyn Fn(usize) + Sync),
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut write = self.write().await?;
            for (index, record) in records.iter().enumerate() {
                insert_client(&mut write, record).await.map_err(|error| match error {
                    StoreError::AlreadyExists => StoreError::AlreadyExistsAt { index },
                    error => error,
                })?;
                if (index + 1) % PROGRESS_EVERY == 0 {
                    progress(index + 1);
                }
            }
            write.commit().await.map_err(failed)
        })
    }

    fn update_client<'a>(&'a self, record: &'a ClientRecord) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut write = self.write().await?;
            let updated = bind_client(
                "UPDATE clients SET version = version + 1, name = ?3, enabled = ?4, grant_types = ?5, scopes = ?6, \
                 audiences = ?7, token_lifetime_seconds = ?8, basic_encoding = ?9, created_at = ?10, updated_at = ?11, \
                 disabled_at = ?12, tokens_revoked_through = ?13, remember_secret = ?14 WHERE id = ?1 AND version = ?2",
                record,
            )?
            .execute(&mut *write)
            .await
            .map_err(failed)?;
            if updated.rows_affected() != 1 {
                return Err(StoreError::Changed);
            }
            sqlx::query("DELETE FROM secrets WHERE client_id = ?1")
                .bind(&record.id)
                .execute(&mut *write)
                .await
                .map_err(failed)?;
            insert_secrets(&mut write, record).await?;
            write.commit().await.map_err(failed)
        })
    }

    fn delete_client<'a>(&'a self, id: &'a str, deleted_at: Wall) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let mut write = self.write().await?;
            let deleted: Option<i64> =
                sqlx::query_scalar("DELETE FROM clients WHERE id = ?1 RETURNING version")
                    .bind(id)
                    .fetch_optional(&mut *write)
                    .await
                    .map_err(failed)?;
            let Some(version) = deleted else { return Ok(false) };
            sqlx::query(
                "INSERT OR REPLACE INTO deleted_clients (id, deleted_at, version) VALUES (?1, ?2, ?3)",
            )
            .bind(id)
            .bind(deleted_at.unix_nanos())
            .bind(version)
            .execute(&mut *write)
            .await
            .map_err(failed)?;
            write.commit().await.map_err(failed)?;
            Ok(true)
        })
    }

    fn revocations(&self, since: Wall) -> StoreFuture<'_, Vec<Revocation>> {
        Box::pin(async move {
            let rows = sqlx::query(
                "SELECT id, 0 AS state, disabled_at AS at FROM clients WHERE disabled_at >= ?1 \
                 UNION ALL SELECT id, 1, tokens_revoked_through FROM clients \
                 WHERE disabled_at IS NULL AND tokens_revoked_through >= ?1 \
                 UNION ALL SELECT id, 2, deleted_at FROM deleted_clients WHERE deleted_at >= ?1",
            )
            .bind(since.unix_nanos())
            .fetch_all(&self.reader)
            .await
            .map_err(failed)?;
            rows.iter().map(revocation_of).collect()
        })
    }

    fn forget_tombstones(&self, before: Wall) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            sqlx::query("DELETE FROM deleted_clients WHERE deleted_at < ?1")
                .bind(before.unix_nanos())
                .execute(&self.writer)
                .await
                .map_err(failed)?;
            Ok(())
        })
    }

    fn secret_mix(&self, now: Wall) -> StoreFuture<'_, Vec<SecretMix>> {
        Box::pin(async move {
            let rows = sqlx::query(
                "SELECT formats, count(*) AS clients FROM (SELECT group_concat(format, ' ') AS formats FROM secrets \
                 WHERE expires_at IS NULL OR expires_at > ?1 GROUP BY client_id) GROUP BY formats \
                 ORDER BY clients DESC LIMIT 1000",
            )
            .bind(now.unix_nanos())
            .fetch_all(&self.reader)
            .await
            .map_err(failed)?;
            rows.iter().map(mix_of).collect()
        })
    }

    fn stand_in_key(&self, candidate: [u8; 32]) -> StoreFuture<'_, [u8; 32]> {
        Box::pin(async move {
            sqlx::query("INSERT INTO stand_in (id, key) VALUES (1, ?1) ON CONFLICT DO NOTHING")
                .bind(&candidate[..])
                .execute(&self.writer)
                .await
                .map_err(failed)?;
            let key: Vec<u8> = sqlx::query_scalar("SELECT key FROM stand_in")
                .fetch_one(&self.writer)
                .await
                .map_err(failed)?;
            key.try_into().map_err(|_| StoreError::Invalid { what: "stand_in.key" })
        })
    }

    fn keys(&self) -> StoreFuture<'_, KeySetRecord> {
        Box::pin(async move {
            // A version without keys is a row of nulls: one statement reads both, as of one moment.
            let rows = sqlx::query(
                "SELECT v.version, k.kid, k.algorithm, k.wrapped, k.wrapping_key_id, k.created_at, k.activates_at, \
                 k.remove_at FROM key_set v LEFT JOIN signing_keys k ORDER BY k.position",
            )
            .fetch_all(&self.reader)
            .await
            .map_err(failed)?;
            let Some(first) = rows.first() else { return Ok(KeySetRecord::default()) };
            let version: i64 = first.try_get("version").map_err(failed)?;
            let version =
                u64::try_from(version).map_err(|_| StoreError::Invalid { what: "key_set.version" })?;
            let keys = rows.iter().filter_map(|row| key_of(row).transpose()).collect::<Result<_, _>>()?;
            Ok(KeySetRecord { version, keys })
        })
    }

    fn replace_keys<'a>(&'a self, version: u64, keys: &'a [KeyRecord]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut write = self.write().await?;
            let expected = i64::try_from(version).map_err(|_| StoreError::Changed)?;
            let statement = if version == 0 {
                "INSERT INTO key_set (id, version) VALUES (1, ?1 + 1) ON CONFLICT DO NOTHING"
            } else {
                "UPDATE key_set SET version = version + 1 WHERE version = ?1"
            };
            let counted = sqlx::query(statement).bind(expected).execute(&mut *write).await.map_err(failed)?;
            if counted.rows_affected() != 1 {
                return Err(StoreError::Changed);
            }
            sqlx::query("DELETE FROM signing_keys").execute(&mut *write).await.map_err(failed)?;
            for (position, key) in (0_i64..).zip(keys) {
                sqlx::query(
                    "INSERT INTO signing_keys (kid, algorithm, wrapped, wrapping_key_id, created_at, activates_at, \
                     remove_at, position) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                )
                .bind(&key.kid)
                .bind(key.algorithm.as_str())
                .bind(&key.wrapped)
                .bind(&key.wrapping_key_id)
                .bind(key.created_at.unix_nanos())
                .bind(key.activates_at.unix_nanos())
                .bind(key.remove_at.map(Wall::unix_nanos))
                .bind(position)
                .execute(&mut *write)
                .await
                .map_err(failed)?;
            }
            write.commit().await.map_err(failed)
        })
    }

    fn close(&self) -> super::BoxFuture<'_, ()> {
        Box::pin(async move {
            self.reader.close().await;
            self.writer.close().await;
        })
    }
}

/// Runs something that blocks where it may.
async fn on_file(path: &Path, work: fn(&Path) -> Result<(), StoreError>) -> Result<(), StoreError> {
    let path = path.to_path_buf();
    tokio::task::spawn_blocking(move || work(&path))
        .await
        .map_err(|error| StoreError::Failed(Box::new(error)))?
}

/// Connects. Where two processes open a new file at once, one finds it locked while the other changes to the
/// write-ahead log, for which SQLite doesn't wait by itself.
async fn connect(
    connections: u32,
    options: SqliteConnectOptions,
    path: &Path,
) -> Result<SqlitePool, StoreError> {
    let mut attempts = 0;
    loop {
        match pool(connections).connect_with(options.clone()).await.map_err(|error| opening(path, error)) {
            Err(StoreError::Busy) if attempts < 50 => {
                attempts += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            connected => return connected,
        }
    }
}

fn pool(connections: u32) -> SqlitePoolOptions {
    // Connections stay: they are few, and one in memory must not go.
    SqlitePoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
}

/// Adds a client and its secrets. Where there was one of that id before, its tombstone goes, its tokens stay dead, and its
/// versions are counted on.
async fn insert_client(
    connection: &mut SqliteConnection,
    record: &ClientRecord,
) -> Result<ClientRecord, StoreError> {
    let mut record = ClientRecord { version: 1, ..record.clone() };
    let before: Option<i64> =
        sqlx::query_scalar("DELETE FROM deleted_clients WHERE id = ?1 RETURNING version")
            .bind(&record.id)
            .fetch_optional(&mut *connection)
            .await
            .map_err(failed)?;
    if let Some(version) = before {
        let version =
            u64::try_from(version).map_err(|_| StoreError::Invalid { what: "deleted_clients.version" })?;
        record.version = version.saturating_add(1);
        record.tokens_revoked_through = Some(record.created_at);
    }
    bind_client(
        "INSERT INTO clients (id, version, name, enabled, grant_types, scopes, audiences, \
         token_lifetime_seconds, basic_encoding, created_at, updated_at, disabled_at, tokens_revoked_through, \
         remember_secret) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        &record,
    )?
    .execute(&mut *connection)
    .await
    .map_err(failed)?;
    insert_secrets(connection, &record).await?;
    Ok(record)
}

async fn insert_secrets(connection: &mut SqliteConnection, record: &ClientRecord) -> Result<(), StoreError> {
    for secret in &record.secrets {
        sqlx::query(
            "INSERT INTO secrets (client_id, id, format, provenance, verifier, created_at, expires_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )
        .bind(&record.id)
        .bind(&secret.id)
        .bind(&secret.format)
        .bind(&secret.provenance)
        .bind(&secret.verifier)
        .bind(secret.created_at.unix_nanos())
        .bind(secret.expires_at.map(Wall::unix_nanos))
        .execute(&mut *connection)
        .await
        .map_err(failed)?;
    }
    Ok(())
}

fn revocation_of(row: &SqliteRow) -> Result<Revocation, StoreError> {
    let at = Wall::from_unix_nanos(row.try_get("at").map_err(failed)?);
    let state = match row.try_get::<i64, _>("state").map_err(failed)? {
        0 => RevocationState::Disabled(at),
        1 => RevocationState::IssuedThrough(at),
        _ => RevocationState::Deleted(at),
    };
    Ok(Revocation { client_id: row.try_get("id").map_err(failed)?, state })
}

/// SQLite's primary result code: the low byte of the extended one.
fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xFF)
}

const SQLITE_BUSY: i32 = 5;
const SQLITE_LOCKED: i32 = 6;
const SQLITE_CORRUPT: i32 = 11;
const SQLITE_CANTOPEN: i32 = 14;
const SQLITE_NOTADB: i32 = 26;

/// The error of an operation on an open database.
fn failed(error: sqlx::Error) -> StoreError {
    match primary_code(&error) {
        Some(SQLITE_BUSY | SQLITE_LOCKED) => StoreError::Busy,
        _ if matches!(error, sqlx::Error::PoolTimedOut) => StoreError::Busy,
        _ if error.as_database_error().is_some_and(|error| error.is_unique_violation()) => {
            StoreError::AlreadyExists
        }
        _ => StoreError::Failed(Box::new(error)),
    }
}

/// The error of opening the database of that file.
fn opening(path: &Path, error: sqlx::Error) -> StoreError {
    let path_text = || path.display().to_string();
    match primary_code(&error) {
        Some(SQLITE_CORRUPT | SQLITE_NOTADB) => {
            StoreError::Corrupt { path: path_text(), detail: error.to_string() }
        }
        Some(SQLITE_CANTOPEN) => StoreError::Unusable {
            path: path_text(),
            problem: "it can't be opened; check its permissions".into(),
        },
        _ => failed(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_flush_every_commit_and_readers_only_read() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("cardea.db")).await.unwrap();
        for pool in [&store.writer, &store.reader] {
            // 2 is FULL: a commit that was acknowledged survives the loss of power.
            for (pragma, expected) in [("PRAGMA synchronous", 2_i64), ("PRAGMA foreign_keys", 1)] {
                assert_eq!(sqlx::query_scalar::<_, i64>(pragma).fetch_one(pool).await.unwrap(), expected);
            }
            let journal: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(pool).await.unwrap();
            assert_eq!(journal, "wal");
        }
        let write = "DELETE FROM deleted_clients";
        assert!(sqlx::query(write).execute(&store.writer).await.is_ok());
        assert!(sqlx::query(write).execute(&store.reader).await.is_err());
        store.close().await;
    }
}
