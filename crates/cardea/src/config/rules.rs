//! The configuration of attributes, policies, headers and the access log as the program uses it. Expressions and
//! templates are compiled when it is put together: only then are all attributes known.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use cardea_env::MapFile;

use super::{sections::SyslogFacility, source::Place};

/// One line for each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AccessLog {
    pub(crate) enabled: bool,
    pub(crate) path: AccessLogPath,
    pub(crate) format: AccessLogFormat,
    pub(crate) when: Option<FieldTemplate>,
    /// At least 1.
    pub(crate) sample_one_in: u32,
    pub(crate) sample_always: Option<FieldTemplate>,
    pub(crate) syslog_facility: SyslogFacility,
    /// Octets that may wait to be written.
    pub(crate) queue_bytes_max: u64,
    /// Where the format was written.
    pub(crate) format_at: Place,
}

/// Where the access log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AccessLogPath {
    /// Standard output.
    Stdout,
    /// A file, opened for appending.
    File(PathBuf),
    /// The Unix socket of a syslog server.
    SyslogUnix(PathBuf),
    /// The UDP port of a syslog server.
    SyslogUdp(SocketAddr),
}

/// What a line of the access log looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AccessLogFormat {
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
pub(crate) struct FieldTemplate {
    pub(crate) text: String,
    pub(crate) at: Place,
}

/// Changes to header fields: what is renamed, removed, set, added, in this order. Names are in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldEdits {
    pub(crate) when: Option<FieldTemplate>,
    /// From one name to another.
    pub(crate) rename: Vec<(String, String)>,
    pub(crate) remove: Vec<String>,
    /// With templates of their values.
    pub(crate) set: Vec<(String, FieldTemplate)>,
    /// With templates of their values.
    pub(crate) add: Vec<(String, FieldTemplate)>,
}

/// Changes to attributes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AttributeEdits {
    pub(crate) when: Option<FieldTemplate>,
    /// Custom attributes, where they are named, and templates of their values.
    pub(crate) set: Vec<(FieldTemplate, FieldTemplate)>,
    pub(crate) remove: Vec<FieldTemplate>,
}

/// A rule of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PolicyRule {
    /// Whether it allows; else it denies.
    pub(crate) allows: bool,
    pub(crate) condition: FieldTemplate,
    pub(crate) reason: Option<String>,
    pub(crate) show: bool,
}

/// An attribute that the configuration adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attribute {
    /// Without `custom.`.
    pub(crate) name: String,
    pub(crate) source: AttributeSource,
    pub(crate) at: Place,
    /// Whether no error was found in it.
    pub(crate) is_sound: bool,
}

/// Where an attribute comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AttributeSource {
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
