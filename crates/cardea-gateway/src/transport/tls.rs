//! TLS over a socket: drives rustls' state machine, for both sides of a connection.

use std::{
    io::{self, IoSlice, Read, Write},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use rustls::{
    ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection, pki_types::ServerName,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};

use super::{Idle, LOOK_BYTES, Transport, poll_recv_plain};
use crate::buffer::Buffer;

/// How much plaintext and ciphertext rustls may keep back per connection, in bytes: four records.
const SESSION_BUFFER_BYTES: usize = 64 * 1024;

/// What carries the records.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// The socket as a transport without TLS.
    pub(crate) fn into_plain(self) -> Transport {
        match self {
            Self::Tcp(tcp) => Transport::Tcp(tcp),
            Self::Unix(unix) => Transport::Unix(unix),
        }
    }

    /// See [`Transport::moved_here`].
    pub(crate) fn moved_here(self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(tcp) => Self::Tcp(TcpStream::from_std(tcp.into_std()?)?),
            Self::Unix(unix) => Self::Unix(UnixStream::from_std(unix.into_std()?)?),
        })
    }

    /// See [`Transport::poll_recv`].
    pub(crate) fn poll_recv(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(tcp) => poll_recv_plain(tcp, cx, buffer),
            Self::Unix(unix) => poll_recv_plain(unix, cx, buffer),
        }
    }
}

/// A TLS connection over a socket.
#[derive(Debug)]
pub(crate) struct TlsTransport {
    socket: Socket,
    session: Connection,
    /// What was received before TLS began (behind a PROXY header).
    early: Buffer,
    /// The client sends data before the handshake is done (RFC 8446 §2.3), not all of which was read.
    early_data: bool,
    /// The peer's FIN was seen.
    ended: bool,
    /// `close_notify` is queued.
    closing: bool,
}

impl TlsTransport {
    /// The server's side; the handshake is driven by [`TlsTransport::poll_handshake`].
    pub(crate) fn server(
        socket: Socket,
        config: Arc<ServerConfig>,
        early: Buffer,
    ) -> Result<Self, rustls::Error> {
        Ok(Self::new(socket, ServerConnection::new(config)?.into(), early))
    }

    /// The server's side of a handshake whose beginning was read already.
    pub(super) fn resume_server(socket: Socket, session: ServerConnection, early: Buffer) -> Self {
        Self::new(socket, session.into(), early)
    }

    /// The client's side, for connections to services.
    pub(crate) fn client(
        socket: Socket,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, rustls::Error> {
        Ok(Self::new(socket, ClientConnection::new(config, name)?.into(), Buffer::new()))
    }

    fn new(socket: Socket, mut session: Connection, early: Buffer) -> Self {
        session.set_buffer_limit(Some(SESSION_BUFFER_BYTES));
        Self { socket, session, early, early_data: false, ended: false, closing: false }
    }

    /// The server's state machine, for the facts of the handshake.
    pub(crate) fn server_session(&mut self) -> Option<&mut ServerConnection> {
        match &mut self.session {
            Connection::Server(session) => Some(session),
            Connection::Client(_) => None,
        }
    }

    /// The protocol that was negotiated (RFC 7301).
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        self.session.alpn_protocol()
    }

    pub(crate) fn tcp(&self) -> Option<&TcpStream> {
        match &self.socket {
            Socket::Tcp(tcp) => Some(tcp),
            Socket::Unix(_) => None,
        }
    }

    /// See [`Transport::moved_here`].
    pub(super) fn moved_here(self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.moved_here()?, ..self })
    }

    /// Ready once the handshake is done and our last flight is out.
    pub(crate) fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_negotiated(cx))?;
        self.poll_flush(cx)
    }

    /// See [`super::Transport::is_early`].
    pub(super) fn is_early(&self) -> bool {
        self.early_data && self.session.is_handshaking()
    }

    /// Whether requests can be read before the handshake is done. Those of HTTP/2 wait: which frames came before, the codec
    /// doesn't tell.
    fn begins_early(&mut self) -> bool {
        let accepted = |session: &mut ServerConnection| session.early_data().is_some();
        self.early_data = self.server_session().is_some_and(accepted);
        self.early_data && self.session.alpn_protocol() != Some(b"h2")
    }

    /// Ready once requests can be read: the handshake is done, or the client sends early data. Our last flight may still wait
    /// for [`TlsTransport::poll_flush`].
    pub(crate) fn poll_negotiated(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.is_handshaking() && !self.begins_early() {
            ready!(self.poll_next_flight(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Ready once the handshake is done. Data that came meanwhile waits in the session.
    pub(super) fn poll_established(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.is_handshaking() {
            ready!(self.poll_next_flight(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_next_flight(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush(cx))?;
        match ready!(self.poll_records(cx))? {
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            _ => Poll::Ready(Ok(())),
        }
    }

    pub(crate) fn poll_recv(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        let count = ready!(self.poll_read(cx, buffer.space()))?;
        buffer.received(count);
        Poll::Ready(Ok(count))
    }

    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, space: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            if self.early_data
                && let count @ 1.. = self.read_early(space)?
            {
                return Poll::Ready(Ok(count));
            }
            match self.session.reader().read(space) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Ok(0) is a clean end; `UnexpectedEof` an end without `close_notify`.
                done => return Poll::Ready(done),
            }
            let received = ready!(self.poll_records(cx))?;
            if self.session.wants_write()
                && let Poll::Ready(Err(error)) = self.poll_flush(cx)
            {
                // A key update or an alert could not be answered; what was received still counts.
                if received == 0 {
                    return Poll::Ready(Err(error));
                }
            }
        }
    }

    /// Reads what came before the handshake was done; 0 if there is nothing left of it.
    fn read_early(&mut self, space: &mut [u8]) -> io::Result<usize> {
        // Whatever comes after the handshake comes in the other way.
        let is_over = !self.session.is_handshaking();
        let early = self.server_session().and_then(ServerConnection::early_data);
        let count = early.map_or(Ok(0), |mut early| early.read(space))?;
        self.early_data = count > 0 || !is_over || space.is_empty();
        Ok(count)
    }

    /// Receives and opens records; ready with the count of octets received, 0 at the end of the stream.
    fn poll_records(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.ended {
            // rustls has been told; its reader says how the stream ended. Should it not, this does.
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        let received = if self.early.is_empty() {
            let mut socket = Blocking { socket: &mut self.socket, cx };
            self.session.read_tls(&mut socket)
        } else {
            let received = self.session.read_tls(&mut self.early.filled());
            self.early.consume(*received.as_ref().unwrap_or(&0));
            self.early.release();
            received
        };
        let count = match received {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        };
        self.ended = count == 0;
        self.open(cx)?;
        Poll::Ready(Ok(count))
    }

    /// Opens the records that were received.
    pub(super) fn open(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.session.process_new_packets().map(drop).map_err(|error| {
            // The alert that says why; whether it arrives changes nothing.
            let _ = self.poll_flush(cx);
            io::Error::new(io::ErrorKind::InvalidData, error)
        })
    }

    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // What is kept back goes first: back-pressure, and a bound on what rustls holds.
        ready!(self.poll_flush(cx))?;
        let count = self.session.writer().write_vectored(slices)?;
        if let Poll::Ready(Err(error)) = self.poll_flush(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(count))
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            let mut socket = Blocking { socket: &mut self.socket, cx };
            match self.session.write_tls(&mut socket) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.closing {
            self.closing = true;
            self.session.send_close_notify();
        }
        ready!(self.poll_flush(cx))?;
        match &mut self.socket {
            Socket::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Socket::Unix(unix) => Pin::new(unix).poll_shutdown(cx),
        }
    }

    /// See [`super::Transport::look`]. Records without data (tickets) may have come since; they are read.
    pub(super) fn poll_end_of_quiet(&mut self, cx: &mut Context<'_>) -> Poll<Idle> {
        // Data may also lie in the session, opened together with the end of the last response. Where the socket is not
        // ready, this costs no system call.
        let mut space = [0; LOOK_BYTES];
        self.poll_read(cx, &mut space)
            .map(|read| read.map_or(Idle::Ended, |count| Idle::of(space.get(..count).unwrap_or_default())))
    }
}

/// Shows the socket to rustls as one that returns `WouldBlock`.
pub(super) struct Blocking<'a, 'cx, 'waker> {
    pub(super) socket: &'a mut Socket,
    pub(super) cx: &'cx mut Context<'waker>,
}

fn blocking<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl Read for Blocking<'_, '_, '_> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let mut space = ReadBuf::new(space);
        blocking(match self.socket {
            Socket::Tcp(tcp) => Pin::new(tcp).poll_read(self.cx, &mut space),
            Socket::Unix(unix) => Pin::new(unix).poll_read(self.cx, &mut space),
        })?;
        Ok(space.filled().len())
    }
}

impl Write for Blocking<'_, '_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        blocking(match self.socket {
            Socket::Tcp(tcp) => Pin::new(tcp).poll_write(self.cx, bytes),
            Socket::Unix(unix) => Pin::new(unix).poll_write(self.cx, bytes),
        })
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if let [one] = slices {
            return self.write(one);
        }
        blocking(match self.socket {
            Socket::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(self.cx, slices),
            Socket::Unix(unix) => Pin::new(unix).poll_write_vectored(self.cx, slices),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
