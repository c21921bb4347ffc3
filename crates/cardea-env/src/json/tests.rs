//! Tests of JSON records.

use super::*;
use crate::table::{Attribute, Table};
use crate::value::{Inline, Kind, Value};

struct Request {
    user: Option<&'static [u8]>,
}

impl HasOverrides for Request {}

static TABLE: Table<Request> = Table::new(
    &[
        Attribute {
            name: "user",
            kind: Kind::Text,
            doc: "User.",
            read: |request| Value::bytes(request.user),
        },
        Attribute { name: "status", kind: Kind::Int, doc: "Status.", read: |_| Value::Int(200) },
        Attribute { name: "secure", kind: Kind::Bool, doc: "TLS.", read: |_| Value::Bool(true) },
        Attribute {
            name: "id",
            kind: Kind::Text,
            doc: "Id.",
            read: |_| Value::Inline(Inline::from_array(*b"a\"b")),
        },
        Attribute {
            name: "address",
            kind: Kind::Address,
            doc: "Address.",
            read: |_| Value::Address([192, 0, 2, 10].into()),
        },
        Attribute {
            name: "duration",
            kind: Kind::Duration,
            doc: "Duration.",
            read: |_| Value::Duration(1_234_000),
        },
        Attribute { name: "time", kind: Kind::Time, doc: "Time.", read: |_| Value::Time(1_000_000) },
    ],
    &[],
);

fn write(fields: &[(&'static str, &'static str)], user: Option<&'static [u8]>) -> String {
    let record = JsonRecord::compile(fields.iter().copied(), &TABLE).unwrap();
    let mut out = b"{}\n".to_vec();
    record.clone().write(&Request { user }, &mut out);
    String::from_utf8(out.split_off(3)).unwrap()
}

#[test]
fn each_kind_has_its_form() {
    let fields = [
        ("time", "time"),
        ("status", "status"),
        ("secure", "secure"),
        ("id", "id"),
        ("address", "address"),
        ("duration", "duration"),
        ("duration_ms", "duration"),
        ("duration_us", "duration"),
        ("user", "user"),
    ];
    assert_eq!(
        write(&fields, Some(b"na\xEFve\n")),
        "{\"time\":\"1970-01-01T00:00:00.001Z\",\"status\":200,\"secure\":true,\"id\":\"a\\\"b\",\
         \"address\":\"192.0.2.10\",\"duration\":0.001234,\"duration_ms\":1.234,\"duration_us\":1234,\
         \"user\":\"naïve\\n\"}\n"
    );
}

#[test]
fn what_is_absent_is_left_out() {
    assert_eq!(write(&[("user", "user"), ("status", "status")], None), "{\"status\":200}\n");
    assert_eq!(write(&[("status", "status"), ("user", "user")], None), "{\"status\":200}\n");
    assert_eq!(write(&[("user", "user")], None), "{}\n");
    assert_eq!(write(&[], None), "{}\n");
}

#[test]
fn keys_are_escaped() {
    assert_eq!(write(&[("a\"\n", "status")], None), "{\"a\\\"\\n\":200}\n");
}

#[test]
fn errors_name_the_field() {
    let error = |fields: &[(&'static str, &'static str)]| {
        JsonRecord::compile(fields.iter().copied(), &TABLE).unwrap_err()
    };
    let unknown = error(&[("a", "status"), ("b", "sttus")]);
    assert!(
        matches!(&unknown, RecordError::Attribute { index: 1, source } if source.suggestion() == Some("status"))
    );
    assert_eq!(unknown.to_string(), "unknown attribute \"sttus\"");
    assert!(matches!(error(&[("a", "status"), ("a", "user")]), RecordError::DuplicateKey { index: 1, .. }));

    let keys: Vec<String> = (0..=FIELDS_MAX).map(|index| index.to_string()).collect();
    let fields = |count: usize| keys[..count].iter().map(|key| (key.as_str(), "status"));
    assert!(JsonRecord::compile(fields(FIELDS_MAX), &TABLE).is_ok());
    assert_eq!(JsonRecord::compile(fields(FIELDS_MAX + 1), &TABLE).unwrap_err(), RecordError::TooManyFields);
}
