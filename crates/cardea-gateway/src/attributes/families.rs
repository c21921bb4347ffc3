//! The families of attributes: headers, parameters of the query, cookies, claims, parameters of a path.
//!
//! A client may send a header, a parameter or a cookie twice, and which of them a service takes is the service's
//! business: a rule that looked at the first could be passed by with the second. Of headers and parameters a service may
//! also take both, as one list (RFC 9110 §5.3), be they the same or not. So what is there twice has no value that can be
//! read: a condition that asks for it fails, and what fails denies. For logs, from which nobody may stay away by repeating
//! himself, the first can be read by a name that says so. Cookies are never joined: the same one twice is one.

use std::ops::ControlFlow;

use cardea_env::{Family, Inline, Key, Kind, Map, MapOf, Value, json, json_object};
use cardea_http::{Fields, Known, has_lookalike};

use super::parse::{Pair, cookies};
use crate::exchange::Exchange;

/// All of them.
pub(super) const FAMILIES: &[Family<Exchange>] =
    &[REQUEST_HEADERS, FIRST_HEADERS, QUERY_PARAMETERS, COOKIES, CLAIMS, ROUTE_PARAMETERS, RESPONSE_HEADERS];

const REQUEST_HEADERS: Family<Exchange> = Family {
    prefix: "request.headers.",
    argument: "name",
    kind: Kind::Text,
    doc: "A header of the request: as received, without fields that are never forwarded, and as sent once it is \
         forwarded. It has no value if it is present twice, even with the same value, or also in another spelling \
         that services may treat as the same name (`x_team` beside `x-team`). Headers with credentials can't be read. \
         `header_encoding` selects the decoding of non-ASCII bytes.",
    prepare: |name| field(name, &REQUEST_CREDENTIALS),
    read: |x, key| request_header(x, key.text.as_bytes()),
    map: Some(|x| Value::Map(Map::of::<RequestHeaders>(x))),
};

const FIRST_HEADERS: Family<Exchange> = Family {
    prefix: "request.first_header.",
    argument: "name",
    kind: Kind::Text,
    doc: "The first value of a header of the request, even if there are others: for logs, not for rules.",
    prepare: |name| field(name, &REQUEST_CREDENTIALS),
    read: |x, key| {
        let first = x.head.fields.get_by_name(key.text.as_bytes());
        first.map_or(Value::Absent, |value| x.header_value(value))
    },
    map: None,
};

const QUERY_PARAMETERS: Family<Exchange> = Family {
    prefix: "request.query_params.",
    argument: "name",
    kind: Kind::Text,
    doc: "A parameter of the query; names and values are decoded. It has no value if it is present twice, even with \
         the same value.",
    prepare: Key::verbatim,
    read: |x, key| of_pair(parameter(x, key.text.as_bytes())),
    map: Some(|x| Value::Map(Map::of::<QueryParameters>(x))),
};

const COOKIES: Family<Exchange> = Family {
    prefix: "request.cookies.",
    argument: "name",
    kind: Kind::Text,
    doc: "A cookie, as sent. It has no value if it is present with two different values. Redacted in logs and headers.",
    prepare: Key::verbatim,
    read: |x, key| cookie(x, key.text.as_bytes()),
    map: Some(|x| Value::Map(Map::of::<Cookies>(x))),
};

const CLAIMS: Family<Exchange> = Family {
    prefix: "token.claims.",
    argument: "path",
    kind: Kind::Any,
    doc: "A claim of the verified token; dots select members of objects.",
    prepare: Key::verbatim,
    read: |x, key| {
        let claim = x.verdict.as_ref().and_then(|verdict| verdict.caller.claims.get(&*key.text));
        claim.map_or(Value::Absent, json)
    },
    map: Some(|x| x.verdict.as_ref().map_or(Value::Absent, |verdict| json_object(&verdict.caller.claims))),
};

const ROUTE_PARAMETERS: Family<Exchange> = Family {
    prefix: "route.parameters.",
    argument: "name",
    kind: Kind::Text,
    doc: "The value of a parameter of the route's `path_pattern`, normalised.",
    prepare: Key::verbatim,
    read: |x, key| Value::bytes(x.parameter(&key.text)),
    map: Some(|x| Value::Map(Map::of::<RouteParameters>(x))),
};

const RESPONSE_HEADERS: Family<Exchange> = Family {
    prefix: "response.headers.",
    argument: "name",
    kind: Kind::Text,
    doc: "A header of the response: as received from the service, and as sent once it is sent. `set-cookie` can't be read.",
    prepare: |name| field(name, &RESPONSE_CREDENTIALS),
    read: |x, key| response_header(x, key.text.as_bytes()),
    map: Some(|x| Value::Map(Map::of::<ResponseHeaders>(x))),
};

const REQUEST_CREDENTIALS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];
const RESPONSE_CREDENTIALS: [&str; 1] = ["set-cookie"];

/// Credentials never reach a log, a rule or another header.
fn field(name: &str, credentials: &[&str]) -> Result<Key, &'static str> {
    let key = Key::field_name(name)?;
    if credentials.contains(&&*key.text) { Err("carries credentials and can't be read") } else { Ok(key) }
}

/// What there is in a header, if that is one line.
fn only<'a>(exchange: &Exchange, mut values: impl Iterator<Item = &'a [u8]>) -> Value<'a> {
    match (values.next(), values.next()) {
        (None, _) => Value::Absent,
        (Some(value), None) => exchange.header_value(value),
        (Some(_), Some(_)) => Value::Failed,
    }
}

/// What there is in a cookie, if all of it is the same.
fn cookie<'a>(exchange: &'a Exchange, name: &[u8]) -> Value<'a> {
    let mut values = cookies_named(exchange, name);
    match values.next() {
        None => Value::Absent,
        Some(first) if values.all(|other| other == first) => exchange.header_value(first),
        Some(_) => Value::Failed,
    }
}

fn parameter<'a>(exchange: &'a Exchange, name: &[u8]) -> Option<&'a Pair> {
    exchange.derived.parameter(exchange.query.as_ref()?, name)
}

fn of_pair(pair: Option<&Pair>) -> Value<'_> {
    match pair {
        Some(pair) if pair.is_ambiguous => Value::Failed,
        pair => Value::bytes(pair.map(|pair| &pair.value)),
    }
}

fn cookies_named<'a>(exchange: &'a Exchange, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
    cookies(exchange.head.fields.get_all(Known::Cookie))
        .filter(move |(found, _)| *found == name)
        .map(|(_, value)| value)
}

type Visit<'v, 'a> = &'v mut dyn FnMut(Value<'a>, Value<'a>) -> ControlFlow<()>;

struct RequestHeaders;

impl MapOf for RequestHeaders {
    type Subject = Exchange;

    fn get<'a>(exchange: &'a Exchange, key: &[u8]) -> Value<'a> {
        if is_one_of(key, &REQUEST_CREDENTIALS) { Value::Absent } else { request_header(exchange, key) }
    }

    fn each<'a>(exchange: &'a Exchange, visit: Visit<'_, 'a>) -> ControlFlow<()> {
        each_field(exchange, &exchange.head.fields, &REQUEST_CREDENTIALS, request_header, visit)
    }
}

struct ResponseHeaders;

impl MapOf for ResponseHeaders {
    type Subject = Exchange;

    fn get<'a>(exchange: &'a Exchange, key: &[u8]) -> Value<'a> {
        if is_one_of(key, &RESPONSE_CREDENTIALS) { Value::Absent } else { response_header(exchange, key) }
    }

    fn each<'a>(exchange: &'a Exchange, visit: Visit<'_, 'a>) -> ControlFlow<()> {
        each_field(exchange, &exchange.response_head.fields, &RESPONSE_CREDENTIALS, response_header, visit)
    }
}

fn is_one_of(name: &[u8], names: &[&str]) -> bool {
    names.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

/// A header of the request. One that a service could also read from a field of another spelling has no value: which of
/// them is taken is the service's business.
fn request_header<'a>(exchange: &'a Exchange, name: &[u8]) -> Value<'a> {
    let fields = &exchange.head.fields;
    if has_lookalike(fields, name) {
        return Value::Failed;
    }
    only(exchange, fields.get_all_by_name(name))
}

fn response_header<'a>(exchange: &'a Exchange, name: &[u8]) -> Value<'a> {
    only(exchange, exchange.response_head.fields.get_all_by_name(name))
}

/// Visits each name once, in lower case.
fn each_field<'a>(
    exchange: &'a Exchange,
    fields: &'a Fields,
    credentials: &[&str],
    read: fn(&'a Exchange, &[u8]) -> Value<'a>,
    visit: Visit<'_, 'a>,
) -> ControlFlow<()> {
    for (index, field) in fields.iter().enumerate() {
        let is_first = || !fields.iter().take(index).any(|other| other.name.eq_ignore_ascii_case(field.name));
        if is_one_of(field.name, credentials) || !is_first() {
            continue;
        }
        // A name that is too long to be shown in lower case can't be compared with anything, which must not pass.
        let name = if field.name.iter().any(u8::is_ascii_uppercase) {
            Inline::from_slice(field.name).map_or(Value::Failed, |name| Value::Inline(lower_case(name)))
        } else {
            Value::Bytes(field.name)
        };
        visit(name, read(exchange, field.name))?;
    }
    ControlFlow::Continue(())
}

fn lower_case(name: Inline) -> Inline {
    Inline::from_slice(&name.as_bytes().to_ascii_lowercase()).unwrap_or(name)
}

struct QueryParameters;

impl MapOf for QueryParameters {
    type Subject = Exchange;

    fn get<'a>(exchange: &'a Exchange, key: &[u8]) -> Value<'a> {
        of_pair(parameter(exchange, key))
    }

    fn each<'a>(exchange: &'a Exchange, visit: Visit<'_, 'a>) -> ControlFlow<()> {
        let Some(query) = &exchange.query else { return ControlFlow::Continue(()) };
        exchange
            .derived
            .parameters(query)
            .iter()
            .try_for_each(|found| visit(Value::Bytes(&found.name), of_pair(Some(found))))
    }
}

struct Cookies;

impl MapOf for Cookies {
    type Subject = Exchange;

    fn get<'a>(exchange: &'a Exchange, key: &[u8]) -> Value<'a> {
        cookie(exchange, key)
    }

    fn each<'a>(exchange: &'a Exchange, visit: Visit<'_, 'a>) -> ControlFlow<()> {
        let all = exchange.derived.cookies(exchange.head.fields.get_all(Known::Cookie));
        all.iter().try_for_each(|found| {
            let value = if found.is_ambiguous { Value::Failed } else { exchange.header_value(&found.value) };
            visit(Value::Bytes(&found.name), value)
        })
    }
}

struct RouteParameters;

impl MapOf for RouteParameters {
    type Subject = Exchange;

    fn get<'a>(exchange: &'a Exchange, key: &[u8]) -> Value<'a> {
        Value::bytes(std::str::from_utf8(key).ok().and_then(|key| exchange.parameter(key)))
    }

    fn each<'a>(exchange: &'a Exchange, visit: Visit<'_, 'a>) -> ControlFlow<()> {
        let parameters = exchange.parameters().into_iter().flatten();
        for (name, range) in parameters {
            let value = exchange.path.get(range).map_or(Value::Absent, Value::Bytes);
            visit(Value::Bytes(name.as_bytes()), value)?;
        }
        ControlFlow::Continue(())
    }
}
