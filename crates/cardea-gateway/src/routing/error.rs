//! What can be wrong with a set of routes. All of it is the configuration's fault.

use thiserror::Error;

/// Why a router can't be built. `route` is a position in the list it was to be made from.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RoutingError {
    /// A path, prefix or pattern is malformed.
    #[error("path {path:?}: {problem}")]
    Path {
        /// The route.
        route: usize,
        /// The path as configured.
        path: String,
        /// What is wrong with it.
        problem: PathError,
    },
    /// A method is not a token (RFC 9110 §9.1), or is named twice.
    #[error("method {method:?} is no token, or is named twice")]
    Method {
        /// The route.
        route: usize,
        /// The method as configured.
        method: String,
    },
    /// A header name is not a token in lower case, or has two conditions.
    #[error("header {name:?} is no field name in lower case, or is named twice")]
    Header {
        /// The route.
        route: usize,
        /// The name as configured.
        name: String,
    },
    /// A route has too many header conditions.
    #[error("more than {limit} header conditions")]
    TooManyHeaders {
        /// The route.
        route: usize,
        /// How many there may be.
        limit: usize,
    },
    /// All routes together name too many different methods.
    #[error("more than {limit} different methods")]
    TooManyMethods {
        /// The route that names one too many.
        route: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Too many routes differ in methods and headers alone; those are tried one by one.
    #[error("more than {limit} routes for the same host and path")]
    TooManyCandidates {
        /// The route that is one too many.
        route: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Patterns overlap so much that matching some path would be slow.
    #[error(
        "patterns of host {host} overlap too much: a path exists that visits {visits} nodes, {limit} are allowed"
    )]
    TooCostly {
        /// The host pattern, `*` for any.
        host: String,
        /// What the worst path costs.
        visits: u64,
        /// What it may cost.
        limit: u64,
    },
    /// More nodes than can be numbered.
    #[error("too many routes")]
    TooManyNodes,
    /// A request could match both routes, and nothing says which serves it.
    #[error("the same requests of host {host} match another route too, and neither is more specific")]
    Conflict {
        /// The one that comes first.
        first: usize,
        /// The other one.
        second: usize,
        /// The host pattern that they share, `*` for any.
        host: String,
    },
}

impl RoutingError {
    /// The route to point at, the later one of a conflict; `None` where it is no single one's fault.
    #[must_use]
    pub fn route(&self) -> Option<usize> {
        match self {
            Self::Path { route, .. }
            | Self::Method { route, .. }
            | Self::Header { route, .. }
            | Self::TooManyHeaders { route, .. }
            | Self::TooManyMethods { route, .. }
            | Self::TooManyCandidates { route, .. }
            | Self::Conflict { second: route, .. } => Some(*route),
            Self::TooCostly { .. } | Self::TooManyNodes => None,
        }
    }
}

/// What is wrong with a path.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    /// Paths are absolute.
    #[error("it must begin with `/`")]
    NotAbsolute,
    /// No normalised path has such a segment, so it would never match.
    #[error("a segment {0:?} never matches: requests are normalised first")]
    NeverMatches(String),
    /// A character that RFC 3986 §3.3 doesn't have in paths.
    #[error("{0:?} must be percent-encoded")]
    NotEncoded(char),
    /// An escape that no normalised path contains (RFC 3986 §6.2.2).
    #[error(
        "the escape {0:?} never matches: unreserved characters are written as they are, others as `%` and two upper-case hexadecimal digits"
    )]
    Escape(String),
    /// Braces outside a pattern.
    #[error("braces make parameters in a pattern only")]
    Brace,
    /// Braces that are not around a whole segment, or not around a name.
    #[error("{0:?} is no parameter: it must be a whole segment, `{{name}}` or, at the end, `{{*name}}`")]
    Parameter(String),
    /// Two parameters with one name.
    #[error("the parameter {0:?} is there twice")]
    Repeated(String),
    /// Too many segments.
    #[error("more than {0} segments")]
    TooDeep(usize),
}

/// What is wrong with a host pattern.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HostError {
    /// It is empty, too long, or has an empty or over-long label.
    #[error("{0:?} is no host name")]
    Malformed(String),
    /// It contains a port or another character that host names don't have.
    #[error(
        "{1:?} doesn't belong in the host {0:?}; ports are the listener's, other alphabets are written as `xn--…`"
    )]
    Character(String, char),
    /// A `*` elsewhere than alone in the first label, or before an address or nothing.
    #[error("{0:?}: a wildcard is `*.` before a name")]
    Wildcard(String),
}
