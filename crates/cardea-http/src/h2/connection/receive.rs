//! Received bytes: frames in their order, and content.

use core::time::Duration;

use super::super::budget::Abuse;
use super::super::error::Malformed;
use super::super::frame::{ErrorCode, Flags, FrameError, FrameHeader, FrameType, HEADER_LEN, PREFACE};
use super::super::role::{Role, sealed};
use super::super::streams::{ClosedBy, Receiving, State};
use super::super::{ConnectionError, StreamError};
use super::{Connection, Event, Partial, Phase, Received};

/// A step within [`Connection::receive`].
pub(super) enum Step<'a> {
    /// So many bytes were used. Goes on.
    Taken(usize),
    /// So many bytes were used, and something happened.
    Event(usize, Event<'a>),
    /// More input is needed.
    More,
}

impl<R: Role> Connection<R> {
    /// Handles received bytes up to the next event. `head` receives what an event says; the driver takes it before the next
    /// call.
    ///
    /// # Errors
    /// [`ConnectionError`]: the peer broke the protocol. The output ends with GOAWAY; after it is written, the connection must
    /// be closed. All streams are over.
    pub fn receive<'a>(
        &mut self,
        now: Duration,
        input: &'a [u8],
        head: &mut <R as sealed::Role>::Head,
    ) -> Result<Received<'a>, ConnectionError> {
        if let Phase::Failed(error) = self.phase {
            return Err(error);
        }
        let mut rest = input;
        let result = loop {
            match self.step(now, rest, head) {
                Ok(Step::Taken(count)) => rest = rest.get(count..).unwrap_or_default(),
                Ok(Step::Event(count, event)) => {
                    rest = rest.get(count..).unwrap_or_default();
                    break Ok(Some(event));
                }
                Ok(Step::More) => {
                    self.note_unfinished(now, rest);
                    break Ok(None);
                }
                Err(error) => break Err(error),
            }
        };
        match result {
            Ok(event) => Ok(Received { taken: input.len() - rest.len(), event }),
            Err(error) => {
                self.fail(error);
                Err(error)
            }
        }
    }

    fn step<'a>(
        &mut self,
        now: Duration,
        input: &'a [u8],
        head: &mut <R as sealed::Role>::Head,
    ) -> Result<Step<'a>, ConnectionError> {
        self.charge_tiny_frames(now)?;
        if let Some(event) = self.next_unprocessed() {
            return Ok(Step::Event(0, event));
        }
        match self.partial {
            Partial::Data { stream, left, padding, end_stream } => {
                return Ok(self.take_data(input, stream, left, padding, end_stream));
            }
            Partial::Skip(left) => {
                let count = left.min(input.len());
                self.partial = if left == count { Partial::None } else { Partial::Skip(left - count) };
                return Ok(if count == 0 && left > 0 { Step::More } else { Step::Taken(count) });
            }
            Partial::None => {}
        }
        if self.phase == Phase::Preface {
            return self.take_preface(input);
        }
        let Some(header) = FrameHeader::parse(input)? else { return Ok(Step::More) };
        self.check_order(&header)?;
        let body = input.get(HEADER_LEN..).unwrap_or_default();
        match header.kind {
            FrameType::Data => self.begin_data(now, &header, body),
            FrameType::Unknown(_) => {
                self.charge(now, Abuse::UselessFrames)?;
                self.partial = Partial::Skip(header.len);
                Ok(Step::Taken(HEADER_LEN))
            }
            _ => {
                let Some(payload) = body.get(..header.len) else { return Ok(Step::More) };
                let event = match header.kind {
                    FrameType::Headers => self.headers(now, &header, payload, head)?,
                    FrameType::Continuation => self.continuation(now, &header, payload, head)?,
                    _ => self.control(now, &header, payload)?,
                };
                // The frames of a block share its deadline.
                if self.block.is_none() {
                    self.deadlines.unfinished = None;
                }
                let taken = HEADER_LEN + header.len;
                Ok(event.map_or(Step::Taken(taken), |event| Step::Event(taken, event)))
            }
        }
    }

    fn take_preface<'a>(&mut self, input: &[u8]) -> Result<Step<'a>, ConnectionError> {
        let count = input.len().min(PREFACE.len());
        if input.get(..count) != PREFACE.get(..count) {
            return Err(ConnectionError::PrefaceInvalid);
        }
        if count < PREFACE.len() {
            return Ok(Step::More);
        }
        self.phase = Phase::FirstSettings;
        Ok(Step::Taken(count))
    }

    /// The order of frames on the connection (RFC 9113 §3.4, §6.10).
    fn check_order(&mut self, header: &FrameHeader) -> Result<(), ConnectionError> {
        if self.phase == Phase::FirstSettings
            && (header.kind != FrameType::Settings || header.flags.has(Flags::ACK))
        {
            return Err(ConnectionError::SettingsMissing);
        }
        let is_continuation = header.kind == FrameType::Continuation;
        match &self.block {
            Some(block) if is_continuation && block.stream == header.stream => Ok(()),
            None if !is_continuation => Ok(()),
            _ => Err(ConnectionError::BlockInterrupted),
        }
    }

    /// Begins a deadline for what was begun: a slow peer must not hold a buffer for long.
    fn note_unfinished(&mut self, now: Duration, rest: &[u8]) {
        let is_begun = match self.partial {
            Partial::None => {
                let header = FrameHeader::parse(rest).ok().flatten();
                let is_control = header.is_some_and(|header| header.kind != FrameType::Data);
                is_control || self.block.is_some() || self.phase != Phase::Frames
            }
            Partial::Data { .. } | Partial::Skip(_) => false,
        };
        if !is_begun {
            self.deadlines.unfinished = None;
        } else if self.deadlines.unfinished.is_none() {
            self.deadlines.unfinished = Some(now.saturating_add(self.config.head_timeout));
        }
    }

    fn charge_tiny_frames(&mut self, now: Duration) -> Result<(), ConnectionError> {
        for _ in 0..core::mem::take(&mut self.tiny_frames) {
            self.charge(now, Abuse::TinyWindows)?;
        }
        Ok(())
    }

    /// Handles the header of DATA, whose content is then taken as it comes.
    fn begin_data<'a>(
        &mut self,
        now: Duration,
        header: &FrameHeader,
        body: &[u8],
    ) -> Result<Step<'a>, ConnectionError> {
        let (taken, padding) = match body.first() {
            _ if !header.flags.has(Flags::PADDED) => (HEADER_LEN, 0),
            Some(&padding) => (HEADER_LEN + 1, usize::from(padding)),
            None => return Ok(Step::More),
        };
        let content = (header.len + HEADER_LEN)
            .checked_sub(taken + padding)
            .ok_or(ConnectionError::Frame(FrameError::PaddingInvalid))?;
        // All of the payload counts (RFC 9113 §6.9.1), whatever becomes of it.
        if !self.receive_window.receive(header.len) {
            return Err(ConnectionError::FlowControl);
        }
        if self.config.is_shared {
            self.return_to_connection(header.len);
        }
        let stream = header.stream;
        let end_stream = header.flags.has(Flags::END_STREAM);
        if content == 0 && !end_stream {
            self.charge(now, Abuse::EmptyFrames)?;
        }
        match self.accept_data(now, header, content)? {
            Accepted::Wanted => {
                // Padding isn't held.
                self.release(stream, header.len - content);
                self.partial = Partial::Data { stream, left: content, padding, end_stream };
                Ok(Step::Taken(taken))
            }
            Accepted::Unwanted(event) => {
                self.release_connection(header.len);
                self.partial = Partial::Skip(content + padding);
                Ok(event.map_or(Step::Taken(taken), |event| Step::Event(taken, event)))
            }
        }
    }

    /// Whether DATA is allowed, and wanted.
    fn accept_data<'a>(
        &mut self,
        now: Duration,
        header: &FrameHeader,
        content: usize,
    ) -> Result<Accepted<'a>, ConnectionError> {
        let stream = header.stream;
        let end_stream = header.flags.has(Flags::END_STREAM);
        let Some(found) = self.streams.get_mut(stream) else {
            return match self.check_closed(stream)? {
                Some(ClosedBy::Peer) => Err(ConnectionError::StreamClosed),
                // What was under way when one party of several left says nothing of the peer (RFC 9113 §5.1).
                Some(ClosedBy::Us) if self.config.is_shared && content > 0 => Ok(Accepted::Unwanted(None)),
                Some(ClosedBy::Us) | None => {
                    self.charge(now, Abuse::UselessFrames)?;
                    Ok(Accepted::Unwanted(None))
                }
            };
        };
        let error = match found.state.receiving() {
            None if found.state == State::Closed => return Err(ConnectionError::StreamClosed),
            None => StreamError::Ended,
            Some(Receiving::Head) => Malformed::HeadMissing.into(),
            Some(receiving @ (Receiving::Body | Receiving::Discarded)) => {
                let size = content as u64;
                let is_length_wrong =
                    found.expected.is_some_and(|left| size > left || (end_stream && size != left));
                if is_length_wrong {
                    Malformed::LengthDisagrees.into()
                } else if !found.receive_window.receive(header.len) {
                    StreamError::FlowControl
                } else {
                    found.expected = found.expected.map(|left| left - size);
                    if receiving == Receiving::Body {
                        return Ok(Accepted::Wanted);
                    }
                    // Nothing of it is held, but no more is announced: what comes is bounded by the window.
                    found.receive_window.release(header.len);
                    if end_stream {
                        self.end_receiving(stream);
                    }
                    return Ok(Accepted::Unwanted(None));
                }
            }
        };
        self.fail_stream(now, stream, error).map(|event| Accepted::Unwanted(Some(event)))
    }

    /// Gives the next piece of DATA to the driver.
    fn take_data<'a>(
        &mut self,
        input: &'a [u8],
        stream: u32,
        left: usize,
        padding: usize,
        end_stream: bool,
    ) -> Step<'a> {
        // The driver may have reset or ignored the stream in the meantime. What was held of it has been released.
        let receiving = self.streams.get(stream).and_then(|found| found.state.receiving());
        if receiving != Some(Receiving::Body) {
            if receiving.is_some() && end_stream {
                self.end_receiving(stream);
            }
            self.partial = Partial::Skip(left + padding);
            return Step::Taken(0);
        }
        let count = left.min(input.len());
        if count == 0 && left > 0 {
            return Step::More;
        }
        let left = left - count;
        let is_last = end_stream && left == 0;
        self.partial = match left {
            0 => Partial::Skip(padding),
            _ => Partial::Data { stream, left, padding, end_stream },
        };
        if is_last {
            self.end_receiving(stream);
        }
        let bytes = input.get(..count).unwrap_or_default();
        if bytes.is_empty() && !is_last {
            return Step::Taken(0);
        }
        Step::Event(count, Event::Data { stream, bytes, end_stream: is_last })
    }

    /// The peer has ended its side of a stream.
    pub(super) fn end_receiving(&mut self, stream: u32) {
        let Some(found) = self.streams.get_mut(stream) else { return };
        found.state = found.state.end_receiving();
        if found.state == State::Closed {
            self.close(stream);
        }
    }

    /// What is known of a stream that isn't in the slab. An idle one is an error.
    pub(super) fn check_closed(&self, stream: u32) -> Result<Option<ClosedBy>, ConnectionError> {
        if stream.is_multiple_of(2) || stream > self.last_stream {
            return Err(ConnectionError::StreamIdle);
        }
        Ok(self.closed.get(stream))
    }

    /// Resets a stream because of its peer, and counts that.
    pub(super) fn fail_stream<'a>(
        &mut self,
        now: Duration,
        stream: u32,
        error: StreamError,
    ) -> Result<Event<'a>, ConnectionError> {
        self.charge(now, Abuse::Resets)?;
        if self.streams.get(stream).is_some_and(|found| found.state != State::Closed) {
            self.active = self.active.saturating_sub(1);
        }
        self.forget(stream);
        self.reject(stream, error.error_code());
        Ok(Event::Failed { stream, error })
    }

    /// The next of our streams that the peer's GOAWAY leaves unprocessed (RFC 9113 §6.8).
    fn next_unprocessed<'a>(&mut self) -> Option<Event<'a>> {
        let last = self.peer_last.filter(|_| !<R as sealed::Role>::IS_SERVER)?;
        let stream = self
            .streams
            .iter()
            .rev()
            .take_while(|found| found.id > last)
            .find(|found| found.state != State::Closed)?
            .id;
        self.active = self.active.saturating_sub(1);
        self.forget(stream);
        self.closed.add(stream, ClosedBy::Us);
        Some(Event::Reset { stream, code: ErrorCode::RefusedStream })
    }
}

/// What becomes of DATA.
enum Accepted<'a> {
    Wanted,
    Unwanted(Option<Event<'a>>),
}
