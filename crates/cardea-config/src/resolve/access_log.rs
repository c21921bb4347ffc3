//! The access log: where lines go, their format, and which requests are logged.

use std::{fs, path::PathBuf, sync::Arc};

use cardea_env::{CommonFields, CommonForm, CommonLog, JsonRecord, RecordError, Template};
use cardea_gateway::{
    attributes,
    model::{LogFormat, LogModel},
    record::{AccessLogConfig, Sink, SyslogConfig, SyslogServer},
};

use super::{
    super::{
        document::Cursor,
        model::{AccessLog, SourceText},
        raw::RawAccessLog,
        sections::SyslogFacility,
    },
    Resolver,
};

/// The socket of the system's syslog server.
const SYSLOG_SOCKET: &str = "/dev/log";

impl Resolver<'_> {
    /// The access log; `None` if it is disabled or was reported.
    pub(super) fn access_log(&mut self, raw: RawAccessLog, at: Cursor<'_>) -> Option<AccessLog> {
        let sink = self.access_log_sink(&raw.path, raw.syslog_facility, at.key("path"));
        let config =
            AccessLogConfig { sink, queue_bytes_max: raw.queue_bytes_max, ..AccessLogConfig::default() };
        if !raw.fields.is_empty() && raw.format != "json" {
            self.error(at.key("fields"), "fields are those of a line of JSON", "write format = \"json\"");
        }
        let is_named = matches!(raw.format.as_str(), "json" | "common" | "combined");
        if !is_named && !raw.format.contains('{') {
            let at = at.key("format");
            self.error(
                at,
                format!("{:?} is not a format of the access log", at.shown(&raw.format)),
                "write \"json\", \"common\", \"combined\", or a template with attributes in braces: \"{request.method} {request.path}\"",
            );
            return None;
        }
        if !raw.enabled {
            return None;
        }
        let when = self.condition(raw.when, at.key("when"));
        let sample_always = self.condition(raw.sample_always, at.key("sample_always"));
        let format = match raw.format.as_str() {
            "json" => {
                let fields_at = at.key("fields");
                let fields = raw.fields.into_iter().map(|(name, text)| {
                    let at = fields_at.key(&name).location();
                    (name, SourceText { text, at })
                });
                LogFormat::Json(self.json_record(&fields.collect::<Vec<_>>(), at.key("format"))?)
            }
            "common" => self.common_log(CommonForm::Common, at.key("format"))?,
            "combined" => self.common_log(CommonForm::Combined, at.key("format"))?,
            _ => {
                let written = SourceText { text: raw.format, at: at.key("format").location() };
                match Template::compile(&written.text, &self.names) {
                    Ok(template) => LogFormat::Template(template),
                    Err(error) => return self.template_problem(&written, error),
                }
            }
        };
        let lines = LogModel { format, when, sample_one_in: raw.sample_one_in, sample_always };
        Some(AccessLog { config, lines })
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

    fn common_log(&mut self, form: CommonForm, at: Cursor<'_>) -> Option<LogFormat> {
        // Repeated fields are shown too.
        let fields = CommonFields {
            referrer: "request.first_header.referer",
            agent: "request.first_header.user-agent",
            ..CommonFields::default()
        };
        match CommonLog::compile(form, &fields, &self.names) {
            Ok(log) => Some(LogFormat::Common(Arc::new(log))),
            Err(error) => {
                self.error(at, error.to_string(), "use a template");
                None
            }
        }
    }

    /// A JSON object of these members, or of the default ones if there are none.
    fn json_record(
        &mut self,
        fields: &[(String, SourceText)],
        at: Cursor<'_>,
    ) -> Option<JsonRecord<cardea_gateway::exchange::Exchange>> {
        let chosen = fields.iter().map(|(name, attribute)| (name.as_str(), attribute.text.as_str()));
        let compiled = if fields.is_empty() {
            JsonRecord::compile(attributes::LOG_FIELDS.iter().copied(), &self.names)
        } else {
            JsonRecord::compile(chosen, &self.names)
        };
        let error = match compiled {
            Ok(record) => return Some(record),
            Err(error) => error,
        };
        match &error {
            RecordError::Attribute { index, source } if *index < fields.len() => {
                if let Some((_, written)) = fields.get(*index) {
                    self.text_problem(written, 0, error.to_string(), source.suggestion());
                }
            }
            _ => self.error(at, error.to_string(), "use other fields"),
        }
        None
    }
}

/// The name of this machine.
pub fn hostname() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}
