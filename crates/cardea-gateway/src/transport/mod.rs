//! The transport interface: receive into a pooled buffer, send a list of slices, shut down, close.
//!
//! The connection drivers do not depend on the kind of socket. Tokio's sockets implement it, with or without TLS.
//! A transport borrows buffers and slices for the duration of a call. One that completes operations later owns the memory
//! that the kernel uses meanwhile, and exchanges it with that of the buffer (docs/adr/0013).

mod accept;
mod tls;

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};

pub(crate) use accept::accept_by_greeting;
pub(crate) use tls::{Socket, TlsTransport};

use crate::{buffer::Buffer, memory};

/// A connected byte stream.
#[derive(Debug)]
pub(crate) enum Transport {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsTransport>),
}

impl Transport {
    /// Receives what there is into `buffer`, which must not be full. Ready with 0 at the end of the stream.
    ///
    /// # Errors
    /// Those of the socket; `UnexpectedEof` where a TLS peer ended the stream without saying so (RFC 8446 §6.1).
    pub(crate) fn poll_recv(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(tcp) => poll_recv_plain(tcp, cx, buffer),
            Self::Unix(unix) => poll_recv_plain(unix, cx, buffer),
            Self::Tls(tls) => tls.poll_recv(cx, buffer),
        }
    }

    /// Sends as much of `slices` as the peer takes now; ready with that count.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = match self {
            Self::Tcp(tcp) => poll_send_plain(tcp, cx, slices),
            Self::Unix(unix) => poll_send_plain(unix, cx, slices),
            Self::Tls(tls) => tls.poll_send(cx, slices),
        };
        if let Poll::Ready(Ok(count)) = sent {
            memory::passed_on(count);
        }
        sent
    }

    /// Ready once nothing is kept back in this process.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(_) | Self::Unix(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => tls.poll_flush(cx),
        }
    }

    /// Whether there is TLS.
    pub(crate) const fn is_secure(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Whether the handshake is not done, so that what was received may have been sent by somebody who has recorded it
    /// (RFC 8446 §8).
    pub(crate) fn is_early(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.is_early())
    }

    /// Ready once the handshake is done.
    pub(crate) fn poll_established(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(_) | Self::Unix(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => tls.poll_established(cx),
        }
    }

    /// Says that nothing more will be sent: `close_notify` where there is TLS, then FIN.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Unix(unix) => Pin::new(unix).poll_shutdown(cx),
            Self::Tls(tls) => tls.poll_shutdown(cx),
        }
    }

    /// The same connection with this worker's runtime in place of the one that it was made on.
    ///
    /// # Errors
    /// If the operating system can't watch the socket.
    pub(crate) fn moved_here(self) -> io::Result<Self> {
        match self {
            Self::Tcp(tcp) => Ok(Socket::Tcp(tcp).moved_here()?.into_plain()),
            Self::Unix(unix) => Ok(Socket::Unix(unix).moved_here()?.into_plain()),
            Self::Tls(tls) => Ok(Self::Tls(Box::new(tls.moved_here()?))),
        }
    }

    /// What there is to receive on an idle connection.
    ///
    /// Asks the runtime's readiness, which costs no system call while the connection is quiet.
    pub(crate) fn look(&mut self) -> Idle {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        match self.poll_end_of_quiet(&mut cx) {
            Poll::Pending => Idle::Quiet,
            Poll::Ready(idle) => idle,
        }
    }

    /// Ready once an idle connection is no longer quiet: it can't be used any more.
    pub(crate) fn poll_end_of_quiet(&mut self, cx: &mut Context<'_>) -> Poll<Idle> {
        match self {
            Self::Tcp(tcp) => {
                poll_end_of_quiet(cx, |space| tcp.try_read(space), |cx| tcp.poll_read_ready(cx))
            }
            Self::Unix(unix) => {
                poll_end_of_quiet(cx, |space| unix.try_read(space), |cx| unix.poll_read_ready(cx))
            }
            Self::Tls(tls) => tls.poll_end_of_quiet(cx),
        }
    }

    /// Makes closing abortive (RST), so that the peer can't take what it got for the whole.
    pub(crate) fn set_abortive(&self) {
        let tcp = match self {
            Self::Tcp(tcp) => Some(tcp),
            Self::Tls(tls) => tls.tcp(),
            Self::Unix(_) => None,
        };
        if let Some(tcp) = tcp {
            // Best effort: the connection is being given up either way.
            drop(socket2::SockRef::from(tcp).set_linger(Some(Duration::ZERO)));
        }
    }
}

fn poll_recv_plain<S: AsyncRead + Unpin>(
    stream: &mut S,
    cx: &mut Context<'_>,
    buffer: &mut Buffer,
) -> Poll<io::Result<usize>> {
    let mut space = ReadBuf::new(buffer.space());
    std::task::ready!(Pin::new(stream).poll_read(cx, &mut space))?;
    let count = space.filled().len();
    buffer.received(count);
    Poll::Ready(Ok(count))
}

fn poll_send_plain<S: AsyncWrite + Unpin>(
    stream: &mut S,
    cx: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    let sent = match slices {
        [one] => std::task::ready!(Pin::new(stream).poll_write(cx, one))?,
        many => std::task::ready!(Pin::new(stream).poll_write_vectored(cx, many))?,
    };
    if sent == 0 && slices.iter().any(|slice| !slice.is_empty()) {
        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
    }
    Poll::Ready(Ok(sent))
}

/// What there is to receive on a connection that no response is awaited on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Nothing: it can be used.
    Quiet,
    /// It has ended, in order or with an error, or with the words of a server that is tired of waiting.
    Ended,
    /// Bytes that belong to no response.
    Surplus,
}

impl Idle {
    /// By the first bytes that were received.
    fn of(received: &[u8]) -> Self {
        // Some servers say why they close an idle connection (RFC 9110 §15.5.9).
        let is_farewell = received.starts_with(b"HTTP/1.1 408") || received.starts_with(b"HTTP/1.0 408");
        if received.is_empty() || is_farewell { Self::Ended } else { Self::Surplus }
    }
}

/// How much of unexpected bytes is read, to tell a farewell from a surplus.
const LOOK_BYTES: usize = 12;

fn poll_end_of_quiet(
    cx: &mut Context<'_>,
    try_read: impl Fn(&mut [u8]) -> io::Result<usize>,
    poll_read_ready: impl Fn(&mut Context<'_>) -> Poll<io::Result<()>>,
) -> Poll<Idle> {
    loop {
        if std::task::ready!(poll_read_ready(cx)).is_err() {
            return Poll::Ready(Idle::Ended);
        }
        // The readiness may be left over from the last response: only the socket knows. If it is, reading clears it.
        let mut space = [0; LOOK_BYTES];
        match try_read(&mut space) {
            Ok(count) => return Poll::Ready(Idle::of(space.get(..count).unwrap_or_default())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Poll::Ready(Idle::Ended),
        }
    }
}
