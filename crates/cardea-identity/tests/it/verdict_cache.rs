//! Which verdicts are cached, and when they end.

use std::cell::RefCell;
use std::sync::Arc;

use cardea_clock::{Mono, Timestamp, Wall};
use cardea_identity::{
    Algorithm, Authenticator, ConnectionTokenCache, IssuerConfig, KeySource, LocalKeys, TokenError,
    Unidentified, VerdictRef, VerdictSource, bearer_credentials,
};
use serde_json::json;

use crate::support::{
    Fixture, ISSUER, NOW, Network, Signer, at, at_once, base64url, claims, claims_with, config, jwks,
    no_network, now,
};

use VerdictSource::{Cache, Connection, Verification};

type Answer = Result<VerdictSource, &'static str>;

/// The token cache of a connection whose requests follow one another.
#[derive(Default)]
struct Slot(RefCell<ConnectionTokenCache>);

async fn identify(
    authenticator: &Authenticator,
    token: &str,
    slot: &Slot,
    now: Timestamp,
) -> Result<(VerdictRef, VerdictSource), TokenError> {
    let field = format!("Bearer {token}");
    let credentials = bearer_credentials(std::iter::once(field.as_bytes())).unwrap().unwrap();
    let mut own = slot.0.take();
    let identified = authenticator.identify(credentials, &mut own, now).await;
    if let Ok((verdict, _)) = &identified {
        own.put_back(verdict.clone());
    }
    slot.0.replace(own);
    identified.map_err(|why| match why {
        Unidentified::Token(error) => error,
        Unidentified::Credentials(error) => panic!("{error}"),
    })
}

fn ask_at(authenticator: &Authenticator, token: &str, slot: &Slot, now: Timestamp) -> Answer {
    at_once(identify(authenticator, token, slot, now))
        .map(|(verdict, source)| {
            assert!(verdict.is_valid_at(now));
            source
        })
        .map_err(|error| error.code())
}

fn ask(authenticator: &Authenticator, token: &str, slot: &Slot) -> Answer {
    ask_at(authenticator, token, slot, now())
}

#[test]
fn a_token_is_verified_once_then_found_by_its_connection_and_by_others() {
    let fixture = Fixture::new();
    let (one, two) = (Slot::default(), Slot::default());
    let token = fixture.signer.token(&claims());
    let sources = [&one, &one, &two, &two].map(|slot| ask(&fixture.authenticator, &token, slot));
    assert_eq!(sources, [Ok(Verification), Ok(Connection), Ok(Cache), Ok(Connection)]);
    let other = fixture.signer.token(&claims_with("sub", json!("bob")));
    assert_eq!(ask(&fixture.authenticator, &other, &one), Ok(Verification));
    assert_eq!(ask(&fixture.authenticator, &token, &one), Ok(Cache), "the slot keeps the last alone");
    let (verdict, _) = at_once(identify(&fixture.authenticator, &other, &two, now())).unwrap();
    assert_eq!(verdict.caller.subject.as_deref(), Some("bob"), "another's bytes are another's verdict");
    assert_eq!((fixture.authenticator.verdicts(), fixture.authenticator.verifications()), (2, 2));
}

#[test]
fn debug_output_shows_whose_a_verdict_is_and_not_the_token() {
    let fixture = Fixture::new();
    let token = fixture.signer.token(&claims());
    let slot = Slot::default();
    let (verdict, _) = at_once(identify(&fixture.authenticator, &token, &slot, now())).unwrap();
    let shown = format!("{verdict:?} {:?}", slot.0);
    assert!(shown.contains(ISSUER), "{shown}");
    // As text, and as a list of numbers, which is how `Debug` prints bytes.
    let signature = token.rsplit('.').next().unwrap();
    let numbers = format!("{:?}", signature.as_bytes());
    assert!(!shown.contains(signature) && !shown.contains(numbers.trim_matches(['[', ']'])), "{shown}");
}

#[test]
fn a_token_that_collides_with_a_remembered_one_in_its_hash_is_not_it() {
    let fixture = Fixture::new();
    let slot = Slot::default();
    let token = fixture.signer.token(&claims());
    assert_eq!(ask(&fixture.authenticator, &token, &slot), Ok(Verification));
    // Only the signature is hashed: the signature of a good token with other claims of the same length, and the
    // reverse.
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let (header, _) = signed.split_once('.').unwrap();
    let admin = base64url(claims_with("sub", json!("admin")).to_string());
    let grafted = format!("{header}.{admin}.{signature}");
    assert_eq!(grafted.len(), token.len());
    for attack in [grafted, format!("{signed}.{}", base64url([0; 64])), format!("{token}A")] {
        let answer = ask(&fixture.authenticator, &attack, &slot);
        assert!(answer.is_err(), "{answer:?} for {attack}");
        assert_eq!(ask(&fixture.authenticator, &token, &slot), Ok(Cache), "the failure cleared the slot");
    }
}

#[test]
fn a_verdict_expires_with_its_token_whatever_the_wall_clock() {
    let fixture = Fixture::with(Algorithm::Es256, |config| config.clock_skew = std::time::Duration::ZERO);
    let (slot, other) = (Slot::default(), Slot::default());
    let token = fixture.signer.token(&claims());
    assert_eq!(ask(&fixture.authenticator, &token, &slot), Ok(Verification));
    assert_eq!(ask_at(&fixture.authenticator, &token, &slot, at(NOW + 599)), Ok(Connection));
    assert_eq!(ask_at(&fixture.authenticator, &token, &slot, at(NOW + 600)), Err("token_expired"));
    assert_eq!(ask_at(&fixture.authenticator, &token, &other, at(NOW + 600)), Err("token_expired"));

    // The wall clock is set back by an hour and continues: the cached verdict ends when it would have.
    let token = fixture.signer.token(&claims_with("jti", json!("2")));
    assert_eq!(ask(&fixture.authenticator, &token, &slot), Ok(Verification));
    let stepped = Timestamp { wall: Wall::from_unix_seconds(NOW - 5), mono: at(NOW + 599).mono };
    assert_eq!(ask_at(&fixture.authenticator, &token, &slot, stepped), Ok(Connection));
    let later = Timestamp { mono: at(NOW + 600).mono, ..stepped };
    let (_, source) = at_once(identify(&fixture.authenticator, &token, &slot, later)).unwrap();
    assert_eq!(source, Verification, "only a new verification could say more");
}

#[test]
fn revoked_verdicts_are_in_no_cache() {
    let fixture = Fixture::new();
    let (slot, other) = (Slot::default(), Slot::default());
    let token = fixture.signer.token(&claims());
    assert_eq!(ask(&fixture.authenticator, &token, &slot), Ok(Verification));
    fixture.authenticator.revocations().disable("main", "alice");
    for slot in [&slot, &other] {
        assert_eq!(ask(&fixture.authenticator, &token, slot), Err("token_revoked"));
    }
    fixture.authenticator.revocations().enable("main", "alice");
    assert_eq!(ask(&fixture.authenticator, &token, &slot), Ok(Verification));
}

#[test]
fn removing_a_key_discards_its_verdicts_and_adding_one_does_not() {
    let fixture = Fixture::new();
    let (slot, other) = (Slot::default(), Slot::default());
    let token = fixture.signer.token(&claims());
    let next = Signer::new("next", Algorithm::EdDsa);
    assert_eq!(ask(&fixture.authenticator, &token, &slot), Ok(Verification));
    fixture.keys.publish(&jwks(&[&fixture.signer, &next])).unwrap();
    assert_eq!(ask(&fixture.authenticator, &token, &slot), Ok(Connection));
    assert_eq!(ask(&fixture.authenticator, &token, &other), Ok(Cache));
    fixture.keys.publish(&next.jwks()).unwrap();
    for slot in [&slot, &other] {
        assert_eq!(ask(&fixture.authenticator, &token, slot), Err("key_unknown"));
    }
    let token = next.token(&claims());
    assert_eq!(ask(&fixture.authenticator, &token, &slot), Ok(Verification));
    assert_eq!(ask(&fixture.authenticator, &token, &other), Ok(Cache), "a new epoch remembers anew");
}

#[test]
fn a_reload_keeps_the_verdicts_of_unchanged_issuers() {
    let (signer, keys) = (Signer::new("key", Algorithm::Es256), LocalKeys::new());
    keys.publish(&signer.jwks()).unwrap();
    let main = config(KeySource::Local(keys));
    let first = Authenticator::new(vec![main.clone()], None, no_network()).unwrap();
    let (slot, other) = (Slot::default(), Slot::default());
    let token = signer.token(&claims());
    assert_eq!(ask(&first, &token, &slot), Ok(Verification));

    let same = Authenticator::new(vec![main.clone()], Some(&first), no_network()).unwrap();
    assert_eq!(ask(&same, &token, &slot), Ok(Connection));
    let second = signer.token(&claims_with("jti", json!("2")));
    assert_eq!(ask(&same, &second, &other), Ok(Verification));
    assert_eq!(ask(&same, &token, &other), Ok(Cache), "the issuer's own cache lives on");

    let narrower = IssuerConfig { audiences: vec!["api2".to_owned()], ..main };
    let narrow = Authenticator::new(vec![narrower], Some(&same), no_network()).unwrap();
    for slot in [&slot, &other] {
        assert_eq!(ask(&narrow, &token, slot), Err("audience_not_accepted"));
    }
    let none = Authenticator::new(vec![], Some(&same), no_network()).unwrap();
    assert_eq!(ask(&none, &token, &slot), Err("issuer_unknown"));
}

#[test]
fn however_many_reloads_there_are_tokens_are_found() {
    let (signer, keys) = (Signer::new("key", Algorithm::Es256), LocalKeys::new());
    keys.publish(&signer.jwks()).unwrap();
    let main = config(KeySource::Local(keys));
    let mut authenticator = Authenticator::new(vec![main.clone()], None, no_network()).unwrap();
    for number in 0..40 {
        let token = signer.token(&claims_with("jti", json!(number.to_string())));
        assert_eq!(ask(&authenticator, &token, &Slot::default()), Ok(Verification), "reload {number}");
        assert_eq!(ask(&authenticator, &token, &Slot::default()), Ok(Cache), "reload {number}");
        authenticator = Authenticator::new(vec![main.clone()], Some(&authenticator), no_network()).unwrap();
    }
}

#[test]
fn an_issuer_that_varies_its_headers_gains_no_cache_by_it_until_its_keys_change() {
    let fixture = Fixture::new();
    let sources = |signer: &Signer, numbers: std::ops::Range<usize>| -> Vec<_> {
        let found = numbers.map(|number| {
            let mut header = signer.header();
            header["x"] = json!(number);
            let token = signer.with_header(&header, &claims());
            assert_eq!(ask(&fixture.authenticator, &token, &Slot::default()), Ok(Verification));
            ask(&fixture.authenticator, &token, &Slot::default()).unwrap()
        });
        found.collect()
    };
    let found = sources(&fixture.signer, 0..20);
    assert_eq!(found, [vec![Cache; 16], vec![Verification; 4]].concat());
    let next = Signer::new("next", Algorithm::Es256);
    fixture.keys.publish(&next.jwks()).unwrap();
    assert_eq!(sources(&next, 0..1), [Cache]);
}

#[test]
fn a_storm_of_one_bad_token_costs_one_verification_until_the_keys_change() {
    let fixture = Fixture::new();
    let stranger = Signer::new("key", Algorithm::Es256);
    let bad = stranger.token(&claims());
    let slot = Slot::default();
    for _ in 0..1000 {
        assert_eq!(ask(&fixture.authenticator, &bad, &slot), Err("signature_invalid"));
        assert_eq!(ask(&fixture.authenticator, &bad, &Slot::default()), Err("signature_invalid"));
    }
    assert_eq!(fixture.authenticator.verifications(), 1);
    let other = stranger.token(&claims_with("jti", json!("2")));
    assert_eq!(ask(&fixture.authenticator, &other, &slot), Err("signature_invalid"));
    assert_eq!(fixture.authenticator.verifications(), 2, "a control");
    // The key id now belongs to the attacker's key: an earlier failure must not affect it.
    fixture.keys.publish(&stranger.jwks()).unwrap();
    assert_eq!(ask(&fixture.authenticator, &bad, &slot), Ok(Verification));
    let good = fixture.signer.token(&claims());
    assert_eq!(ask(&fixture.authenticator, &good, &slot), Err("signature_invalid"));
}

#[test]
fn issuers_without_key_ids_are_told_apart() {
    let (one, two) = (Signer::new("", Algorithm::Es256), Signer::new("", Algorithm::Es256));
    let header = json!({"alg": "ES256", "typ": "JWT"});
    let issuer = |name: &str, iss: &str, signer: &Signer| {
        let keys = LocalKeys::new();
        keys.publish(&signer.jwks()).unwrap();
        let issuer = iss.to_owned();
        IssuerConfig { name: name.to_owned(), issuer, ..config(KeySource::Local(keys)) }
    };
    let issuers = vec![issuer("one", ISSUER, &one), issuer("two", "https://two.example", &two)];
    let authenticator = Authenticator::new(issuers, None, no_network()).unwrap();
    let tokens = [
        one.with_header(&header, &claims()),
        two.with_header(&header, &claims_with("iss", json!("https://two.example"))),
    ];
    for expected in [Verification, Cache] {
        for (token, name) in tokens.iter().zip(["one", "two"]) {
            let slot = Slot::default();
            let (verdict, source) = at_once(identify(&authenticator, token, &slot, now())).unwrap();
            assert_eq!((&*verdict.caller.issuer_name, source), (name, expected));
        }
    }
    // Neither issuer can sign for the other.
    let forged = one.with_header(&header, &claims_with("iss", json!("https://two.example")));
    assert_eq!(ask(&authenticator, &forged, &Slot::default()), Err("signature_invalid"));
}

#[test]
fn no_issuer_evicts_the_verdicts_of_another() {
    let (one, two) = (Signer::new("one", Algorithm::Es256), Signer::new("two", Algorithm::Es256));
    let issuer = |name: &str, iss: &str, signer: &Signer| {
        let keys = LocalKeys::new();
        keys.publish(&signer.jwks()).unwrap();
        let issuer = iss.to_owned();
        IssuerConfig { name: name.to_owned(), issuer, verdicts_max: 4, ..config(KeySource::Local(keys)) }
    };
    let issuers = vec![issuer("one", ISSUER, &one), issuer("two", "https://two.example", &two)];
    let authenticator = Authenticator::new(issuers, None, no_network()).unwrap();
    let quiet = one.token(&claims());
    assert_eq!(ask(&authenticator, &quiet, &Slot::default()), Ok(Verification));
    for number in 0..100 {
        let mut claims = claims_with("iss", json!("https://two.example"));
        claims["jti"] = json!(number.to_string());
        assert_eq!(ask(&authenticator, &two.token(&claims), &Slot::default()), Ok(Verification));
    }
    assert!(authenticator.verdicts() <= 5, "{}", authenticator.verdicts());
    assert_eq!(ask(&authenticator, &quiet, &Slot::default()), Ok(Cache));
}

#[test]
fn nothing_is_remembered_where_the_configuration_says_so() {
    let fixture = Fixture::with(Algorithm::Es256, |config| config.verdicts_max = 0);
    let token = fixture.signer.token(&claims());
    assert_eq!(ask(&fixture.authenticator, &token, &Slot::default()), Ok(Verification));
    assert_eq!(ask(&fixture.authenticator, &token, &Slot::default()), Ok(Verification));
}

#[test]
fn verdicts_end_with_the_time_that_keys_may_be_used_without_a_fetch() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let signer = Signer::new("key", Algorithm::Es256);
        let network = Arc::new(Network::default());
        network.answer("https://id.example/keys", Ok(signer.jwks()));
        let url = "https://id.example/keys".parse().unwrap();
        let config = config(KeySource::Url(url));
        let refresh = config.refresh;
        let authenticator = Authenticator::new(vec![config], None, network.clone()).unwrap();
        let slot = Slot::default();
        let mut long = claims();
        long["exp"] = json!(NOW + 1_000_000);
        let token = signer.token(&long);
        authenticator.maintain(now()).await;
        let (_, source) = identify(&authenticator, &token, &slot, now()).await.unwrap();
        assert_eq!(source, Verification);
        network.answer("https://id.example/keys", Err(cardea_identity::FetchError::Timeout));
        let end = now().mono.saturating_add(refresh.lifetime).saturating_add(refresh.stale_if_error);
        let nanos = end.nanos() - now().mono.nanos();
        let just_before = Timestamp { mono: Mono::from_nanos(end.nanos() - 1), ..at(NOW + 1) };
        let source = identify(&authenticator, &token, &slot, just_before).await.unwrap().1;
        assert_eq!(source, Connection, "{nanos} ns");
        let at_end = Timestamp { mono: end, ..at(NOW + 1) };
        let error = identify(&authenticator, &token, &slot, at_end).await.unwrap_err();
        assert_eq!(error, TokenError::KeysUnavailable);
    });
}

#[test]
fn after_the_clock_stepped_back_a_remembered_token_is_judged_like_a_new_one() {
    let skew = i64::try_from(config(KeySource::Local(LocalKeys::new())).clock_skew.as_secs()).unwrap();
    for (claim, code) in [("iat", "token_issued_in_future"), ("nbf", "token_not_yet_valid")] {
        let fixture = Fixture::new();
        let (one, two) = (Slot::default(), Slot::default());
        let mut claims = claims();
        claims.as_object_mut().unwrap().remove("nbf");
        claims["iat"] = json!(NOW - 1_000);
        claims[claim] = json!(NOW);
        let token = fixture.signer.token(&claims);
        assert_eq!(ask(&fixture.authenticator, &token, &one), Ok(Verification), "{claim}");
        // The monotonic clock continues; only the wall clock is set back.
        let back = |seconds| Timestamp { wall: Wall::from_unix_seconds(NOW - seconds), ..now() };
        assert_eq!(ask_at(&fixture.authenticator, &token, &one, back(skew)), Ok(Connection), "{claim}");
        assert_eq!(ask_at(&fixture.authenticator, &token, &two, back(skew)), Ok(Cache), "{claim}");
        for slot in [&one, &two, &Slot::default()] {
            assert_eq!(ask_at(&fixture.authenticator, &token, slot, back(skew + 1)), Err(code), "{claim}");
        }
        let control = Fixture::new();
        let token = control.signer.token(&claims);
        let fresh = ask_at(&control.authenticator, &token, &Slot::default(), back(skew + 1));
        assert_eq!(fresh, Err(code), "{claim}: a new one");
        assert!(ask(&fixture.authenticator, &fixture.signer.token(&claims), &one).is_ok(), "{claim}");
    }
}
