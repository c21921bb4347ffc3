//! One attempt at carrying a request to an endpoint: an upstream exchange with the body that it sends.

use std::{
    future::poll_fn,
    task::{Context, Poll},
};

use cardea_clock::Clock;
use cardea_http::{BodyLength, Fields, ResponseHead};
use cardea_upstream::InFlight;

use super::{body::RequestBody, replay::Replay};
use crate::{
    body::BodyError,
    downstream::Downstream,
    model::ModelRef,
    upstream::{HeadError, SendError, Tunnel, UpstreamExchange},
};

/// An exchange with an endpoint, on behalf of a client.
#[derive(Debug)]
pub(crate) struct Attempt {
    exchange: UpstreamExchange,
    body: RequestBody,
    /// It was the client that ended the exchange early.
    client_failed: bool,
    /// The endpoint has all that the client gave of the body, and more is to come.
    waits_for_client: bool,
    /// It counts at the endpoint for as long as it lasts.
    in_flight: InFlight,
    model: ModelRef,
}

impl Attempt {
    /// Has begun as `exchange`, which is to send `body`.
    pub(super) const fn new(
        exchange: UpstreamExchange,
        body: RequestBody,
        in_flight: InFlight,
        model: ModelRef,
    ) -> Self {
        Self { exchange, body, client_failed: false, waits_for_client: false, in_flight, model }
    }

    /// Whether the body is kept back.
    pub(super) const fn is_held(&self) -> bool {
        self.body.is_held()
    }

    /// Lets the body go.
    pub(super) const fn release_body(&mut self) {
        self.body.release();
    }

    /// Gives back what another attempt needs; the connection is closed.
    pub(super) fn into_replay(self) -> Replay {
        self.body.into_replay()
    }

    /// Whether the whole request could be sent once more.
    pub(super) const fn is_replayable(&self) -> bool {
        self.body.is_replayable()
    }

    /// Whether the service can have nothing of the request.
    pub(super) const fn is_unsent(&self) -> bool {
        self.exchange.is_unsent()
    }

    /// Whether its connection goes on where it is given up.
    pub(super) const fn is_multiplexed(&self) -> bool {
        self.exchange.is_multiplexed()
    }

    /// Whether the request has a body.
    pub(super) const fn has_body(&self) -> bool {
        self.body.is_expected()
    }

    /// Whether all of the request is sent, or what is left never will be.
    pub(super) fn is_sent(&self) -> bool {
        self.exchange.is_sent()
    }

    /// Whether something is there to be sent that the service does not take.
    pub(super) fn is_stalled(&self, client: &dyn Downstream) -> bool {
        self.exchange.is_stalled() || !client.chunk().is_empty()
    }

    /// Whether the head of the response is not received until the process has room for it.
    pub(super) const fn waits_for_room(&self) -> bool {
        self.exchange.waits_for_room()
    }

    /// How much memory is held for what is to be sent, in bytes.
    pub(super) const fn outbound_bytes(&self) -> usize {
        self.exchange.outbound_bytes()
    }

    /// Whether the exchange ended early because of the client.
    pub(crate) const fn client_failed(&self) -> bool {
        self.client_failed
    }

    /// Sends the request: its head, then its body as the client gives it. Ready when all is sent.
    ///
    /// # Errors
    /// Once; after that, nothing more is sent and the attempt is only good for receiving.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut dyn Downstream,
    ) -> Poll<Result<(), SendError>> {
        let polled = self.exchange.poll_send(cx, &mut self.body.source(&self.model, client));
        match polled {
            // A body that is held waits for the endpoint.
            Poll::Pending => self.waits_for_client = !self.body.is_held() && !self.exchange.is_stalled(),
            Poll::Ready(Ok(())) => self.waits_for_client = false,
            // The endpoint may have closed while the client was waited for.
            Poll::Ready(Err(_)) => {}
        }
        polled
    }

    /// Whether the endpoint had all that the client gave of the body when it was last sent, and more was to come.
    pub(super) const fn waits_for_client(&self) -> bool {
        self.waits_for_client
    }

    /// Receives the head of a response into `head`: a final one or an informational one.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        head: &mut ResponseHead,
    ) -> Poll<Result<(), HeadError>> {
        let polled = self.exchange.poll_head(cx, head, self.model.clock());
        if self.body.is_held() && polled == Poll::Ready(Ok(())) && head.status >= 200 {
            // The service decided without the body, so it is not sent; the connection can't be used again.
            self.body.release();
            self.exchange.abandon_body();
        }
        polled
    }

    /// Notes that what came is no response. On a connection that was used before, it may be what was left of another one.
    pub(super) fn note_surplus(&self) {
        self.exchange.note_surplus();
    }

    /// Gives up a response that another attempt replaces. Where all of it is there, its connection is used again.
    pub(super) async fn skip_response(&mut self, client: &mut dyn Downstream) {
        poll_fn(|cx| {
            while let Poll::Ready(Ok(true)) = self.poll_data(cx, client) {
                self.consume(self.chunk().len());
            }
            Poll::Ready(())
        })
        .await;
    }

    /// How long the response's body is, as far as its head says.
    pub(crate) fn response_length(&self) -> BodyLength {
        self.exchange.response_length()
    }

    /// See [`crate::response::ResponseBody::poll_data`].
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut dyn Downstream,
    ) -> Poll<Result<bool, BodyError>> {
        // A service may answer before it has read all, and its refusal to read on does not void its answer. A client
        // that broke off does: nobody is there to be answered, or not to what was asked.
        self.poll_request(cx, client)?;
        self.poll_rest(cx)
    }

    /// The clock of its model.
    pub(super) fn clock(&self) -> &Clock {
        self.model.clock()
    }

    /// As [`poll_data`](Self::poll_data), where all of the request is sent.
    pub(super) fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, BodyError>> {
        self.exchange.poll_data(cx, self.model.clock())
    }

    /// Sends on what is left of the request while its response is under way.
    ///
    /// # Errors
    /// If it is the client's fault that the request can't be sent whole.
    pub(crate) fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut dyn Downstream,
    ) -> Result<(), BodyError> {
        if !self.is_sent()
            && let Poll::Ready(Err(SendError::Body(error))) = self.poll_send(cx, client)
        {
            self.client_failed = true;
            return Err(error);
        }
        Ok(())
    }

    /// See [`crate::response::ResponseBody::park`].
    pub(crate) fn park(&mut self) {
        self.exchange.park();
    }

    pub(crate) fn chunk(&self) -> &[u8] {
        self.exchange.chunk()
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.exchange.consume(count);
    }

    pub(crate) fn trailers(&self) -> Option<&Fields> {
        self.exchange.trailers()
    }

    /// The tunnel after a `101 Switching Protocols`, if the connection is still there.
    pub(super) fn into_tunnel(self) -> Option<Tunnel> {
        self.exchange.into_tunnel(self.in_flight)
    }
}
