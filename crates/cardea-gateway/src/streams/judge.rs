//! Whether a stream may go on: whether the request that began it would be let in now.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use cardea_clock::{Timestamp, Wall};
use cardea_identity::Lapse;

use super::{TerminationReason, grace};
use crate::{
    client_certificate, conditions,
    decision::{self, Circumstances, Decision},
    exchange::Exchange,
    gateway::{Gateway, ModelRef, Phase},
    model::{Model, Route},
    refusal::Reason,
};

/// Why the stream has to end now, if it has to. What only a reload takes away, only `settled` streams lose. The rules were
/// asked a moment ago about one that `is_new`.
pub(super) fn judge(
    gateway: &Gateway,
    exchange: &Exchange,
    settled: bool,
    is_new: bool,
) -> Option<TerminationReason> {
    if gateway.phase() == Phase::Ending {
        return Some(TerminationReason::Draining);
    }
    let model = gateway.model_ref();
    if let Some(verdict) = &exchange.verdict {
        match model.authenticator.lapse(verdict, gateway.clock.now(), grace(exchange)) {
            Some(Lapse::IssuerChanged) if !settled => {}
            Some(lapse) => return Some(lapse.into()),
            None => {}
        }
    }
    let Some(own) = &exchange.model else { return None };
    let now = gateway.clock.now();
    let certificate_at = certificate_time(exchange, now);
    if let Some(certificate_at) = certificate_at
        && !certificate_holds(own, exchange, certificate_at)
    {
        return Some(TerminationReason::CertificateInvalid);
    }
    let reloaded = own.generation() != model.generation();
    let depends = certificate_at.is_some() || depends_on_time(exchange);
    let due = if reloaded { settled } else { depends && !is_new };
    if due { reauthorize(own, &model, exchange, now, certificate_at).err() } else { None }
}

/// The time at which the certificate of the client is judged, where it has shown one: now, whatever the wall clock was
/// stepped back by, and within the grace after its end the last moment of it.
fn certificate_time(exchange: &Exchange, now: Timestamp) -> Option<Wall> {
    let certificate = client_certificate::shown(exchange)?;
    let begun = exchange.started;
    let wall = now.wall.max(begun.wall.saturating_add(now.mono.saturating_since(begun.mono)));
    let end = certificate.end();
    let graced = wall >= end && wall < end.saturating_add(grace(exchange));
    Some(if graced { certificate.not_after() } else { wall })
}

/// Whether the client's certificate still is what let the request in, by the model that it is carried by.
fn certificate_holds(own: &Model, exchange: &Exchange, at: Wall) -> bool {
    let rule = exchange.route().and_then(|route| route.client_certificate.as_ref());
    client_certificate::meets_host(own, exchange, at).is_ok()
        && rule.is_none_or(|rule| matches!(client_certificate::admit(rule, exchange, at), Ok(None)))
}

/// Whether a rule that has let the request in reads the time.
pub(super) fn depends_on_time(exchange: &Exchange) -> bool {
    exchange.model.as_ref().is_some_and(|model| model.environment.reads_time)
        || exchange.route().is_some_and(|route| route.rules.reads_time)
}

/// Whether the model leads the request of `exchange`, as if it came now, to a route whose demands its caller meets.
fn reauthorize(
    own: &ModelRef,
    model: &ModelRef,
    exchange: &Exchange,
    now: Timestamp,
    certificate_at: Option<Wall>,
) -> Result<(), TerminationReason> {
    let (Some(index), Some(own_route)) = (exchange.route, exchange.route()) else { return Ok(()) };
    let certificate_at = certificate_at.unwrap_or(now.wall);
    let mut before = exchange.anew(own, exchange.started, exchange.started.wall);
    let mut again = exchange.anew(model, now, certificate_at);
    // Headers were changed on the way to the service: where the own model would now choose another route by them, names
    // tell more.
    let is_faithful = decision::choose_route(own, &mut before).is_ok() && before.route == Some(index);
    before.route = Some(index);
    let mut under_way = UnderWay { own, own_route, before: &mut before, is_faithful, certificate_at };
    let judged = decide(model, &mut again, &mut under_way);
    before.recycle();
    again.recycle();
    judged
}

/// Decides without waiting: the caller is known.
fn decide(
    model: &ModelRef,
    exchange: &mut Exchange,
    under_way: &mut UnderWay<'_>,
) -> Result<(), TerminationReason> {
    let decided = pin!(decision::decide(model, exchange, under_way));
    match decided.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(Decision::Authorized(_))) => Ok(()),
        Poll::Ready(Err(Reason::RouteNotFound | Reason::MethodNotAllowed(_))) => {
            Err(TerminationReason::RouteRemoved)
        }
        _ => Err(TerminationReason::DemandUnmet),
    }
}

/// A request that is under way: its head is by now the one that the service got.
struct UnderWay<'a> {
    own: &'a ModelRef,
    own_route: &'a Route,
    /// The request as it came, with that head.
    before: &'a mut Exchange,
    /// Whether the own model would choose the own route by that head.
    is_faithful: bool,
    certificate_at: Wall,
}

impl Circumstances for UnderWay<'_> {
    fn certificate_time(&self, _: &Exchange) -> Wall {
        self.certificate_at
    }

    fn choose_route<'m>(&mut self, model: &'m Model, exchange: &mut Exchange) -> Result<&'m Route, Reason> {
        if self.is_faithful {
            decision::choose_route(model, exchange)
        } else {
            by_name(model, &self.own_route.name, exchange)
        }
    }

    async fn routed(&mut self, _: &ModelRef, _: &Route, _: &mut Exchange) -> Result<(), Reason> {
        Ok(())
    }

    /// It was checked when the request came, and may be gone by now.
    fn check_body(&mut self, _: &Route, _: &Exchange) -> Result<(), Reason> {
        Ok(())
    }

    /// The caller's verdict was looked at before.
    async fn identify(&mut self, _: &ModelRef, _: &Route, _: &mut Exchange) -> Result<(), Reason> {
        Ok(())
    }

    fn check_policies(
        &mut self,
        model: &Model,
        route: &Route,
        exchange: &mut Exchange,
    ) -> Result<(), Reason> {
        conditions::check(model, route, exchange).or_else(|reason| {
            conditions::change_attributes(&self.own_route.rules.attributes, self.before);
            // A denial that did not hold when the request came, with the head as it is now, is about something else.
            let before: Vec<_> = conditions::denials(self.own, self.own_route, self.before).collect();
            if conditions::denials(model, route, exchange).any(|denial| !before.contains(&denial)) {
                return Err(reason);
            }
            // A policy that reads what was changed on the way says nothing now, in its own model either.
            let says_nothing = conditions::check(self.own, self.own_route, self.before).is_err();
            if says_nothing { Ok(()) } else { Err(reason) }
        })
    }
}

/// The route of this name. Whether it hides the path of another can't be told by a head that was changed.
fn by_name<'m>(model: &'m Model, name: &str, exchange: &mut Exchange) -> Result<&'m Route, Reason> {
    let named = |at: &usize| model.router.get(*at).is_some_and(|route| route.name == name);
    exchange.route = (0..model.router.len()).find(named);
    let route = exchange.route.and_then(|at| model.router.get(at)).ok_or(Reason::RouteNotFound)?;
    if exchange.path_flags.parameters && !route.allow.parameters {
        return Err(Reason::PathEncodingNotAllowed);
    }
    Ok(route)
}
