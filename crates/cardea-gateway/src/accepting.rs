//! What follows where a listening socket can't accept, for all listeners, also those of the administration.

use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixDatagram,
    },
    time::Duration,
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::{gateway::Gateway, shortage::Shortage};

/// How long accepting pauses when something is short.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a listener does before it accepts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Failed {
    /// Nothing: the error was one connection's.
    OfOneConnection,
    /// It pauses. No connection waits, or the error is no shortage.
    Pause,
    /// It pauses, or gives something up: a connection waits, for which descriptors or memory are short. Idle connections were
    /// asked to close.
    Short,
}

impl Gateway {
    /// Notes that `socket` of the listener called `listener` could not accept. Where a connection waits and descriptors or memory
    /// are short, idle connections are closed.
    ///
    /// Linux takes a descriptor before it looks for a connection (accept(2) fails with `EMFILE` where none waits, too), so a
    /// shortage says nothing until one waits.
    pub fn failed_to_accept(&self, listener: &str, socket: impl AsFd, error: &io::Error) -> Failed {
        if is_of_one_connection(error) {
            return Failed::OfOneConnection;
        }
        if Shortage::of(error).is_some() && !is_awaited(socket.as_fd()) {
            return Failed::Pause;
        }
        self.note_accept_failure(listener, error)
    }

    /// Notes that a connection could not be accepted. Idle connections are closed where something is short for it.
    pub(crate) fn note_accept_failure(&self, listener: &str, error: &io::Error) -> Failed {
        self.metrics.accept_failures.increment();
        let Some(shortage) = Shortage::of(error) else {
            tracing::warn!(listener, %error, "can't accept a connection");
            return Failed::Pause;
        };
        self.fall_short(shortage, "accept");
        Failed::Short
    }
}

/// Pauses before the next attempt: what is short will not be there at once.
pub async fn pause() {
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Whether a connection waits to be accepted.
fn is_awaited(socket: BorrowedFd<'_>) -> bool {
    // An error says nothing, so there may be one.
    poll(&mut [PollFd::new(socket, PollFlags::POLLIN)], PollTimeout::ZERO) != Ok(0)
}

/// Errors that concern the connection that was being accepted, not the listener.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// A descriptor that a listener reserves, to accept a connection with it where there is no other.
#[derive(Debug, Default)]
pub struct Reserve(Option<UnixDatagram>);

impl Reserve {
    /// Takes a descriptor, where it has none and there is one. To be called whenever a descriptor may have become free, but not
    /// between [`Self::give`] and the attempt to accept.
    pub fn fill(&mut self) {
        if self.0.is_none() {
            self.0 = UnixDatagram::unbound().ok();
        }
    }

    /// Gives the descriptor; whether there was one.
    pub fn give(&mut self) -> bool {
        self.0.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_waits_from_its_arrival_until_it_is_accepted() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(!is_awaited(listener.as_fd()));
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(is_awaited(listener.as_fd()));
        let _accepted = listener.accept().unwrap();
        assert!(!is_awaited(listener.as_fd()));
    }

    #[test]
    fn a_reserve_gives_one_descriptor_until_it_is_filled_again() {
        let mut reserve = Reserve::default();
        assert!(!reserve.give());
        reserve.fill();
        reserve.fill();
        assert!(reserve.give());
        assert!(!reserve.give());
        reserve.fill();
        assert!(reserve.give());
    }
}
