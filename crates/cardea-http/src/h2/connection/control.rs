//! Frames without content and fields.

use core::time::Duration;

use super::super::budget::Abuse;
use super::super::frame::{
    ErrorCode, Flags, FrameError, FrameHeader, FrameType, goaway_payload, priority_dependency,
    priority_update_payload, reset_code, window_increment, write_ping, write_settings_ack,
};
use super::super::priority::Priority;
use super::super::role::{Role, sealed};
use super::super::streams::{ClosedBy, State};
use super::super::window::WINDOW_DEFAULT;
use super::super::{ConnectionError, StreamError};
use super::timing::SHUTDOWN_PING;
use super::{Connection, Event, GoingAway, Phase};

/// The most priorities of streams that aren't open yet.
const EARLY_PRIORITIES_MAX: usize = 16;

/// The output that answers to the peer's frames may add to. A peer that doesn't read gets no more.
const UNREAD_MAX: usize = 256 * 1024;

impl<R: Role> Connection<R> {
    /// Handles a frame that is neither DATA nor a part of a block.
    pub(super) fn control<'a>(
        &mut self,
        now: Duration,
        header: &FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        match header.kind {
            FrameType::Priority => self.priority(now, header.stream, payload),
            FrameType::RstStream => self.rst_stream(now, header.stream, reset_code(payload)),
            FrameType::Settings if header.flags.has(Flags::ACK) => self.settings_ack().map(|()| None),
            FrameType::Settings => self.settings(now, payload).map(|()| None),
            FrameType::PushPromise => Err(ConnectionError::PushForbidden),
            FrameType::Ping => self.received_ping(now, header.flags.has(Flags::ACK), payload),
            FrameType::GoAway => self.goaway(payload).map(Some),
            FrameType::WindowUpdate => self.window_update(now, header.stream, window_increment(payload)),
            FrameType::PriorityUpdate => self.priority_update(now, payload).map(|()| None),
            FrameType::Data | FrameType::Headers | FrameType::Continuation | FrameType::Unknown(_) => {
                Ok(None)
            }
        }
    }

    fn priority<'a>(
        &mut self,
        now: Duration,
        stream: u32,
        payload: &[u8],
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        self.charge(now, Abuse::UselessFrames)?;
        let code = match priority_dependency(payload) {
            Some(dependency) if dependency != stream => return Ok(None),
            Some(_) => ErrorCode::ProtocolError,
            None => ErrorCode::FrameSizeError,
        };
        if self.streams.get(stream).is_some_and(|found| found.state != State::Closed) {
            return self.fail_stream(now, stream, StreamError::PriorityInvalid(code)).map(Some);
        }
        if stream <= self.last_stream {
            // Closed, which its sender may not know yet.
            self.charge(now, Abuse::Resets)?;
            self.reject(stream, code);
            return Ok(None);
        }
        // An idle stream can't be reset.
        Err(match code {
            ErrorCode::FrameSizeError => ConnectionError::Frame(FrameError::SizeInvalid),
            _ => ConnectionError::StreamIdle,
        })
    }

    fn rst_stream<'a>(
        &mut self,
        now: Duration,
        stream: u32,
        code: ErrorCode,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        if self.streams.get(stream).is_none_or(|found| found.state == State::Closed) {
            self.check_closed(stream)?;
            self.charge(now, Abuse::UselessFrames)?;
            return Ok(None);
        }
        self.active = self.active.saturating_sub(1);
        self.forget(stream);
        self.closed.add(stream, ClosedBy::Peer);
        // A server resets what we opened; how much that is, we decide.
        if <R as sealed::Role>::IS_SERVER {
            self.charge(now, Abuse::Resets)?;
        }
        Ok(Some(Event::Reset { stream, code }))
    }

    fn settings(&mut self, now: Duration, payload: &[u8]) -> Result<(), ConnectionError> {
        self.charge(now, Abuse::Settings)?;
        let before = self.peer;
        self.peer.apply(payload, !<R as sealed::Role>::IS_SERVER)?;
        self.phase = Phase::Frames;
        self.encoder.set_limit(self.peer.header_table_bytes as usize);
        let (from, to) = (before.initial_window, self.peer.initial_window);
        if from != to {
            let mut is_valid = true;
            self.streams.for_each(|stream| match stream.send_window.shift(from, to) {
                Some(window) => stream.send_window = window,
                None => is_valid = false,
            });
            if !is_valid {
                return Err(ConnectionError::WindowSettingInvalid);
            }
            self.streams.enqueue_ready();
        }
        self.check_unread()?;
        write_settings_ack(self.output.frames());
        Ok(())
    }

    fn settings_ack(&mut self) -> Result<(), ConnectionError> {
        if self.deadlines.settings_ack.take().is_none() {
            return Err(ConnectionError::AckUnexpected);
        }
        self.decoder.set_limit(self.config.header_table_bytes as usize);
        // Until now the peer may have used the default.
        let ours = self.config.stream_window();
        let assumed = ours.max(WINDOW_DEFAULT);
        if assumed != ours {
            self.streams.for_each(|stream| stream.receive_window.shift(assumed, ours));
        }
        Ok(())
    }

    fn received_ping<'a>(
        &mut self,
        now: Duration,
        is_ack: bool,
        payload: &[u8],
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let content = payload.first_chunk().copied().unwrap_or_default();
        if !is_ack {
            self.charge(now, Abuse::Pings)?;
            self.check_unread()?;
            write_ping(true, content, self.output.frames());
            return Ok(None);
        }
        if content == SHUTDOWN_PING && self.going_away == GoingAway::Announced {
            self.stop_accepting();
            return Ok(None);
        }
        self.charge(now, Abuse::Pings)?;
        Ok(Some(Event::Pong(content)))
    }

    fn goaway<'a>(&mut self, payload: &[u8]) -> Result<Event<'a>, ConnectionError> {
        let (last, code) = goaway_payload(payload);
        if self.peer_last.is_some_and(|before| last > before) {
            return Err(ConnectionError::GoAwayIncreased);
        }
        self.peer_last = Some(last);
        Ok(Event::GoAway { code })
    }

    fn window_update<'a>(
        &mut self,
        now: Duration,
        stream: u32,
        increment: u32,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        self.charge(now, Abuse::WindowUpdates)?;
        if stream == 0 {
            if increment == 0 {
                return Err(ConnectionError::WindowUpdateEmpty);
            }
            self.send_window = self.send_window.grow(increment).ok_or(ConnectionError::WindowOverflow)?;
            return Ok(None);
        }
        let Some(found) = self.streams.get_mut(stream).filter(|found| found.state != State::Closed) else {
            self.check_closed(stream)?;
            return Ok(None);
        };
        let error = if increment == 0 {
            StreamError::WindowUpdateEmpty
        } else if let Some(window) = found.send_window.grow(increment) {
            found.send_window = window;
            if found.wants_turn && window.available() > 0 {
                self.streams.enqueue(stream, false);
            }
            return Ok(None);
        } else {
            StreamError::WindowOverflow
        };
        self.fail_stream(now, stream, error).map(Some)
    }

    fn priority_update(&mut self, now: Duration, payload: &[u8]) -> Result<(), ConnectionError> {
        self.charge(now, Abuse::UselessFrames)?;
        let (stream, value) = priority_update_payload(payload);
        // Only clients send it, for their own streams (RFC 9218 §7.1).
        if !<R as sealed::Role>::IS_SERVER || stream.is_multiple_of(2) {
            return Err(ConnectionError::StreamIdInvalid);
        }
        let priority = Priority::parse(value);
        if let Some(found) = self.streams.get_mut(stream) {
            found.priority = priority;
            if found.wants_turn && found.send_window.available() > 0 {
                self.streams.dequeue(stream);
                self.streams.enqueue(stream, false);
            }
        } else if stream > self.last_stream {
            self.early_priorities.retain(|&(early, _)| early != stream);
            if self.early_priorities.len() < EARLY_PRIORITIES_MAX {
                self.early_priorities.push((stream, priority));
            }
        }
        Ok(())
    }

    /// The priority that came before its stream.
    pub(super) fn take_early_priority(&mut self, stream: u32) -> Option<Priority> {
        if self.early_priorities.is_empty() {
            return None;
        }
        let found =
            self.early_priorities.iter().find(|&&(early, _)| early == stream).map(|&(_, found)| found);
        // Streams below can't be opened any more.
        self.early_priorities.retain(|&(early, _)| early > stream);
        found
    }

    /// Refuses to answer a peer that doesn't read the answers.
    fn check_unread(&self) -> Result<(), ConnectionError> {
        let bound = UNREAD_MAX.saturating_add(self.config.output_bytes_max);
        if self.output.pending().len() > bound {
            return Err(ConnectionError::Abuse(Abuse::UnreadAnswers));
        }
        Ok(())
    }
}
