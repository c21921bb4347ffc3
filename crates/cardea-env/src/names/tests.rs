//! Tests of custom attributes.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::testing::{Request, names, request};
use crate::value::{Owned, Value};
use crate::{Attribute, Escape, JsonRecord, MapFile, Template};

fn map(key: &str, names: &Names<Request>, default: Option<Owned>) -> Source<Request> {
    let entries = Arc::new(MapFile::parse("acme gold\nglobex silver\n").unwrap());
    Source::Map { key: Template::compile_raw(key, names).unwrap(), entries, default }
}

#[test]
fn each_source_gives_its_value() {
    let mut names = names();
    names.declare("app.set", Source::Nothing).unwrap();
    names.declare("app.level", Source::Attribute(names.resolve("token.claims.level").unwrap())).unwrap();
    let greeting = Template::compile("{token.sub}@{request.headers.x-tenant}", &names).unwrap();
    names.declare("app.user", Source::Template(greeting)).unwrap();
    let source = map("{request.headers.x-tenant}", &names, Some(Owned::text("free")));
    names.declare("app.plan", source).unwrap();
    let template = Template::compile("{app.set|-} {app.level} {app.user} {app.plan}", &names).unwrap();
    let show = |request: &Request| {
        let mut out = Vec::new();
        template.render(request, Escape::None, &mut out);
        String::from_utf8(out).unwrap()
    };
    let mut one = request();
    assert_eq!(show(&one), "- 3 ada@acme gold");
    one.overlay.set(&names.resolve("app.set").unwrap(), Owned::Bool(true)).unwrap();
    one.overlay.remove(&names.resolve("app.user").unwrap()).unwrap();
    assert_eq!(show(&one), "true 3  gold");

    let mut other = request();
    other.headers = vec![("x-tenant", "umbrella")];
    assert_eq!(show(&other), "- 3 ada@umbrella free");
    let mut none = request();
    none.headers.clear();
    none.claims = None;
    assert_eq!(show(&none), "-   ");
    let kinds: Vec<Kind> = names.custom().map(|(_, kind)| kind).collect();
    assert_eq!(kinds, [Kind::Any, Kind::Any, Kind::Text, Kind::Text]);
}

#[test]
fn a_value_is_computed_once_per_request_and_only_if_read() {
    static READS: AtomicUsize = AtomicUsize::new(0);
    struct Counted(crate::Overlay);
    impl Overlaid for Counted {
        fn overlay(&self) -> &crate::Overlay {
            &self.0
        }
    }
    static TABLE: Table<Counted> = Table::new(
        &[Attribute {
            name: "request.count",
            kind: Kind::Int,
            doc: "Reads.",
            read: |_| Value::Int(READS.fetch_add(1, Ordering::Relaxed) as i64),
        }],
        &[],
    );
    let mut names = Names::new(&TABLE);
    names.declare("once", Source::Template(Template::compile("{request.count}", &names).unwrap())).unwrap();
    let once = names.resolve("once").unwrap();
    let mut request = Counted(crate::Overlay::new());
    assert_eq!(READS.load(Ordering::Relaxed), 0);
    for _ in 0..3 {
        assert_eq!(once.read(&request), Value::Bytes(b"0"));
    }
    request.0.reset();
    assert_eq!(once.read(&request), Value::Bytes(b"1"));
    assert_eq!(READS.load(Ordering::Relaxed), 2);
}

#[test]
fn what_another_configuration_computed_is_not_taken_for_ours() {
    let declare = |text: &str| {
        let mut names = names();
        names.declare("it", Source::Template(Template::compile(text, &names).unwrap())).unwrap();
        names
    };
    let (one, other) = (declare("one"), declare("other"));
    let request = request();
    assert_eq!(one.resolve("it").unwrap().read(&request), Value::Bytes(b"one"));
    assert_eq!(other.resolve("it").unwrap().read(&request), Value::Failed);
    assert_eq!(one.resolve("it").unwrap().read(&request), Value::Bytes(b"one"));
}

#[test]
fn names_that_can_not_be_declared() {
    let mut names = names();
    names.declare("app.user", Source::Nothing).unwrap();
    let cases = [
        ("App", "no name"),
        ("a b", "no name"),
        ("", "no name"),
        ("a..b", "no name"),
        ("a.1", "no name"),
        ("request.mine", "begin with \"request\""),
        ("token", "begin with \"token\""),
        ("app.user", "declared already"),
        ("app.user.name", "declared already"),
        ("app", "declared already"),
    ];
    for (name, expected) in cases {
        let error = names.declare(name, Source::Nothing).unwrap_err().to_string();
        assert!(error.contains(expected), "{name}: {error}");
    }
    for index in 1..CUSTOM_MAX {
        names.declare(&format!("custom_{index}"), Source::Nothing).unwrap();
    }
    assert_eq!(names.declare("one_more", Source::Nothing), Err(DeclareError::TooMany));
    assert!(names.resolve("app.usr").unwrap_err().suggestion() == Some("app.user"));
}

#[test]
fn what_is_made_of_a_secret_is_one() {
    let mut names = names();
    let raw = Template::compile_raw("s-{request.headers.cookie}", &names).unwrap();
    names.declare("raw", Source::Template(raw)).unwrap();
    let shown = Template::compile("s-{request.headers.cookie}", &names).unwrap();
    names.declare("shown", Source::Template(shown)).unwrap();
    names.declare("alias", Source::Attribute(names.resolve("request.headers.cookie").unwrap())).unwrap();
    names.declare("alias_query", Source::Attribute(names.resolve("request.query").unwrap())).unwrap();
    names.declare("mapped", map("{alias}", &names, None)).unwrap();
    let fields = ["raw", "shown", "alias", "alias_query"].map(|name| (name, name));
    let record = JsonRecord::compile(fields, &names).unwrap();
    let mut out = Vec::new();
    record.write(&request(), &mut out);
    let expected = "{\"raw\":\"[redacted]\",\"shown\":\"s-[redacted]\",\"alias\":\"[redacted]\",\
                    \"alias_query\":\"a=1&access_token=[redacted]&b=2\"}\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
    assert!(names.resolve("mapped").unwrap().is_secret());
    let key = Template::compile_raw("{raw}", &names).unwrap();
    let mut out = Vec::new();
    key.render(&request(), Escape::None, &mut out);
    assert_eq!(out, b"s-sid=1");
}
