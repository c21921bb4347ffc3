//! The claims of an authentic token: times, audiences, identities.

use std::time::Duration;

use cardea_clock::{Mono, Wall};
use cardea_identity::{Algorithm, TokenError};
use serde_json::{Value, json};

use crate::support::{Fixture, ISSUER, NOW, at, claims, claims_with, claims_without, now};

#[test]
fn every_algorithm_verifies_and_the_verdict_says_who_calls() {
    for algorithm in Algorithm::ALL {
        let fixture = Fixture::with(algorithm, |_| {});
        let verdict = fixture.judge(&claims()).unwrap();
        let caller = &verdict.caller;
        assert_eq!((&*caller.issuer_name, &*caller.issuer), ("main", ISSUER));
        assert_eq!(caller.subject.as_deref(), Some("alice"));
        assert_eq!(caller.client_id.as_deref(), Some("app"));
        assert_eq!(caller.audiences, ["api"]);
        assert_eq!(caller.scopes, ["read", "write"]);
        assert_eq!(caller.roles, ["ops"]);
        assert_eq!(caller.token_id.as_deref(), Some("1"));
        assert_eq!(caller.issued_at, Some(Wall::from_unix_seconds(NOW - 10)));
        assert_eq!(caller.claims.len(), 9);
        assert_eq!(verdict.not_before, Wall::from_unix_seconds(NOW - 40), "iat less the skew");
        assert_eq!(verdict.not_after, Wall::from_unix_seconds(NOW + 630));
        assert_eq!(verdict.deadline, now().mono.saturating_add(Duration::from_secs(630)));
        assert!(verdict.is_valid_at(now()));
        assert!(fixture.authenticator.is_current(&verdict, now()));
    }
}

#[test]
fn times_are_checked_at_their_boundaries_with_the_skew_once() {
    let fixture = Fixture::new();
    let mut claims = claims();
    claims["nbf"] = json!(NOW);
    claims["iat"] = json!(NOW);
    claims["exp"] = json!(NOW + 100);
    let token = fixture.signer.token(&claims);
    let verify = |seconds| fixture.verify_at(&token, at(seconds)).map(|_| ());
    assert_eq!(verify(NOW - 31), Err(TokenError::NotYetValid));
    assert_eq!(verify(NOW - 30), Ok(()));
    assert_eq!(verify(NOW + 129), Ok(()));
    assert_eq!(verify(NOW + 130), Err(TokenError::Expired));
    let verdict = fixture.verify_at(&token, at(NOW - 30)).unwrap();
    assert!(!verdict.is_valid_at(at(NOW - 31)));
    assert!(verdict.is_valid_at(at(NOW + 129)));
    assert!(!verdict.is_valid_at(at(NOW + 130)));

    let exact = Fixture::with(Algorithm::Es256, |config| config.clock_skew = Duration::ZERO);
    let token = exact.signer.token(&claims);
    let verify = |seconds| exact.verify_at(&token, at(seconds)).map(|_| ());
    assert_eq!(verify(NOW - 1), Err(TokenError::NotYetValid));
    assert_eq!(verify(NOW), Ok(()));
    assert_eq!(verify(NOW + 99), Ok(()));
    assert_eq!(verify(NOW + 100), Err(TokenError::Expired));
}

#[test]
fn times_that_are_absent_fractional_negative_huge_or_no_numbers() {
    let fixture = Fixture::new();
    let missing = |name| Err(TokenError::ClaimMissing(name));
    let invalid = |name| Err(TokenError::ClaimInvalid(name));
    let seconds = 1_800_000_600_u64;
    let table: Vec<(&'static str, Value, Result<(), TokenError>)> = vec![
        ("exp", json!(seconds), Ok(())),
        ("exp", json!(1_800_000_600.5), Ok(())),
        ("exp", json!(1.8000006e9), Ok(())),
        ("exp", json!(253_402_300_799_u64), Ok(())),
        ("exp", json!(253_402_300_800_u64), invalid("exp")),
        ("exp", json!(u64::MAX), invalid("exp")),
        ("exp", json!(1e300), invalid("exp")),
        ("exp", json!(-1), invalid("exp")),
        ("exp", json!(-0.5), invalid("exp")),
        ("exp", json!(i64::MIN), invalid("exp")),
        ("exp", json!(0), Err(TokenError::Expired)),
        ("exp", json!("1800000600"), invalid("exp")),
        ("exp", json!([seconds]), invalid("exp")),
        ("exp", json!(true), invalid("exp")),
        ("exp", Value::Null, invalid("exp")),
        // Milliseconds, written by mistake, give a year after 9999.
        ("exp", json!(seconds * 1000), invalid("exp")),
        ("nbf", json!(NOW), Ok(())),
        ("nbf", json!(NOW + 31), Err(TokenError::NotYetValid)),
        ("nbf", json!(1_800_000_030.5), Err(TokenError::NotYetValid)),
        ("nbf", json!("1800000000"), invalid("nbf")),
        ("nbf", json!(-1), invalid("nbf")),
        ("nbf", Value::Null, invalid("nbf")),
        ("iat", json!(NOW + 30), Ok(())),
        ("iat", json!(NOW + 31), Err(TokenError::IssuedInFuture)),
        ("iat", json!("now"), invalid("iat")),
        ("iat", json!(-5), invalid("iat")),
    ];
    for (name, value, expected) in table {
        let found = fixture.judge(&claims_with(name, value.clone())).map(|_| ());
        assert_eq!(found, expected, "{name} = {value}");
    }
    assert_eq!(fixture.judge(&claims_without("exp")).map(|_| ()), missing("exp"));
    assert!(fixture.judge(&claims_without("nbf")).is_ok());
    assert!(fixture.judge(&claims_without("iat")).is_ok());
    let mut reversed = claims_with("iat", json!(NOW + 20));
    reversed["exp"] = json!(NOW + 10);
    assert_eq!(fixture.judge(&reversed).map(|_| ()), invalid("iat"));
}

#[test]
fn an_expiry_beyond_the_range_of_the_clock_saturates() {
    let fixture = Fixture::new();
    let verdict = fixture.judge(&claims_with("exp", json!(253_402_300_799_u64))).unwrap();
    assert_eq!(verdict.not_after, Wall::MAX);
    assert!(verdict.deadline > now().mono && verdict.deadline <= Mono::MAX);
}

#[test]
fn a_configured_lifetime_is_a_limit_and_needs_iat() {
    let fixture = Fixture::with(Algorithm::Es256, |config| {
        config.lifetime_max = Some(Duration::from_secs(610));
    });
    fixture.control();
    let longer = claims_with("exp", json!(NOW + 601));
    assert_eq!(fixture.judge(&longer).unwrap_err(), TokenError::LifetimeTooLong);
    assert_eq!(fixture.judge(&claims_without("iat")).unwrap_err(), TokenError::ClaimMissing("iat"));
}

#[test]
fn audience_as_string_and_array() {
    let fixture = Fixture::new();
    let aud = |value: Value| fixture.judge(&claims_with("aud", value)).map(|_| ());
    for good in [json!("api"), json!(["api"]), json!(["x", "api2"]), json!(["api", "api2"])] {
        assert_eq!(aud(good.clone()), Ok(()), "{good}");
    }
    for other in [
        json!("API"),
        json!("api "),
        json!(""),
        json!(["x"]),
        json!("api,api2"),
        json!("api api2"),
        json!(["ap", "i"]),
    ] {
        assert_eq!(aud(other.clone()), Err(TokenError::AudienceNotAccepted), "{other}");
    }
    for bad in [json!([]), json!(1), Value::Null, json!({"a": "api"}), json!(["api", 1]), json!([["api"]])] {
        assert_eq!(aud(bad.clone()), Err(TokenError::ClaimInvalid("aud")), "{bad}");
    }
    assert_eq!(fixture.judge(&claims_without("aud")).unwrap_err(), TokenError::ClaimMissing("aud"));
}

#[test]
fn scopes_are_a_string_or_an_array_under_the_first_name_that_is_there() {
    let fixture = Fixture::new();
    let scopes = |change: &dyn Fn(&mut Value)| {
        let mut claims = claims_without("scope");
        change(&mut claims);
        fixture.judge(&claims).map(|verdict| verdict.caller.scopes.clone())
    };
    assert_eq!(scopes(&|_| {}).unwrap(), [""; 0]);
    assert_eq!(scopes(&|c| c["scp"] = json!("a b")).unwrap(), ["a", "b"]);
    assert_eq!(scopes(&|c| c["scp"] = json!(["a", "b"])).unwrap(), ["a", "b"]);
    assert_eq!(scopes(&|c| c["scope"] = json!("  a  b ")).unwrap(), ["a", "b"]);
    let both = |c: &mut Value| {
        c["scope"] = json!("a");
        c["scp"] = json!("admin");
    };
    assert_eq!(scopes(&both).unwrap(), ["a"]);
    for bad in
        [json!(1), Value::Null, json!(["a", 1]), json!("a\tb"), json!("a\r\nb"), json!(["a b"]), json!([""])]
    {
        let found = scopes(&|c| c["scope"] = bad.clone());
        assert_eq!(found, Err(TokenError::ClaimInvalid("scope")), "{bad}");
    }
}

#[test]
fn roles_come_from_every_configured_place_nested_ones_too() {
    let fixture = Fixture::with(Algorithm::Es256, |config| {
        config.claims.roles =
            vec!["roles".into(), "realm_access.roles".into(), "https://x.example/roles".into()];
    });
    let mut claims = claims();
    claims["realm_access"] = json!({"roles": ["a", "b"]});
    claims["https://x.example/roles"] = json!("c");
    assert_eq!(fixture.judge(&claims).unwrap().caller.roles, ["ops", "a", "b", "c"]);
    claims["realm_access"] = json!({"roles": {"a": 1}});
    assert_eq!(fixture.judge(&claims).unwrap_err(), TokenError::ClaimInvalid("roles"));
    claims["realm_access"] = json!("roles");
    assert_eq!(fixture.judge(&claims).unwrap().caller.roles, ["ops", "c"]);
}

#[test]
fn identities_hold_no_control_characters_and_are_never_empty() {
    let fixture = Fixture::new();
    for name in ["sub", "client_id", "jti"] {
        for bad in [json!(""), json!("a\r\nX-Admin: 1"), json!("a\0"), json!("\u{85}"), json!(1), Value::Null]
        {
            let found = fixture.judge(&claims_with(name, bad.clone())).map(|_| ());
            assert_eq!(found, Err(TokenError::ClaimInvalid(name)), "{name} {bad}");
        }
        assert!(fixture.judge(&claims_with(name, json!("Zoë"))).is_ok());
    }
    let mut claims = claims_without("client_id");
    claims["azp"] = json!("party");
    let verdict = fixture.judge(&claims).unwrap();
    assert_eq!(verdict.caller.client_id.as_deref(), Some("party"));
}

#[test]
fn revoked_subjects_are_refused_at_once_and_verdicts_end() {
    let fixture = Fixture::new();
    let verdict = fixture.judge(&claims()).unwrap();
    let revocations = fixture.authenticator.revocations();
    revocations.disable("main", "alice");
    assert_eq!(fixture.judge(&claims()).unwrap_err(), TokenError::Revoked);
    assert!(!fixture.authenticator.is_current(&verdict, now()));
    revocations.enable("main", "alice");
    fixture.control();
    let forget = Wall::from_unix_seconds(NOW + 4000);
    revocations.revoke("main", "alice", Wall::from_unix_seconds(NOW), forget);
    assert_eq!(fixture.judge(&claims()).unwrap_err(), TokenError::Revoked);
    assert!(fixture.judge(&claims_with("iat", json!(NOW + 1))).is_ok());
}
