//! A server keeps what it acknowledged: when it is killed at any moment, opened again, or shares its database.

use std::{
    env,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use cardea_clock::{Mono, Timestamp};
use cardea_issuer::{AuthorizationServer, NewClient, TokenRequest};
use cardea_store::{IssuerStore, sqlite::SqliteStore};

use crate::support::{FORM, Fixture, GRANT, START, basic, basic_of, config, wrapping_key};

const DATABASE: &str = "CARDEA_ISSUER_TEST_DATABASE";
const ROUNDS: usize = 6;
const ACKNOWLEDGED_PER_ROUND: usize = 15;

fn now() -> Timestamp {
    Timestamp { wall: START, mono: Mono::MIN }
}

async fn open(path: &Path) -> AuthorizationServer {
    let store: Arc<dyn IssuerStore> = Arc::new(SqliteStore::open(path).await.unwrap());
    AuthorizationServer::open(config(), store, wrapping_key(), now()).await.unwrap()
}

/// The process that is killed, not a test itself. It creates clients, eight at once, and reports each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_creates_clients_until_it_is_killed() {
    let Some(path) = env::var_os(DATABASE) else { return };
    let server = Arc::new(open(Path::new(&path)).await);
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                for _ in 0..1_000_000 {
                    let created = server.create_client(NewClient::default(), now()).await.unwrap();
                    // One write per line, so that lines of several tasks never mix.
                    println!("\nacknowledged {} {}", created.client.client_id, created.secret.expose());
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

fn spawn(path: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "durability::child_that_creates_clients_until_it_is_killed", "--nocapture"])
        .env(DATABASE, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The acknowledgements of the child until there are `enough`; then it is killed. Lines that are still in the pipe
/// count too.
fn kill_after(mut child: Child, enough: usize) -> Vec<(String, String)> {
    let mut acknowledged = Vec::new();
    let mut killed = false;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let Ok(line) = line else { break };
        let words: Vec<&str> = line.split(' ').collect();
        // The last line may be truncated. The checksum shows whether a secret is complete.
        if let ["acknowledged", id, secret] = words[..]
            && cardea_issuer::Secret::is_well_formed(secret)
        {
            acknowledged.push((id.to_owned(), secret.to_owned()));
        }
        if acknowledged.len() >= enough && !killed {
            child.kill().unwrap();
            killed = true;
        }
    }
    child.wait().unwrap();
    assert!(killed, "the child ended by itself");
    acknowledged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acknowledged_client_authenticates_after_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cardea.db");
    let mut acknowledged = Vec::new();
    let mut key_set = None;
    for round in 0..ROUNDS {
        // Two processes write to one file, and are killed one after the other.
        let children = [spawn(&path), spawn(&path)];
        let readers = children.map(|child| {
            tokio::task::spawn_blocking(move || kill_after(child, ACKNOWLEDGED_PER_ROUND + round))
        });
        for reader in readers {
            acknowledged.extend(reader.await.unwrap());
        }
        let server = open(&path).await;
        let current = server.key_set();
        assert_eq!(*key_set.get_or_insert_with(|| current.clone()), current, "the first key is the only one");
        server.close().await;
    }
    assert!(acknowledged.len() >= ROUNDS * 2 * ACKNOWLEDGED_PER_ROUND);
    let server = open(&path).await;
    for (id, secret) in &acknowledged {
        let authorization = basic(id, secret);
        let request = TokenRequest {
            authorization: &[authorization.as_bytes()],
            content_type: Some(FORM),
            query_present: false,
            body: GRANT.as_bytes(),
        };
        assert_eq!(server.token(request, now()).await.status, 200, "{id}");
    }
    server.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_on_one_new_file_both_write_and_both_see_everything() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cardea.db");
    let (one, two) = tokio::join!(SqliteStore::open(&path), SqliteStore::open(&path));
    let (one, two): (Arc<dyn IssuerStore>, Arc<dyn IssuerStore>) =
        (Arc::new(one.unwrap()), Arc::new(two.unwrap()));
    let open = |store: &Arc<dyn IssuerStore>| {
        AuthorizationServer::open(config(), store.clone(), wrapping_key(), now())
    };
    let (first, second) = tokio::join!(open(&one), open(&two));
    let servers = [Arc::new(first.unwrap()), Arc::new(second.unwrap())];
    assert_eq!(servers[0].key_set(), servers[1].key_set(), "they agreed on the first key");
    let tasks: Vec<_> = (0..40)
        .map(|index| {
            let server = Arc::clone(&servers[index % 2]);
            tokio::spawn(async move { server.create_client(NewClient::default(), now()).await.unwrap() })
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
    let server = open(&path).await;
    let client = server.create_client(NewClient::default(), memory.now()).await.unwrap();
    let key_set = server.key_set();
    server.close().await;
    let server = open(&path).await;
    assert_eq!(server.key_set(), key_set);
    let reply = memory.post_as(&server, &[&basic_of(&client)], GRANT).await;
    assert_eq!(reply.status, 200);
    server.close().await;
}
