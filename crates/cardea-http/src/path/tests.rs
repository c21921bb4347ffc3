//! The normal form of paths, however they are disguised.

use proptest::prelude::*;

use super::*;

fn normalize(path: &[u8]) -> Result<(String, PathFlags), PathError> {
    let mut out = b"left over".to_vec();
    let flags = normalize_path(path, &mut out)?;
    Ok((String::from_utf8(out).unwrap(), flags))
}

#[test]
fn every_spelling_of_a_path_becomes_the_same() {
    let table = [
        ("/", "/"),
        ("/api", "/api"),
        ("/api/", "/api/"),
        ("/API", "/API"),
        ("/%61pi", "/api"),
        ("/%61%50%49", "/aPI"),
        ("/x/../api", "/api"),
        ("/x/%2e%2E/api", "/api"),
        ("/x/.%2e/api", "/api"),
        ("/x/%2E./api", "/api"),
        ("//api", "/api"),
        ("///api//", "/api/"),
        ("/./api", "/api"),
        ("/%2e/api", "/api"),
        ("/api/.", "/api/"),
        ("/api/x/..", "/api/"),
        ("/x/..", "/"),
        ("/a/b/c/./../../g", "/a/g"),
        ("/mid/content=5/../6", "/mid/6"),
        ("/a//../b", "/b"),
        ("/a/...", "/a/..."),
        ("/.well-known/x", "/.well-known/x"),
        ("/a/..b/.c/d.", "/a/..b/.c/d."),
        ("/%7euser/%7Ea%2da%5f%2E", "/~user/~a-a_."),
        ("/a%c3%a9", "/a%C3%A9"),
        ("/%25%32%65", "/%252e"),
        ("/%2561", "/%2561"),
        ("/a;b=c/d", "/a;b=c/d"),
        ("/%3a%40%3f%23", "/%3A%40%3F%23"),
        ("/%20", "/%20"),
    ];
    for (path, expected) in table {
        let (found, flags) = normalize(path.as_bytes()).unwrap();
        assert_eq!(found, expected, "{path}");
        assert!(!flags.any_refused(), "{path}");
    }
}

#[test]
fn paths_that_origins_read_differently_are_flagged() {
    let flags = |path: &str| normalize(path.as_bytes()).unwrap();
    let none = PathFlags::default();
    assert_eq!(flags("/a%2fb"), ("/a%2Fb".into(), PathFlags { encoded_slash: true, ..none }));
    assert_eq!(flags("/a%5cb"), ("/a%5Cb".into(), PathFlags { encoded_backslash: true, ..none }));
    assert_eq!(flags("/a%00b"), ("/a%00b".into(), PathFlags { encoded_nul: true, ..none }));
    assert_eq!(flags("/a\\b"), ("/a\\b".into(), PathFlags { backslash: true, ..none }));
    assert_eq!(flags("/a;x/b"), ("/a;x/b".into(), PathFlags { parameters: true, ..none }));
    assert_eq!(flags("/a%3bx"), ("/a%3Bx".into(), PathFlags { parameters: true, ..none }));
    assert!(!flags("/a;x").1.any_refused() && flags("/a%2Fb").1.any_refused());
}

#[test]
fn ambiguous_paths_are_refused() {
    use PathError as E;
    let table: &[(&[u8], PathError)] = &[
        (b"", E::NotAbsolute),
        (b"a", E::NotAbsolute),
        (b"*", E::NotAbsolute),
        (b"http://a/", E::NotAbsolute),
        (b"/..", E::AboveRoot),
        (b"/../api", E::AboveRoot),
        (b"/a/../../api", E::AboveRoot),
        (b"/a/%2e%2e/%2e%2e/", E::AboveRoot),
        (b"//../a", E::AboveRoot),
        (b"/%", E::EscapeInvalid),
        (b"/%2", E::EscapeInvalid),
        (b"/%2/", E::EscapeInvalid),
        (b"/%zz", E::EscapeInvalid),
        (b"/%u002e", E::EscapeInvalid),
        (b"/ ", E::ByteInvalid),
        (b"/a\t", E::ByteInvalid),
        (b"/a\0", E::ByteInvalid),
        (b"/a\x7F", E::ByteInvalid),
        (b"/caf\xC3\xA9", E::ByteInvalid),
        (b"/a?b", E::ByteInvalid),
        (b"/a#b", E::ByteInvalid),
        (b"/<", E::ByteInvalid),
        (b"/x/..;/api", E::DotSegmentDisguised),
        (b"/x/..;a=b/api", E::DotSegmentDisguised),
        (b"/x/.;/api", E::DotSegmentDisguised),
        (b"/x/%2e%2e;/api", E::DotSegmentDisguised),
        (b"/x/..%3b/api", E::DotSegmentDisguised),
        (b"/x/..%2fapi", E::DotSegmentDisguised),
        (b"/x%2f..%2fapi", E::DotSegmentDisguised),
        (b"/x/..\\api", E::DotSegmentDisguised),
        (b"/x\\..\\api", E::DotSegmentDisguised),
        (b"/x/..%5Capi", E::DotSegmentDisguised),
        (b"/x/..%00/api", E::DotSegmentDisguised),
    ];
    for &(path, expected) in table {
        assert_eq!(normalize(path), Err(expected), "{}", path.escape_ascii());
    }
}

fn path() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => Just("/".to_owned()),
        3 => Just(".".to_owned()),
        1 => Just(";".to_owned()),
        1 => Just("\\".to_owned()),
        2 => any::<u8>().prop_map(|byte| format!("%{byte:02x}")),
        2 => Just("%2E".to_owned()),
        1 => Just("%25".to_owned()),
        1 => Just("%2f".to_owned()),
        2 => "[a-c2eE]".prop_map(|text| text),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| format!("/{}", pieces.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn a_normal_path_is_its_own_normal_form_and_has_no_dot_segments(path in path()) {
        crate::fuzzing::normalize(path.as_bytes());
        if let Ok((normal, flags)) = normalize(path.as_bytes()) {
            let (again, left) = normalize(normal.as_bytes()).unwrap();
            prop_assert_eq!(&again, &normal);
            for bad in ["/../", "/./", "//", "%2e", "%2E", "%41"] {
                prop_assert!(!normal.contains(bad), "{normal}");
            }
            prop_assert!(normal.starts_with('/') && !normal.ends_with("/..") && !normal.ends_with("/."));
            prop_assert_eq!(normal.contains('\\'), left.backslash);
            prop_assert_eq!(normal.contains("%2F"), left.encoded_slash);
            prop_assert!(flags.backslash >= left.backslash && flags.encoded_slash >= left.encoded_slash);
            prop_assert_eq!(is_normal(normal.as_bytes()) && left != PathFlags::default(), false);
        }
    }

    #[test]
    fn the_quick_test_agrees_with_the_careful_way(path in "/[a-c./;%]{0,12}") {
        if is_normal(path.as_bytes()) {
            // A segment that is not normal forces the full check; it is removed again.
            let forced = format!("/%61/..{path}");
            prop_assert_eq!(normalize(forced.as_bytes()).unwrap().0, path);
        }
    }
}
