//! The client's side of a stream: the request's body, and informational responses.

use std::task::{Context, Poll, ready};

use cardea_http::{BodyLength, Fields, ResponseHead, TrailerError};

use super::stream::Stream;
use crate::{
    body::{BodyError, BodySource, MalformedBody},
    downstream::{Aborted, Downstream},
    memory::Held,
    mux::Content,
};

/// A request's body, and the way to answer.
pub(super) struct RequestBody {
    pub(super) stream: Stream,
    length: BodyLength,
    content: Content,
    held: Held,
    found: u64,
    limit: u64,
    /// What the head said of the length, and how much of it is still to come.
    stated: Option<u64>,
    trailers: Option<Result<Fields, TrailerError>>,
    ended: bool,
    expects_continue: bool,
}

impl RequestBody {
    pub(super) const fn new(stream: Stream, length: BodyLength, expects_continue: bool) -> Self {
        Self {
            stream,
            length,
            content: Content::new(),
            held: Held::new(),
            found: 0,
            limit: u64::MAX,
            stated: length.stated(),
            trailers: None,
            ended: matches!(length, BodyLength::None),
            expects_continue,
        }
    }

    /// What comes from now on is no body: it has neither a length nor a limit.
    pub(super) const fn begin_tunnel(&mut self) {
        self.ended = false;
        self.stated = None;
        self.limit = u64::MAX;
    }

    pub(super) const fn found(&self) -> u64 {
        self.found
    }

    /// The response is sent. What is still to come of the request is not wanted.
    pub(super) const fn finish(&mut self) {
        // Who waits to be asked for a body is done with the response.
        self.stream.finish(!self.expects_continue);
    }

    fn count_memory(&mut self) {
        let trailers = match &self.trailers {
            Some(Ok(fields)) => fields.memory_bytes(),
            Some(Err(_)) | None => 0,
        };
        self.held.set(self.content.memory_bytes() + trailers);
    }

    /// Takes the next content, or the end.
    fn poll_receive(&mut self, cx: &Context<'_>) -> Poll<Result<(), BodyError>> {
        let spare = self.content.take_memory();
        let received = self.stream.poll_entry(cx, |entry| {
            if !entry.received.is_empty() {
                return Some(entry.take_received(spare));
            }
            if entry.has_ended {
                self.trailers = entry.own.trailers.take();
                self.ended = true;
                return Some(Vec::new());
            }
            None
        });
        match received {
            Ok(Some(chunk)) => {
                self.content.put(chunk);
                self.count_memory();
                Poll::Ready(Ok(()))
            }
            Ok(None) => {
                self.count_memory();
                Poll::Pending
            }
            Err(Aborted) => Poll::Ready(Err(self
                .stream
                .failure()
                .map_or(BodyError::Aborted, |code| BodyError::Malformed(MalformedBody::Stream(code))))),
        }
    }

    /// Checks a chunk that was just taken.
    fn check_chunk(&mut self) -> Result<(), BodyError> {
        let count = self.content.chunk().len() as u64;
        self.found += count;
        self.limit = self.limit.checked_sub(count).ok_or(BodyError::TooLarge)?;
        if let Some(left) = &mut self.stated {
            // RFC 9113 §8.1.1; the codec checks it too, but what is forwarded by it must not rest on that.
            *left = left.checked_sub(count).ok_or(BodyError::from(MalformedBody::LengthDisagrees))?;
        }
        Ok(())
    }

    /// Checks the end.
    fn check_end(&self) -> Result<(), BodyError> {
        if self.stated.is_some_and(|left| left > 0) {
            return Err(BodyError::from(MalformedBody::LengthDisagrees));
        }
        match &self.trailers {
            Some(Err(error)) => Err(BodyError::from(MalformedBody::from(*error))),
            Some(Ok(_)) | None => Ok(()),
        }
    }
}

impl BodySource for RequestBody {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, BodyError>> {
        loop {
            if !self.content.is_empty() {
                return Poll::Ready(Ok(true));
            }
            if self.ended {
                return Poll::Ready(self.check_end().map(|()| false));
            }
            let received = self.poll_receive(cx);
            if received.is_pending() && std::mem::take(&mut self.expects_continue) {
                // The body is wanted now, so it is asked for now. It has no fields, so there is nothing to have room for.
                let _ = self.stream.send_head(&ResponseHead::new(100), false);
            }
            ready!(received)?;
            self.check_chunk()?;
        }
    }

    fn chunk(&self) -> &[u8] {
        self.content.chunk()
    }

    fn consume(&mut self, count: usize) {
        self.content.consume(count);
        if self.content.is_release_due() {
            self.stream.release(self.content.take_passed_on());
            self.count_memory();
        }
    }

    fn trailers(&self) -> Option<&Fields> {
        self.trailers.as_ref()?.as_ref().ok()
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
        ready!(self.stream.poll_room(cx, &informational.fields))?;
        Poll::Ready(self.stream.send_head(informational, false))
    }

    fn is_multiplexed(&self) -> bool {
        true
    }

    fn poll_background(&mut self, cx: &mut Context<'_>) -> Poll<Aborted> {
        match self.stream.poll_entry(cx, |_| ()) {
            Ok(()) => Poll::Pending,
            Err(aborted) => Poll::Ready(aborted),
        }
    }
}
