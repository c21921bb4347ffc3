//! The SQLite file: whose it is, who may read it, what is wrong with it, and who else writes to it.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc};

use cardea_clock::Timestamp;
use cardea_issuer::{AuthorizationServer, NewClient, Store, StoreError, sqlite::SqliteStore};
use sqlx::{ConnectOptions as _, Connection as _, sqlite::SqliteConnectOptions};

use crate::support::{Fixture, START, config, wrapping_key};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Runs statements on the file behind the store's back.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_on_one_new_file_both_write_and_both_see_everything() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cardea.db");
    let (one, two) = tokio::join!(SqliteStore::open(&path), SqliteStore::open(&path));
    let (one, two): (Arc<dyn Store>, Arc<dyn Store>) = (Arc::new(one.unwrap()), Arc::new(two.unwrap()));
    let now = Timestamp { wall: START, mono: cardea_clock::Mono::MIN };
    let open =
        |store: &Arc<dyn Store>| AuthorizationServer::open(config(), store.clone(), wrapping_key(), now);
    let (first, second) = tokio::join!(open(&one), open(&two));
    let servers = [Arc::new(first.unwrap()), Arc::new(second.unwrap())];
    assert_eq!(servers[0].key_set(), servers[1].key_set(), "they agreed on the first key");
    let tasks: Vec<_> = (0..40)
        .map(|index| {
            let server = Arc::clone(&servers[index % 2]);
            tokio::spawn(async move { server.create_client(NewClient::default(), now).await.unwrap() })
        })
        .collect();
    for task in tasks {
        let id = task.await.unwrap().client.client_id;
        for server in &servers {
            server.show_client(&id).await.unwrap();
        }
    }
    one.close().await;
    two.close().await;
}

#[tokio::test]
async fn a_server_opens_again_with_all_that_it_had() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cardea.db");
    let memory = Fixture::new().await;
    let open = || async {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path).await.unwrap());
        AuthorizationServer::open(config(), store, wrapping_key(), memory.now()).await.unwrap()
    };
    let server = open().await;
    let client = server.create_client(NewClient::default(), memory.now()).await.unwrap();
    let key_set = server.key_set();
    server.close().await;
    let server = open().await;
    assert_eq!(server.key_set(), key_set);
    let reply = memory.post_as(&server, &[&crate::support::basic_of(&client)], crate::support::GRANT).await;
    assert_eq!(reply.status, 200);
    server.close().await;
}

#[tokio::test]
async fn a_database_of_the_first_schema_is_taken_over_with_its_clients() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cardea.db");
    let fixture = Fixture::new().await;
    let known = fixture.client().await.client.client_id;
    let record = fixture.store.client(&known).await.unwrap().unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    store.insert_client(&record).await.unwrap();
    store.close().await;
    // What later schemas added goes again.
    let downgrade = "ALTER TABLE clients DROP COLUMN remember_secret; DROP TABLE stand_in; \
                     DROP TABLE acme_accounts; DROP TABLE acme_certificates; DROP TABLE acme_challenges; \
                     DROP TABLE acme_state; DROP TABLE registry; ALTER TABLE deleted_clients DROP COLUMN version; \
                     UPDATE schema_version SET version = 1";
    meddle(&path, downgrade).await;

    let store = SqliteStore::open(&path).await.unwrap();
    let taken_over = store.client(&known).await.unwrap().unwrap();
    assert!(taken_over.remember_secret);
    assert_eq!(taken_over, record);
    let key = store.stand_in_key([1; 32]).await.unwrap();
    assert_eq!((key, store.stand_in_key([2; 32]).await.unwrap()), ([1; 32], [1; 32]), "made once");
    store.close().await;
}
