//! Building a router: checks, one tree per host, and the proof that no path is slow.

use foldhash::HashMap;

use super::error::RoutingError;
use super::pattern::{End, HostPattern, ParsedPath, Segment};
use super::tree::{Conditions, Hosts, Node, NodeId, Route, RouteId};
use super::{HeaderMatch, RouteMatch, Router};

/// How many header conditions a route may have.
pub const HEADERS_MAX: usize = 16;
/// How many different methods all routes together may name.
pub const METHODS_MAX: usize = 64;
/// How many routes may share one host and one path; they are tried one by one.
pub const CANDIDATES_MAX: usize = 256;
/// How many nodes the worst path may visit in the tree of one host.
///
/// Without overlapping patterns it is one more than the number of segments.
pub const VISITS_MAX: u64 = 512;

/// Checks the routes and builds the trees.
pub(super) fn build<T>(routes: Vec<(RouteMatch, T)>) -> Result<Router<T>, RoutingError> {
    if u32::try_from(routes.len()).is_err() {
        return Err(RoutingError::TooManyNodes);
    }
    let methods = method_table(&routes)?;
    let mut builder = Builder { nodes: Vec::new(), hosts: Hosts::default(), roots: Vec::new() };
    let mut built = Vec::with_capacity(routes.len());
    for (index, (wanted, value)) in routes.into_iter().enumerate() {
        let path = wanted.path.parse().map_err(|problem| RoutingError::Path {
            route: index,
            path: wanted.path.as_str().to_owned(),
            problem,
        })?;
        builder.insert(index, &wanted.hosts, &path)?;
        let (parameters, rest) = names(&path);
        built.push(Route {
            value,
            index,
            methods: method_set(&wanted.methods, &methods, index)?,
            segments: path.segments.len(),
            parameters,
            rest,
            headers: headers(wanted.headers, index)?,
            listeners: wanted.listeners.into_iter().map(Into::into).collect(),
            condition: wanted.condition,
        });
    }
    builder.finish(&built)?;
    Ok(Router { routes: built, nodes: builder.nodes, hosts: builder.hosts, methods })
}

struct Builder {
    /// Children come after their parents.
    nodes: Vec<Node>,
    hosts: Hosts,
    /// The roots with their hosts, for errors.
    roots: Vec<(NodeId, String)>,
}

impl Builder {
    /// Puts a route into the tree of each of its hosts.
    fn insert(
        &mut self,
        route: usize,
        hosts: &[HostPattern],
        path: &ParsedPath<'_>,
    ) -> Result<(), RoutingError> {
        if hosts.is_empty() {
            let root = self.root(None)?;
            return self.insert_below(root, route, path);
        }
        for (at, host) in hosts.iter().enumerate() {
            // Naming a host twice is harmless, but must not look like two routes.
            if hosts.iter().take(at).any(|earlier| earlier == host) {
                continue;
            }
            let root = self.root(Some(host))?;
            self.insert_below(root, route, path)?;
        }
        Ok(())
    }

    fn root(&mut self, host: Option<&HostPattern>) -> Result<NodeId, RoutingError> {
        let known = match host {
            None => self.hosts.any,
            Some(host) if host.is_wildcard() => self.hosts.wildcards.get(host.name()).copied(),
            Some(host) => self.hosts.exact.get(host.name()).copied(),
        };
        if let Some(root) = known {
            return Ok(root);
        }
        let root = self.node()?;
        match host {
            None => self.hosts.any = Some(root),
            Some(host) if host.is_wildcard() => {
                self.hosts.wildcards.insert(host.name().into(), root);
            }
            Some(host) => {
                self.hosts.exact.insert(host.name().into(), root);
            }
        }
        self.roots.push((root, host.map_or_else(|| "*".to_owned(), ToString::to_string)));
        Ok(root)
    }

    fn node(&mut self) -> Result<NodeId, RoutingError> {
        let id = NodeId::try_from(self.nodes.len()).map_err(|_| RoutingError::TooManyNodes)?;
        self.nodes.push(Node::default());
        Ok(id)
    }

    fn insert_below(
        &mut self,
        root: NodeId,
        route: usize,
        path: &ParsedPath<'_>,
    ) -> Result<(), RoutingError> {
        let mut at = root;
        for segment in &path.segments {
            let node = &self.nodes[at as usize];
            let known = match segment {
                Segment::Literal(name) => node.literals.find(name),
                Segment::Parameter(_) => node.parameter,
            };
            at = match known {
                Some(child) => child,
                None => {
                    let child = self.node()?;
                    let node = &mut self.nodes[at as usize];
                    match segment {
                        Segment::Literal(name) => node.literals.insert(name, child),
                        Segment::Parameter(_) => node.parameter = Some(child),
                    }
                    child
                }
            };
        }
        let node = &mut self.nodes[at as usize];
        let list = match path.end {
            End::Closed => &mut node.closed,
            End::Rest(_) => &mut node.rest,
            End::Open => &mut node.prefix,
        };
        if list.len() == CANDIDATES_MAX {
            return Err(RoutingError::TooManyCandidates { route, limit: CANDIDATES_MAX });
        }
        list.push(RouteId::try_from(route).map_err(|_| RoutingError::TooManyNodes)?);
        Ok(())
    }

    /// Orders the routes of each node, and refuses what is ambiguous or too costly.
    fn finish<T>(&mut self, routes: &[Route<T>]) -> Result<(), RoutingError> {
        // Children come after their parents, so in reverse they are known when they are needed.
        let mut visits = vec![0_u64; self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate().rev() {
            let literal = node.literals.nodes().map(|child| visits[child as usize]).max().unwrap_or(0);
            let parameter = node.parameter.map_or(0, |child| visits[child as usize]);
            visits[at] = literal.saturating_add(parameter).saturating_add(1);
        }
        for (root, host) in &self.roots {
            let visits = visits[*root as usize];
            if visits > VISITS_MAX {
                return Err(RoutingError::TooCostly { host: host.clone(), visits, limit: VISITS_MAX });
            }
        }
        let mut conflicts = None;
        for (at, node) in self.nodes.iter_mut().enumerate() {
            for list in [&mut node.closed, &mut node.rest, &mut node.prefix] {
                list.sort_by_key(|id| rank(&routes[*id as usize]));
                let found = conflict(list, routes).map(|(first, second)| (first, second, at));
                conflicts = conflicts.into_iter().chain(found).min();
            }
        }
        match conflicts {
            // A node doesn't know its host: it is looked for when there is a conflict to tell of.
            Some((first, second, at)) => {
                Err(RoutingError::Conflict { first, second, host: self.host_of(at) })
            }
            None => Ok(()),
        }
    }

    /// The host in whose tree a node is.
    fn host_of(&self, wanted: usize) -> String {
        let mut parents: HashMap<usize, usize> = HashMap::default();
        for (at, node) in self.nodes.iter().enumerate() {
            for child in node.literals.nodes().chain(node.parameter) {
                parents.insert(child as usize, at);
            }
        }
        let mut at = wanted;
        while let Some(parent) = parents.get(&at) {
            at = *parent;
        }
        self.roots
            .iter()
            .find(|(root, _)| *root as usize == at)
            .map(|(_, host)| host.clone())
            .unwrap_or_default()
    }
}

/// The order of routes with one host and path; the smallest is the most specific.
fn rank<T>(route: &Route<T>) -> impl Ord + use<T> {
    let exact = route.headers.iter().filter(|(_, wanted)| matches!(wanted, HeaderMatch::Exact(_))).count();
    (
        HEADERS_MAX - route.headers.len().min(HEADERS_MAX),
        HEADERS_MAX - exact.min(HEADERS_MAX),
        !route.condition,
        route.listeners.is_empty(),
        route.methods == 0,
    )
}

/// Two routes of one rank that one request could match: the smaller index first.
fn conflict<T>(sorted: &[RouteId], routes: &[Route<T>]) -> Option<(usize, usize)> {
    for (at, a) in sorted.iter().enumerate() {
        let a = &routes[*a as usize];
        for b in sorted.iter().skip(at + 1).map(|b| &routes[*b as usize]).take_while(|b| rank(b) == rank(a)) {
            if overlap(a, b) {
                return Some((a.index.min(b.index), a.index.max(b.index)));
            }
        }
    }
    None
}

/// Whether a request could match the methods, headers and listeners of both.
fn overlap<T>(a: &Route<T>, b: &Route<T>) -> bool {
    let listeners = a.listeners.is_empty()
        || b.listeners.is_empty()
        || a.listeners.iter().any(|name| b.listeners.contains(name));
    let methods = a.methods == 0 || b.methods == 0 || a.methods & b.methods != 0;
    let exclusive = a.headers.iter().any(|(name, wanted)| {
        b.headers.iter().any(|(other, value)| match (wanted, value) {
            (HeaderMatch::Exact(wanted), HeaderMatch::Exact(value)) => name == other && wanted != value,
            _ => false,
        })
    });
    listeners && methods && !exclusive
}

/// All the methods that routes name, sorted.
fn method_table<T>(routes: &[(RouteMatch, T)]) -> Result<Vec<Box<str>>, RoutingError> {
    let mut table: Vec<Box<str>> = Vec::new();
    for (route, (wanted, _)) in routes.iter().enumerate() {
        for method in &wanted.methods {
            if !is_token(method) {
                return Err(RoutingError::Method { route, method: method.clone() });
            }
            if let Err(at) = table.binary_search_by(|known| (**known).cmp(method)) {
                if table.len() == METHODS_MAX {
                    return Err(RoutingError::TooManyMethods { route, limit: METHODS_MAX });
                }
                table.insert(at, method.as_str().into());
            }
        }
    }
    Ok(table)
}

fn method_set(methods: &[String], table: &[Box<str>], route: usize) -> Result<u64, RoutingError> {
    let mut set = 0_u64;
    for method in methods {
        let bit = table.iter().position(|known| **known == **method).map_or(0, |at| 1 << at);
        if bit == 0 || set & bit != 0 {
            return Err(RoutingError::Method { route, method: method.clone() });
        }
        set |= bit;
    }
    Ok(set)
}

fn headers(conditions: Vec<(String, HeaderMatch)>, route: usize) -> Result<Conditions, RoutingError> {
    if conditions.len() > HEADERS_MAX {
        return Err(RoutingError::TooManyHeaders { route, limit: HEADERS_MAX });
    }
    let mut kept: Vec<(Box<str>, HeaderMatch)> = Vec::with_capacity(conditions.len());
    for (name, wanted) in conditions {
        let lower = is_token(&name) && !name.bytes().any(|byte| byte.is_ascii_uppercase());
        if !lower || kept.iter().any(|(known, _)| **known == *name) {
            return Err(RoutingError::Header { route, name });
        }
        kept.push((name.into(), wanted));
    }
    Ok(kept.into())
}

/// Parameters with their depths, and the name of what is left.
type Names = (Box<[(Box<str>, usize)]>, Option<Box<str>>);

fn names(path: &ParsedPath<'_>) -> Names {
    let parameters = path.segments.iter().enumerate().filter_map(|(depth, segment)| match segment {
        Segment::Parameter(name) => Some((Box::from(*name), depth)),
        Segment::Literal(_) => None,
    });
    let rest = match path.end {
        End::Rest(name) => Some(Box::from(name)),
        End::Closed | End::Open => None,
    };
    (parameters.collect(), rest)
}

/// RFC 9110 §5.6.2.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}
