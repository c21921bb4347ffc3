//! Policies: the rules that decide whether a request may go on.
//!
//! There is one way from rules to entry, [`Policy::decide`], and it fails closed: a rule that can't be evaluated
//! denies, whether it would have allowed or denied.

use std::fmt;

use crate::expression::{Condition, Fault};
use crate::overrides::HasOverrides;

#[cfg(test)]
mod tests;

/// The rules of a route.
///
/// A request is denied if a `deny` rule holds, and, where there are `allow` rules, unless one of these holds. All `deny`
/// rules are looked at first, then the `allow` rules in their order until one holds. The first rule that can't be
/// evaluated denies.
pub struct Policy<R: 'static> {
    rules: Vec<Rule<R>>,
}

/// One rule.
#[derive(Debug)]
pub struct Rule<R: 'static> {
    /// What follows if it holds.
    pub effect: Effect,
    /// When it holds.
    pub condition: Condition<R>,
    /// What is logged where it decides; a word or a sentence of the operator's.
    pub reason: Option<Box<str>>,
    /// Whether the caller is told the reason.
    pub show: bool,
}

/// What follows from a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The request may go on.
    Allow,
    /// It may not.
    Deny,
}

/// What was decided.
#[must_use = "a decision that nobody looks at lets everybody in"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request may go on.
    Allowed,
    /// It may not.
    Denied {
        /// The rule that decided, by its place; `None` where there are `allow` rules, and none holds.
        rule: Option<usize>,
        /// Why the rule could not be evaluated, if that is what decided.
        fault: Option<Fault>,
    },
}

impl Decision {
    /// Whether the request may go on.
    #[must_use]
    pub fn is_allowed(self) -> bool {
        self == Decision::Allowed
    }
}

impl<R: HasOverrides> Policy<R> {
    /// A policy of these rules. Without any, everything is allowed.
    #[must_use]
    pub fn new(rules: Vec<Rule<R>>) -> Self {
        Self { rules }
    }

    /// Whether a request may go on.
    pub fn decide(&self, request: &R) -> Decision {
        let mut needed = false;
        for effect in [Effect::Deny, Effect::Allow] {
            let rules = self.rules.iter().enumerate().filter(|(_, rule)| rule.effect == effect);
            for (place, rule) in rules {
                needed |= effect == Effect::Allow;
                match (rule.condition.test(request), effect) {
                    (Ok(true), Effect::Deny) => return Decision::Denied { rule: Some(place), fault: None },
                    (Ok(true), Effect::Allow) => return Decision::Allowed,
                    (Ok(false), _) => {}
                    (Err(fault), _) => return Decision::Denied { rule: Some(place), fault: Some(fault) },
                }
            }
        }
        if needed { Decision::Denied { rule: None, fault: None } } else { Decision::Allowed }
    }

    /// Each rule with what it comes to, for those who want to know why.
    pub fn explain<'p>(&'p self, request: &'p R) -> impl Iterator<Item = (&'p Rule<R>, Result<bool, Fault>)> {
        self.rules.iter().map(|rule| (rule, rule.condition.test(request)))
    }
}

impl<R> Policy<R> {
    /// The rules, in their places.
    #[must_use]
    pub fn rules(&self) -> &[Rule<R>] {
        &self.rules
    }
}

impl<R> fmt::Debug for Policy<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.rules.iter().map(|rule| (rule.effect, rule.condition.source()));
        f.debug_list().entries(rules).finish()
    }
}
