//! The token endpoint: the client-credentials grant (RFC 6749 §4.4).

use std::borrow::Cow;

use cardea_clock::{Timestamp, Wall};
use cardea_store::{ClientRecord, GrantType};
use serde::Serialize;

use crate::{
    AuthorizationServerConfig, IssuerError, Reply, client::is_audience, client_auth, client_auth::Method,
    client_auth::Presented, config::is_scope_token, error_reply, form::Form, form::FormError, jwt,
    jwt::Audience, jwt::Claims, server::AuthorizationServer, verification::Candidate,
    verification::RejectReason, verification::Rejection, verification::RequestContext,
};

/// The most resources in a request.
const RESOURCES_MAX: usize = 16;
/// The most scopes in a request, including repeated ones.
const SCOPES_MAX: usize = 1_024;
/// How far `iat` may be ahead of the clock, to distinguish a token from revoked ones.
const ISSUED_AHEAD_SECONDS_MAX: i64 = 30;

/// A `POST` request to the token endpoint. Nothing in it is trusted.
#[derive(Clone, Copy)]
pub struct TokenRequest<'a> {
    /// The values of all `Authorization` fields.
    pub authorization: &'a [&'a [u8]],
    /// The value of `Content-Type`; `None` if it is missing or repeated.
    pub content_type: Option<&'a [u8]>,
    /// Whether the target has a query, even an empty one.
    pub query_present: bool,
    /// The whole body. A body larger than [`TokenRequest::BODY_BYTES_MAX`] is refused.
    pub body: &'a [u8],
}

impl TokenRequest<'_> {
    /// The most bytes of a body. A gateway need not read more.
    pub const BODY_BYTES_MAX: usize = 16 * 1_024;
}

impl std::fmt::Debug for TokenRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenRequest")
            .field("authorization", &self.authorization.len())
            .field("query_present", &self.query_present)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Why no token is issued: the answer for the client and the reason for the operator.
#[derive(Debug)]
pub(crate) struct GrantError {
    status: u16,
    error: &'static str,
    description: Cow<'static, str>,
    reason: &'static str,
    retry_after_seconds: u64,
    /// The credentials were wrong, or were too often.
    credentials_failed: bool,
}

impl GrantError {
    /// The request itself is wrong (RFC 6749 §5.2).
    pub(crate) fn invalid_request(reason: &'static str, description: impl Into<Cow<'static, str>>) -> Self {
        Self::new(400, "invalid_request", reason, description)
    }

    /// Authentication failed (RFC 6749 §5.2). The status is always 401, which the RFC allows for credentials in the
    /// body too.
    pub(crate) fn invalid_client(reason: &'static str, description: &'static str) -> Self {
        Self::new(401, "invalid_client", reason, description)
    }

    fn new(
        status: u16,
        error: &'static str,
        reason: &'static str,
        description: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            status,
            error,
            description: description.into(),
            reason,
            retry_after_seconds: 1,
            credentials_failed: false,
        }
    }

    fn unavailable(reason: &'static str, error: &IssuerError) -> Self {
        tracing::error!(%error, reason, "no token could be issued");
        Self::new(
            503,
            "temporarily_unavailable",
            reason,
            "the authorization server is temporarily unavailable; try again",
        )
    }

    /// The attempt was rejected before it was made. The answer says nothing about the client or the secret.
    fn rejected(rejection: &Rejection) -> Self {
        let reason = rejection.reason.as_str();
        let refusal = match rejection.reason {
            // RFC 6585 §4. RFC 6749 has no error for it.
            RejectReason::FailuresExceeded => Self::new(
                429,
                "temporarily_unavailable",
                reason,
                "too many failed attempts for this client from this address; try again later",
            ),
            RejectReason::QueueFull | RejectReason::TimedOut => Self::new(
                503,
                "temporarily_unavailable",
                reason,
                "the authorization server is overloaded; try again",
            ),
        };
        let up = u64::from(rejection.retry_after.subsec_nanos() > 0);
        Self {
            retry_after_seconds: (rejection.retry_after.as_secs() + up).max(1),
            credentials_failed: rejection.reason == RejectReason::FailuresExceeded,
            ..refusal
        }
    }

    #[cfg(test)]
    pub(crate) fn reason(&self) -> &'static str {
        self.reason
    }

    fn into_reply(self, realm: &str) -> Reply {
        let reply = error_reply(self.error, &self.description, self.status).because(self.reason);
        let reply = Reply { credentials_failed: self.credentials_failed, ..reply };
        match self.status {
            // RFC 9110 §15.5.2 requires a challenge in every 401, and RFC 6749 §5.2 requires the scheme that was used.
            // Basic is the only supported one.
            401 => {
                reply.with_header("www-authenticate", format!("Basic realm=\"{realm}\", charset=\"UTF-8\""))
            }
            429 | 503 => reply.with_header("retry-after", self.retry_after_seconds.to_string()),
            _ => reply,
        }
    }
}

/// The successful response of RFC 6749 §5.1.
#[derive(Serialize)]
struct TokenResponse<'a> {
    access_token: &'a str,
    token_type: &'static str,
    expires_in: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    scope: &'a str,
}

/// Answers a token request.
pub(crate) async fn token(
    server: &AuthorizationServer,
    request: TokenRequest<'_>,
    context: RequestContext,
    now: Timestamp,
) -> Reply {
    match issue(server, request, context, now).await {
        Ok(reply) => reply,
        Err(refusal) => {
            tracing::debug!(reason = refusal.reason, "token request refused");
            refusal.into_reply(server.issuer())
        }
    }
}

async fn issue(
    server: &AuthorizationServer,
    request: TokenRequest<'_>,
    context: RequestContext,
    now: Timestamp,
) -> Result<Reply, GrantError> {
    let form = form_of(request)?;
    let presented = client_auth::presented(request.authorization, &form)?;
    let client = authenticate(server, &presented, context, now).await?;

    match form.get("grant_type") {
        Some("client_credentials") => {}
        Some(_) => {
            let description = "only client_credentials is supported";
            return Err(GrantError::new(
                400,
                "unsupported_grant_type",
                "grant_type_unsupported",
                description,
            ));
        }
        None => return Err(GrantError::invalid_request("grant_type_missing", "grant_type is missing")),
    }
    if !client.grant_types.contains(&GrantType::ClientCredentials) {
        let description = "this client may not use client_credentials";
        return Err(GrantError::new(400, "unauthorized_client", "grant_type_not_allowed", description));
    }
    // One configuration for the whole request, even if a reload happens meanwhile.
    let config = server.config();
    let scope = scope_of(&form, &client, &config)?;
    let audiences = audiences_of(&form, &client, &config)?;
    let lifetime = lifetime_seconds(&client, &config);
    sign(server, &client, &scope, &audiences, lifetime, now.wall).await
}

/// Checks the form of the request and parses its body (RFC 6749 §3.2, §4.4.2).
fn form_of(request: TokenRequest<'_>) -> Result<Form, GrantError> {
    if request.query_present {
        // RFC 6749 §2.3.1 forbids credentials in the URI. The endpoint has no query parameters.
        return Err(GrantError::invalid_request(
            "query_present",
            "parameters must be in the body, not in the query",
        ));
    }
    if !request.content_type.is_some_and(is_form) {
        let description = "the Content-Type must be application/x-www-form-urlencoded";
        return Err(GrantError::invalid_request("content_type_wrong", description));
    }
    if request.body.len() > TokenRequest::BODY_BYTES_MAX {
        return Err(GrantError::new(413, "invalid_request", "body_too_large", "the body is too large"));
    }
    let form = Form::parse(request.body).map_err(|error| match error {
        FormError::Malformed => {
            GrantError::invalid_request("form_malformed", "the body is not a well-formed form")
        }
        FormError::TooMany => {
            GrantError::invalid_request("form_too_long", "the body has too many parameters")
        }
    })?;
    if form.repeated().is_some() {
        return Err(GrantError::invalid_request("parameter_repeated", "a parameter is repeated"));
    }
    Ok(form)
}

/// Whether a `Content-Type` is that of a form. The type has no parameters. `charset=UTF-8` is accepted, because it
/// changes nothing and clients send it. Any other parameter would mean another reading of the body.
fn is_form(content_type: &[u8]) -> bool {
    let Ok(content_type) = std::str::from_utf8(content_type) else { return false };
    let mut parts = content_type.split(';').map(|part| part.trim_matches([' ', '\t']));
    let form =
        parts.next().is_some_and(|media| media.eq_ignore_ascii_case("application/x-www-form-urlencoded"));
    form && parts.all(|parameter| {
        let Some((name, value)) = parameter.split_once('=') else { return parameter.is_empty() };
        let unquoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
        name.eq_ignore_ascii_case("charset") && unquoted.eq_ignore_ascii_case("utf-8")
    })
}

/// Finds the client that the credentials belong to. The store is read for every reading, whatever the result of the one
/// before, unless all readings are rejected without it. The error doesn't reveal which part was wrong.
async fn authenticate(
    server: &AuthorizationServer,
    presented: &Presented,
    context: RequestContext,
    now: Timestamp,
) -> Result<ClientRecord, GrantError> {
    let refused = server.verifier.reject_before_read(&presented.readings, context, now);
    refused.map_err(|rejection| GrantError::rejected(&rejection))?;
    let mut candidates = Vec::with_capacity(presented.readings.len());
    for reading in &presented.readings {
        let record = server
            .store
            .client(&reading.id)
            .await
            .map_err(|error| GrantError::unavailable("store_failed", &IssuerError::Store(error)))?;
        candidates.push(Candidate { reading, record });
    }
    let verified = server.verifier.verify(&server.store, &candidates, context, now).await;
    let authenticated = verified.map_err(|rejection| GrantError::rejected(&rejection))?;
    let client = authenticated.and_then(|index| candidates.swap_remove(index).record);
    let client = client.ok_or_else(|| {
        let reason = match presented.method {
            Method::Basic => "basic_credentials_wrong",
            Method::Post => "post_credentials_wrong",
        };
        let refused = GrantError::invalid_client(reason, "client authentication failed");
        GrantError { credentials_failed: true, ..refused }
    })?;
    if presented.body_client_id.as_ref().is_some_and(|id| *id != client.id) {
        let description = "client_id and the Authorization header name different clients";
        return Err(GrantError::invalid_request("client_ids_differ", description));
    }
    Ok(client)
}

/// The granted scope (RFC 6749 §3.3): the requested scopes without repetition, or all that the client may have.
fn scope_of(
    form: &Form,
    client: &ClientRecord,
    config: &AuthorizationServerConfig,
) -> Result<String, GrantError> {
    // A scope that the configuration no longer has is not granted, whatever the record says.
    let exists = |scope: &&str| config.scopes.is_empty() || config.scopes.iter().any(|known| known == scope);
    let allowed: Vec<&str> = client.scopes.iter().map(String::as_str).filter(exists).collect();
    let Some(requested) = form.get("scope") else { return Ok(allowed.join(" ")) };
    let mut granted: Vec<&str> = Vec::new();
    for (index, token) in requested.split(' ').enumerate() {
        if index >= SCOPES_MAX || !is_scope_token(token) {
            return Err(GrantError::new(400, "invalid_scope", "scope_malformed", "the scope is malformed"));
        }
        if !allowed.contains(&token) {
            let description = "a requested scope is not allowed for this client";
            return Err(GrantError::new(400, "invalid_scope", "scope_not_allowed", description));
        }
        if !granted.contains(&token) {
            granted.push(token);
        }
    }
    Ok(granted.join(" "))
}

/// The audiences of the token (RFC 8707 §2.2, RFC 9068 §3).
fn audiences_of<'a>(
    form: &'a Form,
    client: &'a ClientRecord,
    config: &'a AuthorizationServerConfig,
) -> Result<Vec<&'a str>, GrantError> {
    let refused =
        |reason, description: &'static str| Err(GrantError::new(400, "invalid_target", reason, description));
    // A client without audiences is confined to the default one. An audience that the configuration no longer has is
    // not granted, whatever the record says.
    let may_have = |audience: &str| match client.audiences.as_slice() {
        [] => audience == config.default_audience,
        allowed => is_audience(config, audience) && allowed.iter().any(|allowed| allowed == audience),
    };
    let mut audiences: Vec<&str> = Vec::new();
    for (index, resource) in form.all("resource").enumerate() {
        if index >= RESOURCES_MAX {
            return refused("resource_too_many", "too many resources in one request");
        }
        if !may_have(resource) {
            return refused("resource_unknown", "a resource is unknown or not allowed for this client");
        }
        if !audiences.contains(&resource) {
            audiences.push(resource);
        }
    }
    if audiences.is_empty() {
        let first = client.audiences.iter().map(String::as_str).find(|audience| may_have(audience));
        let default = Some(config.default_audience.as_str()).filter(|audience| may_have(audience)).or(first);
        match default {
            Some(default) => audiences.push(default),
            // The configuration has none of the client's audiences any more.
            None => return refused("audience_none", "no resource is configured for this client"),
        }
    }
    Ok(audiences)
}

async fn sign(
    server: &AuthorizationServer,
    client: &ClientRecord,
    scope: &str,
    audiences: &[&str],
    lifetime: i64,
    now: Wall,
) -> Result<Reply, GrantError> {
    let issued_at = issued_at(client, now).ok_or_else(|| {
        let error = IssuerError::Crypto("the clock is behind the last revocation");
        GrantError::unavailable("clock_behind_revocation", &error)
    })?;
    let failed = |error: IssuerError| GrantError::unavailable("signing_failed", &error);
    let claims = Claims {
        iss: server.issuer(),
        sub: &client.id,
        client_id: &client.id,
        aud: Audience::of(audiences),
        iat: issued_at,
        exp: now.unix_seconds().saturating_add(lifetime),
        jti: jwt::token_id().map_err(failed)?,
        scope,
    };
    let key = server.signing_key(now).map_err(failed)?;
    let token = jwt::sign(&key, &claims, &server.signing_permits).await.map_err(failed)?;
    let response = TokenResponse { access_token: &token, token_type: "Bearer", expires_in: lifetime, scope };
    let body = serde_json::to_string(&response)
        .map_err(|_| failed(IssuerError::Crypto("the response can't be written")))?;
    tracing::debug!(client_id = client.id, jti = claims.jti, "token issued");
    Ok(Reply::json(200, body))
}

/// The lifetime of the client's tokens. It never exceeds the time for which their key stays published.
fn lifetime_seconds(client: &ClientRecord, config: &AuthorizationServerConfig) -> i64 {
    let most = config.token_lifetime_max().as_secs();
    let asked = client.token_lifetime_seconds.map_or(config.access_token_lifetime.as_secs(), u64::from);
    i64::try_from(asked.min(most)).unwrap_or(i64::MAX)
}

/// `iat`: the current second, or the second after the one through which the client's tokens were revoked, so that a new
/// token never looks revoked. `None` if the clock was set back too far for that.
fn issued_at(client: &ClientRecord, now: Wall) -> Option<i64> {
    let now = now.unix_seconds();
    let Some(revoked_through) = client.tokens_revoked_through else { return Some(now) };
    let issued_at = now.max(revoked_through.unix_seconds().saturating_add(1));
    (issued_at.saturating_sub(now) <= ISSUED_AHEAD_SECONDS_MAX).then_some(issued_at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_content_type_of_a_form_is_one() {
        for (content_type, form) in [
            ("application/x-www-form-urlencoded", true),
            ("Application/X-WWW-Form-URLencoded", true),
            ("application/x-www-form-urlencoded;charset=UTF-8", true),
            ("application/x-www-form-urlencoded ; charset=\"utf-8\"", true),
            ("application/x-www-form-urlencoded;", true),
            ("application/x-www-form-urlencoded; charset=iso-8859-1", false),
            ("application/x-www-form-urlencoded; charset=utf-7", false),
            ("application/x-www-form-urlencoded; boundary=x", false),
            ("application/x-www-form-urlencoded, application/json", false),
            ("application/json", false),
            ("multipart/form-data; boundary=x", false),
            ("text/plain", false),
            ("", false),
        ] {
            assert_eq!(is_form(content_type.as_bytes()), form, "{content_type:?}");
        }
        assert!(!is_form(b"application/x-www-form-urlencoded; charset=\xff"));
    }
}
