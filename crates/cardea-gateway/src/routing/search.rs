//! The search for a request's route: hosts from the most specific, and depth first through each tree.

use super::pattern::SEGMENTS_MAX;
use super::tree::{NodeId, RouteId};
use super::{Allow, Found, HeaderMatch, Outcome, RequestView, Router};

impl<T> Router<T> {
    /// The outcome, and how many nodes were visited for it.
    pub(super) fn search(
        &self,
        host: &str,
        path: &[u8],
        request: &impl RequestView,
    ) -> (Outcome<'_, T>, u64) {
        let method = request.method();
        let method = self.methods.iter().position(|name| **name == *method).map_or(0, |at| 1 << at);
        let mut search = Search {
            router: self,
            path,
            request,
            method,
            allow: 0,
            open: None,
            slashes: [0; SEGMENTS_MAX + 1],
            slashes_known: 1,
            visits: 0,
        };
        if path.first() == Some(&b'/') {
            for root in self.hosts.roots(host) {
                let found = search.descend(root, 0).or(search.open);
                if let Some(route) = found.and_then(|route| self.routes.get(route as usize)) {
                    return (Outcome::Found(Found { route }), search.visits);
                }
            }
        }
        let outcome = match search.allow {
            0 => Outcome::NotFound,
            set => Outcome::MethodNotAllowed { allow: Allow { names: &self.methods, set } },
        };
        (outcome, search.visits)
    }
}

struct Search<'s, T, R> {
    router: &'s Router<T>,
    /// Begins with `/`.
    path: &'s [u8],
    request: &'s R,
    /// The bit of the request's method; 0 where no route names it.
    method: u64,
    /// The methods of routes that match in everything else.
    allow: u64,
    /// The first open route that matches: what is left when no closed one does.
    open: Option<RouteId>,
    /// Where the slash before each segment is, `path.len()` after the last; so each byte of the path is
    /// scanned once, however many nodes of a depth are visited.
    slashes: [usize; SEGMENTS_MAX + 1],
    slashes_known: usize,
    visits: u64,
}

impl<T, R: RequestView> Search<'_, T, R> {
    /// The first closed route below `node`, in the router's order; the first open one is kept on the way.
    ///
    /// Recurses no deeper than the tree, which is at most [`SEGMENTS_MAX`]. Literal children come before
    /// parameters, and children before the node's own open routes: that is the order of paths.
    fn descend(&mut self, node: NodeId, depth: usize) -> Option<RouteId> {
        self.visits += 1;
        let router = self.router;
        let node = router.nodes.get(node as usize)?;
        let slash = self.slash(depth);
        if slash == self.path.len() {
            let found = self.first(&node.closed);
            if found.is_none() {
                self.keep_open(&node.prefix);
            }
            return found;
        }
        if node.parameter.is_some() || !node.literals.is_empty() {
            let end = self.slash(depth + 1);
            let segment = self.path.get(slash + 1..end)?;
            let literal = node.literals.find(segment);
            let parameter = node.parameter.filter(|_| !segment.is_empty());
            for child in literal.into_iter().chain(parameter) {
                if let found @ Some(_) = self.descend(child, depth + 1) {
                    return found;
                }
            }
        }
        if slash + 1 < self.path.len() {
            self.keep_open(&node.rest);
        }
        self.keep_open(&node.prefix);
        None
    }

    /// Where the segment at `depth` begins with its slash, `path.len()` if there is none.
    fn slash(&mut self, depth: usize) -> usize {
        let end = self.path.len();
        while self.slashes_known <= depth && self.slashes_known < self.slashes.len() {
            let before = self.slashes[self.slashes_known - 1];
            let tail = self.path.get(before + 1..).unwrap_or_default();
            let next = tail.iter().position(|byte| *byte == b'/').map_or(end, |at| before + 1 + at);
            self.slashes[self.slashes_known] = next;
            self.slashes_known += 1;
        }
        self.slashes.get(depth).copied().unwrap_or(end)
    }

    fn keep_open(&mut self, candidates: &[RouteId]) {
        if self.open.is_none() {
            self.open = self.first(candidates);
        }
    }

    /// The first of the routes at one place whose headers and methods fit. Remembers methods that don't.
    fn first(&mut self, candidates: &[RouteId]) -> Option<RouteId> {
        for id in candidates {
            let Some(route) = self.router.routes.get(*id as usize) else { continue };
            let is_bound_here = route.listeners.is_empty()
                || route.listeners.iter().any(|name| **name == *self.request.listener());
            if !is_bound_here {
                continue;
            }
            let headers_fit = route.headers.iter().all(|(name, wanted)| match wanted {
                HeaderMatch::Present => self.request.has_header(name),
                HeaderMatch::Exact(value) => self.request.header_equals(name, value),
            });
            if headers_fit {
                let method_fits = route.methods == 0 || route.methods & self.method != 0;
                if route.condition && !self.request.meets_condition(route.index) {
                    continue;
                }
                if method_fits {
                    return Some(*id);
                }
                self.allow |= route.methods;
            }
        }
        None
    }
}
