//! Takes a message body out of a connection of HTTP/1, by its framing (RFC 9112 §6). Serves requests and responses alike.

use std::task::{Context, Poll};

use cardea_http::{
    Fields,
    h1::{ChunkedDecoder, ChunkedLimits, Framing, Step},
};

use crate::{
    body::{BodyError, MalformedBody},
    buffer::Buffer,
    memory::Room,
    transport::Transport,
};

#[derive(Debug)]
enum State {
    Ended,
    Length(u64),
    Chunked(Box<ChunkedDecoder>),
    UntilClose,
    /// Where it goes on is not known any more.
    Failed(BodyError),
}

/// The state of one body.
#[derive(Debug)]
pub(crate) struct BodyReader {
    state: State,
    /// How many octets at the front of the connection's buffer are data of this body.
    available: usize,
    /// How many more octets may come.
    limit: u64,
    /// How many octets were found.
    found: u64,
    trailers: Option<Fields>,
    room: Room,
}

impl BodyReader {
    /// No body.
    pub(crate) const fn ended() -> Self {
        Self::with_state(State::Ended)
    }

    pub(crate) fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Ended,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Chunked(Box::new(ChunkedDecoder::new(ChunkedLimits::default()))),
            Framing::UntilClose => State::UntilClose,
        };
        Self::with_state(state)
    }

    const fn with_state(state: State) -> Self {
        Self { state, available: 0, limit: u64::MAX, found: 0, trailers: None, room: Room::new() }
    }

    pub(crate) fn set_limit(&mut self, bytes: u64) {
        self.limit = bytes;
    }

    /// Whether the body was taken whole.
    pub(crate) fn is_ended(&self) -> bool {
        self.available == 0 && matches!(self.state, State::Ended)
    }

    /// How many octets are still to come at least.
    pub(crate) fn left(&self) -> u64 {
        let left = if let State::Length(left) = self.state { left } else { 0 };
        left.saturating_add(self.available as u64)
    }

    /// How many octets at the front of `inbound` are data.
    pub(crate) const fn available(&self) -> usize {
        self.available
    }

    /// How many octets of the body were found so far.
    pub(crate) const fn found(&self) -> u64 {
        self.found
    }

    pub(crate) fn trailers(&self) -> Option<&Fields> {
        self.trailers.as_ref()
    }

    pub(crate) fn consume(&mut self, inbound: &mut Buffer, count: usize) {
        let count = count.min(self.available);
        inbound.consume(count);
        self.available -= count;
    }

    /// Finds data in `inbound`, receiving more where there is none. See [`crate::body::BodySource::poll_data`].
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        inbound: &mut Buffer,
    ) -> Poll<Result<bool, BodyError>> {
        loop {
            match self.find(inbound) {
                Ok(true) => return Poll::Ready(Ok(true)),
                Ok(false) => {}
                Err(error) => return Poll::Ready(Err(self.fail(error))),
            }
            if matches!(self.state, State::Ended) {
                return Poll::Ready(Ok(false));
            }
            if inbound.is_full() {
                return Poll::Ready(Err(self.fail(MalformedBody::FramingTooLarge.into())));
            }
            let received = match inbound.poll_room(cx, &mut self.room) {
                Poll::Ready(()) => transport.poll_recv(cx, inbound),
                Poll::Pending => Poll::Pending,
            };
            match received {
                Poll::Ready(Ok(0)) if matches!(self.state, State::UntilClose) => self.state = State::Ended,
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(self.fail(BodyError::Aborted))),
                Poll::Ready(Ok(_)) => {}
                Poll::Pending => {
                    inbound.park();
                    return Poll::Pending;
                }
            }
        }
    }

    /// Once a body has failed, what follows is not to be taken for more of it, and not for another message.
    fn fail(&mut self, error: BodyError) -> BodyError {
        self.state = State::Failed(error);
        self.available = 0;
        error
    }

    /// Whether there is data at the front of `inbound`; discards what is framing.
    fn find(&mut self, inbound: &mut Buffer) -> Result<bool, BodyError> {
        while self.available == 0 {
            let found = match &mut self.state {
                State::Ended => return Ok(false),
                State::Length(left) => {
                    let found = usize::try_from(*left).unwrap_or(usize::MAX).min(inbound.len());
                    *left -= found as u64;
                    if *left == 0 {
                        self.state = State::Ended;
                    }
                    found
                }
                State::Failed(error) => return Err(*error),
                State::UntilClose => inbound.len(),
                State::Chunked(decoder) => {
                    match decoder.step(inbound.filled()).map_err(MalformedBody::from)? {
                        Step::Skip(count) => {
                            inbound.consume(count);
                            continue;
                        }
                        Step::Data(count) => count,
                        Step::NeedMore => 0,
                        Step::Done(count) => {
                            inbound.consume(count);
                            self.trailers = decoder.trailers().cloned();
                            self.state = State::Ended;
                            return Ok(false);
                        }
                    }
                }
            };
            if found == 0 {
                return Ok(false);
            }
            self.limit = self.limit.checked_sub(found as u64).ok_or(BodyError::TooLarge)?;
            self.found += found as u64;
            self.available = found;
        }
        Ok(true)
    }
}
