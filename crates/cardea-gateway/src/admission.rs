//! Admits requests to their destination, parks those that have to wait, and returns what they held.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::{Context, Poll},
    time::Duration,
};

use cardea_clock::{Clock, Mono};
use cardea_guard::{
    AddressPrefix, AdmissionFigures, AdmissionRefusal, Arrival, Cohort, Entry, Gate, Holding, Priority,
    Ticket,
};
use tokio::time::{Instant, sleep_until};

use crate::{
    downstream::Downstream,
    exchange::Exchange,
    gateway::{Gateway, ModelRef},
    model::{Model, Route, RouteAdmission, ShareIndex},
    refusal::Reason,
    streams::StreamWatch,
    workers,
};

/// What is known of the admission of a request.
#[derive(Debug, Default)]
pub(crate) struct AdmissionFacts {
    /// The permits that it holds.
    pub(crate) permits: Option<Permits>,
    /// How important it is, where it was not admitted at once.
    pub(crate) priority: Option<Priority>,
    /// How long it has waited, where it had to.
    pub(crate) waited: Option<Duration>,
}

impl AdmissionFacts {
    /// Forgets the request, which returns its permits.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Permits of a request or of a stream, which are returned when this is dropped: also by a panic, and where the task is
/// dropped.
#[derive(Debug)]
pub(crate) struct Permits {
    model: ModelRef,
    route: usize,
    share: Option<ShareIndex>,
    of_stream: bool,
    worker: usize,
    holding: Holding,
}

impl Permits {
    /// What the request counts for its client.
    pub(crate) fn holding(&self) -> &Holding {
        &self.holding
    }

    fn admission(&self) -> Option<&RouteAdmission> {
        Some(self.model.router.get(self.route)?.admission(self.share))
    }

    fn gate(&self) -> Option<&Gate> {
        let admission = self.admission()?;
        if self.of_stream { &admission.streams } else { &admission.gate }.as_deref()
    }

    /// When the exchange becomes a stream, which leaves its place to another request; never where streams have no limit of
    /// their own.
    pub(crate) fn stream_at(&self, started: Mono) -> Mono {
        match self.admission().and_then(|admission| admission.streams.as_ref()) {
            Some(_) if !self.of_stream => started.saturating_add(self.model.admission.stream_after),
            _ => Mono::MAX,
        }
    }

    /// The exchange has become a stream. Where there are as many as there may be, it keeps the permits that it has.
    pub(crate) fn become_stream(&mut self) {
        let Some(admission) = self.admission().filter(|_| !self.of_stream) else { return };
        let Some(streams) = &admission.streams else { return };
        let now = self.model.clock().precise_mono();
        if streams.enter(self.worker, || Arrival::new(Priority::default(), now)) == Entry::Admitted {
            if let Some(gate) = self.gate() {
                gate.leave(self.worker, || now);
            }
            self.of_stream = true;
            self.holding = Holding::default();
        }
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        if let Some(gate) = self.gate() {
            gate.leave(self.worker, || self.model.clock().precise_mono());
        }
    }
}

/// Admits a request to the destination of its route, at once or once it is its turn.
///
/// # Errors
/// If it is not admitted, or ends before.
#[inline]
pub(crate) async fn admit(
    gateway: &Gateway,
    model: &ModelRef,
    route: &Route,
    exchange: &mut Exchange,
    client: &mut dyn Downstream,
) -> Result<(), Reason> {
    let admission = route.admission(exchange.share);
    let (Some(gate), Some(place)) = (&admission.gate, exchange.route) else { return Ok(()) };
    let worker = workers::current();
    let (mut decided, mut counted_for) = (None, None);
    let holding = gate.hold(|| *counted_for.insert(caller(model, exchange)), || gateway.clock.precise_mono());
    let entry = holding.as_ref().map(|_| {
        gate.enter(worker, || {
            let priority = priority(model, route, exchange);
            decided = Some(priority);
            let now = gateway.clock.precise_mono();
            let cohort = if model.admission.shed_callers {
                Cohort::of(counted_for.unwrap_or_else(|| caller(model, exchange)), now)
            } else {
                Cohort::default()
            };
            Arrival { priority, cohort, client: counted_for, now }
        })
    });
    exchange.admission.priority = decided;
    let admitted = match entry {
        Ok(Entry::Admitted) => Ok(()),
        // Boxed, so that requests that don't wait do not pay for its size.
        Ok(Entry::Waits(ticket)) => Box::pin(wait(gateway, gate, ticket, worker, exchange, client)).await,
        Ok(Entry::Refused(refusal)) | Err(&refusal) => Err(Reason::NotAdmitted(refusal)),
    };
    if admitted.is_ok() {
        exchange.admission.permits = Some(Permits {
            model: model.clone(),
            route: place,
            share: exchange.share,
            of_stream: false,
            worker,
            holding: holding.unwrap_or_default(),
        });
    }
    for limit in &admission.limits {
        limit.metrics.count(gateway.metrics.registry(), admitted.as_ref().err(), exchange.admission.waited);
    }
    if exchange.admission.waited.is_some() && admitted.is_ok() {
        // It may have ended at the moment of its turn.
        let ended = StreamWatch::new(gateway).check(exchange);
        return ended.map_or(Ok(()), |end| Err(Reason::StreamEnded(end)));
    }
    admitted
}

/// How important a request is.
pub(crate) fn priority(model: &Model, route: &Route, exchange: &Exchange) -> Priority {
    let by_rule = || model.admission.priority.as_ref().map(|rule| rule.of(exchange));
    route.admission.priority.or_else(by_rule).unwrap_or_default()
}

/// Who has sent a request: by its token, else by its address.
fn caller(model: &Model, exchange: &Exchange) -> u64 {
    let queue = &model.admission.queue;
    match exchange.verdict.as_ref().map(|verdict| &verdict.caller) {
        Some(caller) => queue.client((&caller.issuer, &caller.subject, &caller.client_id)),
        None => queue.client(exchange.source.map(AddressPrefix::of)),
    }
}

/// The figures of the narrowest limit of a request.
pub(crate) fn figures_of(exchange: &Exchange) -> Option<AdmissionFigures> {
    Some(exchange.route()?.admission(exchange.share).limits.first()?.limit.figures())
}

/// How long the first request has waited at the narrowest limit of a request.
pub(crate) fn queue_age(exchange: &Exchange) -> Option<Duration> {
    let now = exchange.model.as_ref()?.clock().precise_mono();
    Some(now.saturating_since(figures_of(exchange)?.oldest?))
}

/// A place in the queue, which is given up when this is dropped.
struct Waiting<'g> {
    gate: &'g Gate,
    ticket: Option<Ticket>,
    worker: usize,
    clock: &'g Clock,
}

impl Waiting<'_> {
    fn poll(&mut self, cx: &Context<'_>) -> Poll<Result<(), AdmissionRefusal>> {
        let Some(ticket) = &self.ticket else { return Poll::Pending };
        let polled = self.gate.poll(ticket, self.clock.precise_mono(), cx.waker());
        if polled.is_ready() {
            self.ticket = None;
        }
        polled
    }

    /// How long the request may wait yet.
    fn left(&self) -> Duration {
        let deadline = self.ticket.as_ref().map(|ticket| self.gate.deadline(ticket));
        deadline.map_or(Duration::ZERO, |deadline| deadline.saturating_since(self.clock.precise_mono()))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.gate.abandon(ticket, self.worker, self.clock.precise_mono());
        }
    }
}

/// Waits for the permits of a request, while its client stays and its right holds.
async fn wait(
    gateway: &Gateway,
    gate: &Gate,
    ticket: Ticket,
    worker: usize,
    exchange: &mut Exchange,
    client: &mut dyn Downstream,
) -> Result<(), Reason> {
    let clock = &gateway.clock;
    let since = clock.precise_mono();
    let mut waiting = Waiting { gate, ticket: Some(ticket), worker, clock };
    let mut watch = StreamWatch::new(gateway);
    let left = |waiting: &Waiting<'_>| {
        waiting.left().min(exchange.client_deadline.saturating_since(clock.precise_mono()))
    };
    let mut end = pin!(sleep_until(Instant::now() + left(&waiting)));
    let admitted = poll_fn(|cx| {
        loop {
            if let Poll::Ready(admitted) = waiting.poll(cx) {
                return Poll::Ready(admitted.map_err(Reason::NotAdmitted));
            }
            if end.as_mut().poll(cx).is_pending() {
                break;
            }
            if clock.precise_mono() >= exchange.client_deadline {
                return Poll::Ready(Err(Reason::DeadlineExceeded));
            }
            end.as_mut().reset(Instant::now() + left(&waiting));
        }
        if client.poll_gone(cx).is_ready() {
            return Poll::Ready(Err(Reason::ClientAborted));
        }
        watch.poll(cx, exchange).map(|end| Err(Reason::StreamEnded(end)))
    })
    .await;
    exchange.admission.waited = Some(clock.precise_mono().saturating_since(since));
    admitted
}
