//! What expressions and templates say of requests: policies, changes to headers and attributes, what is logged.

use std::sync::Arc;

use cardea_env::{CommonLog, Condition, JsonRecord, Names, Policy, Reference, Template};
use cardea_http::HeaderNameSet;

use crate::exchange::Exchange;

/// What holds for requests on all routes.
#[derive(Debug, Clone, Default)]
pub struct EnvironmentModel {
    /// The name of this machine.
    pub hostname: Option<String>,
    /// Who may, on every route; asked before the route's own policy.
    pub policy: Option<Policy<Exchange>>,
    /// All attributes, with those that the configuration adds.
    pub names: Option<Arc<Names<Exchange>>>,
    /// Whether the policy, or a change to headers on all routes, decides by the path.
    pub reads_path: bool,
    /// Whether the policy, or the `when` of any route, reads the time.
    pub reads_time: bool,
    /// The headers of requests that rules read, on any route.
    pub headers_read: HeadersRead,
    /// How the values of headers are read.
    pub header_encoding: HeaderEncoding,
    /// Changes to the headers of every request to a service, before those of its route.
    pub request_headers: HeaderRules,
    /// Changes to the headers of every response, refusals included, before those of its route.
    pub response_headers: HeaderRules,
}

/// The headers of requests that something reads which decides: conditions and policies, matches of routes, templates of
/// headers, attributes, redirects and hash policies.
#[derive(Debug, Clone, Default)]
pub struct HeadersRead {
    /// Their names.
    pub names: HeaderNameSet,
    /// Any header may be read: the name is computed, or all of them are looked at.
    pub all: bool,
}

/// How bytes in the values of headers are read that are not ASCII; they are forwarded and written as they came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HeaderEncoding {
    /// As UTF-8; what is not UTF-8 as Latin-1.
    #[default]
    Utf8,
    /// As Latin-1.
    Latin1,
}

/// What expressions say of a route's requests. Empty for most routes, which then costs three branches.
#[derive(Debug, Clone, Default)]
pub struct RouteRules {
    /// Which requests the route is for, beside what the router matches. It sees what is known before the route is: the
    /// request, its source and its connection.
    pub when: Option<Condition<Exchange>>,
    /// Changes to attributes, once it is known who is calling.
    pub attributes: Arc<[AttributeRule]>,
    /// Who may.
    pub policy: Option<Policy<Exchange>>,
    /// Whether `when` reads the path.
    pub when_reads_path: bool,
    /// Whether anything else that decides does: the policy, changes to attributes, conditions and expressions of changes to
    /// headers. Services that drop path parameters would serve another path than the one that was decided on.
    pub reads_path: bool,
    /// Whether the policy, or a change to attributes, reads the time: what it lets in may have to end.
    pub reads_time: bool,
}

/// A change to an attribute.
#[derive(Debug, Clone)]
pub struct AttributeRule {
    /// Only for requests for which this holds.
    pub when: Option<Condition<Exchange>>,
    /// The attribute.
    pub name: Reference<Exchange>,
    /// What becomes of it.
    pub change: AttributeChange,
}

/// What becomes of an attribute.
#[derive(Debug, Clone)]
pub enum AttributeChange {
    /// It reads as this.
    Set(Template<Exchange>),
    /// It reads as absent.
    Remove,
}

/// A change to a header. All values and conditions are those from before the first change.
#[derive(Debug, Clone)]
pub enum HeaderRule {
    /// Sets it to the rendered value, in place of all that were there; an empty value leaves it out.
    Set(String, Template<Exchange>),
    /// Adds the rendered value to those that are there; an empty one adds nothing.
    Add(String, Template<Exchange>),
    /// Removes it.
    Remove(String),
    /// Gives its values to the second name, in place of all that were there.
    Rename(String, String),
    /// These, for requests for which the condition holds. Where that can't be told, the fields that they set, remove or
    /// rename are removed and none is written: nobody gets a field past a rule by making its condition fail.
    When(Condition<Exchange>, Vec<HeaderRule>),
}

/// Changes to headers, in their order, with the names that they are about.
#[derive(Debug, Clone, Default)]
pub struct HeaderRules {
    rules: Arc<[HeaderRule]>,
    names: HeaderNameSet,
}

impl HeaderRules {
    /// The changes.
    #[must_use]
    pub fn rules(&self) -> &[HeaderRule] {
        &self.rules
    }

    /// The names that are set, removed or renamed, whatever the conditions: no other spelling of them passes, and no
    /// trailer.
    #[must_use]
    pub const fn names(&self) -> &HeaderNameSet {
        &self.names
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

impl From<Vec<HeaderRule>> for HeaderRules {
    fn from(rules: Vec<HeaderRule>) -> Self {
        let mut names = Vec::new();
        collect_names(&rules, &mut names);
        // What is no token names no field that could come.
        let names = HeaderNameSet::new(names.into_iter().filter(|name| HeaderNameSet::new([name]).is_ok()));
        Self { names: names.unwrap_or_default(), rules: rules.into() }
    }
}

fn collect_names<'r>(rules: &'r [HeaderRule], names: &mut Vec<&'r str>) {
    for rule in rules {
        match rule {
            HeaderRule::Set(name, _) | HeaderRule::Remove(name) => names.push(name),
            HeaderRule::Rename(from, to) => names.extend([from.as_str(), to.as_str()]),
            // What is added to what a client sends is nobody's word alone.
            HeaderRule::Add(..) => {}
            HeaderRule::When(_, rules) => collect_names(rules, names),
        }
    }
}

/// How access is logged.
#[derive(Debug, Clone)]
pub struct LogModel {
    /// How a line is written.
    pub format: LogFormat,
    /// Only requests for which this holds; one for which it can't be evaluated is logged.
    pub when: Option<Condition<Exchange>>,
    /// One request in so many, by chance; at least 1.
    pub sample_one_in: u32,
    /// Requests that are logged whatever chance says.
    pub sample_always: Option<Condition<Exchange>>,
}

impl From<LogFormat> for LogModel {
    /// All requests.
    fn from(format: LogFormat) -> Self {
        Self { format, when: None, sample_one_in: 1, sample_always: None }
    }
}

/// How a line of the access log is written.
#[derive(Debug, Clone)]
pub enum LogFormat {
    /// One JSON object per request.
    Json(JsonRecord<Exchange>),
    /// The common or the combined log format.
    Common(Arc<CommonLog<Exchange>>),
    /// A template.
    Template(Template<Exchange>),
}
