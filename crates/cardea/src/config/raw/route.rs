//! Routes as written.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;

use super::client_certificate::RawClientCertificate;
use super::{
    super::{
        sections::{Builtin, EncodedPathByte},
        text::{OptionalDurationText, OptionalSizeText},
    },
    rules::{RawAttributeEditsList, RawFieldEditsList, RawPolicyRule},
};

/// Which requests go where, and who may make them. One of `path`, `path_prefix` and `path_pattern` says which
/// paths are meant (any, where all are left out); one of `service`, `redirect`, `respond` and `builtin` says
/// where requests go.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct RawRoute {
    /// Its name, in logs and metrics.
    #[schemars(extend("format" = "cardea-name"))]
    pub(in crate::config) name: String,
    /// The hosts that it is for: names, or `"*.example.com"` for every name one label below one, as in certificates:
    /// `a.example.com`, not `a.b.example.com`. Left out, any.
    #[serde(default)]
    pub(in crate::config) hosts: Vec<String>,
    /// The names of the listeners that it is bound to: elsewhere it does not exist. Left out, all.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(in crate::config) listeners: Option<Vec<String>>,
    /// The one path that it is for.
    #[serde(default)]
    pub(in crate::config) path: Option<String>,
    /// The path that it is for, with everything below: `"/api"` takes `/api` and `/api/x`, not `/apix`.
    #[serde(default)]
    pub(in crate::config) path_prefix: Option<String>,
    /// Paths by their segments: `"/users/{id}/orders"`; `{*rest}` at the end takes all that follows.
    #[serde(default)]
    pub(in crate::config) path_pattern: Option<String>,
    /// The methods that it is for. Left out, any.
    #[serde(default)]
    pub(in crate::config) methods: Vec<String>,
    /// Header fields that a request must have: with this value, or with any where it is `true`.
    #[serde(default)]
    pub(in crate::config) headers: BTreeMap<String, RawHeaderCondition>,
    /// An expression that must hold for a request: `"request.query_params['preview'] == '1'"`. It knows the request, its
    /// source and its connection, not yet who is calling. Where it can't be evaluated the request is refused with 403, so
    /// that nobody reaches a route that asks for less.
    #[serde(default)]
    pub(in crate::config) when: Option<String>,
    /// Who may make the request: `"public"` for everyone, or what a token must say; with several tables, one of
    /// them must fit.
    #[schemars(extend("x-remedy" = "say what a token must have: auth = { issuer = \"…\", scopes = [\"…\"] }, or a list of such tables; a route that is meant for everyone says auth = \"public\""))]
    pub(in crate::config) auth: RawAuth,
    /// What is made of the client's certificate: `"required"` or `"optional"`, or a table. Left out, it is not looked at.
    #[serde(default)]
    pub(in crate::config) client_certificate: Option<RawClientCertificate>,
    /// Whether GET, HEAD and OPTIONS over HTTP/1.1 without a body are carried before the TLS handshake is done, where the
    /// listener takes early data. Services are told by `Early-Data: 1` (RFC 8470), and one that answers 425 is asked again after
    /// the handshake. All other requests wait for it. Left out, all do.
    #[serde(default)]
    pub(in crate::config) early_data: bool,
    /// Names of routes some of whose requests this one takes though it asks for less: by a parameter, a more specific host, or
    /// since the other one is for some methods alone. `check` warns of such pairs; those named here are meant.
    #[serde(default)]
    pub(in crate::config) opens: Vec<String>,
    /// Rules that a request must pass beside `auth`.
    #[serde(default)]
    pub(in crate::config) policy: Vec<RawPolicyRule>,
    /// Changes to attributes.
    #[serde(default)]
    pub(in crate::config) attributes: RawAttributeEditsList,
    /// The service that requests are forwarded to.
    #[serde(default)]
    #[schemars(extend("format" = "cardea-name"))]
    pub(in crate::config) service: Option<String>,
    /// Answers with a redirect.
    #[serde(default)]
    pub(in crate::config) redirect: Option<RawRedirect>,
    /// Answers with a fixed response.
    #[serde(default)]
    pub(in crate::config) respond: Option<RawRespond>,
    /// Answers with a built-in service.
    #[serde(default)]
    pub(in crate::config) builtin: Option<Builtin>,
    /// Takes `path_prefix` away from the path before it is forwarded.
    #[serde(default)]
    pub(in crate::config) strip_prefix: bool,
    /// The path that is forwarded instead; parameters of `path_pattern` and attributes stand in braces:
    /// `"/v2/{id}"`.
    #[serde(default)]
    pub(in crate::config) rewrite_path: Option<String>,
    /// What paths may carry though some origins read it in another way, and so another path than the one whose
    /// rules were applied. Requests with any of them are refused elsewhere.
    #[serde(default)]
    pub(in crate::config) allow_encoded: Vec<EncodedPathByte>,
    /// Timeouts that differ from the general ones.
    #[serde(default)]
    pub(in crate::config) timeouts: RawRouteTimeouts,
    /// The largest request body. Left out, `limits.body_bytes_max`.
    #[serde(default, with = "OptionalSizeText")]
    #[schemars(extend("x-maximum" = "1TiB"))]
    pub(in crate::config) body_bytes_max: Option<u64>,
    /// Whether the request's `Authorization` is forwarded. Left out, `forwarding.authorization` where the route asks for a
    /// token, and `true` where it is public.
    #[serde(default)]
    pub(in crate::config) forward_authorization: Option<bool>,
    /// Changes to the fields of the request before it is forwarded, after those for all routes.
    #[serde(default)]
    pub(in crate::config) request_headers: RawFieldEditsList,
    /// Changes to the fields of the response before it is sent, after those for all routes. Refusals of the gateway have only
    /// the latter.
    #[serde(default)]
    pub(in crate::config) response_headers: RawFieldEditsList,
}

/// A condition on a header field.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(in crate::config) enum RawHeaderCondition {
    /// The field is there.
    Present(bool),
    /// The field has this value.
    Exact(String),
}

/// Who may make a request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(in crate::config) enum RawAuth {
    /// Everyone.
    Public(RawPublic),
    /// Whoever has a token that fits.
    Demand(RawDemand),
    /// Whoever has a token that fits one of these.
    Alternatives(#[schemars(length(min = 1))] Vec<RawDemand>),
}

/// The word for everyone.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(in crate::config) enum RawPublic {
    /// Everyone.
    #[schemars(extend("x-opens" = true))]
    Public,
}

/// What a token must say.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct RawDemand {
    /// The name of the issuer that it must come from.
    #[schemars(extend("format" = "cardea-name"))]
    pub(in crate::config) issuer: String,
    /// The audiences that it may be for; one must fit. Left out, the first of the issuer's `audiences`.
    #[serde(default)]
    pub(in crate::config) audiences: Vec<String>,
    /// The scopes that it must have, all of them.
    #[serde(default)]
    pub(in crate::config) scopes: Vec<String>,
    /// The roles of which it must have one. Left out, none is needed.
    #[serde(default)]
    pub(in crate::config) roles: Vec<String>,
}

/// A redirect.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct RawRedirect {
    /// Where to: a URL or an absolute path, which may have attributes in braces: `"https://new.example.com{request.path}"`.
    pub(in crate::config) to: String,
    /// Whether the request's query is appended, behind parameters that `to` has already; an empty one leaves no `?`. Where `to`
    /// reads the query itself nothing is appended.
    #[serde(default = "yes")]
    pub(in crate::config) keep_query: bool,
    /// The status: 301, 302, 303, 307 or 308. The default keeps the method and is remembered by clients.
    #[serde(default = "permanent_redirect")]
    #[schemars(range(min = 301, max = 308))]
    pub(in crate::config) status: u16,
}

fn yes() -> bool {
    true
}

fn permanent_redirect() -> u16 {
    308
}

/// A fixed response.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct RawRespond {
    /// The status.
    #[serde(default = "ok")]
    #[schemars(range(min = 200, max = 599))]
    pub(in crate::config) status: u16,
    /// The media type of the body.
    #[serde(default = "text_plain")]
    pub(in crate::config) content_type: String,
    /// The body.
    #[serde(default)]
    pub(in crate::config) body: Option<String>,
    /// A file with the body, of at most 1 MiB, which is read when the configuration is loaded.
    #[serde(default)]
    pub(in crate::config) file: Option<String>,
}

fn ok() -> u16 {
    200
}

fn text_plain() -> String {
    "text/plain; charset=utf-8".to_owned()
}

/// Timeouts of a route; left out, the general ones hold.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct RawRouteTimeouts {
    /// In place of `timeouts.request`.
    #[serde(with = "OptionalDurationText")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "7d"))]
    pub(in crate::config) request: Option<Duration>,
    /// In place of `timeouts.request_body_idle`.
    #[serde(with = "OptionalDurationText")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1h"))]
    pub(in crate::config) request_body_idle: Option<Duration>,
    /// In place of `timeouts.response_head`.
    #[serde(with = "OptionalDurationText")]
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
    pub(in crate::config) response_head: Option<Duration>,
    /// In place of `timeouts.response_body_idle`.
    #[serde(with = "OptionalDurationText")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1d"))]
    pub(in crate::config) response_body_idle: Option<Duration>,
    /// In place of `timeouts.token_expiry_grace`.
    #[serde(with = "OptionalDurationText")]
    #[schemars(extend("x-maximum" = "1h"))]
    pub(in crate::config) token_expiry_grace: Option<Duration>,
}
