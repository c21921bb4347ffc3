//! Attributes, policies, changes to headers and attributes, and the access log.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};

use cardea_env::MapFile;
use cardea_gateway::{
    model::IdentityHeaders,
    record::{AccessLogConfig, Sink, SyslogConfig, SyslogServer},
};

use super::{
    super::{
        document::Cursor,
        model::Located,
        raw::{
            OneOrMany, RawAccessLog, RawAttribute, RawAttributeEdits, RawAttributeMap, RawFieldEdits,
            RawPolicyRule,
        },
        rules::{
            AccessLog, AccessLogFormat, Attribute, AttributeEdits, AttributeSource, FieldEdits,
            FieldTemplate, PolicyRule,
        },
        sections::SyslogFacility,
        source::Location,
    },
    Resolver,
    headers::carries_identity,
};

/// The socket of the system's syslog server.
const SYSLOG_SOCKET: &str = "/dev/log";

impl Resolver<'_> {
    pub(super) fn access_log(&mut self, raw: RawAccessLog, at: Cursor<'_>) -> AccessLog {
        let sink = self.access_log_sink(&raw.path, raw.syslog_facility, at.key("path"));
        let log =
            AccessLogConfig { sink, queue_bytes_max: raw.queue_bytes_max, ..AccessLogConfig::default() };
        let fields_at = at.key("fields");
        if !raw.fields.is_empty() && raw.format != "json" {
            self.error(fields_at, "fields are those of a line of JSON", "write format = \"json\"");
        }
        let fields = raw.fields.into_iter().map(|(name, attribute)| {
            let at = fields_at.key(&name).location();
            (name, FieldTemplate { text: attribute, at })
        });
        let fields: Vec<_> = fields.collect();
        let format = match raw.format.as_str() {
            "json" => AccessLogFormat::Json(fields),
            "common" => AccessLogFormat::Common,
            "combined" => AccessLogFormat::Combined,
            template if template.contains('{') => AccessLogFormat::Template(raw.format),
            other => {
                let shown = at.key("format").shown(other).to_owned();
                self.error(
                    at.key("format"),
                    format!("{shown:?} is not a format of the access log"),
                    "write \"json\", \"common\", \"combined\", or a template with attributes in braces: \"{request.method} {request.path}\"",
                );
                AccessLogFormat::Json(Vec::new())
            }
        };
        AccessLog {
            enabled: raw.enabled,
            log,
            format,
            when: self.expression(raw.when, at.key("when")),
            sample_one_in: raw.sample_one_in,
            sample_always: self.expression(raw.sample_always, at.key("sample_always")),
            format_at: at.key("format").location(),
        }
    }

    fn access_log_sink(&mut self, written: &str, facility: SyslogFacility, at: Cursor<'_>) -> Sink {
        let facility = facility as u8;
        let syslog = |server| Sink::Syslog(SyslogConfig { server, facility, hostname: hostname() });
        match (written, written.strip_prefix("syslog:")) {
            ("stdout", _) => Sink::Stdout,
            ("syslog", _) => syslog(SyslogServer::Unix(PathBuf::from(SYSLOG_SOCKET))),
            (_, Some(server)) => match (server.strip_prefix("udp:").map(str::parse), server.starts_with('/'))
            {
                (Some(Ok(address)), _) => syslog(SyslogServer::Udp(address)),
                (None, true) => syslog(SyslogServer::Unix(PathBuf::from(server))),
                _ => {
                    self.error(
                        at,
                        format!("{:?} is not a syslog server", at.shown(written)),
                        "write \"syslog:\" and the absolute path of a socket, or \"syslog:udp:\" and an IP address with a port",
                    );
                    Sink::Stdout
                }
            },
            ("", _) => {
                self.error(at, "the access log's path is empty", "write \"stdout\" or a file");
                Sink::Stdout
            }
            _ => Sink::File(self.path(at, written)),
        }
    }

    /// An optional expression.
    pub(super) fn expression(&mut self, written: Option<String>, at: Cursor<'_>) -> Option<FieldTemplate> {
        let text = written?;
        if text.trim().is_empty() {
            self.error(at, "the expression is empty", "write one, or leave the key out");
        }
        Some(FieldTemplate { text, at: at.location() })
    }

    pub(super) fn policy(&mut self, raw: Vec<RawPolicyRule>, at: Cursor<'_>) -> Vec<PolicyRule> {
        let mut rules = Vec::with_capacity(raw.len());
        for (index, raw) in raw.into_iter().enumerate() {
            let at = at.index(index);
            let (allows, condition) = match (raw.allow, raw.deny) {
                (Some(allow), None) => (true, self.expression(Some(allow), at.key("allow"))),
                (None, Some(deny)) => (false, self.expression(Some(deny), at.key("deny"))),
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
            rules.extend(condition.map(|condition| PolicyRule {
                allows,
                condition,
                reason: raw.reason,
                show: raw.show,
            }));
        }
        rules
    }

    pub(super) fn attributes(&mut self, raw: Vec<RawAttribute>, at: Cursor<'_>) -> Vec<Located<Attribute>> {
        self.each(raw, at, Self::attribute)
    }

    fn attribute(&mut self, raw: RawAttribute, at: Cursor<'_>) -> Attribute {
        let is_word = raw.name.starts_with(|first: char| first.is_ascii_lowercase())
            && raw.name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        if !is_word {
            self.error(
                at.key("name"),
                format!("{:?} is not the name of an attribute", at.key("name").shown(&raw.name)),
                "use lower-case letters, digits and _, a letter first",
            );
        }
        let written = [
            ("header", raw.header.is_some()),
            ("claim", raw.claim.is_some()),
            ("template", raw.template.is_some()),
            ("expression", raw.expression.is_some()),
            ("map", raw.map.is_some()),
        ];
        self.only_one(&written, at, "an attribute comes from one place", "keep one of them");
        let named = |prefix: &str, name: String, key: &str| {
            AttributeSource::Attribute(FieldTemplate {
                text: format!("{prefix}{name}"),
                at: at.key(key).location(),
            })
        };
        let source = if let Some(header) = raw.header {
            named("request.headers.", header, "header")
        } else if let Some(claim) = raw.claim {
            named("token.claims.", claim, "claim")
        } else if let Some(text) = raw.template {
            AttributeSource::Template(FieldTemplate { text, at: at.key("template").location() })
        } else if let Some(text) = self.expression(raw.expression, at.key("expression")) {
            AttributeSource::Expression(text)
        } else if let Some(map) = raw.map {
            self.attribute_map(map, at.key("map"))
        } else {
            AttributeSource::Nothing
        };
        Attribute { name: raw.name, source }
    }

    fn attribute_map(&mut self, raw: RawAttributeMap, at: Cursor<'_>) -> AttributeSource {
        let content = self.file(at.key("file"), &raw.file).1.unwrap_or_default();
        let entries = match std::str::from_utf8(&content) {
            Err(_) => Err("it is not UTF-8".to_owned()),
            Ok(text) if raw.file.ends_with(".json") => serde_json::from_str::<BTreeMap<String, String>>(text)
                .map(MapFile::from_iter)
                .map_err(|error| error.to_string()),
            Ok(text) => MapFile::parse(text).map_err(|error| error.to_string()),
        };
        let entries = entries.unwrap_or_else(|error| {
            self.error(
                at.key("file"),
                format!("{}: {error}", at.key("file").shown(&raw.file)),
                "write lines of a key, white space and a value; or JSON: an object whose members are texts",
            );
            MapFile::default()
        });
        let key = FieldTemplate { text: raw.key, at: at.key("key").location() };
        AttributeSource::Map { key, entries: Arc::new(entries), default: raw.default }
    }

    pub(super) fn attribute_edits(
        &mut self,
        raw: OneOrMany<RawAttributeEdits>,
        attributes: &[Located<Attribute>],
        at: Cursor<'_>,
    ) -> Vec<AttributeEdits> {
        let raw = raw.into_vec().into_iter().enumerate();
        raw.map(|(index, raw)| self.one_attribute_edit(raw, attributes, at.index(index))).collect()
    }

    fn one_attribute_edit(
        &mut self,
        raw: RawAttributeEdits,
        attributes: &[Located<Attribute>],
        at: Cursor<'_>,
    ) -> AttributeEdits {
        let set_at = at.key("set");
        let mut set = Vec::with_capacity(raw.set.len());
        for (name, value) in raw.set {
            let entry = set_at.key(&name);
            let known = name
                .strip_prefix("custom.")
                .is_some_and(|name| attributes.iter().any(|attribute| attribute.name == name));
            if !known && !self.dropped.any("attribute") {
                self.problems.add(
                    entry.key_location(),
                    format!("{name:?} is not an attribute that this configuration adds"),
                    "add an [[attribute]], and write \"custom.\" and its name",
                );
            }
            let name = FieldTemplate { text: name, at: entry.key_location() };
            set.push((name, FieldTemplate { text: value, at: entry.location() }));
        }
        let remove = raw
            .remove
            .into_iter()
            .enumerate()
            .map(|(index, text)| FieldTemplate { text, at: at.key("remove").index(index).location() });
        AttributeEdits { when: self.expression(raw.when, at.key("when")), set, remove: remove.collect() }
    }

    pub(super) fn field_edits(
        &mut self,
        raw: OneOrMany<RawFieldEdits>,
        identity: &IdentityHeaders,
        is_request: bool,
        at: Cursor<'_>,
    ) -> Vec<FieldEdits> {
        let raw = raw.into_vec().into_iter().enumerate();
        raw.map(|(index, raw)| self.one_field_edit(raw, identity, is_request, at.index(index))).collect()
    }

    fn one_field_edit(
        &mut self,
        raw: RawFieldEdits,
        identity: &IdentityHeaders,
        is_request: bool,
        at: Cursor<'_>,
    ) -> FieldEdits {
        let mut rename = Vec::with_capacity(raw.rename.len());
        for (from, to) in raw.rename {
            let entry = at.key("rename").key(&from);
            let from = self.edited_field(from, entry.key_location(), identity, is_request);
            let to = self.edited_field(to, entry.location(), identity, is_request);
            if from == to {
                self.error(entry, format!("{from} has that name already"), "write another name");
            }
            rename.push((from, to));
        }
        let mut remove = Vec::with_capacity(raw.remove.len());
        for (index, name) in raw.remove.into_iter().enumerate() {
            let location = at.key("remove").index(index).location();
            remove.push(self.edited_field(name, location, identity, is_request));
        }
        FieldEdits {
            when: self.expression(raw.when, at.key("when")),
            rename,
            remove,
            set: self.field_values(raw.set, identity, is_request, at.key("set")),
            add: self.field_values(raw.add, identity, is_request, at.key("add")),
        }
    }

    fn field_values(
        &mut self,
        raw: BTreeMap<String, String>,
        identity: &IdentityHeaders,
        is_request: bool,
        at: Cursor<'_>,
    ) -> Vec<(String, FieldTemplate)> {
        let mut values: Vec<(String, FieldTemplate)> = Vec::with_capacity(raw.len());
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
            if values.iter().any(|(other, _)| *other == name) {
                self.problems.add(entry.key_location(), format!("{name} is set twice"), "keep one of them");
            }
            values.push((name, FieldTemplate { text: value, at: entry.location() }));
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

/// The name of this machine.
pub fn hostname() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}
