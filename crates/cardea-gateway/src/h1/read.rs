//! Waits for requests on a connection, and reads their heads.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

use cardea_clock::Mono;
use cardea_http::{
    Known, Version, accepts_trailers,
    h1::{request_framing, wants_keep_alive},
};

use super::Connection;
use crate::{
    connections::Activity,
    exchange::{ConnectionFacts, Exchange},
    framing::BodyReader,
    gateway::Gateway,
    memory::{self, Ending},
    record::RequestId,
    refusal::Reason,
    termination::TerminationReason,
    timer::Timer,
};

/// What comes next on a connection.
pub(super) enum Next {
    Request(Box<Exchange>),
    Refused(Box<Exchange>, Reason),
    /// Nothing more.
    End,
}

impl Connection {
    /// Waits for the next request and reads its head.
    pub(super) async fn next(
        &mut self,
        gateway: &Gateway,
        facts: &Arc<ConnectionFacts>,
        timer: &mut Timer,
        begun: bool,
    ) -> Next {
        self.decoder.reset();
        self.body = BodyReader::ended();
        self.is_last = false;
        if self.inbound.is_empty() && !self.wait_for_bytes(gateway, &facts.activity, timer, begun).await {
            return Next::End;
        }
        let deadline = timer.now().saturating_add(gateway.connection_timeouts().request_head);
        // While more of a head is awaited, it has nothing but what came of it.
        let mut exchange = None;
        let read = poll_fn(|cx| {
            let polled = self.poll_head(cx, exchange.get_or_insert_with(Exchange::take), timer, deadline);
            if polled.is_pending() {
                exchange.take().into_iter().for_each(Exchange::recycle);
                // Nothing was decided on it yet, so all that can end it is a lack of memory.
                if facts.activity.account().ending() == Ending::Connection {
                    return Poll::Ready(Err(Reason::StreamEnded(TerminationReason::BuffersExhausted)));
                }
                if memory::is_full() && !self.inbound.is_empty() {
                    return Poll::Ready(Err(Reason::Overloaded));
                }
            }
            polled
        })
        .await;
        let mut exchange = exchange.unwrap_or_else(Exchange::take);
        exchange.id = RequestId::generate(gateway.clock.wall());
        exchange.connection = Some(Arc::clone(facts));
        exchange.scheme = facts.scheme();
        exchange.started = gateway.clock.precise();
        exchange.early_data = self.transport.is_early();
        match read {
            Ok(true) => self.begin(exchange),
            Ok(false) => {
                exchange.recycle();
                Next::End
            }
            Err(reason) => {
                // Nothing of it is read any more, and its answer may be long in going out.
                self.inbound.park();
                Next::Refused(exchange, reason)
            }
        }
    }

    /// Waits until something was received; `false` if nothing will be.
    async fn wait_for_bytes(
        &mut self,
        gateway: &Gateway,
        activity: &Activity,
        timer: &mut Timer,
        begun: bool,
    ) -> bool {
        let timeouts = gateway.connection_timeouts();
        let limit = if begun { timeouts.keep_alive_idle } else { timeouts.request_head };
        let deadline = timer.now().saturating_add(limit);
        let mut rests = false;
        let come = poll_fn(|cx| {
            match self.transport.poll_recv(cx, &mut self.inbound) {
                Poll::Ready(Ok(count)) => return Poll::Ready(count > 0),
                Poll::Ready(Err(_)) => return Poll::Ready(false),
                Poll::Pending => self.inbound.release(),
            }
            // Woken when the gateway stops; a connection that never was used is left to its first request.
            if begun && gateway.is_stopping() {
                return Poll::Ready(false);
            }
            if !rests {
                rests = true;
                activity.rest(timer.now());
            } else if activity.is_evicted() {
                // Nobody is in the middle of anything: it need not be waited for that the client ends its side.
                self.is_last = true;
                return Poll::Ready(false);
            }
            timer.poll_until(cx, deadline).map(|_| false)
        })
        .await;
        if rests {
            activity.resume();
        }
        come
    }

    /// Ready with `true` when the head is complete, with `false` when the client has left.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
        timer: &mut Timer,
        deadline: Mono,
    ) -> Poll<Result<bool, Reason>> {
        loop {
            match self.decoder.decode(self.inbound.filled(), &mut exchange.head) {
                Ok(Some(consumed)) => {
                    self.inbound.consume(consumed);
                    return Poll::Ready(Ok(true));
                }
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(Reason::from(error))),
            }
            if self.inbound.is_full() {
                // The decoder's limits end this.
                self.inbound.grow(self.inbound.len() * 2);
            }
            match self.transport.poll_recv(cx, &mut self.inbound) {
                Poll::Ready(Ok(count)) if count > 0 => {}
                Poll::Ready(_) => return Poll::Ready(Ok(false)),
                Poll::Pending => {
                    self.inbound.park();
                    return timer.poll_until(cx, deadline).map(|_| Err(Reason::RequestHeadTimeout));
                }
            }
        }
    }

    /// Reads from the head what concerns the connection.
    fn begin(&mut self, exchange: Box<Exchange>) -> Next {
        let head = &exchange.head;
        self.version = head.version;
        let framing = match request_framing(head) {
            Ok(framing) => framing,
            Err(error) => return Next::Refused(exchange, Reason::from(error)),
        };
        self.body_length = framing.into();
        self.body = BodyReader::new(framing);
        self.keep_alive = wants_keep_alive(head.version, &head.fields);
        self.is_last = !self.keep_alive;
        self.expects_continue = head.version >= Version::Http11
            && !self.body.is_ended()
            && head
                .fields
                .get(Known::Expect)
                .is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"));
        self.takes_trailers = accepts_trailers(&head.fields);
        Next::Request(exchange)
    }
}
