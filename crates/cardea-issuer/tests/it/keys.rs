//! Signing keys over time: publication, activation, overlap, removal; encryption and a change of the wrapping key.

use std::{sync::Arc, time::Duration};

use cardea_issuer::{
    AuthorizationServer, AuthorizationServerConfig, IssuerError, Key, RotateWhen, WrappingKey,
    WrappingKeyError,
};
use cardea_store::SigningAlgorithm;
use serde_json::Value;

use crate::support::{Fixture, GRANT, START, basic_of, config, json, verify, wrapping_key};

const HOUR: u64 = 3_600;

fn kids(server: &AuthorizationServer) -> Vec<String> {
    let key_set: Value = serde_json::from_str(&server.key_set()).unwrap();
    key_set["keys"].as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_year_of_rotation_leaves_no_token_without_its_key() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    let mut published_since: Vec<(String, u64)> = vec![(kids(&fixture.server)[0].clone(), 0)];
    let mut signers = vec![];
    let mut issued: Vec<(String, u64)> = vec![];
    for hour in 0..365 * 24 {
        fixture.server.maintain(fixture.now()).await.unwrap();
        let now = kids(&fixture.server);
        assert!(now.len() <= 2);
        for kid in &now {
            if !published_since.iter().any(|(known, _)| known == kid) {
                published_since.push((kid.clone(), hour));
            }
        }
        if hour % 6 == 0 {
            let reply = fixture.post(&[&basic_of(&client)], GRANT).await;
            let token = json(&reply)["access_token"].as_str().unwrap().to_owned();
            let signer = fixture.verified(&reply).header["kid"].as_str().unwrap().to_owned();
            let since = published_since.iter().find(|(kid, _)| *kid == signer).unwrap().1;
            assert!(since == 0 || since + 24 <= hour, "published a day before it signs");
            if signers.last() != Some(&signer) {
                signers.push(signer);
            }
            issued.push((token, hour));
        }
        issued.retain(|(_, at)| at + 24 > hour);
        let key_set: Value = serde_json::from_str(&fixture.server.key_set()).unwrap();
        assert!(issued.iter().all(|(token, _)| verify(token, &key_set).is_some()), "hour {hour}");
        fixture.advance(HOUR);
    }
    assert_eq!(signers.len(), 13, "every thirty days another one, and none comes back");
}

#[tokio::test]
async fn maintenance_with_nothing_due_changes_nothing() {
    let fixture = Fixture::new().await;
    let before = fixture.server.key_set();
    fixture.advance(HOUR);
    fixture.server.maintain(fixture.now()).await.unwrap();
    assert!(Arc::ptr_eq(&before, &fixture.server.key_set()));
}

#[tokio::test]
async fn a_shorter_lead_does_not_cut_the_time_for_which_the_key_set_was_cached() {
    let with = |ahead, max_age: Option<u64>| AuthorizationServerConfig {
        key_publish_ahead: Duration::from_secs(ahead),
        key_set_max_age: max_age.map(Duration::from_secs),
        ..config()
    };
    // A verifier that fetched the set just before the change may cache it for four hours.
    let fixture = Fixture::with(with(24 * HOUR, Some(4 * HOUR))).await;
    let shorter = with(60, None);
    fixture.server.reconfigure(shorter.clone(), fixture.now().wall).unwrap();
    assert_eq!(fixture.server.key_set_max_age(), Duration::from_secs(30));
    let changed_at = fixture.now().wall.unix_seconds();
    let takes_over = |key: &Key| u64::try_from(key.activates_at - changed_at).unwrap();
    // A reload meanwhile doesn't change these copies.
    fixture.advance(30 * 60);
    fixture.server.reconfigure(shorter.clone(), fixture.now().wall).unwrap();
    let keys = fixture.server.rotate_key(RotateWhen::Scheduled, fixture.now()).await.unwrap();
    assert_eq!(takes_over(&keys[1]), 8 * HOUR);

    // The same for a key that is created by schedule.
    let fixture = Fixture::with(with(24 * HOUR, Some(4 * HOUR))).await;
    let changed_at = fixture.now().wall.unix_seconds();
    let takes_over = |key: &Key| u64::try_from(key.activates_at - changed_at).unwrap();
    let other = AuthorizationServerConfig { algorithm: SigningAlgorithm::EdDsa, ..shorter };
    fixture.server.reconfigure(other, fixture.now().wall).unwrap();
    fixture.server.maintain(fixture.now()).await.unwrap().writes.unwrap();
    let keys = fixture.server.list_keys(fixture.now()).await.unwrap();
    assert_eq!(takes_over(&keys[1]), 8 * HOUR);

    // Once those copies have expired, only the new lead counts.
    let fixture = Fixture::with(with(24 * HOUR, Some(4 * HOUR))).await;
    let changed_at = fixture.now().wall.unix_seconds();
    let takes_over = |key: &Key| u64::try_from(key.activates_at - changed_at).unwrap();
    fixture.server.reconfigure(with(60, None), fixture.now().wall).unwrap();
    fixture.advance(8 * HOUR);
    let keys = fixture.server.rotate_key(RotateWhen::Scheduled, fixture.now()).await.unwrap();
    assert_eq!(takes_over(&keys[1]), 8 * HOUR + 60);
}

/// As above, where the configuration changes with a restart: the keys tell how far ahead they were published.
#[tokio::test]
async fn a_restart_with_a_shorter_lead_does_not_cut_the_time_for_which_the_key_set_was_cached() {
    let with = |ahead, max_age: Option<u64>| AuthorizationServerConfig {
        key_publish_ahead: Duration::from_secs(ahead),
        key_set_max_age: max_age.map(Duration::from_secs),
        ..config()
    };
    let fixture = Fixture::with(with(24 * HOUR, Some(4 * HOUR))).await;
    fixture.server.rotate_key(RotateWhen::Scheduled, fixture.now()).await.unwrap();
    fixture.run_for(24 * HOUR).await;
    let keys = fixture.server.list_keys(fixture.now()).await.unwrap();
    assert!(keys[1].signing, "the control");
    let now = fixture.now();
    let restarted = AuthorizationServer::open(with(60, None), fixture.store.clone(), wrapping_key(), now);
    let keys = restarted.await.unwrap().rotate_key(RotateWhen::Scheduled, now).await.unwrap();
    let waits = u64::try_from(keys.last().unwrap().activates_at - now.wall.unix_seconds()).unwrap();
    assert!((8 * HOUR..=24 * HOUR).contains(&waits), "{waits} s");
}

#[tokio::test]
async fn a_rotation_at_once_signs_at_once_and_a_scheduled_one_later() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    let first = fixture.token(&client).await.header["kid"].clone();
    let keys = fixture.server.rotate_key(RotateWhen::Scheduled, fixture.now()).await.unwrap();
    assert_eq!(keys.iter().map(|key| key.signing).collect::<Vec<_>>(), [true, false]);
    assert_eq!(fixture.token(&client).await.header["kid"], first);
    let again = fixture.server.rotate_key(RotateWhen::Scheduled, fixture.now()).await.unwrap();
    assert_eq!(again, keys, "one is on its way already");

    let now = fixture.server.rotate_key(RotateWhen::Now, fixture.now()).await.unwrap();
    assert_eq!(now.iter().map(|key| key.signing).collect::<Vec<_>>(), [false, true]);
    assert_eq!(now[1].kid, keys[1].kid, "verifiers know it already");
    assert_eq!(fixture.token(&client).await.header["kid"], now[1].kid);
    assert_eq!(kids(&fixture.server), [first.as_str().unwrap(), now[1].kid.as_str()]);
    let maintained = fixture.server.maintain(fixture.now()).await.unwrap();
    maintained.writes.unwrap();
    assert_eq!(fixture.token(&client).await.header["kid"], now[1].kid, "and nobody withholds it");
    assert_eq!(fixture.server.list_keys(fixture.now()).await.unwrap(), now);
    // The store has the same keys.
    let reopened = AuthorizationServer::open(config(), fixture.store.clone(), wrapping_key(), fixture.now());
    assert_eq!(kids(&reopened.await.unwrap()), kids(&fixture.server));
    // If none is published ahead, one is created.
    let again = fixture.server.rotate_key(RotateWhen::Now, fixture.now()).await.unwrap();
    assert_eq!(again.iter().map(|key| key.signing).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!(fixture.token(&client).await.header["kid"], again[2].kid);
}

impl Fixture {
    /// Advances the time while the keys are published.
    async fn run_for(&self, seconds: u64) {
        for _ in 0..seconds.div_ceil(HOUR) {
            self.server.maintain(self.now()).await.unwrap().writes.unwrap();
            self.advance(HOUR);
        }
        self.server.maintain(self.now()).await.unwrap().writes.unwrap();
    }

    async fn reopened(self) -> Self {
        let server =
            AuthorizationServer::open(config(), self.store.clone(), wrapping_key(), self.now()).await;
        Self { server: Arc::new(server.unwrap()), ..self }
    }
}

#[tokio::test]
async fn a_key_signs_no_earlier_than_it_was_published_for_long_enough() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    let first = fixture.token(&client).await.header["kid"].clone();
    fixture.server.rotate_key(RotateWhen::Scheduled, fixture.now()).await.unwrap();
    let signer = async |fixture: &Fixture| fixture.token(&client).await.header["kid"].clone();

    // Published for an hour, then no process runs for two days.
    fixture.run_for(HOUR).await;
    fixture.advance(48 * HOUR);
    let fixture = fixture.reopened().await;
    assert_eq!(signer(&fixture).await, first, "at once");
    fixture.run_for(22 * HOUR).await;
    assert_eq!(signer(&fixture).await, first, "after 23 hours in all");
    fixture.run_for(2 * HOUR).await;
    let second = signer(&fixture).await;
    assert_ne!(second, first);
    assert_eq!(kids(&fixture.server).len(), 2, "the old one is published on");
    // A key that has signed keeps signing, however long no process ran.
    fixture.advance(20 * 24 * HOUR);
    let fixture = fixture.reopened().await;
    assert_eq!(signer(&fixture).await, second);
    fixture.run_for(HOUR).await;
    assert_eq!(signer(&fixture).await, second);
}

#[tokio::test]
async fn a_clock_that_steps_ahead_lets_no_key_sign_early() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    let first = fixture.token(&client).await.header["kid"].clone();
    fixture.server.rotate_key(RotateWhen::Scheduled, fixture.now()).await.unwrap();
    fixture.run_for(HOUR).await;
    fixture.advance(30 * HOUR);
    assert_eq!(fixture.token(&client).await.header["kid"], first, "before anybody looked");
    fixture.run_for(2 * HOUR).await;
    assert_eq!(fixture.token(&client).await.header["kid"], first, "and after");
    fixture.run_for(24 * HOUR).await;
    assert_ne!(fixture.token(&client).await.header["kid"], first);
}

#[tokio::test]
async fn a_key_set_is_cached_for_no_longer_than_half_of_what_a_key_is_published_ahead() {
    for (ahead, age, expected) in
        [(86_400, None, 300), (60, None, 30), (86_400, Some(7), 7), (60, Some(30), 30)]
    {
        let seconds = std::time::Duration::from_secs;
        let config = cardea_issuer::AuthorizationServerConfig {
            key_publish_ahead: seconds(ahead),
            key_set_max_age: age.map(seconds),
            ..config()
        };
        assert_eq!(Fixture::with(config).await.server.key_set_max_age(), seconds(expected));
    }
}

#[tokio::test]
async fn a_shorter_lead_after_a_restart_does_not_cut_the_time_for_which_the_key_set_was_cached() {
    // By default a verifier that fetched the set just before the restart may cache it for five minutes.
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    let first = fixture.token(&client).await.header["kid"].clone();
    let shorter = AuthorizationServerConfig { key_publish_ahead: Duration::from_secs(60), ..config() };
    let opened = AuthorizationServer::open(shorter, fixture.store.clone(), wrapping_key(), fixture.now());
    let fixture = Fixture { server: Arc::new(opened.await.unwrap()), ..fixture };
    fixture.advance(30);
    fixture.server.rotate_key(RotateWhen::Scheduled, fixture.now()).await.unwrap();
    for _ in 0..114 {
        fixture.advance(5);
        fixture.server.maintain(fixture.now()).await.unwrap();
        let seconds = fixture.now().wall.saturating_since(START).as_secs();
        let signer = &fixture.token(&client).await.header["kid"];
        assert_eq!(*signer == first, seconds < 600, "{seconds}");
    }
    // The control: the lead is what is configured once no such copy is left.
    let second = fixture.token(&client).await.header["kid"].clone();
    assert_ne!(second, first);
    fixture.server.rotate_key(RotateWhen::Scheduled, fixture.now()).await.unwrap();
    for seconds in (5..=60).step_by(5) {
        fixture.advance(5);
        fixture.server.maintain(fixture.now()).await.unwrap();
        let signer = &fixture.token(&client).await.header["kid"];
        assert_eq!(*signer == second, seconds < 60, "{seconds}");
    }
}

#[tokio::test]
async fn the_number_of_keys_is_bounded() {
    let fixture = Fixture::new().await;
    for _ in 1..16 {
        fixture.server.rotate_key(RotateWhen::Now, fixture.now()).await.unwrap();
    }
    let refused = fixture.server.rotate_key(RotateWhen::Now, fixture.now()).await;
    assert!(matches!(refused, Err(IssuerError::TooManyKeys { limit: 16 })));
    fixture.advance(25 * HOUR);
    fixture.server.maintain(fixture.now()).await.unwrap();
    assert_eq!(kids(&fixture.server).len(), 1);
}

#[tokio::test]
async fn a_changed_algorithm_takes_over_after_it_was_published() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    let mut changed = config();
    changed.algorithm = SigningAlgorithm::EdDsa;
    let server = AuthorizationServer::open(changed, fixture.store.clone(), wrapping_key(), fixture.now());
    let changed = Fixture { server: Arc::new(server.await.unwrap()), ..fixture };
    assert_eq!(changed.token(&client).await.header["alg"], "ES256");
    changed.run_for(24 * HOUR).await;
    assert_eq!(changed.token(&client).await.header["alg"], "EdDSA");
    assert_eq!(kids(&changed.server).len(), 2);
}

#[tokio::test]
async fn another_wrapping_key_is_refused_and_nothing_is_overwritten() {
    let fixture = Fixture::new().await;
    let before = fixture.store.keys().await.unwrap();
    let other = WrappingKey::from_bytes(&[1; 32]);
    let refused =
        AuthorizationServer::open(config(), fixture.store.clone(), other.clone(), fixture.now()).await;
    match refused.map(|_| ()) {
        Err(IssuerError::WrappingKey(WrappingKeyError::Mismatch { stored, configured, .. })) => {
            assert_eq!((stored.as_str(), configured.as_str()), (wrapping_key().id(), other.id()));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(fixture.store.keys().await.unwrap(), before);
    AuthorizationServer::open(config(), fixture.store.clone(), wrapping_key(), fixture.now()).await.unwrap();
}

#[tokio::test]
async fn a_damaged_key_is_refused_and_nothing_is_overwritten() {
    let fixture = Fixture::new().await;
    let mut set = fixture.store.keys().await.unwrap();
    set.keys[0].wrapped[20] ^= 1;
    fixture.store.replace_keys(set.version, &set.keys).await.unwrap();
    let refused =
        AuthorizationServer::open(config(), fixture.store.clone(), wrapping_key(), fixture.now()).await;
    assert!(matches!(refused, Err(IssuerError::WrappingKey(WrappingKeyError::Damaged { .. }))));
    assert_eq!(fixture.store.keys().await.unwrap().keys, set.keys);
    // The running server keeps its keys.
    assert!(fixture.server.maintain(fixture.now()).await.is_err());
    let client = fixture.client().await;
    fixture.token(&client).await;
}

#[tokio::test]
async fn keys_wrapped_anew_open_with_the_new_wrapping_key_only() {
    let fixture = Fixture::new().await;
    fixture.server.rotate_key(RotateWhen::Scheduled, fixture.now()).await.unwrap();
    let published = kids(&fixture.server);
    let new = WrappingKey::from_bytes(&[3; 32]);
    fixture.server.rewrap(new.clone()).await.unwrap();
    assert_eq!(kids(&fixture.server), published);
    fixture.server.maintain(fixture.now()).await.unwrap();
    let client = fixture.client().await;
    fixture.token(&client).await;
    let open = |key| AuthorizationServer::open(config(), fixture.store.clone(), key, fixture.now());
    assert!(matches!(open(wrapping_key()).await, Err(IssuerError::WrappingKey(_))));
    assert_eq!(kids(&open(new).await.unwrap()), published);
}

#[tokio::test]
async fn two_servers_on_one_store_agree_on_their_keys() {
    let fixture = Fixture::new().await;
    let (one, two) = tokio::join!(
        AuthorizationServer::open(config(), fixture.store.clone(), wrapping_key(), fixture.now()),
        AuthorizationServer::open(config(), fixture.store.clone(), wrapping_key(), fixture.now()),
    );
    let (one, two) = (one.unwrap(), two.unwrap());
    fixture.advance(29 * 24 * HOUR);
    let (first, second) = tokio::join!(one.maintain(fixture.now()), two.maintain(fixture.now()));
    first.unwrap();
    second.unwrap();
    assert_eq!(kids(&one), kids(&two));
    assert_eq!(kids(&one).len(), 2, "one of them made the successor");
}

#[tokio::test]
async fn tokens_are_the_same_whichever_server_made_them() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    let other = AuthorizationServer::open(config(), fixture.store.clone(), wrapping_key(), fixture.now())
        .await
        .unwrap();
    let reply = fixture.post_as(&other, &[&basic_of(&client)], GRANT).await;
    fixture.verified(&reply);
}
