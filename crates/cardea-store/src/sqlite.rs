//! The embedded store: SQLite with a write-ahead log, where every commit is flushed to the disk.
//!
//! `sqlx` gives each connection its own thread, so no disk access runs on the runtime's threads. One connection writes,
//! so that writers of this process queue in order; SQLite's lock separates processes. A connection that met an error is
//! closed and replaced. One more connection, the anchor, keeps the log.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use cardea_clock::Wall;
use sqlx::{
    ConnectOptions as _, Connection as _, Row as _, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteRow, SqliteSynchronous},
};
use tokio::sync::Mutex;

use crate::{
    BoxFuture, ClientRecord, Database, IssuerStore, KeyRecord, KeySetRecord, Revocation, RevocationState,
    SecretMix, StoreError, StoreFuture, WriteHealth,
};

mod acme;
mod changes;
mod file;
mod inspect;
mod reader;
mod rows;
mod schema;
mod writer;

use file::Identity;
pub use inspect::{AcmeKeyRecord, inspect_acme_keys, inspect_signing_keys};
use reader::Reader;
use rows::{SELECT_CLIENT, SELECT_CLIENTS, clients_of, key_of, mix_of};
use writer::Writer;

/// How long a writer waits for another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an operation waits for a free connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
const READERS: u32 = 4;

/// Distinguishes databases in memory.
static IN_MEMORY: AtomicU64 = AtomicU64::new(0);

/// A store in one SQLite file.
#[derive(Clone)]
pub struct SqliteStore {
    path: PathBuf,
    writer: Writer,
    reader: Reader,
    anchor: Anchor,
}

/// A connection that is open as long as the store, so that SQLite doesn't remove the log and the shared memory (or a
/// database in memory) when errors have closed all others.
type Anchor = Arc<Mutex<Option<SqliteConnection>>>;

impl SqliteStore {
    /// Opens the database at that path and migrates its schema. A missing file is created with mode 0600, and an
    /// existing one is made private. The marker file `<file>.id` distinguishes a first start from a lost database.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] if the folder is missing, the file can't be opened, or it holds another program's
    /// database or another one than the marker names; [`StoreError::Lost`] if the file is missing or empty although it
    /// existed before; [`StoreError::Corrupt`] if it is damaged; [`StoreError::NewerSchema`]. In all these cases
    /// nothing was changed.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_waiting(path.as_ref(), BUSY_TIMEOUT).await
    }

    async fn open_waiting(path: &Path, busy_timeout: Duration) -> Result<Self, StoreError> {
        let path = path.to_path_buf();
        // This precedes the check of the schema: another process writes the marker after it has created the schema.
        let marker = on_file(&path, file::prepare).await?;
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .create_if_missing(false)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(busy_timeout)
            .disable_statement_logging();
        // The owner of the database is checked first, because the log mode changes the file permanently.
        let mut connection = options.connect().await.map_err(|error| opening(&path, error))?;
        let prepared = schema::prepare(&mut connection, &path, marker.as_deref()).await;
        let closed = connection.close().await;
        let instance = prepared?;
        closed.map_err(|error| opening(&path, error))?;
        on_file(&path, move |path| file::mark(path, &instance)).await?;
        on_file(&path, file::make_private).await?;
        let options = options.journal_mode(SqliteJournalMode::Wal);
        let anchor = anchor(&path, &options).await?;
        let identity =
            on_file(&path, |path| Identity::of(path).map_err(|error| StoreError::Failed(Box::new(error))))
                .await?;
        Self::connect(path, options, anchor, Some(identity)).await
    }

    /// A store in memory, which lasts until it is dropped: for the demo and for tests.
    ///
    /// # Errors
    /// [`StoreError::Failed`].
    pub async fn in_memory() -> Result<Self, StoreError> {
        // A name with a leading slash: all connections of this process share the database.
        let path = PathBuf::from(format!("/cardea-{}", IN_MEMORY.fetch_add(1, Relaxed)));
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .vfs("memdb")
            .create_if_missing(true)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT)
            .disable_statement_logging();
        let mut anchor = options.connect().await.map_err(failed)?;
        schema::prepare(&mut anchor, &path, None).await?;
        Self::connect(path, options, anchor, None).await
    }

    async fn connect(
        path: PathBuf,
        options: SqliteConnectOptions,
        anchor: SqliteConnection,
        identity: Option<Identity>,
    ) -> Result<Self, StoreError> {
        let writer = Writer::open(options.clone(), identity.clone()).await;
        let writer = writer.map_err(|error| opening(&path, error))?;
        // All connections are opened now and kept open, so that reads don't need another one if the files are removed. A
        // replacement must connect to the same files.
        let readers = SqlitePoolOptions::new()
            .min_connections(READERS)
            .max_connections(READERS)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
            .after_connect(move |_, _| {
                let identity = identity.clone();
                Box::pin(async move {
                    match identity {
                        Some(identity) => identity
                            .check()
                            .await
                            .map_err(|error| sqlx::Error::Configuration(Box::new(error))),
                        None => Ok(()),
                    }
                })
            })
            .connect_with(options.pragma("query_only", "ON"))
            .await
            .map_err(|error| opening(&path, error))?;
        Ok(Self { path, writer, reader: Reader(readers), anchor: Arc::new(Mutex::new(Some(anchor))) })
    }
}

/// Opens the anchor, with the log and the shared memory. If two processes open a new file at once, one finds it locked
/// while the other switches to the write-ahead log. SQLite doesn't wait for that by itself.
async fn anchor(path: &Path, options: &SqliteConnectOptions) -> Result<SqliteConnection, StoreError> {
    let mut attempts = 0;
    let mut anchor = loop {
        match options.connect().await.map_err(|error| opening(path, error)) {
            Err(StoreError::Busy) if attempts < 50 => {
                attempts += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            opened => break opened?,
        }
    };
    // SQLite opens the log when it reads the database for the first time.
    sqlx::query("SELECT 1 FROM sqlite_schema")
        .execute(&mut anchor)
        .await
        .map_err(|error| opening(path, error))?;
    Ok(anchor)
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Database for SqliteStore {
    fn probe(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let mut write = self.writer.begin().await?;
            let probe = sqlx::query("UPDATE registry SET probes = probes + 1");
            let done = probe.execute(write.connection()?).await;
            write.end(done.map(drop).map_err(failed)).await
        })
    }

    fn write_health(&self) -> WriteHealth {
        self.writer.health()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.reader.close().await;
            self.writer.close().await;
            // The last connection writes the log back and removes it.
            if let Some(anchor) = self.anchor.lock().await.take() {
                let _ = anchor.close().await;
            }
        })
    }
}

impl IssuerStore for SqliteStore {
    fn client<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<ClientRecord>> {
        Box::pin(async move {
            // One statement, so that client and secrets are consistent.
            let rows = self.reader.all(sqlx::query(SELECT_CLIENT).bind(id)).await?;
            Ok(clients_of(&rows)?.into_iter().next())
        })
    }

    fn clients<'a>(&'a self, after: Option<&'a str>, limit: u32) -> StoreFuture<'a, Vec<ClientRecord>> {
        Box::pin(async move {
            let query = sqlx::query(SELECT_CLIENTS).bind(after.unwrap_or("")).bind(i64::from(limit));
            clients_of(&self.reader.all(query).await?)
        })
    }

    fn insert_client<'a>(&'a self, record: &'a ClientRecord) -> StoreFuture<'a, ClientRecord> {
        Box::pin(async move {
            let mut write = self.writer.begin().await?;
            let done = changes::insert_client(write.connection()?, record).await;
            write.end(done).await
        })
    }

    fn insert_clients<'a>(
        &'a self,
        records: &'a [ClientRecord],
        progress: &'a (dyn Fn(usize) + Sync),
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut write = self.writer.begin().await?;
            let done = changes::insert_clients(write.connection()?, records, progress).await;
            write.end(done).await
        })
    }

    fn update_client<'a>(&'a self, record: &'a ClientRecord) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut write = self.writer.begin().await?;
            let done = changes::update_client(write.connection()?, record).await;
            write.end(done).await
        })
    }

    fn delete_client<'a>(&'a self, id: &'a str, deleted_at: Wall) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let mut write = self.writer.begin().await?;
            let done = changes::delete_client(write.connection()?, id, deleted_at).await;
            write.end(done).await
        })
    }

    fn revocations(&self, since: Wall) -> StoreFuture<'_, Vec<Revocation>> {
        Box::pin(async move {
            let query = sqlx::query(
                "SELECT id, 0 AS state, disabled_at AS at FROM clients WHERE disabled_at >= ?1 \
                 UNION ALL SELECT id, 1, tokens_revoked_through FROM clients \
                 WHERE disabled_at IS NULL AND tokens_revoked_through >= ?1 \
                 UNION ALL SELECT id, 2, deleted_at FROM deleted_clients WHERE deleted_at >= ?1",
            );
            let rows = self.reader.all(query.bind(since.unix_nanos())).await?;
            rows.iter().map(revocation_of).collect()
        })
    }

    fn forget_tombstones(&self, before: Wall) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let mut write = self.writer.begin().await?;
            let forget = sqlx::query("DELETE FROM deleted_clients WHERE deleted_at < ?1");
            let done = forget.bind(before.unix_nanos()).execute(write.connection()?).await;
            write.end(done.map(drop).map_err(failed)).await
        })
    }

    fn secret_mix(&self, now: Wall) -> StoreFuture<'_, Vec<SecretMix>> {
        Box::pin(async move {
            let query = sqlx::query(
                "SELECT formats, count(*) AS clients FROM (SELECT group_concat(format, ' ') AS formats FROM secrets \
                 WHERE expires_at IS NULL OR expires_at > ?1 GROUP BY client_id) GROUP BY formats \
                 ORDER BY clients DESC LIMIT 1000",
            );
            let rows = self.reader.all(query.bind(now.unix_nanos())).await?;
            rows.iter().map(mix_of).collect()
        })
    }

    fn dummy_key(&self, candidate: [u8; 32]) -> StoreFuture<'_, [u8; 32]> {
        Box::pin(async move {
            // tidy: glossary: databases have this table
            let select = || sqlx::query("SELECT key FROM stand_in");
            let mut found = self.reader.optional(select()).await?;
            if found.is_none() {
                let mut write = self.writer.begin().await?;
                let insert =
                    // tidy: glossary: databases have this table
                    sqlx::query("INSERT INTO stand_in (id, key) VALUES (1, ?1) ON CONFLICT DO NOTHING");
                let done = insert.bind(&candidate[..]).execute(write.connection()?).await;
                write.end(done.map(drop).map_err(failed)).await?;
                found = self.reader.optional(select()).await?;
            }
            // tidy: glossary: databases have this table
            let invalid = StoreError::Invalid { what: "stand_in.key" };
            let Some(row) = found else { return Err(invalid) };
            row.try_get::<Vec<u8>, _>("key").map_err(failed)?.try_into().map_err(|_| invalid)
        })
    }

    fn keys(&self) -> StoreFuture<'_, KeySetRecord> {
        Box::pin(async move {
            // A version without keys is a row of nulls, so that one statement reads both consistently.
            let rows = self
                .reader
                .all(sqlx::query(
                    "SELECT v.version, k.kid, k.algorithm, k.wrapped, k.wrapping_key_id, k.created_at, \
                     k.activates_at, k.remove_at FROM key_set v LEFT JOIN signing_keys k ORDER BY k.position",
                ))
                .await?;
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
            let mut write = self.writer.begin().await?;
            let done = changes::replace_keys(write.connection()?, version, keys).await;
            write.end(done).await
        })
    }

    fn published_through(&self) -> StoreFuture<'_, Option<Wall>> {
        Box::pin(async move {
            let row = self.reader.optional(sqlx::query("SELECT published_through FROM registry")).await?;
            let through = row.map(|row| row.try_get::<Option<i64>, _>("published_through")).transpose();
            Ok(through.map_err(failed)?.flatten().map(Wall::from_unix_nanos))
        })
    }

    fn mark_published(&self, now: Wall) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let mut write = self.writer.begin().await?;
            let mark = sqlx::query("UPDATE registry SET published_through = ?1").bind(now.unix_nanos());
            let done = mark.execute(write.connection()?).await;
            write.end(done.map(drop).map_err(failed)).await
        })
    }
}

/// Runs a blocking function on a thread where that is allowed.
async fn on_file<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce(&Path) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let path = path.to_path_buf();
    tokio::task::spawn_blocking(move || work(&path))
        .await
        .map_err(|error| StoreError::Failed(Box::new(error)))?
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

/// The error of opening the database at that path.
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
mod tests;
