//! A request, a table and names for the tests of this crate.

use std::net::IpAddr;
use std::ops::ControlFlow;

use serde_json::json;

use crate::table::{Attribute, Family, Key, Table};
use crate::value::{Inline, Kind, Map, MapOf, Value, json_object};
use crate::{AttributeOverrides, HasOverrides, Names, Redaction};

pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) query: Option<&'static str>,
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) source: Option<IpAddr>,
    pub(crate) claims: Option<serde_json::Map<String, serde_json::Value>>,
    pub(crate) status: i64,
    pub(crate) time: i64,
    pub(crate) overrides: AttributeOverrides,
}

impl HasOverrides for Request {
    fn overrides(&self) -> &AttributeOverrides {
        &self.overrides
    }
}

pub(crate) fn request() -> Request {
    let claims = json!({
        "sub": "ada", "level": 3, "score": 2.5, "big": u64::MAX, "admin": true, "nothing": null,
        "scope": "read write", "realm_access": {"roles": ["admin", "ops"]}, "groups": [], "a.b": "dotted",
        "https://example.com/role": "chief", "amr": ["pwd", 7, {"x": [1]}],
    });
    Request {
        method: "GET",
        path: "/api/v1/orders",
        query: Some("a=1&access_token=s3cret&b=2"),
        headers: vec![("host", "example.com"), ("x-tenant", "acme"), ("cookie", "sid=1"), ("x.y", "dot")],
        source: Some([10, 1, 2, 3].into()),
        claims: claims.as_object().cloned(),
        status: 200,
        // 2024-02-29T13:14:15.678Z, a Thursday.
        time: 1_709_212_455_678_000_000,
        overrides: AttributeOverrides::new(),
    }
}

/// Headers by their lower-case names, the first of each.
pub(crate) struct Headers;

impl MapOf for Headers {
    type Subject = Request;

    fn get<'a>(request: &'a Request, key: &[u8]) -> Value<'a> {
        let value = request.headers.iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(key));
        Value::bytes(value.map(|(_, value)| *value))
    }

    fn each<'a>(
        request: &'a Request,
        visit: &mut dyn FnMut(Value<'a>, Value<'a>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        request.headers.iter().try_for_each(|(name, value)| {
            visit(Value::Bytes(name.as_bytes()), Value::Bytes(value.as_bytes()))
        })
    }
}

macro_rules! attribute {
    ($name:literal, $kind:ident, $read:expr) => {
        Attribute { name: $name, kind: Kind::$kind, doc: "It.", read: $read }
    };
}

pub(crate) static TABLE: Table<Request> = Table::new(
    &[
        attribute!("request.id", Text, |_| Value::Inline(Inline::from_array(*b"01jd"))),
        attribute!("request.method", Text, |r| Value::Bytes(r.method.as_bytes())),
        attribute!("request.path", Text, |r| Value::Bytes(r.path.as_bytes())),
        attribute!("request.query", Text, |r| Value::bytes(r.query)),
        attribute!("request.time", Time, |r| Value::Time(r.time)),
        attribute!("request.duration", Duration, |_| Value::Duration(1_500_000_000)),
        attribute!("source.address", Address, |r| Value::address(r.source)),
        attribute!("connection.secure", Bool, |_| Value::Bool(true)),
        attribute!("token.sub", Text, |r| {
            r.claims.as_ref().map_or(Value::Absent, json_object).member(b"sub")
        }),
        attribute!("response.status", Int, |r| Value::Int(r.status)),
    ],
    &[
        Family {
            prefix: "request.headers.",
            argument: "name",
            kind: Kind::Text,
            doc: "A header.",
            prepare: Key::field_name,
            read: |r, key| Headers::get(r, key.text.as_bytes()),
            map: Some(|r| Value::Map(Map::of::<Headers>(r))),
        },
        Family {
            prefix: "token.claims.",
            argument: "name",
            kind: Kind::Any,
            doc: "A claim.",
            prepare: Key::verbatim,
            read: |r, key| r.claims.as_ref().map_or(Value::Absent, json_object).member(key.text.as_bytes()),
            map: Some(|r| r.claims.as_ref().map_or(Value::Absent, json_object)),
        },
    ],
);

pub(crate) fn names() -> Names<Request> {
    let redaction = Redaction::none()
        .member("request.headers.", "cookie")
        .query("request.query", crate::SECRET_PARAMETERS.iter().copied());
    Names::new(&TABLE).with_redaction(redaction)
}
