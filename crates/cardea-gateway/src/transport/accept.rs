//! The beginning of a handshake whose configuration depends on the server name that the client sends.

use std::{
    io,
    task::{Context, Poll, ready},
};

use cardea_tls::ServerTls;
use rustls::{ServerConnection, server::Acceptor};

use super::tls::{Blocking, Socket, TlsTransport};
use crate::buffer::Buffer;

/// Reads a ClientHello, and goes on with the configuration for its server name.
pub(crate) async fn accept_by_name(
    mut socket: Socket,
    tls: &ServerTls,
    mut early: Buffer,
) -> io::Result<TlsTransport> {
    let mut acceptor = Acceptor::default();
    let session =
        std::future::poll_fn(|cx| poll_accept(cx, &mut acceptor, &mut socket, &mut early, tls)).await?;
    Ok(TlsTransport::resume_server(socket, session, early))
}

fn poll_accept(
    cx: &mut Context<'_>,
    acceptor: &mut Acceptor,
    socket: &mut Socket,
    early: &mut Buffer,
    tls: &ServerTls,
) -> Poll<io::Result<ServerConnection>> {
    loop {
        let accepted = acceptor.accept().and_then(|accepted| match accepted {
            None => Ok(None),
            Some(accepted) => {
                let config = tls.config_for(accepted.client_hello().server_name());
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
