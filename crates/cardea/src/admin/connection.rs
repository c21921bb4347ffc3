//! The client side of the admin socket, for the command line.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use zeroize::Zeroizing;

use super::protocol::{REPLY_BYTES_MAX, Reply, Request};

/// The timeout of a reply: longer than the database waits for its lock.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a request to the running server failed. The server may have carried it out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    /// The socket exists, but refuses this user.
    #[error("{}: a gateway may be running, but its admin socket refuses this user; run the command as the gateway's user or as root", path.display())]
    Permission {
        /// The socket.
        path: PathBuf,
    },
    /// The connection failed or timed out.
    #[error("{}: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The reply can't be parsed.
    #[error("{}: the reply is unknown to this version; use the same version of cardea for both", path.display())]
    Protocol {
        /// The socket.
        path: PathBuf,
    },
}

/// A connection to the running server.
pub(crate) struct Connection {
    stream: BufReader<UnixStream>,
    path: PathBuf,
}

impl Connection {
    /// Connects; `None` if no server runs.
    ///
    /// # Errors
    /// [`ConnectionError`] if a server may run but can't be asked. Then the database must not be changed behind its
    /// back.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>, ConnectionError> {
        let failed = |source| ConnectionError::Io { path: path.to_owned(), source };
        let stream = match UnixStream::connect(path) {
            Ok(stream) => stream,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(None),
                    io::ErrorKind::PermissionDenied => {
                        Err(ConnectionError::Permission { path: path.to_owned() })
                    }
                    _ => Err(failed(error)),
                };
            }
        };
        stream.set_write_timeout(Some(REPLY_TIMEOUT)).map_err(failed)?;
        let connection = Self { stream: BufReader::new(stream), path: path.to_owned() };
        connection.set_reply_timeout(REPLY_TIMEOUT)?;
        Ok(Some(connection))
    }

    /// Sets the timeout of further replies, for slow requests.
    ///
    /// # Errors
    /// [`ConnectionError::Io`].
    pub(crate) fn set_reply_timeout(&self, timeout: Duration) -> Result<(), ConnectionError> {
        let set = self.stream.get_ref().set_read_timeout(Some(timeout));
        set.map_err(|source| ConnectionError::Io { path: self.path.clone(), source })
    }

    /// Sends a request, and waits for the reply.
    ///
    /// # Errors
    /// [`ConnectionError`].
    pub(crate) fn call(&mut self, request: &Request) -> Result<Reply, ConnectionError> {
        self.call_with_progress(request, &mut |_| {})
    }

    /// Sends a request, passes on the progress of an import, and waits for the last reply.
    ///
    /// # Errors
    /// [`ConnectionError`].
    pub(crate) fn call_with_progress(
        &mut self,
        request: &Request,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Reply, ConnectionError> {
        let mut line = self.exchange(request);
        loop {
            let read = line.map_err(|source| {
                let source = match source.kind() {
                    io::ErrorKind::WouldBlock => {
                        io::Error::new(io::ErrorKind::TimedOut, "the gateway does not respond")
                    }
                    _ => source,
                };
                ConnectionError::Io { path: self.path.clone(), source }
            })?;
            match serde_json::from_slice(&read) {
                Ok(Reply::Progress { clients }) => progress(clients),
                Ok(reply) => return Ok(reply),
                Err(_) => return Err(ConnectionError::Protocol { path: self.path.clone() }),
            }
            line = self.reply(Ok(()));
        }
    }

    fn exchange(&mut self, request: &Request) -> io::Result<Zeroizing<Vec<u8>>> {
        let mut line = Zeroizing::new(serde_json::to_vec(request)?);
        line.push(b'\n');
        // A server that refuses the connection has closed it already, but has sent a reply.
        let sent = self.stream.get_mut().write_all(&line);
        self.reply(sent)
    }

    /// The next line; if there is none, why the request could not be sent.
    fn reply(&mut self, sent: io::Result<()>) -> io::Result<Zeroizing<Vec<u8>>> {
        let mut reply = Zeroizing::new(Vec::new());
        let bytes_max = u64::try_from(REPLY_BYTES_MAX).unwrap_or(u64::MAX);
        self.stream.by_ref().take(bytes_max).read_until(b'\n', &mut reply)?;
        if reply.last() == Some(&b'\n') {
            return Ok(reply);
        }
        sent?;
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the gateway closed the connection; see its log"))
    }
}
