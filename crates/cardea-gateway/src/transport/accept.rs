//! The beginning of a handshake whose configuration depends on what the client asks for.

use std::{
    io,
    sync::Arc,
    task::{Context, Poll, ready},
};

use rustls::{
    ServerConfig, ServerConnection,
    server::{Acceptor, ClientHello},
};

use super::tls::{Blocking, Socket, TlsTransport};
use crate::buffer::Buffer;

/// Reads a ClientHello, and goes on with the configuration that is chosen for it.
pub(crate) async fn accept_by_greeting(
    mut socket: Socket,
    mut choose: impl FnMut(&ClientHello<'_>) -> Arc<ServerConfig>,
    mut early: Buffer,
) -> io::Result<TlsTransport> {
    let mut acceptor = Acceptor::default();
    let session =
        std::future::poll_fn(|cx| poll_accept(cx, &mut acceptor, &mut socket, &mut early, &mut choose))
            .await?;
    let mut transport = TlsTransport::resume_server(socket, session, early);
    // What came together with the greeting: early data.
    std::future::poll_fn(|cx| Poll::Ready(transport.open(cx))).await?;
    Ok(transport)
}

fn poll_accept(
    cx: &mut Context<'_>,
    acceptor: &mut Acceptor,
    socket: &mut Socket,
    early: &mut Buffer,
    choose: &mut impl FnMut(&ClientHello<'_>) -> Arc<ServerConfig>,
) -> Poll<io::Result<ServerConnection>> {
    loop {
        let accepted = acceptor.accept().and_then(|accepted| match accepted {
            None => Ok(None),
            Some(accepted) => {
                let config = choose(&accepted.client_hello());
                accepted.into_connection(config).map(Some)
            }
        });
        match accepted {
            Ok(Some(session)) => return Poll::Ready(Ok(session)),
            Ok(None) => {}
            Err((error, mut alert)) => {
                // Whether the client learns why changes nothing.
                let _ = alert.write(&mut Blocking { socket, cx });
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
            }
        }
        let received = if early.is_empty() {
            ready!(poll_read(cx, acceptor, socket))?
        } else {
            let count = acceptor.read_tls(&mut early.filled())?;
            early.consume(count);
            early.release();
            count
        };
        if received == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
    }
}

fn poll_read(cx: &mut Context<'_>, acceptor: &mut Acceptor, socket: &mut Socket) -> Poll<io::Result<usize>> {
    match acceptor.read_tls(&mut Blocking { socket, cx }) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        done => Poll::Ready(done),
    }
}
