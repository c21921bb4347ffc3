//! Routes whose precedence opens access: a route with a weaker requirement takes requests that a reader would expect
//! another one to guard.
//!
//! Two routes are reported if there are hosts, paths, methods and listeners that both match, the second has a weaker
//! requirement than the first, and one of these conditions is met:
//! - The second has precedence, and its path does not repeat the names in the first one's: it matches by a parameter,
//!   or by a shorter prefix on a more specific host (`/{lang}/{page}` and the prefix `/admin`).
//! - The first is limited to some methods, header fields or a condition, and its other requests fall to the second,
//!   again by a path that does not repeat the names (`POST /orders` and the prefix `/`), or, if it is limited to some
//!   methods, by a path that repeats them, for all methods (`POST /orders` and the prefix `/orders`, which takes
//!   `DELETE` too).
//!
//! Not reported are exceptions (`/admin/health` below `/admin`), requests that a third route as strict as the first
//! takes before, routes that answer themselves (`redirect`, `respond`, `builtin`), and routes that the second route
//! names in its `opens`.

use std::collections::BTreeMap;

use cardea_gateway::routing::{HeaderMatch, HostPattern, PathMatch};
use cardea_identity::Alternative;

use super::super::{
    document::Cursor,
    model::{Auth, Located, Route},
};
use super::Resolver;

/// The most pairs of routes that are compared. A warning reports if there are more.
const PAIRS_MAX: usize = 1_000_000;
/// The most pairs that are reported.
const REPORTED_MAX: usize = 100;

impl Resolver<'_> {
    /// Warns of routes that open what others guard.
    pub(super) fn route_precedence(&mut self, routes: &[Located<Route>], at: Cursor<'_>) {
        self.acknowledged(routes);
        let routes: Vec<Shape<'_>> = routes.iter().filter(|route| route.is_sound).map(Shape::of).collect();
        let mut by_head: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, shape) in routes.iter().enumerate().filter(|(_, shape)| shape.is_served()) {
            by_head.entry(shape.head()).or_default().push(index);
        }
        let (mut pairs, mut reported) = (0, 0);
        for guard in routes.iter().filter(|shape| shape.is_guarded() && !shape.answers_itself()) {
            for index in candidates(guard, &by_head) {
                let Some(opening) = routes.get(index) else { continue };
                pairs += 1;
                if pairs > PAIRS_MAX || reported == REPORTED_MAX {
                    let message = format!("no further pairs of routes were compared after {pairs}");
                    self.problems.warn(at.location(), message, "put right what was found, and check again");
                    return;
                }
                if std::ptr::eq(opening, guard) || opening.route.opens.contains(&guard.route.name) {
                    continue;
                }
                if let Some(path) = opened(guard, opening, &routes) {
                    reported += 1;
                    self.report(guard, opening, &path);
                }
            }
        }
    }

    fn report(&mut self, guard: &Shape<'_>, opening: &Shape<'_>, path: &str) {
        let position = self.sources.position(guard.route.at);
        let (guard, opening) = (&guard.route.name, &opening.route.at);
        let message = format!(
            "this route takes requests for {path} that {guard:?} at {position} would guard, and asks for less"
        );
        let remedy = format!(
            "ask for the same here, or write a route for these paths that does; opens = [{guard:?}] says that it is meant"
        );
        self.problems.warn(*opening, message, remedy);
    }

    /// Checks that the names in `opens` are those of other routes.
    fn acknowledged(&mut self, routes: &[Located<Route>]) {
        if self.dropped.any("route") {
            return;
        }
        for route in routes {
            for name in &route.opens {
                if !routes.iter().any(|other| other.name == *name && other.at != route.at) {
                    self.problems.add(
                        route.at,
                        format!(
                            "opens of the route {:?} names {name:?}, which is no other route",
                            route.name
                        ),
                        "name the route that guards what this one takes",
                    );
                }
            }
        }
    }
}

/// The routes whose paths may overlap with the guard's without repeating its names.
fn candidates(guard: &Shape<'_>, by_head: &BTreeMap<String, Vec<usize>>) -> Vec<usize> {
    let head = guard.head();
    let mut found: Vec<usize> = Vec::new();
    let mut shorter = Some(head.as_str());
    while let Some(prefix) = shorter {
        found.extend(by_head.get(prefix).into_iter().flatten());
        shorter = prefix.rsplit_once('/').map(|(before, _)| before);
    }
    // Names where the guard has a parameter.
    if guard.segments.iter().any(Option::is_none) {
        let below = format!("{head}/");
        let range = by_head.range(below.clone()..).take_while(|(other, _)| other.starts_with(&below));
        found.extend(range.flat_map(|(_, routes)| routes));
    }
    found
}

/// A path that the second route opens, if any.
fn opened(guard: &Shape<'_>, opening: &Shape<'_>, routes: &[Shape<'_>]) -> Option<String> {
    if !opening.is_weaker_than(guard) || !opening.shares_listener(guard) {
        return None;
    }
    let is_exception = opening.names(guard);
    // An exception names its methods, or is open for all of them.
    if is_exception
        && (guard.route.matches.methods.is_empty()
            || guard.is_conditional()
            || !opening.route.matches.methods.is_empty())
    {
        return None;
    }
    let path = Path::of_both(guard, opening)?;
    let is_any = guard.route.matches.hosts.is_empty() && opening.route.matches.hosts.is_empty();
    guard.hosts_with(opening).into_iter().find_map(|host| {
        let precedes = opening.rank(&host)? < guard.rank(&host)?;
        if precedes && is_exception {
            return None;
        }
        let mut methods = Methods::of(opening.route);
        if precedes {
            methods = methods.and(&Methods::of(guard.route));
            if opening.excludes_headers_of(guard) {
                return None;
            }
        } else if !guard.is_conditional() {
            methods = methods.without(&Methods::of(guard.route));
        }
        for third in routes.iter().filter(|third| third.covers(&path) && !third.is_conditional()) {
            let first =
                third.rank(&host).is_some_and(|rank| opening.rank(&host).is_some_and(|own| rank < own));
            let is_strict = third.answers_itself() || !third.is_weaker_than(guard);
            let is_there = third.is_bound_to_all_of(opening);
            if first && is_strict && is_there {
                methods = methods.without(&Methods::of(third.route));
            }
        }
        (!methods.is_empty()).then(|| format!("{}{}", if is_any { "" } else { host.as_str() }, path.text()))
    })
}

/// A route with its path split into segments.
struct Shape<'r> {
    route: &'r Located<Route>,
    /// Names; `None` for a parameter.
    segments: Vec<Option<&'r str>>,
    end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    /// `{*rest}`: at least one more character.
    Rest,
    /// A prefix: anything may follow.
    Open,
}

impl<'r> Shape<'r> {
    fn of(route: &'r Located<Route>) -> Self {
        let (text, mut end) = match &route.matches.path {
            PathMatch::Prefix(path) => (path.trim_end_matches('/'), End::Open),
            PathMatch::Exact(path) | PathMatch::Pattern(path) => (path.as_str(), End::Closed),
        };
        let mut segments = Vec::new();
        for piece in text.split('/').skip(1) {
            match piece.strip_prefix('{') {
                Some(rest) if rest.starts_with('*') => end = End::Rest,
                Some(_) if matches!(route.matches.path, PathMatch::Pattern(_)) => segments.push(None),
                _ => segments.push(Some(piece)),
            }
        }
        Self { route, segments, end }
    }

    /// The leading names of the path, each after a slash.
    fn head(&self) -> String {
        self.segments.iter().map_while(|segment| *segment).fold(String::new(), |head, name| head + "/" + name)
    }

    fn answers_itself(&self) -> bool {
        self.route.destination.services().next().is_none()
    }

    fn is_served(&self) -> bool {
        !self.answers_itself()
    }

    fn needs_certificate(&self) -> bool {
        let rule = self.route.client_certificate.as_ref();
        rule.is_some_and(|rule| rule.required)
    }

    fn is_guarded(&self) -> bool {
        self.route.auth != Auth::Public || self.needs_certificate() || self.route.rules.policy.is_some()
    }

    /// Whether it certainly admits a caller that the other one does not.
    fn is_weaker_than(&self, other: &Self) -> bool {
        let by_token = match (&self.route.auth, &other.route.auth) {
            (_, Auth::Public) => false,
            (Auth::Public, Auth::AccessRequirement(_)) => true,
            (Auth::AccessRequirement(own), Auth::AccessRequirement(theirs)) => {
                !own.iter().all(|one| theirs.iter().any(|other| implies(one, other)))
            }
        };
        by_token
            || (other.needs_certificate() && !self.needs_certificate())
            || (self.route.rules.policy.is_none() && other.route.rules.policy.is_some())
    }

    /// Whether it matches only some requests to its paths, besides their methods.
    fn is_conditional(&self) -> bool {
        self.route.matches.condition || !self.route.matches.headers.is_empty()
    }

    /// Whether no request can have the header fields that both require.
    fn excludes_headers_of(&self, other: &Self) -> bool {
        self.route.matches.headers.iter().any(|(name, wanted)| {
            other.route.matches.headers.iter().any(|(theirs, value)| match (wanted, value) {
                (HeaderMatch::Exact(one), HeaderMatch::Exact(two)) => name == theirs && one != two,
                _ => false,
            })
        })
    }

    /// Whether the path repeats each name of the other path at the same position.
    fn names(&self, other: &Self) -> bool {
        other.segments.iter().enumerate().all(|(at, segment)| match segment {
            Some(name) => self.segments.get(at) == Some(&Some(*name)),
            None => true,
        })
    }

    fn shares_listener(&self, other: &Self) -> bool {
        let (own, theirs) = (&self.route.matches.listeners, &other.route.matches.listeners);
        own.is_empty() || theirs.is_empty() || own.iter().any(|name| theirs.contains(name))
    }

    fn is_bound_to_all_of(&self, other: &Self) -> bool {
        let (own, theirs) = (&self.route.matches.listeners, &other.route.matches.listeners);
        own.is_empty() || (!theirs.is_empty() && theirs.iter().all(|name| own.contains(name)))
    }

    /// Hosts that both match: one of each kind.
    fn hosts_with(&self, other: &Self) -> Vec<String> {
        let sample = |pattern: &HostPattern| match pattern.is_wildcard() {
            true => format!("x.{}", pattern.name()),
            false => pattern.name().to_owned(),
        };
        let mut samples: Vec<String> =
            self.route.matches.hosts.iter().chain(&other.route.matches.hosts).map(sample).collect();
        samples.push("host".to_owned());
        samples.retain(|host| self.host_rank(host).is_some() && other.host_rank(host).is_some());
        samples
    }

    /// The specificity of the host pattern that covers a host: lower values win.
    fn host_rank(&self, host: &str) -> Option<u8> {
        if self.route.matches.hosts.is_empty() {
            return Some(2);
        }
        let ranks = self.route.matches.hosts.iter().filter(|pattern| pattern.covers(host));
        ranks.map(|pattern| u8::from(pattern.is_wildcard())).min()
    }

    /// The precedence of the route for a host, as in the router; `None` if it does not match the host.
    fn rank(&self, host: &str) -> Option<impl Ord + use<>> {
        let mut kinds: Vec<u8> = self.segments.iter().map(|segment| u8::from(segment.is_none())).collect();
        kinds.extend(match self.end {
            End::Closed => None,
            End::Rest => Some(2),
            End::Open => Some(3),
        });
        let route = self.route;
        let exact = route
            .matches
            .headers
            .iter()
            .filter(|(_, wanted)| matches!(wanted, HeaderMatch::Exact(_)))
            .count();
        Some((
            (self.host_rank(host)?, self.end != End::Closed, kinds),
            (
                std::cmp::Reverse(route.matches.headers.len()),
                std::cmp::Reverse(exact),
                !route.matches.condition,
            ),
            (route.matches.listeners.is_empty(), route.matches.methods.is_empty()),
        ))
    }

    /// Whether it matches all of these paths.
    fn covers(&self, path: &Path<'_>) -> bool {
        let fits =
            self.segments.iter().enumerate().all(|(at, segment)| match (segment, path.segments.get(at)) {
                (_, None) => false,
                (Some(name), Some(other)) => *other == Some(*name),
                (None, Some(other)) => *other != Some(""),
            });
        fits && match self.end {
            End::Closed => path.end == End::Closed && self.segments.len() == path.segments.len(),
            End::Rest => self.segments.len() < path.segments.len() || path.end == End::Rest,
            End::Open => true,
        }
    }
}

/// Paths that two routes match.
struct Path<'r> {
    segments: Vec<Option<&'r str>>,
    end: End,
}

impl<'r> Path<'r> {
    fn of_both(one: &Shape<'r>, other: &Shape<'r>) -> Option<Self> {
        let (long, short) =
            if one.segments.len() >= other.segments.len() { (one, other) } else { (other, one) };
        let is_longer = long.segments.len() > short.segments.len();
        if is_longer && short.end == End::Closed {
            return None;
        }
        let mut segments = Vec::with_capacity(long.segments.len());
        for (at, segment) in long.segments.iter().enumerate() {
            segments.push(match (*segment, short.segments.get(at).copied().flatten()) {
                (Some(name), Some(other)) if name != other => return None,
                // A parameter is never empty.
                (Some(""), None) | (None, Some("")) if short.segments.get(at).is_some() => return None,
                (Some(name), _) | (None, Some(name)) => Some(name),
                (None, None) => None,
            });
        }
        let end = match (long.end, short.end) {
            (end, _) if is_longer => end,
            (End::Closed, End::Rest) | (End::Rest, End::Closed) => return None,
            (End::Closed, _) | (_, End::Closed) => End::Closed,
            (End::Rest, _) | (_, End::Rest) => End::Rest,
            (End::Open, End::Open) => End::Open,
        };
        Some(Self { segments, end })
    }

    fn text(&self) -> String {
        let mut text: String =
            self.segments.iter().map(|segment| format!("/{}", segment.unwrap_or("{…}"))).collect();
        match self.end {
            End::Closed => {}
            End::Rest => text.push_str("/{…}"),
            End::Open if text.is_empty() => text.push('/'),
            End::Open => text.push_str(" and below"),
        }
        text
    }
}

/// A set of methods: some, or all but some.
struct Methods {
    all: bool,
    named: Vec<String>,
}

impl Methods {
    fn of(route: &Route) -> Self {
        Self { all: route.matches.methods.is_empty(), named: route.matches.methods.clone() }
    }

    fn has(&self, method: &String) -> bool {
        self.all != self.named.contains(method)
    }

    fn and(mut self, other: &Self) -> Self {
        if !self.all {
            self.named.retain(|method| other.has(method));
            return self;
        }
        if other.all {
            self.named.extend(other.named.iter().cloned());
            return self;
        }
        let named = other.named.iter().filter(|method| self.has(method)).cloned().collect();
        Self { all: false, named }
    }

    fn without(self, other: &Self) -> Self {
        self.and(&Self { all: !other.all, named: other.named.clone() })
    }

    fn is_empty(&self) -> bool {
        !self.all && self.named.is_empty()
    }
}

/// Whether every token that meets the one meets the other.
fn implies(one: &Alternative, other: &Alternative) -> bool {
    let among = |own: &[String], theirs: &[String]| {
        theirs.is_empty() || (!own.is_empty() && own.iter().all(|name| theirs.contains(name)))
    };
    one.issuer == other.issuer
        && other.scopes.iter().all(|scope| one.scopes.contains(scope))
        && among(&one.audiences, &other.audiences)
        && among(&one.roles, &other.roles)
}
