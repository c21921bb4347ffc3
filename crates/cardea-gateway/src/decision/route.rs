//! Which route carries a request.

use std::cell::Cell;

use cardea_http::has_lookalike;

use crate::{
    conditions,
    exchange::Exchange,
    model::{Model, Route},
    refusal::Reason,
    routing::{self, RequestView},
};

/// The route of the request, by what it is now.
pub(super) fn choose_route<'m>(model: &'m Model, exchange: &mut Exchange) -> Result<&'m Route, Reason> {
    let host = exchange.authority.as_ref().map_or("", cardea_http::Authority::host);
    let view = RequestOf::new(model, exchange);
    let outcome = model.router.find(host, &exchange.path, &view);
    // Passed over, the route would leave the request to one that may ask for less.
    if view.has_failed() {
        return Err(Reason::ConditionFailed);
    }
    let route = match outcome {
        routing::Outcome::Found(found) => {
            // A service that drops path parameters must not serve what another route guards, nor what a condition has
            // read under another path.
            let parameters = exchange.path_flags.parameters && !found.route().allow.parameters;
            if parameters {
                // The search for the other path may be the first to meet a condition, which reads this one.
                let is_disguised = model.router.is_disguised(host, &exchange.path, &view, &found);
                if is_disguised || view.has_read_path() || view.has_failed() {
                    return Err(Reason::PathEncodingNotAllowed);
                }
            }
            found
        }
        routing::Outcome::MethodNotAllowed { allow } => {
            return Err(Reason::MethodNotAllowed(allow.to_string()));
        }
        routing::Outcome::NotFound => return Err(Reason::RouteNotFound),
    };
    exchange.route = Some(route.index());
    Ok(route.route())
}

/// What the router asks of a request.
struct RequestOf<'a> {
    model: &'a Model,
    exchange: &'a Exchange,
    /// The condition of a route could not be evaluated.
    failed: Cell<bool>,
    /// The condition of a route has read the path.
    path_read: Cell<bool>,
}

impl<'a> RequestOf<'a> {
    fn new(model: &'a Model, exchange: &'a Exchange) -> Self {
        Self { model, exchange, failed: Cell::new(false), path_read: Cell::new(false) }
    }

    /// Whether a service could read the header that is asked for from a field of another spelling: then nothing follows
    /// from the one that is there, or from its absence.
    fn is_ambiguous(&self, name: &str) -> bool {
        let is_ambiguous = has_lookalike(&self.exchange.head.fields, name.as_bytes());
        if is_ambiguous {
            self.failed.set(true);
        }
        is_ambiguous
    }

    /// Whether a condition could not be evaluated, so that nothing follows from what was found.
    fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// Whether the condition of a route that was found or passed over has read the path.
    fn has_read_path(&self) -> bool {
        self.path_read.get()
    }
}

impl RequestView for RequestOf<'_> {
    fn listener(&self) -> &str {
        self.exchange.connection.as_ref().map_or("", |connection| &connection.listener.name)
    }

    fn method(&self) -> &str {
        self.exchange.head.method.as_str()
    }

    fn header_equals(&self, name: &str, value: &str) -> bool {
        if self.is_ambiguous(name) {
            return false;
        }
        let mut values = self.exchange.head.fields.get_all_by_name(name.as_bytes());
        let first = values.next().map(|first| self.exchange.header_value(first));
        first.is_some_and(|first| first.is_text(value)) && values.next().is_none()
    }

    fn has_header(&self, name: &str) -> bool {
        !self.is_ambiguous(name) && self.exchange.head.fields.get_by_name(name.as_bytes()).is_some()
    }

    fn meets_condition(&self, route: usize) -> bool {
        let Some(route) = self.model.router.get(route) else { return true };
        if route.rules.when_reads_path {
            self.path_read.set(true);
        }
        let when = route.rules.when.as_ref();
        when.is_none_or(|condition| {
            condition.test(self.exchange).unwrap_or_else(|fault| {
                conditions::note(condition, fault, self.exchange);
                self.failed.set(true);
                // Whatever else the search finds, the request is refused.
                true
            })
        })
    }
}

/// Encodings that services read in more than one way pass only where the route says so; path parameters also where nothing
/// that decides reads the path.
pub(super) fn check_path(model: &Model, route: &Route, exchange: &Exchange) -> Result<(), Reason> {
    let flags = exchange.path_flags;
    let is_read = route.rules.reads_path || model.environment.reads_path;
    let refused = (flags.parameters && is_read && !route.allow.parameters)
        || (flags.encoded_slash && !route.allow.slash)
        || (flags.encoded_backslash && !route.allow.encoded_backslash)
        || (flags.backslash && !route.allow.backslash)
        || flags.encoded_nul;
    if refused { Err(Reason::PathEncodingNotAllowed) } else { Ok(()) }
}
