//! Conditions of routes, headers and logs, and the policies of routes: what holds, and what becomes of an evaluation
//! that fails.
//!
//! An evaluation fails where it reads what is not there, or what a client sent with two values. What fails is counted,
//! and logged within a [`WarningLimit`]: clients can make it fail as often as they like.

use std::sync::atomic::Ordering::Relaxed;

use cardea_env::{Condition, Decision, Expression, Fault, Policy, Scratch, Value};

use crate::{
    exchange::{Exchange, PolicyFacts, PolicyScope},
    model::{AttributeChange, AttributeRule, LogModel, Model, Route},
    refusal::Reason,
    warning_limit::WarningLimit,
};

/// Counts a failed evaluation, and reports it if that is due.
pub(crate) fn note(condition: &Condition<Exchange>, fault: Fault, exchange: &Exchange) {
    note_fault(condition.source(), || condition.describe(fault), exchange);
}

/// The same for the text of any expression.
fn note_fault(expression: &str, describe: impl FnOnce() -> String, exchange: &Exchange) {
    static WARNINGS: WarningLimit = WarningLimit::new();
    exchange.faults.fetch_add(1, Relaxed);
    if let Some(suppressed) = WARNINGS.admit(exchange.started.mono) {
        let route = exchange.route().map_or("", |route| route.name.as_str());
        let why = describe();
        tracing::warn!(
            route, request = %exchange.id, expression, why, suppressed, "an expression can't be evaluated"
        );
    }
}

/// The value of an expression for a request. A failure is noted.
pub(crate) fn value<'e>(
    expression: &'e Expression<Exchange>,
    exchange: &'e Exchange,
    scratch: &'e Scratch,
) -> Option<Value<'e>> {
    expression
        .evaluate(exchange, scratch)
        .inspect_err(|fault| note_fault(expression.source(), || expression.describe(*fault), exchange))
        .ok()
}

/// Whether a request gets a line in the access log.
pub(crate) fn is_logged(log: &LogModel, exchange: &Exchange) -> bool {
    // What can't be evaluated is logged: nobody may keep a request out of the log by making it fail.
    let holds = |condition: &Condition<Exchange>| {
        condition.test(exchange).unwrap_or_else(|fault| {
            note(condition, fault, exchange);
            true
        })
    };
    if log.when.as_ref().is_some_and(|condition| !holds(condition)) {
        return false;
    }
    log.sample_one_in <= 1
        || exchange.id.sample().is_multiple_of(u64::from(log.sample_one_in))
        || log.sample_always.as_ref().is_some_and(holds)
}

/// Changes the attributes of a request as its route says.
pub(crate) fn change_attributes(rules: &[AttributeRule], exchange: &mut Exchange) {
    for AttributeRule { when, name, change } in rules {
        match when.as_ref().map_or(Ok(true), |condition| condition.test(exchange)) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(fault) => {
                if let Some(condition) = when {
                    note(condition, fault, exchange);
                }
                // Whether it should read as something else is not known: what reads it must not go by the old value.
                let _ = exchange.overrides.remove(name);
                continue;
            }
        }
        let changed = match change {
            AttributeChange::Set(template) => {
                let (text, rendered) = template.text(exchange);
                // What is made of nothing is nothing.
                if rendered.absent && text.value() == Value::Bytes(b"") {
                    exchange.overrides.remove(name)
                } else {
                    exchange.overrides.set(name, text)
                }
            }
            AttributeChange::Remove => exchange.overrides.remove(name),
        };
        // Checked when the configuration was loaded.
        debug_assert!(changed.is_ok());
    }
}

/// Whether the policies of the gateway and of the route let a request in.
pub(crate) fn check(model: &Model, route: &Route, exchange: &mut Exchange) -> Result<(), Reason> {
    if let Some(policy) = &model.environment.policy {
        decide(policy, PolicyScope::Gateway, exchange)?;
    }
    match &route.rules.policy {
        Some(policy) => decide(policy, PolicyScope::Route, exchange),
        None => Ok(()),
    }
}

fn decide(policy: &Policy<Exchange>, scope: PolicyScope, exchange: &mut Exchange) -> Result<(), Reason> {
    let decision = policy.decide(exchange);
    let (rule, fault) = match decision {
        Decision::Allowed => {
            exchange.policy = Some(PolicyFacts { scope, allowed: true, rule: None });
            return Ok(());
        }
        Decision::Denied { rule, fault } => (rule, fault),
    };
    let place = rule.and_then(|rule| u32::try_from(rule).ok());
    exchange.policy = Some(PolicyFacts { scope, allowed: false, rule: place });
    let decided = rule.and_then(|rule| policy.rules().get(rule));
    if let Some(fault) = fault {
        if let Some(rule) = decided {
            note(&rule.condition, fault, exchange);
        }
        return Err(Reason::PolicyFailed);
    }
    let detail = decided.filter(|rule| rule.show).and_then(|rule| rule.reason.clone());
    Err(Reason::PolicyDenied(detail))
}
