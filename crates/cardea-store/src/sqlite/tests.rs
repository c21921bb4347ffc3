//! The behaviour of the store when its database fails, at each statement.

use std::{fs, sync::Arc};

use super::*;
use crate::{BasicEncoding, GrantType, SecretRecord, SigningAlgorithm};

const NOW: Wall = Wall::from_unix_seconds(1_900_000_000);

fn client(id: &str) -> ClientRecord {
    ClientRecord {
        id: id.into(),
        version: 1,
        name: id.into(),
        enabled: true,
        grant_types: vec![GrantType::ClientCredentials],
        scopes: vec![],
        audiences: vec![],
        token_lifetime_seconds: None,
        basic_encoding: BasicEncoding::Auto,
        remember_secret: true,
        created_at: NOW,
        updated_at: NOW,
        disabled_at: None,
        tokens_revoked_through: None,
        secrets: vec![SecretRecord {
            id: "1".into(),
            format: "sha256".into(),
            provenance: "generated".into(),
            verifier: vec![7; 32],
            created_at: NOW,
            expires_at: None,
        }],
    }
}

fn key(kid: &str) -> KeyRecord {
    KeyRecord {
        kid: kid.into(),
        algorithm: SigningAlgorithm::EdDsa,
        wrapped: vec![1; 64],
        wrapping_key_id: "w".into(),
        created_at: NOW,
        activates_at: NOW,
        remove_at: None,
    }
}

fn disabled(record: &ClientRecord) -> ClientRecord {
    ClientRecord { enabled: false, disabled_at: Some(NOW), ..record.clone() }
}

/// A store in a file, with the clients `kept` and `gone`, a tombstone, and a key.
struct Fixture {
    folder: tempfile::TempDir,
    store: SqliteStore,
    other: sqlx::SqliteConnection,
}

impl Fixture {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cardea.db");
        let store = SqliteStore::open_waiting(&path, Duration::from_millis(20)).await.unwrap();
        for id in ["kept", "gone", "again"] {
            store.insert_client(&client(id)).await.unwrap();
        }
        store.delete_client("again", NOW).await.unwrap();
        store.replace_keys(0, &[key("1")]).await.unwrap();
        let options = SqliteConnectOptions::new().filename(&path);
        let other = options.connect().await.unwrap();
        Self { folder, store, other }
    }

    /// Runs statements on the file as another process does.
    async fn meddle(&mut self, sql: String) {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut self.other).await.unwrap();
    }

    /// All kinds of changes; each succeeds once.
    async fn change(&self, which: usize) -> Result<(), StoreError> {
        let store = &self.store;
        match which {
            0 => store.insert_client(&client("new")).await.map(drop),
            1 => store.insert_client(&client("again")).await.map(drop),
            2 => store.insert_clients(&[client("many"), client("more")], &|_| {}).await,
            3 => store.update_client(&disabled(&client("kept"))).await,
            4 => store.delete_client("gone", NOW).await.map(drop),
            5 => store.replace_keys(1, &[key("1"), key("2")]).await,
            6 => store.dummy_key([3; 32]).await.map(drop),
            7 => store.forget_tombstones(Wall::MAX).await,
            _ => store.probe().await,
        }
    }

    async fn everything(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        everything(&self.store).await
    }

    /// The database has all changes without its log, as a copy shows.
    async fn assert_is_written_back(&self, copy: &Path) {
        fs::copy(self.folder.path().join("cardea.db"), copy).unwrap();
        let store = SqliteStore::open(copy).await.unwrap();
        assert_eq!(everything(&store).await, everything(&self.store).await, "{}", copy.display());
        store.close().await;
    }
}

async fn everything(store: &SqliteStore) -> impl PartialEq + std::fmt::Debug + use<> {
    let mut revocations = store.revocations(Wall::MIN).await.unwrap();
    revocations.sort_by(|one, other| one.client_id.cmp(&other.client_id));
    (store.clients(None, 100).await.unwrap(), store.keys().await.unwrap(), revocations)
}

/// The statements of a change: the operation and its table.
const STATEMENTS: [(usize, &[&str]); 9] = [
    (0, &["INSERT ON clients", "INSERT ON secrets"]),
    (1, &["DELETE ON deleted_clients", "INSERT ON clients", "INSERT ON secrets"]),
    (2, &["INSERT ON clients", "INSERT ON secrets"]),
    (3, &["UPDATE ON clients", "DELETE ON secrets", "INSERT ON secrets"]),
    (4, &["DELETE ON clients", "INSERT ON deleted_clients"]),
    (5, &["UPDATE ON key_set", "DELETE ON signing_keys", "INSERT ON signing_keys"]),
    // tidy: glossary: databases have this table
    (6, &["INSERT ON stand_in"]),
    (7, &["DELETE ON deleted_clients"]),
    (8, &["UPDATE ON registry"]),
];

/// `RAISE(ROLLBACK)` acts as SQLite does on a full or failing disk: the transaction has ended before anyone rolls it
/// back. `RAISE(FAIL)` leaves it open.
#[tokio::test]
async fn after_an_error_at_any_statement_nothing_is_half_done_and_the_next_change_works() {
    for (change, statements) in STATEMENTS {
        for statement in statements {
            for how in ["ROLLBACK", "FAIL"] {
                let what = format!("change {change}, {statement}, {how}");
                let mut fixture = Fixture::new().await;
                let before = fixture.everything().await;
                let trigger = format!(
                    "CREATE TRIGGER fault BEFORE {statement} BEGIN SELECT RAISE({how}, 'disk full'); END"
                );
                fixture.meddle(trigger).await;
                for _ in 0..3 {
                    let error = fixture.change(change).await.expect_err(&what).to_string();
                    assert!(error.contains("disk full"), "{what}: {error}");
                    assert!(!error.contains("transaction"), "{what}: {error}");
                }
                let health = fixture.store.write_health();
                assert!(health.failing && health.failures == 3, "{what}: {health:?}");
                assert_eq!(fixture.everything().await, before, "{what}");

                fixture.meddle("DROP TRIGGER fault".into()).await;
                fixture.store.probe().await.expect(&what);
                assert!(!fixture.store.write_health().failing, "{what}");
                fixture.change(change).await.expect(&what);
            }
        }
    }
}

/// The commit itself fails and leaves the transaction open.
#[tokio::test]
async fn a_commit_that_fails_is_not_acknowledged_and_the_next_one_works() {
    let mut fixture = Fixture::new().await;
    fixture
        .meddle(
            "CREATE TABLE parent (id INTEGER PRIMARY KEY); \
             CREATE TABLE child (id INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED); \
             CREATE TRIGGER fault AFTER UPDATE ON clients BEGIN INSERT INTO child VALUES (1); END"
                .into(),
        )
        .await;
    let before = fixture.everything().await;
    for _ in 0..2 {
        let refused = fixture.store.update_client(&disabled(&client("kept"))).await;
        assert!(matches!(refused, Err(StoreError::Unconfirmed(_))), "{refused:?}");
    }
    assert_eq!(fixture.everything().await, before);
    assert_eq!(fixture.store.write_health().connections_discarded, 2);
    fixture.store.insert_client(&client("control")).await.unwrap();
    fixture.meddle("DROP TRIGGER fault".into()).await;
    fixture.store.update_client(&disabled(&client("kept"))).await.unwrap();
    assert!(!fixture.store.client("kept").await.unwrap().unwrap().enabled);
}

#[tokio::test]
async fn a_database_that_another_process_holds_is_busy_and_then_works() {
    let mut fixture = Fixture::new().await;
    fixture.meddle("BEGIN IMMEDIATE".into()).await;
    for _ in 0..2 {
        assert!(matches!(fixture.store.probe().await, Err(StoreError::Busy)));
    }
    assert!(fixture.store.write_health().failing);
    assert!(fixture.store.client("kept").await.unwrap().is_some(), "reading goes on");
    fixture.meddle("ROLLBACK".into()).await;
    fixture.change(3).await.unwrap();
    assert!(!fixture.store.write_health().failing);
}

/// A page beyond the limit: a real `SQLITE_FULL` on the writing connection.
#[tokio::test]
async fn a_full_database_accepts_changes_again_once_there_is_space() {
    let fixture = Fixture::new().await;
    let mut write = fixture.store.writer.begin().await.unwrap();
    sqlx::query("PRAGMA max_page_count = 1").execute(write.connection().unwrap()).await.unwrap();
    write.end(Ok(())).await.unwrap();
    let large = ClientRecord { name: "x".repeat(1 << 20), ..client("large") };
    let error = fixture.store.insert_client(&large).await.unwrap_err().to_string();
    assert!(error.contains("full"), "{error}");
    // The limit belonged to the connection, which was closed.
    fixture.store.insert_client(&large).await.unwrap();
    fixture.change(3).await.unwrap();
}

#[tokio::test]
async fn a_refusal_is_no_failure() {
    let fixture = Fixture::new().await;
    let failures = fixture.store.write_health();
    assert!(matches!(fixture.store.insert_client(&client("kept")).await, Err(StoreError::AlreadyExists)));
    let old = ClientRecord { version: 9, ..client("kept") };
    assert!(matches!(fixture.store.update_client(&old).await, Err(StoreError::Changed)));
    let many = [client("one"), client("kept"), client("two"), client("gone")];
    let refused = fixture.store.insert_clients(&many, &|_| {}).await;
    assert!(matches!(refused, Err(StoreError::AlreadyExistAt { indices }) if indices == [1, 3]));
    assert_eq!(fixture.store.write_health(), failures);
    assert_eq!(fixture.store.client("one").await.unwrap(), None);
}

#[tokio::test]
async fn a_change_that_is_given_up_is_undone() {
    let fixture = Fixture::new().await;
    let before = fixture.everything().await;
    let mut write = fixture.store.writer.begin().await.unwrap();
    changes::insert_client(write.connection().unwrap(), &client("new")).await.unwrap();
    drop(write);
    fixture.change(3).await.unwrap();
    assert_eq!(fixture.store.client("new").await.unwrap(), None);
    assert_ne!(fixture.everything().await, before);
}

#[tokio::test]
async fn no_change_to_a_removed_database_is_acknowledged() {
    let mut fixture = Fixture::new().await;
    let path = fixture.folder.path().join("cardea.db");
    let aside = fixture.folder.path().join("aside.db");
    fs::rename(&path, &aside).unwrap();
    for _ in 0..2 {
        assert!(matches!(fixture.change(8).await, Err(StoreError::Replaced { .. })), "removed");
    }
    fs::write(&path, b"").unwrap();
    assert!(matches!(fixture.change(8).await, Err(StoreError::Replaced { .. })), "replaced");
    assert!(fixture.store.write_health().failing);
    assert_eq!(fs::read(&path).unwrap(), b"", "what is there now is left alone");
    fs::rename(&aside, &path).unwrap();
    fixture.change(3).await.unwrap();
    fixture.meddle("SELECT 1".into()).await;
}

/// Commits are in the log until a checkpoint, so a log without a name is lost with the process.
#[tokio::test]
async fn no_change_is_acknowledged_or_made_without_the_log() {
    for side_file in ["cardea.db-wal", "cardea.db-shm"] {
        let fixture = Fixture::new().await;
        let path = fixture.folder.path().join(side_file);
        let aside = fixture.folder.path().join("aside");
        let before = fixture.everything().await;
        fs::rename(&path, &aside).unwrap();
        for present in [false, true] {
            if present {
                fs::write(&path, b"").unwrap();
            }
            for change in [3, 8] {
                let refused = fixture.change(change).await;
                let Err(StoreError::Replaced { path: shown }) = &refused else {
                    panic!("{side_file}, present: {present}, change {change}: {refused:?}");
                };
                assert_eq!(*shown, path.display().to_string());
            }
        }
        assert!(fixture.store.write_health().failing);
        assert_eq!(fixture.everything().await, before, "{side_file}");
        fs::rename(&aside, &path).unwrap();
        fixture.change(3).await.unwrap();
        assert!(!fixture.store.write_health().failing);
    }
}

/// A process that is killed leaves the log behind, and who copies the database or clears up may not know of it.
#[tokio::test]
async fn the_database_alone_has_every_acknowledged_change() {
    let fixture = Fixture::new().await;
    let copies = tempfile::tempdir().unwrap();
    for (change, _) in STATEMENTS {
        fixture.change(change).await.unwrap();
        let copy = copies.path().join(format!("{change}.db"));
        fixture.assert_is_written_back(&copy).await;
    }
}

/// One who reads delays what is written back, and no change.
#[tokio::test]
async fn a_reader_that_does_not_end_delays_no_change() {
    let fixture = Fixture::new().await;
    let path = fixture.folder.path().join("cardea.db");
    let mut reader = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT * FROM clients").execute(&mut reader).await.unwrap();
    fixture.change(3).await.unwrap();
    assert!(!fixture.store.write_health().failing);
    reader.close().await.unwrap();
    fixture.change(4).await.unwrap();
    fixture.assert_is_written_back(&fixture.folder.path().join("copy.db")).await;
}

/// SQLite removes the log with the last connection.
#[tokio::test]
async fn the_log_stays_when_every_connection_that_reads_or_writes_was_closed() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("cardea.db")).await.unwrap();
    store.insert_client(&client("kept")).await.unwrap();
    drop(store.writer.begin().await.unwrap());
    let mut readers = Vec::new();
    for _ in 0..READERS {
        readers.push(store.reader.0.acquire().await.unwrap());
    }
    for reader in readers {
        reader.close().await.unwrap();
    }
    for change in [disabled(&client("kept")), ClientRecord { version: 2, ..client("kept") }] {
        store.update_client(&change).await.unwrap();
    }
    store.close().await;
    assert!(!folder.path().join("cardea.db-wal").exists(), "the log is written back at the end");
}

#[tokio::test]
async fn a_lost_database_is_distinguished_from_a_first_start() {
    for (what, lose) in [
        ("missing", (|path| fs::remove_file(path).unwrap()) as fn(&Path)),
        ("empty", |path| fs::write(path, b"").unwrap()),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cardea.db");
        let store = SqliteStore::open(&path).await.unwrap();
        store.insert_client(&client("kept")).await.unwrap();
        store.close().await;
        let backup = fs::read(&path).unwrap();
        lose(&path);

        let error = SqliteStore::open(&path).await.unwrap_err();
        assert!(matches!(error, StoreError::Lost { .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains(what) && message.contains("backup"), "{message}");
        assert!(fs::metadata(&path).map_or(true, |found| found.len() == 0), "nothing was made");

        // The remedies: a backup, or a confirmation that a new database is wanted.
        fs::write(&path, &backup).unwrap();
        let store = SqliteStore::open(&path).await.unwrap();
        assert!(store.client("kept").await.unwrap().is_some());
        store.close().await;
        lose(&path);
        fs::remove_file(folder.path().join("cardea.db.id")).unwrap();
        let store = SqliteStore::open(&path).await.unwrap();
        assert_eq!(store.clients(None, 10).await.unwrap(), []);
        store.close().await;
    }
}

#[tokio::test]
async fn a_lost_database_with_a_log_beside_it_is_noticed_without_a_marker() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cardea.db");
    fs::write(folder.path().join("cardea.db-wal"), b"frames").unwrap();
    assert!(matches!(SqliteStore::open(&path).await, Err(StoreError::Lost { .. })));
    assert!(!path.exists());
    // Empty, as a clean shutdown may leave it.
    fs::write(folder.path().join("cardea.db-wal"), b"").unwrap();
    SqliteStore::open(&path).await.unwrap().close().await;
}

#[tokio::test]
async fn a_missing_marker_is_created_and_a_wrong_one_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cardea.db");
    let marker = folder.path().join("cardea.db.id");
    SqliteStore::open(&path).await.unwrap().close().await;
    let written = fs::read_to_string(&marker).unwrap();
    for lost in ["", "0123"] {
        fs::write(&marker, lost).unwrap();
        SqliteStore::open(&path).await.unwrap().close().await;
        assert_eq!(fs::read_to_string(&marker).unwrap(), written);
    }
    fs::write(&marker, "0".repeat(32)).unwrap();
    let error = SqliteStore::open(&path).await.unwrap_err().to_string();
    assert!(error.contains("another database") && error.contains("cardea.db.id"), "{error}");
}

#[tokio::test]
async fn connections_flush_every_commit_and_readers_only_read() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("cardea.db")).await.unwrap();
    // 2 is FULL: an acknowledged commit survives a loss of power.
    for (pragma, expected) in [("PRAGMA synchronous", 2_i64), ("PRAGMA foreign_keys", 1)] {
        assert_eq!(store.reader.scalar(sqlx::query_scalar(pragma)).await.unwrap(), expected);
        let mut write = store.writer.begin().await.unwrap();
        let value: i64 = sqlx::query_scalar(pragma).fetch_one(write.connection().unwrap()).await.unwrap();
        assert_eq!(value, expected);
    }
    let mut write = store.writer.begin().await.unwrap();
    let journal: String =
        sqlx::query_scalar("PRAGMA journal_mode").fetch_one(write.connection().unwrap()).await.unwrap();
    assert_eq!(journal, "wal");
    drop(write);
    assert!(store.forget_tombstones(NOW).await.is_ok());
    assert!(store.reader.all(sqlx::query("DELETE FROM deleted_clients")).await.is_err());
    assert_eq!(store.clients(None, 1).await.unwrap(), [], "and an error leaves readers that work");
    store.close().await;
    let closed: Arc<dyn IssuerStore> = Arc::new(store);
    assert!(closed.probe().await.is_err());
}
