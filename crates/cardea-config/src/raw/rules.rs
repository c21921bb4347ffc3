//! What expressions and templates say of requests, as written: attributes, policies, changes to headers, the access
//! log.

use std::collections::BTreeMap;

use cardea_gateway::record::AccessLogConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::{
    form::{As, Size},
    sections::SyslogFacility,
};

/// One line for each request.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawAccessLog {
    /// Whether it is written.
    pub(crate) enabled: bool,
    /// `"stdout"`; a file that is opened for appending, and again on SIGUSR1; or a syslog server, which gets datagrams
    /// of RFC 5424: `"syslog"` (at `/dev/log`), `"syslog:/path/of/socket"`, `"syslog:udp:192.0.2.1:514"`.
    pub(crate) path: String,
    /// `"json"`, `"common"`, `"combined"`, or a template of a line:
    /// `"{source.address} {request.method} {request.path} {response.status}"`.
    pub(crate) format: String,
    /// The members of a line of JSON, each with the attribute that it shows, in place of the usual ones:
    /// `{ tenant = "custom.tenant" }`. They are written in the order of their names.
    pub(crate) fields: BTreeMap<String, String>,
    /// Only requests for which this expression holds: `"request.path != '/health'"`. One for which it can't be evaluated
    /// is logged.
    pub(crate) when: Option<String>,
    /// One request in so many is logged, by chance.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) sample_one_in: u32,
    /// Requests for which this expression holds are logged whatever chance says: `"response.status >= 500"`.
    pub(crate) sample_always: Option<String>,
    /// What a syslog server takes lines for.
    pub(crate) syslog_facility: SyslogFacility,
    /// What may wait to be written; lines beyond it are dropped and counted, since a full disk must not stop
    /// traffic.
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

/// An attribute of requests that this configuration adds: `custom.` and its name, which templates, expressions and
/// logs read like any other. It comes from one of `header`, `claim`, `template`, `expression` and `map`; without any of
/// these it is there where a route sets it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAttribute {
    /// Its name, of lower-case letters, digits and `_`: `tenant` is read as `custom.tenant`.
    pub(crate) name: String,
    /// The header of the request that it is the value of. Whoever calls chooses that.
    #[serde(default)]
    pub(crate) header: Option<String>,
    /// The claim of the token that it is the value of; dots lead into objects.
    #[serde(default)]
    pub(crate) claim: Option<String>,
    /// A template that makes it: `"{token.iss} {token.sub}"`.
    #[serde(default)]
    pub(crate) template: Option<String>,
    /// An expression that makes it: `"source.address in cidr('10.0.0.0/8')"`.
    #[serde(default)]
    pub(crate) expression: Option<String>,
    /// A file in which it is looked up.
    #[serde(default)]
    pub(crate) map: Option<RawAttributeMap>,
}

/// A file with keys and values.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAttributeMap {
    /// The file, of at most 1 MiB, read when the configuration is loaded: lines of a key, white space and a value, where
    /// `#` begins a comment; or, where its name ends in `.json`, an object whose members are texts.
    pub(crate) file: String,
    /// A template of what is looked up: `"{token.client_id}"`. Where that is absent, so is the attribute.
    pub(crate) key: String,
    /// The value for a key that is not in the file. Left out, the attribute is absent then.
    #[serde(default)]
    pub(crate) default: Option<String>,
}

/// A rule of a policy: `allow` or `deny` with a CEL expression. If one of the `deny` rules holds, or any rule can't be
/// evaluated, the request is refused with 403; so it is if there are `allow` rules and none of them holds.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawPolicyRule {
    /// An expression that lets a request in where it holds: `"token.sub == route.parameters.id"`.
    #[serde(default)]
    pub(crate) allow: Option<String>,
    /// An expression that refuses a request where it holds: `"request.headers['x-debug'] == '1'"`.
    #[serde(default)]
    pub(crate) deny: Option<String>,
    /// Why. That of a rule that denies is in the access log; that of one that allows is for readers.
    #[serde(default)]
    pub(crate) reason: Option<String>,
    /// Whether the caller is told the reason too.
    #[serde(default)]
    pub(crate) show: bool,
}

/// Changes to header fields: first those that are renamed, then removals, then what is set, then what is added. All
/// values and conditions are those from before the first change.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct RawFieldEdits {
    /// Only for requests for which this expression holds. Where it can't be evaluated, the fields that are set, removed or
    /// renamed here are removed and nothing is written, so that nobody gets a field past by making it fail.
    pub(crate) when: Option<String>,
    /// Fields with their new names. Whatever had the new name goes, even where nothing takes its place.
    pub(crate) rename: BTreeMap<String, String>,
    /// Fields to remove.
    pub(crate) remove: Vec<String>,
    /// Fields with their values, which replace any of the same name. Values may have attributes in braces:
    /// `{ "x-original-host" = "{request.host}" }`. An empty value leaves the field out.
    pub(crate) set: BTreeMap<String, String>,
    /// Fields with values that are added to those of the same name.
    pub(crate) add: BTreeMap<String, String>,
}

/// Changes to attributes, once it is known who is calling: policies, headers and the log see them.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct RawAttributeEdits {
    /// Only for requests for which this expression holds. Where it can't be evaluated, the attributes read as absent.
    pub(crate) when: Option<String>,
    /// Attributes of `[[attribute]]` with templates of their values: `{ "custom.tier" = "gold" }`.
    pub(crate) set: BTreeMap<String, String>,
    /// Attributes that read as absent from there on. A header itself stays; `request_headers` removes that.
    pub(crate) remove: Vec<String>,
}

/// Changes, alone or one after the other.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum OneOrMany<T> {
    /// Changes.
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
    pub(crate) fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}
