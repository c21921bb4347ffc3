//! The client's side of a stream.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes};
use cardea_http::{BodyLength, Fields, ResponseHead, TrailerError};
use h2::{RecvStream, server::SendResponse};

use super::{
    head,
    queued::{QueuedHeads, Room, RoomRequest},
};
use crate::{
    body::{BodyError, BodySource, MalformedBody},
    downstream::{Aborted, Downstream},
    memory::Held,
    timer::Timer,
};

/// How long the rest of a body is taken in that nobody wants.
const LINGER: Duration = Duration::from_secs(1);

/// So many chunks are taken in ahead. Beyond it they stay in the codec, which bounds how many small ones may wait there.
const AHEAD_CHUNKS_MAX: usize = 1024;

/// A request's body, and the way to answer.
pub(super) struct RequestBody {
    stream: RecvStream,
    pub(super) respond: SendResponse<Bytes>,
    length: BodyLength,
    /// Of the connection.
    heads: Arc<QueuedHeads>,
    room: RoomRequest,
    chunk: Bytes,
    /// What came while nobody took it, in order. Taken out of the codec so that it is counted.
    ahead: VecDeque<Bytes>,
    /// The memory of `ahead`.
    ahead_bytes: usize,
    held: Held,
    found: u64,
    limit: u64,
    /// What the head said of the length, and how much of it is still to come.
    stated: Option<u64>,
    /// The trailer section, once it has come. It may be ahead of data that nobody took yet.
    section: Option<Result<Fields, TrailerError>>,
    /// The codec has nothing more of this body.
    received: bool,
    ended: bool,
    expects_continue: bool,
}

impl RequestBody {
    pub(super) fn new(
        stream: RecvStream,
        respond: SendResponse<Bytes>,
        heads: Arc<QueuedHeads>,
        length: BodyLength,
        expects_continue: bool,
    ) -> Self {
        let ended = length == BodyLength::None;
        Self {
            stream,
            respond,
            length,
            heads,
            room: RoomRequest::default(),
            chunk: Bytes::new(),
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            held: Held::default(),
            found: 0,
            limit: u64::MAX,
            stated: length.stated(),
            section: None,
            received: ended,
            ended,
            expects_continue,
        }
    }

    /// Ready once the codec has room for a head of `fields`, which is to be [taken](Self::take_room) then.
    pub(super) fn poll_room(&mut self, cx: &mut Context<'_>, fields: &Fields) -> Poll<Result<(), Aborted>> {
        self.room.poll(cx, &self.heads, fields)
    }

    pub(super) const fn take_room(&mut self) -> Option<Room> {
        self.room.take()
    }

    /// Room that there is at once.
    pub(super) fn try_room(&self, fields: &Fields) -> Option<Room> {
        self.heads.try_room(fields)
    }

    /// Whether the stream waits for the codec.
    pub(super) const fn waits_for_room(&self) -> bool {
        self.room.is_waiting()
    }

    /// How many heads of the connection have left the codec's queue, while the stream waits for its turn.
    pub(super) fn passed(&self) -> u64 {
        if self.waits_for_room() { self.heads.passed() } else { 0 }
    }

    fn memory_bytes(&self) -> usize {
        let trailers = match &self.section {
            Some(Ok(fields)) => fields.memory_bytes(),
            Some(Err(_)) | None => 0,
        };
        self.ahead_bytes + self.chunk.len() + trailers
    }

    /// The next chunk from the codec; behind the last one it takes the trailer section in.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        if self.received {
            return Poll::Ready(None);
        }
        if let Some(data) = ready!(self.stream.poll_data(cx)) {
            return Poll::Ready(Some(data));
        }
        match ready!(self.stream.poll_trailers(cx)) {
            Ok(section) => {
                self.section = section.as_ref().map(head::read_trailers);
                self.received = true;
                Poll::Ready(None)
            }
            // The codec says so each time it is asked.
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }

    fn send_informational(&mut self, informational: &ResponseHead) {
        if let Some(response) = head::write(informational, self.room.take()) {
            // A stream that was reset is noticed by who waits for its request.
            let _ = self.respond.send_informational(response);
        }
    }

    pub(super) const fn found(&self) -> u64 {
        self.found
    }

    /// Takes in what the client still sends once it has its response, for a second, as far as the stream's window
    /// reaches. What then is left unread makes h2 reset the stream (`NO_ERROR`, RFC 9113 §8.1), and there are clients that
    /// throw a response away when the reset comes with it (curl 7.88).
    pub(super) async fn linger(mut self, timer: &mut Timer) {
        // Who waits to be asked for a body is done with the response.
        if self.ended || self.expects_continue {
            return;
        }
        self.chunk = Bytes::new();
        self.ahead.clear();
        self.ahead_bytes = 0;
        self.section = None;
        self.held.set(0);
        let until = timer.now().saturating_add(LINGER);
        let rest = poll_fn(|cx| {
            while let Some(Ok(_)) = ready!(self.stream.poll_data(cx)) {}
            Poll::Ready(())
        });
        let _ = timer.until(until, rest).await;
    }
}

impl BodySource for RequestBody {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, BodyError>> {
        while self.chunk.is_empty() {
            if self.ended {
                return Poll::Ready(Ok(false));
            }
            let data = match self.ahead.pop_front() {
                Some(chunk) => {
                    self.ahead_bytes = self.ahead_bytes.saturating_sub(memory_of(&chunk));
                    Poll::Ready(Some(Ok(chunk)))
                }
                None => self.poll_receive(cx),
            };
            if data.is_pending() && std::mem::take(&mut self.expects_continue) {
                // The body is wanted now, so it is asked for now.
                // It has no fields, so there is nothing to have room for.
                self.send_informational(&ResponseHead::new(100));
            }
            match ready!(data) {
                Some(Ok(chunk)) => {
                    let count = chunk.len() as u64;
                    self.found += count;
                    self.limit = self.limit.checked_sub(count).ok_or(BodyError::TooLarge)?;
                    if let Some(left) = &mut self.stated {
                        // RFC 9113 §8.1.1; h2 checks it too, but what is forwarded by it must not rest on that.
                        *left =
                            left.checked_sub(count).ok_or(BodyError::from(MalformedBody::LengthDisagrees))?;
                    }
                    self.chunk = chunk;
                }
                Some(Err(_)) => return Poll::Ready(Err(BodyError::Aborted)),
                None => {
                    if self.stated.is_some_and(|left| left > 0) {
                        return Poll::Ready(Err(BodyError::from(MalformedBody::LengthDisagrees)));
                    }
                    if let Some(Err(error)) = &self.section {
                        return Poll::Ready(Err(BodyError::from(MalformedBody::from(*error))));
                    }
                    self.ended = true;
                    self.held.set(self.memory_bytes());
                }
            }
        }
        Poll::Ready(Ok(true))
    }

    fn chunk(&self) -> &[u8] {
        &self.chunk
    }

    fn consume(&mut self, count: usize) {
        let count = count.min(self.chunk.len());
        self.chunk.advance(count);
        if self.chunk.is_empty() {
            self.held.set(self.memory_bytes());
        }
        // The window opens as the service takes what came: that is the back-pressure.
        let _ = self.stream.flow_control().release_capacity(count);
    }

    fn trailers(&self) -> Option<&Fields> {
        self.section.as_ref()?.as_ref().ok()
    }
}

impl Downstream for RequestBody {
    fn body_length(&self) -> BodyLength {
        self.length
    }

    fn set_body_limit(&mut self, bytes: u64) {
        self.limit = bytes.saturating_sub(self.found);
    }

    fn body_bytes(&self) -> u64 {
        self.found
    }

    fn poll_inform(
        &mut self,
        cx: &mut Context<'_>,
        informational: &ResponseHead,
    ) -> Poll<Result<(), Aborted>> {
        ready!(self.poll_room(cx, &informational.fields))?;
        self.send_informational(informational);
        Poll::Ready(Ok(()))
    }

    fn poll_background(&mut self, cx: &mut Context<'_>) -> Poll<Aborted> {
        // As far as the window reaches, the client sends on. What it sends must be counted while it waits here.
        while self.ahead.len() < AHEAD_CHUNKS_MAX
            && let Poll::Ready(Some(Ok(chunk))) = self.poll_receive(cx)
        {
            self.ahead_bytes += memory_of(&chunk);
            self.ahead.push_back(chunk);
        }
        self.held.set(self.memory_bytes());
        self.respond.poll_reset(cx).map(|_| Aborted)
    }
}

/// A chunk with its place in the queue: many small ones are more than their bytes.
const fn memory_of(chunk: &Bytes) -> usize {
    chunk.len() + size_of::<Bytes>()
}
