//! Clients as administrators see them: without the data that verifies their secrets.

use std::time::Duration;

use cardea_clock::Wall;
use cardea_store::{BasicEncoding, ClientRecord, GrantType, SecretRecord};
use serde::Serialize;

use crate::{
    AuthorizationServerConfig, IssuerError, Secret,
    config::{check_lifetime, check_scopes, is_visible_ascii},
};

/// The most bytes of a client id.
pub(crate) const CLIENT_ID_BYTES_MAX: usize = 128;
const NAME_BYTES_MAX: usize = 200;
const SECRET_LIFETIME_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 3_600);

/// A client to be created.
#[derive(Clone, Debug)]
pub struct NewClient {
    /// The client id: visible ASCII, at most 128 bytes. `None` generates one, which is recommended. An id with `%` or
    /// `+` needs a `basic_encoding` other than [`BasicEncoding::Auto`], one with `:` needs
    /// [`BasicEncoding::FormEncoded`].
    pub id: Option<String>,
    /// A display name, at most 200 bytes.
    pub name: String,
    /// The allowed grants. Default: client credentials.
    pub grant_types: Vec<GrantType>,
    /// The scopes that the client may request. A request without scopes gets all of them.
    pub scopes: Vec<String>,
    /// The audiences that the client may request, out of the configured ones. Empty: only the default audience, as it is
    /// configured at the time of the request. If the default audience is not among them, the first one is the client's
    /// default.
    pub audiences: Vec<String>,
    /// The lifetime of the client's tokens: 60 s to 24 h, and not longer than the overlap of keys allows. `None` uses
    /// the configured lifetime.
    pub access_token_lifetime: Option<Duration>,
    /// The lifetime of the first secret, at most ten years. `None`: it never expires.
    pub secret_expires_in: Option<Duration>,
    /// The encoding of the client's Basic credentials.
    pub basic_encoding: BasicEncoding,
    /// The first secret, if the operator chose one. `None` generates one, which is recommended.
    pub secret: Option<Secret>,
    /// Whether a verified secret of the client may be cached. Default: yes.
    pub remember_secret: bool,
}

impl Default for NewClient {
    fn default() -> Self {
        Self {
            id: None,
            name: String::new(),
            grant_types: vec![GrantType::ClientCredentials],
            scopes: Vec::new(),
            audiences: Vec::new(),
            access_token_lifetime: None,
            secret_expires_in: None,
            basic_encoding: BasicEncoding::default(),
            secret: None,
            remember_secret: true,
        }
    }
}

impl NewClient {
    /// Checks all fields, without access to the store.
    pub(crate) fn check(&self, config: &AuthorizationServerConfig) -> Result<(), IssuerError> {
        if let Some(id) = &self.id {
            check_id(id, self.basic_encoding).map_err(|problem| invalid("id", problem))?;
        }
        if self.name.len() > NAME_BYTES_MAX || self.name.chars().any(char::is_control) {
            return Err(invalid(
                "name",
                format!("expected at most {NAME_BYTES_MAX} bytes without control characters"),
            ));
        }
        check_scopes(&self.scopes).map_err(|problem| invalid("scopes", problem))?;
        if !config.scopes.is_empty()
            && let Some(unknown) = self.scopes.iter().find(|scope| !config.scopes.contains(scope))
        {
            let problem =
                format!("{unknown:?} is not configured; the scopes are: {}", config.scopes.join(", "));
            return Err(invalid("scopes", problem));
        }
        if let Some(unknown) = self.audiences.iter().find(|audience| !is_audience(config, audience)) {
            let mut known = vec![config.default_audience.as_str()];
            known.extend(config.resources.iter().map(String::as_str));
            let problem = format!("{unknown:?} is not configured; the audiences are: {}", known.join(", "));
            return Err(invalid("audiences", problem));
        }
        if let Some(lifetime) = self.access_token_lifetime {
            check_lifetime(lifetime).map_err(|problem| invalid("access_token_lifetime", problem))?;
            if lifetime > config.token_lifetime_max() {
                let most = config.token_lifetime_max().as_secs();
                return Err(invalid("access_token_lifetime", format!("key_overlap allows at most {most} s")));
            }
        }
        check_secret_lifetime(self.secret_expires_in)
    }
}

/// Whether tokens may be issued for that audience.
pub(crate) fn is_audience(config: &AuthorizationServerConfig, audience: &str) -> bool {
    audience == config.default_audience || config.resources.iter().any(|resource| resource == audience)
}

/// Checks the lifetime of a secret.
pub(crate) fn check_secret_lifetime(lifetime: Option<Duration>) -> Result<(), IssuerError> {
    match lifetime {
        Some(lifetime) if lifetime.is_zero() || lifetime > SECRET_LIFETIME_MAX => {
            Err(invalid("secret_expires_in", "expected more than nothing and at most 10 years".into()))
        }
        _ => Ok(()),
    }
}

fn check_id(id: &str, encoding: BasicEncoding) -> Result<(), String> {
    if id.is_empty() || id.len() > CLIENT_ID_BYTES_MAX || !is_visible_ascii(id) {
        return Err(format!("{id:?} is not an id: 1 to {CLIENT_ID_BYTES_MAX} bytes of visible ASCII"));
    }
    if id.contains(':') && encoding != BasicEncoding::FormEncoded {
        return Err(format!("{id:?} has a colon, which Basic carries only form-encoded; set basic_encoding"));
    }
    if id.contains(['%', '+']) && encoding == BasicEncoding::Auto {
        return Err(format!("{id:?} reads differently raw and form-encoded; set basic_encoding"));
    }
    Ok(())
}

pub(crate) fn invalid(field: &'static str, problem: String) -> IssuerError {
    IssuerError::InvalidClient { field, problem }
}

/// A client. It is serialised for scripts; times are in Unix seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Client {
    /// At most 128 bytes of visible ASCII.
    pub client_id: String,
    /// A display name.
    pub name: String,
    /// Whether the client can get tokens.
    pub enabled: bool,
    /// The allowed grants.
    pub grant_types: Vec<GrantType>,
    /// The scopes that the client may request.
    pub scopes: Vec<String>,
    /// The audiences that the client may request; empty: only the default audience.
    pub audiences: Vec<String>,
    /// The lifetime of the client's tokens; `None`: the configured lifetime.
    pub access_token_lifetime_seconds: Option<u32>,
    /// The encoding of the client's Basic credentials.
    pub basic_encoding: BasicEncoding,
    /// Whether a verified secret of the client may be cached.
    pub remember_secret: bool,
    /// In Unix seconds.
    pub created_at: i64,
    /// The time of the last change, in Unix seconds.
    pub updated_at: i64,
    /// The time of disabling, in Unix seconds.
    pub disabled_at: Option<i64>,
    /// Through when its tokens are revoked, in Unix seconds. It gets no tokens that would be issued earlier.
    pub tokens_revoked_through: Option<i64>,
    /// The client's secrets, oldest first. Expired ones are kept until the next rotation.
    pub secrets: Vec<ClientSecret>,
}

/// The public data of a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClientSecret {
    /// Identifies the secret within its client.
    pub id: String,
    /// The hash algorithm and its cost.
    pub format: String,
    /// `generated`, `chosen` or `imported`.
    pub provenance: String,
    /// In Unix seconds.
    pub created_at: i64,
    /// The time from which the secret is refused, in Unix seconds.
    pub expires_at: Option<i64>,
}

impl From<&ClientRecord> for Client {
    fn from(record: &ClientRecord) -> Self {
        Self {
            client_id: record.id.clone(),
            name: record.name.clone(),
            enabled: record.enabled,
            grant_types: record.grant_types.clone(),
            scopes: record.scopes.clone(),
            audiences: record.audiences.clone(),
            access_token_lifetime_seconds: record.token_lifetime_seconds,
            basic_encoding: record.basic_encoding,
            remember_secret: record.remember_secret,
            created_at: record.created_at.unix_seconds(),
            updated_at: record.updated_at.unix_seconds(),
            disabled_at: record.disabled_at.map(Wall::unix_seconds),
            tokens_revoked_through: record.tokens_revoked_through.map(Wall::unix_seconds),
            secrets: record.secrets.iter().map(ClientSecret::from).collect(),
        }
    }
}

impl From<&SecretRecord> for ClientSecret {
    fn from(record: &SecretRecord) -> Self {
        Self {
            id: record.id.clone(),
            format: record.format.clone(),
            provenance: record.provenance.clone(),
            created_at: record.created_at.unix_seconds(),
            expires_at: record.expires_at.map(Wall::unix_seconds),
        }
    }
}

/// A client with its new secret.
#[derive(Clone, Debug)]
pub struct Created {
    /// The client.
    pub client: Client,
    /// The generated or chosen secret. It can't be shown again.
    pub secret: Secret,
}

/// A page of clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Page {
    /// The clients, in the byte order of their ids.
    pub clients: Vec<Client>,
    /// The id to continue after; `None` on the last page.
    pub next: Option<String>,
}
