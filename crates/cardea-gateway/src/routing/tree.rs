//! The router's data: routes, the trees of path segments, and the tree of each host.

use cardea_tls::wildcard_of;
use foldhash::HashMap;

use super::HeaderMatch;

/// A number of a node in the router's arena.
pub(super) type NodeId = u32;
/// A number of a route.
pub(super) type RouteId = u32;

/// Header names in lower case with what is asked of each.
pub(super) type Conditions = Box<[(Box<str>, HeaderMatch)]>;

/// A route as the search needs it.
#[derive(Debug)]
pub(super) struct Route<T> {
    pub(super) value: T,
    pub(super) index: usize,
    /// A bit per name in the router's table; 0: every method.
    pub(super) methods: u64,
    pub(super) headers: Conditions,
    /// Names of listeners, any of which will do; empty: every listener.
    pub(super) listeners: Box<[Box<str>]>,
    /// Whether a request must meet a condition of its own.
    pub(super) condition: bool,
    /// How many segments the path names, a final `{*rest}` not counted.
    pub(super) segments: usize,
    /// Names and depths of parameters, in order.
    pub(super) parameters: Box<[(Box<str>, usize)]>,
    pub(super) rest: Option<Box<str>>,
}

/// A place in the tree of a host: a number of segments, each a literal or a parameter.
///
/// The lists hold routes that differ in methods and headers alone, the most specific first.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) literals: Literals,
    pub(super) parameter: Option<NodeId>,
    /// Routes whose path ends here.
    pub(super) closed: Vec<RouteId>,
    /// Routes that continue with `{*rest}`.
    pub(super) rest: Vec<RouteId>,
    /// Routes with this prefix.
    pub(super) prefix: Vec<RouteId>,
}

/// Up to this many literal children are compared one by one; more are hashed.
const FEW: usize = 4;

/// The children of a node by literal segment.
#[derive(Debug)]
pub(super) enum Literals {
    Few(Vec<(Box<[u8]>, NodeId)>),
    Many {
        by_name: HashMap<Box<[u8]>, NodeId>,
        /// What is longer isn't there, and isn't hashed: a request's segment may be long.
        longest: usize,
    },
}

impl Default for Literals {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Literals {
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Few(few) if few.is_empty())
    }

    pub(super) fn find(&self, segment: &[u8]) -> Option<NodeId> {
        match self {
            Self::Few(few) => few.iter().find(|(name, _)| **name == *segment).map(|(_, node)| *node),
            Self::Many { longest, .. } if segment.len() > *longest => None,
            Self::Many { by_name, .. } => by_name.get(segment).copied(),
        }
    }

    /// Adds a child that isn't there yet.
    pub(super) fn insert(&mut self, segment: &[u8], node: NodeId) {
        match self {
            Self::Few(few) if few.len() < FEW => few.push((segment.into(), node)),
            Self::Few(few) => {
                let longest = few.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(segment.len());
                let mut by_name: HashMap<_, _> = few.drain(..).collect();
                by_name.insert(segment.into(), node);
                *self = Self::Many { by_name, longest };
            }
            Self::Many { by_name, longest } => {
                *longest = segment.len().max(*longest);
                by_name.insert(segment.into(), node);
            }
        }
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let (few, many) = match self {
            Self::Few(few) => (Some(few.iter().map(|(_, node)| *node)), None),
            Self::Many { by_name, .. } => (None, Some(by_name.values().copied())),
        };
        few.into_iter().flatten().chain(many.into_iter().flatten())
    }
}

/// The root of each host's tree.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    pub(super) exact: HashMap<Box<str>, NodeId>,
    /// By what follows `*.`.
    pub(super) wildcards: HashMap<Box<str>, NodeId>,
    pub(super) any: Option<NodeId>,
}

impl Hosts {
    /// The roots for a host, the most specific first: of its name, of the wildcard that covers it, and of any host.
    pub(super) fn roots(&self, host: &str) -> impl Iterator<Item = NodeId> + use<> {
        let exact = self.exact.get(host).copied();
        let wildcard = if self.wildcards.is_empty() {
            None
        } else {
            wildcard_of(host).and_then(|suffix| self.wildcards.get(suffix).copied())
        };
        exact.into_iter().chain(wildcard).chain(self.any)
    }
}
