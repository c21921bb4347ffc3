//! Charges requests to the throttles of their route, and tells clients where they stand.

use std::{ops::Range, time::Duration};

use cardea_guard::{Charge, InFlightPlace, ThrottleStanding};
use cardea_http::ResponseHead;
use smallvec::SmallVec;

use crate::{
    conditions,
    exchange::Exchange,
    gateway::Gateway,
    model::{Model, Throttle, ThrottleRate, ThrottleReport},
    refusal::Reason,
};

/// The decisions of throttles on a request.
#[derive(Debug, Default)]
pub(crate) struct ThrottleFacts {
    /// The throttle that refused it; else the one that would have, but for its dry run.
    pub(crate) refused_by: Option<RefusedBy>,
    /// The standings that the client is told.
    told: SmallVec<[Told; 2]>,
    /// What it counts for as a request in flight.
    places: SmallVec<[InFlightPlace; 1]>,
}

impl ThrottleFacts {
    /// Forgets the request.
    pub(crate) fn clear(&mut self) {
        self.refused_by = None;
        self.told.clear();
        self.places.clear();
    }
}

/// A throttle that refuses a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RefusedBy {
    /// Its place in the model.
    pub(crate) throttle: u32,
    /// It is a dry run.
    pub(crate) dry_run: bool,
}

#[derive(Debug)]
struct Told {
    throttle: u32,
    /// In seconds.
    full_in: u32,
    remaining: u64,
}

/// A throttle that counts the request.
struct Counting {
    throttle: usize,
    key: Range<usize>,
    cost: u64,
    /// Whether its key may have another request in flight.
    fits_in_flight: bool,
}

/// Charges a request to the throttles at these places, to all or to none.
///
/// # Errors
/// If one refuses it, or its cost can't be evaluated.
#[inline]
pub(crate) fn charge(
    gateway: &Gateway,
    model: &Model,
    places: &[usize],
    exchange: &mut Exchange,
) -> Result<(), Reason> {
    if places.is_empty() { Ok(()) } else { charge_to(gateway, model, places, exchange) }
}

fn charge_to(
    gateway: &Gateway,
    model: &Model,
    places: &[usize],
    exchange: &mut Exchange,
) -> Result<(), Reason> {
    let mut facts = std::mem::take(&mut exchange.throttle);
    let in_flight_before = facts.places.len();
    let charged = with_charges(model, places, exchange, |exchange, counting, keys, charges| {
        // Before the rates, since a request that ends at once gives its place back, and used units do not come back.
        let fits_in_flight = enter(model, counting, keys, &mut facts);
        let fits = fits_in_flight && gateway.throttles.charge(charges, exchange.started.mono);
        if !fits {
            facts.places.truncate(in_flight_before);
        }
        let mut charged = charges.iter();
        for Counting { throttle: place, fits_in_flight: fits_one, .. } in &*counting {
            let Some(throttle) = model.throttles.get(*place) else { continue };
            let charge = throttle.rate.as_ref().and_then(|_| charged.next());
            // Where requests in flight are too many, rates were not asked.
            let standing = charge.filter(|_| fits_in_flight).map(|charge| charge.standing);
            let fits_one = *fits_one && standing.is_none_or(|standing| standing.fits);
            throttle.metrics.count(gateway.metrics.registry(), fits, fits_one, throttle.dry_run);
            let refuses = !fits_one && !throttle.dry_run;
            let place = u32::try_from(*place).unwrap_or(u32::MAX);
            let is_first = facts.refused_by.is_none_or(|known| known.dry_run && refuses);
            if !fits_one && is_first {
                facts.refused_by = Some(RefusedBy { throttle: place, dry_run: throttle.dry_run });
            }
            let is_told = match throttle.report {
                ThrottleReport::Never => false,
                ThrottleReport::Refused => refuses,
                ThrottleReport::Always => refuses || (fits && !throttle.dry_run),
            };
            if is_told && let Some(ThrottleStanding { remaining, full_in, .. }) = standing {
                let full_in = u32::try_from(whole_seconds(full_in)).unwrap_or(u32::MAX);
                facts.told.push(Told { throttle: place, full_in, remaining });
            }
        }
        if fits_in_flight { verdict(fits, charges) } else { Err(Reason::TooManyInFlight) }
    });
    exchange.throttle = facts;
    charged?
}

/// Counts a request in flight for all throttles that limit these; whether none refuses it. A dry run that does not fit is not counted.
fn enter(model: &Model, counting: &mut [Counting], keys: &[u8], facts: &mut ThrottleFacts) -> bool {
    let mut fits = true;
    for one in counting {
        let throttle = model.throttles.get(one.throttle);
        let Some((throttle, limit)) = throttle.and_then(|known| Some((known, known.in_flight.as_ref()?)))
        else {
            continue;
        };
        let Some(key) = keys.get(one.key.clone()) else { continue };
        match limit.table.enter(limit.table.hash(key), limit.max) {
            Some(place) => facts.places.push(place),
            None => {
                one.fits_in_flight = false;
                fits &= throttle.dry_run;
            }
        }
    }
    fits
}

/// The result of charges after the decision.
fn verdict(fits: bool, charges: &[Charge<'_>]) -> Result<(), Reason> {
    if fits {
        return Ok(());
    }
    let refusing = charges.iter().filter(|charge| !charge.standing.fits && !charge.dry_run);
    // All of them have to admit it. No time is given if one of them never does.
    let longest = refusing.map(|charge| charge.standing.retry_in).reduce(|one, other| Some(one?.max(other?)));
    Err(Reason::RateLimited { retry_seconds: longest.flatten().map(whole_seconds) })
}

/// The decision that a throttle would make.
pub(crate) struct Forecast<'m> {
    pub(crate) throttle: &'m Throttle,
    pub(crate) cost: u64,
    /// Of a throttle with a rate.
    pub(crate) standing: Option<ThrottleStanding>,
    /// What the key has in flight, of a throttle that limits it.
    pub(crate) in_flight: Option<u32>,
    pub(crate) fits: bool,
}

/// The decisions that the throttles at these places would make. Charges nothing.
///
/// # Errors
/// If one would refuse it, or its cost can't be evaluated.
pub(crate) fn look<'m>(
    gateway: &Gateway,
    model: &'m Model,
    places: &[usize],
    exchange: &mut Exchange,
    mut told: impl FnMut(Forecast<'m>),
) -> Result<(), Reason> {
    with_charges(model, places, exchange, |exchange, counting, keys, charges| {
        let fits = gateway.throttles.look(charges, exchange.started.mono);
        let mut charged = charges.iter();
        let mut fits_in_flight = true;
        for Counting { throttle, cost, key, .. } in &*counting {
            let Some(throttle) = model.throttles.get(*throttle) else { continue };
            let charge = throttle.rate.as_ref().and_then(|_| charged.next());
            let standing = charge.map(|charge| charge.standing);
            let key = keys.get(key.clone()).unwrap_or_default();
            let limit = throttle.in_flight.as_ref();
            let in_flight = limit.map(|limit| limit.table.count(limit.table.hash(key)));
            let has_room = limit.zip(in_flight).is_none_or(|(limit, in_flight)| in_flight < limit.max);
            fits_in_flight &= has_room || throttle.dry_run;
            let fits = has_room && standing.is_none_or(|standing| standing.fits);
            told(Forecast { throttle, cost: *cost, standing, in_flight, fits });
        }
        if fits_in_flight { verdict(fits, charges) } else { Err(Reason::TooManyInFlight) }
    })?
}

/// Gives the charges of a request to `then`, without a decision.
fn with_charges<T>(
    model: &Model,
    places: &[usize],
    exchange: &mut Exchange,
    then: impl FnOnce(&Exchange, &mut [Counting], &[u8], &mut [Charge<'_>]) -> T,
) -> Result<T, Reason> {
    let mut keys = std::mem::take(&mut exchange.scratch);
    keys.clear();
    let counting = counting(model, places, exchange, &mut keys);
    let result = counting.map(|mut counting| {
        let charge = |one: &Counting| {
            let throttle = model.throttles.get(one.throttle)?;
            let rate = throttle.rate.as_ref()?;
            let key = keys.get(one.key.clone())?;
            Some(Charge::new(&rate.table, rate.limit, key, one.cost, throttle.dry_run))
        };
        let mut charges: SmallVec<[Charge<'_>; 4]> = counting.iter().filter_map(charge).collect();
        then(exchange, &mut counting, &keys, &mut charges)
    });
    keys.clear();
    exchange.scratch = keys;
    result
}

/// The throttles that count a request, with their keys.
fn counting(
    model: &Model,
    places: &[usize],
    exchange: &Exchange,
    keys: &mut Vec<u8>,
) -> Result<SmallVec<[Counting; 4]>, Reason> {
    let mut counting = SmallVec::new();
    for place in places {
        let Some(throttle) = model.throttles.get(*place) else { continue };
        // A condition that can't be evaluated counts the request: making it fail is no way past the limit.
        let is_meant = throttle.when.as_ref().is_none_or(|condition| {
            condition.test(exchange).unwrap_or_else(|fault| {
                conditions::note(condition, fault, exchange);
                true
            })
        });
        if !is_meant {
            continue;
        }
        let cost = match throttle.cost.as_ref().map_or(Some(1), |cost| cost.units(exchange)) {
            Some(cost) => cost,
            None if throttle.dry_run => continue,
            // A cost of nothing would be a way past the limit, and one of the whole burst a way to use up a shared one.
            None => return Err(Reason::ThrottleFailed),
        };
        let start = keys.len();
        throttle.key.render(exchange, keys);
        counting.push(Counting { throttle: *place, key: start..keys.len(), cost, fits_in_flight: true });
    }
    Ok(counting)
}

/// Adds the `RateLimit` and `RateLimit-Policy` fields (draft-ietf-httpapi-ratelimit-headers-10). Both are lists, so those of the
/// service are kept.
pub(crate) fn tell(exchange: &Exchange, head: &mut ResponseHead) {
    if exchange.throttle.told.is_empty() {
        return;
    }
    let Some(model) = &exchange.model else { return };
    let (mut policies, mut standings) = (String::new(), String::new());
    for Told { throttle, remaining, full_in } in &exchange.throttle.told {
        let Some(throttle) = model.throttles.get(*throttle as usize) else { continue };
        let separator = if policies.is_empty() { "" } else { ", " };
        // Names are letters, digits, `-`, `_` and `.`, which stand in a string as they are (RFC 9651 §3.3.3).
        let Some(ThrottleRate { limit, .. }) = &throttle.rate else { continue };
        let name = &throttle.name;
        let (burst, window) = (limit.burst(), whole_seconds(limit.window()));
        policies.push_str(&format!("{separator}\"{name}\";q={burst};w={window}"));
        standings.push_str(&format!("{separator}\"{name}\";r={remaining};t={full_in}"));
    }
    // A head without room stays as it is.
    let _ = head.fields.append(b"RateLimit-Policy", policies.as_bytes());
    let _ = head.fields.append(b"RateLimit", standings.as_bytes());
}

/// Seconds in which as much time has passed.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}
