//! Whether a stream may go on: whether the request that began it would be let in now.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use cardea_clock::{Mono, Timestamp, Wall};
use cardea_identity::{Lapse, VerdictRef};

use super::{TerminationReason, grace};
use crate::{
    client_certificate,
    decision::{self, Circumstances, Decision},
    exchange::Exchange,
    gateway::{Gateway, ModelRef, Phase},
    model::{Destination, Model, Route},
    refusal::Reason,
};

/// The verdict on the token of a stream that was reached after its issuer had changed.
#[derive(Debug, Clone)]
pub(super) struct Renewed {
    pub(super) verdict: VerdictRef,
    /// The end of its window, by the monotonic clock. The wall clock extends nothing that was granted before.
    pub(super) deadline: Mono,
}

impl Renewed {
    fn new(verdict: VerdictRef, before: &VerdictRef, deadline: Mono) -> Self {
        let longer = verdict.not_after.saturating_since(before.not_after);
        let shorter = before.not_after.saturating_since(verdict.not_after);
        let granted = deadline.saturating_add(longer).saturating_sub(shorter);
        Self { deadline: granted.min(verdict.deadline), verdict }
    }
}

/// What is to become of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    GoesOn,
    /// It goes on without its token, which is not valid any more for this reason: a reload has opened its route, so a request
    /// with the token would be let in, as nobody's. But nothing more may be begun in the name of the caller.
    Released(TerminationReason),
    Ends(TerminationReason),
}

/// Whether the stream has to end now. What only a reload takes away, only `settled` streams lose. The rules were asked a moment
/// ago about one that `is_new`. Its token is verified again after its issuer's settings or keys have changed, and `renewed`
/// holds the result.
pub(super) fn judge(
    gateway: &Gateway,
    exchange: &Exchange,
    renewed: &mut Option<Box<Renewed>>,
    settled: bool,
    is_new: bool,
) -> Judgement {
    if gateway.phase() == Phase::Ending {
        return Judgement::Ends(TerminationReason::Draining);
    }
    let model = gateway.model_ref();
    let lapse = lapse(gateway, &model, exchange, renewed, settled);
    if lapse == Some(Lapse::Revoked) {
        // Whatever the route asks for by now: the service goes on acting for a caller who is to be stopped.
        return Judgement::Ends(Lapse::Revoked.into());
    }
    let Some(own) = &exchange.model else {
        return lapse.map_or(Judgement::GoesOn, |lapse| Judgement::Ends(lapse.into()));
    };
    let now = gateway.clock.now();
    let certificate_at = certificate_time(exchange, now);
    if certificate_at.is_some_and(|at| !certificate_holds(own, exchange, at)) {
        // As above: it may be revoked.
        return Judgement::Ends(TerminationReason::CertificateInvalid);
    }
    let lapse = lapse.map(TerminationReason::from);
    let reloaded = own.generation() != model.generation();
    let depends = certificate_at.is_some() || depends_on_time(exchange);
    let due = if reloaded { settled } else { depends && !is_new };
    match lapse {
        Some(end) if !reloaded => return Judgement::Ends(end),
        None if !due => return Judgement::GoesOn,
        Some(_) | None => {}
    }
    let verdict = renewed.as_ref().map(|renewed| &renewed.verdict).or(exchange.verdict.as_ref());
    let verdict = verdict.filter(|_| lapse.is_none());
    let decided = decide_again(&model, exchange, verdict, now, certificate_at.unwrap_or(now.wall));
    match (decided, lapse) {
        (Ok(()), None) => Judgement::GoesOn,
        (Ok(()), Some(end)) => Judgement::Released(end),
        (Err(_), Some(end)) | (Err(end), None) => Judgement::Ends(end),
    }
}

/// Why the token of the stream is no longer valid, if it is not.
fn lapse(
    gateway: &Gateway,
    model: &ModelRef,
    exchange: &Exchange,
    renewed: &mut Option<Box<Renewed>>,
    settled: bool,
) -> Option<Lapse> {
    let (now, grace) = (gateway.clock.now(), grace(exchange));
    let (held, deadline) = match renewed.as_ref() {
        Some(renewed) => (&renewed.verdict, renewed.deadline),
        None => exchange.verdict.as_ref().map(|verdict| (verdict, verdict.deadline))?,
    };
    if now.mono >= deadline.saturating_add(grace) {
        return Some(Lapse::Expired);
    }
    match model.authenticator.lapse(held, now, grace) {
        Some(Lapse::IssuerChanged) if settled => {}
        Some(Lapse::IssuerChanged) => return None,
        other => return other,
    }
    match model.authenticator.renew(held, now) {
        Ok(Some(verdict)) => {
            let new = Box::new(Renewed::new(verdict, held, deadline));
            let new = renewed.insert(new);
            let has_ended = now.mono >= new.deadline.saturating_add(grace);
            if has_ended { Some(Lapse::Expired) } else { model.authenticator.lapse(&new.verdict, now, grace) }
        }
        Ok(None) => None,
        Err(lapse) => Some(lapse),
    }
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

/// Decides on the request of `exchange` as if it came now: with the head that was received, by the present model, and to a
/// service if it went to one.
fn decide_again(
    model: &ModelRef,
    exchange: &Exchange,
    verdict: Option<&VerdictRef>,
    now: Timestamp,
    certificate_at: Wall,
) -> Result<(), TerminationReason> {
    let Some(route) = exchange.route() else { return Ok(()) };
    // Nobody could say what it would be decided on by.
    let mut again = exchange.anew(model, now).ok_or(TerminationReason::RequirementUnmet)?;
    again.verdict = verdict.cloned();
    let decided = decide(model, &mut again, UnderWay { certificate_at });
    again.recycle();
    let is_service =
        |route: &Route| matches!(route.destination, Destination::Service(_) | Destination::Split(_));
    match decided {
        Ok(found) if is_service(found) || !is_service(route) => Ok(()),
        Ok(_) | Err(Some(Reason::RouteNotFound | Reason::MethodNotAllowed(_))) => {
            Err(TerminationReason::RouteRemoved)
        }
        Err(Some(Reason::ClientCertificateInvalid)) => Err(TerminationReason::CertificateInvalid),
        Err(_) => Err(TerminationReason::RequirementUnmet),
    }
}

/// Decides without waiting: the caller is known.
fn decide<'m>(
    model: &'m ModelRef,
    exchange: &mut Exchange,
    mut under_way: UnderWay,
) -> Result<&'m Route, Option<Reason>> {
    decision::normalise(model, exchange).map_err(Some)?;
    exchange.certificate_holds = client_certificate::shown(exchange)
        .is_some_and(|certificate| certificate.holds(under_way.certificate_at));
    let decided = pin!(decision::decide(model, exchange, &mut under_way));
    match decided.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(Decision::Authorized(authorized))) => Ok(authorized.route()),
        Poll::Ready(Err(reason)) => Err(Some(reason)),
        // The client would have to show its certificate elsewhere.
        Poll::Ready(Ok(Decision::Elsewhere(_))) | Poll::Pending => Err(None),
    }
}

/// A request that is under way.
struct UnderWay {
    certificate_at: Wall,
}

impl Circumstances for UnderWay {
    fn certificate_time(&self, _: &Exchange) -> Wall {
        self.certificate_at
    }

    async fn routed(&mut self, _: &Route, _: &mut Exchange) -> Result<(), Reason> {
        Ok(())
    }

    /// It was charged when the request came.
    fn throttle(&mut self, _: &Model, _: &[usize], _: &mut Exchange) -> Result<(), Reason> {
        Ok(())
    }

    /// It was checked when the request came, and may be gone by now.
    fn check_body(&mut self, _: &Route, _: &Exchange) -> Result<(), Reason> {
        Ok(())
    }

    /// The verdict was looked at before. A route that asks for nobody gets nobody; one that asks where none did finds nobody.
    async fn identify(&mut self, _: &ModelRef, route: &Route, exchange: &mut Exchange) -> Result<(), Reason> {
        if route.requirement.is_none() {
            exchange.verdict = None;
        }
        Ok(())
    }
}
