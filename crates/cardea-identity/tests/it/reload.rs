//! Changes of the configuration: kept state, ended verdicts, refused tokens.

use std::sync::Arc;
use std::time::Duration;

use cardea_identity::{
    Algorithm, Authenticator, ConnectionTokenCache, IdentityError, IssuerConfig, KeySource, Lapse, LocalKeys,
    bearer_credentials,
};
use serde_json::json;

use crate::support::{Fixture, NOW, Network, Signer, at, at_once, claims, config, jwks, no_network, now};

fn next(issuers: Vec<IssuerConfig>, previous: &Authenticator) -> Authenticator {
    Authenticator::new(issuers, Some(previous), no_network()).unwrap()
}

#[test]
fn a_verdict_outlives_a_reload_that_changes_nothing_and_ends_with_one_that_does() {
    let signer = Signer::new("key", Algorithm::Es256);
    let keys = LocalKeys::new();
    keys.publish(&signer.jwks()).unwrap();
    let config = config(KeySource::Local(keys));
    let first = Authenticator::new(vec![config.clone()], None, no_network()).unwrap();
    let token = signer.token(&claims());
    let verdict = at_once(first.verify(token.as_bytes(), now())).unwrap();

    let same = next(vec![config.clone()], &first);
    assert!(same.is_current(&verdict, now()));

    let mut narrower = config.clone();
    narrower.audiences = vec!["api2".to_owned()];
    assert!(!next(vec![narrower.clone()], &same).is_current(&verdict, now()));
    assert!(!next(vec![], &same).is_current(&verdict, now()));
    // Restoring the configuration doesn't make it valid again, because another one was in effect meanwhile.
    let back = next(vec![config], &next(vec![narrower], &same));
    assert!(!back.is_current(&verdict, now()));
    assert!(at_once(back.verify(token.as_bytes(), now())).is_ok());
}

#[test]
fn a_token_that_is_held_is_verified_again_after_its_issuer_has_changed() {
    let (signer, other) = (Signer::new("key", Algorithm::Es256), Signer::new("other", Algorithm::EdDsa));
    let keys = LocalKeys::new();
    keys.publish(&jwks(&[&signer, &other])).unwrap();
    let config = config(KeySource::Local(keys.clone()));
    let first = Authenticator::new(vec![config.clone()], None, no_network()).unwrap();
    let token = format!("Bearer {}", signer.token(&claims()));
    let hold = |authenticator: &Authenticator| {
        let mut slot = ConnectionTokenCache::new();
        let credentials = bearer_credentials([token.as_bytes()].into_iter()).unwrap().unwrap();
        at_once(authenticator.identify(credentials, &mut slot, now())).unwrap().0
    };
    let held = hold(&first);
    let changed = |change: &dyn Fn(&mut IssuerConfig)| {
        let mut config = config.clone();
        change(&mut config);
        next(vec![config], &first)
    };
    let skewed = changed(&|config| config.clock_skew = Duration::from_secs(60));
    assert_eq!(skewed.lapse(&held, now(), Duration::ZERO), Some(Lapse::IssuerChanged));
    let renewed = skewed.renew(&held, now()).unwrap().unwrap();
    assert_eq!(skewed.lapse(&renewed, now(), Duration::ZERO), None);
    assert_eq!(renewed.not_after, held.not_after.saturating_add(Duration::from_secs(30)));
    assert_eq!(renewed.deadline, held.deadline.saturating_add(Duration::from_secs(30)));
    // The next stream of the token costs no signature.
    let verifications = skewed.verifications();
    assert!(skewed.renew(&held, now()).unwrap().is_some());
    assert_eq!(skewed.verifications(), verifications);
    // Past its end, the holder's grace decides.
    let end = NOW + 600 + 60;
    let later = changed(&|config| config.clock_skew = Duration::from_secs(60));
    let late = later.renew(&held, at(end)).unwrap().unwrap();
    let lapse = |grace| later.lapse(&late, at(end), Duration::from_secs(grace));
    assert_eq!((lapse(0), lapse(1)), (Some(Lapse::Expired), None));

    let refused =
        |change: &dyn Fn(&mut IssuerConfig)| changed(change).renew(&held, now()).map(drop).unwrap_err();
    assert_eq!(refused(&|config| config.audiences = vec!["else".to_owned()]), Lapse::IssuerChanged);
    assert_eq!(refused(&|config| config.issuer = "https://else.example".to_owned()), Lapse::IssuerChanged);
    assert_eq!(next(vec![], &first).renew(&held, now()).map(drop).unwrap_err(), Lapse::IssuerChanged);
    let keyless = changed(&|config| config.keys = KeySource::Local(LocalKeys::new()));
    assert!(keyless.renew(&held, now()).unwrap().is_none(), "nothing is known of it");
    first.revocations().disable("main", "alice");
    assert_eq!(refused(&|config| config.clock_skew = Duration::ZERO), Lapse::Revoked);
    first.revocations().enable("main", "alice");
    // A key that is gone, and one that is not its own.
    keys.publish(&signer.jwks()).unwrap();
    assert!(first.renew(&held, now()).unwrap().is_some());
    keys.publish(&other.jwks()).unwrap();
    assert_eq!(first.renew(&held, now()).map(drop).unwrap_err(), Lapse::IssuerChanged);
}

#[test]
fn verdicts_end_when_a_key_goes_and_not_when_one_comes() {
    let signer = Signer::new("key", Algorithm::Es256);
    let other = Signer::new("other", Algorithm::EdDsa);
    let keys = LocalKeys::new();
    let config = config(KeySource::Local(keys.clone()));
    let authenticator = Authenticator::new(vec![config], None, no_network()).unwrap();
    let token = signer.token(&claims());
    let error = at_once(authenticator.verify(token.as_bytes(), now())).unwrap_err();
    assert_eq!(error.code(), "keys_unavailable");
    assert!(error.is_gateway_fault());

    keys.publish(&signer.jwks()).unwrap();
    let verdict = at_once(authenticator.verify(token.as_bytes(), now())).unwrap();
    keys.publish(&jwks(&[&signer, &other])).unwrap();
    assert!(authenticator.is_current(&verdict, now()));
    assert!(keys.publish(b"not a set").is_err());
    assert!(authenticator.is_current(&verdict, now()));
    keys.publish(&other.jwks()).unwrap();
    assert!(!authenticator.is_current(&verdict, now()));
    keys.publish(&signer.jwks()).unwrap();
    assert!(!authenticator.is_current(&verdict, now()));
}

#[test]
fn a_verdict_that_is_held_on_to_lapses_for_a_reason_and_not_for_want_of_keys() {
    let fixture = Fixture::new();
    let verdict = fixture.judge(&claims()).unwrap();
    let (grace, none) = (Duration::from_secs(30), Duration::ZERO);
    let lapse =
        |authenticator: &Authenticator, seconds, grace| authenticator.lapse(&verdict, at(seconds), grace);
    let end = NOW + 600 + i64::try_from(cardea_identity::SKEW_DEFAULT.as_secs()).unwrap();
    for (seconds, grace, expected) in [
        (NOW, none, None),
        (end - 1, none, None),
        (end, none, Some(Lapse::Expired)),
        (end, grace, None),
        (end + 30, grace, Some(Lapse::Expired)),
    ] {
        assert_eq!(lapse(&fixture.authenticator, seconds, grace), expected, "{seconds} {grace:?}");
    }
    let epoch = || fixture.authenticator.epoch(now().mono);
    let mut seen = vec![epoch()];
    assert_eq!(epoch(), seen[0]);
    fixture.authenticator.revocations().disable("main", "alice");
    seen.push(epoch());
    assert_eq!(lapse(&fixture.authenticator, NOW, grace), Some(Lapse::Revoked));
    fixture.authenticator.revocations().enable("main", "alice");
    fixture.authenticator.revocations().purge(now().wall);
    assert_eq!(Some(&epoch()), seen.last(), "nothing lapses by that");
    fixture.keys.publish(&jwks(&[&fixture.signer, &Signer::new("other", Algorithm::EdDsa)])).unwrap();
    assert_eq!((lapse(&fixture.authenticator, NOW, none), Some(&epoch())), (None, seen.last()), "a key more");
    fixture.keys.publish(&Signer::new("other", Algorithm::EdDsa).jwks()).unwrap();
    seen.push(epoch());
    assert_eq!(lapse(&fixture.authenticator, NOW, none), Some(Lapse::IssuerChanged), "its key is gone");
    let without = next(vec![], &fixture.authenticator);
    seen.push(without.epoch(now().mono));
    assert_eq!(lapse(&without, NOW, none), Some(Lapse::IssuerChanged));
    seen.dedup();
    assert_eq!(seen.len(), 4, "each change moves the epoch");
}

#[test]
fn revocations_survive_a_reload() {
    let signer = Signer::new("key", Algorithm::Es256);
    let keys = LocalKeys::new();
    keys.publish(&signer.jwks()).unwrap();
    let config = config(KeySource::Local(keys));
    let first = Authenticator::new(vec![config.clone()], None, no_network()).unwrap();
    first.revocations().disable("main", "alice");
    let second = next(vec![config], &first);
    let token = signer.token(&claims());
    assert_eq!(at_once(second.verify(token.as_bytes(), now())).unwrap_err().code(), "token_revoked");
    second.revocations().enable("main", "alice");
    assert!(at_once(first.verify(token.as_bytes(), now())).is_ok());
}

#[test]
fn key_files_are_read_at_every_reload_and_bad_ones_refuse_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    let signer = Signer::new("key", Algorithm::Es256);
    let other = Signer::new("other", Algorithm::EdDsa);
    let token = signer.token(&claims());
    let config = config(KeySource::File(path.clone()));
    let load =
        |previous: Option<&Authenticator>| Authenticator::new(vec![config.clone()], previous, no_network());
    assert!(matches!(load(None), Err(IdentityError::KeyFile { .. })));

    std::fs::write(&path, signer.jwks()).unwrap();
    let first = load(None).unwrap();
    let verdict = at_once(first.verify(token.as_bytes(), now())).unwrap();
    assert!(load(Some(&first)).unwrap().is_current(&verdict, now()));

    std::fs::write(&path, jwks(&[&signer, &other])).unwrap();
    let second = load(Some(&first)).unwrap();
    assert!(second.is_current(&verdict, now()));
    assert!(at_once(second.verify(other.token(&claims()).as_bytes(), now())).is_ok());

    std::fs::write(&path, other.jwks()).unwrap();
    let third = load(Some(&second)).unwrap();
    assert!(!third.is_current(&verdict, now()));
    assert!(at_once(third.verify(token.as_bytes(), now())).is_err());

    for bad in
        [&b"{}"[..], b"{\"keys\":[]}", b"{\"keys\":[{\"kty\":\"oct\",\"k\":\"AA\"}]}", &[b' '; 1_048_577]]
    {
        std::fs::write(&path, bad).unwrap();
        let error = load(Some(&third)).unwrap_err();
        assert!(error.to_string().contains("keys.json"), "{error}");
    }
}

#[test]
fn contradictions_between_issuers_are_errors() {
    let config = |name: &str, issuer: &str| IssuerConfig {
        name: name.to_owned(),
        issuer: issuer.to_owned(),
        ..config(KeySource::Local(LocalKeys::new()))
    };
    let new = |issuers| Authenticator::new(issuers, None, no_network()).map(|_| ());
    assert!(new(vec![config("a", "https://a"), config("b", "https://b")]).is_ok());
    assert!(new(vec![config("a", "https://a"), config("a", "https://b")]).is_err());
    assert!(new(vec![config("a", "https://a"), config("b", "https://a")]).is_err());
    let mut open = config("a", "https://a");
    open.audiences.clear();
    assert!(new(vec![open.clone()]).is_err());
    let all = [config("b", "https://b"), open, config("c", "https://b"), config("b", "https://d")];
    let errors = Authenticator::check(&all);
    let names: Vec<_> = errors.iter().map(|error| error.issuer().unwrap()).collect();
    assert_eq!(names, ["a", "c", "b"]);
}

#[tokio::test(start_paused = true)]
async fn fetched_keys_are_taken_over_when_only_the_rest_changes() {
    let network = Arc::new(Network::default());
    let signer = Signer::new("key", Algorithm::Es256);
    network.answer("https://id.example/keys", Ok(signer.jwks()));
    let mut config = config(KeySource::Url("https://id.example/keys".parse().unwrap()));
    let first = Authenticator::new(vec![config.clone()], None, network.clone()).unwrap();
    let token = signer.token(&claims());
    let verdict = first.verify(token.as_bytes(), now()).await.unwrap();
    config.audiences.push("api3".to_owned());
    let second = Authenticator::new(vec![config.clone()], Some(&first), network.clone()).unwrap();
    assert!(!second.is_current(&verdict, now()));
    assert!(at_once(second.verify(token.as_bytes(), now())).is_ok());
    assert_eq!(network.calls(), 1);
    config.keys = KeySource::Url("https://id.example/other".parse().unwrap());
    let third = Authenticator::new(vec![config], Some(&second), network.clone()).unwrap();
    assert_eq!(third.verify(token.as_bytes(), now()).await.unwrap_err().code(), "keys_unavailable");
    assert_eq!(json!(third.key_sets(now()).len()), 1);
}
