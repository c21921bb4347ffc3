//! Tests of redaction.

use super::*;
use crate::testing::{names, request};
use crate::{Escape, JsonRecord, Template};

fn secret() -> Vec<Box<str>> {
    SECRET_PARAMETERS.iter().map(|name| Box::from(*name)).collect()
}

#[test]
fn secret_parameters_lose_their_values() {
    let cases = [
        ("", ""),
        ("a=1&b=2", "a=1&b=2"),
        ("code=abc", "code=[redacted]"),
        ("code=", "code=[redacted]"),
        ("code", "code"),
        ("codes=1&barcode=2", "codes=1&barcode=2"),
        ("a=1&code=x&b=2", "a=1&code=[redacted]&b=2"),
        ("a=1;code=x;b", "a=1;code=[redacted];b"),
        ("Code=x", "Code=[redacted]"),
        ("c%6fde=x", "c%6fde=[redacted]"),
        ("c%6=x&%63ode=y", "c%6=x&%63ode=[redacted]"),
        ("token[]=x&token[a]=y", "token[]=[redacted]&token[a]=[redacted]"),
        ("code=a=b&c", "code=[redacted]&c"),
        ("code=x&code=y", "code=[redacted]&code=[redacted]"),
        ("&&code=x&&", "&&code=[redacted]&&"),
        (
            "https://a.example/cb?code=x#access_token=y&z",
            "https://a.example/cb?code=[redacted]#access_token=[redacted]&z",
        ),
        ("https://a.example/code=x", "https://a.example/code=x"),
        ("X-Amz-Signature=f0&X-Amz-Date=1", "X-Amz-Signature=[redacted]&X-Amz-Date=1"),
    ];
    for (query, expected) in cases {
        let shown: Vec<u8> = shown_query(query.as_bytes(), &secret()).flatten().copied().collect();
        assert_eq!(String::from_utf8(shown).unwrap(), expected, "{query}");
    }
}

#[test]
fn secrets_are_redacted_in_templates_and_records_and_stay_in_raw_ones() {
    let names = names();
    let text = "{request.headers.Cookie} {request.query} {request.headers.host}";
    let render = |template: Template<_>| {
        let mut out = Vec::new();
        template.render(&request(), Escape::HeaderValue, &mut out);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(
        render(Template::compile(text, &names).unwrap()),
        "[redacted] a=1&access_token=[redacted]&b=2 example.com"
    );
    assert_eq!(
        render(Template::compile_raw(text, &names).unwrap()),
        "sid=1 a=1&access_token=s3cret&b=2 example.com"
    );

    let fields =
        [("c", "request.headers.cookie"), ("none", "request.headers.none"), ("all", "request.headers")];
    let record = JsonRecord::compile(fields, &names).unwrap();
    let mut out = Vec::new();
    record.write(&request(), &mut out);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "{\"c\":\"[redacted]\",\"all\":{\"host\":\"example.com\",\"x-tenant\":\"acme\",\
         \"cookie\":\"[redacted]\",\"x.y\":\"dot\"}}\n"
    );
}

#[test]
fn a_family_and_a_uri_in_a_header_are_redacted() {
    let redaction =
        Redaction::none().family("token.claims.").query_of_member("request.headers.", "host", ["q"]);
    let names = crate::Names::new(&crate::testing::TABLE).with_redaction(redaction);
    let template =
        Template::compile("{token.claims.sub} {token.claims} {request.headers.host}", &names).unwrap();
    let mut request = request();
    request.headers = vec![("host", "https://a.example/?q=1&r=2")];
    let mut out = Vec::new();
    template.render(&request, Escape::None, &mut out);
    assert_eq!(String::from_utf8(out).unwrap(), "[redacted] [redacted] https://a.example/?q=[redacted]&r=2");
}
