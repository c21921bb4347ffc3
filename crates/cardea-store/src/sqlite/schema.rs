//! The schema and its migrations.

use std::path::Path;

use sqlx::{Connection as _, SqliteConnection};

use super::{failed, opening};
use crate::StoreError;

/// Identifies a SQLite file as ours ("Card").
const APPLICATION_ID: i64 = 0x4361_7264;

/// Each entry migrates the schema from the version that is its index to the next. Entries are only ever appended.
const MIGRATIONS: &[&str] = &[
    "
CREATE TABLE clients (
    id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    name TEXT NOT NULL,
    enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    grant_types TEXT NOT NULL,              -- words
    scopes TEXT NOT NULL,                   -- words
    audiences TEXT NOT NULL,                -- a JSON array of strings
    token_lifetime_seconds INTEGER,
    basic_encoding TEXT NOT NULL,
    created_at INTEGER NOT NULL,            -- every time: nanoseconds since the Unix epoch
    updated_at INTEGER NOT NULL,
    disabled_at INTEGER,
    tokens_revoked_through INTEGER,
    CHECK (enabled = (disabled_at IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX clients_disabled_at ON clients (disabled_at) WHERE disabled_at IS NOT NULL;
CREATE INDEX clients_revoked ON clients (tokens_revoked_through) WHERE tokens_revoked_through IS NOT NULL;
CREATE TABLE secrets (
    client_id TEXT NOT NULL REFERENCES clients (id) ON DELETE CASCADE,
    id TEXT NOT NULL,
    format TEXT NOT NULL,
    provenance TEXT NOT NULL,
    verifier BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    PRIMARY KEY (client_id, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE deleted_clients (
    id TEXT NOT NULL PRIMARY KEY,
    deleted_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX deleted_clients_deleted_at ON deleted_clients (deleted_at);
CREATE TABLE key_set (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    version INTEGER NOT NULL
) STRICT;
CREATE TABLE signing_keys (
    kid TEXT NOT NULL PRIMARY KEY,
    position INTEGER NOT NULL,              -- the order in which they take over
    algorithm TEXT NOT NULL,
    wrapped BLOB NOT NULL,
    wrapping_key_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    activates_at INTEGER NOT NULL,
    remove_at INTEGER
) STRICT, WITHOUT ROWID;
",
    "
ALTER TABLE clients ADD COLUMN remember_secret INTEGER NOT NULL DEFAULT 1 CHECK (remember_secret IN (0, 1));
CREATE TABLE stand_in ( -- tidy: glossary: databases have this table
    id INTEGER PRIMARY KEY CHECK (id = 1),
    key BLOB NOT NULL CHECK (length(key) = 32)
) STRICT;
",
    "
CREATE TABLE acme_accounts (
    directory TEXT NOT NULL PRIMARY KEY,
    url TEXT NOT NULL,
    contacts TEXT NOT NULL,                 -- words
    sealed BLOB NOT NULL,
    wrapping_key_id TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE acme_certificates (
    directory TEXT NOT NULL,
    hosts TEXT NOT NULL,                    -- words
    key_type TEXT NOT NULL,
    chain TEXT,                             -- PEM
    sealed BLOB,
    wrapping_key_id TEXT,
    issued_at INTEGER,
    not_after INTEGER,
    failures INTEGER NOT NULL,
    next_attempt_at INTEGER,
    reason TEXT,
    problem TEXT,
    PRIMARY KEY (directory, hosts, key_type),
    CHECK ((chain IS NULL) = (sealed IS NULL) AND (chain IS NULL) = (not_after IS NULL))
) STRICT, WITHOUT ROWID;
CREATE TABLE acme_challenges (
    token TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    host TEXT NOT NULL,
    key_authorization TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE acme_state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    version INTEGER NOT NULL,               -- counts the changes that all nodes must see
    lease_holder TEXT NOT NULL,
    lease_until INTEGER NOT NULL
) STRICT;
INSERT INTO acme_state VALUES (1, 0, '', 0);
",
    "
ALTER TABLE acme_certificates ADD COLUMN renew_from INTEGER;
ALTER TABLE acme_certificates ADD COLUMN renew_until INTEGER;
ALTER TABLE acme_certificates ADD COLUMN ask_renewal_at INTEGER;
",
    "
ALTER TABLE deleted_clients ADD COLUMN version INTEGER NOT NULL DEFAULT 0; -- the client's last one, where it is known
",
    "
CREATE TABLE registry (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    instance TEXT NOT NULL,                 -- tells this database from any other; its marker has it, too
    probes INTEGER NOT NULL,                -- counted up to learn whether writes work
    published_through INTEGER               -- until when a key that is to sign is known to have been published
) STRICT;
INSERT INTO registry VALUES (1, lower(hex(randomblob(16))), 0, NULL);
",
];

/// The first version whose databases have an id.
const IDENTIFIED_SINCE: i64 = 6;

/// The first version with ACME tables.
const ACME_VERSION: i64 = 3;

/// Whether a schema of this version has ACME tables.
pub(super) fn has_acme(version: i64) -> bool {
    version >= ACME_VERSION
}

/// The version of the schema; `None` if the database is empty.
pub(super) async fn version(
    connection: &mut SqliteConnection,
    path: &Path,
) -> Result<Option<i64>, StoreError> {
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    let path_text = || path.display().to_string();
    let read = |error| opening(path, error);
    let application_id: i64 =
        sqlx::query_scalar("PRAGMA application_id").fetch_one(&mut *connection).await.map_err(read)?;
    let tables: i64 = sqlx::query_scalar("SELECT count(*) FROM sqlite_schema")
        .fetch_one(&mut *connection)
        .await
        .map_err(read)?;
    let version: i64 = match (application_id, tables) {
        (0, 0) => return Ok(None),
        (APPLICATION_ID, 1..) => sqlx::query_scalar("SELECT version FROM schema_version")
            .fetch_one(&mut *connection)
            .await
            .map_err(read)?,
        _ => {
            let problem =
                "it is another program's SQLite database; name another file (nothing was changed)".into();
            return Err(StoreError::Unusable { path: path_text(), problem });
        }
    };
    if version > known {
        return Err(StoreError::NewerSchema { path: path_text(), found: version, known });
    }
    Ok(Some(version))
}

/// Checks the integrity of the database's pages.
pub(super) async fn sound(connection: &mut SqliteConnection, path: &Path) -> Result<(), StoreError> {
    let sound: String = sqlx::query_scalar("PRAGMA quick_check(1)")
        .fetch_one(&mut *connection)
        .await
        .map_err(|error| opening(path, error))?;
    if sound == "ok" {
        Ok(())
    } else {
        Err(StoreError::Corrupt { path: path.display().to_string(), detail: sound })
    }
}

/// Checks that the database is ours and intact, and migrates its schema in one transaction, so that two processes that
/// open a new file at once agree. Returns the database's id.
///
/// # Errors
/// Among others those of [`check_identified`], if `marker` existed before.
pub(super) async fn prepare(
    connection: &mut SqliteConnection,
    path: &Path,
    marker: Option<&Path>,
) -> Result<String, StoreError> {
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    let mut write = connection.begin_with("BEGIN IMMEDIATE").await.map_err(|error| opening(path, error))?;
    let read = |error| opening(path, error);
    let version = version(&mut write, path).await?;
    check_identified(version, path, marker)?;
    let version = match version {
        Some(version) => version,
        None => {
            sqlx::raw_sql("CREATE TABLE schema_version (version INTEGER NOT NULL) STRICT; INSERT INTO schema_version VALUES (0)")
                .execute(&mut *write)
                .await
                .map_err(read)?;
            let mark = sqlx::AssertSqlSafe(format!("PRAGMA application_id = {APPLICATION_ID}"));
            sqlx::raw_sql(mark).execute(&mut *write).await.map_err(read)?;
            0
        }
    };
    sound(&mut write, path).await?;
    if version == known {
        return identity(&mut write, path).await;
    }
    for migration in MIGRATIONS.iter().skip(usize::try_from(version).unwrap_or(0)) {
        sqlx::raw_sql(*migration).execute(&mut *write).await.map_err(read)?;
    }
    sqlx::query("UPDATE schema_version SET version = ?1")
        .bind(known)
        .execute(&mut *write)
        .await
        .map_err(failed)?;
    let instance = identity(&mut write, path).await?;
    write.commit().await.map_err(failed)?;
    Ok(instance)
}

/// The id of a database with this schema version; `None` if it has none yet.
pub(super) async fn instance(
    connection: &mut SqliteConnection,
    version: i64,
    path: &Path,
) -> Result<Option<String>, StoreError> {
    if version < IDENTIFIED_SINCE {
        return Ok(None);
    }
    identity(connection, path).await.map(Some)
}

async fn identity(connection: &mut SqliteConnection, path: &Path) -> Result<String, StoreError> {
    let instance = sqlx::query_scalar("SELECT instance FROM registry");
    instance.fetch_one(connection).await.map_err(|error| opening(path, error))
}

/// Refuses a database without an id if there is a marker with one. The marker is written after the id, so another
/// database existed before.
///
/// # Errors
/// [`StoreError::Lost`] if the database is empty; [`StoreError::Unusable`] if its schema is older.
pub(super) fn check_identified(
    version: Option<i64>,
    path: &Path,
    marker: Option<&Path>,
) -> Result<(), StoreError> {
    let Some(marker) = marker.map(|marker| marker.display().to_string()) else { return Ok(()) };
    let path = path.display().to_string();
    match version {
        Some(IDENTIFIED_SINCE..) => Ok(()),
        None | Some(0) => Err(StoreError::Lost { path, what: "empty", trace: marker }),
        Some(_) => {
            let problem = format!(
                "it is older than the one that {marker} was written for; restore the right one, or, where this one is \
                 meant, remove that file (nothing was changed)"
            );
            Err(StoreError::Unusable { path, problem })
        }
    }
}
