//! Which route serves a request: hosts, paths, methods, header conditions and listeners, the most specific first.
//!
//! # The order
//!
//! Of all the routes that match a request, the first in this order serves it. The order in which they
//! were configured plays no part.
//!
//! 1. **Host**: an exact name, then the wildcard that covers it, then routes for any host. A wildcard covers exactly
//!    one label, as in certificates ([`cardea_tls::wildcard_of`]).
//! 2. **Path**: paths that are matched to their end (exact ones, and patterns without `{*rest}`) before
//!    open ones (prefixes, and patterns with `{*rest}`). Within each kind, segment by segment from the
//!    left, a literal before a parameter, and the longer before the shorter; `{*rest}` before a prefix
//!    that ends at the same place. So an exact path precedes every pattern, and the longest prefix wins.
//! 3. **Headers**: more conditions before fewer; then more exact values before fewer.
//! 4. **Condition**: a route with one before a route without.
//! 5. **Listeners**: a route that is bound to listeners before one that isn't.
//! 6. **Methods**: a route that names methods before one that doesn't.
//!
//! Two routes that are equal in all of this, and that one request could match, are a configuration error.
//! A route that is not bound to the request's listener does not exist for it: neither a 405 nor its `Allow` tells of it.
//! A route whose condition, methods or headers don't fit is passed over for the next in this order, that of the next
//! host included: a name with routes of its own does not hide the routes for any host. Where nothing else
//! fits and only the method was wrong, the answer is [`Outcome::MethodNotAllowed`] (RFC 9110 §15.5.6).
//! Methods are compared as they are: `GET` does not include `HEAD`.
//!
//! # The cost
//!
//! There is one tree of path segments per host. A request takes the literal child and the parameter child
//! of a node, so the number of nodes it visits is at most that of the worst path, which is computed while
//! the tree is built (`cost(n) = 1 + max(cost(literal children)) + cost(parameter child)`); a
//! configuration in which it exceeds [`VISITS_MAX`] is refused. It grows with the number of segments and
//! with how patterns overlap, never with the number of routes. Matching allocates nothing. A condition is
//! asked for last, and only for a route that fits in everything else.

mod build;
mod disguise;
mod error;
mod pattern;
mod search;
mod tree;

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

use smallvec::SmallVec;

pub use build::{CANDIDATES_MAX, HEADERS_MAX, METHODS_MAX, VISITS_MAX};
pub use error::{HostError, PathError, RoutingError};
pub use pattern::{HostPattern, PathMatch, SEGMENTS_MAX};

use tree::{Hosts, Node, Route};

/// What a request must look like for a route to serve it. All the parts must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteMatch {
    /// Hosts, any of which will do; empty: every host.
    pub hosts: Vec<HostPattern>,
    /// The path.
    pub path: PathMatch,
    /// Methods as they are written on the wire, any of which will do; empty: every method.
    /// All routes together name at most [`METHODS_MAX`].
    pub methods: Vec<String>,
    /// Header names in lower case with what is asked of them; all must hold. At most [`HEADERS_MAX`].
    pub headers: Vec<(String, HeaderMatch)>,
    /// Names of listeners, any of which will do; empty: every listener.
    pub listeners: Vec<String>,
    /// Whether there is a condition beside all this, which [`RequestView::meets_condition`] tells.
    pub condition: bool,
}

impl RouteMatch {
    /// Any host, any method, any listener, no header conditions.
    #[must_use]
    pub fn new(path: PathMatch) -> Self {
        Self {
            hosts: Vec::new(),
            path,
            methods: Vec::new(),
            headers: Vec::new(),
            listeners: Vec::new(),
            condition: false,
        }
    }
}

/// What a route asks of one header field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HeaderMatch {
    /// It is there, with whatever value, once or more often.
    Present,
    /// It is there exactly once, with exactly this value (case matters).
    Exact(String),
}

/// What the router asks of a request beside host and path.
pub trait RequestView {
    /// The method as it was sent; case matters (RFC 9110 §9.1).
    fn method(&self) -> &str;
    /// Whether exactly one field line has this name (given in lower case) and its value is `value`, in whatever encoding.
    ///
    /// Must be false for a field that is repeated: two routes that ask for different values of one field
    /// are taken to exclude each other.
    fn header_equals(&self, name: &str, value: &str) -> bool;
    /// Whether there is a field of this name (given in lower case).
    fn has_header(&self, name: &str) -> bool;
    /// The name of the listener that the request came by.
    fn listener(&self) -> &str;
    /// Whether the request meets the condition of the route at this place, which has one.
    fn meets_condition(&self, route: usize) -> bool;
}

/// All routes of a configuration with what belongs to each, built once and never changed.
#[derive(Debug)]
pub struct Router<T> {
    routes: Vec<Route<T>>,
    nodes: Vec<Node>,
    hosts: Hosts,
    /// Sorted; bit `n` in a set of methods stands for the n-th.
    methods: Vec<Box<str>>,
}

impl<T> Router<T> {
    /// Builds the router. Positions in `routes` are what errors name.
    ///
    /// # Errors
    /// The first [`RoutingError`]: a malformed path, method or header name, a limit exceeded, or two
    /// routes between which nothing decides.
    pub fn new(routes: Vec<(RouteMatch, T)>) -> Result<Self, RoutingError> {
        build::build(routes)
    }

    /// The number of routes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there are no routes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// What belongs to the routes.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.routes.iter().map(|route| &route.value)
    }

    /// The route that stood at `index` in the list that the router was made from.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.routes.get(index).map(|route| &route.value)
    }

    /// The same route, for what its pattern matched.
    #[must_use]
    pub fn found(&self, index: usize) -> Option<Found<'_, T>> {
        self.routes.get(index).map(|route| Found { route })
    }

    /// The route that serves a request.
    ///
    /// `host` is the normalised host of the request's authority: lower case, without port and trailing
    /// dot, an IPv6 address in brackets. `path` is its normalised path without the query (RFC 3986
    /// §6.2.2); what doesn't begin with `/`, such as the target `*`, is never found.
    pub fn find(&self, host: &str, path: &[u8], request: &impl RequestView) -> Outcome<'_, T> {
        self.search(host, path, request).0
    }
}

/// What [`Router::find`] says.
#[derive(Debug)]
pub enum Outcome<'r, T> {
    /// This route serves the request.
    Found(Found<'r, T>),
    /// Routes match in everything but the method: 405.
    MethodNotAllowed {
        /// The methods of those routes, for the `Allow` field.
        allow: Allow<'r>,
    },
    /// No route matches: 404.
    NotFound,
}

/// A route that was found. It borrows the router alone, so it may outlive the request's buffers.
#[derive(Debug)]
pub struct Found<'r, T> {
    route: &'r Route<T>,
}

impl<T> Clone for Found<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Found<'_, T> {}

/// Parameters of a pattern with the range of bytes of the path that each matched, in order.
pub type Parameters<'r> = SmallVec<[(&'r str, Range<usize>); 4]>;

impl<'r, T> Found<'r, T> {
    /// What was given with the route.
    #[must_use]
    pub fn route(&self) -> &'r T {
        &self.route.value
    }

    /// The route's place in the list that the router was made from.
    #[must_use]
    pub fn index(&self) -> usize {
        self.route.index
    }

    /// Where in `path`, the one the route was found by, the parameters of its pattern are; computed when
    /// asked for. `{*rest}` does not include the slash before it.
    #[must_use]
    pub fn parameters(&self, path: &[u8]) -> Parameters<'r> {
        let mut found = Parameters::new();
        let mut wanted = self.route.parameters.iter().peekable();
        let mut start = 1;
        for depth in 0..self.route.segments {
            let Some(tail) = path.get(start..) else { return found };
            let end = tail.iter().position(|byte| *byte == b'/').map_or(path.len(), |at| start + at);
            if let Some((name, _)) = wanted.next_if(|(_, at)| *at == depth) {
                found.push((name, start..end));
            }
            start = end + 1;
        }
        if let (Some(name), true) = (&self.route.rest, start <= path.len()) {
            found.push((name, start..path.len()));
        }
        found
    }

    /// What of `path`, the one the route was found by, is left after the segments that the route names:
    /// empty, or beginning with `/`. Stripping a prefix leaves this (and `/` where it is empty).
    #[must_use]
    pub fn remainder(&self, path: &[u8]) -> Range<usize> {
        let mut slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        slashes.nth(self.route.segments).unwrap_or(path.len())..path.len()
    }
}

/// A set of methods; written out it is the value of an `Allow` field (RFC 9110 §10.2.1).
#[derive(Clone, Copy, Debug)]
pub struct Allow<'r> {
    names: &'r [Box<str>],
    set: u64,
}

impl<'r> Allow<'r> {
    /// The methods in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = &'r str> + use<'r> {
        let set = self.set;
        self.names.iter().enumerate().filter(move |(at, _)| set & (1 << at) != 0).map(|(_, name)| &**name)
    }
}

impl fmt::Display for Allow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, name) in self.iter().enumerate() {
            if at > 0 {
                f.write_str(", ")?;
            }
            f.write_str(name)?;
        }
        Ok(())
    }
}
