//! Attributes, policies, header changes and the access log, as written.

use std::collections::BTreeMap;

use cardea_gateway::record::AccessLogConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::{
    form::{As, Size},
    sections::SyslogFacility,
};

/// The access log: one line for each request.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawAccessLog {
    /// Whether the access log is written.
    pub(crate) enabled: bool,
    /// The destination: `"stdout"`; a file, which is appended to and reopened on SIGUSR1; or a syslog server, which
    /// gets RFC 5424 datagrams: `"syslog"` (at `/dev/log`), `"syslog:/path/of/socket"`, `"syslog:udp:192.0.2.1:514"`.
    pub(crate) path: String,
    /// The format: `"json"`, `"common"`, `"combined"`, or a template of a line: `"{source.address} {request.method}
    /// {request.path} {response.status}"`.
    pub(crate) format: String,
    /// The members of a JSON line, each with its attribute, instead of the default ones: `{ tenant = "custom.tenant"
    /// }`. They are written in the order of their names.
    pub(crate) fields: BTreeMap<String, String>,
    /// Logs only requests for which this expression is true: `"request.path != '/health'"`. A request for which it
    /// can't be evaluated is logged.
    pub(crate) when: Option<String>,
    /// Logs a random sample of one request in this many.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) sample_one_in: u32,
    /// Requests for which this expression is true are logged even if they are not in the sample: `"response.status >=
    /// 500"`.
    pub(crate) sample_always: Option<String>,
    /// The syslog facility.
    pub(crate) syslog_facility: SyslogFacility,
    /// The size of the buffer. If it is full, lines are dropped and counted, because a full disk must not stop traffic.
    #[serde(with = "As::<Size<usize>>")]
    #[schemars(extend("x-minimum" = "64KiB", "x-maximum" = "1GiB"))]
    pub(crate) queue_bytes_max: usize,
}

impl Default for RawAccessLog {
    fn default() -> Self {
        Self {
            enabled: true,
            path: "stdout".to_owned(),
            format: "json".to_owned(),
            fields: BTreeMap::new(),
            when: None,
            sample_one_in: 1,
            sample_always: None,
            syslog_facility: SyslogFacility::default(),
            queue_bytes_max: AccessLogConfig::default().queue_bytes_max,
        }
    }
}

/// An additional attribute of requests: `custom.` and its name. Templates, expressions and logs read it like any other.
/// Its value comes from one of `header`, `claim`, `template`, `expression` and `map`; without any of these, only routes
/// set it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAttribute {
    /// The name, of lower-case letters, digits and `_`: `tenant` is read as `custom.tenant`.
    pub(crate) name: String,
    /// The request header with the value. Callers can choose it.
    #[serde(default)]
    pub(crate) header: Option<String>,
    /// The token claim with the value. Dots separate the names of nested objects.
    #[serde(default)]
    pub(crate) claim: Option<String>,
    /// A template of the value: `"{token.iss} {token.sub}"`.
    #[serde(default)]
    pub(crate) template: Option<String>,
    /// An expression with the value: `"source.address in cidr('10.0.0.0/8')"`.
    #[serde(default)]
    pub(crate) expression: Option<String>,
    /// A file in which the value is looked up.
    #[serde(default)]
    pub(crate) map: Option<RawAttributeMap>,
}

/// A file with keys and values.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAttributeMap {
    /// The file, of at most 1 MiB, which is read when the configuration is loaded. Each line has a key, white space and
    /// a value; `#` begins a comment. If the file name ends in `.json`, it is an object whose members are strings.
    pub(crate) file: String,
    /// A template of the key: `"{token.client_id}"`. If it is absent, so is the attribute.
    pub(crate) key: String,
    /// The value for a key that is not in the file. Default: the attribute is absent.
    #[serde(default)]
    pub(crate) default: Option<String>,
}

/// A policy rule: `allow` or `deny` with a CEL expression. A request is refused with 403 if a `deny` rule is true, if
/// any rule can't be evaluated, or if there are `allow` rules and none of them is true.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawPolicyRule {
    /// An expression that allows a request if it is true: `"token.sub == route.parameters.id"`.
    #[serde(default)]
    pub(crate) allow: Option<String>,
    /// An expression that denies a request if it is true: `"request.headers['x-debug'] == '1'"`.
    #[serde(default)]
    pub(crate) deny: Option<String>,
    /// The reason. That of a `deny` rule is written to the access log; that of an `allow` rule is a comment.
    #[serde(default)]
    pub(crate) reason: Option<String>,
    /// Whether the reason is also sent to the caller.
    #[serde(default)]
    pub(crate) show: bool,
}

/// Changes to header fields: first renames, then removals, then `set`, then `add`. All values and conditions use the
/// fields from before the first change.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct RawFieldEdits {
    /// Applies the changes only to requests for which this expression is true. If it can't be evaluated, the fields
    /// that would be set, removed or renamed are removed and nothing is written, so that nobody can keep a field by
    /// making the expression fail.
    pub(crate) when: Option<String>,
    /// Fields with their new names. Existing fields with the new name are removed, even if the renamed field is absent.
    pub(crate) rename: BTreeMap<String, String>,
    /// Fields to remove.
    pub(crate) remove: Vec<String>,
    /// Fields with their values, which replace existing ones of the same name. Values may contain attributes in braces:
    /// `{ "x-original-host" = "{request.host}" }`. A field with an empty value is omitted.
    pub(crate) set: BTreeMap<String, String>,
    /// Fields with values that are added to existing ones of the same name.
    pub(crate) add: BTreeMap<String, String>,
}

/// Changes to attributes, after authentication of the caller: policies, headers and the log use the changed values.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct RawAttributeEdits {
    /// Applies the changes only to requests for which this expression is true. If it can't be evaluated, the attributes
    /// become absent.
    pub(crate) when: Option<String>,
    /// Attributes of `[[attribute]]` with templates of their values: `{ "custom.tier" = "gold" }`.
    pub(crate) set: BTreeMap<String, String>,
    /// Attributes that become absent. A header field itself is kept; `request_headers` removes it.
    pub(crate) remove: Vec<String>,
}

/// One set of changes, or several in order.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum OneOrMany<T> {
    /// One set of changes.
    One(T),
    /// Several, each with its own condition.
    Many(Vec<T>),
}

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl<T> OneOrMany<T> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        match self {
            Self::One(one) => std::slice::from_ref(one).iter(),
            Self::Many(many) => many.iter(),
        }
    }

    pub(crate) fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}
