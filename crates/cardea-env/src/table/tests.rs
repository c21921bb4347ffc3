//! Tests of the table of attributes.

use super::*;
use crate::value::Inline;

struct Request {
    path: &'static str,
    headers: Vec<(&'static str, &'static str)>,
}

impl HasOverrides for Request {}

static TABLE: Table<Request> = Table::new(
    &[
        Attribute {
            name: "request.path",
            kind: Kind::Text,
            doc: "The path.",
            read: |request| Value::Bytes(request.path.as_bytes()),
        },
        Attribute {
            name: "request.id",
            kind: Kind::Text,
            doc: "The id.",
            read: |_| Value::Inline(Inline::from_array(*b"01")),
        },
        Attribute { name: "source.port", kind: Kind::Int, doc: "The port.", read: |_| Value::Int(1) },
        Attribute { name: "upstream.port", kind: Kind::Int, doc: "The port.", read: |_| Value::Int(2) },
    ],
    &[
        Family {
            prefix: "request.headers.",
            argument: "name",
            kind: Kind::Text,
            doc: "A header.",
            prepare: |name| match name {
                "authorization" => Err("credentials are not for reading"),
                _ => Key::field_name(name),
            },
            read: |request, key| {
                let value = request.headers.iter().find(|(name, _)| *name == &*key.text);
                Value::bytes(value.map(|(_, value)| *value))
            },
            map: None,
        },
        Family {
            prefix: "token.",
            argument: "name",
            kind: Kind::Text,
            doc: "Shorter.",
            prepare: Key::verbatim,
            read: |_, _| Value::Bytes(b"short"),
            map: None,
        },
        Family {
            prefix: "token.claims.",
            argument: "name",
            kind: Kind::Text,
            doc: "A claim.",
            prepare: Key::verbatim,
            read: |_, _| Value::Bytes(b"long"),
            map: None,
        },
    ],
);

fn request() -> Request {
    Request { path: "/a", headers: vec![("x-a", "1"), ("x.b", "2")] }
}

#[test]
fn names_read_what_they_name() {
    let request = request();
    let cases = [
        ("request.path", Kind::Text, Value::Bytes(b"/a")),
        ("request.id", Kind::Text, Value::Inline(Inline::from_array(*b"01"))),
        ("source.port", Kind::Int, Value::Int(1)),
        ("request.headers.x-a", Kind::Text, Value::Bytes(b"1")),
        ("request.headers.X-A", Kind::Text, Value::Bytes(b"1")),
        ("request.headers.x.b", Kind::Text, Value::Bytes(b"2")),
        ("request.headers.x-c", Kind::Text, Value::Absent),
        ("token.x", Kind::Text, Value::Bytes(b"short")),
        ("token.claims.https://a.example/b", Kind::Text, Value::Bytes(b"long")),
    ];
    for (name, kind, expected) in cases {
        let reference = TABLE.resolve(name).unwrap();
        assert_eq!(reference.kind(), kind, "{name}");
        assert_eq!(TABLE.read(&reference, &request), expected, "{name}");
        assert_eq!(reference.clone().read(&request), expected, "{name}");
    }
}

#[test]
fn unknown_names_are_refused_with_a_suggestion() {
    let cases = [
        ("request.pth", Some("request.path")),
        ("reqest.path", Some("request.path")),
        ("request.header.x-a", Some("request.headers.x-a")),
        ("requests.headers.x-a", Some("request.headers.x-a")),
        ("path", Some("request.path")),
        ("port", None),
        ("request.headers.", None),
        ("request.headers", None),
        ("", None),
        (".", None),
        ("é.é.é", None),
    ];
    for (name, expected) in cases {
        let error = TABLE.resolve(name).unwrap_err();
        assert_eq!(error.suggestion(), expected, "{name}");
    }
    // This family accepts any key but the empty one.
    assert!(matches!(TABLE.resolve("token."), Err(ResolveError::Unknown { .. })));
    let error = TABLE.resolve("request.pth").unwrap_err();
    assert_eq!(error.to_string(), "unknown attribute \"request.pth\"");
}

#[test]
fn a_family_refuses_what_it_can_not_have() {
    let cases = [
        (
            "request.headers.authorization",
            "\"request.headers.authorization\": credentials are not for reading",
        ),
        ("request.headers.a b", "\"request.headers.a b\": not the name of a header"),
        ("request.headers.a\r\nb", "\"request.headers.a\\r\\nb\": not the name of a header"),
    ];
    for (name, expected) in cases {
        assert_eq!(TABLE.resolve(name).unwrap_err().to_string(), expected);
    }
}

#[test]
fn errors_are_of_bounded_length() {
    let error = TABLE.resolve(&"é".repeat(10_000)).unwrap_err();
    assert!(error.to_string().chars().count() < 100);
}

#[test]
fn the_reference_page_has_a_row_for_each() {
    assert_eq!(
        markdown(&TABLE),
        "| attribute | type | meaning |\n\
         |---|---|---|\n\
         | `request.path` | string | The path. |\n\
         | `request.id` | string | The id. |\n\
         | `source.port` | int | The port. |\n\
         | `upstream.port` | int | The port. |\n\
         | `request.headers.<name>` | string | A header. |\n\
         | `token.<name>` | string | Shorter. |\n\
         | `token.claims.<name>` | string | A claim. |\n"
    );
}

#[test]
fn a_table_that_makes_no_sense_is_noticed() {
    const fn attribute(name: &'static str, doc: &'static str) -> Attribute<()> {
        Attribute { name, kind: Kind::Int, doc, read: |()| Value::Int(0) }
    }
    static FAMILY: [Family<()>; 1] = [Family {
        prefix: "a.b.",
        argument: "name",
        kind: Kind::Int,
        doc: "Some.",
        prepare: Key::verbatim,
        read: |(), _| Value::Absent,
        map: None,
    }];
    static GOOD: [Attribute<()>; 2] = [attribute("a.c", "It."), attribute("a.b", "It.")];
    static BAD: [(&str, [Attribute<()>; 2]); 6] = [
        ("twice", [attribute("a.c", "It."), attribute("a.c", "It.")]),
        ("member", [attribute("a.c", "It."), attribute("a.b.c", "It.")]),
        ("lower-case", [attribute("a.c", "It."), attribute("a.C", "It.")]),
        ("lower-case", [attribute("a.c", "It."), attribute("a..c", "It.")]),
        ("documentation", [attribute("a.c", "It."), attribute("a.d", " ")]),
        ("documentation", [attribute("a.c", "It."), attribute("a.d", "a|b")]),
    ];
    assert_eq!(TABLE.check(), Ok(()));
    assert_eq!(Table::new(&GOOD, &FAMILY).check(), Ok(()));
    for (expected, attributes) in &BAD {
        let error = Table::new(attributes, &FAMILY).check().unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
