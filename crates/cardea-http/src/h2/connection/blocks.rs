//! Blocks of fields: heads and trailers.

use core::time::Duration;

use super::super::budget::Abuse;
use super::super::error::{HeadFault, Malformed};
use super::super::frame::{ErrorCode, Flags, FrameHeader, headers_payload};
use super::super::hpack::LineError;
use super::super::message::{discard, read_trailers};
use super::super::role::{HeadFacts, RequestKind, Role, sealed};
use super::super::streams::{ClosedBy, Receiving, Sending, State};
use super::super::{ConnectionError, StreamError};
use super::{Block, Connection, Event, GoingAway};
use crate::{HeadError, RequestError};

/// The most frames of a block. Peers that fill their frames need a few.
const BLOCK_FRAMES_MAX: u32 = 32;

/// A block that is complete.
struct WholeBlock<'a> {
    stream: u32,
    end_stream: bool,
    dependency: Option<u32>,
    bytes: &'a [u8],
}

impl<R: Role> Connection<R> {
    /// Handles HEADERS.
    pub(super) fn headers<'a>(
        &mut self,
        now: Duration,
        header: &FrameHeader,
        payload: &[u8],
        head: &mut <R as sealed::Role>::Head,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let payload = headers_payload(header, payload)?;
        let (stream, end_stream) = (header.stream, header.flags.has(Flags::END_STREAM));
        if header.flags.has(Flags::END_HEADERS) {
            let bytes = payload.fragment;
            let block = WholeBlock { stream, end_stream, dependency: payload.dependency, bytes };
            return self.block(now, &block, head);
        }
        if payload.fragment.is_empty() {
            self.charge(now, Abuse::EmptyFrames)?;
        }
        self.block = Some(Box::new(Block {
            stream,
            end_stream,
            dependency: payload.dependency,
            bytes: payload.fragment.to_vec(),
            frames: 1,
        }));
        Ok(None)
    }

    /// Handles CONTINUATION.
    pub(super) fn continuation<'a>(
        &mut self,
        now: Duration,
        header: &FrameHeader,
        payload: &[u8],
        head: &mut <R as sealed::Role>::Head,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        if payload.is_empty() {
            self.charge(now, Abuse::EmptyFrames)?;
        }
        let Some(mut block) = self.block.take() else { return Err(ConnectionError::BlockInterrupted) };
        block.frames += 1;
        if block.frames > BLOCK_FRAMES_MAX
            || block.bytes.len() + payload.len() > self.config.block_bytes_max()
        {
            return Err(ConnectionError::Abuse(Abuse::Continuations));
        }
        block.bytes.extend_from_slice(payload);
        if !header.flags.has(Flags::END_HEADERS) {
            self.block = Some(block);
            return Ok(None);
        }
        let Block { stream, end_stream, dependency, bytes, .. } = *block;
        self.block(now, &WholeBlock { stream, end_stream, dependency, bytes: &bytes }, head)
    }

    fn block<'a>(
        &mut self,
        now: Duration,
        block: &WholeBlock<'_>,
        head: &mut <R as sealed::Role>::Head,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let Some(found) = self.streams.get(block.stream) else {
            return self.block_of_new_stream(now, block, head);
        };
        let error = if block.dependency == Some(block.stream) {
            StreamError::PriorityInvalid(ErrorCode::ProtocolError)
        } else {
            match found.state.receiving() {
                None if found.state == State::Closed => return Err(ConnectionError::StreamClosed),
                None => StreamError::Ended,
                Some(Receiving::Head) => return self.response_head(now, block, head),
                Some(Receiving::Body | Receiving::Discarded) if block.end_stream => {
                    return self.trailers(now, block, head);
                }
                Some(Receiving::Body | Receiving::Discarded) => Malformed::EndMissing.into(),
            }
        };
        discard(&mut self.decoder, block.bytes)?;
        self.fail_stream(now, block.stream, error).map(Some)
    }

    /// A block of a stream that isn't in the slab: usually a new request.
    fn block_of_new_stream<'a>(
        &mut self,
        now: Duration,
        block: &WholeBlock<'_>,
        head: &mut <R as sealed::Role>::Head,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let stream = block.stream;
        if !<R as sealed::Role>::IS_SERVER || stream <= self.last_stream {
            let closed = self.check_closed(stream)?;
            discard(&mut self.decoder, block.bytes)?;
            return match closed {
                // A server may answer late what we have reset, and not know it yet. We open as many streams as we like, so that
                // one may be forgotten meanwhile.
                Some(ClosedBy::Us) => self.ignore_block(now),
                None if !<R as sealed::Role>::IS_SERVER => self.ignore_block(now),
                Some(ClosedBy::Peer) => Err(ConnectionError::StreamClosed),
                // Skipped, or closed long ago (RFC 9113 §5.1.1).
                None => Err(ConnectionError::StreamIdInvalid),
            };
        }
        if stream.is_multiple_of(2) {
            return Err(ConnectionError::StreamIdInvalid);
        }
        self.last_stream = stream;
        if let GoingAway::Last(last) = self.going_away
            && stream > last
        {
            // Ignored, as GOAWAY told (RFC 9113 §6.8).
            discard(&mut self.decoder, block.bytes)?;
            self.charge(now, Abuse::UselessFrames)?;
            self.closed.add(stream, ClosedBy::Us);
            return Ok(None);
        }
        let error = if block.dependency == Some(stream) {
            StreamError::PriorityInvalid(ErrorCode::ProtocolError)
        } else if self.active >= self.config.streams_max() {
            StreamError::Refused
        } else {
            return self.request_head(now, block, head);
        };
        discard(&mut self.decoder, block.bytes)?;
        self.fail_stream(now, stream, error).map(Some)
    }

    fn ignore_block<'a>(&mut self, now: Duration) -> Result<Option<Event<'a>>, ConnectionError> {
        self.charge(now, Abuse::UselessFrames)?;
        Ok(None)
    }

    fn request_head<'a>(
        &mut self,
        now: Duration,
        block: &WholeBlock<'_>,
        head: &mut <R as sealed::Role>::Head,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let stream = block.stream;
        let read = <R as sealed::Role>::read(
            &mut self.decoder,
            block.bytes,
            &self.config,
            RequestKind::Other,
            head,
        )?;
        let early_priority = self.take_early_priority(stream);
        let (receiving, facts, refusal) = match read {
            Ok(facts) if block.end_stream && facts.length.is_some_and(|length| length > 0) => {
                return self.fail_stream(now, stream, Malformed::LengthDisagrees.into()).map(Some);
            }
            Ok(facts) => (Receiving::Body, Some(facts), None),
            Err(HeadFault::Malformed(malformed)) => {
                if malformed == Malformed::Line(LineError::NameEmpty) {
                    self.charge(now, Abuse::OversizedHeads)?;
                }
                return self.fail_stream(now, stream, malformed.into()).map(Some);
            }
            Err(HeadFault::Refused(error)) => {
                if is_oversized(error) {
                    self.charge(now, Abuse::OversizedHeads)?;
                }
                (Receiving::Discarded, None, Some(error))
            }
        };
        let state = State::Open(receiving, Sending::Head);
        let mut new = self.new_stream(stream, if block.end_stream { state.end_receiving() } else { state });
        if let Some(HeadFacts { length, priority, request, .. }) = facts {
            new.expected = length;
            // The frame takes precedence over the field (RFC 9218 §7).
            new.priority = early_priority.unwrap_or(priority);
            new.request = request;
        }
        if !self.streams.insert(new) {
            return self.fail_stream(now, stream, StreamError::Refused).map(Some);
        }
        self.active += 1;
        Ok(Some(match refusal {
            Some(error) => Event::Refused { stream, error },
            None => {
                let protocol = facts.and_then(|facts| facts.protocol);
                Event::Head { stream, end_stream: block.end_stream, protocol }
            }
        }))
    }

    fn response_head<'a>(
        &mut self,
        now: Duration,
        block: &WholeBlock<'_>,
        head: &mut <R as sealed::Role>::Head,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let stream = block.stream;
        let request = self.streams.get(stream).map_or(RequestKind::Other, |found| found.request);
        let read = <R as sealed::Role>::read(&mut self.decoder, block.bytes, &self.config, request, head)?;
        let facts = match read {
            Ok(facts) => facts,
            Err(HeadFault::Malformed(malformed)) => {
                return self.fail_stream(now, stream, malformed.into()).map(Some);
            }
            // Of requests only.
            Err(HeadFault::Refused(_)) => {
                return self.fail_stream(now, stream, Malformed::TooLarge.into()).map(Some);
            }
        };
        if facts.is_informational {
            if block.end_stream {
                let error = Malformed::InformationalInvalid;
                return self.fail_stream(now, stream, error.into()).map(Some);
            }
            self.charge(now, Abuse::UselessFrames)?;
            return Ok(Some(Event::Informational { stream }));
        }
        if block.end_stream && facts.length.is_some_and(|length| length > 0) {
            return self.fail_stream(now, stream, Malformed::LengthDisagrees.into()).map(Some);
        }
        if let Some(found) = self.streams.get_mut(stream) {
            found.expected = facts.length;
            found.state = found.state.after_received(Receiving::Body);
        }
        if block.end_stream {
            self.end_receiving(stream);
        }
        Ok(Some(Event::Head { stream, end_stream: block.end_stream, protocol: None }))
    }

    fn trailers<'a>(
        &mut self,
        now: Duration,
        block: &WholeBlock<'_>,
        head: &mut <R as sealed::Role>::Head,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let stream = block.stream;
        let fields = <R as sealed::Role>::fields(head);
        let read = read_trailers(&mut self.decoder, block.bytes, &self.config.trailers, fields)?;
        let found = self.streams.get(stream);
        let is_short = found.is_some_and(|found| found.expected.is_some_and(|left| left > 0));
        let is_wanted = found.is_some_and(|found| found.state.receiving() == Some(Receiving::Body));
        let error = match read {
            _ if is_short => Malformed::LengthDisagrees,
            Ok(()) => {
                self.end_receiving(stream);
                return Ok(is_wanted.then_some(Event::Trailers { stream }));
            }
            // It isn't malformed, so it can be answered.
            Err(Malformed::Trailers(error)) if <R as sealed::Role>::IS_SERVER => {
                self.charge(now, Abuse::OversizedHeads)?;
                self.end_receiving(stream);
                return Ok(is_wanted.then_some(Event::TrailersRefused { stream, error }));
            }
            Err(error) => error,
        };
        self.fail_stream(now, stream, error.into()).map(Some)
    }
}

/// Whether a head was refused for its size.
const fn is_oversized(error: RequestError) -> bool {
    matches!(
        error,
        RequestError::Head(HeadError::TooLarge | HeadError::TooManyFields) | RequestError::TargetTooLong
    )
}
