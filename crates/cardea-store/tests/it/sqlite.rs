//! The SQLite file: its owner, its permissions, its damage, and concurrent writers.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use cardea_store::{
    Database as _, IssuerStore as _, StoreError,
    sqlite::{SqliteStore, inspect_signing_keys},
};
use sqlx::{ConnectOptions as _, Connection as _, sqlite::SqliteConnectOptions};

use crate::conformance::client;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Runs statements on the file without the store.
async fn meddle(path: &Path, sql: &'static str) {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let mut connection = options.connect().await.unwrap();
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

#[tokio::test]
async fn the_database_and_its_log_are_private() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cardea.db");
    let store = SqliteStore::open(&path).await.unwrap();
    store.replace_keys(0, &[]).await.unwrap();
    assert_eq!((mode(&path), mode(&folder.path().join("cardea.db-wal"))), (0o600, 0o600));
    store.close().await;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(store.keys().await.unwrap().version, 1, "and what was in it is there");
    store.close().await;
}

#[tokio::test]
async fn every_commit_is_flushed_to_a_write_ahead_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cardea.db");
    let store = SqliteStore::open(&path).await.unwrap();
    store.close().await;
    let mut connection = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    let journal: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut connection).await.unwrap();
    assert_eq!(journal, "wal");
}

#[tokio::test]
async fn a_missing_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = SqliteStore::open(folder.path().join("missing/cardea.db")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unusable { .. }));
    let message = error.to_string();
    assert!(message.contains("missing does not exist; create it"), "{message}");
    let error = SqliteStore::open(folder.path()).await.unwrap_err();
    assert!(error.to_string().contains("not a file"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cardea.db");
    let content = "no database at all, ".repeat(500);
    fs::write(&path, &content).unwrap();
    assert!(matches!(SqliteStore::open(&path).await, Err(StoreError::Corrupt { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), content);
}

#[tokio::test]
async fn damage_in_the_middle_is_noticed_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cardea.db");
    SqliteStore::open(&path).await.unwrap().close().await;
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 4_096].fill(0xAA);
    fs::write(&path, &bytes).unwrap();
    let opened = SqliteStore::open(&path).await;
    assert!(matches!(opened, Err(StoreError::Corrupt { .. })), "{opened:?}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[tokio::test]
async fn another_programs_database_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.db");
    meddle(&path, "CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)").await;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let before = fs::read(&path).unwrap();
    let error = SqliteStore::open(&path).await.unwrap_err();
    assert!(error.to_string().contains("another program's"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before, "not even its journal mode has changed");
    assert_eq!(mode(&path), 0o644);
}

#[tokio::test]
async fn a_newer_schema_is_named_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cardea.db");
    SqliteStore::open(&path).await.unwrap().close().await;
    meddle(&path, "UPDATE schema_version SET version = 99").await;
    let opened = SqliteStore::open(&path).await;
    assert!(matches!(opened, Err(StoreError::NewerSchema { found: 99, .. })), "{opened:?}");
}

/// Reverts the newest schema to the first.
// tidy: glossary: databases have this table
const DOWNGRADE: &str = "ALTER TABLE clients DROP COLUMN remember_secret; DROP TABLE stand_in; \
    DROP TABLE acme_accounts; DROP TABLE acme_certificates; DROP TABLE acme_challenges; \
    DROP TABLE acme_state; DROP TABLE registry; ALTER TABLE deleted_clients DROP COLUMN version; \
    UPDATE schema_version SET version = 1";

#[tokio::test]
async fn an_empty_database_is_distinguished_from_a_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let (path, marker) = (folder.path().join("cardea.db"), folder.path().join("cardea.db.id"));
    SqliteStore::open(&path).await.unwrap().close().await;
    // A file that SQLite accepts as a database, without content.
    fs::remove_file(&path).unwrap();
    meddle(&path, "CREATE TABLE one (two TEXT); DROP TABLE one").await;
    let before = fs::read(&path).unwrap();
    assert!(!before.is_empty());
    let error = SqliteStore::open(&path).await.unwrap_err();
    assert!(matches!(error, StoreError::Lost { .. }), "{error}");
    assert!(error.to_string().contains("cardea.db is empty"), "{error}");
    let checked = inspect_signing_keys(&path).await.unwrap_err();
    assert_eq!(checked.to_string(), error.to_string());
    assert_eq!(fs::read(&path).unwrap(), before, "nothing was changed");
    // If a new database is confirmed, and if there was none before.
    fs::remove_file(&marker).unwrap();
    inspect_signing_keys(&path).await.unwrap();
    SqliteStore::open(&path).await.unwrap().close().await;
    assert!(marker.exists());
}

#[tokio::test]
async fn a_check_detects_a_replaced_database() {
    let folder = tempfile::tempdir().unwrap();
    let (path, marker) = (folder.path().join("cardea.db"), folder.path().join("cardea.db.id"));
    SqliteStore::open(&path).await.unwrap().close().await;
    inspect_signing_keys(&path).await.unwrap();
    fs::write(&marker, "0".repeat(32)).unwrap();
    let checked = inspect_signing_keys(&path).await.unwrap_err().to_string();
    assert!(checked.contains("another database") && checked.contains("cardea.db.id"), "{checked}");
}

#[tokio::test]
async fn a_database_of_the_first_schema_is_taken_over_with_its_clients() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cardea.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let record = store.insert_client(&client("known")).await.unwrap();
    store.close().await;
    // Removes what later schemas added.
    meddle(&path, DOWNGRADE).await;
    let before = fs::read(&path).unwrap();
    for _ in 0..2 {
        let error = SqliteStore::open(&path).await.unwrap_err().to_string();
        assert!(error.contains("older than the one that") && error.contains("cardea.db.id"), "{error}");
        let checked = inspect_signing_keys(&path).await.unwrap_err().to_string();
        assert_eq!(checked, error);
    }
    assert_eq!(fs::read(&path).unwrap(), before, "nothing was changed");
    fs::remove_file(folder.path().join("cardea.db.id")).unwrap();

    let store = SqliteStore::open(&path).await.unwrap();
    let taken_over = store.client("known").await.unwrap().unwrap();
    assert!(taken_over.remember_secret);
    assert_eq!(taken_over, record);
    let key = store.dummy_key([1; 32]).await.unwrap();
    assert_eq!((key, store.dummy_key([2; 32]).await.unwrap()), ([1; 32], [1; 32]), "made once");
    store.close().await;
}
