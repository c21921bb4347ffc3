//! Charges requests to the throttles of their route, and tells clients where they stand.

use std::{ops::Range, time::Duration};

use cardea_guard::{Charge, ThrottleStanding};
use cardea_http::ResponseHead;
use smallvec::SmallVec;

use crate::{
    conditions,
    exchange::Exchange,
    gateway::Gateway,
    model::{Model, Throttle, ThrottleReport},
    refusal::Reason,
};

/// The decisions of throttles on a request.
#[derive(Debug, Default)]
pub(crate) struct ThrottleFacts {
    /// The throttle that refused it, by its place in the model.
    pub(crate) refused_by: Option<usize>,
    /// The throttle that would have refused it, but for its dry run.
    pub(crate) dry_run_by: Option<usize>,
    /// The standings that the client is told.
    told: SmallVec<[Told; 2]>,
}

impl ThrottleFacts {
    /// Forgets the request.
    pub(crate) fn clear(&mut self) {
        self.refused_by = None;
        self.dry_run_by = None;
        self.told.clear();
    }
}

#[derive(Debug)]
struct Told {
    throttle: usize,
    remaining: u64,
    full_in: Duration,
}

/// A throttle that counts the request.
struct Counting {
    throttle: usize,
    key: Range<usize>,
    cost: u64,
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
    let charged = with_charges(model, places, exchange, |exchange, counting, charges| {
        let fits = gateway.throttles.charge(charges, exchange.started.mono);
        for (Counting { throttle: place, .. }, charge) in counting.iter().zip(&*charges) {
            let Some(throttle) = model.throttles.get(*place) else { continue };
            let ThrottleStanding { fits: fits_one, remaining, full_in, .. } = charge.standing;
            throttle.metrics.count(gateway.metrics.registry(), fits, fits_one, throttle.dry_run);
            let refuses = !fits_one && !throttle.dry_run;
            if refuses {
                facts.refused_by.get_or_insert(*place);
            } else if !fits_one {
                facts.dry_run_by.get_or_insert(*place);
            }
            let is_told = match throttle.report {
                ThrottleReport::Never => false,
                ThrottleReport::Refused => refuses,
                ThrottleReport::Always => refuses || (fits && !throttle.dry_run),
            };
            if is_told {
                facts.told.push(Told { throttle: *place, remaining, full_in });
            }
        }
        verdict(fits, charges)
    });
    exchange.throttle = facts;
    charged?
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
    pub(crate) standing: ThrottleStanding,
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
    with_charges(model, places, exchange, |exchange, counting, charges| {
        let fits = gateway.throttles.look(charges, exchange.started.mono);
        for (Counting { throttle, cost, .. }, charge) in counting.iter().zip(&*charges) {
            if let Some(throttle) = model.throttles.get(*throttle) {
                told(Forecast { throttle, cost: *cost, standing: charge.standing });
            }
        }
        verdict(fits, charges)
    })?
}

/// Gives the charges of a request to `then`, without a decision.
fn with_charges<T>(
    model: &Model,
    places: &[usize],
    exchange: &mut Exchange,
    then: impl FnOnce(&Exchange, &[Counting], &mut [Charge<'_>]) -> T,
) -> Result<T, Reason> {
    let mut keys = std::mem::take(&mut exchange.scratch);
    keys.clear();
    let counting = counting(model, places, exchange, &mut keys);
    let result = counting.map(|counting| {
        let charge = |one: &Counting| {
            let throttle = model.throttles.get(one.throttle)?;
            let key = keys.get(one.key.clone())?;
            Some(Charge::new(&throttle.table, throttle.limit, key, one.cost, throttle.dry_run))
        };
        let mut charges: SmallVec<[Charge<'_>; 4]> = counting.iter().filter_map(charge).collect();
        then(exchange, &counting, &mut charges)
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
        counting.push(Counting { throttle: *place, key: start..keys.len(), cost });
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
        let Some(throttle) = model.throttles.get(*throttle) else { continue };
        let separator = if policies.is_empty() { "" } else { ", " };
        // Names are letters, digits, `-`, `_` and `.`, which stand in a string as they are (RFC 9651 §3.3.3).
        let (name, limit) = (&throttle.name, throttle.limit);
        let (burst, window) = (limit.burst(), whole_seconds(limit.window()));
        policies.push_str(&format!("{separator}\"{name}\";q={burst};w={window}"));
        let full_in = whole_seconds(*full_in);
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
