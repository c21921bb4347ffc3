//! Takes a connection to an endpoint: one that was kept, or a new one.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
};

use cardea_clock::Mono;
use cardea_upstream::{ConnectionPermit, Endpoint, FailureKind, InFlight};

use super::{
    error::AcquireError,
    retries::{Attempts, Chosen},
    way::Way,
};
use crate::{
    downstream::Downstream,
    exchange::Exchange,
    refusal::Reason,
    streams::StreamWatch,
    timer::Timer,
    upstream::{
        self, ConnectError, Connected, Connection, Follower, Offer, Outcome, Part, Pooled, Spoken, join,
    },
    workers,
};

/// A connection to the endpoint that was kept, if there is one.
pub(super) fn kept(
    (choice, endpoint): Chosen<'_>,
    offer: Offer,
    exchange: &mut Exchange,
    timer: &Timer,
) -> Option<Connection> {
    let kept = Connection::kept(endpoint, offer, timer.now())?;
    exchange.upstream.reused = true;
    exchange.upstream.begun = choice.at();
    Some(kept)
}

/// A new connection to the endpoint of `next`. If it can't be had, the endpoint to try instead is put there after the wait that
/// is due, and there is no connection.
pub(super) async fn establish<'a>(
    attempts: &mut Attempts<'a>,
    next: &mut Chosen<'a>,
    in_flight: InFlight,
    exchange: &mut Exchange,
    client: &mut dyn Downstream,
    watch: &mut StreamWatch<'_>,
    timer: &mut Timer,
) -> Result<Option<(Connection, InFlight)>, Reason> {
    let error = match connection(attempts.way(), *next, exchange, client, watch, timer).await {
        Ok(connection) => return Ok(Some((connection, in_flight))),
        Err(error) => error,
    };
    drop(in_flight);
    if error.is_final() {
        return Err(error.into());
    }
    *next = attempts.after_connect(next.0, exchange, timer).ok_or(error)?;
    attempts.wait(exchange, client, watch, timer).await?;
    Ok(None)
}

async fn connection(
    way: Way<'_>,
    chosen: Chosen<'_>,
    exchange: &mut Exchange,
    client: &mut dyn Downstream,
    watch: &mut StreamWatch<'_>,
    timer: &mut Timer,
) -> Result<Connection, AcquireError> {
    exchange.upstream.reused = false;
    let offer = way.offer(exchange);
    if !offer.has_http2() || !chosen.1.may_share() {
        return make(way, chosen, exchange, client, watch, timer).await;
    }
    // Requests that come together share a connection.
    loop {
        let outcome = match join(chosen.1, way.service.streams_max as usize) {
            Part::Leader(leader) => {
                let made = make(way, chosen, exchange, client, watch, timer).await;
                let is_late = timer.now() >= exchange.deadline(way.route);
                match &made {
                    Ok(Connection::Http1(_)) => leader.tell(Outcome::Alone),
                    Ok(Connection::Http2(connection)) => connection.lead(leader),
                    Err(AcquireError::Connect(error)) if !is_late => leader.tell(Outcome::Failed(*error)),
                    Err(_) => drop(leader),
                }
                return made;
            }
            Part::Alone => Outcome::Alone,
            Part::Follower(follower) => follow(way, follower, exchange, client, watch, timer).await?,
        };
        match outcome {
            Outcome::Alone => return make(way, chosen, exchange, client, watch, timer).await,
            // The state of the service was told.
            Outcome::Failed(error) => return Err(AcquireError::Connect(error)),
            Outcome::Shared | Outcome::Abandoned => {
                if let Some(kept) = kept(chosen, offer, exchange, timer) {
                    return Ok(kept);
                }
            }
        }
    }
}

/// Waits for the connection that another request makes, unless the client leaves or the right to the request ends meanwhile.
async fn follow(
    way: Way<'_>,
    mut follower: Follower,
    exchange: &Exchange,
    client: &mut dyn Downstream,
    watch: &mut StreamWatch<'_>,
    timer: &mut Timer,
) -> Result<Outcome, AcquireError> {
    let deadline = deadline(way, exchange, timer);
    let outcome = poll_fn(|cx| match follower.poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(Ok(outcome)),
        Poll::Pending if client.poll_background(cx).is_ready() => {
            Poll::Ready(Err(AcquireError::ClientAborted))
        }
        Poll::Pending => watch.poll(cx, exchange).map(|end| Err(AcquireError::Ended(end))),
    });
    let late = AcquireError::Connect(ConnectError::Endpoint(FailureKind::ConnectTimeout));
    timer.until(deadline, outcome).await.unwrap_or(Err(late))
}

/// Until when a connection has to be there.
fn deadline(way: Way<'_>, exchange: &Exchange, timer: &Timer) -> Mono {
    let limit = way.service.connect_timeout.unwrap_or(way.route.timeouts.connect);
    timer.now().saturating_add(limit).min(exchange.deadline(way.route))
}

/// Makes a connection, and tells the state of the service what came of it.
async fn make(
    way: Way<'_>,
    (choice, endpoint): Chosen<'_>,
    exchange: &mut Exchange,
    client: &mut dyn Downstream,
    watch: &mut StreamWatch<'_>,
    timer: &mut Timer,
) -> Result<Connection, AcquireError> {
    let permit = permit(endpoint)?;
    let begun = timer.precise();
    let connected = open(way, endpoint, exchange, client, watch, timer).await;
    let now = timer.precise();
    let took = now.saturating_since(begun);
    match connected {
        Ok(connected) => {
            exchange.upstream.connect = Some(took);
            exchange.upstream.begun = now;
            way.state.connected(choice, now);
            if let Some(round_trip) = connected.round_trip {
                way.state.round_trip(choice.endpoint, now, round_trip);
            }
            endpoint.set_shared(connected.spoken == Spoken::Http2);
            let limits = way.service.limits(&way.model.limits);
            Ok(Connection::new(endpoint, connected, permit, limits, way.model.clock()))
        }
        Err(error) => {
            match error {
                AcquireError::ClientAborted | AcquireError::Ended(_) => {
                    way.state.abandoned(choice, now, took)
                }
                // A request that was short of time says nothing of the endpoint.
                AcquireError::Connect(ConnectError::Endpoint(FailureKind::ConnectTimeout))
                    if timer.now() >= exchange.deadline(way.route) => {}
                AcquireError::Connect(ConnectError::Endpoint(kind)) => {
                    way.state.failed(choice, now, kind, took);
                }
                AcquireError::Exhausted | AcquireError::Connect(ConnectError::Own(_)) => {}
            }
            Err(error)
        }
    }
}

/// Opens a connection, unless the client leaves or the right to the request ends meanwhile.
async fn open(
    way: Way<'_>,
    endpoint: &Endpoint<Pooled>,
    exchange: &Exchange,
    client: &mut dyn Downstream,
    watch: &mut StreamWatch<'_>,
    timer: &mut Timer,
) -> Result<Connected, AcquireError> {
    let deadline = deadline(way, exchange, timer);
    let _pending = endpoint.connecting(workers::current());
    let mut connecting = pin!(connect(way, endpoint, way.offer(exchange), timer, deadline));
    poll_fn(|cx| match connecting.as_mut().poll(cx) {
        Poll::Ready(connected) => Poll::Ready(connected.map_err(AcquireError::Connect)),
        Poll::Pending if client.poll_background(cx).is_ready() => {
            Poll::Ready(Err(AcquireError::ClientAborted))
        }
        Poll::Pending => watch.poll(cx, exchange).map(|end| Err(AcquireError::Ended(end))),
    })
    .await
}

/// The right to one more connection. Idle connections hold permits too: the oldest gives way to one that may be fresh.
fn permit(endpoint: &Endpoint<Pooled>) -> Result<ConnectionPermit, AcquireError> {
    if let Some(permit) = endpoint.permit() {
        return Ok(permit);
    }
    drop(endpoint.pool().give_up_oldest());
    endpoint.permit().ok_or(AcquireError::Exhausted)
}

/// Opens a connection. Where something of the gateway's own is short, idle connections make room for a second attempt.
async fn connect(
    way: Way<'_>,
    endpoint: &Endpoint<Pooled>,
    offer: Offer,
    timer: &mut Timer,
    deadline: Mono,
) -> Result<Connected, ConnectError> {
    let tls = way.service.tls.as_ref();
    match upstream::connect(endpoint, tls, offer, timer, deadline).await {
        Err(ConnectError::Own(shortage)) if way.gateway.fall_short(shortage, "connect") => {
            upstream::connect(endpoint, tls, offer, timer, deadline).await
        }
        connected => connected,
    }
}
