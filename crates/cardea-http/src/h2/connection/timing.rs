//! Deadlines, liveness, and the end of a connection.

use core::time::Duration;

use super::super::ConnectionError;
use super::super::frame::{ErrorCode, MAX_31, write_goaway, write_ping};
use super::super::role::{Role, sealed};
use super::{Connection, GoingAway, Phase};

/// The content of the PING behind the first GOAWAY of a shutdown.
pub(super) const SHUTDOWN_PING: [u8; 8] = *b"shutdown";

impl<R: Role> Connection<R> {
    /// When [`Connection::expire`] is to be called, unless something is received before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        let deadlines = &self.deadlines;
        [deadlines.settings_ack, deadlines.unfinished, deadlines.shutdown].into_iter().flatten().min()
    }

    /// Does what is due.
    ///
    /// # Errors
    /// [`ConnectionError`] if the peer was too slow: the output ends with GOAWAY.
    pub fn expire(&mut self, now: Duration) -> Result<(), ConnectionError> {
        let is_due = |deadline: Option<Duration>| deadline.is_some_and(|deadline| deadline <= now);
        let error = if is_due(self.deadlines.unfinished) {
            Some(ConnectionError::HeadTimeout)
        } else if is_due(self.deadlines.settings_ack) {
            Some(ConnectionError::SettingsTimeout)
        } else {
            None
        };
        if let Some(error) = error {
            self.fail(error);
            return Err(error);
        }
        if is_due(self.deadlines.shutdown) {
            self.stop_accepting();
        }
        Ok(())
    }

    /// Sends a PING, to find out whether the peer is alive. [`super::Event::Pong`] has the same content.
    pub fn ping(&mut self, content: [u8; 8]) {
        write_ping(false, content, self.output.frames());
    }

    /// Begins a shutdown: the peer is told to open no more streams, and those that were under way are served
    /// (RFC 9113 §6.8).
    pub fn shut_down(&mut self, now: Duration) {
        if self.going_away != GoingAway::No || matches!(self.phase, Phase::Failed(_)) {
            return;
        }
        if <R as sealed::Role>::IS_SERVER {
            self.going_away = GoingAway::Announced;
            write_goaway(MAX_31, ErrorCode::NoError, self.output.frames());
            write_ping(false, SHUTDOWN_PING, self.output.frames());
            self.deadlines.shutdown = Some(now.saturating_add(self.config.shutdown_timeout));
        } else {
            self.stop_accepting();
        }
    }

    /// Ignores all streams that the peer opens from now on, and tells it so: a shutdown without its first phase.
    pub fn stop_accepting(&mut self) {
        if matches!(self.phase, Phase::Failed(_)) || matches!(self.going_away, GoingAway::Last(_)) {
            return;
        }
        let last = self.last_accepted();
        self.going_away = GoingAway::Last(last);
        self.deadlines.shutdown = None;
        write_goaway(last, ErrorCode::NoError, self.output.frames());
    }
}
