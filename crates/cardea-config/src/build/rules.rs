//! Compiles the expressions and templates of a configuration: attributes, policies, header changes, the access log.

use std::{collections::HashSet, sync::Arc};

use cardea_env::{
    CommonFields, CommonForm, CommonLog, Condition, Effect, Expression, ExpressionError, JsonRecord,
    Lookup as _, Names, Owned, Policy, RecordError, Reference, Rule, Template, TemplateError, ValueSource,
};
use cardea_gateway::{
    attributes,
    exchange::Exchange,
    model::{
        AttributeChange, AttributeRule, EnvironmentModel, HeaderRule, HeadersRead, LogFormat, LogModel,
        Route, RouteRules,
    },
    routing::Router,
};
use cardea_http::HeaderNameSet;

use super::{
    super::{
        model,
        resolve::hostname,
        rules::{self, AttributeSource, FieldTemplate},
    },
    Builder,
};

/// The end of all remedies.
const ATTRIBUTES: &str = "docs/attributes.md lists all attributes";

/// What is known before the route is.
pub(super) const KNOWN_BEFORE_ROUTE: [&str; 5] =
    ["request.", "source.", "destination.", "connection.", "gateway."];

/// What of these is known only at the end.
pub(super) const KNOWN_AT_THE_END: [&str; 2] = ["request.size", "request.duration"];

/// The families of request headers.
const HEADERS: [&str; 2] = ["request.headers", "request.first_header"];

/// The family of the parameters of a route's pattern.
const PATH_PARAMETERS: &str = "route.parameters";

/// The attributes that always exist.
pub(super) fn fixed_names() -> Names<Exchange> {
    Names::new(&attributes::TABLE).with_redaction(attributes::redaction())
}

/// What a client writes as it likes.
const CHOSEN_BY_CLIENT: [&str; 4] =
    ["request.query", "request.headers", "request.first_header", "request.cookies"];

impl Builder<'_> {
    /// Declares the custom attributes.
    pub(super) fn declare(&mut self) {
        for attribute in &self.config.attributes {
            let name = format!("custom.{}", attribute.name);
            let source = match source(&attribute.source, &self.names) {
                Ok(source) => source,
                Err((at, position, message, suggestion)) => {
                    self.text_problem(at, position, message, suggestion.as_deref());
                    // Rules that read it must not be reported as reading an unknown attribute.
                    ValueSource::Nothing
                }
            };
            if let Err(error) = self.names.declare(&name, source)
                && attribute.is_sound
            {
                self.problem(attribute.at, error, "give it another name");
            }
        }
    }

    /// The rules of all requests. It takes the names, so nothing can be compiled after it.
    pub(super) fn environment(&mut self) -> EnvironmentModel {
        let config = self.config;
        let policy = self.policy(&config.policy);
        let request_headers = self.header_rules(&config.request_headers);
        let response_headers = self.header_rules(&config.response_headers);
        let reads_path = self.policy_reads(policy.as_ref(), is_path)
            || self.headers_read_path(&request_headers)
            || self.headers_read_path(&response_headers);
        let reads_time = self.policy_reads(policy.as_ref(), is_time) || self.time_chooses;
        let headers_read = self.headers_read();
        let names = std::mem::replace(&mut self.names, fixed_names());
        EnvironmentModel {
            hostname: hostname(),
            policy,
            names: Some(names),
            headers_read,
            header_encoding: config.header_encoding,
            request_headers: request_headers.into(),
            response_headers: response_headers.into(),
            reads_path,
            reads_time,
        }
    }

    pub(super) fn route_rules(&mut self, route: &model::Route) -> RouteRules {
        let mut rules = RouteRules {
            when: route.when.as_ref().and_then(|when| self.condition(when)),
            policy: self.policy(&route.policy),
            ..RouteRules::default()
        };
        if let (Some(condition), Some(written)) = (&rules.when, &route.when) {
            // An attribute that could not be compiled was reported already.
            let has_source = |name: &str| {
                let mut attributes = self.config.attributes.iter();
                attributes.any(|one| one.name == name && one.source != AttributeSource::Nothing)
            };
            let is_late = |source: &String| match source.strip_prefix("custom.") {
                Some(name) => !has_source(name),
                None => {
                    KNOWN_AT_THE_END.contains(&source.as_str())
                        || !KNOWN_BEFORE_ROUTE.iter().any(|known| source.starts_with(known))
                }
            };
            let late = condition.references().find_map(|(name, reference)| {
                Some((name, self.names.sources(reference).into_iter().find(is_late)?))
            });
            if let Some((name, source)) = late {
                let what = if name.starts_with("custom.") && source != name {
                    format!("\"{name}\" reads \"{source}\", which")
                } else {
                    format!("\"{name}\"")
                };
                self.problem(
                    written.at,
                    format!("{what} is not known yet where a route is chosen"),
                    "read request, source, destination, connection or gateway, or attributes made of these; what the caller may is for policy",
                );
            }
        }
        for edits in &route.attributes {
            self.attribute_edits(edits, &mut rules.attributes);
        }
        let when_reads = |is: Is| rules.when.as_ref().is_some_and(|when| self.condition_reads(when, is));
        let decision_reads = |is: Is| {
            self.policy_reads(rules.policy.as_ref(), is)
                || rules.attributes.iter().any(|rule| self.attribute_rule_reads(rule, is))
        };
        let (when_reads_path, when_reads_time) = (when_reads(is_path), when_reads(is_time));
        let (reads_path, reads_time) = (decision_reads(is_path), decision_reads(is_time));
        self.time_chooses |= when_reads_time;
        RouteRules { when_reads_path, reads_path, reads_time, ..rules }
    }

    fn policy_reads(&self, policy: Option<&Policy<Exchange>>, is: Is) -> bool {
        policy
            .is_some_and(|policy| policy.rules().iter().any(|rule| self.condition_reads(&rule.condition, is)))
    }

    fn attribute_rule_reads(&self, rule: &AttributeRule, is: Is) -> bool {
        rule.when.as_ref().is_some_and(|when| self.condition_reads(when, is))
            || matches!(&rule.change, AttributeChange::Set(template)
                if template.references().any(|reference| self.reads(reference, is)))
    }

    fn condition_reads(&self, condition: &Condition<Exchange>, is: Is) -> bool {
        condition.references().any(|(_, reference)| self.reads(reference, is))
    }

    /// Whether it is what is asked for, also by way of attributes of the configuration.
    pub(super) fn reads(&self, reference: &Reference<Exchange>, is: Is) -> bool {
        self.names.sources(reference).iter().any(|source| is(source))
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

    /// Warns of routes that allow ambiguous slashes or backslashes while their rules read the path. Path parameters are
    /// allowed only on purpose, for services that keep them.
    pub(super) fn check_allowed_paths(&mut self, router: &Router<Arc<Route>>, always_read: bool) {
        let config = self.config;
        let reading: HashSet<&str> = router
            .values()
            .filter(|route| always_read || route.rules.reads_path || route.rules.when_reads_path)
            .map(|route| route.name.as_str())
            .collect();
        for route in config.routes.iter().filter(|route| reading.contains(route.name.as_str())) {
            let allow = &route.allow_encoded;
            let spellings: Vec<&str> =
                [(allow.slash, "%2F"), (allow.encoded_backslash, "%5C"), (allow.backslash, "\\")]
                    .into_iter()
                    .filter(|(is_allowed, _)| *is_allowed)
                    .map(|(_, spelling)| spelling)
                    .collect();
            if spellings.is_empty() {
                continue;
            }
            let message = format!(
                "the route {:?} lets {} pass in paths, and a policy or a condition reads the path: a service that \
                 reads it as a slash serves another path than the one that was judged",
                route.name,
                spellings.join(", ")
            );
            let remedy = "remove it from allow_encoded, or give the paths that need it a route whose rules do not read them";
            self.warn(route.at, message, remedy);
        }
    }

    /// Warns of a redirect to a host that the client chooses.
    pub(super) fn check_redirect(&mut self, route: &model::Located<model::Route>, to: &FieldTemplate) {
        let Some(reference) = self.host_by_client(&to.text) else { return };
        let message = format!(
            "the redirect of the route {:?} leads wherever the client says: {reference} is part of the host",
            route.name
        );
        let remedy = "write the host, or choose it by an attribute with a map";
        self.warn(to.at, message, remedy);
    }

    /// The reference by which the client chooses the host of a place. What is computed of the client's words, as by a map, is
    /// the configuration's choice.
    fn host_by_client<'t>(&self, to: &'t str) -> Option<&'t str> {
        // `//host` is another host too (RFC 3986 §4.2).
        let (mut rest, is_url) = match to.split_once("://") {
            Some((_, rest)) => (rest, true),
            None => (to.strip_prefix('/')?, false),
        };
        let mut is_begun = false;
        loop {
            if !rest.starts_with('{') || rest.starts_with("{{") {
                let first =
                    rest.chars().next().filter(|first| is_url && !matches!(first, '/' | '?' | '#'))?;
                rest = rest.get(first.len_utf8()..)?;
                is_begun = true;
                continue;
            }
            let (reference, behind) = rest.split_at_checked(reference_len(rest))?;
            let template = Template::compile_raw(reference, &self.names).ok()?;
            let computed = self.names.computed_from(&template);
            let sources = template.references().flat_map(|reference| self.names.sources(reference));
            let shown: Vec<String> = sources.filter(|source| !computed.contains(source)).collect();
            let begins_path = shown.iter().any(|source| source == "request.path");
            // A path ends the host, where there is one; a parameter of a path begins with no slash.
            if begins_path && is_begun {
                return None;
            }
            let is_chosen = |source: &String| {
                CHOSEN_BY_CLIENT.iter().any(|family| source.starts_with(family))
                    || is_url && source.starts_with("route.parameters")
            };
            if begins_path || shown.iter().any(is_chosen) {
                return Some(reference);
            }
            if !is_url {
                return None;
            }
            (rest, is_begun) = (behind, true);
        }
    }

    /// Whether a template of the redirect reads the query, and so says what becomes of it.
    pub(super) fn reads_query(&self, template: &Template<Exchange>) -> bool {
        template.references().any(|reference| {
            self.names.sources(reference).iter().any(|source| source.starts_with("request.query"))
        })
    }

    fn attribute_edits(&mut self, edits: &rules::AttributeEdits, rules: &mut Vec<AttributeRule>) {
        let mut changes = Vec::new();
        for name in &edits.remove {
            changes.extend(self.reference(name).map(|name| (name, AttributeChange::Remove)));
        }
        for (name, value) in &edits.set {
            let change = self.template(value).map(AttributeChange::Set);
            changes.extend(self.reference(name).zip(change));
        }
        for (name, change) in changes {
            // Conditions are small, and can't be shared.
            let when = edits.when.as_ref().and_then(|when| self.condition(when));
            rules.push(AttributeRule { when, name, change });
        }
    }

    pub(super) fn header_rules(&mut self, edits: &[rules::FieldEdits]) -> Vec<HeaderRule> {
        let mut all = Vec::new();
        for edits in edits {
            let mut rules: Vec<HeaderRule> = Vec::new();
            rules.extend(edits.rename.iter().map(|(from, to)| HeaderRule::Rename(from.clone(), to.clone())));
            rules.extend(edits.remove.iter().cloned().map(HeaderRule::Remove));
            for (name, value) in &edits.set {
                rules.extend(self.template(value).map(|value| HeaderRule::Set(name.clone(), value)));
            }
            for (name, value) in &edits.add {
                rules.extend(self.template(value).map(|value| HeaderRule::Add(name.clone(), value)));
            }
            match &edits.when {
                None => all.append(&mut rules),
                Some(when) => {
                    all.extend(self.condition(when).map(|condition| HeaderRule::When(condition, rules)));
                }
            }
        }
        all
    }

    /// A policy; `None` without rules. A rule that can't be compiled is an error, so that nothing is built.
    fn policy(&mut self, rules: &[rules::PolicyRule]) -> Option<Policy<Exchange>> {
        let mut compiled = Vec::with_capacity(rules.len());
        for rule in rules {
            compiled.extend(self.condition(&rule.condition).map(|condition| Rule {
                effect: if rule.allows { Effect::Allow } else { Effect::Deny },
                condition,
                reason: rule.reason.as_deref().map(Into::into),
                show: rule.show,
            }));
        }
        (!compiled.is_empty()).then(|| Policy::new(compiled))
    }

    pub(super) fn condition(&mut self, written: &FieldTemplate) -> Option<Condition<Exchange>> {
        match Condition::compile(&written.text, &self.names) {
            Ok(condition) => {
                self.note_headers(condition.references().map(|(_, reference)| reference));
                Some(condition)
            }
            Err(error) => self.expression_problem(written, error),
        }
    }

    /// A template for headers and attributes.
    pub(super) fn template(&mut self, written: &FieldTemplate) -> Option<Template<Exchange>> {
        match Template::compile(&written.text, &self.names) {
            Ok(template) => Some(self.noted(template)),
            Err(error) => self.template_problem(written, error),
        }
    }

    /// A template that may contain secrets: a redirect returns them only to the client that sent them.
    pub(super) fn raw_template(&mut self, written: &FieldTemplate) -> Option<Template<Exchange>> {
        match Template::compile_raw(&written.text, &self.names) {
            Ok(template) => Some(self.noted(template)),
            Err(error) => self.template_problem(written, error),
        }
    }

    fn noted(&mut self, template: Template<Exchange>) -> Template<Exchange> {
        self.note_headers(template.references());
        template
    }

    /// Notes which headers of requests are read, also by way of attributes of the configuration.
    pub(super) fn note_headers<'r>(&mut self, references: impl Iterator<Item = &'r Reference<Exchange>>) {
        for reference in references {
            for source in self.names.sources(reference) {
                let name = HEADERS
                    .iter()
                    .find_map(|family| source.strip_prefix(family))
                    .map(|name| name.strip_prefix('.'));
                match name {
                    None => {}
                    Some(Some(name)) => drop(self.headers_read.insert(name.to_owned())),
                    Some(None) => self.any_header_read = true,
                }
            }
        }
    }

    /// The request headers that compiled rules read or that routes match.
    fn headers_read(&self) -> HeadersRead {
        let matched =
            self.config.routes.iter().flat_map(|route| &route.matches.headers).map(|(name, _)| name);
        // A name that is no token can't be that of a received field.
        let names = self.headers_read.iter().chain(matched).filter(|name| HeaderNameSet::new([name]).is_ok());
        HeadersRead { names: HeaderNameSet::new(names).unwrap_or_default(), all: self.any_header_read }
    }

    /// A template of a key, which is never shown.
    pub(super) fn hash_policy(&mut self, written: &FieldTemplate) -> Option<Template<Exchange>> {
        let template = self.raw_template(written)?;
        if template.constant().is_some() {
            self.problem(
                written.at,
                "it reads no attribute, so that all requests would go to one endpoint",
                "name one in braces: \"{token.sub}\"",
            );
        }
        Some(template)
    }

    pub(super) fn reference(&mut self, written: &FieldTemplate) -> Option<Reference<Exchange>> {
        match self.names.resolve(&written.text) {
            Ok(reference) => Some(reference),
            Err(error) => {
                self.text_problem(written, 0, error.to_string(), error.suggestion());
                None
            }
        }
    }

    pub(super) fn access_log(&mut self) -> Option<LogModel> {
        let config = &self.config.access_log;
        if !config.enabled {
            return None;
        }
        let mut condition = |written: &Option<FieldTemplate>| match written {
            None => Some(None),
            Some(written) => self.condition(written).map(Some),
        };
        let (when, sample_always) = (condition(&config.when), condition(&config.sample_always));
        let format = match &config.format {
            rules::AccessLogFormat::Template(text) => {
                let written = FieldTemplate { text: text.clone(), at: config.format_at };
                match Template::compile(text, &self.names) {
                    Ok(template) => LogFormat::Template(template),
                    Err(error) => return self.template_problem(&written, error),
                }
            }
            rules::AccessLogFormat::Json(fields) => LogFormat::Json(self.json_record(fields)?),
            rules::AccessLogFormat::Common => {
                LogFormat::Common(Box::new(self.common_log(CommonForm::Common)?))
            }
            rules::AccessLogFormat::Combined => {
                LogFormat::Common(Box::new(self.common_log(CommonForm::Combined)?))
            }
        };
        let (when, sample_always) = (when?, sample_always?);
        Some(LogModel { format, when, sample_one_in: config.sample_one_in, sample_always })
    }

    fn common_log(&mut self, form: CommonForm) -> Option<CommonLog<Exchange>> {
        // Repeated fields are shown too.
        let fields = CommonFields {
            referrer: "request.first_header.referer",
            agent: "request.first_header.user-agent",
            ..CommonFields::default()
        };
        match CommonLog::compile(form, &fields, &self.names) {
            Ok(log) => Some(log),
            Err(error) => {
                self.problem(self.config.access_log.format_at, error, "use a template");
                None
            }
        }
    }

    fn json_record(&mut self, fields: &[(String, FieldTemplate)]) -> Option<JsonRecord<Exchange>> {
        let chosen = fields.iter().map(|(name, attribute)| (name.as_str(), attribute.text.as_str()));
        let compiled = if fields.is_empty() {
            JsonRecord::compile(attributes::LOG_FIELDS.iter().copied(), &self.names)
        } else {
            JsonRecord::compile(chosen, &self.names)
        };
        match compiled {
            Ok(record) => Some(record),
            Err(error) => {
                let field = match &error {
                    RecordError::Attribute { index, .. } => fields.get(*index),
                    _ => None,
                };
                let suggestion = match &error {
                    RecordError::Attribute { source, .. } => source.suggestion().map(str::to_owned),
                    _ => None,
                };
                match field {
                    Some((_, written)) => {
                        self.text_problem(written, 0, error.to_string(), suggestion.as_deref());
                    }
                    None => self.problem(self.config.access_log.format_at, error, "use other fields"),
                }
                None
            }
        }
    }

    /// Whether a problem follows from a custom attribute that could not be resolved.
    fn follows(&self, message: &str) -> bool {
        self.config.lost_attributes && message.contains("custom.")
    }

    pub(super) fn expression_problem<T>(
        &mut self,
        written: &FieldTemplate,
        error: ExpressionError,
    ) -> Option<T> {
        if self.follows(&error.message) {
            return None;
        }
        let at = self.config.sources.within(written.at, &written.text, error.position);
        let remedy = match error.suggestion {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => "docs/policies.md says what expressions can do".to_owned(),
        };
        self.problem(at, error.message, &remedy);
        None
    }

    fn template_problem<T>(&mut self, written: &FieldTemplate, error: TemplateError) -> Option<T> {
        self.text_problem(written, error.position, error.message, error.suggestion.as_deref());
        None
    }

    /// Reports a problem at a position in a written text.
    fn text_problem(
        &mut self,
        written: &FieldTemplate,
        position: usize,
        message: String,
        suggestion: Option<&str>,
    ) {
        if self.follows(&message) {
            return;
        }
        let at = self.config.sources.within(written.at, &written.text, position);
        let remedy =
            suggestion.map_or_else(|| ATTRIBUTES.to_owned(), |near| format!("did you mean \"{near}\"?"));
        self.problem(at, message, &remedy);
    }
}

/// Whether this is the name of the path, or of a part of it.
pub(super) fn is_path(source: &str) -> bool {
    source == "request.path" || source.starts_with(PATH_PARAMETERS)
}

/// Whether this is the name of the time.
fn is_time(source: &str) -> bool {
    source == "request.time"
}

/// Selects names of the table.
type Is = fn(&str) -> bool;

type SourceError<'a> = (&'a FieldTemplate, usize, String, Option<String>);

/// The source of an attribute, compiled with the names declared before it.
fn source<'a>(
    source: &'a AttributeSource,
    names: &Names<Exchange>,
) -> Result<ValueSource<Exchange>, SourceError<'a>> {
    let template = |written: &'a FieldTemplate| {
        Template::compile_raw(&written.text, names)
            .map_err(|error| (written, error.position, error.message, error.suggestion))
    };
    Ok(match source {
        AttributeSource::Nothing => ValueSource::Nothing,
        AttributeSource::Attribute(written) => ValueSource::Attribute(
            names
                .resolve(&written.text)
                .map_err(|error| (written, 0, error.to_string(), error.suggestion().map(str::to_owned)))?,
        ),
        AttributeSource::Template(written) => ValueSource::Template(template(written)?),
        AttributeSource::Expression(written) => {
            let expression = Expression::compile(&written.text, names)
                .map_err(|error| (written, error.position, error.message, error.suggestion))?;
            ValueSource::Expression(expression)
        }
        AttributeSource::Map { key, entries, default } => ValueSource::Map {
            key: template(key)?,
            entries: Arc::clone(entries),
            default: default.as_ref().map(|text| Owned::text(text.as_bytes())),
        },
    })
}

/// The length of the reference or expression that a text of a template begins with, braces included.
fn reference_len(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return at + 1,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}
