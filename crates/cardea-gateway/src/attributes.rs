//! The table of attributes: every name under which something of an exchange can be read.
//!
//! Names follow CEL and Envoy, and OpenTelemetry where these have none. Reading allocates nothing.

pub(crate) mod parse;

mod families;

use cardea_env::{
    Attribute, Inline, Kind, Redaction, SECRET_HEADERS, SECRET_PARAMETERS, Table, Value, strings,
};
use cardea_guard::Priority;
use cardea_http::Version;
use cardea_identity::{Caller, CallerKind};
use cardea_tls::ClientCertificate;

use self::families::FAMILIES;
use crate::{
    admission,
    exchange::Exchange,
    tarpit::{Measure, Offence},
};

/// All attributes, as policies, headers and redirects read them.
pub static TABLE: Table<Exchange> = Table::new(ATTRIBUTES, FAMILIES);

macro_rules! attribute {
    ($name:literal, $kind:ident, $doc:literal, $read:expr) => {
        Attribute { name: $name, kind: Kind::$kind, doc: $doc, read: $read }
    };
}

const ATTRIBUTES: &[Attribute<Exchange>] = &[
    attribute!(
        "request.id",
        Text,
        "The id of the request in responses, logs and requests to services: a trusted proxy's `X-Request-Id`, or a \
         generated one.",
        |x| {
            if x.given_id.is_empty() {
                Value::Inline(Inline::from_array(x.id.to_ascii()))
            } else {
                Value::Bytes(&x.given_id)
            }
        }
    ),
    attribute!("request.time", Time, "When the head of the request was received.", |x| {
        Value::Time(x.started.wall.unix_nanos())
    }),
    attribute!("request.method", Text, "The method.", |x| Value::Bytes(x.head.method.as_str().as_bytes())),
    attribute!("request.scheme", Text, "`https` for requests over TLS, else `http`.", |x| {
        Value::Bytes(x.scheme.as_str().as_bytes())
    }),
    attribute!(
        "request.host",
        Text,
        "The host of the normalised authority, without its port. Use it in comparisons. An IPv6 address has brackets.",
        |x| { Value::bytes(x.authority.as_ref().map(cardea_http::Authority::host)) }
    ),
    attribute!("request.port", Int, "The port of the authority, or 80 or 443 by the scheme.", |x| {
        let port = |authority: &cardea_http::Authority| authority.port().unwrap_or(x.scheme.default_port());
        Value::unsigned(x.authority.as_ref().map(port).map(u64::from))
    }),
    attribute!(
        "request.authority",
        Text,
        "The normalised authority, with a port other than the default. Use it in redirects and headers; for rules use \
         `request.host`, because clients can choose the port.",
        |x| { Value::bytes(x.authority.as_ref().map(cardea_http::Authority::as_str)) }
    ),
    attribute!("request.path", Text, "The normalised path, without the query.", |x| Value::Bytes(&x.path)),
    attribute!(
        "request.query",
        Text,
        "The query without `?`, as received. Logs and headers redact the values of parameters that are secrets.",
        |x| { Value::bytes(x.query.as_deref()) }
    ),
    attribute!("request.protocol", Text, "`HTTP/1.0`, `HTTP/1.1` or `HTTP/2`.", |x| {
        Value::Bytes(match x.head.version {
            Version::Http10 => b"HTTP/1.0",
            Version::Http11 => b"HTTP/1.1",
            Version::Http2 => b"HTTP/2",
        })
    }),
    attribute!("request.size", Int, "The number of received bytes of the request's body.", |x| {
        Value::unsigned(Some(x.request_body_bytes))
    }),
    attribute!(
        "request.duration",
        Duration,
        "The time from the head of the request to the end of the response.",
        |x| { Value::duration(Some(x.duration())) }
    ),
    attribute!(
        "source.address",
        Address,
        "The client's address: the rightmost address that is not a trusted proxy. Absent over a Unix socket, and if a trusted \
         proxy does not tell it: rules by address then deny ([headers.md](headers.md#the-source-address)).",
        |x| { Value::address(x.source) }
    ),
    attribute!("source.port", Int, "The client's port; absent if only a proxy's port is known.", |x| {
        let client = x.connection.as_ref().and_then(|connection| connection.client());
        let known = client.filter(|client| Some(client.ip()) == x.source);
        Value::unsigned(known.map(|client| u64::from(client.port())))
    }),
    attribute!("connection.peer", Address, "The peer address of the socket.", |x| {
        Value::address(x.connection.as_ref().and_then(|c| c.peer).map(|peer| peer.ip()))
    }),
    attribute!("connection.listener", Text, "The name of the listener.", |x| {
        Value::bytes(x.connection.as_ref().map(|c| c.listener.name.as_str()))
    }),
    attribute!("destination.address", Address, "The address that the client connected to.", |x| {
        Value::address(x.connection.as_ref().and_then(|c| c.local).map(|local| local.ip()))
    }),
    attribute!("destination.port", Int, "The port that the client connected to.", |x| {
        Value::unsigned(x.connection.as_ref().and_then(|c| c.local).map(|local| u64::from(local.port())))
    }),
    attribute!("connection.tls.version", Text, "`TLSv1.2` or `TLSv1.3`; absent without TLS.", |x| {
        Value::bytes(tls(x).map(|tls| tls.protocol))
    }),
    attribute!("connection.tls.cipher_suite", Text, "The cipher suite, by its IANA name.", |x| {
        Value::bytes(tls(x).map(|tls| tls.cipher_suite))
    }),
    attribute!("connection.tls.hash", Text, "The hash of the cipher suite: `SHA256` or `SHA384`.", |x| {
        Value::bytes(tls(x).map(|tls| tls.cipher_hash))
    }),
    attribute!(
        "connection.tls.alpn",
        Text,
        "The negotiated protocol; absent if the client offered none.",
        |x| { Value::bytes(tls(x).and_then(|tls| tls.alpn)) }
    ),
    attribute!("connection.tls.group", Text, "The key exchange group.", |x| {
        Value::bytes(tls(x).map(|tls| tls.key_exchange_group).filter(|group| !group.is_empty()))
    }),
    attribute!("connection.tls.sni", Text, "The server name that the client sent (SNI).", |x| {
        Value::bytes(tls(x).and_then(|tls| tls.sni.as_deref()))
    }),
    attribute!("connection.tls.resumed", Bool, "Whether a session was resumed.", |x| {
        tls(x).map_or(Value::Absent, |tls| Value::Bool(tls.resumed))
    }),
    attribute!(
        "connection.tls.early_data",
        Bool,
        "Whether the request is forwarded before the TLS handshake is complete, so that it may be a replay.",
        |x| { tls(x).map_or(Value::Absent, |_| Value::Bool(x.early_data)) }
    ),
    attribute!(
        "connection.client_certificate.subject",
        Text,
        "The subject of the client's certificate (RFC 4514). All attributes of the certificate are absent if it is no \
         longer valid.",
        |x| Value::bytes(x.client_certificate().map(ClientCertificate::subject))
    ),
    attribute!(
        "connection.client_certificate.names",
        Text,
        "Its alternative names with types, separated by spaces: `dns:a.example uri:spiffe://example/a`.",
        |x| Value::bytes(
            x.client_certificate().map(ClientCertificate::names_text).filter(|text| !text.is_empty())
        )
    ),
    attribute!("connection.client_certificate.dns_names", Text, "Its DNS names, separated by spaces.", |x| {
        Value::bytes(x.client_certificate().map(ClientCertificate::dns_names).filter(|text| !text.is_empty()))
    }),
    attribute!("connection.client_certificate.uris", Text, "Its URIs, separated by spaces.", |x| {
        Value::bytes(x.client_certificate().map(ClientCertificate::uris).filter(|text| !text.is_empty()))
    }),
    attribute!(
        "connection.client_certificate.emails",
        Text,
        "Its email addresses, separated by spaces.",
        |x| {
            Value::bytes(
                x.client_certificate().map(ClientCertificate::emails).filter(|text| !text.is_empty()),
            )
        }
    ),
    attribute!(
        "connection.client_certificate.fingerprint",
        Text,
        "SHA-256 of the client's certificate, in hexadecimal.",
        |x| Value::bytes(x.client_certificate().map(ClientCertificate::fingerprint_hex))
    ),
    attribute!("connection.client_certificate.issuer", Text, "Its issuer (RFC 4514).", |x| {
        Value::bytes(x.client_certificate().map(ClientCertificate::issuer))
    }),
    attribute!("connection.client_certificate.serial", Text, "Its serial number, in hexadecimal.", |x| {
        Value::bytes(x.client_certificate().map(ClientCertificate::serial))
    }),
    attribute!("connection.client_certificate.not_after", Time, "When it expires.", |x| {
        x.client_certificate().map_or(Value::Absent, |one| Value::Time(one.not_after().unix_nanos()))
    }),
    attribute!("token.iss", Text, "The issuer of the verified token.", |x| {
        Value::bytes(caller(x).map(|caller| &*caller.issuer))
    }),
    attribute!("token.issuer_name", Text, "The name of the issuer in the configuration.", |x| {
        Value::bytes(caller(x).map(|caller| &*caller.issuer_name))
    }),
    attribute!("token.sub", Text, "The subject of the verified token.", |x| {
        Value::bytes(caller(x).and_then(|caller| caller.subject.as_deref()))
    }),
    attribute!("token.client_id", Text, "The client of the verified token.", |x| {
        Value::bytes(caller(x).and_then(|caller| caller.client_id.as_deref()))
    }),
    attribute!("token.audiences", List, "All audiences (`aud`) of the verified token.", |x| {
        caller(x).map_or(Value::Absent, |caller| strings(&caller.audiences))
    }),
    attribute!(
        "token.scopes",
        List,
        "The scopes of the verified token, from the claim that the issuer uses.",
        |x| { caller(x).map_or(Value::Absent, |caller| strings(&caller.scopes)) }
    ),
    attribute!(
        "token.roles",
        List,
        "The roles of the verified token, from the claim that the issuer uses.",
        |x| { caller(x).map_or(Value::Absent, |caller| strings(&caller.roles)) }
    ),
    attribute!("token.id", Text, "The `jti` of the verified token.", |x| {
        Value::bytes(caller(x).and_then(|caller| caller.token_id.as_deref()))
    }),
    attribute!("token.issued_at", Time, "The `iat` of the verified token.", |x| {
        let issued_at = caller(x).and_then(|caller| caller.issued_at);
        issued_at.map_or(Value::Absent, |at| Value::Time(at.unix_nanos()))
    }),
    attribute!(
        "token.expires_at",
        Time,
        "When the verified token expires, including the allowed clock skew.",
        |x| {
            x.verdict.as_ref().map_or(Value::Absent, |verdict| Value::Time(verdict.not_after.unix_nanos()))
        }
    ),
    attribute!(
        "token.kind",
        Text,
        "`application` if the client acts on its own behalf, `user` if it acts for a user; absent if the token does \
         not tell.",
        |x| {
            Value::bytes(caller(x).and_then(|caller| match caller.kind {
                CallerKind::Unknown => None,
                CallerKind::Application => Some("application"),
                CallerKind::User => Some("user"),
            }))
        }
    ),
    attribute!("route.name", Text, "The name of the route.", |x| {
        Value::bytes(x.route().map(|route| route.name.as_str()))
    }),
    attribute!("policy.effect", Text, "`allow` or `deny`, if there is a policy.", |x| {
        Value::bytes(x.policy.map(|policy| if policy.allowed { "allow" } else { "deny" }))
    }),
    attribute!("policy.reason", Text, "The reason of the policy rule that decided.", |x| {
        Value::bytes(x.policy_rule().and_then(|rule| rule.reason.as_deref()))
    }),
    attribute!(
        "throttle.name",
        Text,
        "The throttle that refused the request, or would have refused it in a dry run.",
        |x| { Value::bytes(x.throttled_by().map(|throttle| &throttle.name)) }
    ),
    attribute!(
        "throttle.limited",
        Bool,
        "Whether this throttle refused the request; false in a dry run.",
        |x| x.throttle.refused_by.map_or(Value::Absent, |by| Value::Bool(!by.dry_run))
    ),
    attribute!(
        "tarpit.offence",
        Text,
        "Why the request counts as an offence: `wrong_credentials`, `bad_signature` or `throttled`.",
        |x| Value::bytes(x.tarpit.offence.map(Offence::as_str))
    ),
    attribute!(
        "tarpit.outcome",
        Text,
        "What became of the refusal of a repeat offender: `held`, `dripped`, `dropped`, or answered 429 because as many were \
         held as may be (`shed_total`, `shed_prefix`, `shed_identity`, `shed_connection`).",
        |x| Value::bytes(x.tarpit.measure.map(Measure::as_str))
    ),
    attribute!(
        "tarpit.delay",
        Duration,
        "How long the refusal was to be held. The log is written when that begins.",
        |x| Value::duration(x.tarpit.delay())
    ),
    attribute!(
        "queue.duration",
        Duration,
        "How long the request waited to be admitted; absent where it did not have to.",
        |x| Value::duration(x.admission.waited)
    ),
    attribute!(
        "queue.priority",
        Text,
        "The priority by which the request was queued or refused: `critical`, `high`, `normal` or `low`; absent where it was \
         admitted without a look at the queue.",
        |x| Value::bytes(x.admission.priority.map(Priority::as_str))
    ),
    attribute!(
        "queue.size",
        Int,
        "How many requests wait now at the narrowest limit on the request: its route's, its service's or the process's.",
        |x| Value::unsigned(admission::figures_of(x).map(|figures| figures.waiting.into()))
    ),
    attribute!("queue.age", Duration, "How long the first of them has waited.", |x| Value::duration(
        admission::queue_age(x)
    )),
    attribute!(
        "queue.in_flight",
        Int,
        "How many requests are in flight at that limit.",
        |x| Value::unsigned(admission::figures_of(x).map(|figures| figures.in_flight.into()))
    ),
    attribute!("queue.limit", Int, "How many may be.", |x| Value::unsigned(
        admission::figures_of(x).map(|figures| figures.max_in_flight.into())
    )),
    attribute!(
        "queue.threshold",
        Double,
        "The priorities that it admits now: 4.0 for all, 3.25 for all but three quarters of the callers of the lowest.",
        |x| admission::figures_of(x)
            .map_or(Value::Absent, |figures| Value::Double(figures.threshold.priorities()))
    ),
    attribute!("service.name", Text, "The name of the service.", |x| {
        Value::bytes(x.service().map(|service| service.name.as_str()))
    }),
    attribute!("upstream.endpoint", Text, "The address of the endpoint of the last attempt.", |x| {
        Value::bytes(x.upstream.endpoint().map(|endpoint| endpoint.label()))
    }),
    attribute!("upstream.region", Text, "The region of that endpoint.", |x| {
        Value::bytes(x.upstream.region())
    }),
    attribute!("upstream.attempts", Int, "The number of attempts.", |x| {
        Value::unsigned(Some(u64::from(x.upstream.attempts)).filter(|attempts| *attempts > 0))
    }),
    attribute!("upstream.reused", Bool, "Whether the last attempt used a pooled connection.", |x| {
        if x.upstream.attempts > 0 { Value::Bool(x.upstream.reused) } else { Value::Absent }
    }),
    attribute!(
        "upstream.connect_duration",
        Duration,
        "The time to connect; absent if no connection was needed.",
        |x| { Value::duration(x.upstream.connect) }
    ),
    attribute!(
        "upstream.response_head_duration",
        Duration,
        "The time from the head of the request to the head of the service's response.",
        |x| Value::duration(x.upstream.response_head)
    ),
    attribute!("response.status", Int, "The status; absent if there is no response.", |x| {
        Value::unsigned(Some(u64::from(x.response.status)).filter(|status| *status > 0))
    }),
    attribute!(
        "response.grpc_status",
        Int,
        "The status code of a gRPC call over HTTP/2; absent for other requests and if the call has none.",
        |x| Value::unsigned(x.response.grpc_status.map(|status| u64::from(status.code())))
    ),
    attribute!("response.size", Int, "The number of sent bytes of the response's body.", |x| {
        Value::unsigned(Some(x.response.body_bytes))
    }),
    attribute!("response.reason", Text, "The reason code of a refusal or of a truncated response.", |x| {
        Value::bytes(x.response.reason)
    }),
    attribute!("response.complete", Bool, "Whether the complete response was sent.", |x| {
        Value::Bool(x.response.complete)
    }),
    attribute!("gateway.version", Text, "The version of the program.", |_| {
        Value::Bytes(env!("CARGO_PKG_VERSION").as_bytes())
    }),
    attribute!("gateway.region", Text, "The configured region of this gateway.", |x| {
        Value::bytes(x.model.as_ref().and_then(|model| model.region.as_deref()))
    }),
    attribute!("gateway.hostname", Text, "The host name of the machine.", |x| {
        Value::bytes(x.model.as_ref().and_then(|model| model.environment.hostname.as_deref()))
    }),
];

fn caller(exchange: &Exchange) -> Option<&Caller> {
    exchange.verdict.as_ref().map(|verdict| &verdict.caller)
}

/// Headers that carry keys and tokens by custom: policies may read them, logs and other headers don't show them.
const SECRET_BY_CUSTOM: [&str; 12] = [
    "api-key",
    "apikey",
    "x-access-token",
    "x-amz-security-token",
    "x-api-key",
    "x-auth-key",
    "x-auth-token",
    "x-csrf-token",
    "x-forwarded-access-token",
    "x-goog-iap-jwt-assertion",
    "x-vault-token",
    "x-xsrf-token",
];

/// What is shown of nobody's request, in logs and headers: cookies, and what is a secret by its name.
#[must_use]
pub fn redaction() -> Redaction {
    let parameters = || SECRET_PARAMETERS.iter().copied();
    let mut redaction = Redaction::none().family("request.cookies.").query("request.query", parameters());
    for prefix in ["request.headers.", "request.first_header.", "response.headers."] {
        for name in SECRET_HEADERS.iter().chain(&SECRET_BY_CUSTOM) {
            redaction = redaction.member(prefix, name);
        }
    }
    for prefix in ["request.headers.", "request.first_header."] {
        redaction = redaction.query_of_member(prefix, "referer", parameters());
    }
    redaction = redaction.query_of_member("response.headers.", "location", parameters());
    for name in SECRET_PARAMETERS {
        redaction = redaction.member("request.query_params.", name);
    }
    redaction
}

fn tls(exchange: &Exchange) -> Option<&cardea_tls::HandshakeFacts> {
    exchange.connection.as_ref()?.tls.as_ref()
}

/// The fields of a JSON access log line where the configuration does not choose: OpenTelemetry's names.
pub const LOG_FIELDS: &[(&str, &str)] = &[
    ("time", "request.time"),
    ("request_id", "request.id"),
    ("client.address", "source.address"),
    ("http.request.method", "request.method"),
    ("url.scheme", "request.scheme"),
    ("server.address", "request.host"),
    ("url.path", "request.path"),
    ("network.protocol", "request.protocol"),
    ("http.request.body.size", "request.size"),
    ("http.response.status_code", "response.status"),
    ("rpc.grpc.status_code", "response.grpc_status"),
    ("http.response.body.size", "response.size"),
    ("duration_s", "request.duration"),
    ("http.route", "route.name"),
    ("service", "service.name"),
    ("upstream.address", "upstream.endpoint"),
    ("upstream.attempts", "upstream.attempts"),
    ("enduser.id", "token.sub"),
    ("token.issuer", "token.iss"),
    ("tls.protocol.version", "connection.tls.version"),
    ("tls.client.subject", "connection.client_certificate.subject"),
    ("tls.client.hash.sha256", "connection.client_certificate.fingerprint"),
    ("user_agent.original", "request.first_header.user-agent"),
    ("reason", "response.reason"),
    ("policy.reason", "policy.reason"),
    ("throttle.name", "throttle.name"),
    ("throttle.limited", "throttle.limited"),
    ("tarpit.outcome", "tarpit.outcome"),
    ("tarpit.delay", "tarpit.delay"),
    ("queue.duration", "queue.duration"),
    ("complete", "response.complete"),
];

#[cfg(test)]
mod tests {
    use cardea_env::{JsonRecord, Template};

    use super::*;

    #[test]
    fn the_table_is_in_order_and_the_default_log_compiles() {
        TABLE.check().unwrap();
        JsonRecord::compile(LOG_FIELDS.iter().copied(), &TABLE).unwrap();
    }

    #[test]
    fn credentials_can_not_be_read() {
        for name in ["authorization", "Cookie", "proxy-authorization"] {
            let text = format!("{{request.headers.{name}}}");
            assert!(Template::compile(&text, &TABLE).is_err(), "{name}");
        }
        assert!(Template::compile("{response.headers.Set-Cookie}", &TABLE).is_err());
        assert!(Template::compile("{request.headers.user-agent}", &TABLE).is_ok());
    }
}
