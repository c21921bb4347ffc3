//! The router against tables, against a reference that scans all routes, and against adversarial sets.

mod configuration;
mod reference;

use super::*;

/// A request with a method and header fields.
struct Request<'a> {
    method: &'a str,
    fields: &'a [(&'a str, &'a str)],
    listener: &'a str,
}

impl RequestView for Request<'_> {
    fn method(&self) -> &str {
        self.method
    }

    fn header_equals(&self, name: &str, value: &str) -> bool {
        let mut lines = self.fields.iter().filter(|(field, _)| *field == name);
        lines.next().is_some_and(|(_, found)| *found == value) && lines.next().is_none()
    }

    fn has_header(&self, name: &str) -> bool {
        self.fields.iter().any(|(field, _)| *field == name)
    }

    fn listener(&self) -> &str {
        self.listener
    }

    fn meets_condition(&self, route: usize) -> bool {
        route % 2 == self.fields.len() % 2
    }
}

const GET: Request<'_> = Request { method: "GET", fields: &[], listener: "l" };

fn exact(path: &str) -> RouteMatch {
    RouteMatch::new(PathMatch::Exact(path.to_owned()))
}

fn prefix(path: &str) -> RouteMatch {
    RouteMatch::new(PathMatch::Prefix(path.to_owned()))
}

fn pattern(path: &str) -> RouteMatch {
    RouteMatch::new(PathMatch::Pattern(path.to_owned()))
}

fn on(host: &str, route: RouteMatch) -> RouteMatch {
    RouteMatch { hosts: vec![host.parse().unwrap()], ..route }
}

fn by(methods: &[&str], route: RouteMatch) -> RouteMatch {
    RouteMatch { methods: methods.iter().map(ToString::to_string).collect(), ..route }
}

fn with(headers: &[(&str, Option<&str>)], route: RouteMatch) -> RouteMatch {
    let condition =
        |value: &Option<&str>| value.map_or(HeaderMatch::Present, |v| HeaderMatch::Exact(v.to_owned()));
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), condition(value))).collect();
    RouteMatch { headers, ..route }
}

fn router(routes: &[RouteMatch]) -> Router<usize> {
    Router::new(routes.iter().cloned().enumerate().map(|(at, route)| (route, at)).collect()).unwrap()
}

fn found<'r>(
    router: &'r Router<usize>,
    host: &str,
    path: &str,
    request: &Request<'_>,
) -> Option<Found<'r, usize>> {
    match router.find(host, path.as_bytes(), request) {
        Outcome::Found(found) => Some(found),
        Outcome::MethodNotAllowed { .. } | Outcome::NotFound => None,
    }
}

/// Asserts who serves which path, whatever the order of the routes.
fn serves(routes: &[RouteMatch], cases: &[(&str, &str, Option<usize>)]) {
    let count = routes.len();
    for turn in 0..count {
        let turned: Vec<_> = (0..count).map(|at| routes[(at + turn) % count].clone()).collect();
        let router = router(&turned);
        for (host, path, wanted) in cases {
            let found = found(&router, host, path, &GET).map(|found| (found.index() + turn) % count);
            assert_eq!(found, *wanted, "{host}{path}, turned by {turn}");
        }
    }
}

#[test]
fn exact_paths_match_alone() {
    serves(
        &[exact("/"), exact("/a"), exact("/a/b"), exact("/a/b/"), exact("/x%2Fy")],
        &[
            ("h", "/", Some(0)),
            ("h", "/a", Some(1)),
            ("h", "/a/", None),
            ("h", "/A", None),
            ("h", "/a/b", Some(2)),
            ("h", "/a/b/", Some(3)),
            ("h", "/a/b/c", None),
            ("h", "/x%2Fy", Some(4)),
            ("h", "/x/y", None),
            ("h", "", None),
            ("h", "*", None),
            ("h", "a", None),
        ],
    );
}

#[test]
fn prefixes_match_whole_segments() {
    serves(
        &[prefix("/api"), prefix("/api/v1/"), prefix("/app")],
        &[
            ("h", "/api", Some(0)),
            ("h", "/api/", Some(0)),
            ("h", "/api/x", Some(0)),
            ("h", "/apix", None),
            ("h", "/ap", None),
            ("h", "/api/v1", Some(1)),
            ("h", "/api/v1/", Some(1)),
            ("h", "/api/v1/x/y", Some(1)),
            ("h", "/api/v10", Some(0)),
            ("h", "/", None),
        ],
    );
    serves(&[prefix("/")], &[("h", "/", Some(0)), ("h", "/x/y", Some(0)), ("h", "*", None)]);
}

#[test]
fn patterns_match_segments_that_are_not_empty() {
    serves(
        &[
            pattern("/users/{id}"),
            pattern("/users/{id}/orders"),
            pattern("/files/{*rest}"),
            pattern("/plain"),
        ],
        &[
            ("h", "/users/7", Some(0)),
            ("h", "/users/", None),
            ("h", "/users", None),
            ("h", "/users/7/", None),
            ("h", "/users/7/orders", Some(1)),
            ("h", "/users//orders", None),
            ("h", "/users/7/orders/1", None),
            ("h", "/files", None),
            ("h", "/files/", None),
            ("h", "/files/a", Some(2)),
            ("h", "/files/a/b/", Some(2)),
            ("h", "/plain", Some(3)),
        ],
    );
}

#[test]
fn the_more_specific_path_wins() {
    serves(
        &[
            exact("/a/b/c"),
            pattern("/a/{x}/c"),
            pattern("/{x}/b/c"),
            pattern("/a/{*rest}"),
            prefix("/a"),
            prefix("/a/b"),
            pattern("/{*rest}"),
            prefix("/"),
        ],
        &[
            ("h", "/a/b/c", Some(0)),
            ("h", "/a/z/c", Some(1)),
            ("h", "/z/b/c", Some(2)),
            // A prefix that names more segments precedes a pattern that catches all the rest earlier.
            ("h", "/a/b/z", Some(5)),
            ("h", "/a/b", Some(5)),
            ("h", "/a/z", Some(3)),
            ("h", "/a", Some(4)),
            ("h", "/a/", Some(4)),
            ("h", "/z", Some(6)),
            ("h", "/", Some(7)),
        ],
    );
}

#[test]
fn a_literal_that_leads_nowhere_gives_way_to_a_parameter() {
    serves(
        &[exact("/a/b/c/d"), pattern("/{w}/{x}/{y}/z"), pattern("/a/{x}/{*rest}")],
        &[
            ("h", "/a/b/c/d", Some(0)),
            ("h", "/a/b/c/z", Some(1)),
            ("h", "/a/b/c/y", Some(2)),
            ("h", "/b/b/c/y", None),
        ],
    );
}

#[test]
fn the_more_specific_host_wins_and_hides_nothing() {
    serves(
        &[
            on("a.example.com", exact("/one")),
            on("*.example.com", exact("/one")),
            on("*.com", prefix("/")),
            on("*.b.example.com", prefix("/")),
            exact("/one"),
            exact("/any"),
            on("[::1]", exact("/one")),
            on("127.0.0.1", exact("/one")),
        ],
        &[
            ("a.example.com", "/one", Some(0)),
            ("z.example.com", "/one", Some(1)),
            // A wildcard is one label, as in a certificate.
            ("z.y.example.com", "/one", Some(4)),
            ("b.example.com", "/one", Some(1)),
            ("x.b.example.com", "/one", Some(3)),
            ("y.x.b.example.com", "/one", Some(4)),
            ("example.com", "/one", Some(2)),
            ("com", "/one", Some(4)),
            (".example.com", "/one", Some(4)),
            (".com", "/one", Some(4)),
            // The next host is asked where the more specific one has no such path.
            ("a.example.com", "/any", Some(5)),
            ("a.example.com", "/two", None),
            ("a.example.org", "/any", Some(5)),
            ("", "/any", Some(5)),
            ("[::1]", "/one", Some(6)),
            ("127.0.0.1", "/one", Some(7)),
            ("xexample.com", "/one", Some(2)),
        ],
    );
}

/// One table for all that reads wildcards: routes, their patterns, and the names of certificates.
#[test]
fn a_wildcard_means_the_same_to_routes_and_certificates() {
    for (wildcard, host, covered) in [
        ("*.example.com", "a.example.com", true),
        ("*.example.com", "xn--bcher-kva.example.com", true),
        ("*.example.com", "_dmarc.example.com", true),
        ("*.example.com", "10.example.com", true),
        ("*.example.com", "example.com", false),
        ("*.example.com", "a.b.example.com", false),
        ("*.example.com", "xexample.com", false),
        ("*.example.com", "a.example.com.evil.test", false),
        ("*.example.com", ".example.com", false),
        ("*.example.com", "com", false),
        ("*.a.example.com", "b.a.example.com", true),
        ("*.a.example.com", "a.example.com", false),
        ("*.com", "example.com", true),
        ("*.com", "a.example.com", false),
        ("*.example", "127.0.0.1", false),
        ("*.example", "[::1]", false),
    ] {
        let pattern: HostPattern = wildcard.parse().unwrap();
        assert_eq!(pattern.covers(host), covered, "the pattern {wildcard} and {host}");
        let router = router(&[on(wildcard, prefix("/"))]);
        assert_eq!(found(&router, host, "/", &GET).is_some(), covered, "a route for {wildcard} and {host}");
        let of_certificates = cardea_tls::wildcard_of(host) == wildcard.strip_prefix("*.");
        assert_eq!(of_certificates, covered, "a certificate for {wildcard} and {host}");
    }
}

#[test]
fn a_route_exists_only_on_its_listeners() {
    let bound = |names: &[&str], route: RouteMatch| RouteMatch {
        listeners: names.iter().map(ToString::to_string).collect(),
        ..route
    };
    let routes = [
        bound(&["inside"], exact("/")),
        exact("/"),
        bound(&["inside", "side"], by(&["PUT"], exact("/put"))),
        bound(&["outside"], exact("/put")),
        bound(&["outside"], prefix("/only")),
    ];
    let router = router(&routes);
    for (listener, path, expected) in [
        ("inside", "/", Some(0)),
        ("outside", "/", Some(1)),
        ("", "/", Some(1)),
        ("Inside", "/", Some(1)),
        ("side", "/put", None),
        ("outside", "/put", Some(3)),
        ("outside", "/only/x", Some(4)),
        ("inside", "/only/x", None),
    ] {
        let found = found(&router, "h", path, &Request { listener, ..GET }).map(|found| *found.route());
        assert_eq!(found, expected, "{listener} {path}");
    }
    // Not even its methods are told elsewhere.
    let allow = |listener| match router.find("h", b"/put", &Request { listener, ..GET }) {
        Outcome::MethodNotAllowed { allow } => allow.to_string(),
        Outcome::NotFound | Outcome::Found(_) => String::new(),
    };
    assert_eq!((allow("inside"), allow("elsewhere")), ("PUT".to_owned(), String::new()));
    // Routes for the same requests of different listeners don't contradict each other; with one in common they do.
    let twice = |one: &[&str], other: &[&str]| {
        Router::new(vec![(bound(one, exact("/")), 0), (bound(other, exact("/")), 1)]).is_ok()
    };
    assert!(twice(&["a"], &["b", "c"]) && twice(&["a"], &[]) && !twice(&["a", "b"], &["b"]));
}

#[test]
fn a_route_serves_each_of_its_hosts() {
    let route =
        RouteMatch { hosts: ["a", "*.b", "a"].map(|host| host.parse().unwrap()).to_vec(), ..exact("/") };
    serves(&[route], &[("a", "/", Some(0)), ("x.b", "/", Some(0)), ("b", "/", None), ("c", "/", None)]);
}

#[test]
fn headers_and_methods_narrow_a_path() {
    let routes = [
        exact("/"),
        by(&["GET"], exact("/")),
        with(&[("x-a", None)], exact("/")),
        with(&[("x-a", Some("1"))], exact("/")),
        with(&[("x-a", Some("1")), ("x-b", None)], exact("/")),
        by(&["GET"], with(&[("x-a", Some("1"))], exact("/"))),
        with(&[("x-a", Some("2"))], exact("/")),
    ];
    let router = router(&routes);
    type Fields<'a> = &'a [(&'a str, &'a str)];
    let cases: &[(&str, Fields<'_>, usize)] = &[
        ("POST", &[], 0),
        ("get", &[], 0),
        ("GET", &[], 1),
        ("HEAD", &[], 0),
        ("GET", &[("x-a", "z")], 2),
        ("POST", &[("x-a", "1")], 3),
        ("GET", &[("x-a", "1")], 5),
        ("GET", &[("x-a", "1"), ("x-b", "")], 4),
        ("GET", &[("x-a", "2")], 6),
        ("GET", &[("x-a", "1"), ("x-a", "2")], 2),
    ];
    for (method, fields, wanted) in cases {
        let found = found(&router, "h", "/", &Request { method, fields, ..GET }).map(|found| *found.route());
        assert_eq!(found, Some(*wanted), "{method} {fields:?}");
    }
}

#[test]
fn a_wrong_method_is_reported_only_if_no_route_matches() {
    let router = router(&[
        by(&["PUT", "GET"], exact("/a/b")),
        by(&["DELETE"], pattern("/a/{x}")),
        by(&["PATCH"], with(&[("x-a", None)], exact("/a/b"))),
        by(&["POST"], prefix("/a")),
        by(&["GET"], on("other", prefix("/"))),
        by(&["GET", "BREW"], prefix("/b")),
    ]);
    let allowed = |method: &str, host: &str, path: &str| match router.find(
        host,
        path.as_bytes(),
        &Request { method, ..GET },
    ) {
        Outcome::Found(found) => Err(*found.route()),
        Outcome::MethodNotAllowed { allow } => Ok(allow.to_string()),
        Outcome::NotFound => Ok(String::new()),
    };
    assert_eq!(allowed("GET", "h", "/a/b"), Err(0));
    assert_eq!(allowed("DELETE", "h", "/a/b"), Err(1));
    assert_eq!(allowed("POST", "h", "/a/b"), Err(3));
    assert_eq!(allowed("OPTIONS", "h", "/a/b"), Ok("DELETE, GET, POST, PUT".to_owned()));
    assert_eq!(allowed("NEVER-HEARD-OF", "h", "/b"), Ok("BREW, GET".to_owned()));
    assert_eq!(allowed("OPTIONS", "other", "/b"), Ok("BREW, GET".to_owned()));
    assert_eq!(allowed("POST", "h", "/c"), Ok(String::new()));
}

#[test]
fn parameters_are_ranges_of_the_path() {
    let router =
        router(&[pattern("/users/{id}/orders/{order}"), pattern("/files/{area}/{*rest}"), prefix("/api/v1")]);
    let parameters = |path: &str| {
        let found = found(&router, "h", path, &GET).unwrap();
        let parameters = found.parameters(path.as_bytes());
        let named = parameters.into_iter().map(|(name, range)| format!("{name}={}", &path[range]));
        (named.collect::<Vec<_>>().join(" "), path[found.remainder(path.as_bytes())].to_owned())
    };
    assert_eq!(parameters("/users/7/orders/8"), ("id=7 order=8".to_owned(), String::new()));
    assert_eq!(parameters("/files/a/b"), ("area=a rest=b".to_owned(), "/b".to_owned()));
    assert_eq!(parameters("/files/a/b/c/"), ("area=a rest=b/c/".to_owned(), "/b/c/".to_owned()));
    assert_eq!(parameters("/api/v1"), (String::new(), String::new()));
    assert_eq!(parameters("/api/v1/"), (String::new(), "/".to_owned()));
    assert_eq!(parameters("/api/v1/x/y"), (String::new(), "/x/y".to_owned()));
    // With another path than the one that was matched: nonsense, but no panic.
    let found = found(&router, "h", "/files/a/b", &GET).unwrap();
    for path in ["", "/", "x", "/a", "/a/"] {
        for (_, range) in found.parameters(path.as_bytes()) {
            assert!(path.get(range).is_some(), "{path}");
        }
        assert!(path.get(found.remainder(path.as_bytes())).is_some(), "{path}");
    }
}

#[test]
fn path_parameters_that_hide_another_route_are_noticed() {
    let router = router(&[
        prefix("/"),
        prefix("/admin"),
        pattern("/users/{id}/keys"),
        by(&["PUT"], exact("/only/put")),
    ]);
    let disguised = |path: &str| {
        let found = found(&router, "h", path, &GET).unwrap();
        (found.index(), router.is_disguised("h", path.as_bytes(), &GET, &found))
    };
    for path in [
        "/admin;x",
        "/admin;x/a",
        "/admin%3Bx/a",
        "/admin;/a",
        "/;x/admin",
        "/users;a/7;b/keys;c",
        "/;a/;b/admin/c",
    ] {
        assert_eq!(disguised(path), (0, true), "{path}");
    }
    for path in ["/", "/a", "/a;x", "/a;x/b;y", "/a%3Bx", "/;x", "/xadmin;x", "/only/put;x"] {
        assert_eq!(disguised(path), (0, false), "{path}");
    }
    for (path, route) in [("/admin/a;x", 1), ("/admin/;x", 1), ("/users/7;x/keys", 2)] {
        assert_eq!(disguised(path), (route, false), "{path}");
    }
    // Where nothing serves the path without them, the origin must not get to see it either.
    let router = super::tests::router(&[pattern("/users/{id}/keys")]);
    let found = found(&router, "h", "/users/;x/keys", &GET).unwrap();
    assert!(router.is_disguised("h", b"/users/;x/keys", &GET, &found));
}

#[test]
fn the_cost_does_not_grow_with_the_number_of_routes() {
    let build = |count: usize| {
        let kinds = |at: usize| match at % 4 {
            0 => on(&format!("h{}.example.com", at % 1000), exact(&format!("/s{at}/a/b"))),
            1 => prefix(&format!("/s{at}/a")),
            2 => pattern(&format!("/s{at}/{{x}}/b")),
            _ => on("*.example.com", pattern(&format!("/s{at}/{{*rest}}"))),
        };
        router(&(0..count).map(kinds).collect::<Vec<_>>())
    };
    let visits = |router: &Router<usize>, at: usize| {
        let (outcome, visits) =
            router.search(&format!("h{}.example.com", at % 1000), format!("/s{at}/a/b").as_bytes(), &GET);
        assert!(matches!(outcome, Outcome::Found(found) if *found.route() == at));
        visits
    };
    let (small, large) = (build(40), build(10_000));
    let worst = |router: &Router<usize>| (0..40).map(|at| visits(router, at)).max();
    assert_eq!(worst(&small), worst(&large));
    // Three hosts' roots and at most three segments.
    assert!((0..10_000).all(|at| visits(&large, at) <= 3 + 3));
}

#[test]
fn overlapping_patterns_stay_within_the_proven_bound() {
    // Every combination of literal and parameter: the worst tree of a depth.
    let combinations = |depth: u32| -> Vec<_> {
        let one = |bits: u32| -> String {
            (0..depth)
                .map(|at| if bits & (1 << at) == 0 { "/a".to_owned() } else { format!("/{{p{at}}}") })
                .collect()
        };
        (0..1 << depth).map(|bits| (pattern(&(one(bits) + "/end")), bits)).collect()
    };
    let router = Router::new(combinations(7)).unwrap();
    let (outcome, visits) = router.search("h", b"/a/a/a/a/a/a/a/nowhere", &GET);
    assert!(matches!(outcome, Outcome::NotFound));
    assert!(visits > 200, "the set is adversarial: {visits}");
    assert!(visits <= VISITS_MAX);
    let refused = Router::new(combinations(8)).map(|_| ()).unwrap_err();
    assert!(
        matches!(refused, RoutingError::TooCostly { visits, limit: VISITS_MAX, .. } if visits > VISITS_MAX)
    );
    // A control: as many routes that don't overlap cost nothing.
    let plain = (0..256).map(|at| (pattern(&format!("/a{at}/{{x}}/{{y}}/{{z}}")), at)).collect();
    let router = Router::<u32>::new(plain).unwrap();
    assert_eq!(router.search("h", b"/a7/1/2/3", &GET).1, 5);
}

#[test]
fn a_route_with_a_condition_takes_precedence_if_the_condition_is_true() {
    let conditional = RouteMatch { condition: true, ..exact("/a") };
    let router = Router::new(vec![(conditional.clone(), "first"), (exact("/a"), "second")]).unwrap();
    // The condition of the route at 0 holds for requests with an even number of fields.
    for (fields, expected) in [(&[][..], "first"), (&[("x", "1")], "second")] {
        let Outcome::Found(found) = router.find("h", b"/a", &Request { fields, ..GET }) else {
            panic!("no route");
        };
        assert_eq!(*found.route(), expected);
    }
    let twice = Router::new(vec![(conditional.clone(), 1), (conditional, 2)]);
    assert!(matches!(twice, Err(RoutingError::Conflict { first: 0, second: 1, .. })));
}
