//! The parts of a URL in which values stand.

use super::*;
use crate::attributes::TABLE;

/// Where the template leads a request for `path` of the host `a.test:8443` with this value of the parameter `v`.
fn location_of(to: &str, path: &str, value: &[u8]) -> Option<String> {
    let to = Template::compile_raw(to, &TABLE).unwrap();
    let mut exchange = Exchange::default();
    exchange.authority = Some(Authority::parse(b"a.test:8443", Scheme::Https).unwrap());
    exchange.path = path.as_bytes().to_vec();
    let digits: String = value.iter().map(|byte| format!("%{byte:02X}")).collect();
    exchange.query = Some(format!("v={digits}").into_bytes());
    exchange.head.fields.append(b"x-tenant", b"t1").unwrap();
    location(&to, false, &exchange).map(|location| String::from_utf8(location).unwrap())
}

const HOST: &str = "https://{request.query_params.v}.test/x";
const HOST_END: &str = "https://example.com{request.query_params.v}";

#[test]
fn a_value_in_the_authority_stays_there() {
    for (to, value, expected) in [
        (HOST, "shop", Some("https://shop.test/x")),
        (HOST, "a.b-c", Some("https://a.b-c.test/x")),
        (HOST, "evil.com/", None),
        (HOST, "/evil.com/", None),
        (HOST, "evil.com\\", None),
        (HOST, "evil.com?", None),
        (HOST, "evil.com#", None),
        (HOST, "a@evil.com", None),
        (HOST, "evil.com:80", None),
        (HOST, "evil.com:", None),
        (HOST, "evil.com%2F", None),
        (HOST, "evil.com ", None),
        (HOST, "\tevil.com", None),
        (HOST, "evil.com\r\nX: y", None),
        (HOST, "evil.com\u{ff0f}", None),
        (HOST, "", None),
        (HOST, ".", None),
        ("https://x-{request.query_params.v}.test", "/evil", None),
        ("https://x-{request.query_params.v}{request.headers.x-tenant}.test", "/evil", None),
        ("https://{request.query_params.v}/x", "[::1]:8443", Some("https://[::1]:8443/x")),
        ("https://{request.query_params.v}/x", "[::1", None),
        ("https://a.test:{request.query_params.v}/x", "81", Some("https://a.test:81/x")),
        ("https://a.test:{request.query_params.v}/x", "81@evil.com", None),
        ("https://a.test:{request.query_params.v}/x", "65536", None),
        ("https://user@{request.query_params.v}/x", "a.test", Some("https://user@a.test/x")),
        (HOST_END, ".evil.com", Some("https://example.com.evil.com")),
        (HOST_END, "@evil.com", None),
        (HOST_END, "/p?q#f", Some("https://example.com/p%3Fq%23f")),
        ("https://{request.query_params.v}{request.path}", "/evil.com", None),
        ("https://{request.query_params.v}{request.path}", "", None),
        ("https://{request.query_params.v}{request.path}", "a.test", Some("https://a.test/the/path")),
    ] {
        let location = location_of(to, "/the/path", value.as_bytes());
        assert_eq!(location.as_deref(), expected, "{to} {value:?}");
    }
}

#[test]
fn a_value_behind_the_authority_begins_no_other_part() {
    for (to, value, expected) in [
        ("https://x.test/{request.query_params.v}?a=b", "c/d", Some("https://x.test/c/d?a=b")),
        ("https://x.test/{request.query_params.v}?a=b", "c?d#e", Some("https://x.test/c%3Fd%23e?a=b")),
        ("https://x.test/{request.query_params.v}", "\\evil.com", Some("https://x.test/%5Cevil.com")),
        (
            "https://x.test/{request.query_params.v}",
            "a b\r\nc\u{e9}",
            Some("https://x.test/a%20b%0D%0Ac%C3%A9"),
        ),
        ("https://x.test/{request.query_params.v}", "a%2Fb", Some("https://x.test/a%2Fb")),
        (
            "https://x.test/?u={request.query_params.v}",
            "https://y/?z",
            Some("https://x.test/?u=https://y/?z"),
        ),
        ("https://x.test?u={request.query_params.v}", "#x y", Some("https://x.test?u=%23x%20y")),
        ("https://x.test/#{request.query_params.v}", "a#b", Some("https://x.test/#a%23b")),
        ("/{request.query_params.v}", "a/b", Some("/a/b")),
        ("/{request.query_params.v}", "\\evil.com", Some("/%5Cevil.com")),
        ("/{request.query_params.v}", "\t/evil.com", Some("/%09/evil.com")),
        ("/{request.query_params.v}", "/evil.com", None),
        ("/{request.headers.none}{request.query_params.v}", "/evil.com", None),
        ("/login?next=https://x/{request.query_params.v}", "?#", Some("/login?next=https://x/?%23")),
    ] {
        let location = location_of(to, "/", value.as_bytes());
        assert_eq!(location.as_deref(), expected, "{to} {value:?}");
    }
}

#[test]
fn the_host_and_the_path_of_a_request_make_a_location() {
    for (to, path, expected) in [
        ("https://{request.host}{request.path}", "/a/b%3F", "https://a.test/a/b%3F"),
        ("https://{request.authority}{request.path}?x={request.host}", "/", "https://a.test:8443/?x=a.test"),
        ("https://{request.host}:444{request.path}/more", "/a", "https://a.test:444/a/more"),
        ("https://{request.headers.x-tenant}.{request.host}{request.path}", "/a", "https://t1.a.test/a"),
        ("https://{request.host}{= request.path}", "/a", "https://a.test/a"),
        ("/moved{request.path}", "/a", "/moved/a"),
    ] {
        assert_eq!(location_of(to, path, b"").as_deref(), Some(expected), "{to}");
    }
}

#[test]
fn a_query_is_appended_as_it_is() {
    for (to, query, expected) in [
        ("https://x.test{request.path}", "a=b", "https://x.test/p?a=b"),
        ("https://x.test{request.path}", "?", "https://x.test/p??"),
        ("https://x.test{request.path}", "a?", "https://x.test/p?a?"),
        ("https://x.test{request.path}", "", "https://x.test/p"),
        ("https://x.test{request.path}?", "", "https://x.test/p"),
        ("https://x.test{request.path}?c=d#e", "a?", "https://x.test/p?c=d&a?#e"),
    ] {
        let to = Template::compile_raw(to, &TABLE).unwrap();
        let mut exchange = Exchange::default();
        exchange.path = b"/p".to_vec();
        exchange.query = Some(query.as_bytes().to_vec());
        assert_eq!(location(&to, true, &exchange).unwrap(), expected.as_bytes());
    }
}
