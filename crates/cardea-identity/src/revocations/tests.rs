//! Which tokens are refused, until when, and the eviction of entries.

use super::*;
use crate::verdict::Caller;

fn token(issuer: &str, subject: Option<&str>, issued_at: Option<i64>) -> Verdict {
    Verdict {
        caller: Caller {
            issuer_name: issuer.into(),
            subject: subject.map(str::to_owned),
            client_id: Some("client".to_owned()),
            issued_at: issued_at.map(Wall::from_unix_seconds),
            ..Caller::default()
        },
        ..Verdict::inverted()
    }
}

fn at(seconds: i64) -> Wall {
    Wall::from_unix_seconds(seconds)
}

#[test]
fn tokens_issued_at_or_before_are_refused_and_later_ones_are_not() {
    let revocations = Revocations::new();
    assert!(!revocations.is_revoked(&token("main", Some("a"), Some(5))));
    revocations.revoke("main", "a", at(10), at(100));
    for (verdict, revoked) in [
        (token("main", Some("a"), Some(9)), true),
        (token("main", Some("a"), Some(10)), true),
        (token("main", Some("a"), Some(11)), false),
        (token("main", Some("a"), None), true),
        (token("main", Some("b"), Some(9)), false),
        (token("other", Some("a"), Some(9)), false),
        (token("main", None, Some(9)), false),
    ] {
        assert_eq!(revocations.is_revoked(&verdict), revoked, "{verdict:?}");
    }
    revocations.revoke("main", "client", at(10), at(100));
    assert!(revocations.is_revoked(&token("main", None, Some(9))));
}

#[test]
fn disabling_refuses_everything_and_enabling_revives_nothing_that_was_revoked() {
    let revocations = Revocations::new();
    revocations.revoke("main", "a", at(10), at(100));
    revocations.disable("main", "a");
    assert!(revocations.is_revoked(&token("main", Some("a"), Some(50))));
    revocations.enable("main", "a");
    assert!(!revocations.is_revoked(&token("main", Some("a"), Some(50))));
    assert!(revocations.is_revoked(&token("main", Some("a"), Some(10))));
    revocations.disable("main", "b");
    revocations.enable("main", "b");
    revocations.enable("main", "unknown");
    assert_eq!(revocations.len(), 1);
}

#[test]
fn an_earlier_revocation_never_narrows_a_later_one() {
    let revocations = Revocations::new();
    revocations.revoke("main", "a", at(20), at(100));
    revocations.revoke("main", "a", at(10), at(50));
    revocations.purge(at(60));
    assert!(revocations.is_revoked(&token("main", Some("a"), Some(20))));
}

#[test]
fn entries_are_forgotten_after_their_time_but_the_disabled_stay() {
    let revocations = Revocations::new();
    revocations.revoke("main", "a", at(10), at(100));
    revocations.disable("main", "b");
    revocations.purge(at(100));
    assert_eq!(revocations.len(), 2);
    revocations.purge(at(101));
    assert_eq!(revocations.len(), 1);
    assert!(!revocations.is_revoked(&token("main", Some("a"), Some(9))));
    assert!(revocations.is_revoked(&token("main", Some("b"), Some(9))));
    revocations.enable("main", "b");
    assert!(revocations.is_empty());
}

#[test]
fn without_room_the_first_to_be_forgotten_holds_for_its_whole_issuer() {
    let revocations = Revocations::new();
    let revoke = |subject: &str, forget_after| {
        revocations.change_within(2, "main", subject, |entry| {
            entry.revoked = Some(Revoked { issued_at_or_before: at(10), forget_after: at(forget_after) });
        });
    };
    revoke("a", 100);
    revoke("b", 200);
    assert!(!revocations.is_revoked(&token("main", Some("c"), Some(10))));
    revoke("d", 300);
    for subject in ["a", "b", "c", "d"] {
        assert!(revocations.is_revoked(&token("main", Some(subject), Some(10))), "{subject}");
        assert!(!revocations.is_revoked(&token("main", Some(subject), Some(11))), "{subject}");
    }
    assert!(!revocations.is_revoked(&token("other", Some("a"), Some(10))));
    revocations.purge(at(101));
    assert!(!revocations.is_revoked(&token("main", Some("a"), Some(10))));
    assert!(revocations.is_revoked(&token("main", Some("b"), Some(10))));
}
