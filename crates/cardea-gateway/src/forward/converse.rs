//! Sends a request and waits for the head of its response, under the route's deadlines and the watch over its right.

use std::{
    future::poll_fn,
    task::{Context, Poll, ready},
    time::Duration,
};

use cardea_clock::Mono;
use cardea_http::{Known, strip_hop_by_hop_response};

use super::{attempt::Attempt, error::AttemptError, way::Way};
use crate::{
    downstream::{Aborted, Downstream},
    exchange::Exchange,
    model::Timeouts,
    rate::RateWindow,
    streams::{STREAM_AGE, StreamWatch},
    timer::Timer,
    upstream::SendError,
};

/// How long a service is waited for that neither answers an expectation nor asks for the body (RFC 9110 §10.1.1).
const CONTINUE_WAIT: Duration = Duration::from_secs(1);

/// Sends the request and receives the head of the final response into that of `exchange`; and when the service had all of the
/// request.
pub(super) async fn converse(
    way: Way<'_>,
    attempt: &mut Attempt,
    exchange: &mut Exchange,
    client: &mut dyn Downstream,
    watch: &mut StreamWatch<'_>,
    timer: &mut Timer,
) -> (Result<(), AttemptError>, Option<Mono>) {
    let mut wait = Wait::begin(way, exchange, watch, timer.now());
    if !attempt.has_body() {
        wait.sent_at = Some(exchange.upstream.begun);
    }
    let result = poll_fn(|cx| {
        if let Poll::Ready(result) = wait.poll_head(cx, attempt, exchange, client, timer) {
            return Poll::Ready(result);
        }
        wait.poll(cx, attempt, exchange, client, timer).map(Err)
    })
    .await;
    wait.watch.note(0, false, false, timer.now());
    // What the service is made to wait for, by the client or for room, is not its own.
    (result, wait.sent_at.filter(|_| wait.paused_since.is_none()))
}

/// What is waited for, and until when.
struct Wait<'w, 'g> {
    /// Of a request that is still being sent, or waits for longer than a moment: it is as much a stream as a response is.
    watch: &'w mut StreamWatch<'g>,
    /// When the moment is over. Before, entering the watch would cost each request more than it is worth.
    watch_from: Mono,
    request_deadline: Mono,
    timeouts: &'w Timeouts,
    /// How long this endpoint may take before another is tried.
    try_timeout: Option<Duration>,
    /// When the body must have moved on, or the response must have begun.
    deadline: Mono,
    body_bytes: u64,
    rate: RateWindow,
    sent: bool,
    /// When the service had all of the request: what it takes from then on is its own.
    sent_at: Option<Mono>,
    continue_by: Mono,
    /// The client is to get an informational response first.
    informs: bool,
    /// Since when the service is not waited for: the client has to take an informational response, or the process has no room
    /// for the response.
    paused_since: Option<Mono>,
}

impl<'w, 'g> Wait<'w, 'g> {
    fn begin(way: Way<'w>, exchange: &Exchange, watch: &'w mut StreamWatch<'g>, now: Mono) -> Self {
        let timeouts = &way.route.timeouts;
        Self {
            watch,
            watch_from: exchange.started.mono.saturating_add(STREAM_AGE),
            request_deadline: exchange.deadline(way.route),
            timeouts,
            try_timeout: way.state.retry_config().try_timeout,
            deadline: now.saturating_add(timeouts.request_body_idle),
            body_bytes: exchange.request_body_bytes,
            rate: RateWindow::new(),
            sent: false,
            sent_at: None,
            continue_by: now.saturating_add(CONTINUE_WAIT),
            informs: false,
            paused_since: None,
        }
    }

    /// Sends what can be sent, and passes informational responses on. Ready with the head of the final response.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        attempt: &mut Attempt,
        exchange: &mut Exchange,
        client: &mut dyn Downstream,
        timer: &Timer,
    ) -> Poll<Result<(), AttemptError>> {
        loop {
            if !attempt.is_sent() {
                match attempt.poll_send(cx, client) {
                    // A response may be there all the same: a service that refuses a body answers, then closes.
                    Poll::Ready(Ok(()) | Err(SendError::Endpoint)) | Poll::Pending => {}
                    Poll::Ready(Err(SendError::Body(error))) => {
                        return Poll::Ready(Err(AttemptError::Body(error)));
                    }
                }
            }
            let head = &mut exchange.response_head;
            if self.informs {
                ready!(client.poll_inform(cx, head)).map_err(|Aborted| AttemptError::ClientAborted)?;
                self.informs = false;
                self.resume(timer.now());
            }
            ready!(attempt.poll_head(cx, head)).map_err(AttemptError::Head)?;
            match head.status {
                100 => attempt.release_body(),
                102..200 => {
                    strip_hop_by_hop_response(&mut head.fields);
                    head.fields.remove(Known::ContentLength);
                    self.informs = true;
                }
                _ => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Ready once there is nothing more to wait for.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        attempt: &mut Attempt,
        exchange: &mut Exchange,
        client: &mut dyn Downstream,
        timer: &mut Timer,
    ) -> Poll<AttemptError> {
        if client.poll_background(cx).is_ready() {
            return Poll::Ready(AttemptError::ClientAborted);
        }
        let is_paused = self.informs || attempt.waits_for_room();
        let is_stream = !attempt.is_sent() || is_paused || timer.now() >= self.watch_from;
        if is_stream && let Poll::Ready(end) = self.watch.poll(cx, exchange) {
            return Poll::Ready(AttemptError::Ended(end));
        }
        let waits_for_service = !attempt.is_sent() && attempt.is_stalled(client);
        let moved = client.body_bytes() != self.body_bytes;
        self.watch.note(attempt.outbound_bytes(), waits_for_service || self.informs, moved, timer.now());
        if is_paused {
            return self.poll_paused(cx, attempt, exchange, timer);
        }
        self.resume(timer.now());
        if attempt.is_held() && timer.now() < self.request_deadline {
            self.poll_continue(cx, attempt, timer);
            return Poll::Pending;
        }
        self.poll_deadlines(cx, attempt, client, timer)
    }

    /// Waits until the client takes an informational response, or the process has room. The memory of all that waits is
    /// counted.
    fn poll_paused(
        &mut self,
        cx: &mut Context<'_>,
        attempt: &mut Attempt,
        exchange: &mut Exchange,
        timer: &mut Timer,
    ) -> Poll<AttemptError> {
        let since = *self.paused_since.get_or_insert_with(|| {
            exchange.count_memory();
            attempt.park();
            timer.now()
        });
        let deadline = since.saturating_add(self.timeouts.response_body_idle);
        timer.poll_until(cx, deadline.min(self.request_deadline)).map(|_| {
            if self.request_deadline <= deadline {
                AttemptError::Timeout
            } else if self.informs {
                AttemptError::ClientAborted
            } else {
                AttemptError::NoRoom
            }
        })
    }

    /// The service is waited for again, as it was not meanwhile.
    fn resume(&mut self, now: Mono) {
        if let Some(since) = self.paused_since.take() {
            let waited = now.saturating_since(since);
            self.sent_at = self.sent_at.map(|sent| sent.saturating_add(waited));
            self.deadline = self.deadline.saturating_add(waited);
        }
    }

    /// Lets a body go that is kept back, once the service had its time to ask for it.
    fn poll_continue(&mut self, cx: &mut Context<'_>, attempt: &mut Attempt, timer: &mut Timer) {
        self.deadline = timer.now().saturating_add(self.timeouts.request_body_idle);
        if timer.poll_until(cx, self.continue_by.min(self.request_deadline)).is_ready() {
            attempt.release_body();
            cx.waker().wake_by_ref();
        }
    }

    /// When this becomes a stream, if it is none yet.
    fn watch_from_now(&self, now: Mono) -> Mono {
        if now < self.watch_from { self.watch_from } else { Mono::MAX }
    }

    fn poll_deadlines(
        &mut self,
        cx: &mut Context<'_>,
        attempt: &Attempt,
        client: &dyn Downstream,
        timer: &mut Timer,
    ) -> Poll<AttemptError> {
        let now = timer.now();
        let body_bytes = client.body_bytes();
        if attempt.is_sent() && !self.sent {
            self.sent = true;
            self.sent_at = self.sent_at.or_else(|| Some(timer.precise()));
            let limit = self.try_timeout.unwrap_or(Duration::MAX).min(self.timeouts.response_head);
            self.deadline = now.saturating_add(limit);
        } else if !self.sent && body_bytes != self.body_bytes {
            self.body_bytes = body_bytes;
            self.deadline = now.saturating_add(self.timeouts.request_body_idle);
        }
        // What is kept from an earlier attempt is not the client's to send.
        let waits_for_client = !self.sent && !attempt.is_stalled(client);
        let least = (self.timeouts.request_body_rate_min, self.timeouts.body_rate_window);
        let Ok(look_at) = self.rate.look(least, body_bytes, waits_for_client, now) else {
            return Poll::Ready(AttemptError::BodyTooSlow);
        };
        let deadline = self.deadline.min(self.request_deadline);
        if look_at < deadline {
            if timer.poll_until(cx, look_at.min(self.watch_from_now(now))).is_ready() {
                // The window is over, or it is a stream from here on.
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        if now < self.watch_from
            && timer.poll_until(cx, deadline.min(self.watch_from)).is_ready()
            && self.watch_from < deadline
        {
            // It is a stream from here on.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        timer.poll_until(cx, deadline).map(|_| {
            if self.request_deadline <= self.deadline {
                AttemptError::Timeout
            } else if self.sent && self.try_timeout.is_some_and(|limit| limit < self.timeouts.response_head) {
                AttemptError::TryTimeout
            } else if self.sent || attempt.is_stalled(client) {
                AttemptError::HeadTimeout
            } else {
                AttemptError::BodyTimeout
            }
        })
    }
}
