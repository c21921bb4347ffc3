//! `explain` names the check that fails, and agrees with `verify`.

use cardea_identity::{Algorithm, Check};
use serde_json::{Value, json};

use crate::support::{Fixture, ISSUER, NOW, Signer, at_once, claims, claims_with, now};

fn explain(fixture: &Fixture, token: &str) -> Vec<Check> {
    at_once(fixture.authenticator.explain(token.as_bytes(), now()))
}

#[test]
fn a_good_token_passes_every_check_in_order() {
    let fixture = Fixture::new();
    let checks = explain(&fixture, &fixture.signer.token(&claims()));
    let names: Vec<_> = checks.iter().map(|check| check.name).collect();
    assert_eq!(
        names,
        [
            "form",
            "header",
            "claims",
            "issuer",
            "algorithm",
            "key",
            "signature",
            "type",
            "audience",
            "expires",
            "not before",
            "issued at",
            "sender",
            "identity",
            "revocation",
        ]
    );
    assert!(checks.iter().all(|check| check.passed));
}

#[test]
fn the_failing_check_is_the_last_one_and_says_what_was_expected_and_found() {
    let fixture = Fixture::new();
    let other = Signer::new("other", Algorithm::Es256);
    let forged = Signer::new("key", Algorithm::Es256);
    let signed = |name: &str, value: Value| fixture.signer.token(&claims_with(name, value));
    let table = [
        ("x".to_owned(), "form", "three segments", "1 segments"),
        (signed("iss", json!("https://evil.example")), "issuer", ISSUER, "https://evil.example"),
        (other.token(&claims()), "key", "kid", "other"),
        (forged.token(&claims()), "signature", "ES256", "64 bytes"),
        (signed("aud", json!("else")), "audience", "api", "else"),
        (signed("exp", json!(NOW - 100)), "expires", "1800000000", "1799999900"),
        (signed("nbf", json!(NOW + 100)), "not before", "1800000000", "1800000100"),
        (signed("cnf", json!({"jkt": "x"})), "sender", "no cnf", "jkt"),
    ];
    for (token, name, expected, found) in table {
        let checks = explain(&fixture, &token);
        let (last, before) = checks.split_last().unwrap();
        assert!(before.iter().all(|check| check.passed));
        assert!(!last.passed);
        assert_eq!(last.name, name);
        assert!(last.expected.contains(expected), "{last:?}");
        assert!(last.found.contains(found), "{last:?}");
        let error = fixture.verify(&token).unwrap_err();
        assert!(last.found.ends_with(&format!("({error})")), "{last:?}");
    }
}
