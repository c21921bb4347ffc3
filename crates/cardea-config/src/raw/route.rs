//! Routes as written.

use std::{collections::BTreeMap, num::NonZeroU32, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;

use super::client_certificate::RawClientCertificate;
use super::{
    super::{
        form::{As, Size},
        model::BuiltIn,
        sections::EncodedPathByte,
    },
    admission::RawRouteAdmission,
    limits::RawRouteTimeouts,
    rules::{OneOrMany, RawAttributeEdits, RawFieldEdits, RawPolicyRule},
};

/// A route: conditions, access requirement and destination of requests. One of `path`, `path_prefix` and `path_pattern`
/// selects the paths (all, if none is set); one of `service`, `split`, `redirect`, `respond` and `builtin` is the destination.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRoute {
    /// The name in logs and metrics.
    #[schemars(extend("format" = "cardea-name"))]
    pub(crate) name: String,
    /// The hosts: names, or `"*.example.com"` for all names with exactly one more label, as in certificates:
    /// `a.example.com`, not `a.b.example.com`. Default: any.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(crate) hosts: Vec<String>,
    /// The names of the listeners that the route exists on. Default: all.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(crate) listeners: Option<Vec<String>>,
    /// The exact path.
    #[serde(default)]
    pub(crate) path: Option<String>,
    /// A path and everything below it: `"/api"` matches `/api` and `/api/x`, not `/apix`.
    #[serde(default)]
    pub(crate) path_prefix: Option<String>,
    /// A pattern of path segments: `"/users/{id}/orders"`; `{*rest}` at the end matches everything that follows.
    #[serde(default)]
    pub(crate) path_pattern: Option<String>,
    /// The methods. Default: any.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(crate) methods: Vec<String>,
    /// Required header fields: with this value, or with any value if it is `true`.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, RawHeaderCondition>,
    /// An expression that must be true for a request: `"request.query_params['preview'] == '1'"`. It can use the
    /// request, its source and its connection, but not the caller, who is not yet authenticated. If it can't be
    /// evaluated, the request is refused with 403, so that it reaches no route with a weaker requirement.
    #[serde(default)]
    pub(crate) when: Option<String>,
    /// Who may make the request: `"public"` for all callers, or the requirements of a token. With several tables, the
    /// token must meet one of them.
    #[schemars(extend("x-remedy" = "say what a token must have: auth = { issuer = \"…\", scopes = [\"…\"] }, or a list of such tables; docs/configuration.md describes auth"))]
    pub(crate) auth: RawAuth,
    /// The client certificate rule: `"required"` or `"optional"`, or a table. Default: client certificates are ignored.
    #[serde(default)]
    pub(crate) client_certificate: Option<RawClientCertificate>,
    /// Whether GET, HEAD and OPTIONS requests over HTTP/1.1 without a body are forwarded before the TLS handshake is
    /// done, if the listener accepts early data. They are forwarded with `Early-Data: 1` (RFC 8470), and repeated after
    /// the handshake if the service answers 425. All other requests wait for the handshake. Default: all wait.
    #[serde(default)]
    pub(crate) early_data: bool,
    /// Names of routes some of whose requests this one takes although its requirement is weaker: through a parameter, a
    /// more specific host, or because the other one is for some methods only. `check` warns of such pairs; those named
    /// here are intended.
    #[serde(default)]
    pub(crate) opens: Vec<String>,
    /// Policy rules, evaluated in addition to `auth`.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(crate) policy: Vec<RawPolicyRule>,
    /// Limits on its requests in flight, and their priority.
    #[serde(default)]
    pub(crate) admission: RawRouteAdmission,
    /// Names of throttles that count its requests, in addition to those of all routes and of its service.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(crate) throttles: Vec<String>,
    /// Changes to attributes.
    #[serde(default)]
    pub(crate) attributes: OneOrMany<RawAttributeEdits>,
    /// The service that requests are forwarded to.
    #[serde(default)]
    #[schemars(extend("format" = "cardea-name"))]
    pub(crate) service: Option<String>,
    /// The services that requests are distributed over, each by its weight: for a canary, for example.
    /// [splitting.md](splitting.md) says more.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(crate) split: Option<Vec<RawShare>>,
    /// A template. Requests for which it has the same value go to the same service of `split`; requests for which a part of
    /// it is absent go to any. A value that clients choose, such as a header, lets them choose the service.
    #[serde(default)]
    pub(crate) split_key: Option<String>,
    /// Another service that gets copies of the requests, and whose responses are dropped.
    #[serde(default)]
    pub(crate) mirror: Option<RawMirror>,
    /// Answers with a redirect.
    #[serde(default)]
    pub(crate) redirect: Option<RawRedirect>,
    /// Answers with a fixed response.
    #[serde(default)]
    pub(crate) respond: Option<RawRespond>,
    /// Answers with a built-in service.
    #[serde(default, with = "As::<Option<BuiltIn>>")]
    pub(crate) builtin: Option<BuiltIn>,
    /// Removes `path_prefix` from the path before it is forwarded.
    #[serde(default)]
    pub(crate) strip_prefix: bool,
    /// The path that is forwarded instead. Parameters of `path_pattern` are in braces: `"/v2/{id}"`.
    #[serde(default)]
    pub(crate) rewrite_path: Option<String>,
    /// Path characters that some origins interpret in another way, so that the path would not be the one that was
    /// authorized. Requests with characters that are not listed here are refused.
    #[serde(default)]
    pub(crate) allow_encoded: Vec<EncodedPathByte>,
    /// Timeouts that override the general ones.
    #[serde(default)]
    pub(crate) timeouts: RawRouteTimeouts,
    /// The largest request body. Default: `limits.body_bytes_max`.
    #[serde(default, with = "As::<Option<Size<u64>>>")]
    #[schemars(extend("x-maximum" = "1TiB"))]
    pub(crate) body_bytes_max: Option<u64>,
    /// Whether the request's `Authorization` is forwarded. Default: `forwarding.authorization` if the route requires a
    /// token, and `true` if it is public.
    #[serde(default)]
    pub(crate) forward_authorization: Option<bool>,
    /// Changes to the header fields of the request before it is forwarded, after those for all routes.
    #[serde(default)]
    pub(crate) request_headers: OneOrMany<RawFieldEdits>,
    /// Changes to the header fields of the response before it is sent, after those for all routes. They do not apply to
    /// the gateway's own refusals.
    #[serde(default)]
    pub(crate) response_headers: OneOrMany<RawFieldEdits>,
}

/// A service of a split.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawShare {
    /// The name of the service.
    #[schemars(extend("format" = "cardea-name"))]
    pub(crate) service: String,
    /// Its part of the requests, relative to the other services of the split; 0 for none.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(crate) weight: u32,
}

/// A service that gets copies of a route's requests. They have the field `Cardea-Mirrored: 1`.
/// [splitting.md](splitting.md#mirroring) says more.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawMirror {
    /// The name of the service.
    #[schemars(extend("format" = "cardea-name"))]
    pub(crate) service: String,
    /// One request in so many is copied.
    #[serde(default = "all")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) sample_one_in: NonZeroU32,
    /// So many copies may be under way. Beyond it, requests are not copied.
    #[serde(default = "copies")]
    #[schemars(range(min = 1, max = 100_000))]
    pub(crate) in_flight_max: u32,
    /// From the end of the request to the end of the copy's response. A copy that takes longer is given up.
    #[serde(default = "copy_timeout", with = "As::<Duration>")]
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1h"))]
    pub(crate) timeout: Duration,
    /// Whether copies keep the `Authorization` that the route's own service gets.
    #[serde(default)]
    pub(crate) forward_authorization: bool,
}

fn all() -> NonZeroU32 {
    NonZeroU32::MIN
}

/// At 10 ms each, enough for ten thousand a second.
fn copies() -> u32 {
    100
}

/// Longer than most responses take; a service that hangs holds its copies for no longer.
fn copy_timeout() -> Duration {
    Duration::from_secs(10)
}

/// A condition on a header field.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum RawHeaderCondition {
    /// The field is present.
    Present(bool),
    /// The field has this value.
    Exact(String),
}

/// Who may make a request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum RawAuth {
    /// All callers.
    Public(RawPublic),
    /// Callers whose token meets this requirement.
    AccessRequirement(RawAccessRequirement),
    /// Callers whose token meets one of these requirements.
    Alternatives(#[schemars(length(min = 1))] Vec<RawAccessRequirement>),
}

/// The word for all callers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum RawPublic {
    /// All callers.
    #[schemars(extend("x-opens" = true))]
    Public,
}

/// The requirements of a token.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAccessRequirement {
    /// The name of the token's issuer.
    #[schemars(extend("format" = "cardea-name"))]
    pub(crate) issuer: String,
    /// The accepted audiences, of which the token must have one. Default: the first of the issuer's `audiences`.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(crate) audiences: Vec<String>,
    /// The scopes, all of which the token must have.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(crate) scopes: Vec<String>,
    /// The roles, of which the token must have one. Default: no role is required.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(crate) roles: Vec<String>,
}

/// A redirect.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRedirect {
    /// The target: a URL or an absolute path, which may contain attributes in braces:
    /// `"https://new.example.com{request.path}"`. A value stays in the part of the URL in which it stands. In the host and port
    /// nothing else is accepted, apart from a path that ends them: the request gets 400 (`redirect_target_invalid`). So does a
    /// path that would begin with two slashes. In path, query and fragment, bytes that would begin another part are
    /// percent-encoded.
    pub(crate) to: String,
    /// Whether the request's query is appended, after any parameters in `to`. An empty query adds no `?`. If `to`
    /// contains the query itself, nothing is appended.
    #[serde(default = "yes")]
    pub(crate) keep_query: bool,
    /// The status: 301, 302, 303, 307 or 308. The default preserves the method and is cached by clients.
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
    /// The status code.
    #[serde(default = "ok")]
    #[schemars(range(min = 200, max = 599))]
    pub(crate) status: u16,
    /// The media type of the body.
    #[serde(default = "text_plain")]
    pub(crate) content_type: String,
    /// The content of the response.
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
