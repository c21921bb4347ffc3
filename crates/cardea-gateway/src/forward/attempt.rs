//! One attempt at carrying a request to an endpoint: sends the request, receives the response.

use std::{
    io::IoSlice,
    task::{Context, Poll, ready},
};

use cardea_http::{
    Fields, Method, ResponseHead,
    h1::{Framing, ResponseDecoder, response_framing, wants_keep_alive, write_chunk_size, write_last_chunk},
};
use cardea_upstream::Hold;

use super::{lease::Lease, replay::Replay};
use crate::{
    buffer::{Buffer, Outbound, recycle_outbound},
    downstream::{BodyError, Downstream},
    fields::{HeadNames, clean_request_trailers},
    gateway::ModelRef,
    h1::body::BodyReader,
    transport::Transport,
};

/// Chunked data is gathered up to this size before it is sent, in bytes.
const GATHER_BYTES: usize = 16 * 1024;

/// How many informational responses one request may have: beyond that a service could fill our memory with them.
const INFORMATIONAL_MAX: u32 = 32;

/// And how much they may be together, in bytes: what a client does not take of them stays with us, and of HTTP/2 no window
/// holds them back.
const INFORMATIONAL_BYTES_MAX: usize = 64 * 1024;

/// Whose fault it is that the request could not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendError {
    /// The service's connection failed.
    Service,
    /// The client's body did.
    Client(BodyError),
}

/// Why there is no response head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadError {
    /// The connection ended; nothing of a response was received.
    ClosedBefore,
    /// The connection ended within the head.
    ClosedWithin,
    /// It breaks a rule; the codec's reason code.
    Malformed(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sending {
    /// Waits for the service's `100 Continue`.
    Held,
    Body,
    Ended,
    /// The service does not take it any more.
    Failed,
}

/// Where the next octets of the request's body come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Nothing,
    Replay,
    Client,
}

/// A request on its way out.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// The head, encoded.
    pub(crate) outbound: Vec<u8>,
    pub(crate) method: Method,
    pub(crate) framing: Framing,
    pub(crate) replay: Replay,
    /// The route's place, whose rules hold for trailers too.
    pub(crate) route: Option<usize>,
    /// The names of its head, where trailers may follow.
    pub(crate) names: HeadNames,
}

/// An exchange with an endpoint. Its connection goes back to the pool at the end of the response if it can be used
/// again, and is closed otherwise.
#[derive(Debug)]
pub(crate) struct Attempt {
    transport: Option<Transport>,
    inbound: Buffer,
    outbound: Outbound,
    /// Nothing that was sent is kept back in the transport.
    flushed: bool,
    /// Nothing was given to the transport yet.
    unsent: bool,
    sending: Sending,
    request_framing: Framing,
    replay: Replay,
    replayed: usize,
    decoder: ResponseDecoder,
    method: Method,
    body: BodyReader,
    framing: Framing,
    keep_alive: bool,
    /// The response has no body whatever its head says, so bytes that follow it belong to nothing.
    hold: Option<Hold>,
    informational: u32,
    informational_bytes: usize,
    /// It was the client that ended the exchange early.
    client_failed: bool,
    lease: Lease,
    model: ModelRef,
    route: Option<usize>,
    names: HeadNames,
}

impl Attempt {
    /// Begins to send `request` over `transport`.
    pub(crate) fn new(transport: Transport, lease: Lease, request: Outgoing, model: ModelRef) -> Self {
        let Outgoing { outbound, method, framing, replay, route, names } = request;
        let mut attempt = Self {
            transport: Some(transport),
            inbound: Buffer::new(),
            outbound: Outbound::new(outbound),
            flushed: false,
            unsent: true,
            sending: Sending::Ended,
            request_framing: framing,
            replay,
            replayed: 0,
            decoder: ResponseDecoder::new(model.limits.response_head),
            method,
            body: BodyReader::ended(),
            framing: Framing::None,
            keep_alive: false,
            hold: None,
            informational: 0,
            informational_bytes: 0,
            client_failed: false,
            lease,
            model,
            route,
            names,
        };
        if attempt.has_request_body() {
            attempt.sending = Sending::Body;
        }
        attempt
    }

    /// Keeps the body back until [`Attempt::release_body`], as `Expect: 100-continue` asks (RFC 9110 §10.1.1).
    pub(crate) fn hold_body(&mut self) {
        if self.sending == Sending::Body {
            self.sending = Sending::Held;
        }
    }

    /// Whether the body is kept back.
    pub(crate) fn is_held(&self) -> bool {
        self.sending == Sending::Held
    }

    /// Lets the body go.
    pub(crate) fn release_body(&mut self) {
        if self.sending == Sending::Held {
            self.sending = Sending::Body;
        }
    }

    /// Gives back what another attempt needs; the connection is closed.
    pub(crate) fn into_replay(self) -> Replay {
        self.replay
    }

    /// Whether the whole request could be sent once more.
    pub(crate) const fn is_replayable(&self) -> bool {
        self.replay.is_possible()
    }

    /// Whether the service can have nothing of the request.
    pub(crate) const fn is_unsent(&self) -> bool {
        self.unsent
    }

    /// Whether the request has a body.
    pub(crate) const fn has_request_body(&self) -> bool {
        !matches!(self.request_framing, Framing::None | Framing::Length(0))
    }

    /// Whether all of the request is sent, or what is left never will be.
    pub(crate) fn is_sent(&self) -> bool {
        matches!(self.sending, Sending::Ended | Sending::Failed) && self.outbound.is_empty() && self.flushed
    }

    /// Whether something is there to be sent that the service does not take.
    pub(crate) fn is_stalled(&self, client: &dyn Downstream) -> bool {
        !self.outbound.is_empty() || !self.flushed || !client.chunk().is_empty()
    }

    /// Whether the exchange ended early because of the client.
    pub(crate) const fn client_failed(&self) -> bool {
        self.client_failed
    }

    /// Sends the request: its head, then its body as the client gives it. Ready when all is sent.
    ///
    /// # Errors
    /// Once; after that, nothing more is sent and the attempt is only good for receiving.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut dyn Downstream,
    ) -> Poll<Result<(), SendError>> {
        loop {
            let source = self.poll_source(cx, client).map_err(|error| {
                self.sending = Sending::Failed;
                SendError::Client(error)
            })?;
            let chunked = self.request_framing == Framing::Chunked;
            let unsent = self.outbound.unsent().len();
            if chunked && source != Source::Nothing && unsent < GATHER_BYTES {
                self.gather(source, client);
                continue;
            }
            let Self { transport: Some(transport), outbound, flushed, unsent: untouched, .. } = self else {
                return Poll::Ready(Ok(()));
            };
            let chunk = match source {
                Source::Replay if !chunked => self.replay.kept().get(self.replayed..).unwrap_or_default(),
                Source::Client if !chunked => client.chunk(),
                _ => &[],
            };
            if unsent == 0 && chunk.is_empty() {
                return match transport.poll_flush(cx) {
                    Poll::Ready(Ok(())) => {
                        *flushed = true;
                        if !matches!(self.sending, Sending::Ended | Sending::Failed) {
                            return Poll::Pending;
                        }
                        // The next request uses it while this one waits for its response.
                        recycle_outbound(std::mem::take(outbound).into_memory());
                        Poll::Ready(Ok(()))
                    }
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(Err(_)) => Poll::Ready(Err(self.fail())),
                };
            }
            let head = outbound.unsent();
            let sent = match (head.is_empty(), chunk.is_empty()) {
                (false, true) => transport.poll_send(cx, &[IoSlice::new(head)]),
                (true, _) => transport.poll_send(cx, &[IoSlice::new(chunk)]),
                (false, false) => transport.poll_send(cx, &[IoSlice::new(head), IoSlice::new(chunk)]),
            };
            *flushed = false;
            match ready!(sent) {
                Ok(sent) => {
                    *untouched &= sent == 0;
                    let of_outbound = sent.min(unsent);
                    outbound.advance(of_outbound);
                    self.took(source, client, sent - of_outbound);
                }
                Err(_) => return Poll::Ready(Err(self.fail())),
            }
        }
    }

    fn fail(&mut self) -> SendError {
        self.sending = Sending::Failed;
        self.outbound.clear();
        self.flushed = true;
        SendError::Service
    }

    /// Where the next part of the body comes from; notes its end.
    fn poll_source(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut dyn Downstream,
    ) -> Result<Source, BodyError> {
        if self.sending != Sending::Body {
            return Ok(Source::Nothing);
        }
        if self.replayed < self.replay.kept().len() {
            return Ok(Source::Replay);
        }
        match client.poll_data(cx) {
            Poll::Ready(Ok(true)) => Ok(Source::Client),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Ok(Source::Nothing),
            Poll::Ready(Ok(false)) => {
                self.sending = Sending::Ended;
                if self.request_framing == Framing::Chunked {
                    let trailers = client.trailers().map(|trailers| self.clean_trailers(trailers));
                    write_last_chunk(self.outbound.more(), trailers.as_ref());
                }
                Ok(Source::Nothing)
            }
        }
    }

    fn clean_trailers(&self, trailers: &Fields) -> Fields {
        let route = self.route.and_then(|route| self.model.router.get(route));
        clean_request_trailers(&self.model, route.map(|route| &**route), &self.names, trailers)
    }

    /// Frames the next part of the body into `outbound`.
    fn gather(&mut self, source: Source, client: &mut dyn Downstream) {
        let chunk = match source {
            Source::Replay => self.replay.kept().get(self.replayed..).unwrap_or_default(),
            Source::Client => client.chunk(),
            Source::Nothing => return,
        };
        let count = chunk.len();
        let outbound = self.outbound.more();
        write_chunk_size(outbound, count);
        outbound.extend_from_slice(chunk);
        outbound.extend_from_slice(b"\r\n");
        self.took(source, client, count);
    }

    fn took(&mut self, source: Source, client: &mut dyn Downstream, count: usize) {
        match source {
            Source::Nothing => {}
            Source::Replay => self.replayed += count,
            Source::Client => {
                self.replay.record(client.chunk().get(..count).unwrap_or_default());
                self.replayed = self.replay.kept().len();
                client.consume(count);
            }
        }
    }

    /// Receives the head of a response into `head`: a final one or an informational one.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        head: &mut ResponseHead,
    ) -> Poll<Result<(), HeadError>> {
        let Some(transport) = &mut self.transport else { return Poll::Ready(Err(HeadError::ClosedBefore)) };
        loop {
            if !self.inbound.is_empty() {
                match self.decoder.decode(self.inbound.filled(), head) {
                    Ok(Some(consumed)) => {
                        self.inbound.consume(consumed);
                        return Poll::Ready(self.begin_response(head, consumed));
                    }
                    Ok(None) if self.inbound.is_full() => {
                        self.inbound.grow(self.inbound.len() * 2);
                    }
                    Ok(None) => {}
                    Err(error) => return Poll::Ready(Err(HeadError::Malformed(error.code()))),
                }
            }
            match transport.poll_recv(cx, &mut self.inbound) {
                Poll::Ready(Ok(count)) if count > 0 => {}
                Poll::Ready(_) if self.inbound.is_empty() => {
                    return Poll::Ready(Err(HeadError::ClosedBefore));
                }
                Poll::Ready(_) => return Poll::Ready(Err(HeadError::ClosedWithin)),
                Poll::Pending => {
                    self.inbound.park();
                    return Poll::Pending;
                }
            }
        }
    }

    /// `head` is complete, and came as so many bytes.
    fn begin_response(&mut self, head: &ResponseHead, bytes: usize) -> Result<(), HeadError> {
        self.decoder.reset();
        let malformed = |error: cardea_http::ResponseError| HeadError::Malformed(error.code());
        // Of informational responses too: what follows one that claims a body has two readings.
        let framing = response_framing(head, self.method).map_err(malformed)?;
        if head.status < 200 && head.status != 101 {
            self.informational += 1;
            self.informational_bytes += bytes;
            let too_large = self.informational_bytes > INFORMATIONAL_BYTES_MAX;
            return if too_large || self.informational > INFORMATIONAL_MAX {
                Err(HeadError::Malformed("informational_responses_too_many"))
            } else {
                Ok(())
            };
        }
        self.framing = framing;
        self.keep_alive = wants_keep_alive(head.version, &head.fields) && head.status != 101;
        self.hold = match framing {
            _ if self.method == Method::Head => Some(Hold::Always),
            // 204, 304, and a length of 0, behind which a handler may write a body all the same.
            Framing::None | Framing::Length(0) => Some(Hold::Sample),
            Framing::Length(_) | Framing::Chunked | Framing::UntilClose => None,
        };
        self.body = BodyReader::new(self.framing);
        if self.sending == Sending::Held {
            // The service decided without the body, so it is not sent; the connection can't be used again.
            self.sending = Sending::Failed;
        }
        // After a 101 the connection is a tunnel's.
        if self.body.is_ended() && head.status != 101 {
            self.finish();
        }
        Ok(())
    }

    /// Notes that what came is no response. On a connection that was used before, it may be what was left of another one.
    pub(crate) fn note_surplus(&self) {
        self.lease.note_surplus();
    }

    /// Gives up a response that another attempt replaces. Where all of it is there, its connection is used again.
    pub(crate) async fn skip_response(&mut self, client: &mut dyn Downstream) {
        std::future::poll_fn(|cx| {
            while let Poll::Ready(Ok(true)) = self.poll_data(cx, client) {
                self.consume(self.chunk().len());
            }
            Poll::Ready(())
        })
        .await;
    }

    /// How the response's body is delimited.
    pub(crate) const fn response_framing(&self) -> Framing {
        self.framing
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
        let Some(transport) = &mut self.transport else { return Poll::Ready(Ok(false)) };
        let more = ready!(self.body.poll_data(cx, transport, &mut self.inbound))?;
        if !more {
            self.finish();
        }
        Poll::Ready(Ok(more))
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
            && self.transport.is_some()
            && let Poll::Ready(Err(SendError::Client(error))) = self.poll_send(cx, client)
        {
            self.client_failed = true;
            return Err(error);
        }
        Ok(())
    }

    pub(crate) fn chunk(&self) -> &[u8] {
        self.inbound.filled().get(..self.body.available()).unwrap_or_default()
    }

    /// How much memory is held for what is to be sent, in bytes.
    pub(crate) const fn outbound_bytes(&self) -> usize {
        self.outbound.memory_bytes()
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.body.consume(&mut self.inbound, count);
    }

    pub(crate) fn trailers(&self) -> Option<&Fields> {
        self.body.trailers()
    }

    /// Gives the connection back where nothing speaks against using it again: it is kept alive, the request was sent
    /// whole, and nothing came that was not asked for.
    fn finish(&mut self) {
        let whole = self.sending == Sending::Ended && self.is_sent();
        let Some(transport) = self.transport.take() else { return };
        if !self.inbound.is_empty() {
            self.lease.note_surplus();
        } else if self.keep_alive && whole && self.framing != Framing::UntilClose {
            self.lease.give_back(transport, self.model.clock().mono(), self.hold);
        }
        self.inbound.release();
        recycle_outbound(std::mem::take(&mut self.outbound).into_memory());
    }

    /// The connection after a `101 Switching Protocols`, with what was received on it beyond the head.
    pub(crate) fn into_tunnel(mut self) -> Option<(Transport, Buffer, Lease)> {
        let transport = self.transport.take()?;
        Some((transport, self.inbound, self.lease))
    }
}
