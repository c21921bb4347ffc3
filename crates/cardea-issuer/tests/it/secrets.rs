//! Secrets that need a slow hash. Attacks are judged by counting hashes, not by a clock.

use std::{net::IpAddr, sync::Arc, time::Duration};

use cardea_clock::Timestamp;
use cardea_issuer::{
    AuthorizationServer, AuthorizationServerConfig, ImportedClient, IssuerError, NewClient, Reply,
    RequestContext, Secret, SecretConfig, TokenRequest,
};

use super::{
    counting::CountingStore,
    support::{FORM, Fixture, GRANT, basic, config, header, wrapping_key},
};

const CHOSEN: &str = "a secret that somebody chose";
/// `CHOSEN` under PBKDF2-HMAC-SHA-256 × 1,000, as passlib writes it.
const STORED: &str = "$pbkdf2-sha256$1000$AAECAwQFBgcICQoLDA0ODw$/qlyD4Lx6ndM8I79O1npFIcceOnS081QpczRaUBMupE";

fn settings(secrets: SecretConfig) -> AuthorizationServerConfig {
    AuthorizationServerConfig {
        secrets: SecretConfig { iterations: 10_000, hash_threads: 1, ..secrets },
        ..config()
    }
}

async fn fixture(secrets: SecretConfig) -> Fixture {
    let fixture = Fixture::with(settings(secrets)).await;
    chosen(&fixture, "known").await;
    refresh(&fixture).await;
    fixture
}

async fn chosen(fixture: &Fixture, id: &str) {
    let secret = Some(Secret::chosen(CHOSEN).unwrap());
    fixture.client_of(NewClient { id: Some(id.into()), secret, ..NewClient::default() }).await;
}

/// Lets the server count the registry's secrets.
async fn refresh(fixture: &Fixture) {
    fixture.advance(60);
    fixture.server.maintain(fixture.now()).await.unwrap();
}

async fn attempt(fixture: &Fixture, id: &str, secret: &str, from: &str) -> Reply {
    attempt_at(&fixture.server, fixture.now(), id, secret, from).await
}

async fn attempt_at(
    server: &AuthorizationServer,
    now: Timestamp,
    id: &str,
    secret: &str,
    from: &str,
) -> Reply {
    let basic = basic(id, secret);
    let request = TokenRequest {
        authorization: &[basic.as_bytes()],
        content_type: Some(FORM),
        query_present: false,
        body: GRANT.as_bytes(),
    };
    let source = RequestContext { address: Some(from.parse::<IpAddr>().unwrap()), deadline: None };
    server.token_from(request, source, now).await
}

/// All hashes computed to verify secrets.
fn hashes(fixture: &Fixture) -> u64 {
    fixture.server.secret_stats(fixture.now()).hashes.iter().map(|(_, count)| count).sum()
}

fn rejected(fixture: &Fixture, reason: &str) -> u64 {
    let stats = fixture.server.secret_stats(fixture.now());
    stats.rejected.iter().find(|(known, _)| *known == reason).map_or(0, |(_, count)| *count)
}

#[tokio::test]
async fn unknown_disabled_and_known_clients_read_and_cost_the_same() {
    let fixture = fixture(SecretConfig::default()).await;
    chosen(&fixture, "disabled").await;
    fixture.server.disable_client("disabled", fixture.now()).await.unwrap();
    refresh(&fixture).await;
    let mut answers = Vec::new();
    for (id, secret) in [("known", "wrong"), ("nobody", "wrong"), ("disabled", "wrong"), ("disabled", CHOSEN)]
    {
        let before = hashes(&fixture);
        let reply = attempt(&fixture, id, secret, "192.0.2.1").await;
        assert_eq!(hashes(&fixture) - before, 1, "{id}");
        answers.push((reply.status, reply.body, reply.reason));
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:?}");
    assert_eq!(answers[0].0, 401);
    assert_eq!(attempt(&fixture, "known", CHOSEN, "192.0.2.1").await.status, 200, "the control");
}

#[tokio::test]
async fn guessing_is_refused_by_address_and_never_locks_the_client_out() {
    let fixture = fixture(SecretConfig { failures_max: 3, ..SecretConfig::default() }).await;
    assert_eq!(attempt(&fixture, "known", CHOSEN, "192.0.2.1").await.status, 200);
    for _ in 0..3 {
        assert_eq!(attempt(&fixture, "known", "wrong", "192.0.2.1").await.status, 401);
    }
    let before = hashes(&fixture);
    let refused = attempt(&fixture, "known", "wrong", "192.0.2.1").await;
    assert_eq!((refused.status, refused.reason), (429, Some("failures_exceeded")));
    assert_eq!(header(&refused, "retry-after"), Some("6"));
    assert_eq!(hashes(&fixture), before, "no hash for a refusal");
    assert_eq!(rejected(&fixture, "failures_exceeded"), 1);
    // The cache comes before any budget: the client authenticates even from that address.
    assert_eq!(attempt(&fixture, "known", CHOSEN, "192.0.2.1").await.status, 200);
    // A client that doesn't exist gets the same answers.
    for _ in 0..3 {
        assert_eq!(attempt(&fixture, "nobody", "wrong", "192.0.2.1").await.status, 401);
    }
    let unknown = attempt(&fixture, "nobody", "wrong", "192.0.2.1").await;
    assert_eq!((unknown.status, unknown.body), (refused.status, refused.body));
    // A client that isn't cached authenticates from elsewhere, however many guess at it.
    fixture.advance(61);
    for host in 1..=40 {
        attempt(&fixture, "known", "wrong", &format!("198.51.100.{host}")).await;
    }
    assert_eq!(attempt(&fixture, "known", CHOSEN, "203.0.113.9").await.status, 200);
}

/// Both share one address, and the right secret is no longer cached.
#[tokio::test]
async fn guesses_from_the_same_address_do_not_lock_out_a_known_pair() {
    let fixture = fixture(SecretConfig::default()).await;
    assert_eq!(attempt(&fixture, "known", CHOSEN, "192.0.2.1").await.status, 200);
    for round in 0..3 {
        fixture.advance(3_600);
        let mut guesses = [0; 2];
        for guess in 0..200 {
            let status = attempt(&fixture, "known", &format!("wrong {guess}"), "192.0.2.1").await.status;
            guesses[usize::from(status == 429)] += 1;
        }
        assert_eq!(guesses, [20, 180], "{round}: guesses are refused as ever");
        let before = hashes(&fixture);
        assert_eq!(attempt(&fixture, "known", CHOSEN, "192.0.2.1").await.status, 200, "{round}");
        assert_eq!(hashes(&fixture) - before, 1, "{round}: it was not remembered");
    }
    // From an address where it was never verified, all share one budget.
    for _ in 0..20 {
        attempt(&fixture, "known", "wrong", "192.0.2.2").await;
    }
    fixture.advance(61);
    for _ in 0..20 {
        attempt(&fixture, "known", "wrong", "192.0.2.2").await;
    }
    assert_eq!(attempt(&fixture, "known", CHOSEN, "192.0.2.2").await.status, 429, "the control");
    // The cache lets no client in that lacks permission: the client is read each time.
    for _ in 0..20 {
        attempt(&fixture, "known", "wrong", "192.0.2.1").await;
    }
    fixture.server.disable_client("known", fixture.now()).await.unwrap();
    assert_eq!(attempt(&fixture, "known", CHOSEN, "192.0.2.1").await.status, 401);
    assert_eq!(attempt(&fixture, "known", CHOSEN, "192.0.2.1").await.status, 429, "and is one of many then");
}

#[tokio::test]
async fn a_client_that_is_not_to_be_remembered_has_the_budget_of_its_address() {
    let fixture = fixture(SecretConfig { remember_for: Duration::ZERO, ..SecretConfig::default() }).await;
    assert_eq!(attempt(&fixture, "known", CHOSEN, "192.0.2.1").await.status, 200);
    for _ in 0..20 {
        attempt(&fixture, "known", "wrong", "192.0.2.1").await;
    }
    assert_eq!(attempt(&fixture, "known", CHOSEN, "192.0.2.1").await.status, 429);
}

#[tokio::test]
async fn a_cached_secret_saves_only_the_hash() {
    let fixture = fixture(SecretConfig::default()).await;
    let before = hashes(&fixture);
    for _ in 0..3 {
        assert_eq!(attempt(&fixture, "known", CHOSEN, "192.0.2.1").await.status, 200);
    }
    assert_eq!(hashes(&fixture) - before, 1);
    assert_eq!(fixture.server.secret_stats(fixture.now()).cache_hits, 2);
    assert_eq!(attempt(&fixture, "known", "wrong", "192.0.2.1").await.status, 401, "a wrong one never");
    // Another process disables the client: the next request sees it.
    let other = AuthorizationServer::open(
        settings(SecretConfig::default()),
        Arc::clone(&fixture.store),
        wrapping_key(),
        fixture.now(),
    );
    let other = other.await.unwrap();
    other.disable_client("known", fixture.now()).await.unwrap();
    assert_eq!(attempt(&fixture, "known", CHOSEN, "192.0.2.1").await.status, 401);
    other.enable_client("known", fixture.now()).await.unwrap();
    fixture.advance(2);
    assert_eq!(attempt(&fixture, "known", CHOSEN, "192.0.2.1").await.status, 200);
    other.rotate_secret("known", Duration::ZERO, None, fixture.now()).await.unwrap();
    assert_eq!(attempt(&fixture, "known", CHOSEN, "192.0.2.1").await.status, 401, "rotated away");
}

#[tokio::test]
async fn cached_secrets_of_a_deleted_client_are_refused_for_a_new_one_with_its_id() {
    let fixture = fixture(SecretConfig::default()).await;
    for _ in 0..2 {
        assert_eq!(attempt(&fixture, "known", CHOSEN, "192.0.2.1").await.status, 200);
    }
    assert_eq!(fixture.server.secret_stats(fixture.now()).cache_hits, 1, "the control");
    fixture.server.delete_client("known", fixture.now()).await.unwrap();
    let secret = Some(Secret::chosen("another secret than before").unwrap());
    let new = NewClient { id: Some("known".into()), secret, ..NewClient::default() };
    fixture.client_of(new).await;
    assert_eq!(attempt(&fixture, "known", CHOSEN, "192.0.2.1").await.status, 401);
    assert_eq!(attempt(&fixture, "known", "another secret than before", "192.0.2.1").await.status, 200);
}

#[tokio::test]
async fn remembering_can_be_switched_off_for_a_client() {
    let fixture = fixture(SecretConfig::default()).await;
    let secret = Some(Secret::chosen(CHOSEN).unwrap());
    let new =
        NewClient { id: Some("careful".into()), secret, remember_secret: false, ..NewClient::default() };
    fixture.client_of(new).await;
    let before = hashes(&fixture);
    for _ in 0..2 {
        assert_eq!(attempt(&fixture, "careful", CHOSEN, "192.0.2.1").await.status, 200);
    }
    assert_eq!(hashes(&fixture) - before, 2);
}

#[tokio::test]
async fn late_jobs_get_503_and_are_not_hashed() {
    let fixture = fixture(SecretConfig::default()).await;
    let before = hashes(&fixture);
    let basic = basic("known", CHOSEN);
    let request = TokenRequest {
        authorization: &[basic.as_bytes()],
        content_type: Some(FORM),
        query_present: false,
        body: GRANT.as_bytes(),
    };
    let source = RequestContext { address: None, deadline: Some(fixture.now().mono) };
    let reply = fixture.server.token_from(request, source, fixture.now()).await;
    assert_eq!((reply.status, reply.reason), (503, Some("hash_too_old")));
    assert_eq!(header(&reply, "retry-after"), Some("1"));
    assert_eq!(hashes(&fixture), before);
    assert_eq!(fixture.server.token(request, fixture.now()).await.status, 200, "the control");
}

/// A hash that takes about a second in an optimised build, of an unknown secret.
const SLOW: &str = "$2b$14$abcdefghijklmnopqrstuuabcdefghijklmnopqrstuvwxyz01234";

/// A second server for the same clients with slow verification, a counting store and a queue of two.
async fn narrow(fixture: &Fixture) -> (Arc<AuthorizationServer>, Arc<CountingStore>) {
    let counting = Arc::new(CountingStore::new(Arc::clone(&fixture.store)));
    let (store, clock) = (Arc::clone(&counting), fixture.now());
    let wait =
        SecretConfig { hash_queue_max: 2, hash_wait_max: Duration::from_secs(60), ..Default::default() };
    let server = AuthorizationServer::open(settings(wait), store, wrapping_key(), clock).await.unwrap();
    let slow = ImportedClient {
        client: NewClient { id: Some("slow".into()), ..NewClient::default() },
        secret_hash: SLOW.into(),
        enabled: true,
    };
    // Imported by another server, so that this one has no dummy secret of that cost.
    fixture.server.import_clients(&[slow], &|_| {}, fixture.now()).await.unwrap();
    (Arc::new(server), counting)
}

/// Each was requested once before, so that the formats of their secrets are known.
async fn fill(server: &Arc<AuthorizationServer>, fixture: &Fixture) {
    let guess = |host: u8| {
        let (server, now) = (Arc::clone(server), fixture.now());
        let from = format!("198.51.100.{host}");
        tokio::spawn(async move { attempt_at(&server, now, "slow", "a guess", &from).await });
    };
    let stats = || server.secret_stats(fixture.now());
    let bcrypt = || stats().hashes.iter().find(|(name, _)| *name == "bcrypt").map_or(0, |(_, count)| *count);
    let until = async |reached: &dyn Fn() -> bool| {
        let reached = async {
            while !reached() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), reached).await.unwrap();
    };
    guess(1);
    until(&|| bcrypt() == 1).await;
    guess(2);
    guess(3);
    until(&|| stats().queue_size == 2).await;
}

#[tokio::test]
async fn attempts_beyond_the_queue_are_refused_without_reading_the_store() {
    let fixture = fixture(SecretConfig::default()).await;
    let (server, counting) = narrow(&fixture).await;
    let generated = fixture.client().await;
    let attempt = async |id: &str, secret: &str, from: &str| {
        counting.take_reads();
        let reply = attempt_at(&server, fixture.now(), id, secret, from).await;
        (reply.status, counting.take_reads(), reply)
    };
    // Each was asked for once before, so that it is known what they have.
    for id in ["known", "nobody", generated.client.client_id.as_str()] {
        let (status, reads, _) = attempt(id, "wrong", "192.0.2.1").await;
        assert_eq!((status, reads), (401, 1), "{id}");
    }
    assert_eq!(attempt("known", CHOSEN, "192.0.2.1").await.0, 200, "remembered from now on");
    fill(&server, &fixture).await;

    // Whether the client exists is not visible.
    let (status, reads, refused) = attempt("known", "wrong", "203.0.113.1").await;
    assert_eq!((status, reads, refused.reason), (503, 0, Some("hash_queue_full")));
    assert_eq!(header(&refused, "retry-after"), Some("1"));
    let (_, reads, unknown) = attempt("nobody", "wrong", "203.0.113.2").await;
    assert_eq!((unknown.status, unknown.body, reads), (refused.status, refused.body, 0));
    // A client that needs no hash authenticates.
    let (status, reads, _) = attempt("known", CHOSEN, "203.0.113.3").await;
    assert_eq!((status, reads), (200, 1), "what is remembered");
    let secret = generated.secret.expose();
    let (status, reads, _) = attempt(&generated.client.client_id, secret, "203.0.113.4").await;
    assert_eq!((status, reads), (200, 1), "what was generated");
    // Nothing is known of other clients, nor of any client after a change or after a while.
    let (status, reads, _) = attempt("another", "wrong", "203.0.113.5").await;
    assert_eq!((status, reads), (503, 1));
    server.rotate_secret("known", Duration::ZERO, None, fixture.now()).await.unwrap();
    let (status, reads, _) = attempt("known", CHOSEN, "203.0.113.6").await;
    assert_eq!((status, reads), (401, 1), "its secrets are generated ones now: nothing is hashed");
    let (status, reads, _) = attempt("nobody", "wrong", "203.0.113.7").await;
    assert_eq!((status, reads), (503, 1));
    let (status, reads, _) = attempt("nobody", "wrong", "203.0.113.7").await;
    assert_eq!((status, reads), (503, 0), "the control");
    fixture.advance(10);
    assert_eq!(attempt("nobody", "wrong", "203.0.113.7").await.1, 1);
}

#[tokio::test]
async fn attempts_beyond_the_failure_budget_are_refused_without_reading_the_store() {
    let fixture = fixture(SecretConfig::default()).await;
    let counting = Arc::new(CountingStore::new(Arc::clone(&fixture.store)));
    let few = settings(SecretConfig { failures_max: 2, ..SecretConfig::default() });
    let server = AuthorizationServer::open(few, counting.clone(), wrapping_key(), fixture.now());
    let server = server.await.unwrap();
    for id in ["known", "nobody"] {
        let mut said = Vec::new();
        for _ in 0..3 {
            counting.take_reads();
            let reply = attempt_at(&server, fixture.now(), id, "wrong", "192.0.2.1").await;
            said.push((reply.status, counting.take_reads()));
        }
        assert_eq!(said, [(401, 1), (401, 1), (429, 0)], "{id}");
        let elsewhere = attempt_at(&server, fixture.now(), id, "wrong", "192.0.2.2").await;
        assert_eq!(elsewhere.status, 401, "{id}");
    }
}

#[tokio::test]
async fn an_import_is_whole_or_nothing_and_its_hashes_get_better() {
    let fixture = fixture(SecretConfig::default()).await;
    let client = |id: &str, hash: &str| ImportedClient {
        client: NewClient { id: Some(id.into()), ..NewClient::default() },
        secret_hash: hash.into(),
        enabled: true,
    };
    for (bad, index) in [
        (vec![client("one", STORED), client("two", "$pbkdf2-sha256$0$x$y")], 1),
        (vec![client("one", STORED), client("one", STORED)], 1),
        (vec![client("one", STORED), client("two", STORED), client("known", STORED)], 2),
    ] {
        let error = fixture.server.import_clients(&bad, &|_| {}, fixture.now()).await.unwrap_err();
        assert!(
            matches!(error, IssuerError::ImportRefused(ref refused) if refused[0].index == index),
            "{error}"
        );
        assert!(fixture.server.show_client("one").await.is_err(), "nothing is half imported");
    }
    fixture.server.import_clients(&[client("one", STORED)], &|_| {}, fixture.now()).await.unwrap();
    let secrets = fixture.server.show_client("one").await.unwrap().secrets;
    assert_eq!(
        (secrets[0].format.as_str(), secrets[0].provenance.as_str()),
        ("pbkdf2-sha256;i=1000;l=32", "imported")
    );
    assert_eq!(attempt(&fixture, "one", "wrong", "192.0.2.1").await.status, 401);
    assert_eq!(attempt(&fixture, "one", CHOSEN, "192.0.2.1").await.status, 200);
    // The new hash is computed after the answer.
    let anew = async {
        while fixture.server.show_client("one").await.unwrap().secrets[0].format
            != "pbkdf2-sha512;i=10000;l=32"
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), anew).await.unwrap();
    fixture.advance(61);
    assert_eq!(attempt(&fixture, "one", CHOSEN, "192.0.2.1").await.status, 200, "under the new hash");
}

#[test]
fn a_chosen_secret_is_long_enough_and_printable() {
    for (text, good) in [
        (CHOSEN, true),
        ("fifteen chars..", false),
        ("sixteen chars...", true),
        ("tab\tin a secret....", false),
    ] {
        assert_eq!(Secret::chosen(text).is_ok(), good, "{text:?}");
    }
    assert!(Secret::chosen(&"x".repeat(257)).is_err());
}
