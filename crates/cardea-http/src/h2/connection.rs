//! One end of a connection: the state between received bytes, events, and bytes to send.

mod blocks;
mod control;
mod receive;
mod send;
#[cfg(test)]
mod tests;
mod timing;

use core::marker::PhantomData;
use core::time::Duration;
use std::sync::Arc;

pub use send::{OpenError, SendError};

use super::budget::{Abuse, Budgets};
use super::frame::{ErrorCode, PREFACE, write_goaway, write_rst_stream, write_settings, write_window_update};
use super::hpack::{Decoder, Encoder};
use super::message::Protocol;
use super::output::Output;
use super::priority::Priority;
use super::role::{Role, sealed};
use super::settings::PeerSettings;
use super::streams::{ClosedBy, ClosedStreams, Receiving, State, Streams};
use super::window::{ReceiveWindow, WINDOW_DEFAULT, Window};
use super::{Config, ConnectionError, StreamError};
use crate::{RequestError, TrailerError};

/// One end of an HTTP/2 connection, without input or output.
///
/// A driver owns the socket and the clock:
///
/// * It gives received bytes to [`Connection::receive`], again and again, until that takes nothing and has no event. Bytes
///   that weren't taken are given again, followed by more.
/// * It writes [`Connection::output`] to the socket and confirms by [`Connection::sent`].
/// * It calls [`Connection::expire`] at [`Connection::next_deadline`].
/// * It tells by [`Connection::release`] what of received content was used: that opens the windows.
/// * It sends content when it likes, within the windows; or, where several streams compete, when it is the turn of the
///   stream ([`Connection::want_turn`], [`Connection::next_turn`]).
///
/// Times are those since any fixed moment. No event has an effect that the driver must undo: an event about a stream that it
/// doesn't know any more can be ignored.
#[derive(Debug)]
pub struct Connection<R: Role> {
    config: Arc<Config>,
    role: PhantomData<R>,
    phase: Phase,
    partial: Partial,
    block: Option<Box<Block>>,
    decoder: Decoder,
    encoder: Encoder,
    streams: Streams,
    closed: ClosedStreams,
    /// The streams that aren't closed. Others are in the slab while their content is held.
    active: u32,
    /// The highest stream that was opened.
    last_stream: u32,
    /// Priorities that came before their streams (RFC 9218 §7.1).
    early_priorities: Vec<(u32, Priority)>,
    /// The stream that had the last turn.
    last_turn: u32,
    output: Output,
    send_window: Window,
    receive_window: ReceiveWindow,
    peer: PeerSettings,
    budgets: Budgets,
    /// DATA that was made tiny by windows since the budget was charged last.
    tiny_frames: u32,
    going_away: GoingAway,
    /// The last stream that the peer's GOAWAY names.
    peer_last: Option<u32>,
    deadlines: Deadlines,
}

/// The beginning of the connection is fixed, and its end final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Preface,
    FirstSettings,
    Frames,
    Failed(ConnectionError),
}

/// The rest of a frame that is taken piece by piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Partial {
    None,
    Data { stream: u32, left: usize, padding: usize, end_stream: bool },
    Skip(usize),
}

/// A block that is continued in further frames.
#[derive(Debug)]
struct Block {
    stream: u32,
    end_stream: bool,
    dependency: Option<u32>,
    bytes: Vec<u8>,
    frames: u32,
}

/// How far our shutdown has come (RFC 9113 §6.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GoingAway {
    No,
    /// The peer was told; its streams are still accepted.
    Announced,
    /// Streams above this one are ignored.
    Last(u32),
}

#[derive(Debug, Default)]
struct Deadlines {
    settings_ack: Option<Duration>,
    /// Of what was begun: the preface, a frame, a block.
    unfinished: Option<Duration>,
    shutdown: Option<Duration>,
}

/// What [`Connection::receive`] found.
#[derive(Debug, PartialEq, Eq)]
pub struct Received<'a> {
    /// The bytes at the beginning of the input that aren't needed any more.
    pub taken: usize,
    /// What happened, if anything. Without an event and without taken bytes, more input is needed.
    pub event: Option<Event<'a>>,
}

/// What the driver has to know.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A head is in the driver's head: of a request, or the final one of a response.
    Head {
        /// The stream, a new one for a request.
        stream: u32,
        /// Whether no content and no trailers follow.
        end_stream: bool,
        /// The protocol of an extended CONNECT.
        protocol: Option<Protocol>,
    },
    /// An informational response (1xx) is in the driver's head.
    Informational {
        /// The stream.
        stream: u32,
    },
    /// Content. It counts as held until it is released.
    Data {
        /// The stream.
        stream: u32,
        /// A part of the input. Empty only at the end.
        bytes: &'a [u8],
        /// Whether this was the last.
        end_stream: bool,
    },
    /// Trailers are in the fields of the driver's head. They end the stream.
    Trailers {
        /// The stream.
        stream: u32,
    },
    /// The trailers of a request exceed the limits. The request has ended, and can be answered.
    TrailersRefused {
        /// The stream.
        stream: u32,
        /// Why, as over HTTP/1.1.
        error: TrailerError,
    },
    /// A request can't be accepted but answered: the driver should send the response for the error. What still comes of the
    /// request is discarded, as by [`Connection::ignore`].
    Refused {
        /// The stream, a new one.
        stream: u32,
        /// Why, as over HTTP/1.1.
        error: RequestError,
    },
    /// The peer reset a stream. [`ErrorCode::RefusedStream`]: it has not processed it.
    Reset {
        /// The stream.
        stream: u32,
        /// Why.
        code: ErrorCode,
    },
    /// A stream was reset because of what the peer sent. The driver may not have heard of it before.
    Failed {
        /// The stream.
        stream: u32,
        /// Why.
        error: StreamError,
    },
    /// The peer will open, or accept, no more streams. A [`Event::Reset`] follows for each that it ignores.
    GoAway {
        /// Why.
        code: ErrorCode,
    },
    /// The answer to [`Connection::ping`].
    Pong([u8; 8]),
}

impl<R: Role> Connection<R> {
    /// The most bytes of input that are needed at once: a frame.
    pub const INPUT_MAX: usize = super::frame::HEADER_LEN + super::frame::PAYLOAD_MAX;

    /// Begins a connection: our settings, and a client's preface, are in the output.
    #[must_use]
    pub fn new(config: Arc<Config>, now: Duration) -> Self {
        let mut output = Output::default();
        let is_server = <R as sealed::Role>::IS_SERVER;
        if !is_server {
            output.frames().extend_from_slice(PREFACE);
        }
        write_settings(&config.settings(is_server), output.frames());
        // The window of the connection is 65,535 until it is updated (RFC 9113 §6.9.2).
        let mut receive_window =
            ReceiveWindow::new(WINDOW_DEFAULT, config.connection_window.max(WINDOW_DEFAULT));
        if let Some(increment) = receive_window.take_credit(1) {
            write_window_update(0, increment, output.frames());
        }
        let deadlines = Deadlines {
            settings_ack: Some(now.saturating_add(config.settings_timeout)),
            unfinished: Some(now.saturating_add(config.head_timeout)),
            shutdown: None,
        };
        Self {
            role: PhantomData,
            phase: if is_server { Phase::Preface } else { Phase::FirstSettings },
            partial: Partial::None,
            block: None,
            decoder: Decoder::default(),
            encoder: Encoder::new(config.encoder),
            streams: Streams::default(),
            closed: ClosedStreams::default(),
            active: 0,
            last_stream: 0,
            early_priorities: Vec::new(),
            last_turn: 0,
            output,
            send_window: Window::new(WINDOW_DEFAULT),
            receive_window,
            peer: PeerSettings::default(),
            budgets: Budgets::default(),
            tiny_frames: 0,
            going_away: GoingAway::No,
            peer_last: None,
            deadlines,
            config,
        }
    }

    /// The bytes to write to the socket.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        self.output.pending()
    }

    /// Confirms that bytes at the beginning of the output were written.
    pub fn sent(&mut self, bytes: usize) {
        self.output.consume(bytes);
    }

    /// The settings of the peer.
    #[must_use]
    pub const fn peer_settings(&self) -> &PeerSettings {
        &self.peer
    }

    /// Whether the settings of the peer are known: before, their default values are assumed.
    #[must_use]
    pub fn has_peer_settings(&self) -> bool {
        !matches!(self.phase, Phase::Preface | Phase::FirstSettings)
    }

    /// The streams that aren't closed.
    #[must_use]
    pub const fn active_streams(&self) -> u32 {
        self.active
    }

    /// Whether nothing is left to do but to write the output and close the socket.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match (self.phase, self.going_away) {
            (Phase::Failed(_), _) => true,
            (_, GoingAway::Last(_)) => self.active == 0,
            _ => !<R as sealed::Role>::IS_SERVER && self.peer_last.is_some() && self.active == 0,
        }
    }

    /// The allocated bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.decoder.memory_bytes()
            + self.encoder.memory_bytes()
            + self.streams.memory_bytes()
            + self.closed.memory_bytes()
            + self.output.memory_bytes()
            + self.early_priorities.capacity() * size_of::<(u32, Priority)>()
            + self.block.as_ref().map_or(0, |block| size_of::<Block>() + block.bytes.capacity())
    }

    /// The allocated bytes of messages: those that wait to be sent, and a block of fields that isn't complete.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.output.memory_bytes()
            + self.block.as_ref().map_or(0, |block| size_of::<Block>() + block.bytes.capacity())
    }

    /// Whether a stream isn't closed.
    #[must_use]
    pub fn is_open(&self, stream: u32) -> bool {
        self.streams.get(stream).is_some_and(|found| found.state != State::Closed)
    }

    /// Discards what still comes of a stream, and what is held of it. The peer may send as much as its window allows now.
    pub fn ignore(&mut self, stream: u32) {
        let Some(found) = self.streams.get_mut(stream) else { return };
        if found.state.receiving().is_some() {
            found.state = found.state.after_received(Receiving::Discarded);
            let released = found.receive_window.release(usize::MAX);
            self.release_connection(released);
        }
    }

    /// Gives back buffers that are empty. Call it when the connection becomes idle.
    pub fn shrink(&mut self) {
        self.output.shrink();
    }

    /// Tells that received content is no longer held, so that the peer may send more.
    pub fn release(&mut self, stream: u32, bytes: usize) {
        let Some(found) = self.streams.get_mut(stream) else { return };
        let released = found.receive_window.release(bytes);
        if found.state.receiving().is_some()
            && let Some(increment) = found.receive_window.take_update()
        {
            write_window_update(stream, increment, self.output.frames());
        }
        if found.state == State::Closed && found.receive_window.held() == 0 {
            self.streams.remove(stream);
        }
        self.release_connection(released);
    }

    /// Forgets a stream that is closed: all of its content is released. A stream that isn't closed is reset.
    pub fn discard(&mut self, stream: u32, code: ErrorCode) {
        match self.streams.get(stream) {
            Some(found) if found.state == State::Closed => self.forget(stream),
            Some(_) => self.reset(stream, code),
            None => {}
        }
    }

    /// Resets a stream. Nothing happens if it is closed.
    pub fn reset(&mut self, stream: u32, code: ErrorCode) {
        if self.streams.get(stream).is_some_and(|found| found.state != State::Closed) {
            self.active = self.active.saturating_sub(1);
            self.forget(stream);
            self.reject(stream, code);
        }
    }

    /// Refuses a stream that nothing was done of (RFC 9113 §8.7), because of what its peer makes us hold. It counts for
    /// [`Abuse::Resets`].
    ///
    /// # Errors
    /// The connection has failed, as there are too many.
    pub fn refuse(&mut self, now: Duration, stream: u32) -> Result<StreamError, ConnectionError> {
        let error = StreamError::Refused;
        match self.fail_stream(now, stream, error) {
            Ok(_) => Ok(error),
            Err(too_many) => {
                self.fail(too_many);
                Err(too_many)
            }
        }
    }

    /// Changes how much of all streams together is received ahead of the application: for a bound on the memory of a
    /// process. At least 65,535 bytes; a smaller window takes effect as content is released.
    pub fn set_connection_window(&mut self, bytes: u32) {
        self.receive_window.set_target(bytes.max(WINDOW_DEFAULT));
        if let Some(increment) = self.receive_window.take_credit(1) {
            write_window_update(0, increment, self.output.frames());
        }
    }

    /// Sends RST_STREAM for a stream that isn't in the slab.
    fn reject(&mut self, stream: u32, code: ErrorCode) {
        write_rst_stream(stream, code, self.output.frames());
        self.closed.add(stream, ClosedBy::Us);
    }

    /// Removes a stream, with what is held of it.
    fn forget(&mut self, stream: u32) {
        if let Some(removed) = self.streams.remove(stream) {
            self.release_connection(removed.receive_window.held());
        }
    }

    /// Closes a stream that both sides have ended. A client's driver may still hold content, which stays counted.
    fn close(&mut self, stream: u32) {
        self.active = self.active.saturating_sub(1);
        self.closed.add(stream, ClosedBy::Peer);
        let is_held = self.streams.get(stream).is_some_and(|found| found.receive_window.held() > 0);
        if <R as sealed::Role>::IS_SERVER || !is_held {
            self.forget(stream);
        }
    }

    /// Gives back what a stream no longer holds of the connection's window.
    fn release_connection(&mut self, bytes: usize) {
        if !self.config.is_shared {
            self.return_to_connection(bytes);
        }
    }

    fn return_to_connection(&mut self, bytes: usize) {
        self.receive_window.release(bytes);
        if let Some(increment) = self.receive_window.take_update() {
            write_window_update(0, increment, self.output.frames());
        }
    }

    /// Charges a budget.
    fn charge(&mut self, now: Duration, abuse: Abuse) -> Result<(), ConnectionError> {
        if self.budgets.charge(now, abuse, &self.config.abuse) {
            Ok(())
        } else {
            Err(ConnectionError::Abuse(abuse))
        }
    }

    /// Ends the connection because of the peer. All streams are over.
    fn fail(&mut self, error: ConnectionError) {
        self.phase = Phase::Failed(error);
        self.deadlines = Deadlines::default();
        self.block = None;
        self.streams = Streams::default();
        self.active = 0;
        write_goaway(self.last_accepted(), error.error_code(), self.output.frames());
    }

    /// The last stream of the peer that is processed. Servers open none.
    const fn last_accepted(&self) -> u32 {
        match self.going_away {
            GoingAway::Last(last) => last,
            _ if <R as sealed::Role>::IS_SERVER => self.last_stream,
            _ => 0,
        }
    }
}
