//! Tests of custom attributes.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::testing::{Request, names, request};
use crate::value::{Owned, Value};
use crate::{Attribute, Escape, JsonRecord, MapFile, Template};

fn map(key: &str, names: &Names<Request>, default: Option<Owned>) -> ValueSource<Request> {
    let entries = Arc::new(MapFile::parse("acme gold\nglobex silver\n").unwrap());
    ValueSource::Map { key: Template::compile_raw(key, names).unwrap(), entries, default }
}

#[test]
fn each_source_gives_its_value() {
    let mut names = names();
    names.declare("app.set", ValueSource::Nothing).unwrap();
    names.declare("app.level", ValueSource::Attribute(names.resolve("token.claims.level").unwrap())).unwrap();
    let greeting = Template::compile("{token.sub}@{request.headers.x-tenant}", &names).unwrap();
    names.declare("app.user", ValueSource::Template(greeting)).unwrap();
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
    one.overrides.set(&names.resolve("app.set").unwrap(), Owned::Bool(true)).unwrap();
    one.overrides.remove(&names.resolve("app.user").unwrap()).unwrap();
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
    struct Counted(crate::AttributeOverrides);
    impl HasOverrides for Counted {
        fn overrides(&self) -> &crate::AttributeOverrides {
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
    names
        .declare("once", ValueSource::Template(Template::compile("{request.count}", &names).unwrap()))
        .unwrap();
    let once = names.resolve("once").unwrap();
    let mut request = Counted(crate::AttributeOverrides::new());
    assert_eq!(READS.load(Ordering::Relaxed), 0);
    for _ in 0..3 {
        assert_eq!(once.read(&request), Value::Bytes(b"0"));
    }
    request.0.reset();
    assert_eq!(once.read(&request), Value::Bytes(b"1"));
    assert_eq!(READS.load(Ordering::Relaxed), 2);
}

#[test]
fn what_was_computed_before_a_change_is_computed_again() {
    let mut names = names();
    let plan = map("{request.headers.x-tenant}", &names, None);
    names.declare("app.plan", plan).unwrap();
    let label = Template::compile("<{app.plan|none}>", &names).unwrap();
    names.declare("app.label", ValueSource::Template(label)).unwrap();
    let [plan, label, tenant] =
        ["app.plan", "app.label", "request.headers.x-tenant"].map(|name| names.resolve(name).unwrap());
    let mut request = request();
    assert_eq!(label.read(&request), Value::Bytes(b"<gold>"));
    request.overrides.set(&tenant, Owned::text("globex")).unwrap();
    assert_eq!(label.read(&request), Value::Bytes(b"<silver>"));
    request.overrides.set(&plan, Owned::text("lead")).unwrap();
    assert_eq!(label.read(&request), Value::Bytes(b"<lead>"));
    request.overrides.clear();
    assert_eq!((plan.read(&request), label.read(&request)), (Value::Absent, Value::Absent));
    request.overrides.reset();
    assert_eq!(label.read(&request), Value::Bytes(b"<gold>"));
}

#[test]
fn all_sources_of_a_custom_attribute_are_found() {
    let mut names = names();
    names.declare("app.set", ValueSource::Nothing).unwrap();
    let key = map("{request.headers.X-Tenant}{app.set}", &names, None);
    names.declare("app.plan", key).unwrap();
    let text = "app.plan == 'gold' && 'x' in request.headers && token.claims.realm_access.roles.size() > 0";
    let expression = crate::Expression::compile(text, &names).unwrap();
    names.declare("app.good", ValueSource::Expression(expression)).unwrap();
    names.declare("app.alias", ValueSource::Attribute(names.resolve("app.good").unwrap())).unwrap();
    let sources = |name: &str| Vec::from_iter(names.sources(&names.resolve(name).unwrap()));
    assert_eq!(sources("request.path"), ["request.path"]);
    assert_eq!(sources("app.set"), ["app.set"]);
    assert_eq!(sources("app.plan"), ["app.set", "request.headers.x-tenant"]);
    assert_eq!(
        sources("app.alias"),
        ["app.set", "request.headers", "request.headers.x-tenant", "token.claims.realm_access"]
    );
}

#[test]
fn what_is_put_together_is_utf8_and_an_alias_is_as_it_came() {
    let mut names = names();
    let declare = |names: &mut Names<Request>, name: &str, text: &str| {
        let template = Template::compile_raw(text, names).unwrap();
        names.declare(name, ValueSource::Template(template)).unwrap();
    };
    declare(&mut names, "app.same", "{request.headers.x-tenant}");
    declare(&mut names, "app.made", "é{request.headers.x-tenant}");
    let entries = Arc::new(MapFile::parse("caf\u{e9} gold\n").unwrap());
    let key = Template::compile_raw("{request.headers.x-tenant}", &names).unwrap();
    names.declare("app.plan", ValueSource::Map { key, entries, default: Some(Owned::text("free")) }).unwrap();
    let tenant = names.resolve("request.headers.x-tenant").unwrap();
    let mut request = request();
    for (value, same, made, plan) in [
        (Owned::text(b"caf\xE9"), Value::Bytes(b"caf\xE9"), "écafé", "gold"),
        (Owned::text("café"), Value::Bytes("café".as_bytes()), "écafé", "gold"),
        (Owned::Latin1(b"caf\xE9".as_slice().into()), Value::Latin1(b"caf\xE9"), "écafé", "gold"),
        (Owned::Latin1("café".as_bytes().into()), Value::Latin1("café".as_bytes()), "écafÃ©", "free"),
    ] {
        request.overrides.set(&tenant, value).unwrap();
        assert_eq!(names.resolve("app.same").unwrap().read(&request), same);
        assert_eq!(names.resolve("app.made").unwrap().read(&request), Value::Bytes(made.as_bytes()));
        assert_eq!(names.resolve("app.plan").unwrap().read(&request), Value::Bytes(plan.as_bytes()));
    }
}

#[test]
fn what_another_configuration_computed_is_not_taken_for_ours() {
    let declare = |text: &str| {
        let mut names = names();
        names.declare("it", ValueSource::Template(Template::compile(text, &names).unwrap())).unwrap();
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
    names.declare("app.user", ValueSource::Nothing).unwrap();
    let cases = [
        ("App", "not a valid name"),
        ("a b", "not a valid name"),
        ("", "not a valid name"),
        ("a..b", "not a valid name"),
        ("a.1", "not a valid name"),
        ("request.mine", "begin with \"request\""),
        ("token", "begin with \"token\""),
        ("app.user", "declared already"),
        ("app.user.name", "declared already"),
        ("app", "declared already"),
    ];
    for (name, expected) in cases {
        let error = names.declare(name, ValueSource::Nothing).unwrap_err().to_string();
        assert!(error.contains(expected), "{name}: {error}");
    }
    for index in 1..CUSTOM_MAX {
        names.declare(&format!("custom_{index}"), ValueSource::Nothing).unwrap();
    }
    assert_eq!(names.declare("one_more", ValueSource::Nothing), Err(DeclareError::TooMany));
    assert!(names.resolve("app.usr").unwrap_err().suggestion() == Some("app.user"));
}

#[test]
fn attributes_derived_from_secrets_are_redacted() {
    let mut names = names();
    let raw = Template::compile_raw("s-{request.headers.cookie}", &names).unwrap();
    names.declare("raw", ValueSource::Template(raw)).unwrap();
    let shown = Template::compile("s-{request.headers.cookie}", &names).unwrap();
    names.declare("shown", ValueSource::Template(shown)).unwrap();
    names.declare("alias", ValueSource::Attribute(names.resolve("request.headers.cookie").unwrap())).unwrap();
    names.declare("alias_query", ValueSource::Attribute(names.resolve("request.query").unwrap())).unwrap();
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
