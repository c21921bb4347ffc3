//! Where a request goes: what all its attempts have in common, and what they tell of their endpoints.

use std::{sync::Arc, time::Duration};

use cardea_clock::Mono;
use cardea_http::{BodyLength, Known};
use cardea_upstream::{Choice, FailureKind, InFlight, ReachedLimit, RetryCause, ServiceState};

use super::{
    attempt::Attempt, body::RequestBody, error::AttemptError, replay::Replay, request, retries::asked_to_wait,
};
use crate::{
    exchange::Exchange,
    gateway::Gateway,
    grpc,
    model::{ModelRef, Route, Service},
    refusal::Reason,
    upstream::{Connection, Offer, Pooled},
};

/// An endpoint that closes sooner, without all of a request, fails: no server gives up so soon on a client that is slow.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where a request goes, and by what.
#[derive(Clone, Copy)]
pub(super) struct Way<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) model: &'a ModelRef,
    pub(super) route: &'a Route,
    pub(super) service: &'a Service,
    /// The service's endpoints, for all attempts.
    pub(super) state: &'a ServiceState<Pooled>,
}

impl Way<'_> {
    /// What is offered to an endpoint for a request.
    pub(super) const fn offer(self, exchange: &Exchange) -> Offer {
        self.service.offer(exchange.upgrade)
    }

    /// What is to be kept of the request's body.
    pub(super) fn replay(self, exchange: &Exchange, length: BodyLength) -> Replay {
        // Sent once it is never sent again, so there is no point in keeping it. Over HTTP/2 an endpoint can say that it has done
        // nothing with a request.
        let may_repeat = exchange.head.method.is_idempotent() || self.service.protocol.has_http2();
        if length.is_empty() || !may_repeat {
            return Replay::empty();
        }
        let limits = &self.model.limits;
        let budget = Arc::clone(self.model.replay_budget());
        Replay::new(limits.replay_bytes_max, budget)
    }

    /// Why there is no endpoint for a request.
    #[cold]
    pub(super) fn nothing_to_choose(self) -> Reason {
        match self.state.reached_limit() {
            Some(ReachedLimit::Requests) => Reason::EndpointsFull,
            Some(ReachedLimit::Connections) => Reason::ConnectionsExhausted,
            None => Reason::NoEndpoint,
        }
    }

    /// Begins an attempt over `connection`.
    pub(super) fn begin(
        self,
        connection: Connection,
        in_flight: InFlight,
        exchange: &mut Exchange,
        length: BodyLength,
        replay: Replay,
    ) -> Attempt {
        let mut body = RequestBody::new(exchange, length, replay);
        if exchange.head.fields.get(Known::Expect).is_some() {
            // Until the service asks for it (RFC 9110 §10.1.1).
            body.hold();
        }
        grpc::renew_timeout(self.route, exchange, &self.gateway.clock);
        let limits = self.service.limits(&self.model.limits);
        let sent = request::with_head(exchange, self.route, length, |head| connection.begin(head, limits));
        Attempt::new(sent, body, in_flight, self.model.clone())
    }

    /// Tells the service's state of a response, which took until `now` since all of the request was sent.
    pub(super) fn report_response(self, choice: Choice, exchange: &Exchange, now: Mono, sent: Option<Mono>) {
        let latency = sent.map(|sent| now.saturating_since(sent));
        let status = exchange.response_head.status;
        self.state.responded(choice, now, status, latency);
        if let Some(latency) = latency
            && !is_refusal(status)
        {
            self.learn(exchange, latency, now);
        }
        if let Some(wait) = asked_to_wait(&exchange.response_head) {
            self.state.eased(choice, now, wait);
        }
    }

    /// Tells the route's adaptive limits how long the service took.
    fn learn(self, exchange: &Exchange, took: Duration, now: Mono) {
        if let Some(permits) = &exchange.admission.permits {
            self.route.admission(exchange.share).learn(permits.holding(), took, now);
        }
    }

    /// Tells the service's state of an attempt that failed. A client that leaves is no failure of the endpoint, and one that
    /// ran out of time before the endpoint did is none either: they show how long it took at least. An endpoint that closes
    /// while it waits for a slow client's body has not failed.
    pub(super) fn report_failure(
        self,
        choice: Choice,
        error: AttemptError,
        attempt: &Attempt,
        exchange: &Exchange,
        now: Mono,
        sent: Option<Mono>,
    ) {
        let reused = exchange.upstream.reused;
        let waited = sent.map(|sent| now.saturating_since(sent));
        let failure = error.failure_kind();
        if let Some(waited) = waited
            && (error.is_abandoned() || failure == Some(FailureKind::ResponseTimeout))
        {
            // At least. Without these, the slowest requests would be missing under overload.
            self.learn(exchange, waited, now);
        }
        if let Some(kind) = failure {
            // The endpoint may close an idle connection at any time.
            let is_stale = error.retry_cause(reused) == Some(RetryCause::Stale);
            let was_kept_waiting = error.is_before_response()
                && attempt.waits_for_client()
                && now.saturating_since(exchange.upstream.begun) >= PATIENCE;
            if !is_stale && !was_kept_waiting {
                self.state.failed(choice, now, kind, waited.unwrap_or_default());
            }
        } else if error.is_abandoned()
            && let Some(waited) = waited
        {
            self.state.abandoned(choice, now, waited);
        }
        if reused && error.is_malformed() {
            attempt.note_surplus();
        }
    }
}

/// Whether a service refuses work or fails, which takes less time than work.
const fn is_refusal(status: u16) -> bool {
    status == 429 || status >= 500
}
