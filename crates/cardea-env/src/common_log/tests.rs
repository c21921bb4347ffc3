//! Tests of the common and the combined log format, compared with lines of Apache.

use super::*;
use crate::Owned;
use crate::testing::{Request, names, request};

fn fields() -> CommonFields<'static> {
    CommonFields {
        protocol: "token.claims.protocol",
        size: "token.claims.size",
        agent: "request.headers.user-agent",
        ..CommonFields::default()
    }
}

fn line(form: CommonForm, request: &Request) -> String {
    let log = CommonLog::compile(form, &fields(), &names()).unwrap();
    let mut out = Vec::new();
    log.write(request, &mut out);
    String::from_utf8(out).unwrap()
}

fn set(request: &mut Request, name: &str, value: Owned) {
    request.overrides.set(&names().resolve(name).unwrap(), value).unwrap();
}

#[test]
fn the_lines_are_those_of_apache() {
    let mut request = request();
    request.path = "/apache_pb.gif";
    request.query = None;
    request.time = 971_211_336_000_000_000;
    set(&mut request, "token.claims.protocol", Owned::text("HTTP/1.0"));
    set(&mut request, "token.claims.size", Owned::Int(2_326));
    set(&mut request, "request.headers.referer", Owned::text("http://www.example.com/start.html"));
    set(&mut request, "request.headers.user-agent", Owned::text("Mozilla/4.08 [en] (Win98; I ;Nav)"));
    let common = "10.1.2.3 - ada [10/Oct/2000:20:55:36 +0000] \"GET /apache_pb.gif HTTP/1.0\" 200 2326";
    assert_eq!(line(CommonForm::Common, &request), format!("{common}\n"));
    let combined =
        format!("{common} \"http://www.example.com/start.html\" \"Mozilla/4.08 [en] (Win98; I ;Nav)\"\n");
    assert_eq!(line(CommonForm::Combined, &request), combined);
}

#[test]
fn what_is_absent_is_a_dash_and_no_bytes_are_too() {
    let mut request = request();
    request.claims = None;
    request.source = None;
    set(&mut request, "token.claims.size", Owned::Int(0));
    let expected = "- - - [29/Feb/2024:13:14:15 +0000] \
                    \"GET /api/v1/orders?a=1&access_token=[redacted]&b=2 -\" 200 - \"-\" \"-\"\n";
    assert_eq!(line(CommonForm::Combined, &request), expected);
    request.overrides.clear();
    assert_eq!(line(CommonForm::Combined, &request), "- - - - \"-\" - - \"-\" \"-\"\n");
}

#[test]
fn nobody_adds_fields_or_lines() {
    let mut request = request();
    set(&mut request, "token.sub", Owned::text("a b\" \r\n[\u{1}é\\"));
    set(&mut request, "request.path", Owned::text("/\" 200 1\n\t\u{b}"));
    set(&mut request, "request.headers.user-agent", Owned::text("x\" \"y"));
    let line = line(CommonForm::Combined, &request);
    let user = "a\\x20b\\\"\\x20\\r\\n[\\x01\\xc3\\xa9\\\\";
    assert!(line.starts_with(&format!("10.1.2.3 - {user} [29/Feb/2024")), "{line}");
    assert!(line.contains("\"GET /\\\" 200 1\\n\\t\\v?a=1"), "{line}");
    assert!(line.ends_with("\"-\" \"x\\\" \\\"y\"\n"), "{line}");
    assert_eq!(line.matches('\n').count(), 1);
    set(&mut request, "token.sub", Owned::text(""));
    assert!(super::tests::line(CommonForm::Common, &request).starts_with("10.1.2.3 - - ["));
}

#[test]
fn errors_name_the_field() {
    let fields = CommonFields { time: "request.tme", ..fields() };
    let error = CommonLog::compile(CommonForm::Common, &fields, &names()).unwrap_err();
    assert!(
        matches!(&error, RecordError::Attribute { index: 2, source } if source.suggestion() == Some("request.time"))
    );
}

#[test]
fn writing_allocates_nothing() {
    let request = request();
    let log = CommonLog::compile(CommonForm::Combined, &fields(), &names()).unwrap();
    let mut out = Vec::with_capacity(1024);
    let measured = allocation_counter::measure(|| log.write(&request, &mut out));
    assert_eq!(measured.count_total, 0);
    assert!(!out.is_empty());
}
