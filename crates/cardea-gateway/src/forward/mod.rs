//! Carries a request to a service: a loop over attempts.
//!
//! An attempt ends the loop unless it is safe to make another: nothing was sent, or the method is idempotent and all
//! of the body can be sent again (RFC 9110 §9.2.2). The next goes to an endpoint that has not failed, where there is
//! one. A connection that was kept may have been closed by the service meanwhile (RFC 9112 §9.3.1): its failure before any
//! byte of a response is none of the endpoint's, and the next attempt is made over a fresh connection.

mod abandon;
mod acquire;
mod attempt;
mod body;
mod budget;
mod converse;
mod error;
pub(crate) mod headers;
mod mirror;
mod replay;
mod request;
mod respond;
mod retries;
mod way;

use cardea_http::Known;
use cardea_upstream::Affinity;

pub(crate) use abandon::abandon;
pub(crate) use attempt::Attempt;
pub use budget::BodyBudget;
pub(crate) use request::preview;

use crate::{
    decision::Authorized,
    downstream::Downstream,
    early_data,
    exchange::Exchange,
    gateway::{Gateway, ModelRef},
    memory,
    model::Service,
    refusal::Reason,
    response::Outcome,
    streams::StreamWatch,
    timer::Timer,
    workers,
};
use acquire::establish;
use converse::converse;
use error::AttemptError;
use retries::Attempts;
use way::Way;

/// What a service says that won't carry out what may be a replay (RFC 8470 §5.2).
const TOO_EARLY: u16 = 425;

/// Carries the request of `exchange` to `service`.
pub(crate) async fn forward(
    gateway: &Gateway,
    model: &ModelRef,
    authorized: Authorized<'_>,
    service: &Service,
    exchange: &mut Exchange,
    client: &mut dyn Downstream,
    timer: &mut Timer,
) -> Result<Outcome, Reason> {
    let state = service.live.current(workers::current());
    let way = Way { gateway, model, route: authorized.route(), service, state: &state };
    exchange.upstream.service = Some(state.clone());
    if memory::is_exhausted() {
        return Err(Reason::Overloaded);
    }
    if exchange.upgrade && !service.protocol.has_upgrade() {
        return Err(Reason::UpgradeUnsupported);
    }
    // The coarse clock may not have reached the time at which the request came.
    if exchange.client_deadline <= exchange.started.mono.max(timer.now()) {
        return Err(Reason::DeadlineExceeded);
    }
    // Who said so to us is told of a 425 (RFC 8470 §5.2).
    let may_repeat = exchange.early_data && !exchange.head.fields.contains(Known::EarlyData);
    // By the request as it came: preparing it changes its head.
    let affinity = affinity(service, exchange);
    let length = client.body_length();
    let copy = mirror::begin(way, exchange, length);
    request::prepare(model, way.route, exchange, length)?;
    let mut replay = way.replay(exchange, length);
    replay.copy_to(copy.and_then(|copy| copy.with_head(way, exchange)));
    // From here on, it is asked for its way: the future has a place for one.
    let mut attempts = Attempts::begin(way, affinity);
    let now = exchange.started.mono.max(timer.now());
    let mut next = attempts.choose(exchange, now).ok_or_else(|| attempts.way().nothing_to_choose())?;
    let mut fresh = false;
    let mut watch = StreamWatch::new(gateway);
    loop {
        let (choice, endpoint) = next;
        exchange.upstream.attempts += 1;
        exchange.upstream.endpoint = Some(choice.endpoint);
        // A block, so that the future has no place for what is gone when the request is sent.
        let mut attempt = {
            // Counted before there is a connection: who waits for one is load too.
            let in_flight = endpoint.begin(workers::current());
            // None of what is kept is there while another is made.
            let acquired = if !fresh
                && let Some(kept) = acquire::kept(next, attempts.way().offer(exchange), exchange, timer)
            {
                Some((kept, in_flight))
            } else {
                // Boxed, as nearly all requests go over a connection that is there.
                let establish =
                    establish(&mut attempts, &mut next, in_flight, exchange, client, &mut watch, timer);
                Box::pin(establish).await?
            };
            let Some((connection, in_flight)) = acquired else { continue };
            // What is sent can't be taken back: not even a revocation of a moment ago may be missed.
            let has_waited = exchange.upstream.attempts > 1 || !exchange.upstream.reused;
            if has_waited && let Some(end) = watch.check(exchange) {
                return Err(Reason::StreamEnded(end));
            }
            Box::new(attempts.way().begin(connection, in_flight, exchange, length, replay))
        };
        let (result, sent) =
            converse(attempts.way(), &mut attempt, exchange, client, &mut watch, timer).await;
        let now = timer.precise();
        if let Err(error) = result {
            attempts.way().report_failure(choice, error, &attempt, exchange, now, sent);
            if error == AttemptError::ClientAborted {
                abandon(attempt, false, client);
                return Err(error.into());
            }
            next = attempts.after_failure(choice, error, &attempt, exchange, timer).ok_or(error)?;
            fresh = true;
        } else {
            exchange.count_memory();
            attempts.way().report_response(choice, exchange, now, sent);
            if may_repeat
                && exchange.early_data
                && attempt.is_replayable()
                && exchange.response_head.status == TOO_EARLY
            {
                Box::pin(early_data::wait(gateway, exchange, client, timer)).await?;
                exchange.head.fields.remove(Known::EarlyData);
                replay = attempt.into_replay();
                next = attempts
                    .choose(exchange, timer.precise())
                    .ok_or_else(|| attempts.way().nothing_to_choose())?;
                continue;
            }
            let Some(chosen) = attempts.after_response(choice, &attempt, exchange, timer) else {
                exchange.upstream.status = exchange.response_head.status;
                exchange.upstream.response_head = Some(now.saturating_since(exchange.started.mono));
                return respond::respond(model, attempts.way().route, exchange, attempt);
            };
            attempt.skip_response(client).await;
            if !attempt.is_replayable() {
                // More of the body went out meanwhile than is kept.
                return Err(Reason::ServiceAborted);
            }
            next = chosen;
        }
        replay = attempt.into_replay();
        attempts.wait(exchange, client, &mut watch, timer).await?;
    }
}

/// What the hash policy of a service makes of a request; nothing where it reads what is not there.
fn affinity(service: &Service, exchange: &Exchange) -> Option<Affinity> {
    let mut key = Vec::new();
    let rendered = service.hash_policy.as_ref()?.render_key(exchange, &mut key);
    (!rendered.absent).then(|| Affinity::of(&key))
}
