//! Takes a connection to an endpoint: one that was kept, or a new one.

use std::{
    future::{Future, poll_fn},
    task::Poll,
};

use cardea_clock::Mono;
use cardea_upstream::{ConnectionPermit, Endpoint, FailureKind, InFlight};

use super::{error::AcquireError, retries::Chosen, way::Way};
use crate::{
    downstream::Downstream,
    exchange::Exchange,
    streams::StreamWatch,
    timer::Timer,
    upstream::{self, ConnectError, Connected, Connection, Pooled},
    workers,
};

/// A connection to the endpoint: a kept one, unless it must be fresh, or a new one. The exchange counts at the endpoint for as
/// long as what comes with it lives.
pub(super) async fn acquire(
    way: Way<'_>,
    (choice, endpoint): Chosen<'_>,
    fresh: bool,
    exchange: &mut Exchange,
    client: &mut dyn Downstream,
    watch: &mut StreamWatch<'_>,
    timer: &mut Timer,
) -> Result<(Connection, InFlight), AcquireError> {
    // Counted before there is a connection: who waits for one is load too.
    let in_flight = endpoint.begin(workers::current());
    if !fresh && let Some(kept) = Connection::kept(endpoint, timer.now()) {
        exchange.upstream.reused = true;
        exchange.upstream.begun = choice.at();
        return Ok((kept, in_flight));
    }
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
            Ok((Connection::new(endpoint, transport, permit), in_flight))
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
    // Boxed, since nearly all requests go over a connection that is there.
    let mut connecting = Box::pin(connect(way, endpoint, timer, deadline));
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
    match upstream::connect(endpoint.address(), tls, timer, deadline).await {
        Err(ConnectError::Own(shortage)) if way.gateway.fall_short(shortage, "connect") => {
            upstream::connect(endpoint.address(), tls, timer, deadline).await
        }
        connected => connected,
    }
}
