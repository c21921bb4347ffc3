//! What is said over the admin socket: one JSON request on a line, one JSON reply on a line.
//!
//! ```text
//! → {"command":"client_disable","id":"billing"}
//! ← {"ok":{"client":{"client_id":"billing","enabled":false,…}}}
//! → {"command":"client_show","id":"nobody"}
//! ← {"error":{"code":"not_found","message":"there is no client \"nobody\""}}
//! ```
//!
//! Times are seconds since the Unix epoch. Fields may be added to replies, so what is unknown there is ignored; in
//! requests it is refused, so that nothing is done that was meant otherwise.

use serde::{Deserialize, Serialize};

use super::import::ImportClient;
pub(crate) use super::sensitive::Sensitive;

/// The longest request, in bytes, without its line feed.
pub(crate) const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// The longest reply: a page of a thousand clients fits.
pub(crate) const REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    Status,
    Reload,
    Drain,
    /// The certificates that are served, or are to be.
    CertificateList,
    /// Orders the certificate that a host belongs to now, whatever failed before.
    CertificateRenew {
        host: String,
    },
    ClientCreate {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        name: String,
        #[serde(default)]
        scopes: Vec<String>,
        #[serde(default)]
        audiences: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token_lifetime_seconds: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secret_expires_in_seconds: Option<u64>,
        /// `auto`, `form-encoded` or `raw`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        basic_encoding: Option<String>,
        /// A secret that somebody chose; left out, one is generated.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secret: Option<Sensitive>,
        /// Whether a right secret of it may be remembered for a while; left out, it may.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remember_secret: Option<bool>,
    },
    /// Clients of another server: all of them or none, also where they come in several requests on one connection.
    ClientImport {
        clients: Vec<ImportClient>,
        /// Others follow; nothing is done before the last of them.
        #[serde(default)]
        more: bool,
    },
    /// A page of at most 1,000 clients, those after an id.
    ClientList {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u32>,
    },
    ClientShow {
        id: String,
    },
    ClientRotate {
        id: String,
        overlap_seconds: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secret_expires_in_seconds: Option<u64>,
    },
    ClientDisable {
        id: String,
    },
    ClientEnable {
        id: String,
    },
    ClientDelete {
        id: String,
    },
    KeyList,
    KeyRotate {
        /// Sign with the new key at once.
        #[serde(default)]
        now: bool,
    },
    KeyRewrap {
        /// The new wrapping key: the bytes of its file or variable, in base64.
        new_key: Sensitive,
    },
}

impl Request {
    /// What is asked, for the log.
    pub(crate) fn command(&self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Reload => "reload",
            Self::Drain => "drain",
            Self::CertificateList => "certificate_list",
            Self::CertificateRenew { .. } => "certificate_renew",
            Self::ClientCreate { .. } => "client_create",
            Self::ClientImport { .. } => "client_import",
            Self::ClientList { .. } => "client_list",
            Self::ClientShow { .. } => "client_show",
            Self::ClientRotate { .. } => "client_rotate",
            Self::ClientDisable { .. } => "client_disable",
            Self::ClientEnable { .. } => "client_enable",
            Self::ClientDelete { .. } => "client_delete",
            Self::KeyList => "key_list",
            Self::KeyRotate { .. } => "key_rotate",
            Self::KeyRewrap { .. } => "key_rewrap",
        }
    }

    /// Whether the published keys may be others afterwards.
    pub(crate) fn changes_keys(&self) -> bool {
        // A list reads the store, where another process may have changed them.
        matches!(self, Self::KeyList | Self::KeyRotate { .. } | Self::KeyRewrap { .. })
    }
}

/// What comes back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Ok(Answer),
    Error(Refusal),
    /// How far an import is. What comes back of it is still to come.
    Progress {
        clients: usize,
    },
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Done,
    Status(Box<Status>),
    Reloaded(Reloaded),
    Certificates(Vec<Certificate>),
    Created { client: Client, secret: Sensitive },
    Client(Client),
    Clients { clients: Vec<Client>, next: Option<String> },
    Keys(Vec<Key>),
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Refusal {
    pub(crate) code: Code,
    pub(crate) message: String,
    /// Which of several it is about, counted from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<usize>,
    /// What is wrong with others of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) others: Vec<RefusedOne>,
}

/// One of several that was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RefusedOne {
    /// Which of them, counted from 0.
    pub(crate) index: usize,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), index: None, others: Vec::new() }
    }
}

/// Whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", from = "String")]
pub(crate) enum Code {
    /// The request is no JSON of a known command.
    Malformed,
    /// The caller may not ask.
    Forbidden,
    /// There is no such client, or certificate.
    NotFound,
    /// There is such a client already.
    Exists,
    /// A value is not one that is accepted.
    Invalid,
    /// There are as many as there may be.
    Limit,
    /// The configuration has no authorization server.
    NoAuthorizationServer,
    /// The configuration is wrong; the old one stays in force.
    Configuration,
    /// Something failed: the database, the disk.
    Failed,
    /// A code of a later version.
    Other,
}

impl From<String> for Code {
    fn from(code: String) -> Self {
        match code.as_str() {
            "malformed" => Self::Malformed,
            "forbidden" => Self::Forbidden,
            "not_found" => Self::NotFound,
            "exists" => Self::Exists,
            "invalid" => Self::Invalid,
            "limit" => Self::Limit,
            "no_authorization_server" => Self::NoAuthorizationServer,
            "configuration" => Self::Configuration,
            "failed" => Self::Failed,
            _ => Self::Other,
        }
    }
}

/// What a reload has done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reloaded {
    /// How many configurations were in force, this one included.
    pub(crate) generation: u64,
    pub(crate) took_milliseconds: u64,
    /// In the order of the kinds.
    pub(crate) changes: Vec<Change>,
    /// Keys that have kept their values of the start.
    pub(crate) needs_restart: Vec<String>,
}

/// A difference between two configurations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Change {
    /// `added`, `removed` or `changed`.
    pub(crate) happened: String,
    /// `setting`, `route`, `service`, `listener`, `issuer`, `client_authority`, `attribute` or `certificate`.
    pub(crate) kind: String,
    /// Of a setting, its key.
    pub(crate) name: String,
    /// The keys that differ, where something that has a name was changed.
    pub(crate) keys: Vec<String>,
}

/// A listener that serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListenerStatus {
    pub(crate) name: String,
    /// What it is bound to.
    pub(crate) address: String,
    pub(crate) connections: u64,
}

/// The keys of an issuer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeySet {
    pub(crate) issuer: String,
    pub(crate) keys: usize,
    /// Whether tokens can be verified.
    pub(crate) usable: bool,
    /// How long ago they were fetched.
    pub(crate) age_seconds: Option<u64>,
    /// Why the last fetch failed.
    pub(crate) problem: Option<String>,
}

/// The certificate that expires next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Expiry {
    pub(crate) hosts: Vec<String>,
    pub(crate) not_after: i64,
}

/// How the server does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    /// What it was built from; empty where the build was not told.
    pub(crate) revision: String,
    /// The file of its configuration.
    pub(crate) configuration: String,
    /// When that was loaded.
    pub(crate) loaded_at: i64,
    /// Why the last reload failed, where it did.
    pub(crate) last_reload_error: Option<String>,
    pub(crate) last_reload_failed_at: Option<i64>,
    /// Keys that have kept their values of the start.
    pub(crate) needs_restart: Vec<String>,
    /// Whether it should be sent new connections, and why not.
    pub(crate) ready: bool,
    pub(crate) reasons: Vec<String>,
    /// What does not work, although it should be sent new connections.
    pub(crate) degraded: Vec<String>,
    pub(crate) listeners: Vec<ListenerStatus>,
    pub(crate) routes: usize,
    pub(crate) services: usize,
    pub(crate) endpoints: usize,
    /// Those that are not ejected.
    pub(crate) endpoints_healthy: usize,
    pub(crate) key_sets: Vec<KeySet>,
    pub(crate) next_certificate_expiry: Option<Expiry>,
    pub(crate) version: String,
    pub(crate) process_id: u32,
    pub(crate) uptime_seconds: u64,
    /// `running`, `draining` or `stopping`.
    pub(crate) phase: String,
    pub(crate) connections: u64,
    /// How many configurations were in force, this one included.
    pub(crate) generation: u64,
}

/// A certificate that is served, or is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Certificate {
    pub(crate) hosts: Vec<String>,
    /// The file of its chain, or `acme`.
    pub(crate) source: String,
    /// The listeners that serve it, in order.
    pub(crate) listeners: Vec<String>,
    /// When it expires; `None` where it has yet to be issued.
    pub(crate) not_after: Option<i64>,
    /// When another one is ordered, where it comes from an authority; 0: now.
    pub(crate) next_attempt_at: Option<i64>,
    /// Attempts that have failed since the last success.
    pub(crate) failures: u32,
    /// What is wrong with it, or why the last attempt failed.
    pub(crate) problem: Option<String>,
    /// What becomes of handshakes for its hosts.
    #[serde(default)]
    pub(crate) state: CertificateState,
}

/// What becomes of handshakes for the hosts of a certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CertificateState {
    /// It is served.
    #[default]
    Served,
    /// It is served, and clients refuse it.
    Expired,
    /// What is there now can't be used; what was there before is served.
    Rejected,
    /// It can't be used, and handshakes fail.
    Unusable,
    /// It has yet to be issued, and handshakes fail.
    Awaited,
}

impl CertificateState {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Expired => "expired",
            Self::Rejected => "rejected",
            Self::Unusable => "unusable",
            Self::Awaited => "awaited",
        }
    }
}

/// A client, without its secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Client {
    pub(crate) client_id: String,
    pub(crate) name: String,
    pub(crate) enabled: bool,
    pub(crate) grant_types: Vec<String>,
    pub(crate) scopes: Vec<String>,
    /// Empty: the default audience.
    pub(crate) audiences: Vec<String>,
    pub(crate) access_token_lifetime_seconds: Option<u32>,
    pub(crate) basic_encoding: String,
    /// Whether a right secret of it may be remembered for a while.
    #[serde(default = "yes")]
    pub(crate) remember_secret: bool,
    pub(crate) created_at: i64,
    pub(crate) updated_at: i64,
    pub(crate) disabled_at: Option<i64>,
    pub(crate) secrets: Vec<SecretFacts>,
}

fn yes() -> bool {
    true
}

/// What may be known of a client's secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SecretFacts {
    pub(crate) id: String,
    /// How what verifies it was made.
    #[serde(default)]
    pub(crate) format: String,
    /// `generated`, `chosen` or `imported`.
    #[serde(default)]
    pub(crate) provenance: String,
    pub(crate) created_at: i64,
    pub(crate) expires_at: Option<i64>,
}

/// A signing key, without its private part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) kid: String,
    pub(crate) algorithm: String,
    /// Whether it signs now.
    pub(crate) signing: bool,
    pub(crate) created_at: i64,
    /// When it begins to sign, or began.
    pub(crate) activates_at: i64,
    /// From when on it is published no more; absent while it has no successor.
    pub(crate) remove_at: Option<i64>,
    pub(crate) wrapping_key_id: String,
}

impl From<cardea_issuer::Client> for Client {
    fn from(client: cardea_issuer::Client) -> Self {
        let secret = |secret: cardea_issuer::ClientSecret| SecretFacts {
            id: secret.id,
            format: secret.format,
            provenance: secret.provenance,
            created_at: secret.created_at,
            expires_at: secret.expires_at,
        };
        Self {
            client_id: client.client_id,
            name: client.name,
            enabled: client.enabled,
            grant_types: client.grant_types.iter().map(|grant| grant.as_str().to_owned()).collect(),
            scopes: client.scopes,
            audiences: client.audiences,
            access_token_lifetime_seconds: client.access_token_lifetime_seconds,
            basic_encoding: client.basic_encoding.as_str().to_owned(),
            remember_secret: client.remember_secret,
            created_at: client.created_at,
            updated_at: client.updated_at,
            disabled_at: client.disabled_at,
            secrets: client.secrets.into_iter().map(secret).collect(),
        }
    }
}

impl From<cardea_issuer::Key> for Key {
    fn from(key: cardea_issuer::Key) -> Self {
        Self {
            kid: key.kid,
            algorithm: key.algorithm.to_owned(),
            signing: key.signing,
            created_at: key.created_at,
            activates_at: key.activates_at,
            remove_at: key.remove_at,
            wrapping_key_id: key.wrapping_key_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_what_the_documentation_says_and_nothing_else() {
        for (text, expected) in [
            (r#"{"command":"status"}"#, Request::Status),
            (r#"{"command":"client_disable","id":"a"}"#, Request::ClientDisable { id: "a".into() }),
            (r#"{"command":"key_rotate"}"#, Request::KeyRotate { now: false }),
            (r#"{"now":true,"command":"key_rotate"}"#, Request::KeyRotate { now: true }),
            (r#"{"command":"client_list"}"#, Request::ClientList { after: None, limit: None }),
        ] {
            assert_eq!(serde_json::from_str::<Request>(text).unwrap(), expected, "{text}");
        }
        for text in [
            "{}",
            "[]",
            "null",
            r#"{"command":"STATUS"}"#,
            r#"{"command":"client_disable"}"#,
            r#"{"command":"client_disable","id":1}"#,
            r#"{"command":"client_disable","id":"a","force":true}"#,
            r#"{"command":"key_rotate","Now":true}"#,
            r#"{"command":"client_disable","id":"a","id":"b"}"#,
            r#"{"command":"status"} {"command":"status"}"#,
        ] {
            assert!(serde_json::from_str::<Request>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn replies_survive_the_way_and_a_later_version() {
        let error = Reply::Error(Refusal::new(Code::NotFound, "no"));
        assert_eq!(
            serde_json::to_string(&error).unwrap(),
            r#"{"error":{"code":"not_found","message":"no"}}"#
        );
        assert_eq!(serde_json::to_string(&Reply::Ok(Answer::Done)).unwrap(), r#"{"ok":"done"}"#);
        let later = r#"{"error":{"code":"new_thing","message":"m","more":1}}"#;
        let Reply::Error(refusal) = serde_json::from_str(later).unwrap() else { panic!() };
        assert_eq!(refusal.code, Code::Other);
        let keys = Reply::Ok(Answer::Keys(vec![Key {
            kid: "k".into(),
            algorithm: "ES256".into(),
            signing: true,
            created_at: -1,
            activates_at: 2,
            remove_at: None,
            wrapping_key_id: "w".into(),
        }]));
        let text = serde_json::to_string(&keys).unwrap();
        assert_eq!(serde_json::from_str::<Reply>(&text).unwrap(), keys);
    }

    #[test]
    fn every_code_is_read_as_it_is_written() {
        for code in [
            Code::Malformed,
            Code::Forbidden,
            Code::NotFound,
            Code::Exists,
            Code::Invalid,
            Code::Limit,
            Code::NoAuthorizationServer,
            Code::Configuration,
            Code::Failed,
        ] {
            let text = serde_json::to_string(&code).unwrap();
            assert_eq!(serde_json::from_str::<Code>(&text).unwrap(), code, "{text}");
        }
    }

    #[test]
    fn secrets_are_in_no_debug_output() {
        let request = Request::KeyRewrap { new_key: Sensitive::new("hunter2") };
        assert!(!format!("{request:?}").contains("hunter2"));
        assert!(serde_json::to_string(&request).unwrap().contains("hunter2"), "the control");
    }
}
