//! The conformance tests of stores. A new database is added by a line at the end.

use std::{sync::Arc, time::Duration};

use cardea_clock::Wall;
use cardea_store::{
    BasicEncoding, ClientRecord, GrantType, IssuerStore, KeyRecord, KeySetRecord, Revocation,
    RevocationState, SecretRecord, SigningAlgorithm, StoreError, sqlite::SqliteStore,
};

const START: Wall = Wall::from_unix_seconds(1_700_000_000);

/// Runs every check on an empty store.
async fn store_conformance(store: Arc<dyn IssuerStore>) {
    clients_come_back_as_they_went_in(&*store).await;
    pages_are_in_byte_order(&*store).await;
    updates_need_the_version_they_were_made_from(&*store).await;
    deletion_leaves_a_tombstone(&*store).await;
    revocations_are_those_since(&*store).await;
    keys_are_replaced_as_a_set(&*store).await;
    of_concurrent_writers_one_wins(&store).await;
}

fn at(seconds: u64) -> Wall {
    START.saturating_add(Duration::from_secs(seconds)).saturating_add(Duration::from_nanos(7))
}

fn secret(id: &str) -> SecretRecord {
    SecretRecord {
        id: id.into(),
        format: "sha256".into(),
        provenance: "generated".into(),
        verifier: (0..=255).collect(),
        created_at: at(1),
        expires_at: None,
    }
}

pub(crate) fn client(id: &str) -> ClientRecord {
    ClientRecord {
        id: id.into(),
        version: 1,
        name: "näme \"'; DROP TABLE clients; --".into(),
        enabled: true,
        grant_types: vec![GrantType::ClientCredentials],
        scopes: vec!["a".into(), "b:c".into()],
        audiences: vec!["https://a.example".into(), "b \" ,c".into()],
        token_lifetime_seconds: Some(60),
        basic_encoding: BasicEncoding::Raw,
        remember_secret: true,
        created_at: at(0),
        updated_at: at(1),
        disabled_at: None,
        tokens_revoked_through: None,
        secrets: vec![
            secret("1"),
            SecretRecord { expires_at: Some(at(9)), created_at: at(2), ..secret("0") },
        ],
    }
}

async fn clients_come_back_as_they_went_in(store: &dyn IssuerStore) {
    assert_eq!(store.client("in").await.unwrap(), None);
    let record = client("in");
    assert_eq!(store.insert_client(&record).await.unwrap(), record);
    assert_eq!(store.client("in").await.unwrap(), Some(record.clone()));
    for other in ["IN", "in ", "i_", "i%", "", "in\0"] {
        assert_eq!(store.client(other).await.unwrap(), None, "{other:?}");
    }
    assert!(matches!(store.insert_client(&client("in")).await, Err(StoreError::AlreadyExists)));
    let bare = ClientRecord {
        secrets: vec![],
        scopes: vec![],
        audiences: vec![],
        grant_types: vec![],
        token_lifetime_seconds: None,
        enabled: false,
        disabled_at: Some(at(3)),
        tokens_revoked_through: Some(at(2)),
        ..client("bare")
    };
    store.insert_client(&bare).await.unwrap();
    assert_eq!(store.client("bare").await.unwrap(), Some(bare));
    assert!(store.delete_client("in", at(0)).await.unwrap());
    assert!(store.delete_client("bare", at(0)).await.unwrap());
}

async fn pages_are_in_byte_order(store: &dyn IssuerStore) {
    for id in ["b", "a", "B", "a!", "~"] {
        store.insert_client(&client(id)).await.unwrap();
    }
    let ids = |after, limit| async move {
        let page = store.clients(after, limit).await.unwrap();
        assert!(page.iter().all(|client| client.secrets.len() == 2));
        page.into_iter().map(|client| client.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(None, 10).await, ["B", "a", "a!", "b", "~"]);
    assert_eq!(ids(None, 2).await, ["B", "a"]);
    assert_eq!(ids(Some("a"), 2).await, ["a!", "b"]);
    assert_eq!(ids(Some("a zzz"), 1).await, ["a!"], "after an id that isn't there");
    assert!(ids(Some("~"), 5).await.is_empty());
    for id in ["b", "a", "B", "a!", "~"] {
        store.delete_client(id, at(0)).await.unwrap();
    }
}

async fn updates_need_the_version_they_were_made_from(store: &dyn IssuerStore) {
    let mut record = client("up");
    store.insert_client(&record).await.unwrap();
    record.name = "changed".into();
    record.secrets = vec![secret("new")];
    store.update_client(&record).await.unwrap();
    assert!(matches!(store.update_client(&record).await, Err(StoreError::Changed)), "from an old version");
    record.version = 2;
    assert_eq!(store.client("up").await.unwrap(), Some(record.clone()));
    record.version = 3;
    assert!(matches!(store.update_client(&record).await, Err(StoreError::Changed)), "from a version to come");
    assert!(matches!(store.update_client(&client("nobody")).await, Err(StoreError::Changed)));
    assert_eq!(store.client("nobody").await.unwrap(), None);
    store.delete_client("up", at(0)).await.unwrap();
}

async fn deletion_leaves_a_tombstone(store: &dyn IssuerStore) {
    store.insert_client(&client("gone")).await.unwrap();
    assert!(store.delete_client("gone", at(50)).await.unwrap());
    assert!(!store.delete_client("gone", at(60)).await.unwrap());
    assert_eq!(store.client("gone").await.unwrap(), None);
    let tombstone = Revocation { client_id: "gone".into(), state: RevocationState::Deleted(at(50)) };
    assert!(store.revocations(at(50)).await.unwrap().contains(&tombstone));

    let again = store.insert_client(&ClientRecord { created_at: at(55), ..client("gone") }).await.unwrap();
    assert_eq!(again.tokens_revoked_through, Some(at(55)));
    assert_eq!(again.version, 2, "what was bound to the client before it is bound to no version of this one");
    assert!(matches!(store.update_client(&client("gone")).await, Err(StoreError::Changed)));
    assert_eq!(store.client("gone").await.unwrap(), Some(again));
    assert!(!store.revocations(Wall::MIN).await.unwrap().contains(&tombstone));
    store.delete_client("gone", at(0)).await.unwrap();
}

async fn revocations_are_those_since(store: &dyn IssuerStore) {
    store.forget_tombstones(Wall::MAX).await.unwrap();
    assert_eq!(store.revocations(Wall::MIN).await.unwrap(), []);
    let disabled = ClientRecord {
        enabled: false,
        disabled_at: Some(at(10)),
        tokens_revoked_through: Some(at(5)),
        ..client("disabled")
    };
    let enabled = ClientRecord { tokens_revoked_through: Some(at(20)), ..client("enabled") };
    for record in [&disabled, &enabled, &client("never"), &client("deleted")] {
        store.insert_client(record).await.unwrap();
    }
    store.delete_client("deleted", at(30)).await.unwrap();
    let since = |wall| async move {
        let mut found = store.revocations(wall).await.unwrap();
        found.sort_by(|one, other| one.client_id.cmp(&other.client_id));
        found.into_iter().map(|revocation| (revocation.client_id, revocation.state)).collect::<Vec<_>>()
    };
    let of = |id: &str, state| (id.to_owned(), state);
    let deleted = of("deleted", RevocationState::Deleted(at(30)));
    let enabled = of("enabled", RevocationState::IssuedThrough(at(20)));
    let disabled = of("disabled", RevocationState::Disabled(at(10)));
    assert_eq!(since(at(0)).await, [deleted.clone(), disabled.clone(), enabled.clone()]);
    assert_eq!(since(at(10)).await, [deleted.clone(), disabled, enabled.clone()]);
    assert_eq!(since(at(11)).await, [deleted.clone(), enabled]);
    store.forget_tombstones(at(30)).await.unwrap();
    assert_eq!(since(at(21)).await, [deleted], "not those at that very time");
    store.forget_tombstones(at(31)).await.unwrap();
    assert_eq!(since(at(21)).await, []);
    for id in ["disabled", "enabled", "never"] {
        store.delete_client(id, at(0)).await.unwrap();
    }
}

fn key(kid: &str) -> KeyRecord {
    KeyRecord {
        kid: kid.into(),
        algorithm: SigningAlgorithm::EdDsa,
        wrapped: (0..=255).rev().collect(),
        wrapping_key_id: "w".into(),
        created_at: at(1),
        activates_at: at(2),
        remove_at: None,
    }
}

async fn keys_are_replaced_as_a_set(store: &dyn IssuerStore) {
    assert_eq!(store.keys().await.unwrap(), KeySetRecord::default());
    assert!(matches!(store.replace_keys(1, &[key("x")]).await, Err(StoreError::Changed)));
    let first = [key("2"), KeyRecord { remove_at: Some(at(9)), ..key("1") }];
    store.replace_keys(0, &first).await.unwrap();
    assert_eq!(
        store.keys().await.unwrap(),
        KeySetRecord { version: 1, keys: first.to_vec() },
        "in their order"
    );
    assert!(matches!(store.replace_keys(0, &[]).await, Err(StoreError::Changed)));
    store.replace_keys(1, &[]).await.unwrap();
    assert_eq!(store.keys().await.unwrap(), KeySetRecord { version: 2, keys: vec![] });
    store.replace_keys(2, &[key("3")]).await.unwrap();
    assert_eq!(store.keys().await.unwrap().keys, [key("3")]);
}

async fn of_concurrent_writers_one_wins(store: &Arc<dyn IssuerStore>) {
    let version = store.keys().await.unwrap().version;
    store.insert_client(&client("many")).await.unwrap();
    let tasks: Vec<_> = (0..16)
        .map(|index| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let record = ClientRecord { name: index.to_string(), ..client("many") };
                let new = ClientRecord { name: index.to_string(), ..client("new") };
                let (updated, replaced, inserted) = tokio::join!(
                    store.update_client(&record),
                    store.replace_keys(version, &[]),
                    store.insert_client(&new),
                );
                [updated.is_ok(), replaced.is_ok(), inserted.is_ok()]
            })
        })
        .collect();
    let mut won = [0; 3];
    for task in tasks {
        for (count, ok) in won.iter_mut().zip(task.await.unwrap()) {
            *count += usize::from(ok);
        }
    }
    assert_eq!(won, [1, 1, 1]);
    assert_eq!(store.client("many").await.unwrap().unwrap().version, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_in_a_file_conforms() {
    let folder = tempfile::tempdir().unwrap();
    store_conformance(Arc::new(SqliteStore::open(folder.path().join("cardea.db")).await.unwrap())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_in_memory_conforms() {
    store_conformance(Arc::new(SqliteStore::in_memory().await.unwrap())).await;
}
