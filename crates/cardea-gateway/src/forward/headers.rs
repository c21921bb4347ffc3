//! Applies the configured changes to header fields, of requests on their way to services and of responses to clients.
//!
//! Every value is rendered, and every condition asked, before the first change: what a rule reads does not depend on
//! the rules before it. What a template renders can't break out of a field's value, and no rule reaches what frames a
//! message.

use std::ops::Range;

use cardea_env::Escape;
use cardea_http::{Fields, ResponseHead, fold_alike};
use smallvec::SmallVec;

use crate::{
    conditions::note,
    exchange::Exchange,
    fields,
    model::{HeaderRule, HeaderRules, Model, Route},
};

/// Which head of an exchange is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The request's, before it is forwarded.
    Request,
    /// The response's, before it is sent.
    Response,
}

/// What frames a message or concerns its connection: the codec's alone, whatever is configured.
const FRAMING: [&str; 7] =
    ["connection", "content-length", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"];

/// One change, with its value rendered.
enum Step<'r> {
    Set(&'r str, Range<usize>),
    Add(&'r str, Range<usize>),
    Remove(&'r str),
    Rename(&'r str, &'r str),
}

/// Names a response that the gateway makes itself, and applies to it the rules for all responses and those of the route.
pub(crate) fn apply_to(
    head: &mut ResponseHead,
    model: &Model,
    route: Option<&Route>,
    exchange: &mut Exchange,
) {
    fields::name_response(exchange, head);
    let all = &model.environment.response_headers;
    if all.is_empty() && route.is_none_or(|route| route.response_headers.is_empty()) {
        return;
    }
    // The rules work on the exchange's head.
    exchange.response.status = head.status;
    exchange.response_head = std::mem::take(head);
    apply(all, exchange, Side::Response);
    if let Some(route) = route {
        apply(&route.response_headers, exchange, Side::Response);
    }
    *head = std::mem::take(&mut exchange.response_head);
}

/// Applies the rules to the head of `side`.
pub(crate) fn apply(rules: &HeaderRules, exchange: &mut Exchange, side: Side) {
    let rules = rules.rules();
    if rules.is_empty() {
        return;
    }
    let mut values = std::mem::take(&mut exchange.scratch);
    values.clear();
    let mut steps: SmallVec<[Step<'_>; 8]> = SmallVec::new();
    plan(rules, exchange, &mut values, &mut steps);
    let fields = match side {
        Side::Request => &mut exchange.head.fields,
        Side::Response => &mut exchange.response_head.fields,
    };
    for step in steps {
        match step {
            Step::Remove(name) => {
                fields.remove_by_name(name.as_bytes());
            }
            Step::Rename(from, to) => rename(fields, from, to),
            Step::Set(name, value) => {
                fields.remove_by_name(name.as_bytes());
                append(fields, name, values.get(value).unwrap_or_default());
            }
            Step::Add(name, value) => append(fields, name, values.get(value).unwrap_or_default()),
        }
    }
    values.clear();
    exchange.scratch = values;
}

/// What becomes of rules whose condition can't be evaluated: what they would have replaced or removed goes, and nothing
/// takes its place. A client could make the condition fail, by a field with two values for example, and must neither
/// keep what is removed nor get what is given.
fn remove_all<'r>(rules: &'r [HeaderRule], steps: &mut SmallVec<[Step<'r>; 8]>) {
    for rule in rules {
        match rule {
            HeaderRule::Set(name, _) | HeaderRule::Remove(name) if !is_framing(name) => {
                steps.push(Step::Remove(name));
            }
            HeaderRule::Rename(from, to) if !is_framing(from) && !is_framing(to) => {
                steps.extend([Step::Remove(from), Step::Remove(to)]);
            }
            HeaderRule::When(_, rules) => remove_all(rules, steps),
            _ => {}
        }
    }
}

fn is_framing(name: &str) -> bool {
    FRAMING.iter().any(|framing| fold_alike(name.as_bytes(), framing.as_bytes()))
}

fn plan<'r>(
    rules: &'r [HeaderRule],
    exchange: &Exchange,
    values: &mut Vec<u8>,
    steps: &mut SmallVec<[Step<'r>; 8]>,
) {
    for rule in rules {
        let start = values.len();
        match rule {
            HeaderRule::When(condition, rules) => match condition.test(exchange) {
                Ok(true) => plan(rules, exchange, values, steps),
                Ok(false) => {}
                Err(fault) => {
                    note(condition, fault, exchange);
                    remove_all(rules, steps);
                }
            },
            HeaderRule::Set(name, _) | HeaderRule::Add(name, _) | HeaderRule::Remove(name)
                if is_framing(name) => {}
            HeaderRule::Rename(from, to) if is_framing(from) || is_framing(to) => {}
            HeaderRule::Remove(name) => steps.push(Step::Remove(name)),
            HeaderRule::Rename(from, to) => steps.push(Step::Rename(from, to)),
            HeaderRule::Set(name, template) => {
                template.render(exchange, Escape::HeaderValue, values);
                steps.push(Step::Set(name, start..values.len()));
            }
            HeaderRule::Add(name, template) => {
                template.render(exchange, Escape::HeaderValue, values);
                steps.push(Step::Add(name, start..values.len()));
            }
        }
    }
}

/// Appends a value; an empty one is none.
fn append(fields: &mut Fields, name: &str, value: &[u8]) {
    if !value.is_empty() && fields.append(name.as_bytes(), value).is_err() {
        tracing::debug!(header = %name, "a rendered header is invalid and was omitted");
    }
}

/// Gives the values of one field to another. Whatever had the new name goes, even where nothing takes its place: a
/// caller must not be able to send the field by its new name.
fn rename(fields: &mut Fields, from: &str, to: &str) {
    let values: SmallVec<[Vec<u8>; 2]> =
        fields.get_all_by_name(from.as_bytes()).map(<[u8]>::to_vec).collect();
    fields.remove_by_name(to.as_bytes());
    fields.remove_by_name(from.as_bytes());
    for value in &values {
        append(fields, to, value);
    }
}
