//! Hosts and paths of routes: their syntax, and the normal form that requests are compared in.

use std::{collections::BTreeSet, net::IpAddr};

use cardea_http::normalize_path;

use cardea_upstream::is_host_name;

/// A host or `*.` and a domain, in the form of a normalised authority: lower case, no final dot.
///
/// # Errors
/// What to write instead.
pub(super) fn host_pattern(written: &str) -> Result<String, String> {
    let host = written.to_ascii_lowercase();
    let host = host.strip_suffix('.').unwrap_or(&host);
    if host.contains("://") || host.contains('/') {
        return Err("write the host alone, without scheme and path".to_owned());
    }
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let address: std::net::Ipv6Addr =
            address.parse().map_err(|_| "write an IPv6 address in brackets, as in \"[::1]\"".to_owned())?;
        return Ok(format!("[{address}]"));
    }
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => return Ok(host.to_owned()),
        Ok(IpAddr::V6(_)) => return Err(format!("write it in brackets: \"[{host}]\"")),
        Err(_) => {}
    }
    if let Some((name, port)) = host.rsplit_once(':')
        && port.bytes().all(|byte| byte.is_ascii_digit())
    {
        return Err(format!("leave the port away: {name:?}"));
    }
    let name = host.strip_prefix("*.").unwrap_or(host);
    if name.contains('*') {
        return Err("a wildcard stands for the leftmost label only, as in \"*.example.com\"".to_owned());
    }
    if host.is_ascii() && is_host_name(name) {
        Ok(host.to_owned())
    } else if host.is_ascii() {
        Err("write a name as in \"api.example.com\" or \"*.example.com\"".to_owned())
    } else {
        Err("write an internationalised name in its ASCII form (xn--…)".to_owned())
    }
}

/// Checks a path that is compared with normalised ones (RFC 3986 §6.2.2). A path that is not normalised would never
/// match.
///
/// # Errors
/// What to write instead.
pub(super) fn check_path(path: &str) -> Result<(), String> {
    if !path.starts_with('/') {
        return Err("begin with a slash".to_owned());
    }
    if path.contains(['?', '#']) {
        return Err("leave query and fragment away: routes match paths".to_owned());
    }
    if path.contains("//") {
        return Err("write one slash where there are several, as requests are normalised".to_owned());
    }
    if path.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Err("leave out dot segments, as requests are normalised".to_owned());
    }
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits: Vec<u8> = rest.by_ref().take(2).collect();
            check_escape(&digits)?;
        } else if !is_path_byte(byte) {
            return Err("percent-encode what cannot stand in a path as it is (RFC 3986 §3.3)".to_owned());
        }
    }
    // Everything else that normalisation refuses or changes, such as an encoded dot segment.
    let mut normal = Vec::with_capacity(path.len());
    match normalize_path(path.as_bytes(), &mut normal) {
        Ok(_) if normal == path.as_bytes() => Ok(()),
        _ => Err("write it as requests are normalised (RFC 3986 §6.2.2)".to_owned()),
    }
}

fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(&byte)
}

fn check_escape(digits: &[u8]) -> Result<(), String> {
    let text = str::from_utf8(digits).unwrap_or_default();
    let is_hexadecimal = text.len() == 2 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let Some(byte) = u8::from_str_radix(text, 16).ok().filter(|_| is_hexadecimal) else {
        return Err("write two hexadecimal digits after %, and %25 for the sign itself".to_owned());
    };
    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
        return Err(format!("write {:?} for %{text}, as requests are normalised", char::from(byte)));
    }
    if text.bytes().any(|digit| digit.is_ascii_lowercase()) {
        return Err(format!("write %{} for %{text}, as requests are normalised", text.to_ascii_uppercase()));
    }
    Ok(())
}

/// Checks a pattern of segments, and returns its parameters.
///
/// # Errors
/// What to write instead.
pub(super) fn check_pattern(pattern: &str) -> Result<BTreeSet<String>, String> {
    let mut parameters = BTreeSet::new();
    let mut literal = String::new();
    let segments = pattern
        .strip_prefix('/')
        .ok_or_else(|| format!("begin with a slash: {:?}", format!("/{pattern}")))?;
    let count = segments.split('/').count();
    for (index, segment) in segments.split('/').enumerate() {
        if !segment.contains(['{', '}']) {
            literal.push('/');
            literal.push_str(segment);
            continue;
        }
        // A substitute for the parameter, so that the literal segments are checked in their positions.
        literal.push_str("/x");
        let name = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        let name = name.ok_or("let a parameter take a whole segment: \"/{name}/\"")?;
        let name = match name.strip_prefix('*') {
            Some(_) if index + 1 != count => return Err("let {*rest} stand at the end".to_owned()),
            Some(name) => name,
            None => name,
        };
        let is_identifier = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_identifier {
            return Err("name parameters by letters, digits and _, as in \"{user_id}\"".to_owned());
        }
        if !parameters.insert(name.to_owned()) {
            return Err(format!("give each parameter its own name; {name} is there twice"));
        }
    }
    if parameters.is_empty() {
        return Err("write path or path_prefix for a path without parameters".to_owned());
    }
    check_path(&literal)?;
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use cardea_gateway::routing::{HostPattern, PathMatch, RouteMatch, Router};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hosts_are_normalised() {
        for (written, expected) in [
            ("API.example.com", "api.example.com"),
            ("api.example.com.", "api.example.com"),
            ("*.Example.com", "*.example.com"),
            ("localhost", "localhost"),
            ("192.0.2.1", "192.0.2.1"),
            ("[::0:1]", "[::1]"),
        ] {
            assert_eq!(host_pattern(written).as_deref(), Ok(expected), "{written}");
        }
        for written in [
            "",
            ".",
            "*",
            "*.",
            "a.*.b",
            "*a.b",
            "a:80",
            "http://a",
            "a/b",
            "::1",
            "[x]",
            "a b",
            "bücher.example",
            "1.2.3",
        ] {
            assert!(host_pattern(written).is_err(), "{written}");
        }
    }

    #[test]
    fn only_normal_paths_are_taken() {
        for path in ["/", "/api", "/api/", "/a%20b", "/a%2Fb", "/~user;v=1/x"] {
            assert_eq!(check_path(path), Ok(()), "{path}");
        }
        for path in [
            "", "api", "/a//b", "/a/../b", "/./a", "/a?b", "/a#b", "/a b", "/%61pi", "/a%2fb", "/a%2",
            "/a%zz", "/a%+1", "/ü", "/{x}",
        ] {
            assert!(check_path(path).is_err(), "{path}");
        }
    }

    #[test]
    fn patterns_name_whole_segments() {
        let names = |pattern| check_pattern(pattern).map(|names| names.into_iter().collect::<Vec<_>>());
        assert_eq!(names("/users/{id}/orders"), Ok(vec!["id".to_owned()]));
        assert_eq!(names("/{a}/{*rest}"), Ok(vec!["a".to_owned(), "rest".to_owned()]));
        for pattern in [
            "users/{id}",
            "/users",
            "/users/x{id}",
            "/{*rest}/x",
            "/{}",
            "/{1}",
            "/{a}/{a}",
            "/{a",
            "/a}",
            "/{a}/../b",
            "/a//{b}",
        ] {
            assert!(check_pattern(pattern).is_err(), "{pattern}");
        }
    }

    /// Whether the router accepts the path, which it parses again.
    fn router_takes(path: PathMatch) -> bool {
        Router::new(vec![(RouteMatch::new(path), ())]).is_ok()
    }

    proptest! {
        #[test]
        fn the_router_takes_every_host_that_is_taken_here(
            host in "(\\*\\.)?[a-zA-Z0-9_*.-]{0,12}\\.?|\\[[0-9a-f:.]{2,12}\\]|[0-9]{1,3}(\\.[0-9]{1,3}){3}",
        ) {
            if let Ok(normal) = host_pattern(&host) {
                prop_assert!(normal.parse::<HostPattern>().is_ok(), "{host:?} {normal:?}");
                prop_assert_eq!(host_pattern(&normal), Ok(normal.clone()));
            }
        }

        #[test]
        fn the_router_takes_every_path_that_is_taken_here(
            path in "/([a-c./;%{}*?~:@-]|%2F|%5C|%20|%C3%A9|\\\\|\\{[a-b]\\}){0,8}",
        ) {
            if check_path(&path).is_ok() {
                prop_assert!(router_takes(PathMatch::Exact(path.clone())), "{path:?}");
                prop_assert!(router_takes(PathMatch::Prefix(path.clone())), "{path:?}");
            }
            if check_pattern(&path).is_ok() {
                prop_assert!(router_takes(PathMatch::Pattern(path.clone())), "{path:?}");
            }
        }
    }
}
