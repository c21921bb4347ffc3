//! Tests of overrides: the changes of one request affect no other.

use super::*;
use crate::testing::{Request, TABLE, names, request};
use crate::{Escape, JsonRecord, Lookup as _, Template};

fn change(request: &mut Request, name: &str, value: Option<Owned>) {
    let reference = TABLE.resolve(name).unwrap();
    match value {
        Some(value) => request.overrides.set(&reference, value).unwrap(),
        None => request.overrides.remove(&reference).unwrap(),
    }
}

fn read(request: &Request, name: &str) -> Option<Owned> {
    Owned::of(TABLE.resolve(name).unwrap().read(request))
}

fn text(text: &str) -> Option<Owned> {
    Some(Owned::text(text))
}

#[test]
fn what_is_set_or_removed_reads_so_and_what_is_not_stays() {
    let mut request = request();
    change(&mut request, "request.path", text("/other"));
    change(&mut request, "request.method", None);
    change(&mut request, "response.status", Some(Owned::Int(1)));
    assert_eq!(read(&request, "request.path"), text("/other"));
    assert_eq!(read(&request, "request.method"), None);
    assert_eq!(read(&request, "response.status"), Some(Owned::Int(1)));
    assert_eq!(read(&request, "token.sub"), text("ada"));
    change(&mut request, "request.path", None);
    change(&mut request, "request.method", text("PUT"));
    assert_eq!(read(&request, "request.path"), None);
    assert_eq!(read(&request, "request.method"), text("PUT"));
}

#[test]
fn a_removed_name_is_absent_in_templates_and_records() {
    let names = names();
    let template = Template::compile("{request.path|gone} {request.headers.x-tenant|gone}", &names).unwrap();
    let record =
        JsonRecord::compile([("p", "request.path"), ("t", "request.headers.x-tenant")], &names).unwrap();
    let show = |request: &Request| {
        let mut out = Vec::new();
        template.render(request, Escape::None, &mut out);
        record.write(request, &mut out);
        String::from_utf8(out).unwrap()
    };
    let mut request = request();
    assert_eq!(show(&request), "/api/v1/orders acme{\"p\":\"/api/v1/orders\",\"t\":\"acme\"}\n");
    change(&mut request, "request.path", None);
    change(&mut request, "request.headers.X-Tenant", None);
    assert_eq!(show(&request), "gone gone{}\n");
}

#[test]
fn after_clearing_only_what_is_set_is_there() {
    let mut request = request();
    change(&mut request, "request.path", text("/set-before"));
    request.overrides.clear();
    for name in ["request.path", "request.headers", "request.headers.host", "token.claims.level"] {
        assert_eq!(read(&request, name), None, "{name}");
    }
    change(&mut request, "request.headers.host", text("set"));
    assert_eq!(read(&request, "request.headers.host"), text("set"));
    assert_eq!(names().dictionary(&request).len(), 1);
    let headers = TABLE.resolve("request.headers").unwrap();
    assert!(matches!(headers.read(&request), Value::Map(map) if map.len() == 1));
}

#[test]
fn a_member_is_changed_in_the_map_too_whatever_its_case() {
    let mut request = request();
    change(&mut request, "request.headers.host", None);
    change(&mut request, "request.headers.x-tenant", text("globex"));
    change(&mut request, "request.headers.x-new", text("1"));
    let reference = TABLE.resolve("request.headers").unwrap();
    let Value::Map(map) = reference.read(&request) else { panic!("no map") };
    for (key, expected) in [
        ("host", None),
        ("HOST", None),
        ("x-tenant", text("globex")),
        ("X-TENANT", text("globex")),
        ("x-new", text("1")),
        ("x.y", text("dot")),
    ] {
        assert_eq!(Owned::of(map.get(key.as_bytes())), expected, "{key}");
    }
    let mut keys = Vec::new();
    let _ = map.each(&mut |key, _| {
        keys.push(Owned::of(key));
        ControlFlow::Continue(())
    });
    assert_eq!(keys, ["cookie", "x.y", "x-tenant", "x-new"].map(text));
    assert_eq!(map.len(), 4);
}

#[test]
fn claims_that_differ_in_case_are_different() {
    let mut request = request();
    change(&mut request, "token.claims.LEVEL", None);
    let reference = TABLE.resolve("token.claims").unwrap();
    let Value::Map(map) = reference.read(&request) else { panic!("no map") };
    assert_eq!(map.get(b"level"), Value::Int(3));
}

#[test]
fn a_family_is_changed_as_a_whole() {
    let mut request = request();
    change(&mut request, "request.headers.x-new", text("1"));
    change(&mut request, "request.headers", None);
    assert_eq!(read(&request, "request.headers.host"), None);
    assert_eq!(read(&request, "request.headers.x-new"), None);
    assert_eq!(read(&request, "request.headers"), None);
    let whole = Owned::Map([(b"a".as_slice().into(), Owned::Int(1))].into());
    change(&mut request, "request.headers", Some(whole));
    assert_eq!(read(&request, "request.headers.a"), Some(Owned::Int(1)));
    assert_eq!(read(&request, "request.headers.host"), None);
    change(&mut request, "request.headers.host", text("late"));
    assert_eq!(read(&request, "request.headers.host"), text("late"));
}

#[test]
fn removing_a_claim_removes_its_members() {
    let mut request = request();
    assert!(matches!(read(&request, "token.claims.realm_access.roles"), Some(Owned::List(_))));
    change(&mut request, "token.claims.realm_access", None);
    assert_eq!(read(&request, "token.claims.realm_access.roles"), None);
    let inner = TABLE.resolve("token.claims.realm_access.roles").unwrap();
    assert_eq!(request.overrides.remove(&inner), Err(NotAKey));
}

#[test]
fn changes_belong_to_one_request_and_end_with_it() {
    let (mut one, other) = (request(), request());
    change(&mut one, "request.path", None);
    one.overrides.clear();
    assert_eq!(read(&other, "request.path"), text("/api/v1/orders"));
    assert_eq!(read(&one, "request.path"), None);
    one.overrides.reset();
    assert!(one.overrides.is_untouched());
    assert_eq!(read(&one, "request.path"), text("/api/v1/orders"));
}

#[test]
fn the_first_change_costs_at_most_64_bytes_and_none_before_it() {
    let mut request = request();
    let names = names();
    let path = names.resolve("request.path").unwrap();
    let header = names.resolve("request.headers.x-tenant").unwrap();
    let reads = allocation_counter::measure(|| {
        let dictionary = names.dictionary(&request);
        assert!(dictionary.contains("request.path") && dictionary.contains("request.headers.host"));
        assert!(dictionary.len() > 8);
        assert!(!path.read(&request).is_absent() && !header.read(&request).is_absent());
    });
    assert_eq!(reads.bytes_total, 0);
    let removal = allocation_counter::measure(|| request.overrides.remove(&header).unwrap());
    assert!(removal.bytes_total > 0 && removal.bytes_total <= 64, "{}", removal.bytes_total);
    request.overrides.reset();
    let again = allocation_counter::measure(|| request.overrides.remove(&path).unwrap());
    assert_eq!(again.bytes_total, 0);
}

#[test]
fn debug_shows_no_value() {
    let mut request = request();
    change(&mut request, "request.path", text("s3cret"));
    assert_eq!(format!("{:?}", request.overrides), "AttributeOverrides { cleared: false, changes: 1, .. }");
    assert!(!format!("{:?}", Owned::text("s3cret")).contains("s3"));
}
