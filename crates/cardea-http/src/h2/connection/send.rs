//! What the driver sends.

use super::super::budget::Abuse;
use super::super::frame::{MAX_31, PAYLOAD_MAX, begin_block, end_block};
use super::super::message::{OutgoingRequest, write_request, write_response, write_trailers};
use super::super::role::{Client, RequestKind, Role, Server};
use super::super::streams::{Receiving, Sending, State, Stream};
use super::super::window::{ReceiveWindow, WINDOW_DEFAULT, Window};
use super::{Connection, GoingAway, Phase};
use crate::{Fields, ResponseHead};

/// Why something isn't sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The stream is closed, or was ended from this side.
    #[error("the stream is closed")]
    Closed,
    /// Content before the head, or a second head.
    #[error("the message is not sent in its order")]
    Order,
    /// Fields above the size that the peer accepts (RFC 9113 §6.5.2).
    #[error("the fields are larger than the peer accepts")]
    TooLarge,
}

/// Why a stream isn't opened. Another connection may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The peer or the configuration allows no more streams at this time.
    #[error("too many streams")]
    TooMany,
    /// The connection is being shut down, has failed, or has used all identifiers.
    #[error("the connection takes no more streams")]
    GoingAway,
    /// The head is larger than the peer accepts (RFC 9113 §6.5.2).
    #[error("the head is larger than the peer accepts")]
    TooLarge,
}

/// What each line counts beside its name and value (RFC 9113 §6.5.2).
const LINE_OVERHEAD: usize = 32;

/// The most pseudo-header fields of a message; their names and values fit into what is counted for them.
const PSEUDO_FIELDS: usize = 5;

/// DATA below this size is tiny, if a window made it so.
const TINY: usize = 64;

impl Connection<Server> {
    /// Sends the head of a response. An informational one (1xx) leaves the stream as it is.
    ///
    /// # Errors
    /// [`SendError`]: nothing was sent.
    pub fn send_response(
        &mut self,
        stream: u32,
        head: &ResponseHead,
        end_stream: bool,
    ) -> Result<(), SendError> {
        let is_too_large = self.is_too_large(&head.fields, 0);
        let found = self.streams.get_mut(stream).ok_or(SendError::Closed)?;
        let is_informational = head.status < 200;
        match found.state.sending() {
            None => return Err(SendError::Closed),
            Some(Sending::Body) => return Err(SendError::Order),
            Some(Sending::Head) if is_informational && end_stream => return Err(SendError::Order),
            Some(Sending::Head) if is_too_large => return Err(SendError::TooLarge),
            Some(Sending::Head) => {}
        }
        if !is_informational {
            found.state = found.state.after_sent(Sending::Body);
        }
        let out = self.output.frames();
        let mark = begin_block(out);
        write_response(&mut self.encoder, head, out);
        end_block(mark, stream, end_stream, payload_max(self.peer.frame_bytes_max), out);
        if end_stream {
            self.end_sending(stream);
        }
        Ok(())
    }
}

impl Connection<Client> {
    /// Whether a stream can be opened now.
    #[must_use]
    pub fn can_open(&self) -> bool {
        self.check_open().is_ok()
    }

    /// Opens a stream with the head of a request. `Host` is sent as `:authority`. With a `protocol`, it is an extended
    /// CONNECT (RFC 8441), which the peer must have offered.
    ///
    /// # Errors
    /// [`OpenError`]: nothing was sent.
    pub fn open<'a>(
        &mut self,
        head: impl Into<OutgoingRequest<'a>>,
        protocol: Option<&[u8]>,
        end_stream: bool,
    ) -> Result<u32, OpenError> {
        self.check_open()?;
        let head = head.into();
        if self.is_too_large(head.fields, head.target.len()) {
            return Err(OpenError::TooLarge);
        }
        let id = if self.last_stream == 0 { 1 } else { self.last_stream + 2 };
        let state = State::Open(Receiving::Head, Sending::Body);
        let mut stream = self.new_stream(id, state);
        stream.request = if protocol.is_some() { RequestKind::Connect } else { RequestKind::of(head.method) };
        if !self.streams.insert(stream) {
            return Err(OpenError::TooMany);
        }
        self.last_stream = id;
        self.active += 1;
        let out = self.output.frames();
        let mark = begin_block(out);
        write_request(&mut self.encoder, head, self.config.scheme, protocol, out);
        end_block(mark, id, end_stream, payload_max(self.peer.frame_bytes_max), out);
        if end_stream {
            self.end_sending(id);
        }
        Ok(id)
    }

    fn check_open(&self) -> Result<(), OpenError> {
        if self.going_away != GoingAway::No
            || self.peer_last.is_some()
            || matches!(self.phase, Phase::Failed(_))
            || self.last_stream > MAX_31 - 2
        {
            return Err(OpenError::GoingAway);
        }
        let max = self.config.streams_max().min(self.peer.streams_max);
        // Streams whose content is held occupy the slab as well.
        let count = u32::try_from(self.streams.len()).unwrap_or(u32::MAX);
        if count >= max { Err(OpenError::TooMany) } else { Ok(()) }
    }
}

impl<R: Role> Connection<R> {
    /// Sends content as far as the windows and the room in the output allow, and returns how much. The stream is ended with
    /// the last of it if `end_stream`, also if there is none.
    ///
    /// # Errors
    /// [`SendError`]: nothing was sent.
    pub fn send_data(&mut self, stream: u32, content: &[u8], end_stream: bool) -> Result<usize, SendError> {
        let found = self.streams.get_mut(stream).ok_or(SendError::Closed)?;
        match found.state.sending() {
            None => return Err(SendError::Closed),
            Some(Sending::Head) => return Err(SendError::Order),
            Some(Sending::Body) => {}
        }
        let window = found.send_window.available().min(self.send_window.available());
        let room = self.config.output_bytes_max.saturating_sub(self.output.pending().len());
        let count = content.len().min(window).min(room);
        if count < content.len() && count == window && (1..TINY).contains(&count) {
            self.tiny_frames = self.tiny_frames.saturating_add(1);
        }
        let is_last = end_stream && count == content.len();
        if let (Some(one), Some(all)) = (found.send_window.spend(count), self.send_window.spend(count)) {
            found.send_window = one;
            self.send_window = all;
        }
        let payload_max = payload_max(self.peer.frame_bytes_max);
        let mut rest = content.get(..count).unwrap_or_default();
        while !rest.is_empty() {
            let (now, after) = rest.split_at(rest.len().min(payload_max));
            rest = after;
            self.output.data(stream, now, is_last && rest.is_empty(), payload_max);
            self.budgets.refund(Abuse::WindowUpdates, 2, &self.config.abuse);
        }
        if is_last {
            if count == 0 {
                self.output.data(stream, b"", true, payload_max);
            }
            self.end_sending(stream);
        }
        Ok(count)
    }

    /// Sends trailers, which end the stream. All content must have been sent.
    ///
    /// # Errors
    /// [`SendError`]: nothing was sent.
    pub fn send_trailers(&mut self, stream: u32, fields: &Fields) -> Result<(), SendError> {
        let found = self.streams.get(stream).ok_or(SendError::Closed)?;
        match found.state.sending() {
            None => return Err(SendError::Closed),
            Some(Sending::Head) => return Err(SendError::Order),
            Some(Sending::Body) => {}
        }
        if fields.is_empty() {
            return self.send_data(stream, b"", true).map(|_| ());
        }
        if self.is_too_large(fields, 0) {
            return Err(SendError::TooLarge);
        }
        let out = self.output.frames();
        let mark = begin_block(out);
        write_trailers(&mut self.encoder, fields, out);
        end_block(mark, stream, true, payload_max(self.peer.frame_bytes_max), out);
        self.end_sending(stream);
        Ok(())
    }

    /// Asks for a turn for a stream that has content. It comes when the windows allow it.
    pub fn want_turn(&mut self, stream: u32) {
        let Some(found) = self.streams.get_mut(stream) else { return };
        if !matches!(found.state.sending(), Some(Sending::Body)) {
            return;
        }
        found.wants_turn = true;
        // A response that is of no use in parts goes on until its end (RFC 9218 §10).
        let goes_on = !found.priority.incremental && self.last_turn == stream;
        if found.send_window.available() > 0 {
            self.streams.enqueue(stream, goes_on);
        }
    }

    /// The stream that may send now, by priority (RFC 9218 §10), if any may. The driver sends, and asks for another turn if it
    /// has more.
    pub fn next_turn(&mut self) -> Option<u32> {
        if self.send_window.available() == 0 || self.output.pending().len() >= self.config.output_bytes_max {
            return None;
        }
        let stream = self.streams.take_turn()?;
        if let Some(found) = self.streams.get_mut(stream) {
            found.wants_turn = false;
        }
        self.last_turn = stream;
        Some(stream)
    }

    /// The content that a stream may send now, in bytes, if it isn't closed.
    #[must_use]
    pub fn sendable(&self, stream: u32) -> Option<usize> {
        let room = self.config.output_bytes_max.saturating_sub(self.output.pending().len());
        Some(self.window(stream)?.min(room))
    }

    /// What the windows allow to be sent on a stream, in bytes, if this side hasn't ended it.
    #[must_use]
    pub fn window(&self, stream: u32) -> Option<usize> {
        let found = self.streams.get(stream)?;
        found.state.sending()?;
        Some(found.send_window.available().min(self.send_window.available()))
    }

    pub(super) fn new_stream(&self, id: u32, state: State) -> Stream {
        let target = self.config.stream_window();
        // The peer may not know yet that ours is smaller.
        let size = if self.deadlines.settings_ack.is_some() { target.max(WINDOW_DEFAULT) } else { target };
        Stream::new(id, state, Window::new(self.peer.initial_window), ReceiveWindow::new(size, target))
    }

    /// Whether a section is larger than the peer accepts: fields and so many bytes of pseudo-header fields.
    fn is_too_large(&self, fields: &Fields, more: usize) -> bool {
        let max = self.peer.header_list_bytes_max;
        max != u32::MAX
            && fields.byte_len() + more + (fields.len() + PSEUDO_FIELDS) * LINE_OVERHEAD > max as usize
    }

    fn end_sending(&mut self, stream: u32) {
        let Some(found) = self.streams.get_mut(stream) else { return };
        found.state = found.state.end_sending();
        found.wants_turn = false;
        let is_closed = found.state == State::Closed;
        self.streams.dequeue(stream);
        if is_closed {
            self.close(stream);
        }
    }
}

/// Our frames are no larger than those that we accept.
fn payload_max(peer: u32) -> usize {
    (peer as usize).min(PAYLOAD_MAX)
}
