//! Carries a request to a service: a loop over attempts.
//!
//! An attempt ends the loop unless it is safe to make another: nothing was sent, or the method is idempotent and all
//! of the body can be sent again (RFC 9110 §9.2.2). The next goes to an endpoint that has not failed, where there is
//! one. A connection that was kept may have been closed by the service meanwhile (RFC 9112 §9.3.1): its failure before any
//! byte of a response is none of the endpoint's, and the next attempt is made over a fresh connection.

mod attempt;
mod connect;
pub(crate) mod headers;
mod lease;
mod replay;
mod request;
mod retries;

use std::{
    future::Future,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use cardea_clock::Mono;
use cardea_http::{Known, append_via, h1::Framing, strip_hop_by_hop_response};
use cardea_upstream::{Affinity, Choice, Endpoint, FailureKind, RetryCause};

pub(crate) use attempt::Attempt;
use attempt::{HeadError, Outgoing, SendError};
use connect::ConnectError;
use headers::Side;
use lease::Lease;
pub use lease::Pooled;
use replay::Replay;
pub use replay::ReplayBudget;
use retries::{Attempts, Chosen, asked_to_wait};

use crate::{
    buffer::{Buffer, take_outbound},
    decision::Authorized,
    downstream::{BodyError, Downstream},
    early_data,
    exchange::Exchange,
    fields::{HeadNames, name_response},
    gateway::{Gateway, ModelRef},
    memory,
    model::{Model, Route, Service},
    pipeline::Outcome,
    refusal::Reason,
    response::{Response, ResponseBody, has_body, renew_absent_length},
    shortage::Shortage,
    streams::StreamWatch,
    timer::Timer,
    transport::Transport,
    workers,
};

/// What a service says that won't carry out what may be a replay (RFC 8470 §5.2).
const TOO_EARLY: u16 = 425;

/// How long a service is waited for that neither answers an expectation nor asks for the body (RFC 9110 §10.1.1).
const CONTINUE_WAIT: Duration = Duration::from_secs(1);

/// Both ends of an upgraded connection.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) transport: Transport,
    pub(crate) received: Buffer,
    /// The tunnel counts at the endpoint as long as it lasts.
    pub(crate) lease: Lease,
}

/// Why an attempt failed.
struct Failure {
    reason: Reason,
    /// As what another attempt may be made; none where nothing can help.
    retry: Option<RetryCause>,
    attempt: Box<Attempt>,
    /// When the service had all of the request.
    sent: Option<Mono>,
}

/// What the hash policy of a service makes of a request; nothing where it reads what is not there.
fn affinity(service: &Service, exchange: &Exchange) -> Option<Affinity> {
    let mut key = Vec::new();
    let rendered = service.hash_policy.as_ref()?.render_key(exchange, &mut key);
    (!rendered.absent).then(|| Affinity::of(&key))
}

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
    let route = authorized.route();
    if memory::is_exhausted() {
        return Err(Reason::Overloaded);
    }
    // Who said so to us is told of a 425 (RFC 8470 §5.2).
    let may_repeat = exchange.early_data && !exchange.head.fields.contains(Known::EarlyData);
    // By the request as it came: preparing it changes its head.
    let affinity = affinity(service, exchange);
    request::prepare(model, route, exchange, client.framing())?;
    let framing = client.framing();
    let mut replay = match framing {
        Framing::None | Framing::Length(0) => Replay::empty(),
        // Sent once it is never sent again, so there is no point in keeping it.
        _ if !exchange.head.method.is_idempotent() => Replay::empty(),
        _ => Replay::new(
            model.limits.replay_bytes_max,
            model.limits.replay_total_bytes_max,
            Arc::clone(model.replay_budget()),
        ),
    };
    let mut attempts = Attempts::begin(route, service, model.region.as_deref(), affinity);
    let now = exchange.started.mono.max(timer.now());
    let mut next = attempts.choose(exchange, now).ok_or(Reason::NoEndpoint)?;
    let mut fresh = false;
    loop {
        let (choice, _) = next;
        exchange.upstream.attempts += 1;
        exchange.upstream.endpoint = Some(choice.endpoint);
        let way = Way { gateway, route, service };
        let (transport, lease) = match acquire(way, next, fresh, exchange, client, timer).await {
            Ok(acquired) => acquired,
            Err(Reason::ClientAborted) => return Err(Reason::ClientAborted),
            // Another endpoint would not help, unless it is the ports to this one that are used up.
            Err(reason @ Reason::FellShort(Shortage::Descriptors | Shortage::Memory)) => return Err(reason),
            Err(reason) => {
                // Nothing was sent: any request may go elsewhere.
                attempts.failed_at(choice);
                next = attempts.again(RetryCause::Connect, exchange, timer).ok_or(reason)?;
                attempts.wait(exchange, client, timer).await?;
                continue;
            }
        };
        let mut outbound = take_outbound();
        request::encode(exchange, route, framing, &mut outbound);
        let (method, route_index) = (exchange.head.method, exchange.route);
        let names = if framing == Framing::Chunked { HeadNames::of(exchange) } else { HeadNames::default() };
        let request = Outgoing { outbound, method, framing, replay, route: route_index, names };
        let mut attempt = Box::new(Attempt::new(transport, lease, request, model.clone()));
        if exchange.head.fields.get(Known::Expect).is_some() {
            attempt.hold_body();
        }
        match converse(way, attempt, exchange, client, timer).await {
            Ok((mut attempt, sent)) => {
                exchange.count_memory();
                let now = timer.precise();
                let status = exchange.response_head.status;
                report_response(service, choice, exchange, now, sent);
                if may_repeat && exchange.early_data && status == TOO_EARLY {
                    Box::pin(early_data::wait(gateway, exchange, client, timer)).await?;
                    exchange.head.fields.remove(Known::EarlyData);
                    replay = attempt.into_replay();
                    next = attempts.choose(exchange, timer.precise()).ok_or(Reason::NoEndpoint)?;
                    continue;
                }
                if service.state.retry_config().statuses.contains(status)
                    && exchange.head.method.is_idempotent()
                    && attempt.is_replayable()
                {
                    attempts.failed_at(choice);
                    if let Some(chosen) = attempts.again(RetryCause::Status, exchange, timer) {
                        attempt.skip_response(client).await;
                        replay = attempt.into_replay();
                        next = chosen;
                        attempts.wait(exchange, client, timer).await?;
                        continue;
                    }
                }
                exchange.upstream.status = status;
                exchange.upstream.response_head = Some(now.saturating_since(exchange.started.mono));
                return respond(model, route, exchange, attempt);
            }
            Err(failure) => {
                report_failure(service, choice, exchange, timer.precise(), &failure);
                let Failure { reason, retry, attempt, .. } = failure;
                let is_safe =
                    attempt.is_unsent() || exchange.head.method.is_idempotent() && attempt.is_replayable();
                let Some(cause) = retry.filter(|_| is_safe) else { return Err(reason) };
                if cause != RetryCause::Stale {
                    attempts.failed_at(choice);
                }
                next = attempts.again(cause, exchange, timer).ok_or(reason)?;
                replay = attempt.into_replay();
                fresh = true;
                attempts.wait(exchange, client, timer).await?;
            }
        }
    }
}

/// Tells the service's state of a response, which took until `now` since all of the request was sent.
fn report_response(service: &Service, choice: Choice, exchange: &Exchange, now: Mono, sent: Option<Mono>) {
    let latency = sent.map(|sent| now.saturating_since(sent));
    service.state.responded(choice, now, exchange.response_head.status, latency);
    if let Some(wait) = asked_to_wait(exchange) {
        service.state.eased(choice, now, wait);
    }
}

/// Tells the service's state of an attempt that failed. A client that leaves is no failure of the endpoint, and one that
/// ran out of time before the endpoint did is none either: they show how long it took at least.
fn report_failure(service: &Service, choice: Choice, exchange: &Exchange, now: Mono, failure: &Failure) {
    let waited = failure.sent.map(|sent| now.saturating_since(sent));
    if let Some(kind) = failure_kind(&failure.reason) {
        // The endpoint may close an idle connection at any time.
        if failure.retry != Some(RetryCause::Stale) {
            service.state.failed(choice, now, kind, waited.unwrap_or_default());
        }
    } else if matches!(failure.reason, Reason::ClientAborted | Reason::RequestTimeout)
        && let Some(waited) = waited
    {
        service.state.abandoned(choice, now, waited);
    }
    if exchange.upstream.reused && matches!(failure.reason, Reason::ServiceMalformed(_)) {
        failure.attempt.note_surplus();
    }
}

/// The head that a request without a body would be sent with.
pub(crate) fn preview(model: &ModelRef, route: &Route, exchange: &mut Exchange) -> Result<Vec<u8>, Reason> {
    request::prepare(model, route, exchange, Framing::None)?;
    let mut head = Vec::new();
    request::encode(exchange, route, Framing::None, &mut head);
    Ok(head)
}

/// Turns the service's response into ours.
fn respond(
    model: &Model,
    route: &Route,
    exchange: &mut Exchange,
    attempt: Box<Attempt>,
) -> Result<Outcome, Reason> {
    let head = &mut exchange.response_head;
    let switching = head.status == 101;
    let websocket =
        head.fields.get(Known::Upgrade).is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"));
    if switching && !(exchange.upgrade && websocket) {
        return Err(Reason::ServiceMalformed("switching_protocols_unasked"));
    }
    exchange.response_connection_names = strip_hop_by_hop_response(&mut head.fields);
    let version = head.version;
    // The pseudonym was checked when the configuration was loaded.
    let _ = append_via(&mut head.fields, version, &model.forwarding.via);
    exchange.response.status = head.status;
    let mut head = std::mem::take(&mut exchange.response_head);
    name_response(exchange, &mut head);
    exchange.response_head = head;
    headers::apply(&model.environment.response_headers, exchange, Side::Response);
    headers::apply(&route.response_headers, exchange, Side::Response);
    let mut head = std::mem::take(&mut exchange.response_head);
    if switching {
        head.fields.remove(Known::ContentLength);
        let (transport, received, lease) = attempt.into_tunnel().ok_or(Reason::ServiceAborted)?;
        return Ok(Outcome::Tunnel(head, Box::new(Tunnel { transport, received, lease })));
    }
    let body = if has_body(exchange.head.method, head.status) {
        ResponseBody::Service(attempt)
    } else {
        renew_absent_length(&mut head);
        ResponseBody::Empty
    };
    Ok(Outcome::Respond(Response::new(head, body)))
}

/// When the whole exchange must be over.
pub(crate) fn request_deadline(route: &Route, exchange: &Exchange) -> Mono {
    route.timeouts.request.map_or(Mono::MAX, |limit| exchange.started.mono.saturating_add(limit))
}

/// Where a request goes, and by what.
#[derive(Clone, Copy)]
struct Way<'a> {
    gateway: &'a Gateway,
    route: &'a Route,
    service: &'a Service,
}

/// A connection to the endpoint: a kept one, unless it must be fresh, or a new one.
async fn acquire(
    Way { gateway, route, service }: Way<'_>,
    (choice, endpoint): Chosen<'_>,
    fresh: bool,
    exchange: &mut Exchange,
    client: &mut dyn Downstream,
    timer: &mut Timer,
) -> Result<(Transport, Lease), Reason> {
    // Counted before there is a connection: who waits for one is load too.
    let in_flight = endpoint.begin(workers::current());
    if !fresh && let Some(Pooled { transport, permit }) = take_kept(endpoint, timer.now()) {
        exchange.upstream.reused = true;
        exchange.upstream.begun = choice.at();
        return Ok((transport, Lease::new(endpoint, in_flight, permit)));
    }
    exchange.upstream.reused = false;
    let permit = match endpoint.permit() {
        Some(permit) => permit,
        // Idle connections hold permits too: the oldest gives way to one that may be fresh.
        None => {
            drop(endpoint.pool().give_up_oldest());
            endpoint.permit().ok_or(Reason::ConnectionsExhausted)?
        }
    };
    let limit = service.connect_timeout.unwrap_or(route.timeouts.connect);
    let deadline = timer.now().saturating_add(limit).min(request_deadline(route, exchange));
    let begun = timer.precise();
    let connected = {
        let _pending = endpoint.connecting(workers::current());
        // Boxed, since nearly all requests go over a connection that is there.
        let mut connecting = Box::pin(connect(gateway, endpoint, service, timer, deadline));
        std::future::poll_fn(|cx| match connecting.as_mut().poll(cx) {
            Poll::Ready(connected) => Poll::Ready(Ok(connected)),
            Poll::Pending => client.poll_background(cx).map(|_| Err(())),
        })
        .await
    };
    let Ok(connected) = connected else {
        let now = timer.precise();
        service.state.abandoned(choice, now, now.saturating_since(begun));
        return Err(Reason::ClientAborted);
    };
    match connected {
        Ok(transport) => {
            let now = timer.precise();
            exchange.upstream.connect = Some(now.saturating_since(begun));
            exchange.upstream.begun = now;
            service.state.connected(choice, now);
            Ok((transport, Lease::new(endpoint, in_flight, permit)))
        }
        Err(ConnectError::Own(shortage)) => Err(Reason::FellShort(shortage)),
        Err(ConnectError::Endpoint(kind)) => {
            // A request that was short of time says nothing of the endpoint.
            if kind != FailureKind::ConnectTimeout || timer.now() < request_deadline(route, exchange) {
                let now = timer.precise();
                service.state.failed(choice, now, kind, now.saturating_since(begun));
            }
            Err(if kind == FailureKind::ConnectTimeout {
                Reason::ConnectTimeout
            } else {
                Reason::ConnectFailed
            })
        }
    }
}

/// Opens a connection. Where something of the gateway's own is short, idle connections make room for a second attempt.
async fn connect(
    gateway: &Gateway,
    endpoint: &Endpoint<Pooled>,
    service: &Service,
    timer: &mut Timer,
    deadline: Mono,
) -> Result<Transport, ConnectError> {
    let tls = service.tls.as_ref();
    match connect::connect(endpoint.address(), tls, timer, deadline).await {
        Err(ConnectError::Own(shortage)) if gateway.fall_short(shortage, "connect") => {
            connect::connect(endpoint.address(), tls, timer, deadline).await
        }
        connected => connected,
    }
}

/// An idle connection that looks alive, as one of this worker's.
fn take_kept(endpoint: &Endpoint<Pooled>, now: Mono) -> Option<Pooled> {
    let pool = endpoint.pool();
    let kept = pool.take(workers::current(), now, |pooled| pooled.is_quiet(|| pool.note_surplus()))?;
    let Pooled { transport, permit } = kept.connection;
    // One that can't be moved is as good as none.
    let transport = if kept.foreign { transport.moved_here().ok()? } else { transport };
    Some(Pooled { transport, permit })
}

/// Sends the request and receives the head of the final response.
async fn converse(
    way: Way<'_>,
    mut attempt: Box<Attempt>,
    exchange: &mut Exchange,
    client: &mut dyn Downstream,
    timer: &mut Timer,
) -> Result<(Box<Attempt>, Option<Mono>), Failure> {
    let mut wait = Wait::begin(way, exchange, timer.now());
    if !attempt.has_request_body() {
        wait.sent_at = Some(exchange.upstream.begun);
    }
    let outcome =
        std::future::poll_fn(|cx| poll_conversation(cx, &mut attempt, exchange, client, timer, &mut wait))
            .await;
    let sent = wait.sent_at;
    match outcome {
        Ok(()) => Ok((attempt, sent)),
        Err((reason, retry)) => Err(Failure { reason, retry, attempt, sent }),
    }
}

/// What is waited for, and until when.
struct Wait<'g> {
    /// Of a request that is still being sent: it is as much a stream as a response is.
    watch: StreamWatch<'g>,
    request_deadline: Mono,
    body_idle: Duration,
    response_head: Duration,
    /// How long this endpoint may take before another is tried.
    try_timeout: Option<Duration>,
    /// When the body must have moved on, or the response must have begun.
    deadline: Mono,
    body_bytes: u64,
    sent: bool,
    /// When the service had all of the request: what it takes from then on is its own.
    sent_at: Option<Mono>,
    continue_by: Mono,
}

impl<'g> Wait<'g> {
    fn begin(Way { gateway, route, service }: Way<'g>, exchange: &Exchange, now: Mono) -> Self {
        Self {
            watch: StreamWatch::new(gateway),
            request_deadline: request_deadline(route, exchange),
            body_idle: route.timeouts.request_body_idle,
            response_head: route.timeouts.response_head,
            try_timeout: service.state.retry_config().try_timeout,
            deadline: now.saturating_add(route.timeouts.request_body_idle),
            body_bytes: exchange.request_body_bytes,
            sent: false,
            sent_at: None,
            continue_by: now.saturating_add(CONTINUE_WAIT),
        }
    }
}

type Conversation = Result<(), (Reason, Option<RetryCause>)>;

fn poll_conversation(
    cx: &mut Context<'_>,
    attempt: &mut Attempt,
    exchange: &mut Exchange,
    client: &mut dyn Downstream,
    timer: &mut Timer,
    wait: &mut Wait<'_>,
) -> Poll<Conversation> {
    loop {
        if !attempt.is_sent() {
            match attempt.poll_send(cx, client) {
                // A response may be there all the same: a service that refuses a body answers, then closes.
                Poll::Ready(Ok(()) | Err(SendError::Service)) | Poll::Pending => {}
                Poll::Ready(Err(SendError::Client(error))) => {
                    return Poll::Ready(Err((client_fault(error), None)));
                }
            }
        }
        match attempt.poll_head(cx, &mut exchange.response_head) {
            Poll::Ready(Ok(())) => match exchange.response_head.status {
                100 => attempt.release_body(),
                101 => return Poll::Ready(Ok(())),
                102..200 => {
                    let fields = &mut exchange.response_head.fields;
                    strip_hop_by_hop_response(fields);
                    fields.remove(Known::ContentLength);
                    client.inform(&exchange.response_head);
                }
                _ => return Poll::Ready(Ok(())),
            },
            Poll::Ready(Err(HeadError::ClosedBefore)) => {
                let cause = if exchange.upstream.reused { RetryCause::Stale } else { RetryCause::Closed };
                return Poll::Ready(Err((Reason::ServiceAborted, Some(cause))));
            }
            Poll::Ready(Err(HeadError::ClosedWithin)) => {
                return Poll::Ready(Err((Reason::ServiceAborted, Some(RetryCause::Closed))));
            }
            Poll::Ready(Err(HeadError::Malformed(code))) => {
                return Poll::Ready(Err((Reason::ServiceMalformed(code), None)));
            }
            Poll::Pending => break,
        }
    }
    if client.poll_background(cx).is_ready() {
        return Poll::Ready(Err((Reason::ClientAborted, None)));
    }
    if !attempt.is_sent()
        && let Poll::Ready(end) = wait.watch.poll(cx, exchange)
    {
        return Poll::Ready(Err((Reason::StreamEnded(end), None)));
    }
    let waits_for_service = !attempt.is_sent() && attempt.is_stalled(client);
    let moved = client.body_bytes() != wait.body_bytes;
    wait.watch.note(attempt.outbound_bytes(), waits_for_service, moved, timer.now());
    poll_deadlines(cx, attempt, client, timer, wait)
}

fn poll_deadlines(
    cx: &mut Context<'_>,
    attempt: &mut Attempt,
    client: &dyn Downstream,
    timer: &mut Timer,
    wait: &mut Wait<'_>,
) -> Poll<Conversation> {
    let now = timer.now();
    if attempt.is_held() && now < wait.request_deadline {
        wait.deadline = now.saturating_add(wait.body_idle);
        if timer.poll_until(cx, wait.continue_by.min(wait.request_deadline)).is_ready() {
            attempt.release_body();
            cx.waker().wake_by_ref();
        }
        return Poll::Pending;
    }
    let body_bytes = client.body_bytes();
    if attempt.is_sent() && !wait.sent {
        wait.sent = true;
        wait.sent_at = wait.sent_at.or_else(|| Some(timer.precise()));
        wait.deadline = now.saturating_add(wait.try_timeout.unwrap_or(Duration::MAX).min(wait.response_head));
    } else if !wait.sent && body_bytes != wait.body_bytes {
        wait.body_bytes = body_bytes;
        wait.deadline = now.saturating_add(wait.body_idle);
    }
    if timer.poll_until(cx, wait.deadline.min(wait.request_deadline)).is_pending() {
        return Poll::Pending;
    }
    let is_try = wait.sent && wait.try_timeout.is_some_and(|limit| limit < wait.response_head);
    Poll::Ready(Err(if wait.request_deadline <= wait.deadline {
        (Reason::RequestTimeout, None)
    } else if wait.sent || attempt.is_stalled(client) {
        (Reason::ResponseHeadTimeout, is_try.then_some(RetryCause::Timeout))
    } else {
        (Reason::RequestBodyTimeout, None)
    }))
}

/// What failed at the endpoint, where it is to blame. One that closes a connection that was kept is not: it may close
/// an idle one at any time (RFC 9112 §9.3.1).
fn failure_kind(reason: &Reason) -> Option<FailureKind> {
    match reason {
        Reason::ServiceAborted => Some(FailureKind::Closed),
        Reason::ServiceMalformed(_) => Some(FailureKind::Malformed),
        Reason::ResponseHeadTimeout => Some(FailureKind::ResponseTimeout),
        _ => None,
    }
}

/// What the client is told whose body did not arrive whole.
pub(crate) fn client_fault(error: BodyError) -> Reason {
    match error {
        BodyError::Aborted => Reason::ClientAborted,
        BodyError::Malformed(code) => Reason::Malformed { code, status: 400 },
        BodyError::TooLarge => Reason::BodyTooLarge,
    }
}
