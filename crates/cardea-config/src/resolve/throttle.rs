//! Throttles, what they read, and where they are named.

use std::collections::BTreeSet;

use cardea_env::{Kind, Reference};
use cardea_gateway::{
    exchange::Exchange,
    model::{RouteThrottles, ThrottleCost, ThrottleKey},
};
use cardea_guard::{ThrottleLimit, ThrottleLimitError};

use super::{
    super::{
        document::Cursor,
        model::{Located, SourceText, Throttle},
        raw::{RawRoute, RawThrottle},
    },
    Resolver,
    compile::{KNOWN_AT_THE_END, KNOWN_BEFORE_ROUTE, is_path},
};

/// The attributes that are known once the route is, beside those known before.
const KNOWN_OF_ROUTE: [&str; 2] = ["route.", "service."];
/// The attributes that are known once a request is authorized, beside these.
const KNOWN_OF_CALLER: [&str; 2] = ["token.", "policy."];

/// When an attribute is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    WithRoute,
    WithCaller,
    TooLate,
}

/// What the parts of a throttle read.
#[derive(Default)]
pub(super) struct Reads {
    identity: bool,
    /// The service, which a route to several services knows only once it is chosen.
    pub(super) service: bool,
    pub(super) path: bool,
}

impl Resolver<'_> {
    pub(super) fn throttles(
        &mut self,
        raw: Vec<RawThrottle>,
        routes: &[RawRoute],
        at: Cursor<'_>,
    ) -> Vec<Located<Throttle>> {
        // Routes change attributes once it is known who is calling.
        let edits = routes.iter().flat_map(|route| route.attributes.iter());
        let changed: BTreeSet<&str> =
            edits.flat_map(|edits| edits.set.keys().chain(&edits.remove)).map(String::as_str).collect();
        self.each(raw, at, |this, raw, at| this.throttle(raw, &changed, at))
    }

    fn throttle(&mut self, raw: RawThrottle, changed: &BTreeSet<&str>, at: Cursor<'_>) -> Throttle {
        let rate = self.throttle_rate(&raw, at);
        let mut reads = Reads::default();
        let (mut key, mut attributes) = (Vec::new(), Vec::new());
        for (index, text) in raw.key.into_iter().enumerate() {
            let at = at.key("key").index(index);
            let written = SourceText { text, at: at.location() };
            if let Some(reference) = self.reference(&written) {
                if matches!(reference.kind(), Kind::List | Kind::Map) {
                    let kind = reference.kind();
                    self.error(
                        at,
                        format!("{:?} is of type {kind}, by which nothing can be counted", written.text),
                        "name an attribute with one value, or make one in an [[attribute]]",
                    );
                }
                self.note_headers(std::iter::once(&reference));
                self.note_reads(&mut reads, changed, [(written.text.as_str(), &reference)].into_iter(), at);
                attributes.push(reference);
            }
            key.push(written);
        }
        let when = self.condition(raw.when, at.key("when"));
        if let Some(when) = &when {
            self.note_reads(&mut reads, changed, when.references(), at.key("when"));
        }
        let cost = self.cost(raw.cost, rate, at.key("cost"));
        if let Some(cost) = &cost {
            self.note_reads(&mut reads, changed, cost.expression().references(), at.key("cost"));
        }
        Throttle {
            name: raw.name,
            written_key: key,
            key: ThrottleKey {
                attributes: attributes.into(),
                ipv4_prefix: raw.ipv4_prefix,
                ipv6_prefix: raw.ipv6_prefix,
            },
            rate,
            max_in_flight: raw.max_in_flight,
            when,
            cost,
            dry_run: raw.dry_run,
            report: raw.report,
            all_routes: raw.all_routes,
            keys_max: raw.keys_max,
            needs_identity: reads.identity,
            reads_service: reads.service,
            reads_path: reads.path,
        }
    }

    /// The rate of a throttle, and whether its keys fit together.
    fn throttle_rate(&mut self, raw: &RawThrottle, at: Cursor<'_>) -> Option<ThrottleLimit> {
        let Some(rate) = &raw.rate else {
            if at.lost_any(&["rate", "max_in_flight"]) {
                return None;
            }
            if raw.max_in_flight.is_none() {
                self.error(
                    at,
                    "this throttle limits nothing",
                    "add rate = \"100/s\", or max_in_flight = 10 for requests in flight",
                );
            }
            let of_rate = raw.burst.map(|_| "burst").or(raw.cost.as_ref().map(|_| "cost"));
            if let Some(key) = of_rate {
                self.error(
                    at.key(key),
                    format!("{key} without a rate: a request in flight counts as one"),
                    "add a rate, or remove the key",
                );
            }
            return None;
        };
        let burst = raw.burst.unwrap_or(rate.count);
        let limit = ThrottleLimit::new(rate.count, rate.per, burst).unwrap_or_else(|error| {
            let remedy = match error {
                ThrottleLimitError::Zero => "write at least 1",
                ThrottleLimitError::TooFast => "write at most \"1000000/s\"",
                ThrottleLimitError::TooLong => "lower the burst or raise the rate",
            };
            let key = if error == ThrottleLimitError::TooLong { "burst" } else { "rate" };
            if !at.lost_any(&["rate", "burst"]) {
                self.error(at.key(key), error.to_string(), remedy);
            }
            ThrottleLimit::default()
        });
        Some(limit)
    }

    /// The expression of a cost.
    fn cost(
        &mut self,
        written: Option<String>,
        rate: Option<ThrottleLimit>,
        at: Cursor<'_>,
    ) -> Option<ThrottleCost> {
        let expression = self.expression(written, at)?;
        self.note_headers(expression.references().map(|(_, reference)| reference));
        let kind = expression.kind();
        if !matches!(kind, Kind::Int | Kind::Double | Kind::Any) {
            self.error(
                at,
                format!("a cost is a number, and this is of type {kind}"),
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
        let burst = rate.map_or(u64::MAX, ThrottleLimit::burst);
        match cost.units(&Exchange::default()) {
            None => self.error(at, "the cost is no number of at least 0", "write one"),
            Some(cost) if cost > burst => self.error(
                at,
                format!("the cost ({cost}) is above the burst ({burst}): every request is refused"),
                "lower the cost or raise the burst",
            ),
            Some(_) => {}
        }
        Some(cost)
    }

    /// Records what a part of a throttle reads, and reports what is not known when requests are counted.
    pub(super) fn note_reads<'r>(
        &mut self,
        reads: &mut Reads,
        changed: &BTreeSet<&str>,
        references: impl Iterator<Item = (&'r str, &'r Reference<Exchange>)>,
        at: Cursor<'_>,
    ) {
        for (name, reference) in references {
            let sources = self.names.sources(reference);
            reads.path |= sources.iter().any(|source| is_path(source));
            reads.service |= sources.iter().any(|source| is_service(source));
            if let Some(source) = sources.iter().find(|source| known(source) == Known::TooLate) {
                let what = if source == name {
                    format!("{name:?}")
                } else {
                    format!("{name:?} reads {source:?}, which")
                };
                self.error(
                    at,
                    format!("{what} is not known yet when requests are counted"),
                    "read request, source, destination, connection, gateway, route, service or token, or attributes made of these",
                );
            }
            let needs_identity =
                |source: &String| known(source) == Known::WithCaller || changed.contains(source.as_str());
            reads.identity |= changed.contains(name) || sources.iter().any(needs_identity);
        }
    }

    /// The throttles that a route or a service names.
    pub(super) fn throttle_names(
        &mut self,
        raw: Vec<String>,
        throttles: &[Located<Throttle>],
        at: Cursor<'_>,
    ) -> Vec<String> {
        self.known_names("throttle", &raw, throttles.iter().map(|throttle| throttle.name.as_str()), at);
        self.no_repetition(&raw, at);
        raw
    }
}

/// Whether this is an attribute of the service.
pub(super) fn is_service(source: &str) -> bool {
    source.starts_with("service.")
}

/// Whether an attribute is known once a request is authorized.
pub(super) fn is_known_when_counted(source: &str) -> bool {
    known(source) != Known::TooLate
}

fn known(source: &str) -> Known {
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

/// The throttles of all routes and those that are named, each once, by their places in the configuration.
pub(crate) fn throttles_of<'n>(
    throttles: &[Located<Throttle>],
    named: impl Iterator<Item = &'n String> + Clone,
) -> RouteThrottles {
    let is_meant =
        |throttle: &Throttle| throttle.all_routes || named.clone().any(|name| *name == throttle.name);
    let meant = throttles.iter().enumerate().filter(|(_, throttle)| is_meant(throttle));
    let (after, before): (Vec<_>, Vec<_>) = meant.partition(|(_, throttle)| throttle.needs_identity);
    let places = |throttles: Vec<(usize, _)>| throttles.into_iter().map(|(index, _)| index).collect();
    RouteThrottles { before_identification: places(before), after_authorization: places(after) }
}

/// Whether any of the throttles counts by the path.
pub(crate) fn throttles_read_path<'p>(
    throttles: &[Located<Throttle>],
    counted: impl Iterator<Item = &'p usize>,
) -> bool {
    let mut counted = counted.filter_map(|place| throttles.get(*place));
    counted.any(|throttle| throttle.reads_path)
}
