//! The checks of one endpoint, one after the other.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Weak},
    task::Poll,
    time::Duration,
};

use cardea_clock::Mono;
use cardea_upstream::{CheckConnection, CheckProtocol, CheckResult, Endpoint, FailureKind};
use tokio::time::Instant;

use super::{
    Random,
    settings::Settings,
    share::{Place, Places, Share},
};
use crate::{
    gateway::Gateway,
    shortage::Shortage,
    timer::Timer,
    transport::{Idle, Transport},
    upstream::{
        self, ConnectError, Connected, Offer, Pooled,
        check::{Answer, Rest},
    },
};

/// A connection is used for so long at most: over a new one a check also finds a listener that is gone, a certificate that has
/// expired, and the other servers behind a balancer.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(5 * 60);

/// Checks begin at multiples of this time: many at once cost a part of the wake-ups that each of them alone would.
const GRID: Duration = Duration::from_millis(25);

/// How long an endpoint may take for the rest of a response that has been judged.
const REST_WAIT: Duration = Duration::from_secs(1);

/// What checks of one endpoint need.
pub(super) struct Task {
    pub(super) endpoint: Arc<Endpoint<Pooled>>,
    pub(super) settings: Arc<Settings>,
    pub(super) share: Arc<Share>,
    pub(super) places: Arc<Places>,
    pub(super) gateway: Weak<Gateway>,
    pub(super) random: Arc<Random>,
    /// When the first of all checks began, from which the grid is counted.
    pub(super) begun: Instant,
    /// What is sent where the check is a request.
    pub(super) request: Vec<u8>,
}

/// A connection that is kept from one check to the next.
struct Kept {
    transport: Transport,
    made: Mono,
    place: Place,
    counted: CheckConnection,
}

/// A connection on which the rest of a response is under way.
struct Used {
    rest: Rest,
    made: Mono,
    place: Option<(Place, CheckConnection)>,
}

impl Task {
    /// Checks the endpoint until the task is aborted, after `first` for the first time.
    pub(super) async fn run(self, first: Duration) {
        let (mut wait, mut kept) = (first, None);
        loop {
            kept = rest(self.on_grid(wait), kept).await;
            let Some(gateway) = self.gateway.upgrade() else { return };
            let interval = self.settings.config.interval;
            let Some(permit) = self.share.enter(&self.endpoint, interval, &gateway.clock).await else {
                return;
            };
            // An endpoint that takes no new connections may still serve the old ones.
            let usable = kept.take().filter(|_| !self.endpoint.is_ejected());
            // Boxed, as it is idle nearly all the time.
            let (result, used) = Box::pin(self.check(&gateway, usable)).await;
            let (config, now) = (&self.settings.config, gateway.clock.precise_mono());
            wait = self.endpoint.checked(result, config, now, self.random.draw());
            drop(permit);
            drop(gateway);
            if let Some(used) = used {
                kept = self.keep(used, now).await;
            }
        }
    }

    /// The time after `wait`, at the next line of the grid.
    fn on_grid(&self, wait: Duration) -> Instant {
        let at = Instant::now() + wait;
        let beyond = at.saturating_duration_since(self.begun).as_nanos() % GRID.as_nanos();
        at + GRID.saturating_sub(Duration::from_nanos(u64::try_from(beyond).unwrap_or(0)))
    }

    /// One check, over the connection that was kept if there is one; and that connection, if it may be used again.
    async fn check(&self, gateway: &Gateway, kept: Option<Kept>) -> (CheckResult, Option<Used>) {
        let mut timer = Timer::new(gateway.clock.clone());
        let deadline = timer.now().saturating_add(self.settings.config.timeout);
        if let Some(Kept { transport, made, place, counted }) = kept {
            let answer = self.exchange(transport, &mut timer, deadline).await;
            // The endpoint may close an idle connection at any time (RFC 9112 §9.3.1), which says nothing about it.
            if !answer.is_unanswered {
                let place = Some((place, counted));
                return (answer.result, answer.rest.map(|rest| Used { rest, made, place }));
            }
        }
        let tls = self.settings.tls.as_ref();
        let connected = upstream::connect(&self.endpoint, tls, Offer::Http1, &mut timer, deadline).await;
        let transport = match connected {
            Ok(Connected { transport, .. }) => transport,
            Err(ConnectError::Endpoint(kind)) => return (CheckResult::Failed(kind), None),
            Err(ConnectError::Own(shortage)) => {
                // Nothing of requests makes room for a check: they need it more.
                if shortage != Shortage::Ports {
                    gateway.check_places.give_up(gateway.clock.mono());
                }
                gateway.note_shortage(shortage, "health check");
                return (CheckResult::Shortage, None);
            }
        };
        if self.settings.config.protocol != CheckProtocol::Http {
            return (CheckResult::Passed, None);
        }
        let made = timer.now();
        let answer = self.exchange(transport, &mut timer, deadline).await;
        (answer.result, answer.rest.map(|rest| Used { rest, made, place: None }))
    }

    async fn exchange(&self, transport: Transport, timer: &mut Timer, deadline: Mono) -> Answer {
        let exchange = upstream::check::exchange(transport, &self.request, &self.settings.config);
        timer
            .until(deadline, exchange)
            .await
            .unwrap_or_else(|_| Answer::failed(CheckResult::Failed(FailureKind::ResponseTimeout)))
    }

    /// The connection for the next check, if it may be used again and there is a place for it.
    async fn keep(&self, used: Used, now: Mono) -> Option<Kept> {
        let Used { rest, made, place } = used;
        if now.saturating_since(made) >= CONNECTION_AGE_MAX {
            return None;
        }
        let (place, counted) = match place {
            Some(place) => place,
            None => (self.places.take(now)?, self.endpoint.check_connection()),
        };
        let transport = tokio::time::timeout(REST_WAIT, rest.finish()).await.ok()??;
        Some(Kept { transport, made, place, counted })
    }
}

/// Waits until then. A connection is closed as soon as it ends, or something else needs its descriptor.
async fn rest(until: Instant, kept: Option<Kept>) -> Option<Kept> {
    let mut wait = pin!(tokio::time::sleep_until(until));
    if let Some(Kept { mut transport, made, place, counted }) = kept {
        let is_over = {
            let mut given_up = pin!(place.given_up());
            poll_fn(|cx| {
                if wait.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(true);
                }
                let ends =
                    given_up.as_mut().poll(cx).is_ready() || transport.poll_end_of_quiet(cx).is_ready();
                if ends { Poll::Ready(false) } else { Poll::Pending }
            })
            .await
        };
        // What was received in the moment in which the wait was over counts too.
        if is_over && transport.look() == Idle::Quiet {
            return Some(Kept { transport, made, place, counted });
        }
        drop((transport, place, counted));
        if is_over {
            return None;
        }
    }
    wait.await;
    None
}
