//! The four forms of RFC 9112 §3.2, and invalid targets.

use proptest::prelude::*;

use super::*;

fn origin<'a>(path: &'a str, query: Option<&'a str>) -> Target<'a> {
    let query = query.map(str::as_bytes);
    Target { form: TargetForm::Origin, scheme: None, authority: None, path: path.as_bytes(), query }
}

fn absolute<'a>(scheme: Scheme, authority: &'a str, path: &'a str, query: Option<&'a str>) -> Target<'a> {
    Target {
        form: TargetForm::Absolute,
        scheme: Some(scheme),
        authority: Some(authority.as_bytes()),
        ..origin(path, query)
    }
}

#[test]
fn the_four_forms_are_told_apart() {
    let get = Method::Get;
    let table = [
        (get, "/", origin("/", None)),
        (get, "/where?q=now", origin("/where", Some("q=now"))),
        (get, "/a?", origin("/a", Some(""))),
        (get, "/a?b?c/../d%20", origin("/a", Some("b?c/../d%20"))),
        (get, "/a%20b/c;d=1:@!$&'()*+,=-._~", origin("/a%20b/c;d=1:@!$&'()*+,=-._~", None)),
        (get, "//evil.example/", origin("//evil.example/", None)),
        (get, "/a\\b|[c]", origin("/a\\b|[c]", None)),
        (get, "/a?{b}[]|\\^`", origin("/a", Some("{b}[]|\\^`"))),
        (get, "http://h.example", absolute(Scheme::Http, "h.example", "/", None)),
        (get, "HTTPS://h.example:8443/p?q", absolute(Scheme::Https, "h.example:8443", "/p", Some("q"))),
        (get, "http://[::1]:80?q", absolute(Scheme::Http, "[::1]:80", "/", Some("q"))),
        (Method::Options, "/o", origin("/o", None)),
    ];
    for (method, target, expected) in table {
        assert_eq!(parse_target(method, target.as_bytes()), Ok(expected), "{target}");
    }
    let star = parse_target(Method::Options, b"*").unwrap();
    assert_eq!((star.form, star.path), (TargetForm::Asterisk, &b"*"[..]));
    let connect = parse_target(Method::Connect, b"h.example:443").unwrap();
    assert_eq!((connect.form, connect.authority), (TargetForm::Authority, Some(&b"h.example:443"[..])));
}

#[test]
fn what_is_malformed_or_does_not_fit_the_method_is_refused() {
    use TargetError as E;
    let get = Method::Get;
    let table: &[(Method, &[u8], TargetError)] = &[
        (get, b"", E::FormInvalid),
        (get, b"a", E::FormInvalid),
        (get, b"a/b", E::FormInvalid),
        (get, b"?q", E::FormInvalid),
        (get, b"*", E::FormNotAllowed),
        (Method::Options, b"**", E::FormInvalid),
        (get, b"h.example:443", E::FormInvalid),
        (get, b"http:/h/", E::FormInvalid),
        (get, b"ftp://h/", E::SchemeUnknown),
        (get, b"javascript://h/", E::SchemeUnknown),
        (get, b"http:///p", E::AuthorityInvalid),
        (get, b"http://", E::AuthorityInvalid),
        (get, b"http://h%2eexample/", E::AuthorityInvalid),
        (get, b"http://h\\x/", E::AuthorityInvalid),
        (get, b"http://user@h/", E::UserInfo),
        (get, b"http://u:p@h/", E::UserInfo),
        (get, b"/a#b", E::Fragment),
        (get, b"/a?b#c", E::Fragment),
        (get, b"http://h#c", E::Fragment),
        (get, b"/a b", E::ByteInvalid),
        (get, b"/a\tb", E::ByteInvalid),
        (get, b"/a\0", E::ByteInvalid),
        (get, b"/caf\xC3\xA9", E::ByteInvalid),
        (get, b"/a?caf\xC3\xA9", E::ByteInvalid),
        (get, b"/<a>", E::ByteInvalid),
        (get, b"/a?\"", E::ByteInvalid),
        (get, b"/%", E::EscapeInvalid),
        (get, b"/%2", E::EscapeInvalid),
        (get, b"/%zz", E::EscapeInvalid),
        (get, b"/%u0041", E::EscapeInvalid),
        (get, b"/a%?b", E::EscapeInvalid),
        (Method::Connect, b"/", E::FormNotAllowed),
        (Method::Connect, b"*", E::FormNotAllowed),
        (Method::Connect, b"h.example", E::AuthorityInvalid),
        (Method::Connect, b"h.example:", E::AuthorityInvalid),
        (Method::Connect, b"h.example:x", E::AuthorityInvalid),
        (Method::Connect, b"http://h:443/", E::AuthorityInvalid),
        (Method::Connect, b"u@h:443", E::UserInfo),
    ];
    for &(method, target, expected) in table {
        assert_eq!(parse_target(method, target), Err(expected), "{}", target.escape_ascii());
    }
}

#[test]
fn a_percent_sign_alone_may_stand_in_a_query() {
    for query in [&b"%"[..], b"a=100%", b"%2?", b"%zz&b=%41", b"%%"] {
        let target = [b"/a?", query].concat();
        assert_eq!(parse_target(Method::Get, &target).unwrap().query, Some(query));
    }
}

proptest! {
    #[test]
    fn any_bytes_hold_the_properties_of_the_fuzz_target(
        choice in any::<u8>(), start in "(https?://)?", rest in "[a-c0-9.:/?%@\\[\\]*;-]{0,16}"
    ) {
        let mut input = vec![choice];
        input.extend_from_slice(format!("{start}{rest}").as_bytes());
        crate::fuzzing::target(&input);
    }
}
