//! Compiles expressions and templates, and records what they read of requests.

use std::collections::BTreeSet;

use cardea_env::{
    Condition, Expression, ExpressionError, Lookup as _, Names, Policy, Reference, Template, TemplateError,
};
use cardea_gateway::{
    attributes,
    exchange::Exchange,
    model::{AttributeChange, AttributeRule, HeaderRule, HeadersRead},
    routing::RouteMatch,
};
use cardea_http::HeaderNameSet;

use super::{
    super::{document::Cursor, model::SourceText},
    Resolver,
};

/// The end of all remedies.
const ATTRIBUTES: &str = "docs/attributes.md lists all attributes";

/// The attributes that are known before the route is.
pub(super) const KNOWN_BEFORE_ROUTE: [&str; 5] =
    ["request.", "source.", "destination.", "connection.", "gateway."];

/// Those of them that are known only at the end.
pub(super) const KNOWN_AT_THE_END: [&str; 2] = ["request.size", "request.duration"];

/// The families of request headers.
const HEADERS: [&str; 2] = ["request.headers", "request.first_header"];

/// The family of the parameters of a route's pattern.
const PATH_PARAMETERS: &str = "route.parameters";

/// The request headers that compiled rules read.
#[derive(Default)]
pub(super) struct HeadersUsed {
    names: BTreeSet<String>,
    all: bool,
}

/// Selects names of the table.
pub(super) type Is = fn(&str) -> bool;

/// Whether this is the name of the path, or of a part of it.
pub(super) fn is_path(source: &str) -> bool {
    source == "request.path" || source.starts_with(PATH_PARAMETERS)
}

/// Whether this is the name of the time.
pub(super) fn is_time(source: &str) -> bool {
    source == "request.time"
}

/// The attributes that always exist.
pub(super) fn fixed_names() -> Names<Exchange> {
    Names::new(&attributes::TABLE).with_redaction(attributes::redaction())
}

impl Resolver<'_> {
    /// An optional condition.
    pub(super) fn condition(
        &mut self,
        written: Option<String>,
        at: Cursor<'_>,
    ) -> Option<Condition<Exchange>> {
        let written = self.expression_text(written, at)?;
        match Condition::compile(&written.text, &self.names) {
            Ok(condition) => {
                self.note_headers(condition.references().map(|(_, reference)| reference));
                Some(condition)
            }
            Err(error) => self.expression_problem(&written, error),
        }
    }

    /// An optional expression of any type. The headers that it reads are not recorded.
    pub(super) fn expression(
        &mut self,
        written: Option<String>,
        at: Cursor<'_>,
    ) -> Option<Expression<Exchange>> {
        let written = self.expression_text(written, at)?;
        Expression::compile(&written.text, &self.names)
            .map_or_else(|error| self.expression_problem(&written, error), Some)
    }

    fn expression_text(&mut self, written: Option<String>, at: Cursor<'_>) -> Option<SourceText> {
        let text = written?;
        if text.trim().is_empty() {
            self.error(at, "the expression is empty", "write one, or leave the key out");
            return None;
        }
        Some(SourceText { text, at: at.location() })
    }

    /// A template for headers and attributes.
    pub(super) fn template(&mut self, written: &SourceText) -> Option<Template<Exchange>> {
        let compiled = Template::compile(&written.text, &self.names);
        self.compiled(compiled, written)
    }

    /// A template that may contain secrets: its text is compared, or returned to the client that sent them.
    pub(super) fn raw_template(&mut self, written: &SourceText) -> Option<Template<Exchange>> {
        let compiled = Template::compile_raw(&written.text, &self.names);
        self.compiled(compiled, written)
    }

    fn compiled(
        &mut self,
        compiled: Result<Template<Exchange>, TemplateError>,
        written: &SourceText,
    ) -> Option<Template<Exchange>> {
        match compiled {
            Ok(template) => {
                self.note_headers(template.references());
                Some(template)
            }
            Err(error) => self.template_problem(written, error),
        }
    }

    /// An attribute, by its name.
    pub(super) fn reference(&mut self, written: &SourceText) -> Option<Reference<Exchange>> {
        match self.names.resolve(&written.text) {
            Ok(reference) => Some(reference),
            Err(error) => {
                self.text_problem(written, 0, error.to_string(), error.suggestion());
                None
            }
        }
    }

    /// Records which headers of requests are read, also by way of attributes of the configuration.
    pub(super) fn note_headers<'r>(&mut self, references: impl Iterator<Item = &'r Reference<Exchange>>) {
        for reference in references {
            for source in self.names.sources(reference) {
                let name = HEADERS
                    .iter()
                    .find_map(|family| source.strip_prefix(family))
                    .map(|name| name.strip_prefix('.'));
                match name {
                    None => {}
                    Some(Some(name)) => drop(self.headers_used.names.insert(name.to_owned())),
                    Some(None) => self.headers_used.all = true,
                }
            }
        }
    }

    /// The request headers that compiled rules read or that routes match.
    pub(super) fn headers_read<'r>(&self, routes: impl Iterator<Item = &'r RouteMatch>) -> HeadersRead {
        let matched = routes.flat_map(|route| &route.headers).map(|(name, _)| name);
        // A name that is no token can't be that of a received field.
        let names = self.headers_used.names.iter().chain(matched);
        let names = names.filter(|name| HeaderNameSet::new([name]).is_ok());
        HeadersRead { names: HeaderNameSet::new(names).unwrap_or_default(), all: self.headers_used.all }
    }

    /// Whether an attribute is among those asked for, also by way of attributes of the configuration.
    pub(super) fn reads(&self, reference: &Reference<Exchange>, is: Is) -> bool {
        self.names.sources(reference).iter().any(|source| is(source))
    }

    pub(super) fn condition_reads(&self, condition: &Condition<Exchange>, is: Is) -> bool {
        condition.references().any(|(_, reference)| self.reads(reference, is))
    }

    pub(super) fn policy_reads(&self, policy: Option<&Policy<Exchange>>, is: Is) -> bool {
        policy
            .is_some_and(|policy| policy.rules().iter().any(|rule| self.condition_reads(&rule.condition, is)))
    }

    pub(super) fn attribute_rule_reads(&self, rule: &AttributeRule, is: Is) -> bool {
        rule.when.as_ref().is_some_and(|when| self.condition_reads(when, is))
            || matches!(&rule.change, AttributeChange::Set(template)
                if template.references().any(|reference| self.reads(reference, is)))
    }

    /// Whether header changes depend on the path, rather than only containing it.
    pub(super) fn headers_read_path(&self, rules: &[HeaderRule]) -> bool {
        rules.iter().any(|rule| match rule {
            HeaderRule::Set(_, template) | HeaderRule::Add(_, template) => {
                self.names.computed_from(template).iter().any(|source| is_path(source))
            }
            HeaderRule::When(condition, rules) => {
                self.condition_reads(condition, is_path) || self.headers_read_path(rules)
            }
            HeaderRule::Remove(_) | HeaderRule::Rename(..) => false,
        })
    }

    pub(super) fn expression_problem<T>(
        &mut self,
        written: &SourceText,
        error: ExpressionError,
    ) -> Option<T> {
        let remedy = "docs/policies.md says what expressions can do";
        self.position_problem(written, error.position, error.message, error.suggestion.as_deref(), remedy);
        None
    }

    pub(super) fn template_problem<T>(&mut self, written: &SourceText, error: TemplateError) -> Option<T> {
        self.text_problem(written, error.position, error.message, error.suggestion.as_deref());
        None
    }

    /// Reports a problem at a position in a template or a name.
    pub(super) fn text_problem(
        &mut self,
        written: &SourceText,
        position: usize,
        message: String,
        suggestion: Option<&str>,
    ) {
        self.position_problem(written, position, message, suggestion, ATTRIBUTES);
    }

    fn position_problem(
        &mut self,
        written: &SourceText,
        position: usize,
        message: String,
        suggestion: Option<&str>,
        remedy: &str,
    ) {
        // It may follow from a custom attribute that could not be resolved.
        if self.lost_attributes && message.contains("custom.") {
            return;
        }
        let at = self.sources.within(written.at, &written.text, position);
        let remedy = suggestion.map_or_else(|| remedy.to_owned(), |near| format!("did you mean \"{near}\"?"));
        self.problems.add(at, message, remedy);
    }
}
