//! Access requirements compared with verdicts.

use super::*;
use crate::verdict::Caller;

fn verdict(issuer: &str, audiences: &[&str], scopes: &[&str], roles: &[&str]) -> Verdict {
    let owned = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
    Verdict {
        caller: Caller {
            issuer_name: issuer.into(),
            audiences: owned(audiences),
            scopes: owned(scopes),
            roles: owned(roles),
            ..Caller::default()
        },
        ..Verdict::inverted()
    }
}

fn alternative(issuer: &str, audiences: &[&str], scopes: &[&str], roles: &[&str]) -> Alternative {
    let owned = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
    Alternative {
        issuer: issuer.to_owned(),
        audiences: owned(audiences),
        scopes: owned(scopes),
        roles: owned(roles),
    }
}

#[test]
fn audience_scopes_and_roles_are_bound_to_the_issuer() {
    let requirement = AccessRequirement {
        alternatives: vec![
            alternative("main", &["api", "api2"], &["read", "write"], &["admin", "ops"]),
            alternative("partner", &["api"], &[], &[]),
        ],
    };
    let scope = || AccessRequirementError::Scope { needed: "read write".to_owned() };
    let role = || AccessRequirementError::Role { needed: vec!["admin".to_owned(), "ops".to_owned()] };
    let full = ["read", "write", "more"];
    let table = [
        (verdict("main", &["x", "api2"], &full, &["ops"]), Ok(())),
        (verdict("partner", &["api"], &[], &[]), Ok(())),
        (verdict("partner", &["api2"], &full, &["ops"]), Err(AccessRequirementError::Audience)),
        (verdict("other", &["api"], &full, &["ops"]), Err(AccessRequirementError::Issuer)),
        (verdict("Main", &["api"], &full, &["ops"]), Err(AccessRequirementError::Issuer)),
        (verdict("main", &["x"], &full, &["ops"]), Err(AccessRequirementError::Audience)),
        (verdict("main", &["API"], &full, &["ops"]), Err(AccessRequirementError::Audience)),
        (verdict("main", &["api"], &["read"], &["ops"]), Err(scope())),
        (verdict("main", &["api"], &["read", "writer"], &["ops"]), Err(scope())),
        (verdict("main", &["api"], &full, &["op"]), Err(role())),
        (Verdict::inverted(), Err(AccessRequirementError::Issuer)),
    ];
    for (index, (verdict, expected)) in table.into_iter().enumerate() {
        assert_eq!(requirement.check(&verdict), expected, "case {index}");
    }
}

#[test]
fn nothing_passes_an_empty_requirement_or_empty_audiences() {
    let verdict = verdict("main", &["api"], &[], &[]);
    assert!(AccessRequirement::default().check(&verdict).is_err());
    let open = AccessRequirement { alternatives: vec![alternative("main", &[], &[], &[])] };
    assert_eq!(open.check(&verdict), Err(AccessRequirementError::Audience));
}

#[test]
fn groups_that_were_left_out_fail_closed_with_their_own_reason() {
    let requirement =
        AccessRequirement { alternatives: vec![alternative("main", &["api"], &[], &["admins"])] };
    let mut verdict = verdict("main", &["api"], &[], &[]);
    verdict.caller.groups_overage = true;
    assert_eq!(requirement.check(&verdict), Err(AccessRequirementError::GroupsOverage));
    verdict.caller.roles.push("admins".to_owned());
    assert_eq!(requirement.check(&verdict), Ok(()));
}

#[test]
fn resolving_fills_in_the_first_audience_and_refuses_what_could_never_pass() {
    let issuers = [IssuerConfig {
        name: "main".to_owned(),
        issuer: "https://id.example".to_owned(),
        audiences: vec!["first".to_owned(), "second".to_owned()],
        ..IssuerConfig::default()
    }];
    let resolve = |alternative| AccessRequirement::resolve(vec![alternative], &issuers);
    let requirement = resolve(alternative("main", &[], &[], &[])).unwrap();
    assert_eq!(requirement.check(&verdict("main", &["first"], &[], &[])), Ok(()));
    assert_eq!(
        requirement.check(&verdict("main", &["second"], &[], &[])),
        Err(AccessRequirementError::Audience)
    );
    assert!(resolve(alternative("main", &["second"], &[], &[])).is_ok());
    assert!(resolve(alternative("main", &["third"], &[], &[])).is_err());
    assert!(resolve(alternative("mein", &[], &[], &[])).is_err());
    assert!(AccessRequirement::resolve(Vec::new(), &issuers).is_err());
}

#[test]
fn codes_separate_a_useless_token_from_a_missing_right() {
    assert!(AccessRequirementError::Issuer.is_invalid_token());
    assert!(AccessRequirementError::Audience.is_invalid_token());
    for error in [
        AccessRequirementError::Scope { needed: String::new() },
        AccessRequirementError::Role { needed: Vec::new() },
        AccessRequirementError::GroupsOverage,
    ] {
        assert!(!error.is_invalid_token(), "{}", error.code());
    }
}
