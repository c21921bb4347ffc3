//! Lookup of hosts, compared with a simple implementation of its rules.

use proptest::prelude::*;

use super::{HOST_LEN_MAX, lower_case, normal_host, wildcard_of};

#[test]
fn a_wildcard_covers_exactly_one_label() {
    let cases = [
        ("a.example.com", Some("example.com")),
        ("a.b.example.com", Some("b.example.com")),
        ("com", None),
        (".com", None),
        ("", None),
        ("*.example.com", None),
        ("10.0.0.1", None),
        ("::1", None),
        ("[::ffff:10.0.0.1]", None),
        ("10.0.0.256", Some("0.0.256")),
        ("a.example.c0", Some("example.c0")),
    ];
    for (host, expected) in cases {
        assert_eq!(wildcard_of(host), expected, "{host}");
    }
}

#[test]
fn names_are_kept_in_one_form() {
    let cases = [
        ("A.Example.COM.", Some("a.example.com")),
        ("*.Example.com", Some("*.example.com")),
        ("[::0001]", Some("::1")),
        ("127.0.0.1", Some("127.0.0.1")),
        ("*.1.2.3.4", None),
        ("a..b", None),
        ("", None),
        (".", None),
        ("*.", None),
        ("a/b", None),
        ("a*.example.com", None),
    ];
    for (name, expected) in cases {
        assert_eq!(normal_host(name).as_deref(), expected, "{name}");
    }
}

proptest! {
    #[test]
    fn lower_case_agrees_with_the_allocating_way(host in "\\[?[a-zA-Z0-9.:é-]{0,300}\\]?\\.?") {
        let mut buffer = [0; HOST_LEN_MAX];
        let bare = host.strip_suffix('.').unwrap_or(&host);
        let bare = bare.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(bare);
        match lower_case(&host, &mut buffer) {
            Some(found) => prop_assert_eq!(found, bare.to_ascii_lowercase()),
            None => prop_assert!(bare.len() > HOST_LEN_MAX),
        }
    }
}
