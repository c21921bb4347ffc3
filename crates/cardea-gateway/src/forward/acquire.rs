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
    upstream::{self, ConnectError, Connected, Connection, Pooled},
    workers,
};

/// A connection to the endpoint that was kept, if there is one.
pub(super) fn kept(
    (choice, endpoint): Chosen<'_>,
    exchange: &mut Exchange,
    timer: &Timer,
) -> Option<Connection> {
    let kept = Connection::kept(endpoint, timer.now())?;
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
    (choice, endpoint): Chosen<'_>,
    exchange: &mut Exchange,
    client: &mut dyn Downstream,
    watch: &mut StreamWatch<'_>,
    timer: &mut Timer,
) -> Result<Connection, AcquireError> {
    exchange.upstream.reused = false;
    let permit = permit(endpoint)?;
    let begun = timer.precise();
    let connected = open(way, endpoint, exchange, client, watch, timer).await;
    let now = timer.precise();
    let took = now.saturating_since(begun);
    match connected {
        Ok(Connected { transport, round_trip }) => {
            exchange.upstream.connect = Some(took);
            exchange.upstream.begun = now;
            way.state.connected(choice, now);
            if let Some(round_trip) = round_trip {
                way.state.round_trip(choice.endpoint, now, round_trip);
            }
            Ok(Connection::new(endpoint, transport, permit, now))
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
    let limit = way.service.connect_timeout.unwrap_or(way.route.timeouts.connect);
    let deadline = timer.now().saturating_add(limit).min(exchange.deadline(way.route));
    let _pending = endpoint.connecting(workers::current());
    let mut connecting = pin!(connect(way, endpoint, timer, deadline));
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
    timer: &mut Timer,
    deadline: Mono,
) -> Result<Connected, ConnectError> {
    let tls = way.service.tls.as_ref();
    match upstream::connect(endpoint, tls, timer, deadline).await {
        Err(ConnectError::Own(shortage)) if way.gateway.fall_short(shortage, "connect") => {
            upstream::connect(endpoint, tls, timer, deadline).await
        }
        connected => connected,
    }
}
