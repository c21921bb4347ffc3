//! Policies: the rules that decide whether a request is allowed.
//!
//! Rules lead to access only through [`Policy::decide`], which fails closed: a rule that can't be evaluated denies,
//! whether it is an `allow` or a `deny` rule.

use std::fmt;
use std::sync::Arc;

use crate::expression::{Condition, Fault};
use crate::overrides::HasOverrides;

#[cfg(test)]
mod tests;

/// The rules of a route.
///
/// A request is denied if a `deny` rule is true, or if there are `allow` rules and none of them is true. All `deny`
/// rules are evaluated first, then the `allow` rules in order until one is true. The first rule that can't be evaluated
/// denies.
pub struct Policy<R: 'static> {
    rules: Arc<[Rule<R>]>,
}

/// One rule.
#[derive(Debug)]
pub struct Rule<R: 'static> {
    /// The effect if the condition is true.
    pub effect: Effect,
    /// The condition of the rule.
    pub condition: Condition<R>,
    /// The operator's text that is logged if the rule decides.
    pub reason: Option<Box<str>>,
    /// Whether the caller is told the reason.
    pub show: bool,
}

/// The effect of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The request is allowed.
    Allow,
    /// The request is denied.
    Deny,
}

/// A decision.
#[must_use = "a decision that nobody looks at lets everybody in"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request is allowed.
    Allowed,
    /// The request is denied.
    Denied {
        /// The index of the rule that decided; `None` if there are `allow` rules and none of them is true.
        rule: Option<usize>,
        /// The fault of the rule, if that was decisive.
        fault: Option<Fault>,
    },
}

impl Decision {
    /// Whether the request is allowed.
    #[must_use]
    pub fn is_allowed(self) -> bool {
        self == Decision::Allowed
    }
}

impl<R: HasOverrides> Policy<R> {
    /// A policy of these rules. Without rules, everything is allowed.
    #[must_use]
    pub fn new(rules: Vec<Rule<R>>) -> Self {
        Self { rules: rules.into() }
    }

    /// Decides whether a request is allowed.
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

    /// All rules with their results, for explanations.
    pub fn explain<'p>(&'p self, request: &'p R) -> impl Iterator<Item = (&'p Rule<R>, Result<bool, Fault>)> {
        self.rules.iter().map(|rule| (rule, rule.condition.test(request)))
    }
}

impl<R> Policy<R> {
    /// The rules in order.
    #[must_use]
    pub fn rules(&self) -> &[Rule<R>] {
        &self.rules
    }
}

impl<R> Clone for Policy<R> {
    fn clone(&self) -> Self {
        Self { rules: Arc::clone(&self.rules) }
    }
}

impl<R> fmt::Debug for Policy<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.rules.iter().map(|rule| (rule.effect, rule.condition.source()));
        f.debug_list().entries(rules).finish()
    }
}
