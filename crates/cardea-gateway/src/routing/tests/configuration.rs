//! What is refused when a router is built, each beside what is accepted.

use super::*;

fn refusal(routes: &[RouteMatch]) -> RoutingError {
    Router::new(routes.iter().cloned().map(|route| (route, ())).collect()).map(|_| ()).unwrap_err()
}

fn problem(route: RouteMatch) -> Option<PathError> {
    match Router::new(vec![(route, ())]) {
        Ok(_) => None,
        Err(RoutingError::Path { route: 0, problem, .. }) => Some(problem),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn paths_that_never_match_are_refused() {
    for path in ["", "a", "a/b", "*", "http://h/"] {
        assert_eq!(problem(exact(path)), Some(PathError::NotAbsolute), "{path}");
    }
    for path in ["//", "/a//b", "/a//", "/./a", "/a/..", "/.", "/..;/a", "/.;x", "/a/..%2Fb"] {
        for route in [exact(path), prefix(path), pattern(path)] {
            assert!(matches!(problem(route), Some(PathError::NeverMatches(_))), "{path}");
        }
    }
    for path in ["/a?b", "/a#b", "/a b", "/é", "/a\\b", "/a\"", "/\u{0}", "/[a]", "/a^"] {
        assert!(matches!(problem(exact(path)), Some(PathError::NotEncoded(_))), "{path}");
    }
    for path in ["/%", "/%2", "/%zz", "/%2f", "/%61", "/%7E", "/a%2e", "/%é1"] {
        assert!(matches!(problem(exact(path)), Some(PathError::Escape(_))), "{path}");
    }
    for path in ["/", "/a", "/a/", "/...", "/a;b=c", "/~a", "/%2F%C3%A9", "/a:b@c!$&'()*+,="] {
        assert_eq!(problem(exact(path)), None, "{path}");
        assert_eq!(problem(prefix(path)), None, "{path}");
    }
}

#[test]
fn braces_are_parameters_in_patterns_alone() {
    assert_eq!(problem(exact("/{id}")), Some(PathError::Brace));
    assert_eq!(problem(prefix("/{id}")), Some(PathError::Brace));
    for path in [
        "/{}",
        "/{*}",
        "/{1}",
        "/{a-b}",
        "/v{id}",
        "/{id}.json",
        "/{id",
        "/id}",
        "/{{id}}",
        "/{*rest}/x",
        "/{*rest}/",
    ] {
        assert!(matches!(problem(pattern(path)), Some(PathError::Parameter(_))), "{path}");
    }
    for path in ["/{a}/{a}", "/{a}/{*a}"] {
        assert_eq!(problem(pattern(path)), Some(PathError::Repeated("a".to_owned())), "{path}");
    }
    for path in ["/{a}", "/{_a1}/x/{b}", "/{*rest}", "/x/{a}/{*rest}", "/{a}/"] {
        assert_eq!(problem(pattern(path)), None, "{path}");
    }
}

#[test]
fn depth_is_bounded() {
    let deep = |count: usize| "/a".repeat(count);
    assert_eq!(problem(exact(&deep(SEGMENTS_MAX))), None);
    assert_eq!(problem(exact(&deep(SEGMENTS_MAX + 1))), Some(PathError::TooDeep(SEGMENTS_MAX)));
    let path = deep(SEGMENTS_MAX);
    let router = router(&[prefix(&path)]);
    assert!(found(&router, "h", &(path.clone() + "/b/c"), &GET).is_some());
    assert!(found(&router, "h", &deep(SEGMENTS_MAX - 1), &GET).is_none());
    assert!(found(&router, "h", &"/a".repeat(100_000), &GET).is_some());
}

#[test]
fn hosts_are_names_addresses_or_wildcards() {
    let parse = |text: &str| text.parse::<HostPattern>().map(|host| host.to_string());
    for (text, wanted) in [
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("*.Example.com", "*.example.com"),
        ("localhost", "localhost"),
        ("a_b", "a_b"),
        ("127.0.0.1", "127.0.0.1"),
        ("[0:0::1]", "[::1]"),
    ] {
        assert_eq!(parse(text).as_deref(), Ok(wanted), "{text}");
    }
    for text in ["", ".", "a..b", ".a", "*.", "[::1", "[x]", "[::1]:80", &"a".repeat(64), &"a.".repeat(128)] {
        assert!(matches!(parse(text), Err(HostError::Malformed(_))), "{text}");
    }
    for text in ["*", "a.*.b", "*.*.b", "*a.b", "*.127.0.0.1", "*.[::1]"] {
        assert!(matches!(parse(text), Err(HostError::Wildcard(_))), "{text}");
    }
    for text in ["a:80", "a/b", "a b", "bücher.example", "::1", "a%41"] {
        assert!(matches!(parse(text), Err(HostError::Character(..))), "{text}");
    }
}

#[test]
fn routes_between_which_nothing_decides_are_refused() {
    let pairs = [
        (exact("/a"), exact("/a"), "*"),
        (exact("/a"), pattern("/a"), "*"),
        (prefix("/a"), prefix("/a/"), "*"),
        (pattern("/{x}"), pattern("/{y}"), "*"),
        (pattern("/{*x}"), pattern("/{*y}"), "*"),
        (by(&["GET", "PUT"], exact("/")), by(&["PUT"], exact("/")), "*"),
        (with(&[("a", None)], exact("/")), with(&[("b", None)], exact("/")), "*"),
        (with(&[("a", Some("1"))], exact("/")), with(&[("b", Some("2"))], exact("/")), "*"),
        (on("h", exact("/")), on("H.", exact("/")), "h"),
        (on("*.h", exact("/x/y")), on("*.h", exact("/x/y")), "*.h"),
    ];
    for (one, two, host) in pairs {
        let refused = refusal(&[exact("/other"), one.clone(), prefix("/other"), two.clone()]);
        assert_eq!(
            refused,
            RoutingError::Conflict { first: 1, second: 3, host: host.to_owned() },
            "{one:?} {two:?}"
        );
    }
    let several = RouteMatch { hosts: vec!["a".parse().unwrap(), "b".parse().unwrap()], ..exact("/") };
    let refused = refusal(&[several, on("b", exact("/"))]);
    assert_eq!(refused, RoutingError::Conflict { first: 0, second: 1, host: "b".to_owned() });
}

#[test]
fn routes_that_exclude_or_precede_each_other_live_together() {
    let pairs = [
        (exact("/a"), prefix("/a")),
        (exact("/a"), exact("/a/")),
        (pattern("/{x}"), pattern("/{*x}")),
        (by(&["GET"], exact("/")), by(&["PUT"], exact("/"))),
        (by(&["GET"], exact("/")), exact("/")),
        (with(&[("a", Some("1"))], exact("/")), with(&[("a", Some("2"))], exact("/"))),
        (with(&[("a", Some("1"))], exact("/")), with(&[("a", None)], exact("/"))),
        (on("h", exact("/")), on("*.h", exact("/"))),
    ];
    for (one, two) in pairs {
        router(&[one, two]);
    }
}

#[test]
fn methods_and_headers_are_tokens_and_few() {
    for methods in [&[""][..], &["GE T"], &["GET", "GET"]] {
        assert!(
            matches!(refusal(&[by(methods, exact("/"))]), RoutingError::Method { route: 0, .. }),
            "{methods:?}"
        );
    }
    for headers in [&[("", None)][..], &[("X-A", None)], &[("a:", None)], &[("a", None), ("a", Some("1"))]] {
        let refused = refusal(&[with(headers, exact("/"))]);
        assert!(matches!(refused, RoutingError::Header { route: 0, .. }), "{headers:?}");
    }
    let names: Vec<_> = (0..=METHODS_MAX.max(HEADERS_MAX)).map(|at| format!("m{at}")).collect();
    let methods =
        |count: usize| by(&names.iter().take(count).map(String::as_str).collect::<Vec<_>>(), exact("/"));
    router(&[methods(METHODS_MAX)]);
    let refused = refusal(&[exact("/a"), methods(METHODS_MAX + 1)]);
    assert_eq!(refused, RoutingError::TooManyMethods { route: 1, limit: METHODS_MAX });
    let headers = |count: usize| {
        with(&names.iter().take(count).map(|name| (name.as_str(), None)).collect::<Vec<_>>(), exact("/"))
    };
    router(&[headers(HEADERS_MAX)]);
    let refused = refusal(&[headers(HEADERS_MAX + 1)]);
    assert_eq!(refused, RoutingError::TooManyHeaders { route: 0, limit: HEADERS_MAX });
}

#[test]
fn the_last_of_the_methods_has_its_own_bit() {
    let names: Vec<_> = (0..METHODS_MAX).map(|at| format!("M{at:02}")).collect();
    let routes: Vec<_> = names.iter().map(|name| by(&[name.as_str()], exact("/"))).collect();
    let router = router(&routes);
    for (at, method) in names.iter().enumerate() {
        let found = found(&router, "h", "/", &Request { method, ..GET }).map(|found| *found.route());
        assert_eq!(found, Some(at));
    }
}

#[test]
fn routes_of_one_path_are_few() {
    let one = |at: usize| with(&[("x", Some(at.to_string().as_str()))], exact("/"));
    let many: Vec<_> = (0..=CANDIDATES_MAX).map(one).collect();
    router(&many[..CANDIDATES_MAX]);
    let refused = refusal(&many);
    assert_eq!(refused, RoutingError::TooManyCandidates { route: CANDIDATES_MAX, limit: CANDIDATES_MAX });
}
