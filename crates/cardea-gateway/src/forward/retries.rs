//! Which endpoint a request goes to next, and whether it may: attempts, time, and the service's retry budget.

use std::{sync::Arc, task::Poll};

use cardea_clock::Mono;
use cardea_http::{Known, Method, ResponseHead};
use cardea_upstream::{Affinity, AttemptedEndpoints, Choice, Endpoint, RetryCause, Selection};

use super::{attempt::Attempt, error::AttemptError, way::Way};
use crate::{
    downstream::Downstream, exchange::Exchange, refusal::Reason, streams::StreamWatch, timer::Timer,
    upstream::Pooled, workers,
};

/// An endpoint that was chosen, with what is reported of the attempt.
pub(super) type Chosen<'a> = (Choice, &'a Arc<Endpoint<Pooled>>);

/// The attempts at carrying one request to a service.
pub(super) struct Attempts<'a> {
    way: Way<'a>,
    affinity: Option<Affinity>,
    /// Endpoints that failed.
    tried: AttemptedEndpoints,
}

impl<'a> Attempts<'a> {
    /// None yet.
    pub(super) fn begin(way: Way<'a>, affinity: Option<Affinity>) -> Self {
        way.state.begin();
        Self { way, affinity, tried: AttemptedEndpoints::default() }
    }

    /// Where the request goes.
    pub(super) const fn way(&self) -> Way<'a> {
        self.way
    }

    /// An endpoint that this request has not failed at.
    pub(super) fn choose(&self, exchange: &Exchange, now: Mono) -> Option<Chosen<'a>> {
        let selection = Selection {
            worker: workers::current(),
            now,
            affinity: self.affinity,
            may_be_lost: !exchange.head.method.is_idempotent(),
        };
        self.way.state.choose(&selection, &self.tried)
    }

    /// The endpoint to try instead of one that can't be connected to. Nothing was sent: any request may go elsewhere.
    pub(super) fn after_connect(
        &mut self,
        choice: Choice,
        exchange: &Exchange,
        timer: &Timer,
    ) -> Option<Chosen<'a>> {
        self.failed_at(choice);
        self.again(RetryCause::Connect, exchange, timer)
    }

    /// The endpoint to try after an attempt that has failed, where that is safe.
    pub(super) fn after_failure(
        &mut self,
        choice: Choice,
        error: AttemptError,
        attempt: &Attempt,
        exchange: &Exchange,
        timer: &Timer,
    ) -> Option<Chosen<'a>> {
        let cause = error.retry_cause(exchange.upstream.reused)?;
        if !may_repeat(exchange.head.method, attempt.is_unsent(), attempt.is_replayable()) {
            return None;
        }
        // Another connection to the same endpoint may do.
        if !matches!(cause, RetryCause::Stale | RetryCause::Refused) {
            self.failed_at(choice);
        }
        self.again(cause, exchange, timer)
    }

    /// The endpoint to try in place of a response by which this one is in trouble.
    pub(super) fn after_response(
        &mut self,
        choice: Choice,
        attempt: &Attempt,
        exchange: &Exchange,
        timer: &Timer,
    ) -> Option<Chosen<'a>> {
        let statuses = &self.way.state.retry_config().statuses;
        if !statuses.contains(exchange.response_head.status)
            || !may_repeat(exchange.head.method, false, attempt.is_replayable())
        {
            return None;
        }
        self.failed_at(choice);
        self.again(RetryCause::Status, exchange, timer)
    }

    /// No further attempt is made there while there is another endpoint.
    fn failed_at(&mut self, choice: Choice) {
        self.tried.insert(choice.endpoint);
    }

    /// The endpoint for one more attempt, if it may be made. Takes from the budget.
    fn again(&self, cause: RetryCause, exchange: &Exchange, timer: &Timer) -> Option<Chosen<'a>> {
        let retry = self.way.state.retry_config();
        if exchange.upstream.attempts >= retry.attempts_max
            || timer.now() >= exchange.deadline(self.way.route)
        {
            return None;
        }
        let chosen = self.choose(exchange, timer.precise())?;
        self.way.state.retry(cause, timer.now()).then_some(chosen)
    }

    /// Waits before the next attempt: none before the second, then longer with each, so that endpoints which are in
    /// trouble together are not asked in the same moment.
    ///
    /// # Errors
    /// If the client leaves or the right to the request ends meanwhile.
    pub(super) async fn wait(
        &self,
        exchange: &Exchange,
        client: &mut dyn Downstream,
        watch: &mut StreamWatch<'_>,
        timer: &mut Timer,
    ) -> Result<(), Reason> {
        let wait = self.way.state.retry_wait(workers::current(), exchange.upstream.attempts);
        if wait.is_zero() {
            return Ok(());
        }
        let until = timer.precise().saturating_add(wait).min(exchange.deadline(self.way.route));
        let end = std::future::poll_fn(|cx| {
            if client.poll_background(cx).is_ready() {
                return Poll::Ready(Reason::ClientAborted);
            }
            watch.poll(cx, exchange).map(Reason::StreamEnded)
        });
        timer.until(until, end).await.map_or(Ok(()), Err)
    }
}

/// Whether a request can be sent once more: one of which the service can have nothing, or that is idempotent (RFC 9110
/// §9.2.2). What was framed for a connection is taken from the client, even if the connection fails before it is sent: in
/// either case all of that must have been kept.
const fn may_repeat(method: Method, is_unsent: bool, is_replayable: bool) -> bool {
    is_replayable && (is_unsent || method.is_idempotent())
}

/// For how long the service asks for fewer requests (RFC 9110 §10.2.3), by 429 and 503 alone. A date is no such request:
/// clocks differ by more than what is believed.
pub(super) fn asked_to_wait(head: &ResponseHead) -> Option<std::time::Duration> {
    if !matches!(head.status, 429 | 503) {
        return None;
    }
    let seconds = std::str::from_utf8(head.fields.get(Known::RetryAfter)?).ok()?;
    let is_number = !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| std::time::Duration::from_secs(seconds.parse().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_repeated_that_would_arrive_twice_or_without_a_part_of_its_body() {
        for (method, is_unsent, is_replayable, expected) in [
            (Method::Post, true, true, true),
            // Its body was taken for a connection that failed before it was sent.
            (Method::Post, true, false, false),
            (Method::Post, false, true, false),
            (Method::Put, true, false, false),
            (Method::Put, false, true, true),
            (Method::Put, false, false, false),
        ] {
            assert_eq!(
                may_repeat(method, is_unsent, is_replayable),
                expected,
                "{method:?} {is_unsent} {is_replayable}"
            );
        }
    }
}
