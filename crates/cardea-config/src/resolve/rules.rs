//! Policies, and changes to header fields.

use std::collections::BTreeMap;

use cardea_env::{Effect, Policy, Rule, Template};
use cardea_gateway::{
    exchange::Exchange,
    model::{HeaderRule, HeaderRules, IdentityHeaders},
};

use super::{
    super::{
        document::Cursor,
        model::SourceText,
        raw::{OneOrMany, RawFieldEdits, RawPolicyRule},
        source::Location,
    },
    Resolver,
    headers::carries_identity,
};

impl Resolver<'_> {
    /// A policy; `None` without rules.
    pub(super) fn policy(&mut self, raw: Vec<RawPolicyRule>, at: Cursor<'_>) -> Option<Policy<Exchange>> {
        let mut rules = Vec::with_capacity(raw.len());
        for (index, raw) in raw.into_iter().enumerate() {
            let at = at.index(index);
            let (effect, condition) = match (raw.allow, raw.deny) {
                (Some(allow), None) => (Effect::Allow, self.condition(Some(allow), at.key("allow"))),
                (None, Some(deny)) => (Effect::Deny, self.condition(Some(deny), at.key("deny"))),
                (Some(_), Some(_)) => {
                    self.error(at.key("deny"), "a rule allows or denies, not both", "make two rules of it");
                    continue;
                }
                (None, None) => {
                    if !at.lost_any(&["allow", "deny"]) {
                        self.error(
                            at,
                            "a rule of a policy has no expression",
                            "add allow = \"…\" or deny = \"…\"",
                        );
                    }
                    continue;
                }
            };
            if raw.show && raw.reason.is_none() {
                self.error(at.key("show"), "there is no reason that could be shown", "add reason = \"…\"");
            }
            // A rule that was left out was reported, so that nothing is built.
            rules.extend(condition.map(|condition| Rule {
                effect,
                condition,
                reason: raw.reason.map(Into::into),
                show: raw.show,
            }));
        }
        (!rules.is_empty()).then(|| Policy::new(rules))
    }

    /// Changes to the fields of requests or responses, in order.
    pub(super) fn header_rules(
        &mut self,
        raw: OneOrMany<RawFieldEdits>,
        identity: &IdentityHeaders,
        is_request: bool,
        at: Cursor<'_>,
    ) -> HeaderRules {
        let mut all = Vec::new();
        for (index, mut raw) in raw.into_vec().into_iter().enumerate() {
            let at = at.index(index);
            let when = raw.when.take().map(|when| self.condition(Some(when), at.key("when")));
            let mut rules = self.field_edits(raw, identity, is_request, at);
            match when {
                None => all.append(&mut rules),
                Some(when) => all.extend(when.map(|when| HeaderRule::When(when, rules))),
            }
        }
        all.into()
    }

    /// Renames, then removals, then `set`, then `add`.
    fn field_edits(
        &mut self,
        raw: RawFieldEdits,
        identity: &IdentityHeaders,
        is_request: bool,
        at: Cursor<'_>,
    ) -> Vec<HeaderRule> {
        let mut rules = Vec::new();
        for (from, to) in raw.rename {
            let entry = at.key("rename").key(&from);
            let from = self.edited_field(from, entry.key_location(), identity, is_request);
            let to = self.edited_field(to, entry.location(), identity, is_request);
            if from == to {
                self.error(entry, format!("{from} has that name already"), "write another name");
            }
            rules.push(HeaderRule::Rename(from, to));
        }
        for (index, name) in raw.remove.into_iter().enumerate() {
            let location = at.key("remove").index(index).location();
            rules.push(HeaderRule::Remove(self.edited_field(name, location, identity, is_request)));
        }
        let set = self.field_values(raw.set, identity, is_request, at.key("set"));
        rules.extend(set.into_iter().map(|(name, value)| HeaderRule::Set(name, value)));
        let add = self.field_values(raw.add, identity, is_request, at.key("add"));
        rules.extend(add.into_iter().map(|(name, value)| HeaderRule::Add(name, value)));
        rules
    }

    fn field_values(
        &mut self,
        raw: BTreeMap<String, String>,
        identity: &IdentityHeaders,
        is_request: bool,
        at: Cursor<'_>,
    ) -> Vec<(String, Template<Exchange>)> {
        let mut names = Vec::with_capacity(raw.len());
        let mut values = Vec::with_capacity(raw.len());
        for (name, value) in raw {
            let entry = at.key(&name);
            let name = self.edited_field(name, entry.key_location(), identity, is_request);
            if !is_field_value(&value) {
                self.error(
                    entry,
                    format!("the value of {name} has characters that a field cannot carry"),
                    "remove control characters and white space at its ends (RFC 9110 §5.5)",
                );
            }
            if names.contains(&name) {
                self.problems.add(entry.key_location(), format!("{name} is set twice"), "keep one of them");
            }
            names.push(name.clone());
            let written = SourceText { text: value, at: entry.location() };
            values.extend(self.template(&written).map(|value| (name, value)));
        }
        values
    }

    fn edited_field(
        &mut self,
        name: String,
        location: Location,
        identity: &IdentityHeaders,
        is_request: bool,
    ) -> String {
        if is_request && name.eq_ignore_ascii_case("authorization") {
            self.problems.add(
                location,
                "\"authorization\" carries credentials, which no rule sets or reads",
                "to keep it from services, write forward_authorization = false in the route, or authorization = false in [forwarding]",
            );
            return name;
        }
        let name = self.settable_field_name(location, name.clone(), name);
        if is_request && carries_identity(identity, &name) {
            self.problems.add(
                location,
                format!("{name} carries the caller's identity, which only the gateway sets"),
                "choose another field, or change [identity_headers]",
            );
        }
        name
    }
}

/// Whether a text is a field value (RFC 9110 §5.5) in characters that every recipient accepts.
pub(super) fn is_field_value(text: &str) -> bool {
    text.trim_ascii() == text && text.bytes().all(|byte| byte == b'\t' || (byte >= 0x20 && byte != 0x7f))
}
