//! The table of attributes: every name under which something of an exchange can be read.
//!
//! Names follow CEL and Envoy, and OpenTelemetry where these have none. Reading allocates nothing.

use cardea_env::{Attribute, Family, Inline, Key, Kind, Overlaid, Table, Value};
use cardea_http::Version;
use cardea_tls::ClientCertificate;

use crate::{exchange::Exchange, model::Destination};

impl Overlaid for Exchange {}

/// All attributes.
pub static TABLE: Table<Exchange> = Table::new(ATTRIBUTES, FAMILIES);

macro_rules! attribute {
    ($name:literal, $kind:ident, $doc:literal, $read:expr) => {
        Attribute { name: $name, kind: Kind::$kind, doc: $doc, read: $read }
    };
}

const ATTRIBUTES: &[Attribute<Exchange>] = &[
    attribute!("request.id", Text, "The id that names the request in answers, logs and to services.", |x| {
        Value::Inline(Inline::from_array(x.id.to_ascii()))
    }),
    attribute!("request.time", Time, "When the head of the request was complete.", |x| {
        Value::Time(x.started.wall.unix_nanos())
    }),
    attribute!("request.method", Text, "The method.", |x| Value::Bytes(x.head.method.as_str().as_bytes())),
    attribute!("request.scheme", Text, "`https` if the request came over TLS, else `http`.", |x| {
        Value::Bytes(x.scheme.as_str().as_bytes())
    }),
    attribute!(
        "request.host",
        Text,
        "The normalised authority, with its port where that isn't the default.",
        |x| { Value::bytes(x.authority.as_ref().map(cardea_http::Authority::as_str)) }
    ),
    attribute!("request.path", Text, "The normalised path, without the query.", |x| Value::Bytes(&x.path)),
    attribute!(
        "request.query",
        Text,
        "The query without `?`. It may hold secrets of careless clients.",
        |x| { Value::bytes(x.query.as_deref()) }
    ),
    attribute!("request.protocol", Text, "`HTTP/1.0`, `HTTP/1.1` or `HTTP/2`.", |x| {
        Value::Bytes(match x.head.version {
            Version::Http10 => b"HTTP/1.0",
            Version::Http11 => b"HTTP/1.1",
            Version::Http2 => b"HTTP/2",
        })
    }),
    attribute!("request.size", Int, "Octets of the request's body that were taken in.", |x| {
        Value::unsigned(Some(x.request_body_bytes))
    }),
    attribute!(
        "request.duration",
        Duration,
        "From the head of the request to the end of the response.",
        |x| { Value::duration(Some(x.duration())) }
    ),
    attribute!("source.address", Address, "The rightmost address that isn't a trusted proxy's.", |x| {
        x.source.map_or(Value::Absent, Value::Address)
    }),
    attribute!("connection.peer", Address, "The other end of the socket.", |x| {
        x.connection.as_ref().and_then(|c| c.peer).map_or(Value::Absent, |peer| Value::Address(peer.ip()))
    }),
    attribute!("connection.listener", Text, "The name of the listener.", |x| {
        Value::bytes(x.connection.as_ref().map(|c| c.listener.name.as_str()))
    }),
    attribute!("destination.address", Address, "The address that the client connected to.", |x| {
        x.connection.as_ref().and_then(|c| c.local).map_or(Value::Absent, |local| Value::Address(local.ip()))
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
        "The protocol that was agreed on; absent where none was offered.",
        |x| { Value::bytes(tls(x).and_then(|tls| tls.alpn)) }
    ),
    attribute!("connection.tls.group", Text, "The key exchange group.", |x| {
        Value::bytes(tls(x).map(|tls| tls.key_exchange_group).filter(|group| !group.is_empty()))
    }),
    attribute!("connection.tls.sni", Text, "The server name that the client asked for.", |x| {
        Value::bytes(tls(x).and_then(|tls| tls.sni.as_deref()))
    }),
    attribute!("connection.tls.resumed", Bool, "Whether an earlier session was resumed.", |x| {
        tls(x).map_or(Value::Absent, |tls| Value::Bool(tls.resumed))
    }),
    attribute!(
        "connection.client_certificate.subject",
        Text,
        "The subject of the client's certificate (RFC 4514). Like all about it absent where it does not hold any longer.",
        |x| Value::bytes(x.client_certificate().map(ClientCertificate::subject))
    ),
    attribute!(
        "connection.client_certificate.names",
        Text,
        "Its alternative names with their types, separated by spaces: `dns:a.example uri:spiffe://example/a`.",
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
        "Its addresses for mail, separated by spaces.",
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
    attribute!("connection.client_certificate.issuer", Text, "Who issued it (RFC 4514).", |x| {
        Value::bytes(x.client_certificate().map(ClientCertificate::issuer))
    }),
    attribute!("connection.client_certificate.serial", Text, "Its serial number, in hexadecimal.", |x| {
        Value::bytes(x.client_certificate().map(ClientCertificate::serial))
    }),
    attribute!("connection.client_certificate.not_after", Time, "When it expires.", |x| {
        x.client_certificate().map_or(Value::Absent, |one| Value::Time(one.not_after().unix_nanos()))
    }),
    attribute!("token.iss", Text, "The issuer of a token that was verified.", |x| {
        Value::bytes(x.verdict.as_ref().map(|verdict| &*verdict.caller.issuer))
    }),
    attribute!("token.sub", Text, "The subject of a token that was verified.", |x| {
        Value::bytes(x.verdict.as_ref().and_then(|verdict| verdict.caller.subject.as_deref()))
    }),
    attribute!("token.client_id", Text, "The client that a verified token was issued to.", |x| {
        Value::bytes(x.verdict.as_ref().and_then(|verdict| verdict.caller.client_id.as_deref()))
    }),
    attribute!("route.name", Text, "The name of the route.", |x| {
        Value::bytes(x.route().map(|route| route.name.as_str()))
    }),
    attribute!("service.name", Text, "The name of the service.", |x| {
        Value::bytes(x.route().and_then(|route| match &route.destination {
            Destination::Service(service) => Some(service.name.as_str()),
            _ => None,
        }))
    }),
    attribute!("upstream.endpoint", Text, "The address of the endpoint that was tried last.", |x| {
        Value::bytes(x.endpoint().map(|endpoint| endpoint.label()))
    }),
    attribute!("upstream.attempts", Int, "How many attempts were made at reaching an endpoint.", |x| {
        Value::unsigned(Some(u64::from(x.upstream.attempts)).filter(|attempts| *attempts > 0))
    }),
    attribute!(
        "upstream.reused",
        Bool,
        "Whether the last attempt went over a connection that was kept.",
        |x| { if x.upstream.attempts > 0 { Value::Bool(x.upstream.reused) } else { Value::Absent } }
    ),
    attribute!(
        "upstream.connect_duration",
        Duration,
        "How long connecting took, where it was needed.",
        |x| { Value::duration(x.upstream.connect) }
    ),
    attribute!(
        "upstream.response_head_duration",
        Duration,
        "From the head of the request to the head of the service's response.",
        |x| Value::duration(x.upstream.response_head)
    ),
    attribute!("response.status", Int, "The status; absent where there is no response.", |x| {
        Value::unsigned(Some(u64::from(x.response.status)).filter(|status| *status > 0))
    }),
    attribute!("response.size", Int, "Octets of the response's body that were sent.", |x| {
        Value::unsigned(Some(x.response.body_bytes))
    }),
    attribute!("response.reason", Text, "Why the gateway answered itself, or cut the response short.", |x| {
        Value::bytes(x.response.reason)
    }),
    attribute!("response.complete", Bool, "Whether the client got the response whole.", |x| {
        Value::Bool(x.response.complete)
    }),
];

const FAMILIES: &[Family<Exchange>] = &[Family {
    prefix: "request.headers.",
    argument: "name",
    kind: Kind::Text,
    doc: "A header of the request, its first value. Headers that carry credentials can't be read.",
    prepare: header_key,
    read: |x, key: &Key| Value::bytes(x.head.fields.get_by_name(key.text.as_bytes())),
    map: None,
}];

/// Secrets never reach a log or another header by way of a template.
fn header_key(name: &str) -> Result<Key, &'static str> {
    let key = Key::field_name(name)?;
    match &*key.text {
        "authorization" | "cookie" | "proxy-authorization" => Err("carries credentials and can't be read"),
        _ => Ok(key),
    }
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
    ("user_agent.original", "request.headers.user-agent"),
    ("reason", "response.reason"),
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
        assert!(Template::compile("{request.headers.user-agent}", &TABLE).is_ok());
    }
}
