//! The router against a reference that compares the request with every route and sorts what matches.

use proptest::prelude::*;

use super::*;

/// How specific a match is: the smallest serves the request.
type Specificity = (Vec<usize>, Vec<u8>, Vec<usize>);

/// How specifically a route matches host and path, if it does, and which of header and method it fails.
fn specificity(
    route: &RouteMatch,
    host: &str,
    path: &str,
    request: &Request<'_>,
) -> Option<(Specificity, bool)> {
    let hosts = route.hosts.iter().filter_map(|wanted| match wanted.is_wildcard() {
        false => (wanted.name() == host).then(|| vec![0]),
        true => {
            let label = host.strip_suffix(wanted.name())?.strip_suffix('.')?;
            (!label.is_empty() && !label.contains('.')).then(|| vec![1])
        }
    });
    let host = if route.hosts.is_empty() { Some(vec![2]) } else { hosts.min() }?;
    let path = path_specificity(&route.path, path)?;
    let mut exact = 0;
    for (name, wanted) in &route.headers {
        let values: Vec<_> =
            request.fields.iter().filter(|(field, _)| field == name).map(|(_, value)| *value).collect();
        let fits = match wanted {
            HeaderMatch::Present => !values.is_empty(),
            HeaderMatch::Exact(value) => {
                exact += 1;
                values == [value.as_str()]
            }
        };
        if !fits {
            return None;
        }
    }
    if !route.listeners.is_empty() && !route.listeners.iter().any(|name| name == request.listener) {
        return None;
    }
    let headers = vec![
        100 - route.headers.len(),
        100 - exact,
        usize::from(!route.condition),
        usize::from(route.listeners.is_empty()),
        usize::from(route.methods.is_empty()),
    ];
    let allowed = route.methods.is_empty() || route.methods.iter().any(|method| method == request.method);
    Some(((host, path, headers), allowed))
}

fn path_specificity(wanted: &PathMatch, path: &str) -> Option<Vec<u8>> {
    let segments: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    let configured = wanted.as_str();
    let mut kinds = vec![u8::from(false)];
    match wanted {
        PathMatch::Exact(_) => {
            kinds.extend(segments.iter().map(|_| 0));
            (path == configured).then_some(kinds)
        }
        PathMatch::Prefix(_) => {
            let stem = configured.strip_suffix('/').unwrap_or(configured);
            kinds[0] = 1;
            kinds.extend(stem.matches('/').map(|_| 0));
            kinds.push(3);
            (path == stem || path.starts_with(&format!("{stem}/"))).then_some(kinds)
        }
        PathMatch::Pattern(_) => {
            let pieces: Vec<&str> = configured[1..].split('/').collect();
            for (at, piece) in pieces.iter().enumerate() {
                if piece.starts_with("{*") {
                    kinds[0] = 1;
                    kinds.push(2);
                    return (!segments.get(at..)?.join("/").is_empty()).then_some(kinds);
                }
                let segment = segments.get(at)?;
                let parameter = piece.starts_with('{');
                if if parameter { segment.is_empty() } else { piece != segment } {
                    return None;
                }
                kinds.push(u8::from(parameter));
            }
            (pieces.len() == segments.len()).then_some(kinds)
        }
    }
}

fn segments(parameters: bool) -> impl Strategy<Value = String> {
    let names: &[&str] = if parameters { &["a", "b", "{}", "{}"] } else { &["a", "b", "c"] };
    let segment = proptest::sample::select(names.to_vec());
    proptest::collection::vec(segment, 0..4).prop_map(|segments| {
        let named = segments.iter().enumerate();
        named.map(|(at, segment)| format!("/{}", segment.replace("{}", &format!("{{p{at}}}")))).collect()
    })
}

fn paths() -> impl Strategy<Value = PathMatch> {
    let slash = |path: String| if path.is_empty() { "/".to_owned() } else { path };
    prop_oneof![
        (segments(false), any::<bool>())
            .prop_map(move |(path, dir)| { PathMatch::Exact(if dir { path + "/" } else { slash(path) }) }),
        (segments(false), any::<bool>())
            .prop_map(move |(path, dir)| { PathMatch::Prefix(if dir { path + "/" } else { slash(path) }) }),
        (segments(true), any::<bool>()).prop_map(move |(path, rest)| {
            PathMatch::Pattern(if rest { path + "/{*rest}" } else { slash(path) })
        }),
    ]
}

fn routes() -> impl Strategy<Value = Vec<RouteMatch>> {
    let host = proptest::sample::select(vec!["a.b.c", "b.c", "*.c", "*.b.c", "*.a.b.c"]);
    let hosts = proptest::collection::vec(host.prop_map(|host| host.parse().unwrap()), 0..3);
    let methods =
        proptest::sample::subsequence(vec!["GET".to_owned(), "PUT".to_owned(), "X".to_owned()], 0..3);
    let header = prop_oneof![
        Just(HeaderMatch::Present),
        Just(HeaderMatch::Exact("1".to_owned())),
        Just(HeaderMatch::Exact("2".to_owned())),
    ];
    let headers = proptest::sample::subsequence(vec!["x".to_owned(), "y".to_owned()], 0..3);
    let headers = (headers, proptest::collection::vec(header, 2));
    let headers = headers.prop_map(|(names, wanted)| names.into_iter().zip(wanted).collect());
    let listeners = proptest::sample::subsequence(vec!["l".to_owned(), "m".to_owned()], 0..3);
    let parts = (hosts, paths(), methods, headers, listeners, any::<bool>());
    let route = parts.prop_map(|(hosts, path, methods, headers, listeners, condition)| RouteMatch {
        hosts,
        path,
        methods,
        headers,
        listeners,
        condition,
    });
    proptest::collection::vec(route, 1..24)
}

/// The routes without those that contradict an earlier one.
fn without_conflicts(mut routes: Vec<RouteMatch>) -> (Router<usize>, Vec<RouteMatch>) {
    loop {
        match Router::new(routes.iter().cloned().enumerate().map(|(at, route)| (route, at)).collect()) {
            Ok(router) => return (router, routes),
            Err(RoutingError::Conflict { second, .. }) => drop(routes.remove(second)),
            Err(error) => panic!("{error}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_router_agrees_with_a_scan_of_all_routes(
        routes in routes(),
        requests in proptest::collection::vec((
            proptest::sample::select(vec!["a.b.c", "b.c", "x.b.c", "z.a.b.c", "c", "other", "", ".c"]),
            "(/[abc]){0,4}/?",
            proptest::sample::select(vec!["GET", "PUT", "POST"]),
            proptest::collection::vec(
                (proptest::sample::select(vec!["x", "y"]), proptest::sample::select(vec!["1", "2", "3"])), 0..3),
            proptest::sample::select(vec!["l", "m", "n"]),
        ), 1..24),
    ) {
        let (router, routes) = without_conflicts(routes);
        for (host, path, method, fields, listener) in requests {
            let path = if path.is_empty() { "/".to_owned() } else { path };
            let request = Request { method, fields: &fields, listener };
            let matching = routes.iter().enumerate().filter_map(|(at, route)| {
                if route.condition && !request.meets_condition(at) {
                    return None;
                }
                specificity(route, host, &path, &request).map(|(rank, allowed)| (rank, at, allowed))
            });
            let (serving, refusing): (Vec<_>, Vec<_>) = matching.partition(|(_, _, allowed)| *allowed);
            let best = serving.iter().min().map(|(rank, at, _)| (rank, *at));
            if let Some((rank, _)) = best {
                prop_assert_eq!(serving.iter().filter(|(other, _, _)| other == rank).count(), 1, "ambiguous");
            }
            match router.find(host, path.as_bytes(), &request) {
                Outcome::Found(found) => prop_assert_eq!(Some(*found.route()), best.map(|(_, at)| at)),
                Outcome::MethodNotAllowed { allow } => {
                    prop_assert!(best.is_none());
                    let mut wanted: Vec<_> = refusing.iter().flat_map(|(_, at, _)| &routes[*at].methods).collect();
                    wanted.sort();
                    wanted.dedup();
                    prop_assert_eq!(allow.iter().collect::<Vec<_>>(), wanted);
                }
                Outcome::NotFound => prop_assert!(serving.is_empty() && refusing.is_empty()),
            }
        }
    }

    /// A configured path is accepted if and only if some request can have it.
    #[test]
    fn configured_paths_are_the_normalised_ones(
        pieces in proptest::collection::vec(proptest::sample::select(vec![
            "/", "/", "/", "a", ".", "..", "%2F", "%2f", "%61", "%C3", "%3B", "%5C", "%7E", "%", "%0", ";", "~", ":@", "A",
        ]), 0..12),
    ) {
        let text = pieces.concat();
        let accepted = |path: &str| Router::new(vec![(exact(path), 0)]).ok();
        let mut normal = Vec::new();
        let normalised = cardea_http::normalize_path(text.as_bytes(), &mut normal).is_ok();
        prop_assert_eq!(accepted(&text).is_some(), normalised && normal == text.as_bytes());
        if normalised {
            let path = String::from_utf8(normal).unwrap();
            let router = accepted(&path).unwrap();
            prop_assert!(matches!(router.find("h", path.as_bytes(), &GET), Outcome::Found(_)));
        }
    }

    #[test]
    fn nothing_that_is_sent_panics(
        routes in routes(),
        host in ".{0,20}",
        path in proptest::collection::vec(proptest::sample::select(b"/ab{}*%.;\\\xff".to_vec()), 0..80),
    ) {
        let (router, _) = without_conflicts(routes);
        let (outcome, visits) = router.search(&host, &path, &GET);
        prop_assert!(visits <= VISITS_MAX * 5);
        if let Outcome::Found(found) = outcome {
            for (_, range) in found.parameters(&path) {
                prop_assert!(!path[range].is_empty());
            }
            prop_assert!(path.get(found.remainder(&path)).is_some());
            prop_assert!(path.contains(&b';') || !router.is_disguised(&host, &path, &GET, &found));
        }
    }
}
