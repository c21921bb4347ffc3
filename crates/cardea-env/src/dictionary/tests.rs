//! Tests of the dictionary: lookups by name, and isolation of the table, of other requests and of snapshots.

use super::*;
use crate::testing::{TABLE, names, request};
use crate::{Lookup as _, ValueSource};

#[test]
fn names_read_what_they_name() {
    let mut names = names();
    let header = names.resolve("request.headers.x-tenant").unwrap();
    names.declare("tenant", ValueSource::Attribute(header)).unwrap();
    let request = request();
    let dictionary = names.dictionary(&request);
    let cases = [
        ("request.path", Value::Bytes(b"/api/v1/orders")),
        ("request.headers.x-tenant", Value::Bytes(b"acme")),
        ("request.headers.X-Tenant", Value::Bytes(b"acme")),
        ("request.headers.x.y", Value::Bytes(b"dot")),
        ("token.claims.level", Value::Int(3)),
        ("token.claims.realm_access.none", Value::Absent),
        ("token.claims.https://example.com/role", Value::Bytes(b"chief")),
        ("tenant", Value::Bytes(b"acme")),
        ("request", Value::Absent),
        ("request.headers.", Value::Absent),
        ("request.headersx", Value::Absent),
        ("nothing", Value::Absent),
        ("", Value::Absent),
    ];
    for (name, expected) in cases {
        let expected = if name == "request.headers." { dictionary.get("request.headers") } else { expected };
        assert_eq!(dictionary.get(name), expected, "{name}");
        assert_eq!(dictionary.contains(name), !expected.is_absent(), "{name}");
    }
    assert!(
        matches!(dictionary.get("token.claims.realm_access.roles"), Value::List(roles) if roles.len() == 2)
    );
}

#[test]
fn entries_are_what_is_there() {
    let names = names();
    let mut request = request();
    request.claims = None;
    request.query = None;
    let dictionary = names.dictionary(&request);
    let entries: Vec<&str> = dictionary.iter().map(|(name, _)| name).collect();
    let expected = [
        "request.id",
        "request.method",
        "request.path",
        "request.time",
        "request.duration",
        "source.address",
        "connection.secure",
        "response.status",
        "request.headers",
    ];
    assert_eq!(entries, expected);
    assert_eq!(dictionary.len(), expected.len());
    assert!(!dictionary.is_empty());
    assert!(entries.iter().all(|name| dictionary.contains(name)));
}

#[test]
fn a_snapshot_that_is_handed_out_is_a_copy() {
    let names = names();
    let request = request();
    let mut snapshot = names.dictionary(&request).snapshot();
    assert_eq!(snapshot.len(), names.dictionary(&request).len());
    assert_eq!(snapshot["request.path"], Owned::text("/api/v1/orders"));
    let Owned::Map(headers) = &snapshot["request.headers"] else { panic!("no map") };
    assert_eq!(headers.len(), 4);

    snapshot.insert("request.path".to_owned(), Owned::text("/altered"));
    snapshot.remove("request.method");
    snapshot.retain(|name, _| name != "token.sub");
    let dictionary = names.dictionary(&request);
    assert_eq!(dictionary.get("request.path"), Value::Bytes(b"/api/v1/orders"));
    assert!(dictionary.contains("request.method") && dictionary.contains("token.sub"));
}

#[test]
fn a_key_that_is_removed_is_removed_for_this_request_alone() {
    let names = names();
    let (mut one, other) = (request(), request());
    one.overrides.remove(&names.resolve("request.path").unwrap()).unwrap();
    one.overrides.remove(&names.resolve("request.headers.host").unwrap()).unwrap();
    let dictionary = names.dictionary(&one);
    assert!(!dictionary.contains("request.path") && !dictionary.contains("request.headers.host"));
    assert!(!dictionary.snapshot().contains_key("request.path"));
    assert_eq!(dictionary.len() + 1, names.dictionary(&other).len());
    assert!(names.dictionary(&other).contains("request.path"));
    assert!(TABLE.resolve("request.path").is_ok());
}

#[test]
fn clearing_empties_this_request_alone() {
    let names = names();
    let (mut one, other) = (request(), request());
    one.overrides.clear();
    assert!(names.dictionary(&one).is_empty() && names.dictionary(&one).snapshot().is_empty());
    assert!(!names.dictionary(&other).is_empty());
    one.overrides.set(&names.resolve("request.path").unwrap(), Owned::text("/new")).unwrap();
    let snapshot = names.dictionary(&one).snapshot();
    assert_eq!(snapshot.into_iter().collect::<Vec<_>>(), [("request.path".to_owned(), Owned::text("/new"))]);
}

#[test]
fn debug_shows_names_alone() {
    let names = names();
    let request = request();
    let debug = format!("{:?}", names.dictionary(&request));
    assert!(debug.contains("\"request.path\"") && !debug.contains("orders"), "{debug}");
}
