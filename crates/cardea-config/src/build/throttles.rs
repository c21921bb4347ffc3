//! Throttles: what they are compiled to, what goes on of them at a reload, and where they stand on each route.

use std::sync::Arc;

use cardea_env::{Expression, Kind, Reference};
use cardea_gateway::{
    exchange::Exchange,
    metrics::ThrottleMetrics,
    model::{RouteThrottles, Throttle, ThrottleCost, ThrottleKey},
};
use cardea_guard::ThrottleTable;

use super::{
    super::{
        model::{self, Located},
        rules::FieldTemplate,
    },
    Builder,
    rules::{KNOWN_AT_THE_END, KNOWN_BEFORE_ROUTE, is_path},
};

/// What is known once the route is, beside what is known before.
const KNOWN_OF_ROUTE: [&str; 2] = ["route.", "service."];
/// What is known once a request is authorized, beside that.
const KNOWN_OF_CALLER: [&str; 2] = ["token.", "policy."];

/// Where a throttle stands on the routes that have it, and what it reads there.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ThrottlePlace {
    needs_identity: bool,
    reads_path: bool,
}

/// When an attribute is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    WithRoute,
    WithCaller,
    TooLate,
}

impl Builder<'_> {
    /// The throttles, in the order of the configuration.
    pub(super) fn throttles(&mut self) -> Vec<Throttle> {
        let config = self.config;
        config.throttles.iter().map(|throttle| self.throttle(throttle)).collect()
    }

    fn throttle(&mut self, throttle: &Located<model::Throttle>) -> Throttle {
        let mut place = ThrottlePlace::default();
        let mut attributes = Vec::with_capacity(throttle.key.len());
        for written in &throttle.key {
            let Some(reference) = self.reference(written) else { continue };
            if matches!(reference.kind(), Kind::List | Kind::Map) {
                let message = format!(
                    "{:?} is of type {}, by which nothing can be counted",
                    written.text,
                    reference.kind()
                );
                self.problem(
                    written.at,
                    message,
                    "name an attribute with one value, or make one in an [[attribute]]",
                );
            }
            self.note_headers(std::iter::once(&reference));
            self.place(&mut place, written, std::iter::once((written.text.as_str(), &reference)));
            attributes.push(reference);
        }
        let when = throttle.when.as_ref().and_then(|written| Some((written, self.condition(written)?)));
        if let Some((written, condition)) = &when {
            self.place(&mut place, written, condition.references());
        }
        let cost = throttle.cost.as_ref().and_then(|written| Some((written, self.cost(written, throttle)?)));
        if let Some((written, cost)) = &cost {
            self.place(&mut place, written, cost.expression().references());
        }
        self.throttles.push(place);
        let previous = self.previous.and_then(|built| {
            let index = built.model.throttles.iter().position(|known| known.name == throttle.name)?;
            Some((built.throttles.get(index)?, built.model.throttles.get(index)?))
        });
        let now = self.foundation.clock.precise().mono;
        let table = match previous {
            Some((settings, known)) if settings.has_key_of(throttle) && known.limit == throttle.limit => {
                Arc::clone(&known.table)
            }
            Some((settings, known)) if settings.has_key_of(throttle) => {
                Arc::new(known.table.converted(known.limit, throttle.limit, now))
            }
            _ => Arc::new(ThrottleTable::new(throttle.keys_max)),
        };
        Throttle {
            name: throttle.name.clone(),
            key: ThrottleKey {
                attributes,
                ipv4_prefix: throttle.ipv4_prefix,
                ipv6_prefix: throttle.ipv6_prefix,
            },
            limit: throttle.limit,
            when: when.map(|(_, condition)| condition),
            cost: cost.map(|(_, cost)| cost),
            dry_run: throttle.dry_run,
            report: throttle.report,
            table,
            metrics: previous.map_or_else(
                || Arc::new(ThrottleMetrics::new(&throttle.name)),
                |(_, known)| Arc::clone(&known.metrics),
            ),
        }
    }

    /// The expression of a cost.
    fn cost(&mut self, written: &FieldTemplate, throttle: &model::Throttle) -> Option<ThrottleCost> {
        let expression = match Expression::compile(&written.text, &self.names) {
            Ok(expression) => expression,
            Err(error) => return self.expression_problem(written, error),
        };
        self.note_headers(expression.references().map(|(_, reference)| reference));
        let kind = expression.kind();
        if !matches!(kind, Kind::Int | Kind::Double | Kind::Any) {
            let message = format!("a cost is a number, and this is of type {kind}");
            self.problem(
                written.at,
                message,
                "write an expression that gives a number, as in \"request.method == 'POST' ? 5 : 1\"",
            );
            return None;
        }
        // One that reads nothing always costs the same.
        let is_constant = expression.references().next().is_none();
        let cost = ThrottleCost::new(expression);
        if !is_constant {
            return Some(cost);
        }
        match cost.units(&Exchange::default()) {
            None => self.problem(written.at, "the cost is no number of at least 0", "write one"),
            Some(cost) if cost > throttle.limit.burst() => {
                let message = format!(
                    "the cost ({cost}) is above the burst ({}): every request is refused",
                    throttle.limit.burst()
                );
                self.problem(written.at, message, "lower the cost or raise the burst");
            }
            Some(_) => {}
        }
        Some(cost)
    }

    /// Notes what is read by a part of a throttle, and reports what is not known when it is asked.
    fn place<'r>(
        &mut self,
        place: &mut ThrottlePlace,
        written: &FieldTemplate,
        references: impl Iterator<Item = (&'r str, &'r Reference<Exchange>)>,
    ) {
        for (name, reference) in references {
            place.reads_path |= self.reads(reference, is_path);
            let sources = self.names.sources(reference);
            let late = sources.iter().find(|source| self.known(source) == Known::TooLate);
            if let Some(source) = late {
                let what = if source == name {
                    format!("{name:?}")
                } else {
                    format!("{name:?} reads {source:?}, which")
                };
                self.problem(
                    written.at,
                    format!("{what} is not known yet when requests are counted"),
                    "read request, source, destination, connection, gateway, route, service or token, or attributes made of these",
                );
            }
            let changed =
                self.changed_by_routes(name) || sources.iter().any(|source| self.changed_by_routes(source));
            place.needs_identity |=
                changed || sources.iter().any(|source| self.known(source) == Known::WithCaller);
        }
    }

    fn known(&self, source: &str) -> Known {
        let begins = |known: &[&str]| {
            known.iter().any(|known| source.starts_with(known) || known.strip_suffix('.') == Some(source))
        };
        if KNOWN_AT_THE_END.contains(&source) {
            Known::TooLate
        } else if begins(&KNOWN_BEFORE_ROUTE) || begins(&KNOWN_OF_ROUTE) {
            Known::WithRoute
        } else if begins(&KNOWN_OF_CALLER) || source.starts_with("custom.") {
            // Of the attributes of the configuration these are the ones that only routes set.
            Known::WithCaller
        } else {
            Known::TooLate
        }
    }

    /// Whether a route sets or removes an attribute, which it does once it is known who is calling.
    fn changed_by_routes(&self, name: &str) -> bool {
        let edits = self.config.routes.iter().flat_map(|route| &route.attributes);
        edits.into_iter().any(|edits| {
            edits.set.iter().map(|(name, _)| name).chain(&edits.remove).any(|changed| changed.text == name)
        })
    }

    /// The throttles that count the requests of a route.
    pub(super) fn route_throttles(&self, route: &model::Route) -> RouteThrottles {
        let service = match &route.destination {
            model::Destination::Service { index } => self.config.services.get(*index),
            _ => None,
        };
        let named = service.into_iter().flat_map(|service| &service.throttles).chain(&route.throttles);
        self.throttles_of(named)
    }

    /// The throttles of all routes and those that are named, each once.
    pub(super) fn throttles_of<'n>(&self, named: impl Iterator<Item = &'n String> + Clone) -> RouteThrottles {
        let is_meant = |throttle: &model::Throttle| {
            throttle.all_routes || named.clone().any(|name| *name == throttle.name)
        };
        let throttles = self.config.throttles.iter().zip(&self.throttles).enumerate();
        let meant = throttles.filter(|(_, (throttle, _))| is_meant(throttle));
        let (after, before): (Vec<_>, Vec<_>) = meant.partition(|(_, (_, place))| place.needs_identity);
        let places = |throttles: Vec<(usize, _)>| throttles.into_iter().map(|(index, _)| index).collect();
        RouteThrottles { before_identification: places(before), after_authorization: places(after) }
    }

    /// Whether any of the throttles counts by the path.
    pub(super) fn throttles_read_path(&self, throttles: &RouteThrottles) -> bool {
        let places = throttles.before_identification.iter().chain(&throttles.after_authorization);
        places.filter_map(|place| self.throttles.get(*place)).any(|place| place.reads_path)
    }
}
