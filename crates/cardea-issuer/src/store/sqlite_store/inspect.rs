//! A look into a database that changes nothing: nothing is created, migrated, made private or locked for others, and a
//! server may be running on it.

use std::{fs, io::ErrorKind, path::Path};

use cardea_clock::Wall;
use sqlx::{ConnectOptions as _, Connection as _, Row as _, SqliteConnection, sqlite::SqliteConnectOptions};

use super::{BUSY_TIMEOUT, failed, file, key_of, opening, schema};
use crate::{
    store::StoreError,
    wrapping::{WrappingKey, WrappingKeyError},
};

/// The private keys in a database that a wrapping key has to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrivateKeys<'a> {
    /// Those that sign tokens.
    Signing,
    /// Those of the account at an ACME directory, and of its certificates that have not expired.
    Acme {
        /// The directory's URL.
        directory: &'a str,
        /// The time.
        now: Wall,
    },
}

/// Why a database, or a wrapping key for it, can't be used.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The wrapping key.
    #[error(transparent)]
    WrappingKey(#[from] WrappingKeyError),
}

/// Whether a database can be used, and whether a wrapping key opens the private keys in it. A file that is not there is
/// as good as one that is, where its folder is there: it will be created.
///
/// # Errors
/// What is wrong with the one or the other.
pub async fn inspect(
    path: &Path,
    key: Option<&WrappingKey>,
    private_keys: PrivateKeys<'_>,
) -> Result<(), InspectError> {
    let Some(options) = how(path)? else { return Ok(()) };
    let mut connection = options.connect().await.map_err(|error| opening(path, error))?;
    let looked = look(&mut connection, path, key, private_keys).await;
    let closed = connection.close().await;
    looked?;
    Ok(closed.map_err(|error| opening(path, error))?)
}

/// How to open the file; `None` where there is none yet.
fn how(path: &Path) -> Result<Option<SqliteConnectOptions>, StoreError> {
    let unusable = |problem: String| StoreError::Unusable { path: path.display().to_string(), problem };
    file::check_not_lost(path)?;
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
    // Without a write-ahead log, the file is all there is. SQLite then neither locks it nor puts files beside it.
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

async fn look(
    connection: &mut SqliteConnection,
    path: &Path,
    key: Option<&WrappingKey>,
    private_keys: PrivateKeys<'_>,
) -> Result<(), InspectError> {
    // One moment of the database, whatever a running server does meanwhile.
    let mut read = connection.begin().await.map_err(|error| opening(path, error))?;
    let Some(version) = schema::version(&mut read, path).await? else { return Ok(()) };
    schema::sound(&mut read, path).await?;
    if let Some(key) = key {
        match private_keys {
            PrivateKeys::Signing => signing_keys(&mut read, key).await?,
            PrivateKeys::Acme { directory, now } if schema::has_acme(version) => {
                acme_keys(&mut read, key, directory, now).await?;
            }
            PrivateKeys::Acme { .. } => {}
        }
    }
    Ok(())
}

async fn signing_keys(read: &mut SqliteConnection, key: &WrappingKey) -> Result<(), InspectError> {
    let rows = sqlx::query(
        "SELECT kid, algorithm, wrapped, wrapping_key_id, created_at, activates_at, remove_at FROM signing_keys \
         ORDER BY position",
    )
    .fetch_all(&mut *read)
    .await
    .map_err(failed)?;
    for row in &rows {
        let Some(record) = key_of(row)? else { continue };
        key.unwrap(&record.kid, record.algorithm, &record.wrapping_key_id, &record.wrapped)?;
    }
    Ok(())
}

/// What each of them is bound to is the program's business; whose key sealed it stands beside it.
async fn acme_keys(
    read: &mut SqliteConnection,
    key: &WrappingKey,
    directory: &str,
    now: Wall,
) -> Result<(), InspectError> {
    let rows = sqlx::query(
        "SELECT 'of the account at ' || directory AS what, wrapping_key_id FROM acme_accounts \
         WHERE directory = ?2 AND wrapping_key_id <> ?1 \
         UNION ALL SELECT 'for ' || hosts, wrapping_key_id FROM acme_certificates \
         WHERE directory = ?2 AND not_after > ?3 AND wrapping_key_id <> ?1 LIMIT 1",
    )
    .bind(key.id())
    .bind(directory)
    .bind(now.unix_nanos())
    .fetch_all(&mut *read)
    .await
    .map_err(failed)?;
    match rows.first() {
        None => Ok(()),
        Some(row) => Err(InspectError::WrappingKey(WrappingKeyError::Mismatch {
            kid: row.try_get("what").map_err(failed)?,
            stored: row.try_get("wrapping_key_id").map_err(failed)?,
            configured: key.id().to_owned(),
        })),
    }
}
