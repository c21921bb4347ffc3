//! Read-only inspection of a database. Nothing is created, migrated, made private or locked, and a server may be using
//! the database.

use std::{fs, io::ErrorKind, path::Path};

use cardea_clock::Wall;
use sqlx::{
    ConnectOptions as _, Connection as _, Row as _, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteRow},
};

use super::{BUSY_TIMEOUT, failed, file, key_of, opening, schema};
use crate::{KeyRecord, StoreError};

/// The wrapping key of a private key that signs no tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeKeyRecord {
    /// The key's owner, for messages.
    pub name: String,
    /// The wrapping key's id.
    pub wrapping_key_id: String,
}

/// Checks that a database can be used, and returns its signing keys. A missing file in an existing folder is accepted,
/// because it will be created.
///
/// # Errors
/// The problem of the database.
pub async fn inspect_signing_keys(path: &Path) -> Result<Vec<KeyRecord>, StoreError> {
    let Some((mut connection, _)) = checked(path).await? else { return Ok(Vec::new()) };
    let keys = signing_keys(&mut connection).await;
    close(connection, path, keys).await
}

/// Checks that a database can be used, as [`inspect_signing_keys`] does, and returns the keys of the account at that
/// ACME directory and of its certificates that have not expired at `now`.
///
/// # Errors
/// The problem of the database.
pub async fn inspect_acme_keys(
    path: &Path,
    directory: &str,
    now: Wall,
) -> Result<Vec<AcmeKeyRecord>, StoreError> {
    let Some((mut connection, version)) = checked(path).await? else { return Ok(Vec::new()) };
    let keys = match schema::has_acme(version) {
        true => acme_keys(&mut connection, directory, now).await,
        false => Ok(Vec::new()),
    };
    close(connection, path, keys).await
}

/// A connection to a usable database, and the version of its schema; `None` if it is empty.
async fn checked(path: &Path) -> Result<Option<(SqliteConnection, i64)>, StoreError> {
    let marker = file::check_not_lost(path)?;
    let Some(options) = how(path)? else { return Ok(None) };
    let mut connection = options.connect().await.map_err(|error| opening(path, error))?;
    match check(&mut connection, path, marker.as_deref()).await {
        Ok(Some(version)) => Ok(Some((connection, version))),
        nothing => close(connection, path, nothing.map(|_| None)).await,
    }
}

async fn check(
    connection: &mut SqliteConnection,
    path: &Path,
    marker: Option<&Path>,
) -> Result<Option<i64>, StoreError> {
    // One consistent view until the connection is closed, whatever a running server does.
    sqlx::query("BEGIN").execute(&mut *connection).await.map_err(|error| opening(path, error))?;
    let version = schema::version(connection, path).await?;
    schema::check_identified(version, path, marker)?;
    let Some(version) = version else { return Ok(None) };
    schema::sound(connection, path).await?;
    if let Some(instance) = schema::instance(connection, version, path).await? {
        file::is_marked(path, &instance)?;
    }
    Ok(Some(version))
}

async fn close<T>(
    connection: SqliteConnection,
    path: &Path,
    done: Result<T, StoreError>,
) -> Result<T, StoreError> {
    let closed = connection.close().await;
    let value = done?;
    closed.map_err(|error| opening(path, error))?;
    Ok(value)
}

/// How to open the file; `None` if it doesn't exist.
fn how(path: &Path) -> Result<Option<SqliteConnectOptions>, StoreError> {
    let unusable = |problem: String| StoreError::Unusable { path: path.display().to_string(), problem };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => return Err(unusable("it is not a file".into())),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound && parent.is_dir() => return Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(unusable(format!("the folder {} does not exist; create it", parent.display())));
        }
        Err(error) => return Err(unusable(format!("it can't be read: {error}"))),
    }
    fs::File::open(path).map_err(|error| unusable(format!("it can't be read: {error}")))?;
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    // Without a write-ahead log, the file is complete. Then SQLite neither locks it nor creates side files.
    let is_whole = fs::metadata(&log).map_or(true, |metadata| metadata.len() == 0);
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .read_only(true)
        .immutable(is_whole)
        .busy_timeout(BUSY_TIMEOUT)
        .disable_statement_logging();
    Ok(Some(options))
}

async fn signing_keys(connection: &mut SqliteConnection) -> Result<Vec<KeyRecord>, StoreError> {
    let rows = sqlx::query(
        "SELECT kid, algorithm, wrapped, wrapping_key_id, created_at, activates_at, remove_at FROM signing_keys \
         ORDER BY position",
    )
    .fetch_all(connection)
    .await
    .map_err(failed)?;
    rows.iter().filter_map(|row| key_of(row).transpose()).collect()
}

async fn acme_keys(
    connection: &mut SqliteConnection,
    directory: &str,
    now: Wall,
) -> Result<Vec<AcmeKeyRecord>, StoreError> {
    let rows = sqlx::query(
        "SELECT 'of the account at ' || directory AS name, wrapping_key_id FROM acme_accounts WHERE directory = ?1 \
         UNION ALL SELECT 'for ' || hosts, wrapping_key_id FROM acme_certificates \
         WHERE directory = ?1 AND not_after > ?2",
    )
    .bind(directory)
    .bind(now.unix_nanos())
    .fetch_all(connection)
    .await
    .map_err(failed)?;
    let record = |row: &SqliteRow| {
        Ok(AcmeKeyRecord {
            name: row.try_get("name").map_err(failed)?,
            wrapping_key_id: row.try_get("wrapping_key_id").map_err(failed)?,
        })
    };
    rows.iter().map(record).collect()
}
