//! Fetched keys: refresh, rotation, delays, failures, removal.

use std::sync::Arc;
use std::time::Duration;

use cardea_identity::{Algorithm, Authenticator, FetchError, IssuerConfig, KeySource, TokenError};
use serde_json::json;

use crate::support::{ISSUER, NOW, Network, Signer, at, at_once, claims, config, jwks};

const KEYS: &str = "https://id.example/keys";
const METADATA: &str = "https://id.example/.well-known/openid-configuration";

/// A token that is valid `seconds` after [`NOW`].
fn token(signer: &Signer, seconds: i64) -> String {
    let mut claims = claims();
    claims["iat"] = json!(NOW + seconds);
    claims["exp"] = json!(NOW + seconds + 600);
    signer.token(&claims)
}

struct Site {
    network: Arc<Network>,
    authenticator: Arc<Authenticator>,
    signer: Signer,
}

impl Site {
    fn new() -> Self {
        Self::with(KeySource::Url(KEYS.parse().unwrap()), |_| {})
    }

    fn with(keys: KeySource, change: impl FnOnce(&mut IssuerConfig)) -> Self {
        let network = Arc::new(Network::default());
        let signer = Signer::new("key", Algorithm::Es256);
        network.answer(KEYS, Ok(signer.jwks()));
        let mut config = config(keys);
        change(&mut config);
        let authenticator = Authenticator::new(vec![config], None, network.clone()).unwrap();
        Self { network, authenticator: Arc::new(authenticator), signer }
    }

    async fn verify(&self, signer: &Signer, seconds: i64) -> Result<(), TokenError> {
        let token = token(signer, seconds);
        self.authenticator.verify(token.as_bytes(), at(NOW + seconds)).await.map(|_| ())
    }

    async fn maintain(&self, seconds: i64) {
        self.authenticator.maintain(at(NOW + seconds)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_token_waits_for_the_keys_and_the_next_one_does_not() {
    let site = Site::new();
    assert!(site.authenticator.refresh_due(at(NOW)));
    assert_eq!(site.verify(&site.signer, 0).await, Ok(()));
    let again = token(&site.signer, 1);
    assert!(at_once(site.authenticator.verify(again.as_bytes(), at(NOW + 1))).is_ok());
    assert_eq!(site.network.calls(), 1);
    assert!(!site.authenticator.refresh_due(at(NOW + 1)));
}

#[tokio::test(start_paused = true)]
async fn a_crowd_before_the_first_keys_buys_one_fetch() {
    let site = Arc::new(Site::new());
    let gate = site.network.hold();
    let crowd: Vec<_> = (0..100)
        .map(|_| {
            let site = Arc::clone(&site);
            tokio::spawn(async move { site.verify(&site.signer, 0).await })
        })
        .collect();
    while site.network.calls() == 0 {
        tokio::task::yield_now().await;
    }
    gate.add_permits(1);
    for task in crowd {
        assert_eq!(task.await.unwrap(), Ok(()));
    }
    assert_eq!(site.network.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn unknown_key_storm_buys_one_fetch_per_cooldown() {
    let site = Site::new();
    site.maintain(0).await;
    assert_eq!(site.network.calls(), 1);
    // The first fetch counts: an unknown key causes none within its cooldown.
    for kid in 0..200 {
        let stranger = Signer::new(&format!("unknown-{kid}"), Algorithm::EdDsa);
        assert_eq!(site.verify(&stranger, 1).await, Err(TokenError::KeyUnknown));
    }
    assert_eq!(site.network.calls(), 1);
    for (round, seconds) in [30, 60, 90].into_iter().enumerate() {
        for kid in 0..50 {
            let stranger = Signer::new(&format!("unknown-{kid}"), Algorithm::EdDsa);
            assert_eq!(site.verify(&stranger, seconds).await, Err(TokenError::KeyUnknown));
        }
        assert_eq!(site.network.calls(), 2 + round);
    }
    assert_eq!(site.verify(&site.signer, 90).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn rotation_to_a_new_key_is_followed_at_its_first_token() {
    let site = Site::new();
    site.maintain(0).await;
    let new = Signer::new("new", Algorithm::EdDsa);
    site.network.answer(KEYS, Ok(jwks(&[&site.signer, &new])));
    assert_eq!(site.verify(&new, 40).await, Ok(()));
    assert_eq!(site.verify(&site.signer, 40).await, Ok(()));
    site.network.answer(KEYS, Ok(new.jwks()));
    site.maintain(40 + 45 * 60).await;
    assert_eq!(site.verify(&site.signer, 40 + 45 * 60).await, Err(TokenError::KeyUnknown));
    assert_eq!(site.verify(&new, 40 + 45 * 60).await, Ok(()));
    assert_eq!(site.network.calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn keys_are_refreshed_ahead_of_their_end_without_anybody_waiting() {
    let site = Site::new();
    site.maintain(0).await;
    let due = 45 * 60;
    site.maintain(due - 1).await;
    assert_eq!(site.network.calls(), 1);
    // A request starts a fetch too, and continues at once.
    let token = token(&site.signer, due);
    assert!(at_once(site.authenticator.verify(token.as_bytes(), at(NOW + due))).is_ok());
    while site.network.calls() < 2 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn stale_keys_serve_while_fetching_fails_and_only_so_long() {
    let site = Site::new();
    site.maintain(0).await;
    site.network.answer(KEYS, Err(FetchError::Io("down".to_owned())));
    let end = 13 * 3600;
    for seconds in [45 * 60, 3600, 2 * 3600, end - 1] {
        site.maintain(seconds).await;
        assert_eq!(site.verify(&site.signer, seconds).await, Ok(()), "{seconds}");
    }
    let status = site.authenticator.key_sets(at(NOW + end - 1));
    assert_eq!((status[0].usable, status[0].failures), (true, 4));
    assert_eq!(status[0].last_error.as_deref(), Some("down"));
    assert_eq!(site.verify(&site.signer, end).await, Err(TokenError::KeysUnavailable));
    assert!(!site.authenticator.key_sets(at(NOW + end))[0].usable);

    site.network.answer(KEYS, Ok(site.signer.jwks()));
    assert_eq!(site.verify(&site.signer, end + 60).await, Ok(()));
    assert_eq!(site.authenticator.key_sets(at(NOW + end + 60))[0].failures, 0);
}

#[tokio::test(start_paused = true)]
async fn failures_are_repeated_with_growing_waits() {
    let site = Site::new();
    site.network.answer(KEYS, Err(FetchError::Status(500)));
    let mut fetched_at = Vec::new();
    for seconds in 0..200 {
        let before = site.network.calls();
        site.maintain(seconds).await;
        if site.network.calls() > before {
            fetched_at.push(seconds);
        }
        assert_eq!(site.verify(&site.signer, seconds).await, Err(TokenError::KeysUnavailable));
    }
    assert_eq!(fetched_at, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
    assert_eq!(site.network.calls(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_key_set_that_is_slow_huge_redirecting_private_or_broken_gives_no_keys() {
    let huge = vec![b' '; 1024 * 1024 + 1];
    let many = json!({"keys": vec![json!({"kty": "new"}); 129]}).to_string().into_bytes();
    for answer in [
        Ok(huge),
        Ok(many),
        Ok(b"<html>".to_vec()),
        Ok(b"{\"keys\":[],\"keys\":[]}".to_vec()),
        Ok(Vec::new()),
        Err(FetchError::TooLarge),
        Err(FetchError::Redirect),
        Err(FetchError::AddressRefused),
        Err(FetchError::Timeout),
        Err(FetchError::Status(204)),
    ] {
        let site = Site::new();
        site.network.answer(KEYS, answer.clone());
        assert_eq!(site.verify(&site.signer, 0).await, Err(TokenError::KeysUnavailable));
        assert_eq!(site.network.calls(), 1);
        site.network.answer(KEYS, Ok(site.signer.jwks()));
        assert_eq!(site.verify(&site.signer, 1).await, Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_endless_fetch_times_out_for_all_waiting_requests() {
    let site = Site::new();
    let _gate = site.network.hold();
    let before = tokio::time::Instant::now();
    assert_eq!(site.verify(&site.signer, 0).await, Err(TokenError::KeysUnavailable));
    assert_eq!(before.elapsed().as_secs(), 5);
    // The fetch ends at the same moment.
    while site.authenticator.key_sets(at(NOW))[0].failures == 0 {
        tokio::task::yield_now().await;
    }
    *site.network.gate.lock().unwrap() = None;
    assert_eq!(site.verify(&site.signer, 6).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_disconnecting_caller_does_not_cancel_the_fetch() {
    let site = Site::new();
    let gate = site.network.hold();
    let impatient = tokio::time::timeout(Duration::from_millis(10), site.verify(&site.signer, 0));
    assert!(impatient.await.is_err());
    gate.add_permits(1);
    assert_eq!(site.verify(&site.signer, 0).await, Ok(()));
    assert_eq!(site.network.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_empty_key_set_removes_all_keys() {
    let site = Site::new();
    site.maintain(0).await;
    site.network.answer(KEYS, Ok(b"{\"keys\":[]}".to_vec()));
    site.maintain(45 * 60).await;
    assert_eq!(site.verify(&site.signer, 45 * 60).await, Err(TokenError::KeyUnknown));
}

fn metadata(issuer: &str, keys: &str) -> Vec<u8> {
    json!({"issuer": issuer, "jwks_uri": keys, "more": [1]}).to_string().into_bytes()
}

#[tokio::test(start_paused = true)]
async fn discovery_finds_the_keys_and_unknown_keys_do_not_discover_again() {
    let site = Site::with(KeySource::Discovery, |_| {});
    site.network.answer(METADATA, Ok(metadata(ISSUER, KEYS)));
    assert_eq!(site.verify(&site.signer, 0).await, Ok(()));
    assert_eq!(site.network.urls(), [METADATA, KEYS]);
    let stranger = Signer::new("unknown", Algorithm::EdDsa);
    assert_eq!(site.verify(&stranger, 30).await, Err(TokenError::KeyUnknown));
    assert_eq!(site.network.urls(), [METADATA, KEYS, KEYS]);
    site.maintain(30 + 45 * 60).await;
    assert_eq!(site.network.urls(), [METADATA, KEYS, KEYS, METADATA, KEYS]);
}

#[tokio::test(start_paused = true)]
async fn discovery_falls_back_to_rfc_8414_with_the_path_behind_the_well_known_name() {
    let issuer = "https://id.example/tenant";
    let site = Site::with(KeySource::Discovery, |config| config.issuer = issuer.to_owned());
    let place = "https://id.example/.well-known/oauth-authorization-server/tenant";
    site.network.answer(place, Ok(metadata(issuer, KEYS)));
    site.maintain(0).await;
    let oidc = "https://id.example/tenant/.well-known/openid-configuration";
    assert_eq!(site.network.urls(), [oidc, place, KEYS]);
    assert!(site.authenticator.key_sets(at(NOW))[0].usable);
}

#[tokio::test(start_paused = true)]
async fn discovery_refuses_another_issuers_document_and_keys_elsewhere() {
    let usable = async |document: Vec<u8>, hosts: &[&str]| {
        let site = Site::with(KeySource::Discovery, |config| {
            config.key_hosts = hosts.iter().map(|&host| host.to_owned()).collect();
        });
        for host in ["evil.example", "keys.example", "169.254.169.254"] {
            site.network.answer(&format!("https://{host}/keys"), Ok(site.signer.jwks()));
        }
        site.network.answer(METADATA, Ok(document));
        site.maintain(0).await;
        site.authenticator.key_sets(at(NOW))[0].usable
    };
    assert!(usable(metadata(ISSUER, KEYS), &[]).await);
    assert!(usable(metadata(ISSUER, "https://keys.example/keys"), &["keys.example"]).await);
    for (issuer, keys) in [
        ("https://id.example/", KEYS),
        ("https://evil.example", KEYS),
        (ISSUER, "https://keys.example/keys"),
        (ISSUER, "https://evil.example/keys"),
        (ISSUER, "http://id.example/keys"),
        (ISSUER, "https://169.254.169.254/keys"),
        (ISSUER, "https://id.example:8443/keys"),
        (ISSUER, "/keys"),
        (ISSUER, "file:///etc/passwd"),
    ] {
        assert!(!usable(metadata(issuer, keys), &["169.254.169.254"]).await, "{issuer} {keys}");
    }
    let padded = |bytes: usize| [metadata(ISSUER, KEYS), vec![b' '; bytes]].concat();
    assert!(usable(padded(1024), &[]).await);
    assert!(!usable(padded(1024 * 1024), &[]).await);
    for document in [&b"{}"[..], b"[]", b"{\"issuer\":\"https://id.example\"}"] {
        assert!(!usable(document.to_vec(), &[]).await);
    }
}

#[test]
fn addresses_that_are_not_allowed_refuse_the_configuration() {
    let network = Arc::new(Network::default());
    let new = |keys: KeySource, change: fn(&mut IssuerConfig)| {
        let mut config = config(keys);
        change(&mut config);
        Authenticator::new(vec![config], None, network.clone()).is_ok()
    };
    let url = |text: &str| KeySource::Url(text.parse().unwrap());
    assert!(new(url("https://elsewhere.example/keys"), |_| {}));
    assert!(!new(url("http://id.example/keys"), |_| {}));
    assert!(!new(url("https://10.0.0.1/keys"), |_| {}));
    assert!(new(url("https://10.0.0.1/keys"), |config| config.allow_private_addresses = true));
    assert!(!new(url("http://127.0.0.1/keys"), |config| config.allow_private_addresses = true));
    assert!(new(url("http://127.0.0.1/keys"), |config| {
        config.allow_private_addresses = true;
        config.danger_allow_http_loopback = true;
    }));
    assert!(!new(KeySource::Discovery, |config| config.issuer = "not a url".to_owned()));
    assert!(!new(KeySource::Discovery, |config| config.issuer = "http://id.example".to_owned()));
}
