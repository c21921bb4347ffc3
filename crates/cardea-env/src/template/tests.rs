//! Tests of templates.

use super::*;
use crate::table::{Attribute, Family, Key, Table};
use crate::value::{Kind, Value};

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
        Attribute { name: "port", kind: Kind::Int, doc: "Port.", read: |_| Value::Int(443) },
    ],
    &[Family {
        prefix: "headers.",
        argument: "name",
        kind: Kind::Text,
        doc: "A header.",
        prepare: Key::field_name,
        read: |_, _| Value::Absent,
        map: None,
    }],
);

fn render(text: &str, user: Option<&'static [u8]>, escape: Escape) -> (Vec<u8>, Rendered) {
    let template = Template::compile(text, &TABLE).unwrap();
    let mut out = b"before:".to_vec();
    let rendered = template.clone().render(&Request { user }, escape, &mut out);
    (out.split_off(7), rendered)
}

#[test]
fn values_defaults_and_braces() {
    let cases: [(&str, &[u8]); 12] = [
        ("", b""),
        ("plain", b"plain"),
        ("{user}", b"ada"),
        ("{user}{port}", b"ada443"),
        ("a{user}b{port}c", b"ada443c"),
        ("{{{user}}}", b"{ada}"),
        ("{{user}}", b"{user}"),
        ("}}{{", b"}{"),
        ("{headers.x|-}", b"-"),
        ("{headers.x|}", b""),
        ("{user|nobody}", b"ada"),
        ("{headers.x|a|b ☃}", "a|b ☃".as_bytes()),
    ];
    for (text, expected) in cases {
        let expected = if text.starts_with("a{") { b"aadab443c".as_slice() } else { expected };
        let (out, rendered) = render(text, Some(b"ada"), Escape::None);
        assert_eq!(out, expected, "{text}");
        assert_eq!(rendered, Rendered { absent: false, altered: false }, "{text}");
    }
}

#[test]
fn expressions_are_written_and_their_faults_are_absent() {
    let cases: [(&str, &[u8], bool); 7] = [
        ("{= user + '!'}", b"ada!", false),
        ("{=port + 1}", b"444", false),
        ("a{= {'}': '{'}['}'] }b", b"a{b", false),
        ("{= '}' + \"}\" }{user}", b"}}ada", false),
        ("{= [1, 'a', [2]]}", b"1,a,[2]", false),
        ("[{= headers.x}]", b"[]", true),
        ("[{= has(headers.x) ? headers.x : '-'}]", b"[-]", false),
    ];
    for (text, expected, absent) in cases {
        let (out, rendered) = render(text, Some(b"ada"), Escape::None);
        assert_eq!(out.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{text}");
        assert_eq!(rendered.absent, absent, "{text}");
    }
    let cases = [
        ("a{= user", 1, "`{` without `}`"),
        ("a{= usr }", 4, "unknown attribute"),
        ("a{= 1 + }", 8, "incomplete"),
        ("a{= 'x }", 4, "unterminated"),
        ("a{=}", 3, "incomplete"),
    ];
    for (text, position, message) in cases {
        let error = Template::compile(text, &TABLE).unwrap_err();
        assert_eq!(error.position, position, "{text}: {error}");
        assert!(error.message.contains(message), "{text}: {error}");
    }
}

#[test]
fn absent_values_are_reported() {
    assert_eq!(
        render("[{user}]", None, Escape::None),
        (b"[]".to_vec(), Rendered { absent: true, altered: false })
    );
    assert_eq!(
        render("[{user|?}]", None, Escape::None),
        (b"[?]".to_vec(), Rendered { absent: false, altered: false })
    );
}

#[test]
fn header_values_lose_what_could_end_them() {
    let cases: [(&str, &'static [u8], &[u8], bool); 7] = [
        ("{user}", b"a\r\nx-admin: 1", b"a  x-admin: 1", true),
        ("{user}", b"a\0b\x7Fc", b"a b c", true),
        ("{user}", b" a ", b"a", true),
        ("{user}", b"\r\n", b"", true),
        ("{user}", b"a\tb \xE9", b"a\tb \xE9", false),
        ("a\r\nb{user}", b"c", b"a  bc", true),
        ("{user}", b"", b"", false),
    ];
    for (text, user, expected, altered) in cases {
        let (out, rendered) = render(text, Some(user), Escape::HeaderValue);
        assert_eq!(out, expected, "{user:?}");
        assert_eq!(rendered.altered, altered, "{user:?}");
    }
}

#[test]
fn other_rules_leave_the_templates_own_text() {
    assert_eq!(render("{{\"u\":\"{user}\"}}", Some(b"a\"b"), Escape::Json).0, b"{\"u\":\"a\\\"b\"}");
    assert_eq!(render("\"{user}\"", Some(b"a\"\n"), Escape::LogField).0, b"\"a\\x22\\x0A\"");
    assert_eq!(render("/{user}?", Some(b"a/?"), Escape::Percent).0, b"/a%2F%3F?");
}

#[test]
fn errors_point() {
    let cases = [
        ("a{", 1, "`{` without `}`", None),
        ("a{user", 1, "`{` without `}`", None),
        ("é{user", 2, "`{` without `}`", None),
        ("{user{port}", 0, "`{` without `}`", None),
        ("{user|{port}}", 0, "`{` without `}`", None),
        ("a}", 1, "`}` without `{`", None),
        ("{user}}", 6, "`}` without `{`", None),
        ("x{}", 2, "the braces do not contain", None),
        ("x{|a}", 2, "the braces do not contain", None),
        ("x{ user}", 2, "white space", None),
        ("x{us er}", 4, "white space", None),
        ("x{usr}", 2, "unknown attribute \"usr\"", Some("user")),
        ("x{header.x-y}", 2, "unknown attribute", Some("headers.x-y")),
        ("x{headers.(}", 2, "not the name of a header", None),
    ];
    for (text, position, message, suggestion) in cases {
        let error = Template::compile(text, &TABLE).unwrap_err();
        assert_eq!(error.position, position, "{text}");
        assert!(error.message.contains(message), "{text}: {error}");
        assert_eq!(error.suggestion.as_deref(), suggestion, "{text}");
    }
    assert!(Template::compile(&"x".repeat(LENGTH_MAX), &TABLE).is_ok());
    assert!(Template::compile(&"x".repeat(LENGTH_MAX + 1), &TABLE).is_err());
}

#[test]
fn what_reads_nothing_is_constant() {
    let constant = |text| Template::compile(text, &TABLE).unwrap().constant().map(<[u8]>::to_vec);
    assert_eq!(constant("a{{"), Some(b"a{".to_vec()));
    assert_eq!(constant(""), Some(Vec::new()));
    assert_eq!(constant("{user}"), None);
    assert_eq!(Template::compile("{user}:{port}", &TABLE).unwrap().references().count(), 2);
}
