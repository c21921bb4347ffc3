//! The tarpit: refusals of repeat offenders are sent late, slowly or not at all.
//!
//! It changes when a refusal is sent, never whether a request is refused. A request that is held was recorded and given back:
//! all that is left of it is its refusal.

mod hold;
mod origin;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use cardea_clock::{Clock, Mono};
use cardea_guard::{HeldOffender, Offender, Tarpit, TarpitBounds, TarpitFull};
use cardea_identity::TokenError;
use nix::sys::resource::{Resource, getrlimit};

use self::hold::Hold;
pub(crate) use self::hold::{Drip, HeldRefusal};
use crate::{
    conditions,
    exchange::{ConnectionFacts, Exchange},
    gateway::Gateway,
    memory,
    metrics::TarpitMetrics,
    model::{Model, TarpitAction, TarpitModel},
    refusal::Reason,
    response::{Outcome, ResponseBody, has_body},
};

/// How many offenders are remembered, at about 100 bytes each.
const OFFENDERS_MAX: usize = 65_536;

/// No request is held for so long after descriptors or memory were short.
const SUSPENDED_FOR: Duration = Duration::from_secs(10);

/// The part of the descriptors that held requests may have.
const DESCRIPTORS_PART: u64 = 4;

/// Why a request counts as an offence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offence {
    /// The credentials of a client are wrong, or were too often.
    WrongCredentials,
    /// The signature of a token is wrong.
    BadSignature,
    /// A throttle refuses it.
    Throttled,
}

impl Offence {
    /// Its name in attributes.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WrongCredentials => "wrong_credentials",
            Self::BadSignature => "bad_signature",
            Self::Throttled => "throttled",
        }
    }

    /// The offence that leads to a refusal, if it is for one.
    pub(crate) fn of(reason: &Reason) -> Option<Self> {
        match reason {
            Reason::RateLimited { .. } | Reason::TooManyInFlight => Some(Self::Throttled),
            Reason::TokenInvalid(code) if *code == TokenError::SignatureInvalid.code() => {
                Some(Self::BadSignature)
            }
            _ => None,
        }
    }
}

/// What became of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    Held,
    Dripped,
    Dropped,
    /// It was to be held, and there are as many as there may be: in all, of the prefix, of the identity, or (`None`) of the
    /// connection.
    Shed(Option<TarpitFull>),
}

impl Measure {
    /// Its name in attributes and metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Dripped => "dripped",
            Self::Dropped => "dropped",
            Self::Shed(Some(TarpitFull::Total)) => "shed_total",
            Self::Shed(Some(TarpitFull::Prefix)) => "shed_prefix",
            Self::Shed(Some(TarpitFull::Identity)) => "shed_identity",
            Self::Shed(None) => "shed_connection",
        }
    }

    /// All of them, in the order of their metrics.
    pub(crate) const ALL: [Self; 7] = [
        Self::Held,
        Self::Dripped,
        Self::Dropped,
        Self::Shed(Some(TarpitFull::Total)),
        Self::Shed(Some(TarpitFull::Prefix)),
        Self::Shed(Some(TarpitFull::Identity)),
        Self::Shed(None),
    ];
}

/// What is known of a request that offends.
#[derive(Debug, Default)]
pub(crate) struct TarpitFacts {
    /// Why it counts as an offence.
    pub(crate) offence: Option<Offence>,
    /// What becomes of its refusal, where it is not sent at once.
    pub(crate) measure: Option<Measure>,
    /// For how long it is to be held, in milliseconds; 0 where it is not.
    delay_milliseconds: u16,
}

impl TarpitFacts {
    /// For how long the refusal is to be held, where it is.
    pub(crate) fn delay(&self) -> Option<Duration> {
        (self.delay_milliseconds > 0).then(|| Duration::from_millis(self.delay_milliseconds.into()))
    }
}

/// The tarpit of a gateway.
#[derive(Debug)]
pub struct GatewayTarpit {
    state: Arc<Tarpit>,
    metrics: TarpitMetrics,
    clock: Clock,
    /// Until when no request is held, in nanoseconds of [`Mono`].
    suspended_until: AtomicU64,
}

impl GatewayTarpit {
    pub(crate) fn new(metrics: TarpitMetrics, clock: Clock) -> Arc<Self> {
        let state = Tarpit::new(OFFENDERS_MAX);
        Arc::new(Self { state, metrics, clock, suspended_until: AtomicU64::new(0) })
    }

    /// How many requests are held; a gauge.
    #[must_use]
    pub fn held(&self) -> usize {
        self.state.held()
    }

    /// How many offenders are remembered; a gauge.
    #[must_use]
    pub fn offenders(&self) -> usize {
        self.state.offenders()
    }

    /// Whose requests are held.
    #[must_use]
    pub fn list(&self) -> Vec<HeldOffender> {
        self.state.list()
    }

    /// Has what is held of an offender, or of all, answered now, and forgets their offences. How many were held.
    pub fn release(&self, which: Option<&Offender>) -> usize {
        self.state.release(which)
    }

    /// Has all that are held answered now.
    pub(crate) fn release_all(&self) {
        self.state.release_all();
    }

    /// Ends what is due.
    pub(crate) fn advance(&self) {
        self.state.advance(self.clock.mono());
    }

    /// Drops one request that is held, to make room. Whether there was one.
    pub(crate) fn evict_one(&self) -> bool {
        self.state.evict(1) > 0
    }

    /// Descriptors or memory are short: drops all that are held, and holds nothing for a while.
    pub(crate) fn suspend(&self, now: Mono) {
        self.suspended_until.store(now.saturating_add(SUSPENDED_FOR).nanos(), Relaxed);
        self.state.evict(usize::MAX);
    }

    fn is_suspended(&self, now: Mono) -> bool {
        now.nanos() < self.suspended_until.load(Relaxed) || memory::is_exhausted()
    }
}

/// How many may be held, by a share of the descriptors that the process may have now.
fn within_descriptors(bounds: TarpitBounds) -> TarpitBounds {
    let share = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft / DESCRIPTORS_PART);
    TarpitBounds { held_max: bounds.held_max.min(u32::try_from(share).unwrap_or(u32::MAX)), ..bounds }
}

/// What becomes of the refusal of a request that offends.
pub(crate) fn meet(
    gateway: &Gateway,
    offence: Offence,
    outcome: Outcome,
    exchange: &mut Exchange,
) -> Outcome {
    let Some(model) = exchange.model.clone() else { return outcome };
    let Some(settings) = &model.tarpit else { return outcome };
    exchange.tarpit.offence = Some(offence);
    match outcome {
        Outcome::Respond(response) if concerns(settings, exchange) => {
            decide(gateway, &model, settings, Outcome::Respond(response), exchange)
        }
        outcome => outcome,
    }
}

/// Whose offence a request would be, if it were one; none where it would not count.
pub(crate) fn offender_of(
    model: &Model,
    settings: &TarpitModel,
    exchange: &mut Exchange,
) -> Option<Offender> {
    if concerns(settings, exchange) { origin::of(model, exchange).offender() } else { None }
}

/// Whether the offences of such a request count.
fn concerns(settings: &TarpitModel, exchange: &Exchange) -> bool {
    let is_allowed =
        exchange.source.is_some_and(|source| settings.allow.iter().any(|net| net.contains(source)));
    let holds = |condition: &cardea_env::Condition<Exchange>| {
        condition.test(exchange).unwrap_or_else(|fault| {
            conditions::note(condition, fault, exchange);
            false
        })
    };
    !is_allowed && settings.when.as_ref().is_none_or(holds)
}

/// What becomes of a refusal that counts.
fn decide(
    gateway: &Gateway,
    model: &Model,
    settings: &TarpitModel,
    outcome: Outcome,
    exchange: &mut Exchange,
) -> Outcome {
    let (tarpit, now) = (&gateway.tarpit, gateway.clock.mono());
    let origin = origin::of(model, exchange);
    let (Some(offender), Some(connection)) = (origin.offender(), exchange.connection.clone()) else {
        return outcome;
    };
    if !tarpit.state.offend(&offender, settings.limit, now) || tarpit.is_suspended(now) {
        return outcome;
    }
    let Outcome::Respond(mut response) = outcome else { return outcome };
    let delay = delay(settings, exchange);
    let until = now.saturating_add(delay);
    let bytes = match &response.body {
        ResponseBody::Bytes { bytes, .. } if has_body(exchange.head.method, response.head.status) => {
            Some(Arc::clone(bytes))
        }
        _ => None,
    };
    let measure = match settings.action {
        TarpitAction::Off => return Outcome::Respond(response),
        // To close the connection of a proxy would be to drop what others send by it.
        TarpitAction::Drop if exchange.peer_trusted && !is_shared(&connection) => {
            return Outcome::Respond(response);
        }
        TarpitAction::Drop => Measure::Dropped,
        TarpitAction::Drip if bytes.is_some() => Measure::Dripped,
        TarpitAction::Drip | TarpitAction::Hold => Measure::Held,
    };
    if measure == Measure::Dropped {
        tarpit.note(exchange, measure, None);
        return Outcome::Close;
    }
    let wake_at = if measure == Measure::Dripped { Drip::first(now, until) } else { until };
    let hold = if connection.activity.hold_one(settings.per_connection_max) {
        let held = tarpit.state.hold(origin, within_descriptors(settings.bounds), wake_at, now);
        held.inspect_err(|_| connection.activity.held_one_less()).map_err(Some)
    } else {
        Err(None)
    };
    let place = match hold {
        // Looked at only now, as those that stop the gateway release what is held before.
        Ok(place) if gateway.is_stopping() => {
            drop(Hold::new(Arc::clone(tarpit), place, connection));
            return Outcome::Respond(response);
        }
        Ok(place) => place,
        Err(full) => {
            tarpit.note(exchange, Measure::Shed(full), None);
            return shed(&connection, delay, exchange);
        }
    };
    let hold = Hold::new(Arc::clone(tarpit), place, connection);
    tarpit.note(exchange, measure, Some(delay));
    // The rest of the request is not read, so the connection is of no more use.
    response.close = true;
    if measure == Measure::Dripped
        && let Some(bytes) = bytes
    {
        response.body = ResponseBody::Drip(Box::new(Drip::new(hold, bytes, until)));
        return Outcome::Respond(response);
    }
    Outcome::Hold(Box::new(HeldRefusal::new(hold, response, exchange)))
}

/// How long this request is held. Those that come together do not leave together.
fn delay(settings: &TarpitModel, exchange: &Exchange) -> Duration {
    let spread = settings.delay_max.saturating_sub(settings.delay_min).as_millis();
    let spread = u64::try_from(spread).unwrap_or(0).saturating_add(1);
    settings.delay_min + Duration::from_millis(exchange.id.sample() % spread)
}

/// Whether other requests may be under way on the connection.
fn is_shared(connection: &ConnectionFacts) -> bool {
    connection.activity.account().is_multiplexed()
}

/// The answer where as many are held as may be.
fn shed(connection: &ConnectionFacts, delay: Duration, exchange: &mut Exchange) -> Outcome {
    let reason = Reason::TarpitFull { retry_seconds: delay.as_secs().max(1) };
    exchange.note_refusal(&reason);
    if is_shared(connection) {
        // The stream is reset.
        return Outcome::Close;
    }
    let mut response = reason.respond(exchange);
    response.close = !exchange.peer_trusted;
    Outcome::Respond(response)
}

impl GatewayTarpit {
    fn note(&self, exchange: &mut Exchange, measure: Measure, delay: Option<Duration>) {
        exchange.tarpit.measure = Some(measure);
        let milliseconds = delay.map_or(0, |delay| delay.as_millis());
        exchange.tarpit.delay_milliseconds = u16::try_from(milliseconds).unwrap_or(u16::MAX);
        self.metrics.count(measure);
    }
}
