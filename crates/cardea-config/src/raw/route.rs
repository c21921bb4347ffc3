//! Routes as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::client_certificate::RawClientCertificate;
use super::{
    super::{
        form::{As, Size},
        model::BuiltIn,
        sections::EncodedPathByte,
    },
    limits::RawRouteTimeouts,
    rules::{OneOrMany, RawAttributeEdits, RawFieldEdits, RawPolicyRule},
};

/// Which requests go where, and who may make them. One of `path`, `path_prefix` and `path_pattern` says which
/// paths are meant (any, where all are left out); one of `service`, `redirect`, `respond` and `builtin` says
/// where requests go.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRoute {
    /// Its name, in logs and metrics.
    #[schemars(extend("format" = "cardea-name"))]
    pub(crate) name: String,
    /// The hosts that it is for: names, or `"*.example.com"` for every name one label below one, as in certificates:
    /// `a.example.com`, not `a.b.example.com`. Left out, any.
    #[serde(default)]
    pub(crate) hosts: Vec<String>,
    /// The names of the listeners that it is bound to: elsewhere it does not exist. Left out, all.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(crate) listeners: Option<Vec<String>>,
    /// The one path that it is for.
    #[serde(default)]
    pub(crate) path: Option<String>,
    /// The path that it is for, with everything below: `"/api"` takes `/api` and `/api/x`, not `/apix`.
    #[serde(default)]
    pub(crate) path_prefix: Option<String>,
    /// Paths by their segments: `"/users/{id}/orders"`; `{*rest}` at the end takes all that follows.
    #[serde(default)]
    pub(crate) path_pattern: Option<String>,
    /// The methods that it is for. Left out, any.
    #[serde(default)]
    pub(crate) methods: Vec<String>,
    /// Header fields that a request must have: with this value, or with any where it is `true`.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, RawHeaderCondition>,
    /// An expression that must hold for a request: `"request.query_params['preview'] == '1'"`. It knows the request, its
    /// source and its connection, not yet who is calling. Where it can't be evaluated the request is refused with 403, so
    /// that nobody reaches a route that asks for less.
    #[serde(default)]
    pub(crate) when: Option<String>,
    /// Who may make the request: `"public"` for everyone, or what a token must say; with several tables, one of
    /// them must fit.
    #[schemars(extend("x-remedy" = "say what a token must have: auth = { issuer = \"…\", scopes = [\"…\"] }, or a list of such tables; a route that is meant for everyone says auth = \"public\""))]
    pub(crate) auth: RawAuth,
    /// What is made of the client's certificate: `"required"` or `"optional"`, or a table. Left out, it is not looked at.
    #[serde(default)]
    pub(crate) client_certificate: Option<RawClientCertificate>,
    /// Whether GET, HEAD and OPTIONS over HTTP/1.1 without a body are carried before the TLS handshake is done, where the
    /// listener takes early data. Services are told by `Early-Data: 1` (RFC 8470), and one that answers 425 is asked again after
    /// the handshake. All other requests wait for it. Left out, all do.
    #[serde(default)]
    pub(crate) early_data: bool,
    /// Names of routes some of whose requests this one takes though it asks for less: by a parameter, a more specific host, or
    /// since the other one is for some methods alone. `check` warns of such pairs; those named here are meant.
    #[serde(default)]
    pub(crate) opens: Vec<String>,
    /// Rules that a request must pass beside `auth`.
    #[serde(default)]
    pub(crate) policy: Vec<RawPolicyRule>,
    /// Names of throttles that count its requests, in addition to those of all routes and of its service.
    #[serde(default)]
    pub(crate) throttles: Vec<String>,
    /// Changes to attributes.
    #[serde(default)]
    pub(crate) attributes: OneOrMany<RawAttributeEdits>,
    /// The service that requests are forwarded to.
    #[serde(default)]
    #[schemars(extend("format" = "cardea-name"))]
    pub(crate) service: Option<String>,
    /// Answers with a redirect.
    #[serde(default)]
    pub(crate) redirect: Option<RawRedirect>,
    /// Answers with a fixed response.
    #[serde(default)]
    pub(crate) respond: Option<RawRespond>,
    /// Answers with a built-in service.
    #[serde(default, with = "As::<Option<BuiltIn>>")]
    pub(crate) builtin: Option<BuiltIn>,
    /// Takes `path_prefix` away from the path before it is forwarded.
    #[serde(default)]
    pub(crate) strip_prefix: bool,
    /// The path that is forwarded instead; parameters of `path_pattern` stand in braces:
    /// `"/v2/{id}"`.
    #[serde(default)]
    pub(crate) rewrite_path: Option<String>,
    /// What paths may carry though some origins read it in another way, and so another path than the one whose
    /// rules were applied. Requests with any of them are refused elsewhere.
    #[serde(default)]
    pub(crate) allow_encoded: Vec<EncodedPathByte>,
    /// Timeouts that differ from the general ones.
    #[serde(default)]
    pub(crate) timeouts: RawRouteTimeouts,
    /// The largest request body. Left out, `limits.body_bytes_max`.
    #[serde(default, with = "As::<Option<Size<u64>>>")]
    #[schemars(extend("x-maximum" = "1TiB"))]
    pub(crate) body_bytes_max: Option<u64>,
    /// Whether the request's `Authorization` is forwarded. Left out, `forwarding.authorization` where the route asks for a
    /// token, and `true` where it is public.
    #[serde(default)]
    pub(crate) forward_authorization: Option<bool>,
    /// Changes to the fields of the request before it is forwarded, after those for all routes.
    #[serde(default)]
    pub(crate) request_headers: OneOrMany<RawFieldEdits>,
    /// Changes to the fields of the response before it is sent, after those for all routes. Refusals of the gateway have only
    /// the latter.
    #[serde(default)]
    pub(crate) response_headers: OneOrMany<RawFieldEdits>,
}

/// A condition on a header field.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum RawHeaderCondition {
    /// The field is there.
    Present(bool),
    /// The field has this value.
    Exact(String),
}

/// Who may make a request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum RawAuth {
    /// Everyone.
    Public(RawPublic),
    /// Whoever has a token that fits.
    AccessRequirement(RawDemand),
    /// Whoever has a token that fits one of these.
    Alternatives(#[schemars(length(min = 1))] Vec<RawDemand>),
}

/// The word for everyone.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum RawPublic {
    /// Everyone.
    #[schemars(extend("x-opens" = true))]
    Public,
}

/// What a token must say.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawDemand {
    /// The name of the issuer that it must come from.
    #[schemars(extend("format" = "cardea-name"))]
    pub(crate) issuer: String,
    /// The audiences that it may be for; one must fit. Left out, the first of the issuer's `audiences`.
    #[serde(default)]
    pub(crate) audiences: Vec<String>,
    /// The scopes that it must have, all of them.
    #[serde(default)]
    pub(crate) scopes: Vec<String>,
    /// The roles of which it must have one. Left out, none is needed.
    #[serde(default)]
    pub(crate) roles: Vec<String>,
}

/// A redirect.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRedirect {
    /// Where to: a URL or an absolute path, which may have attributes in braces: `"https://new.example.com{request.path}"`.
    pub(crate) to: String,
    /// Whether the request's query is appended, behind parameters that `to` has already; an empty one leaves no `?`. Where `to`
    /// reads the query itself nothing is appended.
    #[serde(default = "yes")]
    pub(crate) keep_query: bool,
    /// The status: 301, 302, 303, 307 or 308. The default keeps the method and is remembered by clients.
    #[serde(default = "permanent_redirect")]
    #[schemars(range(min = 301, max = 308))]
    pub(crate) status: u16,
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
pub(crate) struct RawRespond {
    /// The status.
    #[serde(default = "ok")]
    #[schemars(range(min = 200, max = 599))]
    pub(crate) status: u16,
    /// The media type of the body.
    #[serde(default = "text_plain")]
    pub(crate) content_type: String,
    /// The body.
    #[serde(default)]
    pub(crate) body: Option<String>,
    /// A file with the body, of at most 1 MiB, which is read when the configuration is loaded.
    #[serde(default)]
    pub(crate) file: Option<String>,
}

fn ok() -> u16 {
    200
}

fn text_plain() -> String {
    "text/plain; charset=utf-8".to_owned()
}
