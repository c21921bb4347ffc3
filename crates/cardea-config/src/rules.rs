//! The resolved configuration of attributes, policies, headers and the access log. Expressions and templates are
//! compiled when the gateway is built, because only then all attributes are known.
#![expect(
    missing_docs,
    reason = "each key is documented once, where its written form is declared: the reference page is made from that"
)]

use std::sync::Arc;

use cardea_env::MapFile;
use cardea_gateway::record::AccessLogConfig;

use super::source::Location;

/// The access log: one line for each request.
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
    pub format_at: Location,
}

/// The format of the access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// A JSON object: members with their attributes; if empty, the default ones.
    Json(Vec<(String, FieldTemplate)>),
    /// The common log format.
    Common,
    /// The common log format with referrer and user agent.
    Combined,
    /// A template, not compiled yet.
    Template(String),
}

/// A template or an expression, not compiled yet, and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldTemplate {
    pub text: String,
    pub at: Location,
}

/// Changes to header fields: rename, remove, set, add, in this order. Names are in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldEdits {
    pub when: Option<FieldTemplate>,
    /// The old and the new name.
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
    /// Custom attributes with their locations, and templates of their values.
    pub set: Vec<(FieldTemplate, FieldTemplate)>,
    pub remove: Vec<FieldTemplate>,
}

/// A policy rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRule {
    /// Whether it allows or denies.
    pub allows: bool,
    pub condition: FieldTemplate,
    pub reason: Option<String>,
    pub show: bool,
}

/// A configured attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// Without `custom.`.
    pub name: String,
    pub source: AttributeSource,
}

/// The source of an attribute's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeSource {
    /// Only routes that set it.
    Nothing,
    /// Another attribute.
    Attribute(FieldTemplate),
    Template(FieldTemplate),
    Expression(FieldTemplate),
    /// A lookup in a file.
    Map {
        key: FieldTemplate,
        entries: Arc<MapFile>,
        default: Option<String>,
    },
}
