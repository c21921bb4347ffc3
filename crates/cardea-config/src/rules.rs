//! The configuration of attributes, policies, headers and the access log as the program uses it. Expressions and
//! templates are compiled when it is put together: only then are all attributes known.
#![expect(
    missing_docs,
    reason = "each key is documented once, where its written form is declared: the reference page is made from that"
)]

use std::sync::Arc;

use cardea_env::MapFile;
use cardea_gateway::record::AccessLogConfig;

use super::source::Place;

/// One line for each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLog {
    pub enabled: bool,
    pub log: AccessLogConfig,
    pub format: AccessLogFormat,
    pub when: Option<FieldTemplate>,
    /// At least 1.
    pub sample_one_in: u32,
    pub sample_always: Option<FieldTemplate>,
    /// Where the format was written.
    pub format_at: Place,
}

/// What a line of the access log looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// A JSON object: members with their attributes; empty: the usual ones.
    Json(Vec<(String, FieldTemplate)>),
    /// The common log format.
    Common,
    /// The same with referrer and user agent.
    Combined,
    /// A template, not compiled yet.
    Template(String),
}

/// A template or an expression, not compiled yet, and where it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldTemplate {
    pub text: String,
    pub at: Place,
}

/// Changes to header fields: what is renamed, removed, set, added, in this order. Names are in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldEdits {
    pub when: Option<FieldTemplate>,
    /// From one name to another.
    pub rename: Vec<(String, String)>,
    pub remove: Vec<String>,
    /// With templates of their values.
    pub set: Vec<(String, FieldTemplate)>,
    /// With templates of their values.
    pub add: Vec<(String, FieldTemplate)>,
}

/// Changes to attributes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttributeEdits {
    pub when: Option<FieldTemplate>,
    /// Custom attributes, where they are named, and templates of their values.
    pub set: Vec<(FieldTemplate, FieldTemplate)>,
    pub remove: Vec<FieldTemplate>,
}

/// A rule of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRule {
    /// Whether it allows; else it denies.
    pub allows: bool,
    pub condition: FieldTemplate,
    pub reason: Option<String>,
    pub show: bool,
}

/// An attribute that the configuration adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// Without `custom.`.
    pub name: String,
    pub source: AttributeSource,
}

/// Where an attribute comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeSource {
    /// Only from routes that set it.
    Nothing,
    /// Another attribute.
    Attribute(FieldTemplate),
    Template(FieldTemplate),
    Expression(FieldTemplate),
    /// A file.
    Map {
        key: FieldTemplate,
        entries: Arc<MapFile>,
        default: Option<String>,
    },
}
