//! The end of an exchange and of a connection: what is left unread must cost no client its response.

use std::{
    future::poll_fn,
    task::{Poll, ready},
    time::Duration,
};

use super::{Connection, DISCARD_BYTES_MAX};
use crate::{body::BodySource, timer::Timer};

/// What is read and thrown away of a connection that is closed, in bytes. More than the above: a client that is still
/// sending would lose the reason to a reset.
const LINGER_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// How long a closing connection is read from, so that the peer gets our last response before a reset
/// (RFC 9112 §9.6).
const LINGER: Duration = Duration::from_secs(2);

impl Connection {
    /// Reads what is left of the request's body, if that is little.
    pub(super) async fn discard_body(&mut self, timer: &mut Timer) -> bool {
        if self.body.is_ended() {
            return true;
        }
        self.body.set_limit(DISCARD_BYTES_MAX);
        let deadline = timer.now().saturating_add(LINGER);
        let discard = poll_fn(|cx| {
            loop {
                match ready!(self.poll_data(cx)) {
                    Ok(true) => self.consume(usize::MAX),
                    Ok(false) => return Poll::Ready(true),
                    Err(_) => return Poll::Ready(false),
                }
            }
        });
        timer.until(deadline, discard).await.unwrap_or(false)
    }

    /// Closes in order: our last response must not be lost to a reset because something is unread. A client is waited for
    /// unless it has said that nothing more comes, and nothing has.
    pub(super) async fn close(mut self, timer: &mut Timer) {
        let deadline = timer.now().saturating_add(LINGER);
        let mut left = LINGER_BYTES_MAX;
        let mut may_send = !self.is_last || !self.body.is_ended() || !self.inbound.is_empty();
        let mut has_ended = false;
        self.inbound.consume(usize::MAX);
        self.inbound.release();
        let end = poll_fn(|cx| {
            if !has_ended {
                if ready!(self.transport.poll_shutdown(cx)).is_err() {
                    return Poll::Ready(());
                }
                has_ended = true;
            }
            loop {
                self.inbound.consume(usize::MAX);
                match self.transport.poll_recv(cx, &mut self.inbound) {
                    Poll::Ready(Ok(count)) if count > 0 && left > 0 => {
                        left = left.saturating_sub(count as u64);
                        may_send = true;
                    }
                    Poll::Pending if may_send => {
                        self.inbound.release();
                        return Poll::Pending;
                    }
                    Poll::Ready(_) | Poll::Pending => return Poll::Ready(()),
                }
            }
        });
        let _ = timer.until(deadline, end).await;
    }
}
