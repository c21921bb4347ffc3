//! The normal form of authorities, and the authority of a request.

use super::*;
use crate::{Method, parse_target};

#[test]
fn an_authority_has_one_spelling() {
    let table = [
        ("Example.COM", Scheme::Https, "example.com", None),
        ("example.com.", Scheme::Https, "example.com", None),
        ("example.com:443", Scheme::Https, "example.com", None),
        ("example.com:", Scheme::Https, "example.com", None),
        ("example.com.:0443", Scheme::Https, "example.com", None),
        ("example.com:443", Scheme::Http, "example.com:443", Some(443)),
        ("example.com:80", Scheme::Http, "example.com", None),
        ("example.com:08080", Scheme::Http, "example.com:8080", Some(8080)),
        ("a_b-c.example", Scheme::Http, "a_b-c.example", None),
        ("localhost", Scheme::Http, "localhost", None),
        ("127.0.0.1:65535", Scheme::Http, "127.0.0.1:65535", Some(65535)),
        ("[::1]", Scheme::Http, "[::1]", None),
        ("[2001:DB8:0:0::0001]:443", Scheme::Https, "[2001:db8::1]", None),
        ("[::ffff:192.0.2.1]:8443", Scheme::Https, "[::ffff:192.0.2.1]:8443", Some(8443)),
    ];
    for (text, scheme, expected, port) in table {
        let authority = Authority::parse(text.as_bytes(), scheme).unwrap();
        assert_eq!((authority.as_str(), authority.port()), (expected, port), "{text}");
        let suffix = port.map(|port| format!(":{port}")).unwrap_or_default();
        assert_eq!(format!("{}{suffix}", authority.host()), expected);
        assert_eq!(Authority::parse(expected.as_bytes(), scheme).unwrap(), authority);
    }
}

#[test]
fn authorities_with_more_than_host_and_port_are_refused() {
    use AuthorityError as E;
    let long = "a.".repeat(127);
    let table: &[(&[u8], AuthorityError)] = &[
        (b"", E::HostEmpty),
        (b".", E::HostEmpty),
        (b":80", E::HostEmpty),
        (b".example", E::HostEmpty),
        (b"a..example", E::HostEmpty),
        (b"a.example..", E::HostEmpty),
        (b"a b", E::HostInvalid),
        (b"a,b", E::HostInvalid),
        (b"a/b", E::HostInvalid),
        (b"a?b", E::HostInvalid),
        (b"a\\b", E::HostInvalid),
        (b"a%2eexample", E::HostInvalid),
        (b"caf\xC3\xA9", E::HostInvalid),
        (b"a\0", E::HostInvalid),
        (b"127.1", E::AddressInvalid),
        (b"2130706433", E::AddressInvalid),
        (b"0x7f.0x1", E::AddressInvalid),
        (b"1.2.3.4.5", E::AddressInvalid),
        (b"010.0.0.1", E::AddressInvalid),
        (b"256.0.0.1", E::AddressInvalid),
        (b"[::1", E::AddressInvalid),
        (b"[]", E::AddressInvalid),
        (b"[127.0.0.1]", E::AddressInvalid),
        (b"[fe80::1%25eth0]", E::AddressInvalid),
        (b"[v1.x]", E::AddressInvalid),
        (b"[::1]x", E::PortInvalid),
        (b"::1", E::HostEmpty),
        (b"user@a", E::UserInfo),
        (b"u:p@a", E::UserInfo),
        (b"a:0", E::PortInvalid),
        (b"a:65536", E::PortInvalid),
        (b"a:000080", E::PortInvalid),
        (b"a:+80", E::PortInvalid),
        (b"a:8o", E::PortInvalid),
        (b"a:80:80", E::PortInvalid),
        (long.as_bytes(), E::HostEmpty),
    ];
    for &(text, expected) in table.iter().take(table.len() - 1) {
        assert_eq!(Authority::parse(text, Scheme::Http), Err(expected), "{}", text.escape_ascii());
    }
    assert!(Authority::parse(long.as_bytes(), Scheme::Http).is_ok(), "253 bytes and a dot");
    assert_eq!(Authority::parse(format!("aa{long}").as_bytes(), Scheme::Http), Err(E::HostTooLong));
}

#[test]
fn a_failed_parse_leaves_nothing_behind() {
    let mut authority = Authority::parse(b"good.example:81", Scheme::Http).unwrap();
    assert!(authority.parse_into(b"evil.example:0", Scheme::Http).is_err());
    assert_eq!((authority.host(), authority.as_str(), authority.port()), ("", "", None));
}

type Case<'a> = (Version, &'a str, &'a [&'a str], Result<&'a str, RequestError>);

#[test]
fn a_request_has_one_authority() {
    use RequestError as E;
    let (v10, v11, v2) = (Version::Http10, Version::Http11, Version::Http2);
    let table: &[Case<'_>] = &[
        (v11, "/", &["A.example:443"], Ok("a.example")),
        (v11, "/", &[], Err(E::HostMissing)),
        (v11, "https://a.example/", &[], Err(E::HostMissing)),
        (v11, "/", &["a", "a"], Err(E::HostRepeated)),
        (v11, "/", &["a, b"], Err(E::Authority(AuthorityError::HostInvalid))),
        (v11, "/", &[""], Err(E::Authority(AuthorityError::HostEmpty))),
        (v11, "https://A.example.:443/", &["a.EXAMPLE"], Ok("a.example")),
        (v11, "https://a.example/", &["b.example"], Err(E::HostDisagrees)),
        (v11, "https://a.example/", &["a.example:8443"], Err(E::HostDisagrees)),
        (v11, "https://a.example/", &[""], Err(E::Authority(AuthorityError::HostEmpty))),
        (v11, "http://a.example/", &["a.example"], Err(E::SchemeDisagrees)),
        (v10, "/", &["a"], Ok("a")),
        (v10, "/", &["a", "b"], Err(E::HostRepeated)),
        (v10, "/", &[], Err(E::HostMissing)),
        (v10, "https://a.example/", &[], Ok("a.example")),
        (v2, "/", &["a.example"], Ok("a.example")),
        (v2, "https://a.example/", &[], Ok("a.example")),
        (v2, "/", &[], Err(E::HostMissing)),
    ];
    let mut last = LastAuthority::default();
    // Each twice: what was parsed before changes nothing, be it the same or not.
    for (version, target, hosts, expected) in table.iter().flat_map(|case| [case, case]) {
        let mut head = RequestHead { version: *version, ..RequestHead::default() };
        for host in *hosts {
            head.fields.append_known(Known::Host, host.as_bytes()).unwrap();
        }
        let target = parse_target(Method::Get, target.as_bytes()).unwrap();
        let found = request_authority(&head, &target, Scheme::Https, &mut last);
        assert_eq!(found.as_ref().map(Authority::as_str), expected.as_ref().copied(), "{target:?} {hosts:?}");
    }
}

#[test]
fn what_was_parsed_before_counts_for_the_same_bytes_and_scheme_only() {
    let mut last = LastAuthority::default();
    let cases: &[(&[u8], Scheme)] = &[
        (b"a.example:443", Scheme::Https),
        (b"a.example:443", Scheme::Http),
        (b"a.example:443", Scheme::Https),
        (b"A.example:443", Scheme::Https),
        (b"", Scheme::Https),
        (b"", Scheme::Https),
        (b"a..example", Scheme::Https),
        (b"A.example:443", Scheme::Https),
    ];
    for (bytes, scheme) in cases {
        assert_eq!(last.parse(bytes, *scheme), Authority::parse(bytes, *scheme), "{}", bytes.escape_ascii());
    }
}
