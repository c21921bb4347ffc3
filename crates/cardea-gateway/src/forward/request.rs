//! Makes the request that a service gets: what was decided on, and nothing that only we may say.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use cardea_http::{BodyLength, Hop, Known, RequestError, Version, append_via, set_forwarded, set_length};
use cardea_identity::Caller;

use super::headers::{self, Side};
use crate::{
    client_certificate,
    exchange::Exchange,
    fields,
    model::{IdentityField, Model, ModelRef, PathPart, Rewrite, Route},
    refusal::Reason,
    upstream::OutgoingHead,
};

/// Prepares the head of a request without a body in place; the target that it would be sent with.
pub(crate) fn preview(model: &ModelRef, route: &Route, exchange: &mut Exchange) -> Result<Vec<u8>, Reason> {
    prepare(model, route, exchange, BodyLength::None)?;
    let mut target = Vec::new();
    write_target(exchange, route, &mut target);
    Ok(target)
}

/// Prepares the head in place, once for all attempts.
pub(super) fn prepare(
    model: &Model,
    route: &Route,
    exchange: &mut Exchange,
    length: BodyLength,
) -> Result<(), Reason> {
    let version = exchange.head.version;
    let head = &mut exchange.head.fields;
    // `Connection` is gone with what it named, so that nothing of it can undo what is set below.
    let client = exchange.connection.as_ref().and_then(|connection| connection.client());
    let hop = Hop {
        // Over a Unix socket it is somebody on this machine.
        client: client.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |client| client.ip()),
        scheme: exchange.scheme,
        host: exchange.authority.as_ref().map_or("", cardea_http::Authority::as_str),
    };
    let invalid = |_| Reason::Malformed { code: "forwarding_headers_invalid", status: 400 };
    let policy = fields::forwarded_policy(model, exchange.peer_trusted);
    set_forwarded(head, policy, model.forwarding.header, &hop).map_err(invalid)?;
    append_via(head, version, &model.forwarding.via).map_err(invalid)?;
    if let Some(authority) = &exchange.authority {
        set(head, Known::Host, authority.as_str().as_bytes());
    }
    set_length(head, length.stated()).map_err(|error| Reason::from(RequestError::from(error)))?;
    if version < Version::Http11 {
        head.remove(Known::Expect);
    }
    if !route.forward_authorization {
        head.remove(Known::Authorization);
    }
    if let Some(verdict) = exchange.verdict.clone() {
        set_identity(model, &verdict.caller, exchange);
    }
    if let Some(rule) = &route.client_certificate {
        client_certificate::tell_service(rule, exchange);
    }
    headers::apply(&model.environment.request_headers, exchange, Side::Request);
    headers::apply(&route.request_headers, exchange, Side::Request);
    if exchange.early_data {
        // RFC 8470 §5.1: always, so no rule takes it away; and once, whatever the client sent.
        set(&mut exchange.head.fields, Known::EarlyData, b"1");
    }
    Ok(())
}

/// Sets a header to a value of ours; one that no header may have (a control character in a claim) is left out.
fn set(fields: &mut cardea_http::Fields, known: Known, value: &[u8]) {
    if fields.set_known(known, value).is_err() {
        fields.remove(known);
    }
}

fn set_identity(model: &Model, caller: &Caller, exchange: &mut Exchange) {
    for (name, field) in &model.identity_headers.fields {
        let value = match field {
            IdentityField::Issuer => Some(Cow::Borrowed(&*caller.issuer)),
            IdentityField::Subject => caller.subject.as_deref().map(Cow::Borrowed),
            IdentityField::ClientId => caller.client_id.as_deref().map(Cow::Borrowed),
            IdentityField::Scopes => list(&caller.scopes, " "),
            IdentityField::Roles => list(&caller.roles, ","),
            IdentityField::Claim(path) => claim(caller, path).map(Cow::Owned),
        };
        // An absent claim gives no header, and neither does one that would not survive the way.
        let Some(value) = value.filter(|value| !value.is_empty()) else { continue };
        let _ = exchange.head.fields.append(name.as_bytes(), value.as_bytes());
    }
}

/// The items in one value; none where an item holds the separator, and would be read as two.
fn list<'a>(items: &'a [String], separator: &str) -> Option<Cow<'a, str>> {
    let clear = items.iter().all(|item| !item.contains(separator));
    clear.then(|| match items {
        [one] => Cow::Borrowed(one.as_str()),
        items => Cow::Owned(items.join(separator)),
    })
}

fn claim(caller: &Caller, path: &[String]) -> Option<String> {
    let (first, rest) = path.split_first()?;
    let value = rest.iter().try_fold(caller.claims.get(first)?, |value, name| value.get(name))?;
    match value {
        serde_json::Value::Array(items) => {
            let items: Option<Vec<String>> = items.iter().map(scalar).collect();
            list(&items?, ",").map(Cow::into_owned)
        }
        other => scalar(other),
    }
}

fn scalar(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Number(number) => Some(number.to_string()),
        serde_json::Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// Shows `begin` the head that is sent.
pub(super) fn with_head<T>(
    exchange: &mut Exchange,
    route: &Route,
    length: BodyLength,
    begin: impl FnOnce(OutgoingHead<'_>) -> T,
) -> T {
    let mut target = std::mem::take(&mut exchange.scratch);
    target.clear();
    write_target(exchange, route, &mut target);
    let head = &exchange.head;
    let begun = begin(OutgoingHead {
        method: head.method,
        target: &target,
        fields: &head.fields,
        length,
        accepts_trailers: exchange.accepts_trailers,
    });
    exchange.scratch = target;
    begun
}

/// Writes the path and the query that the service gets.
fn write_target(exchange: &Exchange, route: &Route, target: &mut Vec<u8>) {
    match &route.rewrite {
        Rewrite::Path(parts) => {
            for part in parts {
                match part {
                    PathPart::Literal(text) => target.extend_from_slice(text.as_bytes()),
                    PathPart::Parameter(name) => {
                        target.extend_from_slice(exchange.parameter(name).unwrap_or_default());
                    }
                }
            }
        }
        Rewrite::None => target.extend_from_slice(&exchange.path),
        Rewrite::StripPrefix(prefix) => strip_prefix(prefix, &exchange.path, target),
    }
    if let Some(query) = &exchange.query {
        target.push(b'?');
        target.extend_from_slice(query);
    }
}

fn strip_prefix(prefix: &str, path: &[u8], out: &mut Vec<u8>) {
    let rest = path.strip_prefix(prefix.trim_end_matches('/').as_bytes()).unwrap_or(path);
    if !rest.starts_with(b"/") {
        out.push(b'/');
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_that_would_be_read_as_two_gives_no_header() {
        let items = |items: &[&str]| items.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(list(&items(&["reader", "writer"]), ","), Some("reader,writer".into()));
        assert_eq!(list(&items(&["reader", "a,admin"]), ","), None);
        assert_eq!(list(&items(&["a admin"]), " "), None);
    }

    #[test]
    fn prefixes_are_stripped_on_segment_boundaries() {
        for (prefix, path, expected) in
            [("/a", "/a/b", "/b"), ("/a/", "/a/b", "/b"), ("/a", "/a", "/"), ("/", "/a", "/a")]
        {
            let mut out = Vec::new();
            strip_prefix(prefix, path.as_bytes(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{prefix} on {path}");
        }
    }
}
