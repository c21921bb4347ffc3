//! Carries a copy of a request to its service, once.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, ready},
};

use cardea_clock::Mono;
use cardea_http::{Fields, ResponseHead};
use cardea_upstream::{AttemptedEndpoints, Choice, Endpoint, FailureKind, Selection, ServiceState};

use super::MirrorCopy;
use crate::{
    body::{BodyError, BodySource},
    forward::retries::asked_to_wait,
    model::MirrorOutcome,
    timer::Timer,
    upstream::{self, ConnectError, Connection, HeadError, Offer, OutgoingHead, Pooled, UpstreamExchange},
    workers,
};

/// The most that is read and thrown away of a response, in bytes. Beyond it the connection is closed.
const RESPONSE_BYTES_MAX: usize = 1024 * 1024;

/// Carries a copy, and notes what becomes of it.
pub(super) async fn carry(mut copy: Box<MirrorCopy>) {
    let mut timer = Timer::new(copy.model.clock().clone());
    copy.place.outcome = exchange(&copy, &mut timer).await;
}

async fn exchange(copy: &MirrorCopy, timer: &mut Timer) -> MirrorOutcome {
    let mirror = &*copy.place.mirror;
    let worker = workers::current();
    let state = mirror.service.live.current(worker);
    let now = timer.precise();
    let deadline = now.saturating_add(mirror.timeout);
    // Nobody misses it: it is as good a probe as any.
    let selection = Selection { worker, now, affinity: copy.affinity, may_be_lost: false };
    let Some((choice, endpoint)) = state.choose(&selection, &AttemptedEndpoints::default()) else {
        return if state.reached_limit().is_some() { MirrorOutcome::Limited } else { MirrorOutcome::Failed };
    };
    let _in_flight = endpoint.begin(worker);
    // A copy asks for no upgrade.
    let offer = mirror.service.offer(false);
    let kept = Connection::kept(endpoint, offer, timer.now());
    let is_reused = kept.is_some();
    let connection = match kept {
        Some(kept) => kept,
        None => match connect(copy, &state, (choice, endpoint), offer, timer, deadline).await {
            Ok(connection) => connection,
            Err(outcome) => return outcome,
        },
    };
    let head = OutgoingHead {
        method: copy.method,
        target: &copy.target,
        fields: &copy.fields,
        length: copy.length(),
        accepts_trailers: false,
    };
    let begun = timer.precise();
    let mut sending = Sending {
        exchange: connection.begin(head, mirror.service.limits(&copy.model.limits)),
        left: RESPONSE_BYTES_MAX,
        body: Body { left: &copy.body },
    };
    let mut response = ResponseHead::default();
    let received = timer.until(deadline, poll_fn(|cx| sending.poll_head(cx, copy, &mut response))).await;
    let now = timer.precise();
    let waited = now.saturating_since(begun);
    match received {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            // A kept connection may have been closed at any time (RFC 9112 §9.3.1).
            let is_stale = is_reused && error == HeadError::EndedBefore;
            if let Some(kind) = error.failure_kind()
                && !is_stale
            {
                state.failed(choice, now, kind, waited);
            }
            return MirrorOutcome::Failed;
        }
        Err(_) => {
            state.abandoned(choice, now, waited);
            return MirrorOutcome::TimedOut;
        }
    }
    state.responded(choice, now, response.status, Some(waited));
    if let Some(wait) = asked_to_wait(&response) {
        state.eased(choice, now, wait);
    }
    let outcome = MirrorOutcome::of_status(response.status);
    match timer.until(deadline, poll_fn(|cx| sending.poll_skip(cx, copy))).await {
        Ok(Ok(())) => outcome,
        Ok(Err(_)) => MirrorOutcome::Failed,
        Err(_) => MirrorOutcome::TimedOut,
    }
}

/// A new connection. What is learned of the endpoint, its state is told.
async fn connect(
    copy: &MirrorCopy,
    state: &ServiceState<Pooled>,
    (choice, endpoint): (Choice, &Arc<Endpoint<Pooled>>),
    offer: Offer,
    timer: &mut Timer,
    deadline: Mono,
) -> Result<Connection, MirrorOutcome> {
    let service = &copy.place.mirror.service;
    let permit = endpoint.permit().ok_or(MirrorOutcome::Limited)?;
    let begun = timer.precise();
    let limit = service.connect_timeout.map_or(deadline, |limit| begun.saturating_add(limit));
    let connecting = endpoint.connecting(workers::current());
    let tls = service.tls.as_ref();
    let connected = upstream::connect(endpoint, tls, offer, timer, limit.min(deadline)).await;
    drop(connecting);
    let now = timer.precise();
    match connected {
        Ok(connected) => {
            state.connected(choice, now);
            if let Some(round_trip) = connected.round_trip {
                state.round_trip(choice.endpoint, now, round_trip);
            }
            let limits = service.limits(&copy.model.limits);
            Ok(Connection::new(endpoint, connected, permit, limits, copy.model.clock()))
        }
        Err(ConnectError::Endpoint(FailureKind::ConnectTimeout)) if now >= deadline => {
            Err(MirrorOutcome::TimedOut)
        }
        Err(ConnectError::Endpoint(kind)) => {
            state.failed(choice, now, kind, now.saturating_since(begun));
            Err(MirrorOutcome::Failed)
        }
        Err(ConnectError::Own(_)) => Err(MirrorOutcome::Failed),
    }
}

/// An exchange with what is left to be sent.
struct Sending<'a> {
    exchange: UpstreamExchange,
    /// How much of the response's content is read at most.
    left: usize,
    body: Body<'a>,
}

impl Sending<'_> {
    /// Sends on. A service may answer before it has read all.
    fn poll_send(&mut self, cx: &mut Context<'_>) {
        if !self.exchange.is_sent() {
            let _ = self.exchange.poll_send(cx, &mut self.body);
        }
    }

    /// Ready with the head of the final response.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        copy: &MirrorCopy,
        head: &mut ResponseHead,
    ) -> Poll<Result<(), HeadError>> {
        self.poll_send(cx);
        loop {
            ready!(self.exchange.poll_head(cx, head, copy.model.clock()))?;
            // Nobody asked to switch protocols.
            if !(100..200).contains(&head.status) || head.status == 101 {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Ready when all of the response is read, which frees its connection for others, or more than is worth a connection.
    fn poll_skip(&mut self, cx: &mut Context<'_>, copy: &MirrorCopy) -> Poll<Result<(), BodyError>> {
        self.poll_send(cx);
        while self.left > 0 && ready!(self.exchange.poll_data(cx, copy.model.clock()))? {
            let bytes = self.exchange.chunk().len();
            self.exchange.consume(bytes);
            self.left = self.left.saturating_sub(bytes);
        }
        Poll::Ready(Ok(()))
    }
}

/// A body that is there.
struct Body<'a> {
    left: &'a [u8],
}

impl BodySource for Body<'_> {
    fn poll_data(&mut self, _: &mut Context<'_>) -> Poll<Result<bool, BodyError>> {
        Poll::Ready(Ok(!self.left.is_empty()))
    }

    fn chunk(&self) -> &[u8] {
        self.left
    }

    fn consume(&mut self, count: usize) {
        self.left = self.left.get(count..).unwrap_or_default();
    }

    fn trailers(&self) -> Option<&Fields> {
        None
    }
}
