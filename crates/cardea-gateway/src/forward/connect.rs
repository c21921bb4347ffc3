//! Connects to endpoints: TCP or Unix socket, name resolution, TLS.

use std::{io, net::SocketAddr};

use cardea_clock::Mono;
use cardea_tls::server_name;
use cardea_upstream::{Address, FailureKind};
use tokio::net::{TcpStream, UnixStream};

use crate::{
    model::ServiceTls,
    shortage::Shortage,
    timer::Timer,
    transport::{Socket, TlsTransport, Transport},
};

/// How many addresses of a name are tried.
const ADDRESSES_MAX: usize = 8;

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectError {
    /// The endpoint could not be reached.
    Endpoint(FailureKind),
    /// The gateway has nothing to connect with. It says nothing of the endpoint.
    Own(Shortage),
}

/// Opens a connection, with the TLS handshake where the service asks for it, by `deadline`.
///
/// # Errors
/// At which step it failed.
pub(crate) async fn connect(
    address: &Address,
    tls: Option<&ServiceTls>,
    timer: &mut Timer,
    deadline: Mono,
) -> Result<Transport, ConnectError> {
    let failed = |kind| Err(ConnectError::Endpoint(kind));
    let socket = match timer.until(deadline, open(address)).await {
        Ok(Ok(socket)) => socket,
        Ok(Err((error, shortage))) => {
            tracing::debug!(endpoint = %address, %error, "can't connect");
            return shortage
                .map_or_else(|| failed(FailureKind::Connect), |shortage| Err(ConnectError::Own(shortage)));
        }
        Err(_) => return failed(FailureKind::ConnectTimeout),
    };
    let Some(tls) = tls else {
        return Ok(socket.into_plain());
    };
    match timer.until(deadline, secure(socket, address, tls)).await {
        Ok(Ok(transport)) => Ok(transport),
        Ok(Err(error)) => {
            tracing::warn!(endpoint = %address, %error, "TLS handshake with the service failed");
            failed(FailureKind::Handshake)
        }
        Err(_) => failed(FailureKind::ConnectTimeout),
    }
}

/// What failed, and what is short where it is the gateway's own fault.
type OpenError = (io::Error, Option<Shortage>);

async fn open(address: &Address) -> Result<Socket, OpenError> {
    let with = |read: fn(&io::Error) -> Option<Shortage>| {
        move |error: io::Error| {
            let shortage = read(&error);
            (error, shortage)
        }
    };
    match address {
        Address::Tcp(address) => tcp(*address).await.map(Socket::Tcp),
        Address::Unix(path) => UnixStream::connect(path).await.map(Socket::Unix).map_err(with(Shortage::of)),
        Address::Name { host, port } => {
            let found = tokio::net::lookup_host((host.as_str(), *port)).await;
            let found = found.map_err(with(Shortage::of_lookup))?;
            let mut last = (io::Error::new(io::ErrorKind::NotFound, "the name has no address"), None);
            for address in found.take(ADDRESSES_MAX) {
                match tcp(address).await {
                    Ok(tcp) => return Ok(Socket::Tcp(tcp)),
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    }
}

async fn tcp(address: SocketAddr) -> Result<TcpStream, OpenError> {
    let failed = |error: io::Error| {
        let shortage = Shortage::of_tcp_connect(&error, address);
        (error, shortage)
    };
    let tcp = TcpStream::connect(address).await.map_err(failed)?;
    tcp.set_nodelay(true).map_err(failed)?;
    Ok(tcp)
}

async fn secure(socket: Socket, address: &Address, tls: &ServiceTls) -> io::Result<Transport> {
    let name = match (&tls.server_name, address) {
        (Some(name), _) => name.clone(),
        (None, Address::Name { host, .. }) => server_name(host).map_err(io::Error::other)?,
        (None, Address::Tcp(address)) => rustls::pki_types::ServerName::IpAddress(address.ip().into()),
        (None, Address::Unix(_)) => {
            return Err(io::Error::other("a Unix socket needs a server name for TLS"));
        }
    };
    let mut tls =
        TlsTransport::client(socket, std::sync::Arc::clone(&tls.config), name).map_err(io::Error::other)?;
    std::future::poll_fn(|cx| tls.poll_handshake(cx)).await?;
    Ok(Transport::Tls(Box::new(tls)))
}
