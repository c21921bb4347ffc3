//! The protocol of the admin socket: one JSON request per line, one JSON reply per line.
//!
//! ```text
//! → {"command":"client_disable","id":"billing"}
//! ← {"ok":{"client":{"client_id":"billing","enabled":false,…}}}
//! → {"command":"client_show","id":"nobody"}
//! ← {"error":{"code":"not_found","message":"there is no client \"nobody\""}}
//! ```
//!
//! Times are seconds since the Unix epoch. Fields may be added to replies, so unknown ones are ignored there. In
//! requests they are refused, so that nothing is done that was meant otherwise.

mod choice;
mod running;

use serde::{Deserialize, Serialize};

pub(crate) use self::choice::{ExplainedChoice, ExplainedEndpoint, ExplainedRegion, ExplainedStep};
pub(crate) use self::running::{
    Change, Expiry, Held, KeySet, LimitStatus, ListenerStatus, Overridden, OverrideTo, Reloaded, Status,
    Upstream, UpstreamEndpoint,
};
use super::import::ImportClient;
pub(crate) use super::sensitive::Sensitive;

/// The longest request, in bytes, without its line feed.
pub(crate) const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// The longest reply: enough for a page of a thousand clients.
pub(crate) const REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    Status,
    Reload,
    Drain,
    /// The services with their endpoints.
    UpstreamList,
    /// Which endpoint of a service a request would get, and why.
    UpstreamExplain {
        service: String,
        /// What its hash policy yields for the request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// Takes an endpoint out, or in again.
    UpstreamOverride {
        service: String,
        endpoint: String,
        to: OverrideTo,
    },
    /// Whose requests are held in the tarpit.
    TarpitList,
    /// Has what is held of an address prefix, of an identity, or of all answered now, and forgets their offences.
    TarpitRelease {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        issuer: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subject: Option<String>,
    },
    /// The configured certificates, served or not.
    CertificateList,
    /// Orders the certificate of a host now, whatever failed before.
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
        /// A secret chosen by the operator. By default, one is generated.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secret: Option<Sensitive>,
        /// Whether a verified secret may be cached. Default: yes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remember_secret: Option<bool>,
    },
    /// Imports clients of another server: all of them or none, even in several requests on one connection.
    ClientImport {
        clients: Vec<ImportClient>,
        /// Further parts follow; nothing is done before the last one.
        #[serde(default)]
        more: bool,
    },
    /// A page of at most 1,000 clients whose ids follow `after`.
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
    /// The name of the command, for the log.
    pub(crate) fn command(&self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Reload => "reload",
            Self::Drain => "drain",
            Self::UpstreamList => "upstream_list",
            Self::UpstreamExplain { .. } => "upstream_explain",
            Self::UpstreamOverride { .. } => "upstream_override",
            Self::TarpitList => "tarpit_list",
            Self::TarpitRelease { .. } => "tarpit_release",
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

    /// Whether a client's rights may have ended afterwards.
    pub(crate) const fn revokes(&self) -> bool {
        matches!(self, Self::ClientDisable { .. } | Self::ClientDelete { .. })
    }

    /// Whether the published keys may have changed afterwards.
    pub(crate) fn changes_keys(&self) -> bool {
        // A list reads the store, where another process may have changed them.
        matches!(self, Self::KeyList | Self::KeyRotate { .. } | Self::KeyRewrap { .. })
    }
}

/// The replies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Ok(Answer),
    Error(AdminError),
    /// The progress of an import, whose final reply follows.
    Progress {
        clients: usize,
    },
}

/// The result of a successful request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Done,
    Status(Box<Status>),
    Reloaded(Reloaded),
    Certificates(Vec<Certificate>),
    Upstreams(Vec<Upstream>),
    Choice(Box<ExplainedChoice>),
    Overridden(Overridden),
    Held(Vec<Held>),
    Released { requests: u64 },
    Created { client: Client, secret: Sensitive },
    Client(Client),
    Clients { clients: Vec<Client>, next: Option<String> },
    Keys(Vec<Key>),
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub(crate) struct AdminError {
    pub(crate) code: Code,
    pub(crate) message: String,
    /// The index of the affected client of several, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<usize>,
    /// The errors of further clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) others: Vec<ItemError>,
}

/// The error of one of several clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ItemError {
    /// The index of the client, from 0.
    pub(crate) index: usize,
    pub(crate) message: String,
}

impl AdminError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), index: None, others: Vec::new() }
    }
}

/// The kind of the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", from = "String")]
pub(crate) enum Code {
    /// The request is not JSON or has an unknown command.
    Malformed,
    /// The caller lacks permission.
    Forbidden,
    /// The client or certificate does not exist.
    NotFound,
    /// The client already exists.
    Exists,
    /// A value is not accepted.
    Invalid,
    /// A limit is reached.
    Limit,
    /// The configuration has no authorization server.
    NoAuthorizationServer,
    /// The configuration is invalid; the old one stays in effect.
    Configuration,
    /// The database, the disk or something else failed.
    Failed,
    /// An unknown code of a later version.
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

/// A configured certificate, served or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Certificate {
    pub(crate) hosts: Vec<String>,
    /// The chain file, or `acme`.
    pub(crate) source: String,
    /// The listeners that serve it, in order.
    pub(crate) listeners: Vec<String>,
    /// When it expires; `None` if it was not issued yet.
    pub(crate) not_after: Option<i64>,
    /// When the next one is ordered, for ACME certificates; 0 means now.
    pub(crate) next_attempt_at: Option<i64>,
    /// Failed attempts since the last success.
    pub(crate) failures: u32,
    /// The problem of the certificate, or why the last attempt failed.
    pub(crate) problem: Option<String>,
    /// The result of handshakes for its hosts.
    #[serde(default)]
    pub(crate) state: CertificateState,
}

/// The state of a certificate, seen from handshakes for its hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CertificateState {
    /// It is served.
    #[default]
    Served,
    /// It is served, but clients refuse it.
    Expired,
    /// The present files can't be used; the previous certificate is served.
    Rejected,
    /// It can't be used, and handshakes fail.
    Unusable,
    /// It was not issued yet, and handshakes fail.
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
    /// Empty: only the default audience.
    pub(crate) audiences: Vec<String>,
    pub(crate) access_token_lifetime_seconds: Option<u32>,
    pub(crate) basic_encoding: String,
    /// Whether a verified secret may be cached.
    #[serde(default = "yes")]
    pub(crate) remember_secret: bool,
    pub(crate) created_at: i64,
    pub(crate) updated_at: i64,
    pub(crate) disabled_at: Option<i64>,
    /// Through when its tokens are revoked.
    #[serde(default)]
    pub(crate) tokens_revoked_through: Option<i64>,
    pub(crate) secrets: Vec<SecretFacts>,
}

fn yes() -> bool {
    true
}

/// The public data of a client's secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SecretFacts {
    pub(crate) id: String,
    /// The hash algorithm and its cost.
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
    /// The time from which it is no longer published; absent while it has no successor.
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
            tokens_revoked_through: client.tokens_revoked_through,
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
        let error = Reply::Error(AdminError::new(Code::NotFound, "no"));
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
