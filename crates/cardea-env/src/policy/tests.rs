//! Tests of policies: what is allowed, and that everything else is denied.

use super::*;
use crate::testing::{names, request};

fn policy(rules: &[(Effect, &str)]) -> Policy<crate::testing::Request> {
    let names = names();
    let rule = |(effect, text): &(Effect, &str)| Rule {
        effect: *effect,
        condition: Condition::compile(text, &names).unwrap(),
        reason: None,
        show: false,
    };
    Policy::new(rules.iter().map(rule).collect())
}

/// The index of the rule that denies, and whether by a fault.
type Denied = Option<(Option<usize>, bool)>;

#[test]
fn rules_decide() {
    use Effect::{Allow, Deny};
    let denied = |rule| Some((rule, false));
    let failed = |rule| Some((Some(rule), true));
    let broken = "1 / 0 == 1";
    let cases: [(&[(Effect, &str)], Denied); 13] = [
        (&[], None),
        (&[(Allow, "true")], None),
        (&[(Allow, "false")], denied(None)),
        (&[(Allow, "false"), (Allow, "true")], None),
        (&[(Deny, "false")], None),
        (&[(Deny, "true")], denied(Some(0))),
        (&[(Allow, "true"), (Deny, "true")], denied(Some(1))),
        (&[(Allow, broken)], failed(0)),
        (&[(Deny, broken)], failed(0)),
        (&[(Allow, "true"), (Deny, broken)], failed(1)),
        (&[(Allow, broken), (Allow, "true")], failed(0)),
        (&[(Allow, "true"), (Allow, broken)], None),
        (&[(Deny, "false"), (Allow, "token.claims.none == 1")], failed(1)),
    ];
    for (rules, expected) in cases {
        let found = match policy(rules).decide(&request()) {
            Decision::Allowed => None,
            Decision::Denied { rule, fault } => Some((rule, fault.is_some())),
        };
        assert_eq!(found, expected, "{rules:?}");
        assert_eq!(policy(rules).decide(&request()).is_allowed(), expected.is_none());
    }
}

#[test]
fn each_rule_is_explained() {
    let policy = policy(&[(Effect::Allow, "true"), (Effect::Deny, "token.claims.none == 1")]);
    let request = request();
    let explained: Vec<bool> = policy.explain(&request).map(|(_, result)| result == Ok(true)).collect();
    assert_eq!(explained, [true, false]);
    assert_eq!(policy.rules().len(), 2);
}
